# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How a connection calls tools, from threads and from event loops.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from haystack.tracing.tracer import is_tracing_enabled

from haystack_integrations.tools.mcp.connection.context_managed import Holds
from haystack_integrations.tools.mcp.connection.interceptors import Interceptors
from haystack_integrations.tools.mcp.connection.limits import CallLimits
from haystack_integrations.tools.mcp.connection.preload import preloaded
from haystack_integrations.tools.mcp.connection.requests import Admission, CallRequest, call_request, executor_failed
from haystack_integrations.tools.mcp.connection.tracing import traced_call
from haystack_integrations.tools.mcp.errors import MCPInvocationError
from haystack_integrations.tools.mcp.executor import AsyncExecutor, Waiter, running_loop
from haystack_integrations.tools.mcp.handlers.progress import (
    AwaitedReports,
    MCPProgress,
    ProgressCallback,
    WaitingReports,
    is_asynchronous,
)

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.identities import Identities
    from haystack_integrations.tools.mcp.connection.interception import InterceptedCall
    from haystack_integrations.tools.mcp.protocol.base import ServerDetails
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

_NOT_TRACED: AbstractContextManager[None] = nullcontext()


class Calling:
    """
    Calls tools through the sessions of one connection.
    """

    server_info: MCPServerInfo
    connection_timeout: float
    # How much longer the caller waits than what it waits for, which has its own timeout that a login may extend.
    _grace: float
    _limits: CallLimits
    _interceptors: Interceptors
    _identities: Identities | None
    _users: Holds
    _admission: Admission | None = None

    @abstractmethod
    def _leave(self) -> object:
        """Close the sessions in the background, unless other connections share them."""

    @abstractmethod
    def _acquire(self) -> Identities:
        """Return the sessions with the server."""

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
        :raises ValueError: If `tool_name`, `tool_args`, `meta` or `on_progress` is of the wrong type.
        """
        request = call_request(
            tool_name,
            tool_args,
            display_name=display_name,
            may_repeat=may_repeat,
            invocation_timeout=invocation_timeout,
            secrets=secrets,
            meta=meta,
            on_progress=on_progress,
        )
        if on_progress is not None and is_asynchronous(on_progress):
            msg = "`on_progress` of `call_tool` must not be asynchronous; use `call_tool_async`, or a function"
            raise ValueError(msg)
        return self._deliver(request)

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
        request = call_request(
            tool_name,
            tool_args,
            display_name=display_name,
            may_repeat=may_repeat,
            invocation_timeout=invocation_timeout,
            secrets=secrets,
            meta=meta,
            on_progress=on_progress,
        )
        return await self._deliver_async(request)

    def _deliver(self, request: CallRequest) -> types.CallToolResult:
        self._users.enter()
        try:
            with self._traced(request) if is_tracing_enabled() else _NOT_TRACED:
                return self._intercepted(request).run() if self._interceptors else self._send(request)
        finally:
            self._end_use()

    async def _deliver_async(self, request: CallRequest) -> types.CallToolResult:
        self._users.enter()
        try:
            with self._traced(request) if is_tracing_enabled() else _NOT_TRACED:
                return await (self._send_intercepted(request) if self._interceptors else self._send_async(request))
        finally:
            self._end_use()

    def _end_use(self) -> None:
        """
        Count one user less. If a block has ended meanwhile, and nobody else uses the connection, it is closed.
        """
        if self._users.leave():
            self._leave()

    def _traced(self, request: CallRequest) -> AbstractContextManager[None]:
        return traced_call(request.tool_name, self.server_info, self._describe_server(), self._details)

    @abstractmethod
    def _details(self) -> ServerDetails | None:
        """Return what the server said of itself when the session was opened; None while there is none."""

    def _send(self, request: CallRequest) -> types.CallToolResult:
        limits = self._limits if request.invocation_timeout is None else self._limits_within(request.invocation_timeout)
        reports = None if request.on_progress is None else WaitingReports(request.on_progress)
        waiter = reports or Waiter()

        def extend(_: CallRequest) -> None:
            waiter.extension = (self._longest_task(limits),)

        request.on_task = extend
        try:
            executor = AsyncExecutor.get_instance()
            body = self._called(request, limits, reports.add if reports is not None else None)
            return executor.run(body, self._longest_call(limits), waiter=waiter)
        except MCPInvocationError:
            raise
        except (OSError, RuntimeError) as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error

    async def _send_async(self, request: CallRequest) -> types.CallToolResult:
        limits = self._limits if request.invocation_timeout is None else self._limits_within(request.invocation_timeout)
        reports = None if request.on_progress is None else AwaitedReports(request.on_progress)
        try:
            loop, executor = running_loop(), AsyncExecutor.get_instance()
            async with asyncio.timeout(self._longest_call(limits)) as limit:

                def extend(_: CallRequest) -> None:
                    longest = self._longest_task(limits)
                    when = None if longest is None else loop.time() + longest
                    loop.call_soon_threadsafe(limit.reschedule, when)

                request.on_task = extend
                operation = executor.run_async(
                    self._called(request, limits, reports.add if reports is not None else None)
                )
                return await (operation if reports is None else reports.wait(operation))
        except MCPInvocationError:
            raise
        except (OSError, RuntimeError) as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error

    def _called(
        self, request: CallRequest, limits: CallLimits, on_progress: Callable[[MCPProgress], None] | None
    ) -> Coroutine[Any, Any, types.CallToolResult]:
        """
        Return the coroutine that calls a tool, for the executor's loop.
        """
        if self._identities is None:
            return self._called_first(request, limits, on_progress)
        return self._identities.call(
            request,
            limits,
            connection_timeout=self.connection_timeout,
            on_progress=on_progress,
            admission=self._admission,
        )

    async def _called_first(
        self, request: CallRequest, limits: CallLimits, on_progress: Callable[[MCPProgress], None] | None
    ) -> types.CallToolResult:
        await preloaded()  # making the first of a process imports the types of the protocol
        self._acquire()
        return await self._called(request, limits, on_progress)

    async def _send_intercepted(self, request: CallRequest) -> types.CallToolResult:
        try:
            if self._identities is None:
                await AsyncExecutor.get_instance().run_async(preloaded())
        except (OSError, RuntimeError) as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error
        return await self._intercepted(request).run_async()

    def _intercepted(self, request: CallRequest) -> InterceptedCall:
        try:
            # The module imports the types of the protocol, which takes a quarter of a second.
            from haystack_integrations.tools.mcp.connection.interception import InterceptedCall  # noqa: PLC0415
        except OSError as error:
            raise executor_failed(error, request.display_name, request.tool_args) from error
        return InterceptedCall(
            self._interceptors,
            request,
            server=self._describe_server(),
            send=self._send,
            send_async=self._send_async,
        )

    @abstractmethod
    def _describe_server(self) -> str:
        """Describe the server, without secrets."""

    def _limits_within(self, timeout: float) -> CallLimits:
        limits = self._limits
        total = limits.max_total_timeout
        return dataclasses.replace(
            limits,
            invocation_timeout=timeout,
            timeout_name="invocation_timeout",
            max_total_timeout=None if total is None else max(total, timeout),
        )

    def _longest_call(self, limits: CallLimits) -> float | None:
        limit = limits.longest_call
        return None if limit is None else self.connection_timeout + limit + self._grace

    def _longest_task(self, limits: CallLimits) -> float | None:
        limit = limits.task_timeout
        return None if limit is None else 2 * self.connection_timeout + limit + self._grace
