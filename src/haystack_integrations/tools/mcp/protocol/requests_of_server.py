# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests and notifications of a server.

Up to revision 2025-11-25 it sends requests; since 2026-07-28 they are in the result of the client's request (SEP-2322):

.. code-block:: text

    request ──input_required──> the handlers answer ──same request, with the answers and the server's state──┐
       │  └──only a state──────> a pause ────────────same request, with the state────────────────────────────┤
       └──anything else────────> the result                      again and again, in at most 10 rounds <──────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import mcp_types as types
from haystack import logging
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import to_json

from haystack_integrations.tools.mcp.convert.odd_messages import NOTIFICATIONS, REQUESTS, repair_params
from haystack_integrations.tools.mcp.handlers.calling import call as call_function
from haystack_integrations.tools.mcp.handlers.session_handlers import FIELDS, SessionHandlers, elicit_result
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, is_question
from haystack_integrations.tools.mcp.protocol.changes import ACKNOWLEDGED
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Servers may run calls as tasks (SEP-2663).
_TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

_LOG: Final = "notifications/message"

_REVISION_BY_METHOD: Final = {"notifications/elicitation/complete": "2025-11-25", ACKNOWLEDGED: "2026-07-28"}


class ServerRequests(SessionHandlers):
    """
    Answers the requests of the server of one session, and passes on its notifications.
    """

    def capabilities(self, version: str) -> dict[str, Any]:
        """
        Return the capabilities that this client announces: those for which there is a handler.

        :param version: The revision of the protocol.
        :returns: The capabilities, as in the protocol.
        """
        handlers = self.handlers
        announced: dict[str, Any] = {}
        if handlers.sampling is not None:
            announced["sampling"] = {"tools": {}} if self.takes_tools else {}
        if handlers.elicitation is not None:
            announced["elicitation"] = {"form": {}, "url": {}}
        if handlers.roots is not None:
            announced["roots"] = {} if version in MODERN_PROTOCOL_VERSIONS else {"listChanged": True}
        if version in MODERN_PROTOCOL_VERSIONS:
            announced["extensions"] = {_TASKS_EXTENSION: {}}
        return announced

    async def respond(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """
        Answer a JSON-RPC request of the server.

        :param method: Its method.
        :param params: Its parameters.
        :returns: The result; None for no answer, because the revision has no such requests.
        :raises ProtocolError: To answer with an error.
        """
        if self.is_modern:
            logger.debug(
                "A request of the server is ignored, because its revision of the protocol has no such requests"
            )
            return None
        if method == "ping":
            return {}
        if method not in FIELDS:
            raise ProtocolError(types.METHOD_NOT_FOUND, "Method not found")
        self._check_handler(method)
        try:
            request = _read(method, params)
        except ValidationError:
            raise ProtocolError(types.INVALID_PARAMS, "Invalid request parameters") from None
        return await self._answer(request)

    async def answers(self, requests: Mapping[str, types.InputRequest]) -> dict[str, dict[str, Any]]:
        """
        Answer the questions that a server has before it goes on with a request, all at the same time.

        :param requests: The requests by their keys.
        :returns: The answers by the same keys, as in the protocol.
        :raises ProtocolError: If a handler refuses, or there is no handler. The request then fails with this error.
        """
        answering = [asyncio.ensure_future(self._answer(request)) for request in requests.values()]
        try:
            return dict(zip(requests, await asyncio.gather(*answering), strict=True))
        finally:
            for each in answering:
                each.cancel()

    def _check_handler(self, method: str) -> None:
        if (error := self.missing_handler_error(method)) is not None:
            raise ProtocolError(error.code, error.message, error.data)

    async def _answer(self, request: types.InputRequest) -> dict[str, Any]:
        self._check_handler(request.method)
        answer = await self.answer(request)
        if isinstance(answer, types.ErrorData):
            raise ProtocolError(answer.code, answer.message, answer.data)
        dumped: dict[str, Any] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            to_json(dumped)
        except ValueError:  # this error quotes the answer
            field = FIELDS[request.method]
            self.failed(field, ValueError("what it returned has text that is not valid Unicode"))
            raise ProtocolError(types.INTERNAL_ERROR, f"The client's {field} handler failed") from None
        return dumped

    def notified(self, method: str, params: dict[str, Any], exchange: Exchange | None = None) -> None:
        """
        Pass on a notification of the server. It is ignored if it is unknown or cannot be read.

        :param method: The method of the notification.
        :param params: Its parameters.
        :param exchange: The request of this client in whose stream it came; the caller of that request gets it.
        """
        if exchange is not None:
            exchange.context.run(self._notified, method, params)
        else:
            self._notified(method, params)

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        version, handlers = self.version, self.handlers
        is_known = method in NOTIFICATIONS and _REVISION_BY_METHOD.get(method, version) == version
        if not is_known or method == ACKNOWLEDGED or (method != _LOG and handlers.messages is None):
            return
        try:
            notification = {"method": method, "params": repair_params(method, params)}
            message = NOTIFICATIONS[method].model_validate(notification, by_name=False)
        except ValidationError:
            logger.debug("A notification of the server cannot be read: {method}", method=method)
            return
        if isinstance(message, types.LoggingMessageNotification):
            self.log(message.params)
        if handlers.messages is not None:
            self.deliver_notification(message)


def read_requests(requests: Any) -> dict[str, types.InputRequest]:
    """
    Read the questions of a server.

    :param requests: The requests by their keys, as in the protocol.
    :returns: The requests by their keys.
    :raises ValidationError: If they do not conform to the protocol.
    """
    return types.InputRequiredResult.model_validate({"inputRequests": requests}, by_name=False).input_requests or {}


def _read(method: str, params: dict[str, Any]) -> Any:
    repaired = repair_params(method, params)
    if params.get("mode") is not None:
        repaired = {**repaired, "mode": params["mode"]}  # an unknown mode must not be taken for the default
    request = {"method": method, "params": repaired}
    return REQUESTS[method].model_validate(request, by_name=False)


# The answers to a server's questions by their keys, as in the protocol.
Responses: TypeAlias = dict[str, dict[str, Any]]

_MAX_ROUNDS: Final = 10

# The first pause and the longest one, in seconds.
_FIRST_PAUSE: Final = 0.05
_MAX_PAUSE: Final = 0.25


class CallLeftOpenError(Exception):
    """
    Raised when a server does not answer a call yet, because it wants input first or runs the call as a task.
    """

    def __init__(self, result: dict[str, Any]) -> None:
        """
        Initialize the CallLeftOpenError.

        :param result: What the server sent, as in the protocol.
        """
        super().__init__("the server has not answered the call yet")
        self.result = result


async def send_until_complete(
    send: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    requests: ServerRequests,
    result: dict[str, Any],
    *,
    leaves_questions: bool = False,
) -> dict[str, Any]:
    """
    Send a request again until its server wants no further input.

    :param send: Sends it with additional parameters, as a new request each time.
    :param requests: Has the handlers that answer.
    :param result: The result of the first request.
    :param leaves_questions: Whether questions to the user are answered later.
    :returns: The result of the last request.
    :raises CallLeftOpenError: If there are such questions.
    :raises ProtocolError: If a handler refuses, or there is no handler.
    :raises ValidationError: If the server's questions do not conform to the protocol.
    :raises RuntimeError: If the server asks for input again and again.
    """
    pause, rounds = _FIRST_PAUSE, 0
    while result.get("resultType") == "input_required":
        if rounds == _MAX_ROUNDS:
            msg = f"the server wanted input more than {_MAX_ROUNDS} times"
            raise RuntimeError(msg)
        rounds += 1
        read = types.InputRequiredResult.model_validate(result, by_name=False)
        if leaves_questions and any(map(is_question, (result.get("inputRequests") or {}).values())):
            raise CallLeftOpenError(result)
        more: dict[str, Any] = {}
        if read.request_state is not None:
            more["requestState"] = read.request_state
        if read.input_requests:
            more["inputResponses"] = await requests.answers(read.input_requests)
            pause = _FIRST_PAUSE
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE)
        result = await send(more)
    return result


class Continuation:
    """
    The answers and the state with which a call is continued.
    """

    def __init__(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None,
        *,
        asks: bool,
        on_answered: Callable[[], None] | None = None,
    ) -> None:
        """
        Initialize the Continuation, and check the answers to the server's questions.

        :param call: The call.
        :param answers: The answers by the keys of the questions, each as a handler for elicitation would return it.
        :param asks: Whether there is a handler for questions without an answer.
        :param on_answered: Called when all answers are known, before they are sent.
        :raises ValueError: If an answer is missing or superfluous, or does not fit its form.
        """
        self.call = call
        self._answers = dict(answers or {})
        self._on_answered = on_answered
        try:
            self._requests = read_requests(call.requests) if call.requests else {}
        except ValidationError:
            msg = "`call` cannot be continued: its `requests` are invalid. Pass what was stored."
            raise ValueError(msg) from None
        keys = [question.key for question in call.questions]
        unknown = [key for key in self._answers if key not in keys]
        missing = [] if asks else [key for key in keys if key not in self._answers]
        if unknown or missing:
            wrong = f"has unknown keys {unknown}" if unknown else f"has no {missing}"
            msg = f"`answers` {wrong}; the server's questions have the keys {keys}"
            raise ValueError(msg)
        self.responses: Responses = {key: self._response(key, answer) for key, answer in self._answers.items()}

    def _response(self, key: str, answer: Any) -> dict[str, Any]:
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
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def parameters(self, requests: ServerRequests) -> dict[str, Any]:
        """
        Let the handlers answer the remaining questions, and return the additional parameters of the call.

        :param requests: Has the handlers.
        :returns: The parameters.
        :raises ProtocolError: If a handler refuses.
        :raises RuntimeError: If the server would start the call from the beginning.
        """
        if not requests.is_modern:
            version = requests.version
            msg = f"it cannot be continued: the server now speaks revision {version}. The tool did not run"
            raise RuntimeError(msg)
        unanswered = {key: request for key, request in self._requests.items() if key not in self.responses}
        responses = {**self.responses, **await requests.answers(unanswered)}
        if self._on_answered is not None:
            await call_function(self._on_answered)
        state = self.call.request_state
        return {
            **({"inputResponses": responses} if responses else {}),
            **({"requestState": state} if state is not None else {}),
        }
