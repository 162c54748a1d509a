# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One tool call, with all its attempts.

.. code-block:: text

    waiting for a session ──> under way ──answered──> the result, or the tool's own error
      ^                          │ left open: the server wants input first, or runs the call as a task
      │                          │ not answered, but it did not run, or may run twice
      └──────── pause ───────────┤
                                 └ otherwise, and at the deadline: an error that says whether the tool may have run

Which calls are sent again (`ToolCall._retry_pause`):

.. code-block:: text

    what happened                                              what is done
    a call provably did not run: the connection was refused,   it is sent again, up to `max_retries` times
    nothing was written, the server forgot the session
    … a session from before the call: the server is back       likewise, counted anew
    … and the server would refuse it again (401, 403, 405)     never sent again
    a call was sent, and its outcome is unknown                sent again only if the tool may run twice: the server
                                                               annotates it so, and the user opted in
    a call timed out, or its caller gave up                    cancelled on the server, never sent again

If the server runs the call as a task (SEP-2663):

.. code-block:: text

    waiting ──poll interval──> asking ──working──> waiting …
                                 ├ completed, failed, cancelled: the result, or an error
                                 ├ wants input: the handlers answer, or the call is left open
                                 └ no answer: asked again, if need be in the next session, until the server has been
                                   away for too long; or after the pause that the server asked for
    at the deadline        an error from which the task can be resumed; the task goes on
    the connection closes  likewise
    the caller gives up    the task is cancelled, unless a durable run takes it up again
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from haystack import logging
from pydantic import ValidationError

from haystack_integrations.tools.mcp.connection.gate import Gate, PlaceHeld
from haystack_integrations.tools.mcp.connection.session import DeadlineError, InFlightRequest
from haystack_integrations.tools.mcp.connection.supervisor import NotForCallerError, Supervisor
from haystack_integrations.tools.mcp.convert.tool_schemas import NEEDS_TASKS
from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPCallPendingError,
    MCPCallTimeoutError,
    MCPConnectionError,
    MCPConnectionTimeoutError,
    MCPDriftedCallError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTimeoutError,
)
from haystack_integrations.tools.mcp.handlers.calling import HandlerReports, MCPProgress
from haystack_integrations.tools.mcp.handlers.calling import call as call_function
from haystack_integrations.tools.mcp.handlers.mcp_handlers import answer_later
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, arguments_with_secrets, is_question
from haystack_integrations.tools.mcp.protocol.mcp_client import AnswerRefusedError, MCPClient, TaskState
from haystack_integrations.tools.mcp.protocol.request_errors import (
    CallDidNotRunError,
    ReadInterruptedError,
    RefusedError,
    describe_error,
    failed_to,
    outcome_unknown,
    raise_tool_error,
    with_full_stop,
)
from haystack_integrations.tools.mcp.protocol.requests_of_server import CallLeftOpenError, Continuation, Responses
from haystack_integrations.tools.mcp.request_context import current_context, meta_of_call

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import Admission, CallRequest
    from haystack_integrations.tools.mcp.connection.session import Session
    from haystack_integrations.tools.mcp.handlers import MCPHandlers

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E", bound=MCPInvocationError)

# How long a journal or a handler may take to store a call, in seconds. Nothing else limits how long a caller waits.
_STORE_TIMEOUT = 60.0

# How long the request that cancels a task may take, in seconds.
_CANCEL_TIMEOUT = 5.0

# How long one request about a task may take if calls have no limit, in seconds.
_REQUEST_TIMEOUT = 30.0

# The codes of errors after which a server is asked about a task again: none, as it cannot be reached, or an internal
# error, for which older SDKs send 0.
_TRANSIENT_CODES = (None, 0, -32603)

# How much time must be left to send a call after a wait, in seconds; for shorter calls, as a share of their timeout.
# With less, it would only time out, and the error would say that the tool may have run.
_MIN_ATTEMPT_TIME = 0.5
_MIN_ATTEMPT_SHARE = 0.2

# A timer of an event loop may fire a little early, in seconds.
_CLOCK_TOLERANCE = 0.05

# How long a handler may take to answer if tasks have no limit, in seconds.
_MAX_HANDLER_TIME = 86_400.0

_RESUME_ADVICE = (
    "The task goes on at the server; do not repeat the call. `continue_call` takes it up again with the `pending_call` "
    "of this error, and `cancel_call` ends it."
)


class ToolCall:
    """
    A tool call, and the wait for its task if the server runs it as one. Used in the executor's loop.
    """

    def __init__(self, request: CallRequest, handlers: MCPHandlers) -> None:
        """
        Initialize the ToolCall, in the context of the caller.

        :param request: What the caller wants.
        :param handlers: One of them may answer questions that the caller leaves open when the call is continued.
        """
        self.request: CallRequest = request
        self._meta = request.meta if current_context.get() is None else meta_of_call(request.meta)
        self._continuation: Continuation | None = None
        # The call whose task is waited for.
        self._pending_task: MCPPendingCall | None = None
        if request.continues is not None:
            asks = handlers.elicitation not in (None, answer_later)
            self._continuation = Continuation(*request.continues, asks=asks, on_answered=request.on_answered)
            if request.continues_task:
                self._pending_task = request.continues[0]
        self._may_have_run = False

    def error_without_session(self, error: MCPConnectionError) -> MCPInvocationError:
        """
        Make the error of a call for which no session could be opened.

        :param error: The reason.
        :returns: The error.
        """
        return (
            self._unanswered_error(error)
            if self._pending_task is None
            else _TaskRun(self, self._pending_task).lost_error(error)
        )

    async def run(self, supervisor: Supervisor) -> types.CallToolResult:
        """
        Call the tool, and wait for the end of its task if the server runs it as one.

        :param supervisor: Provides the sessions.
        :returns: The result.
        :raises MCPCallPendingError: If the server wants input first, or the call became a task and is left open.
        :raises MCPInvocationError: If there is no result for another reason.
        """
        self._supervisor, request = supervisor, self.request
        supervisor.base.calls += 1
        if request.secrets:
            supervisor.redactor.remember(request.secrets)
        self._began = monotonic()
        # How long its attempts have taken, and how much longer they may take. Opening sessions does not count.
        self._time_used, self._time_left = 0.0, request.limits.invocation_timeout
        progress = supervisor.handlers.progress
        self._reports = None if progress is None else HandlerReports(progress)
        try:
            if self._pending_task is None:
                try:
                    return await self._call_with_retries(supervisor)
                except CallLeftOpenError as error:
                    pending, self._continuation = self._pending_call_from(error.result), None
                if pending.task_id is None:
                    await self._store_pending_call(pending)
                    raise supervisor.redactor.error(pending_error(pending, request))
                self._pending_task = pending  # if this is run again, for another session, the tool must not run again
                return await _TaskRun(self, pending).run(is_new=True)
            return await _TaskRun(self, self._pending_task).run()
        except NotForCallerError:
            supervisor.base.calls -= 1
            raise
        except MCPCallPendingError:
            raise
        except Exception as error:
            failure = self._error_for_caller(error)
            supervisor.count_failure(failure)
            raise failure from failure.__cause__

    async def _call_with_retries(self, supervisor: Supervisor) -> types.CallToolResult:
        """
        Call the tool; send it again only if it provably did not run, or may run twice.
        """
        gate, request, limits = supervisor.gate, self.request, self.request.limits
        is_asked = self._reports is not None or request.report is not None or limits.reset_timeout_on_progress
        attempt, newest_before = 0, supervisor.generation
        while True:
            place = None if gate.max_in_flight is None and not gate.outcomes else await self._enter_gate(gate)
            entered_at = monotonic()
            self._in_flight: InFlightRequest | None = None
            try:
                session = supervisor.open_session() or await supervisor.ready_session(self._connect_time_left())
                if request.tool_name in session.task_only_tools:
                    raise request.error(MCPInvocationError, f"{NEEDS_TASKS}. The tool did not run.")
                if request.admission is not None:
                    await self._check_admission(session, request.admission)
                if request.before_send is not None:
                    request.before_send()
                self._session, self._attempt_began = session, monotonic()
                left = self._time_left if limits.max_total_timeout is None else self._within_total(self._time_left)
                deadline = None if left is None else self._attempt_began + left
                in_flight = self._in_flight = InFlightRequest(deadline, limits.max_silence, limits.ping_interval)
                answer = session.request_tool(
                    request.tool_name,
                    request.tool_args,
                    meta=self._meta,
                    on_progress=self._on_progress if is_asked else None,
                    continuation=self._continuation,
                )
                result = await session.answer(answer, self._outcome_unknown, in_flight)
                if self._reports is not None:
                    await self._deliver_reports(self._reports, self._end_attempt())
                if result.is_error:
                    raise_tool_error(result, request.tool_name, request.tool_args)
                if gate.outcomes:
                    gate.answered()
                return result
            except Exception as error:
                self._end_attempt()
                if (
                    isinstance(error, CallDidNotRunError)
                    and error.lost_because is not None
                    and self._session.generation <= newest_before
                ):
                    attempt = 0  # earlier attempts may have failed because the server was restarting
                pause = self._retry_pause(attempt, error)
                if pause is None:
                    self._record_outcome(error, entered_at)
                    raise
            finally:
                if place is not None:
                    gate.leave(place)
            attempt += 1
            if pause:
                await asyncio.sleep(pause)

    async def _check_admission(self, session: Session, admission: Admission) -> None:
        supervisor, timeout = self._supervisor, self._connect_time_left()
        try:
            for again in (False, True):
                # A restarted server that has its old tools again does not report that, because it has forgotten the
                # session. Nothing else is sent, so only another listing can show it.
                listing = await supervisor.current_tools(session, self._connect_time_left(), again=again)
                reason = await admission.refusal(self.request.tool_name, listing)
                if reason is None:
                    return
        except ReadInterruptedError as error:  # the next session has a listing of its own
            raise CallDidNotRunError(str(error)) from error
        except TimeoutError:
            msg = f"{failed_to('list_tools', supervisor.description)}: timed out after {timeout:g} seconds"
            raise MCPConnectionTimeoutError(msg, supervisor.server_info, "list_tools") from None
        raise self.request.error(MCPDriftedCallError, f"{reason} Nothing was sent.")

    async def _enter_gate(self, gate: Gate) -> PlaceHeld | None:
        began, left = monotonic(), self._within_total(self._time_left)
        try:
            return await gate.enter(None if left is None else left - self._min_attempt_time)
        finally:
            waited = monotonic() - began
            self._time_used += waited
            self._time_left = None if left is None else left - waited

    @property
    def _min_attempt_time(self) -> float:
        limit = self.request.limits.invocation_timeout
        return _MIN_ATTEMPT_TIME if limit is None else min(_MIN_ATTEMPT_TIME, _MIN_ATTEMPT_SHARE * limit)

    def _within_total(self, seconds: float | None, taken: float = 0.0) -> float | None:
        total = self.request.limits.max_total_timeout
        if total is None:
            return seconds
        left = total - self._time_used - taken
        return left if seconds is None else min(seconds, left)

    def _record_outcome(self, error: Exception, entered_at: float) -> None:
        # `connection.gate` has a table of these cases.
        gate = self._supervisor.gate
        match error:
            case (
                CallDidNotRunError(denied=True) | MCPAuthorizationError() | NotForCallerError() | MCPDriftedCallError()
            ):
                pass
            case MCPOutcomeUnknownError():
                gate.failed(error.reason or str(error), entered_at)
            case CallDidNotRunError() | MCPConnectionError() if not self._supervisor.throttle.seconds:
                gate.failed(error._for_others or str(error), entered_at)
            case DeadlineError():
                if self._session.life.heard_at < self._attempt_began:
                    gate.failed("it was silent until a call timed out", entered_at)
            case CallLeftOpenError():
                gate.answered()
            case MCPInvocationError(_outcome="did_not_run", __cause__=RefusedError(status=str(status), reason=reason)):
                # Other refusals may concern one user's token only.
                if status.startswith("429") and not self._supervisor.throttle.seconds:
                    gate.failed(reason, entered_at)
            case MCPInvocationError():
                # Any other error may come from this package, for a call that could not be sent.
                if error.code is not None or error.is_tool_error:
                    gate.answered()

    def _connect_time_left(self) -> float:
        # How much longer the call waits for sessions, in seconds.
        waited = monotonic() - self._began - self._time_used
        return max(self.request.connection_timeout - waited, 0.0)

    def _retry_pause(self, attempt: int, error: Exception) -> float | None:
        # How long to wait before the call is sent again, in seconds; None if it is not.
        supervisor = self._supervisor
        match error:
            case CallDidNotRunError():
                may_repeat = not error.denied
            case MCPOutcomeUnknownError():
                self._may_have_run = True
                may_repeat = self.request.may_repeat
            case _:
                return None
        # A lost session is reopened at once; opening has its own back-off.
        pause = supervisor.delay(attempt) if attempt or supervisor.is_ready() else 0.0
        if attempt >= supervisor.max_retries or pause > self._connect_time_left() or not may_repeat:
            return None
        if self._time_left is not None and self._time_left < self._min_attempt_time:
            return None
        logger.info(
            "A call of a tool of {server} was not answered ({reason}); sending it again",
            server=supervisor.description,
            reason=getattr(error, "reason", None) or error.lost_because or str(error),
        )
        return pause

    def _outcome_unknown(self, reason: str) -> MCPOutcomeUnknownError:
        return outcome_unknown(reason, self.request.tool_name, self.request.tool_args)

    def _end_attempt(self) -> float | None:
        # Returns how much longer the attempt could have taken, in seconds.
        if self._in_flight is not None:
            self._time_used += monotonic() - self._attempt_began
            self._time_left, self._in_flight = self._in_flight.seconds_left, None
        return self._time_left

    def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        in_flight = self._in_flight
        if in_flight is None or in_flight.is_over:
            return
        self._session.life.heard()
        if self.request.limits.reset_timeout_on_progress:
            limits, taken = self.request.limits, monotonic() - self._attempt_began
            left = self._within_total(limits.invocation_timeout, taken)
            in_flight.deadline = None if left is None else monotonic() + left
        self._report(progress, total, message)

    def _report(self, progress: float, total: float | None, message: str | None) -> None:
        report = MCPProgress(
            server=self._supervisor.description,
            tool_name=self.request.tool_name,
            progress=float(progress),
            total=None if total is None else float(total),
            message=message,
        )
        if self._reports is not None:
            self._reports.add(report)
        if self.request.report is not None:
            self.request.report(report)

    async def _deliver_reports(self, reports: HandlerReports, left: float | None) -> None:
        # The result has arrived, and must not be lost because a function is slow.
        if not await reports.delivered(left):
            logger.warning(
                "The function `progress` of MCPHandlers has not ended within the time of a call of {server}, which "
                "goes on without it",
                server=self._supervisor.description,
            )

    def _pending_call_from(self, result: dict[str, Any]) -> MCPPendingCall:
        # Returns what is needed to continue the call, from a result as in the protocol.
        request = self.request
        name, arguments_given = request.original or (request.tool_name, request.tool_args)
        # A continued call has the arguments of the call before it.
        withheld = (
            request.continues[0].withheld
            if request.continues
            else arguments_with_secrets(arguments_given, request.secrets)
        )
        arguments = {name: value for name, value in arguments_given.items() if name not in withheld}
        call = MCPPendingCall(
            tool_name=name, arguments=arguments, withheld=withheld, server=self._supervisor.description
        )
        if result.get("resultType") != "task":
            requests, state = result.get("inputRequests") or {}, result.get("requestState")
            return dataclasses.replace(call, requests=requests, request_state=state)
        task = TaskState.model_validate(result, by_name=False)
        return dataclasses.replace(
            call, task_id=task.task_id, poll_interval=task.poll_interval, expires_at=task.expires_at
        )

    async def _store_pending_call(self, call: MCPPendingCall) -> None:
        # A journal and the user's handler store the call, so that it can be continued whatever happens to this process.
        server, handler = self._supervisor.description, self._supervisor.handlers.pending_calls
        for name, function in {"journal": self.request.on_pending, "handler `pending_calls`": handler}.items():
            if function is None:
                continue
            try:
                async with asyncio.timeout(_STORE_TIMEOUT):
                    await call_function(function, call)
            except Exception as error:
                kind = type(error).__name__
                logger.exception("The {keeper} for {server} failed: {kind}", keeper=name, server=server, kind=kind)

    def _error_for_caller(self, error: Exception) -> MCPInvocationError:
        # An attempt's error covers that attempt only, and has the server's name of the tool. Both are corrected here.
        match error:
            case DeadlineError():
                return self.request.error(MCPCallTimeoutError, self._timeout_text())
            case MCPInvocationError(__cause__=RefusedError() as refusal) if self._may_have_run:
                return self._unanswered_error(CallDidNotRunError(str(refusal)))
            case MCPInvocationError():
                return self._with_display_name(error)
        return self._unanswered_error(error)

    def _timeout_text(self) -> str:
        limits = self.request.limits
        parameter, seconds = limits.timeout_name, limits.invocation_timeout
        if limits.max_total_timeout is not None and self._time_used >= limits.max_total_timeout - _CLOCK_TOLERANCE:
            parameter, seconds = "max_total_timeout", limits.max_total_timeout
        advice = (
            "" if limits.reset_timeout_on_progress else ", or set `reset_timeout_on_progress` if it reports progress"
        )
        return (
            f"timed out after {seconds:g} seconds. The request was cancelled; the tool may have run. If the tool needs "
            f"longer, raise `{parameter}`{advice}."
        )

    def _with_display_name(self, error: MCPInvocationError) -> MCPInvocationError:
        name = self.request.display_name
        if error.tool_name == name:
            return error
        message = error.message.replace(f"`{error.tool_name}`", f"`{name}`", 1)
        failure = type(error)(message, name, error.tool_args, code=error.code, data=error.data)
        failure.is_tool_error, failure._outcome = error.is_tool_error, error._outcome
        failure.__cause__ = error.__cause__
        return failure

    def _unanswered_error(self, error: Exception) -> MCPInvocationError:
        code = data = None
        if not isinstance(error, MCPConnectionError):
            text = describe_error(error)  # from a custom client: built-in clients raise errors of this package
        elif self._may_have_run:
            text = f"{with_full_stop(str(error))} The tool may have run: the call was sent before, and not answered."
        else:
            text = f"{with_full_stop(str(error))} The tool did not run."
            code, data = error.code, error.data
        is_timeout = isinstance(error, MCPConnectionError) and isinstance(error, TimeoutError)
        kinds = {
            (False, False): MCPInvocationError,
            (False, True): MCPOutcomeUnknownError,
            (True, False): MCPTimeoutError,
            (True, True): MCPCallTimeoutError,
        }
        failure = self.request.error(kinds[is_timeout, self._may_have_run], text, code=code, data=data)
        failure.__cause__ = error
        return failure


class _TaskRun:
    """
    The rest of a call that its server runs as a task. It is run once.
    """

    def __init__(self, tool_call: ToolCall, call: MCPPendingCall) -> None:
        self._tool_call, self._request, self._continuation = tool_call, tool_call.request, tool_call._continuation
        self._call = call
        self._request_timeout = tool_call.request.limits.invocation_timeout or _REQUEST_TIMEOUT
        self._task_timeout = tool_call.request.limits.task_timeout
        self._answered_keys: set[str] = set()
        self._last_status_message: str | None = None

    async def run(self, *, is_new: bool = False) -> types.CallToolResult:
        """
        Wait for the result of the task.

        :param is_new: Whether the call has just become a task, and is not stored yet.
        :returns: The result.
        :raises MCPCallPendingError: If the task wants input that no handler can give now.
        :raises MCPInvocationError: If there is no result.
        """
        supervisor = self._supervisor = self._tool_call._supervisor
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        try:
            if is_new:
                await self._tool_call._store_pending_call(self._call)
                if self._request.leaves_tasks:
                    raise pending_error(self._call, self._request)
            result = await self._result()
            if self._tool_call._reports is not None:
                await self._tool_call._deliver_reports(self._tool_call._reports, self._time_left())
            raise_tool_error(result, self._request.display_name, self._request.tool_args)
            return result
        except asyncio.CancelledError:
            if self._request.on_pending is None:  # otherwise a durable run takes it up again
                await self._cancel()
            raise
        except MCPInvocationError as error:
            supervisor.redactor.error(error)  # the task's error came as a result, which sessions do not redact
            raise

    async def _result(self) -> types.CallToolResult:
        if self._continuation is None:
            await self._sleep(self._call.poll_interval or 1.0)
        else:
            given = self._continuation.responses
            rest = {key: request for key, request in self._call.requests.items() if key not in given}
            await self._send_answers({**given, **(await self._ask_handlers(self._call, rest) if rest else {})})
        while True:
            state, result = await self._ask("tasks/get", self._poll)
            self._report(state)
            if result is not None:
                return result
            match state.status:
                case "failed":
                    raise self._task_failure(state)
                case "cancelled":
                    text = "the server says that its task was cancelled. The tool may have run."
                    raise self._error(MCPOutcomeUnknownError, text)
                case "input_required":
                    await self._answer(state)
            await self._sleep(state.poll_interval)

    @property
    def _task_id(self) -> str:
        return self._call.task_id or ""

    def _time_left(self) -> float | None:
        return None if self._task_timeout is None else self._began + self._task_timeout - self._now()

    async def _sleep(self, seconds: float) -> None:
        left = self._time_left()
        if left is not None and left <= 0:
            raise self._timeout_error()
        # The server is asked once more at the end, because its poll interval may be longer than the time that is left.
        await self._supervisor.sleep(seconds if left is None else min(seconds, left))
        self._check_open()

    def _check_open(self) -> None:
        if self._supervisor.is_closed:  # for good: no other session will be opened
            raise self.lost_error(MCPConnectionError("the connection was closed."))

    async def _ask(self, operation: str, ask: Callable[[MCPClient], Awaitable[T]]) -> T:
        """
        Send a request about the task, again and again while the server is away.
        """

        def send() -> Awaitable[T]:
            left, limit = self._time_left(), self._request_timeout
            return self._supervisor.read(
                operation,
                lambda session: session.read(operation, ask),
                self._request.connection_timeout,
                limit if left is None else max(min(limit, left), 0.1),
            )

        return await self._retry_while_away(send)

    async def _retry_while_away(self, attempt: Callable[[], Awaitable[T]]) -> T:
        wait = 0.1
        away_since: float | None = None
        while True:
            began = self._now()
            try:
                return await attempt()
            except MCPConnectionError as error:
                if error.code not in _TRANSIENT_CODES:
                    reason = with_full_stop(str(error))
                    text = f"the server no longer answers requests about its task: {reason} The tool may have run."
                    failure = self._error(MCPOutcomeUnknownError, text)
                    failure.code, failure.data = error.code, error.data
                    raise failure from None
                self._check_open()
                if away_since is None:
                    # Counted from this attempt, because the server may want to be asked only once a minute.
                    away_since = began if isinstance(error, TimeoutError) else self._now()
                away = self._now() - away_since
                left = self._time_left()
                if left is not None and left <= 0:
                    raise self._timeout_error() from None
                throttled = self._supervisor.throttle.seconds
                if throttled:  # the server is there, and has said when to ask again
                    away_since = None
                    await self._sleep(throttled)
                    continue
                if isinstance(error, MCPAuthorizationError) or away > self._request.connection_timeout:
                    raise self.lost_error(error) from None
                logger.info(
                    "The state of a task of {server} cannot be read ({reason}); trying again",
                    server=self._supervisor.description,
                    reason=str(error),
                )
            await self._sleep(wait)
            wait = min(wait * 2, 5.0)

    async def _poll(self, client: MCPClient) -> tuple[TaskState, types.CallToolResult | None]:
        # Both use the same client: the session may end next, and no other one may be open to read the result.
        state = await client.get_task(self._task_id)
        if state.status != "completed":
            return state, None
        try:
            return state, await client.task_result(self._request.tool_name, state.result or {})
        except (RuntimeError, ValidationError) as error:
            text = f"the result of its task is not a valid result: {describe_error(error)}"
            raise self._error(MCPInvocationError, with_full_stop(text), outcome="answered") from None

    async def _cancel(self) -> None:
        operation, supervisor = "tasks/cancel", self._supervisor
        try:
            await supervisor.read(
                operation,
                lambda session: session.read(operation, lambda client: client.cancel_task(self._task_id)),
                _CANCEL_TIMEOUT,
                _CANCEL_TIMEOUT,
            )
        except MCPConnectionError as error:
            logger.warning(
                "A task of a tool of {server} was given up, but could not be cancelled: {error}",
                server=supervisor.description,
                error=str(error),
            )

    async def _send_answers(self, responses: Responses) -> None:
        if responses:
            await self._ask("tasks/update", lambda client: client.update_task(self._task_id, responses))
            self._answered_keys |= set(responses)

    async def _answer(self, state: TaskState) -> None:
        # The server may repeat its questions for a while after it got the answers.
        requests = {key: each for key, each in (state.input_requests or {}).items() if key not in self._answered_keys}
        if not requests:
            return
        call = dataclasses.replace(self._call, requests=requests)
        if self._supervisor.handlers.elicitation is answer_later and any(map(is_question, requests.values())):
            await self._leave_open(call)
        await self._send_answers(await self._ask_handlers(call, requests))

    async def _ask_handlers(self, call: MCPPendingCall, requests: dict[str, Any]) -> Responses:
        def ask() -> Awaitable[Responses]:
            # A person may take longer than the server may be away.
            left = self._time_left()
            return self._supervisor.read(
                "tasks/update",
                # Not counted as in flight, so that the user is not asked twice if the session ends meanwhile.
                lambda session: session.uncounted(session.client.answer_for_task(requests)),
                self._request.connection_timeout,
                _MAX_HANDLER_TIME if left is None else max(left, 0.1),
            )

        try:
            return await self._retry_while_away(ask)
        except AnswerRefusedError as error:
            # The task waits at the server until the call is continued with an answer.
            reason = with_full_stop(str(error))
        except ValidationError as error:
            text = f"the questions of its task do not conform to the protocol: {describe_error(error)}"
            raise self._error(MCPInvocationError, with_full_stop(text)) from None
        return await self._leave_open(call, reason)

    async def _leave_open(self, call: MCPPendingCall, reason: str = "") -> NoReturn:
        await self._tool_call._store_pending_call(call)
        raise pending_error(call, self._request, reason)

    def _report(self, state: TaskState) -> None:
        if state.status_message is not None and state.status_message != self._last_status_message:
            self._last_status_message = state.status_message
            self._tool_call._report(self._now() - self._began, None, state.status_message)

    def _task_failure(self, state: TaskState) -> MCPInvocationError:
        error = state.error or {}
        text = str(error.get("message") or state.status_message or "its task failed")
        failure = self._error(MCPInvocationError, text, outcome="answered")
        code = error.get("code")
        failure.code = code if isinstance(code, int) else None
        failure.data = error.get("data")
        return failure

    def _timeout_error(self) -> MCPInvocationError:
        text = f"its task has not ended within {self._task_timeout:g} seconds (`task_timeout`)."
        return self.lost_error(TimeoutError(text), MCPCallTimeoutError)

    def lost_error(
        self, error: Exception, kind: type[MCPOutcomeUnknownError] = MCPOutcomeUnknownError
    ) -> MCPOutcomeUnknownError:
        """
        Make the error of a task that cannot be waited for any longer.

        :param error: The reason.
        :param kind: Class of the error.
        :returns: The error, with a `pending_call` from which the task can be resumed.
        """
        failure = self._error(kind, f"{with_full_stop(str(error))} {_RESUME_ADVICE}")
        failure.pending_call = self._call
        return failure

    def _error(self, kind: type[E], text: str, *, outcome: str = "may_have_run") -> E:
        error = self._request.error(kind, text)
        error._outcome = outcome  # a task has begun to run
        return error


def pending_error(call: MCPPendingCall, request: CallRequest, reason: str = "") -> MCPCallPendingError:
    """
    Make the error of a call that is left open.

    :param call: The call.
    :param request: What the caller wants.
    :param reason: Why nobody can answer now, in sentences; empty if the answer is merely postponed.
    :returns: The error. Its text tells a model not to repeat the call.
    """
    if call.requests:
        asked = " ".join(with_full_stop(question.message) for question in call.questions)
        problem = " ".join(filter(None, ["the server wants input first, which nobody can give now.", asked, reason]))
    else:
        problem = "the server runs it as a task."
    text = f"{problem} The call is left open; do not repeat it."
    return request.error(MCPCallPendingError, text, pending_call=call)
