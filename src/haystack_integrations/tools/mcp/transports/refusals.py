# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Derives the fate of a request and of its session from an HTTP response that is not an MCP answer.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from haystack_integrations.tools.mcp.convert.odd_messages import read_messages
from haystack_integrations.tools.mcp.convert.tool_schemas import shortened
from haystack_integrations.tools.mcp.protocol.channel import Exchange, describe_throttle
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
_STICKY_SESSIONS_HINT = (
    "each session seems to be known to one worker of several only; use sticky sessions, or a server without sessions"
)

# The content type of answers that are streamed.
EVENT_STREAM = "text/event-stream"

# The properties of httpx2's responses are slower than these ranges.
SUCCESSES, REDIRECTS = range(200, 300), range(300, 400)

# The status of a message that is not answered.
ACCEPTED = 202

# Statuses of a server or proxy that has looked only at the headers of a request.
_NOT_RUN_STATUSES = frozenset({401, 403, 404, 405, 406, 407, 410, 413, 415, 421, 429, 431})

# Over SSE, a message refused with one of these was not processed: the session is gone, or access is denied.
_SESSION_GONE_STATUSES = frozenset({404, 410})
_DENIED_STATUSES = frozenset({401, 403, 405})

# With one of these and `Retry-After`, a server refuses a request before it processes anything.
_BUSY_STATUSES = frozenset({429, 503})

# The longest `Retry-After` that is respected, in seconds.
_MAX_RETRY_AFTER = 86_400.0

# HTTP does not allow fractions here, but some rate limiters send them.
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
        ((the|your)\ (provided\ )?)?(mcp[- ])?session([ _-]?id)?([ :'"]+[\w-]+['"]?)?
        (
            \ (or\ )?((is|was|has|has\ been)\ )?
            (not\ found|unknown|invalid|expired|missing|terminated|not\ initialized|required)
        ){1,2}
    )
    (\W+(please\ )?re-?initiali[sz]e(\ (your|the)\ (connection|session))?)?
    \W*
    """,
    re.IGNORECASE | re.VERBOSE,
)

# Longer texts are not matched: they are pages or logs, not one of the phrasings.
_MAX_MESSAGE_LENGTH = 200

# Any refusal may mean that the session is lost, except with these statuses: they are about the size, the time or the
# number of requests.
_STATUSES_NOT_ABOUT_SESSION = frozenset({408, 413, 414, 429, 431})
# The methods whose refusal may mean that. Notifications and unknown requests are refused for other reasons.
COMMON_METHODS = frozenset(
    "tools/call tools/list resources/read resources/list resources/templates/list prompts/get prompts/list".split()
)
# Errors of a server that processed the request.
_ERRORS_AFTER_PROCESSING = (METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR)
_MENTIONS_SESSION = re.compile("session|initiali[sz]", re.IGNORECASE)


@dataclass(frozen=True)
class _ErrorBody:
    """
    The content of an error response's body.

    :param message: The message of its error in any known form, or else the whole body.
    :param code: The code of its error; None without a code.
    :param error: The JSON-RPC error in it, if there is one.
    :param is_answer: Whether it has the id of the request, so that it comes from a server that processed the request.
    """

    message: str
    code: Any
    error: dict[str, Any] | None
    is_answer: bool

    @classmethod
    def of(cls, body: bytes, exchange: Exchange) -> _ErrorBody:
        found = read_messages(body)
        errors = [frame.get("error") for frame in found if isinstance(frame, dict)]
        # In a request, `error` may be anything.
        readable = (each for each in errors if isinstance(each, dict) and {"code", "message"} <= each.keys())
        ids = [frame.get("id") if isinstance(frame, dict) else frame.id for frame in found]
        return cls(*_message_and_code_in(body), next(readable, None), exchange.id in ids)


def _message_and_code_in(body: bytes) -> tuple[str, Any]:
    text = body.decode(errors="replace").strip()
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return text, None
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    message, code = (error.get("message"), error.get("code")) if isinstance(error, dict) else (error, None)
    return (message.strip() if isinstance(message, str) else text), code


def settle_refusal(
    response: httpx2.Response, body: bytes, exchange: Exchange, *, has_session: bool
) -> tuple[str | None, bool]:
    """
    Settle a request over streamable HTTP whose response is not an MCP answer.

    :param response: The response.
    :param body: Its body if it has an error status; empty for an event stream.
    :param exchange: The request.
    :param has_session: Whether it was sent in a session.
    :returns: Why the session should take no more requests, as a clause, or None if it can go on; and whether the server
        failed, perhaps at this request only.
    """
    if not response.is_error:  # it may come from a proxy that has ended the session
        reason = _settle_unanswered(response, exchange)
        return (reason if has_session and exchange.method in COMMON_METHODS else None), False
    if _is_too_busy(response, exchange):
        return None, False
    error_body = _ErrorBody.of(body, exchange)
    loss_reason = _session_loss_reason(response, error_body, exchange) if has_session else None
    if loss_reason is UNKNOWN_SESSION:
        refusal = RefusedError(loss_reason, status=status_of(response))
        refusal.server_text = _STICKY_SESSIONS_HINT  # seen only if a new session is also unknown
        exchange.settle(refusal)
    else:
        _settle_refused(response, error_body, exchange)
    # A server that is only slow may still know the session.
    is_failure = response.is_server_error and response.status_code != httpx2.codes.GATEWAY_TIMEOUT
    return loss_reason, is_failure and not error_body.is_answer


def _settle_unanswered(response: httpx2.Response, exchange: Exchange) -> str:
    if response.status_code in REDIRECTS:
        reason = _describe_redirect(response)
        exchange.settle(RefusedError(reason, is_final=True))
    else:
        content = describe_content(response)
        reason = f"the server answered a request with {status_of(response)} and {content}, which is not an MCP answer"
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


def _settle_refused(response: httpx2.Response, error_body: _ErrorBody, exchange: Exchange) -> None:
    status, code, kind = status_of(response), response.status_code, media_type(response)
    # Older releases of the TypeScript SDK send errors without a content type.
    error = error_body.error if not kind or kind.startswith("application/json") else None
    reason = f"the server answered with HTTP {status}"
    failure: RequestError
    if error is not None and (error_body.is_answer or code not in _NOT_RUN_STATUSES):
        failure = ProtocolError(error["code"], error["message"], error.get("data"), status=status)
    elif code in _NOT_RUN_STATUSES:
        failure = RefusedError(reason, status=status, is_final=True)
    else:
        failure = LostError(reason, status=status)
    if error is not None:
        failure.server_text = error["message"]
    elif code == httpx2.codes.UNAUTHORIZED:
        failure.server_text = "the token or the headers of this call are missing, wrong or expired"
    elif error_body.message not in status and kind.endswith(("json", "plain")):
        failure.server_text = shortened(error_body.message)
    exchange.settle(failure)


def _session_loss_reason(response: httpx2.Response, error_body: _ErrorBody, exchange: Exchange) -> str | None:
    """
    Describe why the session of a refused request should take no more requests; None if it can go on.

    If the server has forgotten the session, the request did not run; if the session is only in doubt, it may have run.
    """
    # The protocol's sign of an unknown session is a 404 to a request with a session id (specification 2025-11-25,
    # basic/transports, "Session Management"). The TypeScript SDK, and the Python SDK before 1.23, answer 400 instead:
    # in plain text, or with a JSON-RPC error that has no request id. Other servers use other words and statuses, so
    # after any refusal that may be about the session, the next call opens a new one.
    status = response.status_code
    is_refusal = response.is_client_error and status not in _STATUSES_NOT_ABOUT_SESSION
    if not is_refusal and status != httpx2.codes.INTERNAL_SERVER_ERROR:
        return None
    if status == httpx2.codes.NOT_FOUND:
        return DOUBTFUL_SESSION if error_body.is_answer else UNKNOWN_SESSION
    if status == httpx2.codes.BAD_REQUEST and not error_body.is_answer and says_unknown_session(error_body.message):
        return UNKNOWN_SESSION
    if exchange.method not in COMMON_METHODS or "www-authenticate" in response.headers:
        return None
    if not is_refusal and not _MENTIONS_SESSION.search(error_body.message):
        return None
    return None if error_body.is_answer and error_body.code in _ERRORS_AFTER_PROCESSING else DOUBTFUL_SESSION


def is_session_unknown(response: httpx2.Response, body: bytes) -> bool:
    """
    Return whether a server that had opened a stream for a session does not know the session any more.

    :param response: Its response to the request for the stream.
    :param body: The body.
    :returns: Whether the stream is refused for that reason.
    """
    return response.status_code == httpx2.codes.NOT_FOUND or (
        response.status_code == httpx2.codes.BAD_REQUEST and says_unknown_session(_message_and_code_in(body)[0])
    )


def says_unknown_session(message: str) -> bool:
    """
    Return whether an error message says only that the session is unknown.

    :param message: The message.
    :returns: Whether the whole message is a known phrasing of that.
    """
    return len(message) <= _MAX_MESSAGE_LENGTH and _UNKNOWN_SESSION.fullmatch(message) is not None


def settle_sse_refusal(response: httpx2.Response, exchange: Exchange) -> str | None:
    """
    Settle a request over the SSE transport whose message was refused.

    :param response: A response without a success status.
    :param exchange: The request.
    :returns: Why the session should take no more requests, as a clause; None if it can go on.
    """
    if _is_too_busy(response, exchange):
        return None
    if response.is_redirect:
        reason = f"the server redirected a message elsewhere (HTTP {response.status_code})"
        exchange.settle(RefusedError(reason, is_final=True))
        return reason
    status, code = status_of(response), response.status_code
    reason = f"the server refused a message with HTTP {status}"
    if code in _DENIED_STATUSES or code in _SESSION_GONE_STATUSES:
        exchange.settle(RefusedError(reason, status=status, is_final=code in _DENIED_STATUSES))
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
    Return the delay after which a server that is too busy wants the request again. It has not processed the request.

    :param response: A response.
    :returns: Seconds, for the statuses 429 and 503 with `Retry-After`; otherwise None.
    """
    if response.status_code not in _BUSY_STATUSES:
        return None
    value = response.headers.get("retry-after", "").strip()
    try:
        is_number = _SECONDS.fullmatch(value) is not None
        seconds = float(value) if is_number else parsedate_to_datetime(value).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER)


def is_redirect(response: httpx2.Response) -> bool:
    """
    Return whether a response is a redirect.

    :param response: The response.
    :returns: Whether it is a redirect with a location.
    """
    return response.status_code in REDIRECTS and response.has_redirect_location


def redirect_target(response: httpx2.Response) -> httpx2.URL | None:
    """
    Return the target of a redirect.

    :param response: The response.
    :returns: The URL; None if the response is not a redirect, or its location is not a URL.
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
    :returns: In lower case, without parameters; the empty string without a content type.
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
    Describe the content of a response.

    :param response: The response.
    :returns: For example "content of the type 'text/html'".
    """
    content_type = response.headers.get("content-type", "").lower()
    return f"content of the type '{content_type}'" if content_type else "content of no type"
