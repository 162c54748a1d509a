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
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from haystack.tracing.tracer import is_tracing_enabled

from haystack_integrations.tools.mcp.connection.context_managed import Holds
from haystack_integrations.tools.mcp.connection.in_loop import asynchronous, blocking
from haystack_integrations.tools.mcp.connection.interceptors import Interceptors
from haystack_integrations.tools.mcp.connection.limits import CallLimits
from haystack_integrations.tools.mcp.connection.preload import preloaded
from haystack_integrations.tools.mcp.connection.reading import Reading
from haystack_integrations.tools.mcp.connection.requests import Admission, CallRequest, call_request, executor_failed
from haystack_integrations.tools.mcp.connection.tracing import traced_call
from haystack_integrations.tools.mcp.errors import MCPCallPendingError, MCPInvocationError
from haystack_integrations.tools.mcp.executor import AsyncExecutor, Patience, Waiter
from haystack_integrations.tools.mcp.handlers.progress import (
    AwaitedReports,
    MCPProgress,
    ProgressCallback,
    WaitingReports,
    is_asynchronous,
)
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, strings_in

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.identities import Identities
    from haystack_integrations.tools.mcp.connection.interception import InterceptedCall
    from haystack_integrations.tools.mcp.handlers.progress import ProgressCallback
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
        patience = Patience()

        def extend(_: CallRequest) -> None:
            patience.extension = (self._longest_task(limits),)

        request.on_task = extend
        try:
            executor = AsyncExecutor.get_instance()
            body = self._called(request, limits, reports.add if reports is not None else None)
            operation = executor.run_async(body, self._longest_call(limits), patience=patience)
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


class Continuing(Calling, Reading):
    """
    Begins calls without waiting for their end, and continues calls that were left open.
    """

    def begin_call(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult | MCPPendingCall:
        """
        Call a tool, and return as soon as the server runs it as a task, or wants something of the user first.

        Servers of revision 2026-07-28 do that; they ask only if the connection has
        `MCPHandlers(elicitation=answer_later)`, or another handler, which then answers.

        :param tool_name: Name of the tool at the server.
        :param tool_args: Arguments to pass to the tool.
        :param invocation_timeout: As in `call_tool`, as the further parameters.
        :param secrets: The secrets among the arguments. What is kept of the call does not contain them.
        :param meta: The `_meta` of the request.
        :param on_progress: Called with each report of the tool's progress.
        :returns: The result; or the call that is left open, for `continue_call` in this or any other process.
        :raises MCPInvocationError: As `call_tool`.
        :raises ValueError: As `call_tool`.
        """
        request = _beginning(tool_name, tool_args, invocation_timeout, secrets, meta, on_progress)
        try:
            return self._deliver(request)
        except MCPCallPendingError as error:
            return error.pending_call

    async def begin_call_async(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult | MCPPendingCall:
        """
        Do the same as `begin_call` without blocking the event loop.
        """
        request = _beginning(tool_name, tool_args, invocation_timeout, secrets, meta, on_progress)
        try:
            return await self._deliver_async(request)
        except MCPCallPendingError as error:
            return error.pending_call

    def continue_call(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        withheld: Mapping[str, Any] | None = None,
        display_name: str | None = None,
        invocation_timeout: float | None = None,
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Go on with a call that was left open, on this or any other connection to the same server.

        It sends the answers to the server's questions, and waits for the end of a task.

        :param call: The call.
        :param answers: The answers to `call.questions` by their keys: for a form a dictionary of its values; True to
            accept a form with its defaults, or a URL that was opened; False to decline; None to cancel. Questions
            without an answer go to the handler `elicitation`, if it is another than `answer_later`.
        :param withheld: The values of the arguments in `call.withheld`, which are Secrets.
        :param display_name: Name of the tool in error messages, if it is another.
        :param invocation_timeout: As in `call_tool`, as the further parameters.
        :param meta: The `_meta` of the request.
        :param on_progress: Called with each report of the tool's progress.
        :returns: The result.
        :raises MCPCallPendingError: If the server has further questions. The call is in its `pending_call`.
        :raises MCPInvocationError: As `call_tool`; also if the server does not know the call any more.
        :raises ValueError: If an answer or an argument is missing, unknown, or does not fit its form; if the call is
            another server's, or has nothing to go on with. Nothing was sent.
        """
        self._check_pending(call)
        return self._deliver(_continuing(call, answers, withheld, display_name, invocation_timeout, meta, on_progress))

    async def continue_call_async(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        withheld: Mapping[str, Any] | None = None,
        display_name: str | None = None,
        invocation_timeout: float | None = None,
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Do the same as `continue_call` without blocking the event loop.
        """
        self._check_pending(call)
        return await self._deliver_async(
            _continuing(call, answers, withheld, display_name, invocation_timeout, meta, on_progress)
        )

    async def _cancel_call(self, call: MCPPendingCall) -> bool:
        """
        Ask the server to end the task of a call that was left open.

        :param call: The call.
        :returns: Whether it was asked. False for a call that is no task, of which the server need not know.
        :raises MCPConnectionError: If that fails, e.g. because the server does not know the task any more.
        :raises ValueError: If `call` is no pending call, or that of another server.
        """
        task_id = self._checked_call(call).task_id
        if task_id is not None:
            await self._sessions._ask("tasks/cancel", lambda client: client.cancel_task(task_id))
        return task_id is not None

    cancel_call: Final = blocking(_cancel_call)
    cancel_call_async: Final = asynchronous(_cancel_call)

    def _checked_call(self, call: Any) -> MCPPendingCall:
        if not isinstance(call, MCPPendingCall):
            msg = f"`call` must be an MCPPendingCall, e.g. of `MCPPendingCall.from_dict`, got {type(call).__name__}"
            raise ValueError(msg)
        here = self._describe_server()
        if call.server and call.server != here:
            msg = (
                f"`call` is one of {call.server}, and this is a connection to {here}. If that is the same server, "
                'pass `dataclasses.replace(call, server="")`.'
            )
            raise ValueError(msg)
        return call

    def _check_pending(self, call: Any) -> None:
        if not self._checked_call(call).can_be_continued:
            msg = (
                "`call` has nothing to go on with, neither a task nor questions nor a request state, so it would begin "
                "anew. Pass what was stored, or begin a call with `begin_call`."
            )
            raise ValueError(msg)


def _beginning(
    tool_name: str,
    tool_args: dict[str, Any] | None,
    invocation_timeout: float | None,
    secrets: Iterable[str],
    meta: dict[str, Any] | None,
    on_progress: ProgressCallback | None,
) -> CallRequest:
    return call_request(
        tool_name,
        tool_args,
        invocation_timeout=invocation_timeout,
        secrets=secrets,
        meta=meta,
        on_progress=on_progress,
        leaves_tasks=True,
    )


def _continuing(
    call: MCPPendingCall,
    answers: Mapping[str, Any] | None,
    withheld: Mapping[str, Any] | None,
    display_name: str | None,
    invocation_timeout: float | None,
    meta: dict[str, Any] | None,
    on_progress: ProgressCallback | None,
) -> CallRequest:
    if answers is not None and not isinstance(answers, Mapping):
        msg = f"`answers` must be a dict from the keys of `call.questions` to answers, got {type(answers).__name__}"
        raise ValueError(msg)
    given = dict(withheld or {})
    if set(given) != set(call.withheld):
        msg = f"`withheld` must have the arguments {sorted(call.withheld)}, and no others; it has {sorted(given)}"
        raise ValueError(msg)
    return call_request(
        call.tool_name,
        {**call.arguments, **given},
        display_name=display_name,
        invocation_timeout=invocation_timeout,
        secrets=tuple(strings_in(given)),
        meta=meta,
        on_progress=on_progress,
        continues=(call, answers),
    )
