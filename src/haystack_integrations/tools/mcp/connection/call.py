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
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from haystack import logging

from haystack_integrations.tools.mcp.connection.gate import Passage
from haystack_integrations.tools.mcp.connection.given_up import holding_task
from haystack_integrations.tools.mcp.connection.limits import CallClock, CallLimits
from haystack_integrations.tools.mcp.connection.replay import may_be_sent_again
from haystack_integrations.tools.mcp.connection.supervisor import NotForCallerError, Supervisor
from haystack_integrations.tools.mcp.connection.tasks import (
    Read,
    cancel_in_background,
    cancel_task,
    keep,
    pending_call,
    pending_error,
)
from haystack_integrations.tools.mcp.convert.task_support import NEEDS_TASKS
from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPCallTimeoutError,
    MCPConnectionError,
    MCPConnectionTimeoutError,
    MCPDriftedCallError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.handlers.progress import HandlerReports, MCPProgress
from haystack_integrations.tools.mcp.protocol.error_texts import failed_to, invocation_error, raise_tool_error
from haystack_integrations.tools.mcp.protocol.inputs import CallLeftOpenError
from haystack_integrations.tools.mcp.protocol.outcome_errors import CallDidNotRunError, ReadInterruptedError

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import Admission, CallRequest
    from haystack_integrations.tools.mcp.connection.session import Session
    from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
    from haystack_integrations.tools.mcp.protocol.inputs import Continuation

logger: logging.PatchedLogger = logging.getLogger(__name__)


class _DeadlineError(Exception):
    pass


class ToolCall:
    """
    A call of a tool. Made by the caller, in any thread, and run once in the executor's loop.
    """

    # Few objects on purpose: 256 calls in flight with 60 objects more each make the garbage collector look through the
    # whole process twice as often.
    __slots__ = (
        "_admission",
        "_attempt_began",
        "_began",
        "_clock",
        "_is_under_way",
        "_may_have_run",
        "_on_progress",
        "_pause",
        "_reports",
        "_session",
        "_supervisor",
        "_task",
        "_unclaimed",
        "connection_timeout",
        "continuation",
        "limits",
        "meta",
        "request",
    )

    def __init__(
        self,
        request: CallRequest,
        *,
        connection_timeout: float,
        limits: CallLimits,
        meta: dict[str, Any] | None,
        on_progress: Callable[[MCPProgress], None] | None,
        continuation: Continuation | None = None,
        admission: Admission | None = None,
    ) -> None:
        """
        Initialize the ToolCall.

        :param request: What the caller wants.
        :param connection_timeout: How long to wait for sessions altogether, in seconds.
        :param limits: How long the call may take, and how long the server may be silent.
        :param meta: The `_meta` of the request, with that of the block in which the caller is.
        :param on_progress: Called with each report of progress; must not block.
        :param continuation: What to continue a call with that was left open.
        :param admission: Asked before each attempt whether the call may be sent.
        """
        self.continuation: Continuation | None = continuation
        self.request: CallRequest = request
        self._admission = admission
        self.connection_timeout: float = connection_timeout
        self.limits: CallLimits = limits
        self.meta: dict[str, Any] | None = meta
        self._on_progress = on_progress
        self._is_under_way = False
        self._may_have_run = False
        # The server's name of the task that it became, if that is now for the caller to wait for.
        self._unclaimed: str | None = None

    def leave_behind(self, supervisor: Supervisor, read: Read) -> None:
        """
        Take note that the caller has given up, and waits neither for the call nor for a task that it has become.

        :param supervisor: Has the session of the server info.
        :param read: Reads of the server on behalf of the caller.
        """
        if self._unclaimed is not None:
            cancel_in_background(self._unclaimed, supervisor, read)

    def failed_before(self, error: MCPConnectionError) -> MCPInvocationError:
        """
        Make the error of a call that had no session to run in.

        :param error: Why.
        :returns: The error.
        """
        return invocation_error(error, self.request.display_name, self.request.tool_args, may_have_run=False)

    async def run(self, supervisor: Supervisor) -> types.CallToolResult:
        """
        Call the tool; send it again only if it provably did not run, or may run twice.

        :param supervisor: Has the sessions.
        :returns: The result.
        :raises MCPCallPendingError: If the server wants something first, or made a task of it.
        :raises MCPInvocationError: If there is no result otherwise.
        """
        self._supervisor = supervisor
        self._clock = CallClock(self.limits)
        self._began = asyncio.get_running_loop().time()
        self._pause = 0.0
        supervisor.call_begins()
        supervisor.redactor.of_calls.remember(self.request.secrets)
        # Before what runs functions of the user, which may call the server, too.
        passage = None if supervisor.gate.is_free else Passage(supervisor.gate)
        progress = supervisor.handlers.progress
        self._reports = HandlerReports(progress) if progress is not None else None
        try:
            for attempt in range(supervisor.max_retries + 1):
                if self._pause:
                    await asyncio.sleep(self._pause)
                if not supervisor.gate.is_free:
                    passage = passage or Passage(supervisor.gate)
                    await self._enter(passage)
                entered_at = monotonic()
                session: Session | None = None
                try:
                    session = supervisor.open_session() or await supervisor.ready_session(self._patience())
                    if self.request.tool_name in session.only_as_tasks:
                        raise self._only_as_task()
                    if self._admission is not None:
                        await self._check(session, self._admission)
                    result = await self._attempt(session)
                except (CallDidNotRunError, MCPOutcomeUnknownError) as error:
                    if not (self._may_probe_again(session, error) and self._may_go_on(attempt, error)):
                        self._note(error, entered_at)
                        raise
                except Exception as error:
                    self._note(error, entered_at)
                    raise
                else:
                    supervisor.gate.answered()
                    return result
                finally:
                    if passage is not None:
                        passage.leave()
            raise AssertionError  # the loop returns or raises
        except NotForCallerError:
            supervisor.call_moves()
            raise
        except CallLeftOpenError as left:
            pending = pending_call(left.result, self.request, supervisor.description)
            await self._keep(pending)
            raise supervisor.redactor.error(pending_error(pending, self.request)) from None
        except Exception as error:
            failure = self._failure(error)
            supervisor.call_failed(failure)
            try:
                raise failure from failure.__cause__
            finally:
                del failure  # its traceback holds this frame
        finally:
            if self._reports is not None:
                self._reports.end()

    async def _keep(self, pending: MCPPendingCall) -> None:
        supervisor, task_id = self._supervisor, pending.task_id
        if task_id is None:
            await keep(pending, supervisor)
            return
        with holding_task(supervisor.base):
            try:
                await keep(pending, supervisor)
            except asyncio.CancelledError:
                await cancel_task(task_id, supervisor)
                raise
        self._unclaimed = task_id

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
                reason = await admission.refusal(name, await supervisor.tools_again(session, self._patience()))
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
        now = asyncio.get_running_loop().time
        began, left = now(), self._clock.begin()
        try:
            await passage.enter(left)
        finally:
            waited = now() - began
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
            case _DeadlineError():
                if self._session.was_silent_since(monotonic() - self._clock.taken):
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
        waited = asyncio.get_running_loop().time() - self._began - self._clock.used
        return max(self.connection_timeout - waited, 0.0)

    def _may_probe_again(self, session: Session | None, error: Exception) -> bool:
        # A server that is left alone is not tried again and again by one call. But that it does not know a session from
        # before says nothing of how it is now: it may have been restarted, and is tried in a new session.
        if not self._supervisor.gate.is_probe:
            return True
        is_gone = session is not None and not session.is_open and (session.opened_at or 0.0) < self._began
        return is_gone and isinstance(error, CallDidNotRunError)

    def _may_go_on(self, attempt: int, error: CallDidNotRunError | MCPOutcomeUnknownError) -> bool:
        supervisor = self._supervisor
        self._may_have_run = self._may_have_run or isinstance(error, MCPOutcomeUnknownError)
        # A lost session is reopened at once; opening has a back-off of its own.
        self._pause = supervisor.delay(attempt) if attempt or supervisor.is_ready() else 0.0
        if (
            attempt == supervisor.max_retries
            or self._pause > self._patience()
            or not may_be_sent_again(error, may_repeat=self.request.may_repeat)
        ):
            return False
        logger.info(
            "A call of a tool of {server} was not answered ({reason}); sending it again",
            server=supervisor.description,
            reason=str(error),
        )
        return True

    async def _attempt(self, session: Session) -> types.CallToolResult:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError  # what is awaited in an event loop runs in a task
        loop_time, deadlines, cancelling = asyncio.get_running_loop().time, session.deadlines, task.cancelling()
        self._session, self._task, self._attempt_began = session, task, loop_time()
        seconds = self._clock.begin()
        deadlines.set(task, None if seconds is None else self._attempt_began + seconds)
        is_asked = self._reports is not None or self._on_progress is not None or self.limits.reset_timeout_on_progress
        self._is_under_way = True
        try:
            result = await session.call(
                self.request,
                self.limits,
                meta=self.meta,
                continuation=self.continuation,
                on_progress=self._progressed if is_asked else None,
            )
            left = deadlines.left(task)
        except asyncio.CancelledError:
            if deadlines.end(task) and task.uncancel() <= cancelling:
                raise _DeadlineError from None
            raise
        finally:
            self._is_under_way = False
            self._clock.end(loop_time() - self._attempt_began, deadlines.left(task))
            if deadlines.end(task):
                task.uncancel()
            del task, self._task  # it holds an error whose traceback holds this frame
        if self._reports is not None:
            await self._deliver(self._reports, left)
        if result.is_error:
            raise_tool_error(result, self.request.tool_name, self.request.tool_args)
        return result

    async def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        # Nothing is awaited here, so that all of it is done before the answer, which comes later, is looked at.
        if not self._is_under_way:
            return
        session = self._session
        session.heard()
        gate = self._supervisor.gate
        if gate.state == "half-open":
            gate.heard(self._task)
        if self.limits.reset_timeout_on_progress:
            left = self._clock.progress(asyncio.get_running_loop().time() - self._attempt_began)
            session.deadlines.set(self._task, None if left is None else self._attempt_began + left)
        report = MCPProgress(
            server=self._supervisor.description,
            tool_name=self.request.tool_name,
            progress=float(progress),
            total=None if total is None else float(total),
            message=message,
        )
        if self._reports is not None:
            self._reports.add(report)
        if self._on_progress is not None:
            self._on_progress(report)

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
        if not isinstance(error, _DeadlineError):
            return invocation_error(error, name, arguments, may_have_run=self._may_have_run)
        what, advice = self._clock.describe()
        msg = f"Failed to invoke Tool `{name}`: {what}. The request was cancelled; the tool may have run. {advice}"
        return MCPCallTimeoutError(msg, name, arguments)
