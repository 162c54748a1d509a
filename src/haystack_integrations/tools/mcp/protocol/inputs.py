# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests whose server wants input before it answers them (SEP-2322, since revision 2026-07-28).

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
from pydantic import ValidationError

from haystack_integrations.tools.mcp.handlers.callbacks import elicit_result
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, is_question
from haystack_integrations.tools.mcp.protocol.requests_of_server import ServerRequests, read_requests

# Answers by the keys of what the server wants to know, as in the protocol.
Responses: TypeAlias = dict[str, dict[str, Any]]

_MOST_ROUNDS: Final = 10

# The first pause and the longest one, in seconds.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.25


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


async def answered(
    send: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    requests: ServerRequests | None,
    *,
    seed: Mapping[str, Any] | None = None,
    leaves_questions: bool = False,
) -> dict[str, Any]:
    """
    Send a request until its server wants no further input.

    :param send: Sends it, as one of its own each time, with more parameters.
    :param requests: Has the handlers that answer; None if the revision has no such results.
    :param seed: Parameters for the first time.
    :param leaves_questions: Whether the user answers questions later.
    :returns: The result.
    :raises CallLeftOpenError: If there are such questions.
    :raises ProtocolError: If a handler refuses, or is not there.
    :raises ValidationError: If what the server wants is not as in the protocol.
    :raises RuntimeError: If it wants input again and again.
    """
    more: dict[str, Any] = dict(seed or {})
    pause = _FIRST_PAUSE
    for _ in range(_MOST_ROUNDS + 1):
        result = await send(more)
        if requests is None or result.get("resultType") != "input_required":
            return result
        read = types.InputRequiredResult.model_validate(result, by_name=False)
        if leaves_questions and any(map(is_question, (result.get("inputRequests") or {}).values())):
            raise CallLeftOpenError(result)
        more = {}
        if read.request_state is not None:
            more["requestState"] = read.request_state
        if read.input_requests:
            more["inputResponses"] = await requests.answers(read.input_requests)
            pause = _FIRST_PAUSE
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
    msg = f"the server wanted input more than {_MOST_ROUNDS} times"
    raise RuntimeError(msg)


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
            self._requests = read_requests(call.requests) if call.requests else {}
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
        Return what goes with the call, once the handlers have answered the rest of what the server wants to know.

        :param requests: Has the handlers.
        :returns: Parameters, for the `seed` of `answered`.
        :raises ProtocolError: If a handler refuses.
        :raises RuntimeError: If the server would begin the call anew.
        """
        if not requests.callbacks.is_modern:
            version = requests.callbacks.version
            msg = f"it cannot be continued: the server now speaks revision {version}. The tool did not run"
            raise RuntimeError(msg)
        rest = {key: request for key, request in self._requests.items() if key not in self.responses}
        responses = {**self.responses, **await requests.answers(rest)}
        state = self.call.request_state
        return {
            **({"inputResponses": responses} if responses else {}),
            **({"requestState": state} if state is not None else {}),
        }
