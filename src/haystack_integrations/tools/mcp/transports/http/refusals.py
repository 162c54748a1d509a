# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What an HTTP error response says about its request and about the session.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any

import httpx2
from mcp import types

from haystack_integrations.tools.mcp.client.request_outcome import CALL_METHOD

SESSION_HEADER = "mcp-session-id"

# Over SSE, a message refused with one of these was not processed: the session is gone, or access is denied.
_SESSION_GONE = frozenset({404, 410})
_DENIED = frozenset({401, 403, 405})

# What servers ask for at most, in seconds: nobody means years.
_LONGEST_REST = 86_400.0

# The specification of HTTP has no fractions, but rate limiters send them.
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")

# With a `Retry-After`, a server refuses before it processes anything.
_TOO_BUSY = frozenset({429, 503})

# Known phrasings of "unknown session" in 400 responses; the whole message must match, because a tool's own error may
# mention sessions too.
_UNKNOWN_SESSION = re.compile(
    r"""
    (bad\ request\W+)?
    (
        (no\ valid|no|(invalid|unknown|missing|expired)(\ or\ (invalid|unknown|missing|expired))?)
        \ (mcp[- ])?session([ _-]?id)?(\ header)?(\ provided)?
    |
        server\ not\ initialized
    |
        (mcp[- ])?session([ _-]?id)?([ :'"]+[\w-]+['"]?)?
        \ ((is|was|has)\ )?(not\ found|unknown|invalid|expired|terminated|not\ initialized|required)
    )
    \W*
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Refusals of requests that the server would have answered in another session, as far as anybody can tell: those of the
# others are about the size of the request, or about how many there are.
_SAY_NOTHING_OF_THE_SESSION = frozenset({408, 413, 414, 429, 431})
# What such a refusal may be of. Servers refuse notifications, and requests that they do not know, for other reasons.
_COMMON_METHODS = frozenset(
    "tools/call tools/list resources/read resources/list resources/templates/list prompts/get prompts/list".split()
)
# Errors of whoever processed the request.
_OWN_ERRORS = frozenset({types.METHOD_NOT_FOUND, types.INVALID_PARAMS, types.INTERNAL_ERROR})
_MENTIONS_SESSION = re.compile("session|initiali[sz]", re.IGNORECASE)

# Longer texts are not matched: they are pages or logs, not one of the phrasings.
_LONGEST_MESSAGE = 200


class SessionFate(Enum):
    """
    What became of the session, judging by a response.
    """

    ALIVE = auto()
    # The server does not know it any more.
    LOST = auto()
    # It is not worth using any more, but the server may have processed the request.
    DOUBTFUL = auto()


@dataclass(frozen=True)
class Verdict:
    """
    What an error response says about the fate of its request and of the session.

    :param never_ran: Whether the server provably did not process the request.
    :param denied: Whether the server would refuse the same request again.
    :param session: What became of the session.
    """

    never_ran: bool
    denied: bool
    session: SessionFate


def retry_after(response: httpx2.Response) -> float | None:
    """
    Tell when a server that is too busy wants to get the request again, which it has not processed.

    :param response: A response.
    :returns: In how many seconds, for the statuses 429 and 503 with `Retry-After`; otherwise None.
    """
    if response.status_code not in _TOO_BUSY:
        return None
    value = response.headers.get("retry-after", "").strip()
    try:
        is_number = _SECONDS.fullmatch(value) is not None
        seconds = float(value) if is_number else parsedate_to_datetime(value).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_REST)


def judge_sse(response: httpx2.Response) -> Verdict:
    """
    Judge the refusal of a message over the SSE transport.

    The session is lost in any case: the answer to the message would come over the event stream, and now never will.

    :param response: A response with an error status.
    :returns: The verdict.
    """
    denied = response.status_code in _DENIED
    return Verdict(denied or response.status_code in _SESSION_GONE, denied, SessionFate.LOST)


def judge_streamable_http(request: httpx2.Request, response: httpx2.Response) -> Verdict:
    """
    Judge the refusal of a message over streamable HTTP.

    :param request: The request, with its body read.
    :param response: A response with an error status, with its body read unless it is an event stream.
    :returns: The verdict. `denied` is always False: unless its session is lost, a refused request is not repeated.
    """
    state = _session_state(request, response)
    return Verdict(never_ran=state is SessionFate.LOST, denied=False, session=state)


def is_tool_call(request: httpx2.Request) -> bool:
    """
    Tell whether a request calls a tool.

    Other requests may follow a call in its name, e.g. one for the schema of its result.

    :param request: A POST request with its body read.
    :returns: Whether it is a `tools/call`.
    """
    return bool(json.loads(request.content).get("method") == CALL_METHOD)


def is_event_stream(response: httpx2.Response) -> bool:
    """
    Tell whether the body of a response is an event stream.

    :param response: The response.
    :returns: Whether its content type says so.
    """
    return has_content_type(response, "text/event-stream")


def has_content_type(response: httpx2.Response, content_type: str) -> bool:
    """
    Tell whether the content type of a response starts with another, as the SDK compares them.

    :param response: The response.
    :param content_type: In lower case, without parameters.
    :returns: Whether it does.
    """
    return bool(response.headers.get("content-type", "").lower().startswith(content_type))


def says_unknown_session(message: str) -> bool:
    """
    Tell whether a text says that the session is unknown, and nothing else.

    :param message: The text of an error.
    :returns: Whether it does.
    """
    return len(message) <= _LONGEST_MESSAGE and _UNKNOWN_SESSION.fullmatch(message) is not None


def _session_state(request: httpx2.Request, response: httpx2.Response) -> SessionFate:
    # The protocol's sign of an unknown session is a 404 to a request with a session id (specification 2025-11-25,
    # basic/transports, "Session Management"). The TypeScript SDK, and the Python SDK before 1.23, answer 400 instead:
    # in plain text, or with a JSON-RPC error that has no request id. An error with the id of the request comes from
    # whoever processed the request. Other servers have other words and statuses for it, so after any refusal that may
    # be about the session, the next call opens a new one.
    if SESSION_HEADER not in request.headers:
        return SessionFate.ALIVE
    status = response.status_code
    is_refusal = httpx2.codes.is_client_error(status) and status not in _SAY_NOTHING_OF_THE_SESSION
    if not is_refusal and status != httpx2.codes.INTERNAL_SERVER_ERROR:
        return SessionFate.ALIVE
    message, answers_request, code = _error_message(request, response)
    if status == httpx2.codes.NOT_FOUND:
        return SessionFate.DOUBTFUL if answers_request else SessionFate.LOST
    if status == httpx2.codes.BAD_REQUEST and not answers_request and says_unknown_session(message):
        return SessionFate.LOST
    if json.loads(request.content).get("method") not in _COMMON_METHODS or "www-authenticate" in response.headers:
        return SessionFate.ALIVE
    if not is_refusal and not _MENTIONS_SESSION.search(message):
        return SessionFate.ALIVE
    return SessionFate.ALIVE if answers_request and code in _OWN_ERRORS else SessionFate.DOUBTFUL


def _error_message(request: httpx2.Request, response: httpx2.Response) -> tuple[str, bool, Any]:
    """
    Read the error message of a response, whether it carries the id of the request, and the code of the error.
    """
    if is_event_stream(response):
        return "", False, None
    text = response.content.decode(errors="replace").strip()
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return text, False, None
    if not isinstance(answer, dict):
        return text, False, None
    error = answer.get("error", answer)
    message = error.get("message", text) if isinstance(error, dict) else error
    answers_request = "id" in answer and str(answer["id"]) == str(json.loads(request.content).get("id"))
    code = error.get("code") if isinstance(error, dict) else None
    return (message.strip() if isinstance(message, str) else text), answers_request, code
