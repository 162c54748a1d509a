# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What an HTTP response that is no answer of MCP says about its request and about the session.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from haystack_integrations.tools.mcp.convert.tool_schemas import shortened
from haystack_integrations.tools.mcp.protocol.channel import Exchange, describe_throttle, read_messages
from haystack_integrations.tools.mcp.protocol.request_errors import (
    LostError,
    NoAnswerError,
    ProtocolError,
    RefusedError,
    RequestError,
)

SESSION_HEADER = "mcp-session-id"
UNKNOWN_SESSION = "the server does not know the session any more"
DOUBTFUL_SESSION = "the server seems to have lost the session"

# The content type of the answers that come piece by piece.
EVENT_STREAM = "text/event-stream"

# Statuses. httpx2 takes long to find out whether one of these is meant.
SUCCESSES, REDIRECTS = range(200, 300), range(300, 400)

# The status of a message that is not answered.
ACCEPTED = 202

# Statuses of a server, or of what is in front of it, that looked at no more than the headers of a request.
_DID_NOT_RUN = frozenset({401, 403, 404, 405, 406, 407, 410, 413, 415, 421, 429, 431})

# Over SSE, a message refused with one of these was not processed: the session is gone, or access is denied.
_SESSION_GONE = frozenset({404, 410})
_DENIED = frozenset({401, 403, 405})

# With a `Retry-After`, a server refuses before it processes anything.
_TOO_BUSY = frozenset({429, 503})

# What servers ask for at most, in seconds: nobody means years.
_LONGEST_RETRY_AFTER = 86_400.0

# The specification of HTTP has no fractions, but rate limiters send them.
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")

# Known phrasings of "unknown session" in 400 responses; the whole message must match, because a tool's own error may
# mention sessions too.
_UNKNOWN_SESSION = re.compile(
    r"""
    ((bad|invalid)\ request\W+)?
    (
        (no\ valid|no|(invalid|unknown|missing|expired)(\ or\ (invalid|unknown|missing|expired))?)
        \ (mcp[- ])?session([ _-]?id)?(\ header)?(\ provided)?
    |
        server\ not\ initialized
    |
        received\ request\ before\ initialization\ was\ complete
    |
        (mcp[- ])?session([ _-]?id)?([ :'"]+[\w-]+['"]?)?
        \ ((is|was|has)\ )?(not\ found|unknown|invalid|expired|missing|terminated|not\ initialized|required)
    )
    \W*
    """,
    re.IGNORECASE | re.VERBOSE,
)

# Longer texts are not matched: they are pages or logs, not one of the phrasings.
_LONGEST_MESSAGE = 200

# Refusals of requests that the server would have answered in another session, as far as anybody can tell: those of the
# others are about the size of the request, or about how many there are.
_SAY_NOTHING_OF_THE_SESSION = frozenset({408, 413, 414, 429, 431})
# What such a refusal may be of. Servers refuse notifications, and requests that they do not know, for other reasons.
COMMON_METHODS = frozenset(
    "tools/call tools/list resources/read resources/list resources/templates/list prompts/get prompts/list".split()
)
# Errors of whoever processed the request.
_OWN_ERRORS = (METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR)
_MENTIONS_SESSION = re.compile("session|initiali[sz]", re.IGNORECASE)


@dataclass(frozen=True)
class _Said:
    """
    What the body of an error response says.

    :param message: The message of its error, in whatever shape, or else all of it.
    :param code: The code of its error; None if it was sent without one.
    :param error: The JSON-RPC error in it, if there is one.
    :param is_answer: Whether it has the id of the request, as what comes from whoever processed that has.
    """

    message: str
    code: Any
    error: dict[str, Any] | None
    is_answer: bool

    @classmethod
    def of(cls, body: bytes, exchange: Exchange) -> _Said:
        found = read_messages(body)
        errors = [frame.get("error") for frame in found if isinstance(frame, dict)]
        # A request may have anything there.
        readable = (each for each in errors if isinstance(each, dict) and {"code", "message"} <= each.keys())
        ids = [frame.get("id") if isinstance(frame, dict) else frame.id for frame in found]
        return cls(*_message_and_code_in(body), next(readable, None), exchange.id in ids)


def _message_and_code_in(body: bytes) -> tuple[str, Any]:
    text = body.decode(errors="replace").strip()
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text, None
    error = said.get("error", said) if isinstance(said, dict) else said
    message, code = (error.get("message"), error.get("code")) if isinstance(error, dict) else (error, None)
    return (message.strip() if isinstance(message, str) else text), code


def judge(response: httpx2.Response, body: bytes, exchange: Exchange, *, has_session: bool) -> tuple[str | None, bool]:
    """
    Settle a request over streamable HTTP whose response is no answer of MCP.

    :param response: The response.
    :param body: Its body if it has an error status; nothing of an event stream.
    :param exchange: The request.
    :param has_session: Whether it was sent in a session.
    :returns: Why the session is to take no more requests, as a clause, or None if it is; and whether the server failed,
        which may have happened to this request only.
    """
    if not response.is_error:  # it may come from whatever ended the session
        reason = _settle_unanswered(response, exchange)
        return (reason if has_session and exchange.method in COMMON_METHODS else None), False
    if _is_too_busy(response, exchange):
        return None, False
    said = _Said.of(body, exchange)
    lost = _why_lost(response, said, exchange) if has_session else None
    if lost is UNKNOWN_SESSION:
        exchange.settle(RefusedError(lost, status=status_of(response)))
    else:
        _settle_refused(response, said, exchange)
    # One that is only slow may know the session.
    is_failure = response.is_server_error and response.status_code != httpx2.codes.GATEWAY_TIMEOUT
    return lost, is_failure and not said.is_answer


def _settle_unanswered(response: httpx2.Response, exchange: Exchange) -> str:
    if response.status_code in REDIRECTS:
        reason = _describe_redirect(response)
        exchange.settle(RefusedError(reason, is_final=True))
    else:
        content = describe_content(response)
        reason = f"the server answered a request with {status_of(response)} and {content}, which is no answer of MCP"
        exchange.settle(NoAnswerError(reason))
    return reason


def _describe_redirect(response: httpx2.Response) -> str:
    target = redirect_target(response)
    if target is None:
        return f"the server answered with HTTP {status_of(response)}"
    shown = target.copy_with(userinfo=b"", query=None)
    if response.request.url.scheme == "https" and target.scheme == "http":
        return (
            f"Redirect to {shown} not followed: it leaves TLS. The server is likely behind a proxy that ends TLS, and "
            f"does not trust its forwarded headers. Use {shown.copy_with(scheme='https')} as the endpoint, or mend the "
            "settings of the proxy"
        )
    return f"Redirect to {shown} not followed; use that URL as the endpoint if it is the intended server"


def _settle_refused(response: httpx2.Response, said: _Said, exchange: Exchange) -> None:
    status, code = status_of(response), response.status_code
    error = said.error if media_type(response).startswith("application/json") else None
    reason = f"the server answered with HTTP {status}"
    failure: RequestError
    if error is not None and (said.is_answer or code not in _DID_NOT_RUN):
        failure = ProtocolError(error["code"], error["message"], error.get("data"), status=status)
    elif code in _DID_NOT_RUN:
        failure = RefusedError(reason, status=status, is_final=True)
    else:
        failure = LostError(reason, status=status)
    if error is not None:
        failure.said = error["message"]
    elif code == httpx2.codes.UNAUTHORIZED:
        failure.said = "the token or the headers of this call are missing, wrong or expired"
    elif said.message not in status and media_type(response).endswith(("json", "plain")):
        failure.said = shortened(said.message)
    exchange.settle(failure)


def _why_lost(response: httpx2.Response, said: _Said, exchange: Exchange) -> str | None:
    """
    Describe why the session of a refused request is to take no more requests, if so.

    If the server does not know the session, the request did not run; if that only seems so, it may have.
    """
    # The protocol's sign of an unknown session is a 404 to a request with a session id (specification 2025-11-25,
    # basic/transports, "Session Management"). The TypeScript SDK, and the Python SDK before 1.23, answer 400 instead:
    # in plain text, or with a JSON-RPC error that has no request id. Other servers have other words and statuses for
    # it, so after any refusal that may be about the session, the next call opens a new one.
    status = response.status_code
    is_refusal = response.is_client_error and status not in _SAY_NOTHING_OF_THE_SESSION
    if not is_refusal and status != httpx2.codes.INTERNAL_SERVER_ERROR:
        return None
    if status == httpx2.codes.NOT_FOUND:
        return DOUBTFUL_SESSION if said.is_answer else UNKNOWN_SESSION
    if status == httpx2.codes.BAD_REQUEST and not said.is_answer and says_unknown_session(said.message):
        return UNKNOWN_SESSION
    if exchange.method not in COMMON_METHODS or "www-authenticate" in response.headers:
        return None
    if not is_refusal and not _MENTIONS_SESSION.search(said.message):
        return None
    return None if said.is_answer and said.code in _OWN_ERRORS else DOUBTFUL_SESSION


def says_unknown_session(message: str) -> bool:
    """
    Return whether a text says that the session is unknown, and nothing else.

    :param message: The text of an error.
    :returns: Whether it does.
    """
    return len(message) <= _LONGEST_MESSAGE and _UNKNOWN_SESSION.fullmatch(message) is not None


def judge_sse(response: httpx2.Response, exchange: Exchange) -> str | None:
    """
    Settle a request over the SSE transport whose message was refused.

    :param response: A response without success.
    :param exchange: The request.
    :returns: Why the session is to take no more requests, as a clause; None if it is.
    """
    if _is_too_busy(response, exchange):
        return None
    if response.is_redirect:
        reason = f"the server redirected a message elsewhere (HTTP {response.status_code})"
        exchange.settle(RefusedError(reason, is_final=True))
        return reason
    status, code = status_of(response), response.status_code
    reason = f"the server refused a message with HTTP {status}"
    if code in _DENIED or code in _SESSION_GONE:
        exchange.settle(RefusedError(reason, status=status, is_final=code in _DENIED))
    else:
        exchange.lose(reason, status=status)
    return reason


def _is_too_busy(response: httpx2.Response, exchange: Exchange) -> bool:
    wait = retry_after(response)
    if wait is not None:
        status = status_of(response)
        exchange.settle(RefusedError(f"{describe_throttle(wait)} (HTTP {status})", status=status, is_final=True))
    return wait is not None


def status_of(response: httpx2.Response) -> str:
    """
    Return the status with its reason phrase.

    :param response: The response.
    :returns: For example "401 Unauthorized".
    """
    return f"{response.status_code} {response.reason_phrase}".strip()


def retry_after(response: httpx2.Response) -> float | None:
    """
    Return when a server that is too busy wants to get the request again, which it has not processed.

    :param response: A response.
    :returns: In how many seconds, for the statuses 429 and 503 with `Retry-After`; otherwise None.
    """
    if response.status_code not in _TOO_BUSY:
        return None
    value = response.headers.get("retry-after", "").strip()
    try:
        is_number = _SECONDS.fullmatch(value) is not None
        seconds = float(value) if is_number else parsedate_to_datetime(value).timestamp() - _server_time(response)
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER)


def _server_time(response: httpx2.Response) -> float:
    # The clock of this machine may be days off.
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        return parsedate_to_datetime(response.headers["date"]).timestamp()
    return time.time()


def is_redirect(response: httpx2.Response) -> bool:
    """
    Return whether a response redirects to somewhere.

    :param response: The response.
    :returns: Whether it is a redirect with a location.
    """
    return response.status_code in REDIRECTS and response.has_redirect_location


def redirect_target(response: httpx2.Response) -> httpx2.URL | None:
    """
    Return where a response redirects to.

    :param response: The response.
    :returns: The URL; None if it is no redirect, or leads to no URL.
    """
    if not is_redirect(response):
        return None
    try:
        target = response.request.url.join(response.headers["location"])
    except httpx2.InvalidURL:
        return None
    return target.copy_with(fragment=None)


def media_type(response: httpx2.Response) -> str:
    """
    Return the content type of a response.

    :param response: The response.
    :returns: In lower case, without parameters; the empty string if there is none.
    """
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def is_event_stream(response: httpx2.Response) -> bool:
    """
    Return whether the body of a response is an event stream.

    :param response: The response.
    :returns: Whether its content type says so.
    """
    return media_type(response) == EVENT_STREAM


def describe_content(response: httpx2.Response) -> str:
    """
    Name the content of a response.

    :param response: The response.
    :returns: For example "content of the type 'text/html'".
    """
    content_type = response.headers.get("content-type", "").lower()
    return f"content of the type '{content_type}'" if content_type else "content of no type"
