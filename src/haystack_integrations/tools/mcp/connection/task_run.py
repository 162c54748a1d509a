# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A call that its server runs as a task (SEP-2663), from when it is known as one.

.. code-block:: text

    waiting ──poll interval──> asking ──working──> waiting …
                                 ├ completed, failed, cancelled: the result, or an error
                                 ├ wants input: the handlers answer, or the call is left open
                                 └ no answer: asked again, in the next session if need be, until the server has been
                                   away for too long, or when it wants to be asked again
    at the deadline        an error with what the task can be taken up again with; the task goes on
    the connection closes  likewise
    the caller gives up    the task is cancelled
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from haystack import logging
from pydantic import ValidationError

from haystack_integrations.tools.mcp.connection.session import CANCEL_TIMEOUT, holding_task
from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPCallPendingError,
    MCPCallTimeoutError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.handlers.calling import call as call_function
from haystack_integrations.tools.mcp.handlers.elicitation import answer_later
from haystack_integrations.tools.mcp.handlers.progress import HandlerReports, MCPProgress
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, arguments_with_secrets, is_question
from haystack_integrations.tools.mcp.protocol.base import AnswerRefusedError, MCPClient, TaskState
from haystack_integrations.tools.mcp.protocol.error_texts import (
    describe_error,
    raise_tool_error,
    with_full_stop,
)
from haystack_integrations.tools.mcp.protocol.requests_of_server import Continuation, Responses

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import CallRequest
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E", bound=MCPInvocationError)

# How long one request about a task may take if calls have no limit, in seconds.
_REQUEST_TIMEOUT = 30.0

# How long a handler may take to answer where tasks have no limit, in seconds.
_LONGEST_ANSWER = 86_400.0


class TaskRun:
    """
    The rest of a call that its server runs as a task.

    Run once in the executor's loop.
    """

    def __init__(self, request: CallRequest, call: MCPPendingCall, continuation: Continuation | None) -> None:
        """
        Initialize the TaskRun.

        :param request: What the caller wants.
        :param call: The task.
        :param continuation: Answers to the questions of the task, if the caller continues it.
        """
        self._request = request
        self._call = call
        self._continuation = continuation
        self._request_timeout = request.limits.invocation_timeout or _REQUEST_TIMEOUT
        self._task_timeout = request.limits.task_timeout
        self._answered: set[str] = set()
        self._said: str | None = None

    async def run(self, supervisor: Supervisor) -> types.CallToolResult:
        """
        Wait for the result of the task.

        :param supervisor: Has the sessions.
        :returns: The result.
        :raises MCPCallPendingError: If the task wants input that nobody can give now.
        :raises MCPInvocationError: If there is no result.
        """
        with holding_task(supervisor.base):
            return await self._run(supervisor)

    async def _run(self, supervisor: Supervisor) -> types.CallToolResult:
        self._supervisor = supervisor
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        if self._continuation is not None:
            supervisor.base.calls += 1
        supervisor.redactor.remember(self._request.secrets)
        progress = supervisor.handlers.progress
        self._reports = HandlerReports(progress) if progress is not None else None
        try:
            result = await self._result()
            if self._reports is not None:
                await self._reports.delivered(self._left())
            raise_tool_error(result, self._request.display_name, self._request.tool_args)
            return result
        except asyncio.CancelledError:
            await cancel_task(self._task_id, supervisor)
            raise
        except MCPInvocationError as error:
            supervisor.redactor.error(error)  # what a task says is the result of a request
            if not isinstance(error, MCPCallPendingError):
                supervisor.call_failed(error)
            raise

    async def _result(self) -> types.CallToolResult:
        if self._continuation is None:
            await self._sleep(self._call.poll_interval or 1.0)
        else:
            given = self._continuation.responses
            rest = {key: request for key, request in self._call.requests.items() if key not in given}
            await self._send_answers({**given, **(await self._asked_of_handlers(self._call, rest) if rest else {})})
        while True:
            state, result = await self._ask("tasks/get", self._look)
            self._report(state)
            if result is not None:
                return result
            match state.status:
                case "failed":
                    raise self._failed(state)
                case "cancelled":
                    raise self._error(MCPInvocationError, "the server says that its task was cancelled.")
                case "input_required":
                    await self._answer(state)
            await self._sleep(state.poll_interval)

    @property
    def _task_id(self) -> str:
        return self._call.task_id or ""

    def _left(self) -> float | None:
        return None if self._task_timeout is None else self._began + self._task_timeout - self._now()

    async def _sleep(self, seconds: float) -> None:
        left = self._left()
        await self._supervisor.sleep(seconds if left is None else max(min(seconds, left), 0.0))
        self._check_open()
        if left is not None and left <= seconds:
            raise self._timed_out()

    def _check_open(self) -> None:
        if self._supervisor.is_closed:  # for good: no other session is going to be opened
            raise self.lost(MCPConnectionError("the connection was closed."))

    async def _ask(self, operation: str, ask: Callable[[MCPClient], Awaitable[T]]) -> T:
        """
        Send a request about the task, again and again while the server is away.
        """

        def send() -> Awaitable[T]:
            left, limit = self._left(), self._request_timeout
            return self._supervisor.read(
                operation,
                ask,
                connection_timeout=self._request.connection_timeout,
                timeout=limit if left is None else max(min(limit, left), 0.1),
            )

        return await self._until_back(send)

    async def _until_back(self, attempt: Callable[[], Awaitable[T]]) -> T:
        wait = 0.1
        away_since: float | None = None
        while True:
            began = self._now()
            try:
                return await attempt()
            except MCPConnectionError as error:
                if error.code is not None:
                    text = f"the server does not answer for its task any more: {error}"
                    failure = self._error(MCPInvocationError, text)
                    failure.code, failure.data = error.code, error.data
                    raise failure from None
                self._check_open()
                if away_since is None:
                    # Not since it was heard last: it may want to be asked once a minute.
                    away_since = began if isinstance(error, TimeoutError) else self._now()
                away = self._now() - away_since
                left = self._left()
                if left is not None and left <= 0:
                    raise self._timed_out() from None
                rest = self._supervisor.rest.seconds
                if rest:  # it is there, and has said when it wants to be asked again
                    away_since = None
                    await self._sleep(rest)
                    continue
                if isinstance(error, MCPAuthorizationError) or away > self._request.connection_timeout:
                    raise self.lost(error) from None
                logger.info(
                    "A task of a tool of {server} cannot be asked for ({reason}); trying again",
                    server=self._supervisor.description,
                    reason=str(error),
                )
            await self._sleep(wait)
            wait = min(wait * 2, 5.0)

    async def _look(self, client: MCPClient) -> tuple[TaskState, types.CallToolResult | None]:
        # Both by the same client: the session may end next, and there may be no other one to read the result with.
        state = await client.get_task(self._task_id)
        if state.status != "completed":
            return state, None
        try:
            return state, await client.task_result(self._request.tool_name, state.result or {})
        except (RuntimeError, ValidationError) as error:
            text = f"the result of its task is no valid result: {describe_error(error)}"
            raise self._error(MCPInvocationError, with_full_stop(text), outcome="answered") from None

    async def _send_answers(self, responses: Responses) -> None:
        if responses:
            await self._ask("tasks/update", lambda client: client.update_task(self._task_id, responses))
            self._answered |= set(responses)

    async def _answer(self, state: TaskState) -> None:
        # The server may go on to ask for a while after it got the answers.
        requests = {key: each for key, each in (state.input_requests or {}).items() if key not in self._answered}
        if not requests:
            return
        call = dataclasses.replace(self._call, requests=requests)
        if self._supervisor.handlers.elicitation is answer_later and any(map(is_question, requests.values())):
            await self._leave_open(call)
        await self._send_answers(await self._asked_of_handlers(call, requests))

    async def _asked_of_handlers(self, call: MCPPendingCall, requests: dict[str, Any]) -> Responses:
        def ask() -> Awaitable[Responses]:
            # A person may take longer than the server may be away.
            left = self._left()
            return self._supervisor.ask_handlers(
                lambda client: client.answer_for_task(requests),
                connection_timeout=self._request.connection_timeout,
                timeout=_LONGEST_ANSWER if left is None else max(left, 0.1),
            )

        try:
            return await self._until_back(ask)
        except AnswerRefusedError as error:
            # The task waits at the server for whoever can answer.
            reason = with_full_stop(str(error))
        except ValidationError as error:
            text = f"what its task wants to know is not what the protocol allows: {describe_error(error)}"
            raise self._error(MCPInvocationError, with_full_stop(text)) from None
        return await self._leave_open(call, reason)

    async def _leave_open(self, call: MCPPendingCall, reason: str = "") -> NoReturn:
        await keep(call, self._request, self._supervisor)
        raise pending_error(call, self._request, reason)

    def _report(self, state: TaskState) -> None:
        if state.status_message is None or state.status_message == self._said:
            return
        self._said = state.status_message
        report = MCPProgress(
            server=self._supervisor.description,
            tool_name=self._request.tool_name,
            progress=self._now() - self._began,
            message=state.status_message,
        )
        if self._reports is not None:
            self._reports.add(report)
        if self._request.report is not None:
            self._request.report(report)

    def _failed(self, state: TaskState) -> MCPInvocationError:
        error = state.error or {}
        text = str(error.get("message") or state.status_message or "its task failed")
        failure = self._error(MCPInvocationError, text, outcome="answered")
        code = error.get("code")
        failure.code = code if isinstance(code, int) else None
        failure.data = error.get("data")
        return failure

    def _timed_out(self) -> MCPInvocationError:
        text = f"its task has not ended within {self._task_timeout:g} seconds (`task_timeout`)."
        return self.lost(TimeoutError(text), MCPCallTimeoutError)

    def lost(
        self, error: Exception, kind: type[MCPOutcomeUnknownError] = MCPOutcomeUnknownError
    ) -> MCPOutcomeUnknownError:
        """
        Make the error of a task that cannot be waited for any more.

        :param error: Why.
        :param kind: What is raised.
        :returns: The error, with what the task can be taken up again with.
        """
        failure = self._error(kind, f"{with_full_stop(str(error))} {_GOES_ON}")
        failure.pending_call = self._call
        return failure

    def _error(self, kind: type[E], text: str, *, outcome: str = "may_have_run") -> E:
        request = self._request
        error = kind(f"Failed to invoke Tool `{request.display_name}`: {text}", request.display_name, request.tool_args)
        error._outcome = outcome  # what is a task has begun
        return error


_GOES_ON = (
    "The task goes on at the server; do not repeat the call. `continue_call` takes it up again with the `pending_call` "
    "of this error, and `cancel_call` ends it."
)


def pending_call(result: dict[str, Any], request: CallRequest, server: str) -> MCPPendingCall:
    """
    Make of a server's result what its call can be continued with.

    :param result: The result, as in the protocol.
    :param request: What the caller wants.
    :param server: Describes the server.
    :returns: The call.
    """
    name, given = request.original or (request.tool_name, request.tool_args)
    # The arguments of a call that is continued are those of the call before.
    withheld = request.continues[0].withheld if request.continues else arguments_with_secrets(given, request.secrets)
    arguments = {name: value for name, value in given.items() if name not in withheld}
    shared: dict[str, Any] = {"tool_name": name, "arguments": arguments, "withheld": withheld, "server": server}
    if result.get("resultType") != "task":
        state = result.get("requestState")
        return MCPPendingCall(**shared, requests=result.get("inputRequests") or {}, request_state=state)
    task = TaskState.model_validate(result, by_name=False)
    return MCPPendingCall(**shared, task_id=task.task_id, poll_interval=task.poll_interval, expires_at=task.expires_at)


def pending_error(call: MCPPendingCall, request: CallRequest, reason: str = "") -> MCPCallPendingError:
    """
    Make the error of a call that is left open.

    :param call: The call.
    :param request: What the caller wants.
    :param reason: Why nobody can give what the server wants, as sentences, if it is not that it is answered later.
    :returns: The error. A model that reads it knows that there is no use in calling again.
    """
    if call.requests:
        asked = " ".join(with_full_stop(question.message) for question in call.questions)
        what = " ".join(filter(None, ["the server wants input first, which nobody can give now.", asked, reason]))
    else:
        what = "the server runs it as a task."
    msg = f"Failed to invoke Tool `{request.display_name}`: {what} The call is left open; do not repeat it."
    return MCPCallPendingError(msg, request.display_name, request.tool_args, pending_call=call)


async def keep(call: MCPPendingCall, request: CallRequest, supervisor: Supervisor) -> None:
    """
    Pass a call to a journal and to the user, so that it can be continued whatever happens to this process.

    :param call: The call.
    :param request: What the caller wants.
    :param supervisor: Has the handlers.
    """
    keepers = {"journal": request.on_pending, "handler `pending_calls`": supervisor.handlers.pending_calls}
    for name, function in keepers.items():
        if function is not None:
            await _pass(call, name, function, supervisor)


async def _pass(call: MCPPendingCall, name: str, function: Callable[..., Any], supervisor: Supervisor) -> None:
    try:
        await call_function(function, call)
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it is not the function's own
        logger.error(
            "The {keeper} for {server} failed: {kind}",
            keeper=name,
            server=supervisor.description,
            kind=type(error).__name__,
            exc_info=error,
        )


async def cancel_task(task_id: str, supervisor: Supervisor) -> None:
    """
    Ask a server to cancel a task that nobody waits for any more.

    :param task_id: The server's name of the task.
    :param supervisor: Has the session.
    """
    try:
        await supervisor.read(
            "tasks/cancel",
            lambda client: client.cancel_task(task_id),
            connection_timeout=CANCEL_TIMEOUT,
            timeout=CANCEL_TIMEOUT,
        )
    except MCPConnectionError as error:
        logger.warning(
            "A task of a tool of {server} was given up, but could not be cancelled: {error}",
            server=supervisor.description,
            error=str(error),
        )
