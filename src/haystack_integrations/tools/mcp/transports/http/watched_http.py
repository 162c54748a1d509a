# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from enum import Enum, auto
from typing import Any, cast

import httpx2

from haystack_integrations.tools.mcp.client.delivery import CALL_METHOD, CANCEL_METHOD, Delivery, current_delivery
from haystack_integrations.tools.mcp.redaction import redact_url

logger = logging.getLogger(__name__)

# The end of a session is worth a short DELETE request, not a wait for a server that is gone.
_GOODBYE_TIMEOUT = 2.0

# Notifications and answers are acknowledged with an empty 202 at once. Unlike a request, one that is not must not hold
# up the transport, which posts them one after the other.
_NOTIFICATION_TIMEOUT = 5.0

# What stands first of these members tells what a message is.
_IS_NO_REQUEST = re.compile(rb'(?s)(?:(?!"method":).)*?(?:"(?:result|error)":|"method":"notifications/)')

# How long closing waits for cancellations that are under way.
_CANCELLATIONS_END_TIMEOUT = 0.5

# How often a cancellation is redirected; the SDK sees to all other messages.
_REDIRECTS = 3

# A request that meets a connection just as the server closes it for idleness fails, and its fate is unknown. Servers
# close after 5 s (uvicorn, Node), so an older connection is not used again. Each request looks through the idle ones.
_IDLE_EXPIRY = 2.5
_IDLE_CONNECTIONS = 20

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)

_SESSION_HEADER = "mcp-session-id"

# The statuses with which servers over streamable HTTP say that they do not know a session.
_SESSION_STATUSES = (httpx2.codes.NOT_FOUND, httpx2.codes.BAD_REQUEST)

# What a server says about a message that it did not take in, so that the tool did not run: it does not know the
# session, or it denies the message, and would deny it again.
_SESSION_GONE = frozenset({404, 410})
_DENIED = frozenset({401, 403, 405})

# All that servers say that answer 400 instead of 404 when they do not know a session. A tool's own error may speak of
# sessions, too: that it says this and no more is taken for proof that the tool did not run.
_NO_SESSION = re.compile(
    r"""
    (bad\ request\W+)?
    (
        (no\ valid|no|(invalid|unknown|missing|expired)(\ or\ (invalid|unknown|missing|expired))?)
        \ (mcp[- ])?session([ _-]?id)?(\ header)?(\ provided)?
    |
        (mcp[- ])?session([ _-]?id)?([ :'"]+[\w-]+['"]?)?
        \ ((is|was|has)\ )?(not\ found|unknown|invalid|expired|terminated|not\ initialized|required)
    )
    \W*
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST_REFUSAL = 200

# A server whose event stream ends at once, and which asks to be called again without delay, is called this often.
_STREAM_PAUSE = 0.1

_is_ours: ContextVar[bool] = ContextVar("haystack_mcp_is_ours", default=False)


class _SessionState(Enum):
    """
    What an answer says of the session its request was sent in.
    """

    FINE = auto()
    # The request was not taken in.
    UNKNOWN = auto()
    # No use to go on with it; what became of the request is what the answer says.
    DOUBTFUL = auto()


class _UrlRedaction(logging.Filter):
    """
    Takes the secrets out of the URLs of our own requests, which httpx2 logs whole, at level INFO.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if _is_ours.get() and isinstance(record.args, tuple):
            record.args = tuple(redact_url(str(arg)) if isinstance(arg, httpx2.URL) else arg for arg in record.args)
        return True


logging.getLogger("httpx2").addFilter(_UrlRedaction())


class _WatchedByteStream(httpx2.AsyncByteStream):
    """
    The body of an event stream, which notes that it ended although the answer had not come.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, delivery: Delivery) -> None:
        self._stream = stream
        self._delivery = delivery

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._stream)
        try:
            while True:
                with self._delivery.until_given_up() as given_up:
                    chunk = await anext(chunks, None)
                if given_up.cancelled_caught or chunk is None:
                    break
                yield chunk
        except httpx2.TransportError as error:
            self._delivery.stream_fault = f"the connection was cut before the answer came ({_name(error)})"
            raise
        self._delivery.stream_fault = "the server closed the response before the answer came"

    async def aclose(self) -> None:
        await self._stream.aclose()


class _LastByteStream(httpx2.AsyncByteStream):
    """
    The event stream of the SSE transport.

    The SDK logs a broken one with its whole traceback; so it just ends, and the session is lost for a reason.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, lose_session: Callable[[str], None]) -> None:
        self._stream = stream
        self._lose_session = lose_session

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx2.TransportError as error:
            self._lose_session(f"the event stream was cut ({_name(error)})")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _HttpTransport(httpx2.AsyncHTTPTransport):
    """
    httpx2's own, without an exception of httpcore2 that is none of httpx2's.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            if "setsockopt" not in str(error):
                raise
            # It sets the options of a connection that was reset in the moment it was made, when there is no socket.
            msg = "the connection was reset at once"
            raise httpx2.ConnectError(msg, request=request) from error


class WatchedHttpClient(httpx2.AsyncClient):
    """
    The HTTP client of the HTTP transports.

    What fails is noted in the request's `Delivery`. Over streamable HTTP it also becomes a JSON-RPC error answer to
    this very request: a raised exception would end the SDK's transport, and with it every other call of the session.
    """

    def __init__(
        self, *, headers: dict[str, str], timeout: float, one_stream: bool, lose_session: Callable[..., None]
    ) -> None:
        """
        Initialize the WatchedHttpClient.

        :param headers: Headers of every request.
        :param timeout: Seconds that connecting, writing, and waiting for a free connection may take. Reading has no
            limit of its own, because a tool may take its time; the caller's timeout bounds it. Over the SSE transport,
            where messages are only acknowledged, it bounds that, too.
        :param one_stream: Whether all answers come over one event stream (the SSE transport), so that a request that
            cannot be posted means the end of the session.
        :param lose_session: Called with the reason when the session turns out to be gone, and with `calls_may_end=True`
            if others of its calls may still be answered.
        """
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS, keepalive_expiry=_IDLE_EXPIRY
        )
        # httpx looks for the proxies of the environment only if it makes the transports itself.
        direct = None
        if not urllib.request.getproxies():
            direct = _HttpTransport(limits=limits, socket_options=_keepalive_options())
        super().__init__(headers=headers, timeout=httpx2.Timeout(timeout, read=None), limits=limits, transport=direct)
        self._one_stream = one_stream
        self._acknowledged_within = timeout
        self._lose_session = lose_session
        self._cancellations: set[asyncio.Task[None]] = set()
        self._has_streamed = False

    async def send(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        """
        Send a request.

        A cancellation is posted in the background: it is a courtesy, and one that is refused or not answered must
        neither hold up the calls behind it nor end the session of all others.

        :param request: The request.
        :param kwargs: As in httpx2.
        :returns: The response, or one that stands for the failure.
        """
        _is_ours.set(True)
        if request.method == "DELETE":
            return await self._say_goodbye(request, **kwargs)
        if request.method != "POST":
            if self._has_streamed:
                await asyncio.sleep(_STREAM_PAUSE)
            self._has_streamed = True
            response = await super().send(request, **kwargs)
            if self._one_stream and _is_event_stream(response):
                response.stream = _LastByteStream(cast("httpx2.AsyncByteStream", response.stream), self._lose_session)
            return response
        delivery = current_delivery.get() or Delivery()
        await request.aread()  # the request that follows a redirect has not been read yet
        head = request.content[:100]
        if _IS_NO_REQUEST.match(head):
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(_NOTIFICATION_TIMEOUT).as_dict()}
        elif self._one_stream:
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(self._acknowledged_within).as_dict()}
        if f'"method":"{CANCEL_METHOD}"'.encode() in head:
            task = asyncio.create_task(self._post_cancellation(request, **{**kwargs, "stream": False}))
            self._cancellations.add(task)
            task.add_done_callback(self._cancellations.discard)
            return httpx2.Response(httpx2.codes.ACCEPTED, request=request)
        try:
            with delivery.until_given_up() as given_up:
                response = await super().send(request, **kwargs)
                # Here, and not where the SDK reads it, a response that breaks off ends nothing but its call.
                has_result = response.status_code < httpx2.codes.MULTIPLE_CHOICES and not self._one_stream
                if _has_type(response, "application/json") or not (has_result or _is_event_stream(response)):
                    await response.aread()
        except Exception as error:  # whatever it is: raised, it would end the session
            return self._not_answered(request, delivery, error)
        if given_up.cancelled_caught:
            # Nobody reads it, but over one stream a refusal would end the session.
            if self._one_stream:
                return httpx2.Response(httpx2.codes.ACCEPTED, request=request)
            return _refusal(request, "the caller gave up")
        return await self._inspect(request, delivery, response)

    async def _post_cancellation(self, request: httpx2.Request, **kwargs: Any) -> None:
        try:
            for _ in range(_REDIRECTS):
                response = await super().send(request, **kwargs)
                following = response.next_request
                if following is None or following.method != "POST" or _origin(following) != _origin(request):
                    return
                request = following
        except Exception as error:
            logger.debug("A cancellation did not reach the server: %s", _name(error))

    async def __aexit__(self, *exc_info: Any) -> None:
        """
        Close the client.
        """
        try:
            if self._cancellations:
                await asyncio.wait(self._cancellations, timeout=_CANCELLATIONS_END_TIMEOUT)
        finally:
            for task in list(self._cancellations):
                task.cancel()
            await super().__aexit__(*exc_info)

    def _not_answered(self, request: httpx2.Request, delivery: Delivery, error: Exception) -> httpx2.Response:
        if isinstance(error, _NOT_SENT):
            _note_refusal(request, delivery)
            delivery.fault = f"no connection could be made ({_name(error)}: {error})"
        else:
            delivery.fault = f"the connection was cut before the answer came ({_name(error)})"
        if self._one_stream:
            self._lose_session(delivery.fault)
        return _refusal(request, delivery.fault)

    async def _inspect(self, request: httpx2.Request, delivery: Delivery, response: httpx2.Response) -> httpx2.Response:
        if response.status_code < httpx2.codes.BAD_REQUEST:
            if _is_event_stream(response):
                response.stream = _WatchedByteStream(cast("httpx2.AsyncByteStream", response.stream), delivery)
            return response
        delivery.status = f"{response.status_code} {response.reason_phrase}".strip()
        if self._one_stream:
            fault = f"the server refused a message with HTTP {delivery.status}"
            if response.status_code in _SESSION_GONE | _DENIED:
                _note_refusal(request, delivery)
            delivery.denied = response.status_code in _DENIED
            delivery.fault = fault
            self._lose_session(fault)
        else:
            state = _session_state(request, response)
            if state is _SessionState.UNKNOWN:
                _note_refusal(request, delivery)
                delivery.fault = "the server does not know the session any more"
            if state is not _SessionState.FINE:
                # Other calls will be told the same; ending the session under them would leave their fate open.
                self._lose_session(delivery.fault or "the server seems to have lost it", calls_may_end=True)
        return response

    async def _say_goodbye(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        request.extensions = {**request.extensions, "timeout": httpx2.Timeout(_GOODBYE_TIMEOUT).as_dict()}
        try:
            response = await super().send(request, **kwargs)
        except httpx2.TransportError:
            return httpx2.Response(httpx2.codes.NO_CONTENT, request=request)
        if response.status_code == httpx2.codes.NOT_FOUND:  # it is gone already, which is what was asked for
            await response.aclose()
            return httpx2.Response(httpx2.codes.NO_CONTENT, request=request)
        return response


def _has_type(response: httpx2.Response, media_type: str) -> bool:
    found: bool = response.headers.get("content-type", "").lower().startswith(media_type)
    return found


def _is_event_stream(response: httpx2.Response) -> bool:
    return _has_type(response, "text/event-stream")


def _session_state(request: httpx2.Request, response: httpx2.Response) -> _SessionState:
    # 404 to a request with a session id is the protocol's sign (specification 2025-11-25, basic/transports, "Session
    # Management"). Some servers answer 400 instead: the TypeScript SDK and the Python SDK before 1.23, with an error
    # that belongs to no request, or in plain text. An error that belongs to the request was made by who took it in.
    if _SESSION_HEADER not in request.headers or response.status_code not in _SESSION_STATUSES:
        return _SessionState.FINE
    text, answers_request = _refusal_text(request, response)
    if response.status_code == httpx2.codes.NOT_FOUND:
        return _SessionState.DOUBTFUL if answers_request else _SessionState.UNKNOWN
    if answers_request or "session" not in text.lower():
        return _SessionState.FINE
    is_said = len(text) <= _LONGEST_REFUSAL and _NO_SESSION.fullmatch(text)
    return _SessionState.UNKNOWN if is_said else _SessionState.DOUBTFUL


def _refusal_text(request: httpx2.Request, response: httpx2.Response) -> tuple[str, bool]:
    # What an error says, and whether it belongs to the request.
    if _is_event_stream(response):
        return "", False
    text = response.content.decode(errors="replace").strip()
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return text, False
    error = answer.get("error", answer)
    message = error.get("message", text) if isinstance(error, dict) else error
    answers_request = "id" in answer and str(answer["id"]) == str(json.loads(request.content).get("id"))
    return (message.strip() if isinstance(message, str) else text), answers_request


def _note_refusal(request: httpx2.Request, delivery: Delivery) -> None:
    # A call that has run may be followed by other requests in its name, e.g. for the schema of its result.
    if json.loads(request.content).get("method") == CALL_METHOD:
        delivery.refused += 1


def _refusal(request: httpx2.Request, message: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}
    return httpx2.Response(httpx2.codes.BAD_GATEWAY, request=request, json=error)


def _origin(request: httpx2.Request) -> tuple[str, str, int | None]:
    return request.url.scheme, request.url.host, request.url.port


def _name(error: BaseException) -> str:
    return type(error).__name__


def _keepalive_options() -> list[tuple[int, int, int]]:
    # A peer that vanished without a word is noticed after two minutes, although reading has no timeout.
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
