# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One call of a tool, over all its attempts.

.. code-block:: text

    waiting for a session ──> under way ──answered──> the result, or the tool's own error
      ^                          │ left open: the server wants input first, or made a task of it
      │                          │ not answered, but it did not run, or may run twice
      └──────── pause ───────────┤
                                 └ otherwise, and at the deadline: an error that says whether the tool may have run
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from haystack import logging

from haystack_integrations.tools.mcp.connection.gate import Passage
from haystack_integrations.tools.mcp.connection.limits import CallClock
from haystack_integrations.tools.mcp.connection.session import DeadlineError, UnderWay, holding_task
from haystack_integrations.tools.mcp.connection.supervisor import NotForCallerError, Supervisor
from haystack_integrations.tools.mcp.connection.task_run import TaskRun, cancel_task, keep, pending_call, pending_error
from haystack_integrations.tools.mcp.convert.tool_schemas import NEEDS_TASKS
from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPCallTimeoutError,
    MCPConnectionError,
    MCPConnectionTimeoutError,
    MCPDriftedCallError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.handlers.elicitation import answer_later
from haystack_integrations.tools.mcp.handlers.progress import HandlerReports, MCPProgress
from haystack_integrations.tools.mcp.protocol.error_texts import (
    failed_to,
    invocation_error,
    outcome_unknown,
    raise_tool_error,
)
from haystack_integrations.tools.mcp.protocol.exchange import CallDidNotRunError, ReadInterruptedError
from haystack_integrations.tools.mcp.protocol.requests_of_server import CallLeftOpenError, Continuation
from haystack_integrations.tools.mcp.request_context import meta_of_call

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import Admission, CallRequest
    from haystack_integrations.tools.mcp.connection.session import Session
    from haystack_integrations.tools.mcp.handlers import MCPHandlers
    from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall

logger: logging.PatchedLogger = logging.getLogger(__name__)


class ToolCall:
    """
    A call of a tool, and the wait for the task that its server makes of it. Run in the executor's loop.
    """

    def __init__(self, request: CallRequest, handlers: MCPHandlers) -> None:
        """
        Initialize the ToolCall, in the context of the caller.

        :param request: What the caller wants.
        :param handlers: One of them may answer what the caller does not, if the call is continued.
        """
        self.request: CallRequest = request
        self._meta = meta_of_call(request.meta)
        self._continuation: Continuation | None = None
        # The task that is waited for.
        self._pending: MCPPendingCall | None = None
        if request.continues is not None:
            asks = handlers.elicitation not in (None, answer_later)
            self._continuation = Continuation(*request.continues, asks=asks)
            if request.continues_task:
                self._pending = request.continues[0]
        self._may_have_run = False

    def failed_before(self, error: MCPConnectionError) -> MCPInvocationError:
        """
        Make the error of a call that had no session to run in.

        :param error: Why.
        :returns: The error.
        """
        if self._pending is not None:
            return TaskRun(self.request, self._pending, self._continuation).lost(error)
        return invocation_error(error, self.request.display_name, self.request.tool_args, may_have_run=False)

    async def run(self, supervisor: Supervisor) -> types.CallToolResult:
        """
        Call the tool, and wait for the end of its task if the server makes one of it.

        :param supervisor: Has the sessions.
        :returns: The result.
        :raises MCPCallPendingError: If the server wants something first, or made a task of it that is left open.
        :raises MCPInvocationError: If there is no result otherwise.
        """
        self._supervisor, request = supervisor, self.request
        if self._pending is not None:
            return await TaskRun(request, self._pending, self._continuation).run(supervisor)
        supervisor.base.calls += 1
        if request.secrets:
            supervisor.redactor.remember(request.secrets)
        progress = supervisor.handlers.progress
        self._reports = None if progress is None else HandlerReports(progress)
        self._clock, self._began = CallClock(request.limits), monotonic()
        try:
            return await self._answered(supervisor)
        except NotForCallerError:
            supervisor.base.calls -= 1
            raise
        except CallLeftOpenError as error:
            left = error
        except Exception as error:
            failure = self._failure(error)
            supervisor.call_failed(failure)
            raise failure from failure.__cause__
        return await TaskRun(request, await self._left_open(left.result), None).run(supervisor)

    async def _answered(self, supervisor: Supervisor) -> types.CallToolResult:
        """
        Call the tool; send it again only if it provably did not run, or may run twice.
        """
        gate, request = supervisor.gate, self.request
        # Before what runs functions of the user, which may call the server, too.
        passage = None if gate.is_free else Passage(gate)
        attempt = 0
        while True:
            if passage is not None:
                await self._enter(passage)
            entered_at = monotonic()
            session: Session | None = None
            try:
                session = supervisor.open_session() or await supervisor.ready_session(self._patience())
                if request.tool_name in session.only_as_tasks:
                    raise self._only_as_task()
                if request.admission is not None:
                    await self._check(session, request.admission)
                result = await self._attempt(session)
                gate.answered()
                return result
            except (CallDidNotRunError, MCPOutcomeUnknownError) as error:
                if not self._may_probe_again(session, error) or (pause := self._pause(attempt, error)) is None:
                    self._note(error, entered_at)
                    raise
            except Exception as error:
                self._note(error, entered_at)
                raise
            finally:
                if passage is not None:
                    passage.leave()
            attempt += 1
            if pause:
                await asyncio.sleep(pause)
            if passage is None and not gate.is_free:
                passage = Passage(gate)

    async def _left_open(self, result: dict[str, Any]) -> MCPPendingCall:
        # Returns the task to wait for.
        pending = pending_call(result, self.request, self._supervisor.description)
        if pending.task_id is None:
            await keep(pending, self.request, self._supervisor)
        else:
            with holding_task(self._supervisor.base):
                try:
                    await keep(pending, self.request, self._supervisor)
                except asyncio.CancelledError:
                    await cancel_task(pending.task_id, self._supervisor)
                    raise
        if self.request.leaves_tasks or pending.task_id is None:
            raise self._supervisor.redactor.error(pending_error(pending, self.request)) from None
        return pending

    def _only_as_task(self) -> MCPInvocationError:
        name = self.request.display_name
        msg = f"Failed to invoke Tool `{name}`: {NEEDS_TASKS}. The tool did not run."
        return MCPInvocationError(msg, name, self.request.tool_args)

    async def _check(self, session: Session, admission: Admission) -> None:
        supervisor, timeout, name = self._supervisor, self._patience(), self.request.tool_name
        try:
            reason = await admission.refusal(name, await supervisor.tools_now(session, timeout))
            if reason is not None:
                # A server that was started again, as it was before, does not say so: it has forgotten the session. And
                # since nothing is sent, nothing else would find that out.
                reason = await admission.refusal(
                    name, await supervisor.tools_now(session, self._patience(), again=True)
                )
        except ReadInterruptedError as error:  # the next session has a listing of its own
            raise CallDidNotRunError(str(error)) from error
        except TimeoutError:
            msg = f"{failed_to('list_tools', supervisor.description)}: timed out after {timeout:g} seconds"
            raise MCPConnectionTimeoutError(msg, supervisor.server_info, "list_tools") from None
        if reason is not None:
            name = self.request.display_name
            msg = f"Failed to invoke Tool `{name}`: {reason} Nothing was sent."
            raise MCPDriftedCallError(msg, name, self.request.tool_args)

    async def _enter(self, passage: Passage) -> None:
        began, left = monotonic(), self._clock.begin()
        try:
            await passage.enter(left)
        finally:
            waited = monotonic() - began
            self._clock.end(waited, None if left is None else left - waited)

    def _note(self, error: Exception, entered_at: float) -> None:
        # See the table of the gate.
        gate = self._supervisor.gate
        match error:
            case (
                CallDidNotRunError(denied=True) | MCPAuthorizationError() | NotForCallerError() | MCPDriftedCallError()
            ):
                pass
            case MCPOutcomeUnknownError():
                gate.failed(error.reason or str(error), entered_at)
            case CallDidNotRunError() | MCPConnectionError() if not self._supervisor.rest.seconds:
                gate.failed(str(error), entered_at, was_reached=False)
            case DeadlineError():
                if self._session.was_silent_since(self._attempt_began):
                    gate.failed("it was silent until a call timed out", entered_at)
            case CallLeftOpenError():
                gate.answered()
            case MCPInvocationError(_outcome="did_not_run"):
                gate.failed(str(error), entered_at)
            case MCPInvocationError():
                # Without these, it may have been made here, of what could not be sent.
                if error.code is not None or error.is_tool_error:
                    gate.answered()

    def _patience(self) -> float:
        # How much longer it waits for sessions, in seconds.
        waited = monotonic() - self._began - self._clock.used
        return max(self.request.connection_timeout - waited, 0.0)

    def _may_probe_again(self, session: Session | None, error: Exception) -> bool:
        # A server that is left alone is not tried again and again by one call. But that it does not know a session from
        # before says nothing of how it is now: it may have been restarted, and is tried in a new session.
        if not self._supervisor.gate.is_probe:
            return True
        is_gone = session is not None and not session.is_open and (session.opened_at or 0.0) < self._began
        return is_gone and isinstance(error, CallDidNotRunError)

    def _pause(self, attempt: int, error: CallDidNotRunError | MCPOutcomeUnknownError) -> float | None:
        # How long to wait before the call is sent again, in seconds; None if it is not.
        supervisor = self._supervisor
        self._may_have_run = self._may_have_run or isinstance(error, MCPOutcomeUnknownError)
        # A lost session is reopened at once; opening has a back-off of its own.
        pause = supervisor.delay(attempt) if attempt or supervisor.is_ready() else 0.0
        may_repeat = not error.denied if isinstance(error, CallDidNotRunError) else self.request.may_repeat
        if attempt >= supervisor.max_retries or pause > self._patience() or not may_repeat:
            return None
        logger.info(
            "A call of a tool of {server} was not answered ({reason}); sending it again",
            server=supervisor.description,
            reason=str(error),
        )
        return pause

    async def _attempt(self, session: Session) -> types.CallToolResult:
        request, limits = self.request, self.request.limits
        self._session, self._attempt_began = session, monotonic()
        under_way = self._under_way = UnderWay(self._clock.begin(), limits.longest_silence, limits.ping_interval)
        is_asked = self._reports is not None or request.report is not None or limits.reset_timeout_on_progress
        name, arguments = request.tool_name, request.tool_args
        try:
            result = await session.answer(
                session.client.request_tool(
                    name,
                    arguments,
                    meta=self._meta,
                    on_progress=self._progressed if is_asked else None,
                    continuation=self._continuation,
                ),
                lambda reason: outcome_unknown(reason, name, arguments),
                under_way,
            )
        except BaseException:
            self._end_attempt()
            raise
        if self._reports is not None:
            await self._deliver(self._reports, self._end_attempt())
        if result.is_error:
            raise_tool_error(result, name, arguments)
        return result

    def _end_attempt(self) -> float | None:
        # Returns how much longer it could have taken, in seconds.
        left = self._under_way.seconds_left
        self._clock.end(monotonic() - self._attempt_began, left)
        return left

    async def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        # Nothing is awaited here, so that all of it is done before the answer, which comes later, is looked at.
        under_way = self._under_way
        if under_way.is_over:
            return
        self._session.heard()
        gate = self._supervisor.gate
        if gate.state == "half-open":
            gate.heard(under_way.task)
        if self.request.limits.reset_timeout_on_progress:
            left = self._clock.progress(monotonic() - self._attempt_began)
            under_way.limit.reschedule(None if left is None else asyncio.get_running_loop().time() + left)
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

    async def _deliver(self, reports: HandlerReports, left: float | None) -> None:
        # The result is there, and is not given up for a function that takes its time.
        if not await reports.delivered(left):
            logger.warning(
                "The function for progress in `handlers` has not ended within the time of a call of {server}, which "
                "goes on without it",
                server=self._supervisor.description,
            )

    def _failure(self, error: Exception) -> MCPInvocationError:
        name, arguments = self.request.display_name, self.request.tool_args
        if not isinstance(error, DeadlineError):
            return invocation_error(error, name, arguments, may_have_run=self._may_have_run)
        what, advice = self._clock.describe()
        msg = f"Failed to invoke Tool `{name}`: {what}. The request was cancelled; the tool may have run. {advice}"
        return MCPCallTimeoutError(msg, name, arguments)
