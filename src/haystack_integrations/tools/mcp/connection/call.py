# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One call of a tool, over all its attempts.

.. code-block:: text

    waiting for a session ──> under way ──answered──> the result, or the tool's own error
      ^                          │ not answered, but it did not run, or may run twice
      └──────── pause ───────────┤
                                 └ otherwise, and at the deadline: an error that says whether the tool may have run
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from haystack import logging

from haystack_integrations.tools.mcp.client.error_texts import invocation_error, raise_tool_error
from haystack_integrations.tools.mcp.client.request_outcome import CallDidNotRunError
from haystack_integrations.tools.mcp.connection.identities import NotForCallerError
from haystack_integrations.tools.mcp.connection.limits import CallClock, CallLimits
from haystack_integrations.tools.mcp.connection.replay import may_be_sent_again
from haystack_integrations.tools.mcp.errors import MCPCallTimeoutError, MCPInvocationError, MCPOutcomeUnknownError
from haystack_integrations.tools.mcp.handlers.progress import HandlerReports, MCPProgress

if TYPE_CHECKING:
    from mcp import types

    from haystack_integrations.tools.mcp.connection.calling import CallRequest
    from haystack_integrations.tools.mcp.connection.session import Session
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor

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
        "connection_timeout",
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
    ) -> None:
        """
        Initialize the ToolCall.

        :param request: What the caller wants.
        :param connection_timeout: How long to wait for sessions altogether, in seconds.
        :param limits: How long the call may take, and how long the server may be silent.
        :param meta: The `_meta` of the request, with that of the block in which the caller is.
        :param on_progress: Called with each report of progress; must not block.
        """
        self.request = request
        self.connection_timeout = connection_timeout
        self.limits = limits
        self.meta = meta
        self._on_progress = on_progress
        self._is_under_way = False
        self._may_have_run = False

    async def run(self, supervisor: Supervisor) -> types.CallToolResult:
        """
        Call the tool; send it again only if it provably did not run, or may run twice.

        :param supervisor: Has the sessions.
        :returns: The result.
        :raises MCPInvocationError: If there is none.
        """
        self._supervisor = supervisor
        self._clock = CallClock(self.limits)
        self._began = asyncio.get_running_loop().time()
        self._pause = 0.0
        supervisor.call_begins(self.request.secrets)
        progress = supervisor.handlers.progress
        self._reports = HandlerReports(progress) if progress is not None else None
        try:
            for attempt in range(supervisor.max_retries + 1):
                if self._pause:
                    await asyncio.sleep(self._pause)
                session = supervisor.open_session() or await supervisor.ready_session(self._patience())
                try:
                    return await self._attempt(session)
                except (CallDidNotRunError, MCPOutcomeUnknownError) as error:
                    if not self._may_go_on(attempt, error):
                        raise
            raise AssertionError  # the loop returns or raises
        except NotForCallerError:
            supervisor.call_moves()
            raise
        except Exception as error:
            failure = self._failure(error)
            supervisor.call_failed(failure)
            raise failure from failure.__cause__
        finally:
            if self._reports is not None:
                self._reports.end()

    def _patience(self) -> float:
        # How much longer it waits for sessions, in seconds.
        waited = asyncio.get_running_loop().time() - self._began - self._clock.used
        return max(self.connection_timeout - waited, 0.0)

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
            result = await session.call(self, self._progressed if is_asked else None)
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
