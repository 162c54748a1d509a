# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How a connection calls tools, from threads and from event loops.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haystack_integrations.tools.mcp.connection.executor_errors import executor_failed
from haystack_integrations.tools.mcp.connection.interceptors import Interceptors
from haystack_integrations.tools.mcp.connection.limits import CallLimits
from haystack_integrations.tools.mcp.connection.preload import preloaded
from haystack_integrations.tools.mcp.errors import MCPInvocationError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers.progress import (
    AwaitedReports,
    MCPProgress,
    ProgressCallback,
    WaitingReports,
    is_asynchronous,
)
from haystack_integrations.tools.mcp.request_context import meta_of_call

if TYPE_CHECKING:
    from mcp import types

    from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo
    from haystack_integrations.tools.mcp.connection.interception import InterceptedCall
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor

# The timeouts of a call run in the executor's loop. The caller's own, longer by this, is for a loop that is blocked,
# e.g. by an in-process server that never gives way.
BLOCKED_LOOP_GRACE = 10.0


@dataclass(slots=True, kw_only=True)
class CallRequest:
    """
    What the caller of a tool wants. `Calling.call_tool` documents it.
    """

    tool_name: str
    tool_args: dict[str, Any]
    display_name: str
    may_repeat: bool = False
    invocation_timeout: float | None = None
    secrets: Iterable[str] = ()
    meta: dict[str, Any] | None = None
    on_progress: ProgressCallback | None = None


class Calling:
    """
    Calls tools through the sessions of one connection.
    """

    server_info: MCPServerInfo
    connection_timeout: float
    _limits: CallLimits
    _interceptors: Interceptors
    _supervisor: Supervisor | None

    @abstractmethod
    def _acquire(self) -> Supervisor:
        """Give what has the sessions."""

    def call_tool(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        display_name: str | None = None,
        may_repeat: bool = False,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Call a tool.

        :param tool_name: Name of the tool at the server.
        :param tool_args: Arguments to pass to the tool.
        :param display_name: Name of the tool in error messages, if it is another.
        :param may_repeat: Whether it does no harm if the tool runs twice, so that a call whose outcome is unknown may
            be sent again.
        :param invocation_timeout: How long this call may take, in seconds. Default: that of the connection.
        :param secrets: The secrets among the arguments. They are redacted where the server quotes them in errors.
        :param meta: The `_meta` of the request: what the server is told beside the arguments.
        :param on_progress: Called with an MCPProgress for each report of the tool's progress, in this thread, before
            the call returns. If it raises, that is logged, and it gets no more of this call.
        :returns: The result.
        :raises MCPInvocationError: If the tool reports an error or the call fails.
        :raises TimeoutError: If the call takes longer than `invocation_timeout`; as an MCPTimeoutError, which is an
            MCPInvocationError, too.
        :raises ValueError: If `meta` or `on_progress` is invalid.
        """
        _check_call(meta, on_progress)
        if is_asynchronous(on_progress):
            msg = "`on_progress` of `call_tool` must not be asynchronous; use `call_tool_async`, or a function"
            raise ValueError(msg)
        request = CallRequest(
            tool_name=tool_name,
            tool_args=tool_args if tool_args is not None else {},
            display_name=display_name or tool_name,
            may_repeat=may_repeat,
            invocation_timeout=invocation_timeout,
            secrets=secrets,
            meta=meta,
            on_progress=on_progress,
        )
        return self._intercepted(request).run() if self._interceptors else self._send(request)

    async def call_tool_async(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        display_name: str | None = None,
        may_repeat: bool = False,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Do the same as `call_tool` without blocking the event loop.

        It calls `on_progress`, which may be asynchronous, in that loop.
        """
        _check_call(meta, on_progress)
        request = CallRequest(
            tool_name=tool_name,
            tool_args=tool_args if tool_args is not None else {},
            display_name=display_name or tool_name,
            may_repeat=may_repeat,
            invocation_timeout=invocation_timeout,
            secrets=secrets,
            meta=meta,
            on_progress=on_progress,
        )
        return await (self._send_intercepted(request) if self._interceptors else self._send_async(request))

    def _send(self, request: CallRequest) -> types.CallToolResult:
        reports = None if request.on_progress is None else WaitingReports(request.on_progress)
        note, wait = (reports.add, reports.wait) if reports is not None else (None, None)
        try:
            executor = AsyncExecutor.get_instance()
            limits = self._limits_of(request)
            return executor.run(self._run_call(request, limits, note), self._longest_wait(limits), wait=wait)
        except MCPInvocationError:
            raise
        except (OSError, RuntimeError) as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error

    async def _send_async(self, request: CallRequest) -> types.CallToolResult:
        try:
            executor = AsyncExecutor.get_instance()
            if self._supervisor is None:
                await executor.run_async(preloaded())
            reports = None if request.on_progress is None else AwaitedReports(request.on_progress)
            limits = self._limits_of(request)
            call = self._run_call(request, limits, reports.add if reports is not None else None)
            operation = executor.run_async(call, self._longest_wait(limits))
            return await (operation if reports is None else reports.wait(operation))
        except MCPInvocationError:
            raise
        except (OSError, RuntimeError) as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error

    async def _send_intercepted(self, request: CallRequest) -> types.CallToolResult:
        try:
            if self._supervisor is None:
                await AsyncExecutor.get_instance().run_async(preloaded())
        except (OSError, RuntimeError) as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error
        return await self._intercepted(request).run_async()

    def _intercepted(self, request: CallRequest) -> InterceptedCall:
        try:
            # The module imports the MCP SDK, which takes 0.6 s.
            from haystack_integrations.tools.mcp.connection.interception import InterceptedCall  # noqa: PLC0415
        except OSError as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error
        return InterceptedCall(self, self._interceptors, request)

    @abstractmethod
    def _describe_server(self) -> str:
        """Describe the server, without secrets."""

    def _limits_of(self, request: CallRequest) -> CallLimits:
        if request.invocation_timeout is None:
            return self._limits
        total = self._limits.max_total_timeout
        return dataclasses.replace(
            self._limits,
            invocation_timeout=request.invocation_timeout,
            max_total_timeout=None if total is None else max(total, request.invocation_timeout),
        )

    @property
    def _grace(self) -> float:
        # What waits in the loop has its own timeout, which a login of a person may extend.
        return BLOCKED_LOOP_GRACE + self.server_info._longest_login

    def _longest_wait(self, limits: CallLimits) -> float | None:
        limit = limits.longest_call
        return None if limit is None else self.connection_timeout + limit + self._grace

    def _run_call(
        self, request: CallRequest, limits: CallLimits, on_progress: Callable[[MCPProgress], None] | None
    ) -> Coroutine[Any, Any, types.CallToolResult]:
        from haystack_integrations.tools.mcp.connection.call import ToolCall  # noqa: PLC0415 - imports the SDK

        call = ToolCall(
            request,
            connection_timeout=self.connection_timeout,
            limits=limits,
            meta=meta_of_call(request.meta),
            on_progress=on_progress,
        )
        return (self._supervisor or self._acquire()).identities.call(call)


def _check_call(meta: dict[str, Any] | None, on_progress: ProgressCallback | None) -> None:
    if meta is not None and not (isinstance(meta, dict) and all(isinstance(key, str) for key in meta)):
        msg = f"`meta` must be a dict with strings as keys, or None, got {type(meta).__name__}"
        raise ValueError(msg)
    if on_progress is not None and not callable(on_progress):
        msg = f"`on_progress` must be a function that takes an MCPProgress, or None, got {type(on_progress).__name__}"
        raise ValueError(msg)
