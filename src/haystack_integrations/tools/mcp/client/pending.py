# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that a server does not answer at once: it wants input first, or runs them as tasks (SEP-2663).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

import mcp
from mcp import MCPError as ProtocolError
from mcp import types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from haystack_integrations.tools.mcp.handlers.answers import elicit_result
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, is_question

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"

# The states in which a task is over.
OVER = ("completed", "failed", "cancelled")

_REQUESTS: TypeAdapter[dict[str, types.InputRequest]] = TypeAdapter(dict[str, types.InputRequest])

# What some servers leave out, in seconds; and what no server is waited for longer between two questions for a task.
_USUAL_POLL_INTERVAL = 1.0
_LONGEST_POLL_INTERVAL = 60.0
_SHORTEST_POLL_INTERVAL = 0.02

Responses: TypeAlias = dict[str, types.InputResponse]


class CallLeftOpenError(Exception):
    """
    Raised when a server does not answer a call, but wants something first, or made a task of it.
    """

    def __init__(self, result: dict[str, Any]) -> None:
        """
        Initialize the CallLeftOpenError.

        :param result: What the server sent, as in the protocol.
        """
        super().__init__("the server has not answered the call yet")
        self.result = result


class AnswerRefusedError(Exception):
    """
    Raised when a handler does not answer what a server wants to know, or is not there. The text says which.
    """


class _Task(types.Result):
    """
    What a server says of a task when it makes one.
    """

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str | None = None
    ttl_ms: float | None = None
    poll_interval_ms: float | None = None

    @property
    def poll_interval(self) -> float:
        """
        How many seconds to wait until the server is asked again.
        """
        if not self.poll_interval_ms:
            return _USUAL_POLL_INTERVAL
        return min(max(self.poll_interval_ms / 1000, _SHORTEST_POLL_INTERVAL), _LONGEST_POLL_INTERVAL)

    @property
    def expires_at(self) -> float | None:
        """
        When the server may forget the task, in seconds since the epoch, if it says so.
        """
        if self.ttl_ms is None or self.created_at is None:
            return None
        try:
            return datetime.fromisoformat(self.created_at).timestamp() + self.ttl_ms / 1000
        except ValueError:
            return None


class _CreatedTask(_Task):
    result_type: Literal["task"] = "task"


class TaskState(_Task):
    """
    What a server says of a task when it is asked.
    """

    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class TaskRequest(types.Request[dict[str, Any], str]):
    """
    A request about a task. Proxies find the task's server by the name in a header.
    """

    name_param: ClassVar[str | None] = "taskId"


class TasksExtension(ClientExtension):
    """
    Tells servers of revision 2026-07-28 that they may run calls as tasks.
    """

    identifier = TASKS_EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        """
        Claim the results that are tasks.

        :returns: The claim. It hands the task to whoever made the call, since the session may not live as long.
        """
        return [ResultClaim(result_type="task", model=_CreatedTask, resolve=_leave_open)]


async def _leave_open(task: _CreatedTask, _context: ClaimContext) -> types.CallToolResult:
    raise CallLeftOpenError(task.model_dump(by_alias=True, mode="json", exclude_none=True))


def leave_questions_open(result: Mapping[str, Any]) -> None:
    """
    Leave a call open if its server has questions for the user.

    :param result: The result of a call.
    :raises CallLeftOpenError: If it has.
    """
    if result.get("resultType") != "input_required":
        return
    requests = result.get("inputRequests")
    if isinstance(requests, Mapping) and any(map(is_question, requests.values())):
        raise CallLeftOpenError(dict(result))


class Continuation:
    """
    What a call is continued with.
    """

    def __init__(self, call: MCPPendingCall, answers: Mapping[str, Any] | None, *, asks: bool) -> None:
        """
        Check the answers to a server's questions.

        :param call: The call.
        :param answers: The answers by the keys of the questions, each as a handler for elicitation would give it.
        :param asks: Whether a handler is there for the questions without an answer.
        :raises ValueError: If an answer is missing, too much, or does not fit its form.
        """
        self.call = call
        self._answers = dict(answers or {})
        try:
            self._requests = _REQUESTS.validate_python(call.requests, by_name=False)
        except ValidationError:
            msg = "`call` cannot be continued: its `requests` are not what a server sends. Pass what was stored."
            raise ValueError(msg) from None
        keys = [question.key for question in call.questions]
        unknown = [key for key in self._answers if key not in keys]
        missing = [] if asks else [key for key in keys if key not in self._answers]
        if unknown or missing:
            wrong = f"has unknown keys {unknown}" if unknown else f"has no {missing}"
            msg = f"`answers` {wrong}; the server's questions have the keys {keys}"
            raise ValueError(msg)
        self.responses: Responses = {key: self._response(key, answer) for key, answer in self._answers.items()}

    def _response(self, key: str, answer: Any) -> types.ElicitResult:
        request = self._requests[key]
        if not isinstance(request, types.ElicitRequest):
            raise AssertionError  # questions are elicitations
        try:
            result = elicit_result(request.params, answer)
        except (TypeError, ValueError) as error:
            msg = f"the answer {key!r}: {error}"
            raise ValueError(msg) from None
        if isinstance(result, types.ErrorData):
            msg = f"the answer {key!r} must not be an ErrorData; pass None to cancel"
            raise ValueError(msg)
        return result

    async def extras(self, sdk: mcp.Client) -> dict[str, Any]:
        """
        Give what goes with the call, once the handlers have answered the rest of what the server wants to know.

        :param sdk: Has the session.
        :returns: Keyword arguments for the `call_tool` of the SDK.
        :raises ProtocolError: If a handler refuses.
        :raises RuntimeError: If the server would begin the call anew.
        """
        if sdk.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            msg = f"it cannot be continued: the server now speaks revision {sdk.protocol_version}. The tool did not run"
            raise RuntimeError(msg)
        rest = {key: request for key, request in self._requests.items() if key not in self.responses}
        responses = {**self.responses, **await answered(sdk.session, rest)}
        return {"input_responses": responses or None, "request_state": self.call.request_state}


async def answered(session: mcp.ClientSession, requests: Mapping[str, types.InputRequest]) -> Responses:
    """
    Let the handlers answer what a server wants to know.

    :param session: Has the handlers.
    :param requests: The requests by their keys.
    :returns: The responses by the same keys.
    :raises ProtocolError: If a handler refuses.
    """
    answers = await asyncio.gather(
        *(
            session.dispatch_input_request(ClientRequestContext(session=session, request_id=key), request)
            for key, request in requests.items()
        )
    )
    responses: Responses = {}
    for key, answer in zip(requests, answers, strict=True):
        if isinstance(answer, types.ErrorData):
            raise ProtocolError.from_error_data(answer)
        responses[key] = answer
    return responses


def read_requests(requests: Any) -> dict[str, types.InputRequest]:
    """
    Read what a server wants to know.

    :param requests: The requests, as in the protocol.
    :returns: The requests by their keys.
    :raises ValidationError: If they are not what the protocol says.
    """
    return _REQUESTS.validate_python(requests, by_name=False)
