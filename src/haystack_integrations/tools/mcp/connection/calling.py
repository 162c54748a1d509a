# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How a connection calls tools, from threads and from event loops.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from haystack.tracing.tracer import is_tracing_enabled

from haystack_integrations.tools.mcp.connection.context_managed import Holds
from haystack_integrations.tools.mcp.connection.executor_errors import executor_failed
from haystack_integrations.tools.mcp.connection.interceptors import Interceptors
from haystack_integrations.tools.mcp.connection.limits import CallLimits
from haystack_integrations.tools.mcp.connection.preload import preloaded
from haystack_integrations.tools.mcp.connection.requests import Admission, CallRequest, check_call
from haystack_integrations.tools.mcp.connection.tracing import traced_call
from haystack_integrations.tools.mcp.errors import MCPCallPendingError, MCPInvocationError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.elicitation import answer_later
from haystack_integrations.tools.mcp.handlers.progress import (
    AwaitedReports,
    MCPProgress,
    ProgressCallback,
    WaitingReports,
    is_asynchronous,
)
from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.request_context import meta_of_call

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.call import ToolCall
    from haystack_integrations.tools.mcp.connection.identities import Identities
    from haystack_integrations.tools.mcp.connection.interception import InterceptedCall
    from haystack_integrations.tools.mcp.connection.tasks import TaskRun
    from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
    from haystack_integrations.tools.mcp.protocol.base import ServerDetails
    from haystack_integrations.tools.mcp.protocol.inputs import Continuation
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

# The timeouts of a call run in the executor's loop. The caller's own, longer by this, is for a loop that is blocked,
# e.g. by an in-process server that never gives way.
BLOCKED_LOOP_GRACE = 10.0


class Calling:
    """
    Calls tools through the sessions of one connection.
    """

    server_info: MCPServerInfo
    connection_timeout: float
    handlers: MCPHandlers
    _limits: CallLimits
    _interceptors: Interceptors
    _identities: Identities | None
    _users: Holds
    _admission: Admission | None = None

    @abstractmethod
    def _leave(self) -> object:
        """Have what has the sessions closed in the background, unless other connections share it."""

    @abstractmethod
    def _acquire(self) -> Identities:
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
        :raises ValueError: If `tool_name`, `tool_args`, `meta` or `on_progress` is of the wrong type.
        """
        check_call(tool_name, tool_args, meta, on_progress)
        if is_asynchronous(on_progress):
            msg = "`on_progress` of `call_tool` must not be asynchronous; use `call_tool_async`, or a function"
            raise ValueError(msg)
        request = CallRequest(
            tool_name=tool_name,
            tool_args=tool_args if tool_args is not None else {},
            display_name=display_name or tool_name,
            may_repeat=may_repeat,
            invocation_timeout=invocation_timeout,
            secrets=tuple(texts("secrets", secrets)) if secrets else (),
            meta=meta,
            on_progress=on_progress,
        )
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
        check_call(tool_name, tool_args, meta, on_progress)
        request = CallRequest(
            tool_name=tool_name,
            tool_args=tool_args if tool_args is not None else {},
            display_name=display_name or tool_name,
            may_repeat=may_repeat,
            invocation_timeout=invocation_timeout,
            secrets=tuple(texts("secrets", secrets)) if secrets else (),
            meta=meta,
            on_progress=on_progress,
        )
        return await self._deliver_async(request)

    def _deliver(self, request: CallRequest) -> types.CallToolResult:
        self._users.enter()
        try:
            if not is_tracing_enabled():
                return self._intercepted(request).run() if self._interceptors else self._send(request)
            with self._traced(request):
                return self._intercepted(request).run() if self._interceptors else self._send(request)
        finally:
            self._end_use()

    async def _deliver_async(self, request: CallRequest) -> types.CallToolResult:
        self._users.enter()
        try:
            if not is_tracing_enabled():
                return await (self._send_intercepted(request) if self._interceptors else self._send_async(request))
            with self._traced(request):
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
        """Give what the server said of itself when the session was opened; None while there is none."""

    def _send(self, request: CallRequest) -> types.CallToolResult:
        reports = None if request.on_progress is None else WaitingReports(request.on_progress)
        note = reports.add if reports is not None else None
        executor: AsyncExecutor | None = None
        part: ToolCall | TaskRun | None = None
        try:
            executor = AsyncExecutor.get_instance()
            limits = self._limits_of(request)
            task: MCPPendingCall | None = None
            if not request.continues_task:
                part = self._tool_call(request, limits, note)
                try:
                    return executor.run(self._run_part(part), self._longest_wait(limits), waiter=reports)
                except MCPCallPendingError as error:
                    task = _to_be_finished(error, request)
            part = self._task_run(request, limits, task, note)
            return executor.run(self._run_part(part), self._longest_task(limits), waiter=reports)
        except MCPInvocationError:
            raise
        except BaseException as error:
            if executor is not None and part is not None:
                self._give_up(part, executor)
            if isinstance(error, (OSError, RuntimeError)):
                raise executor_failed(error, request.display_name, request.tool_args) from error
            raise

    async def _send_async(self, request: CallRequest) -> types.CallToolResult:
        executor: AsyncExecutor | None = None
        part: ToolCall | TaskRun | None = None
        try:
            executor = AsyncExecutor.get_instance()
            if self._identities is None:
                await executor.run_async(preloaded())
            limits = self._limits_of(request)
            task: MCPPendingCall | None = None
            if not request.continues_task:
                reports = None if request.on_progress is None else AwaitedReports(request.on_progress)
                part = self._tool_call(request, limits, reports.add if reports is not None else None)
                operation = executor.run_async(self._run_part(part), self._longest_wait(limits))
                try:
                    return await (operation if reports is None else reports.wait(operation))
                except MCPCallPendingError as error:
                    task = _to_be_finished(error, request)
            reports = None if request.on_progress is None else AwaitedReports(request.on_progress)
            part = self._task_run(request, limits, task, reports.add if reports is not None else None)
            operation = executor.run_async(self._run_part(part), self._longest_task(limits))
            return await (operation if reports is None else reports.wait(operation))
        except MCPInvocationError:
            raise
        except BaseException as error:
            if executor is not None and part is not None:
                self._give_up(part, executor)
            if isinstance(error, (OSError, RuntimeError)):
                raise executor_failed(error, request.display_name, request.tool_args) from error
            raise

    def _run_part(self, part: ToolCall | TaskRun) -> Coroutine[Any, Any, types.CallToolResult]:
        return (self._identities or self._acquire()).call(part)

    def _give_up(self, part: ToolCall | TaskRun, executor: AsyncExecutor) -> None:
        """
        Have the task cancelled that a call has become, if the caller gives up between its two parts.
        """
        identities = self._identities
        if identities is not None:
            # The loop takes one after the other: whatever of this part can be cancelled is so by then.
            executor.post(lambda: part.leave_behind(identities.base, identities.read))

    async def _send_intercepted(self, request: CallRequest) -> types.CallToolResult:
        try:
            if self._identities is None:
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

    def _limits_of(self, request: CallRequest) -> CallLimits:
        if request.invocation_timeout is None:
            return self._limits
        total = self._limits.max_total_timeout
        return dataclasses.replace(
            self._limits,
            invocation_timeout=request.invocation_timeout,
            timeout_name="invocation_timeout",
            max_total_timeout=None if total is None else max(total, request.invocation_timeout),
        )

    @property
    def _grace(self) -> float:
        # What waits in the loop has its own timeout, which a login of a person may extend.
        return BLOCKED_LOOP_GRACE + self.server_info._longest_login

    def _longest_wait(self, limits: CallLimits) -> float | None:
        limit = limits.longest_call
        return None if limit is None else self.connection_timeout + limit + self._grace

    def _longest_task(self, limits: CallLimits) -> float | None:
        limit = limits.task_timeout
        return None if limit is None else 2 * self.connection_timeout + limit + self._grace

    def _task_run(
        self,
        request: CallRequest,
        limits: CallLimits,
        task: MCPPendingCall | None,
        on_progress: Callable[[MCPProgress], None] | None,
    ) -> TaskRun:
        from haystack_integrations.tools.mcp.connection.tasks import TaskRun  # noqa: PLC0415 - imports the SDK

        continuation = None
        if task is None and request.continues is not None:
            continuation, task = self._continuation(*request.continues), request.continues[0]
        if task is None:
            raise AssertionError  # somebody knows the task
        return TaskRun(
            request,
            task,
            continuation,
            connection_timeout=self.connection_timeout,
            request_timeout=limits.invocation_timeout,
            task_timeout=limits.task_timeout,
            on_progress=on_progress,
        )

    def _tool_call(
        self, request: CallRequest, limits: CallLimits, on_progress: Callable[[MCPProgress], None] | None
    ) -> ToolCall:
        from haystack_integrations.tools.mcp.connection.call import ToolCall  # noqa: PLC0415 - imports the SDK

        return ToolCall(
            request,
            connection_timeout=self.connection_timeout,
            limits=limits,
            meta=meta_of_call(request.meta),
            on_progress=on_progress,
            continuation=None if request.continues is None else self._continuation(*request.continues),
            admission=self._admission,
        )

    def _continuation(self, call: MCPPendingCall, answers: Mapping[str, Any] | None) -> Continuation:
        from haystack_integrations.tools.mcp.protocol.inputs import Continuation  # noqa: PLC0415 - imports the SDK

        return Continuation(call, answers, asks=self.handlers.elicitation not in (None, answer_later))


def _to_be_finished(error: MCPCallPendingError, request: CallRequest) -> MCPPendingCall:
    if request.leaves_tasks or error.pending_call.task_id is None:
        raise error
    return error.pending_call
