# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache
from typing import Any, cast

import httpx2

from haystack_integrations.tools.mcp.client.messages import too_large
from haystack_integrations.tools.mcp.client.request_outcome import (
    CANCEL_METHOD,
    RequestOutcome,
    answered_request,
    current_outcome,
)
from haystack_integrations.tools.mcp.errors import NO_DESCRIPTORS, MCPAuthorizationError, lacks_descriptors
from haystack_integrations.tools.mcp.protocol.life import SessionState
from haystack_integrations.tools.mcp.protocol.rest import LONGEST_REST_OF_OTHERS, ServerRest
from haystack_integrations.tools.mcp.request_context import current_identity
from haystack_integrations.tools.mcp.transports.fields import DEFAULT_MAX_MESSAGE_SIZE
from haystack_integrations.tools.mcp.transports.http.options import Route, client_options
from haystack_integrations.tools.mcp.transports.http.refusals import (
    SessionFate,
    has_content_type,
    is_event_stream,
    is_tool_call,
    judge_sse,
    judge_streamable_http,
    retry_after,
)

logger: logging.Logger = logging.getLogger(__name__)

# Ending a session is worth a short DELETE request, but not a wait for a server that is gone.
_DELETE_TIMEOUT = 2.0

# Servers acknowledge notifications and responses at once, with an empty 202. The SDK posts them one after the other, so
# one that is never acknowledged must not block the rest.
_NOTIFICATION_TIMEOUT = 5.0

# The first of these members tells what kind of message it is.
_IS_NOT_A_REQUEST = re.compile(rb'(?s)(?:(?!"method":).)*?(?:"(?:result|error)":|"method":"notifications/)')

# The SDK writes the id before the method, and counts its requests.
_REQUEST_ID = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+),')

# How long closing the client waits for pending cancellations.
_PENDING_CANCELLATIONS_TIMEOUT = 0.5

# How many redirects a cancellation follows; the SDK follows those of all other messages.
_MAX_REDIRECTS = 3

# The request was not sent.
CONNECT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
NO_CONNECTION = "no connection could be made"

# The pause before an event stream is opened again: a server may end it at once and ask for a retry without delay.
_REOPEN_PAUSE = 0.1


# The first pause if a server that is too busy wants the request again at once, in seconds.
_SHORTEST_REST = 0.1

# They describe the body before it was decompressed.
_BODY_HEADERS = {b"content-encoding", b"content-length", b"transfer-encoding"}


# For a text with one of these characters, Python takes four bytes for each of its characters.
_WIDE = re.compile("[\U00010000-\U0010ffff]")


class _TooLargeError(Exception):
    """A response is larger than the limit."""


class _ResponseEventStream(httpx2.AsyncByteStream):
    """
    The event stream in answer to one request; records when it ends before the answer.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, outcome: RequestOutcome, heard: Callable[[], None]) -> None:
        self._stream = stream
        self._outcome = outcome
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._stream)
        try:
            while True:
                with self._outcome.until_given_up() as given_up:
                    chunk = await anext(chunks, None)
                if given_up.cancelled_caught or chunk is None:
                    break
                self._heard()  # servers keep a stream alive with comments
                yield chunk
        except httpx2.TransportError as error:
            self._outcome.stream_fault = f"the connection was cut before the answer came ({_name(error)})"
            raise
        # Counts only if the SDK then fails the call, which it does if the answer had not come.
        self._outcome.stream_fault = "the server closed the response before the answer came"

    async def aclose(self) -> None:
        await self._stream.aclose()


class _SessionEventStream(httpx2.AsyncByteStream):
    """
    The one event stream of an SSE session; it ends without an exception, which the SDK would log with a traceback.
    """

    def __init__(
        self, stream: httpx2.AsyncByteStream, lose_session: Callable[[str], None], heard: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._lose_session = lose_session
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                self._heard()
                yield chunk
        except httpx2.TransportError as error:
            self._lose_session(f"the event stream was cut ({_name(error)})")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedBody(httpx2.AsyncByteStream):
    """
    A body that is not compressed, up to a limit.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, heard: Callable[[], None]) -> None:
        self._stream = stream
        self._limit = limit
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for chunk in self._stream:
            self._heard()
            left -= len(chunk)
            if left < 0:
                raise _TooLargeError(too_large(self._limit))
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class WatchedHttpClient(httpx2.AsyncClient):
    """
    The HTTP client of a session, which records the fate of each request in its `RequestOutcome`.

    A POST request that fails is answered with an HTTP error that carries a JSON-RPC error. An exception would end the
    SDK's transport, and with it every other call of the session.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        timeout: float | Mapping[str, float | None],
        over_sse: bool,
        lose_session: Callable[..., None],
        heard: Callable[[], None] = lambda: None,
        max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
        route: Route | None = None,
        auth: httpx2.Auth | None = None,
        time_left: Callable[[asyncio.Task[Any]], float | None] = lambda _: None,
        rest: ServerRest | None = None,
    ) -> None:
        """
        Initialize the WatchedHttpClient.

        :param headers: Headers of every request.
        :param timeout: Seconds that connecting, writing, and waiting for a free connection may take. Reading has no
            limit, because a tool may take its time and the caller has a timeout; over the SSE transport, where messages
            are only acknowledged, reading the acknowledgement has this limit, too. Or the seconds for `connect`,
            `write`, `pool`, and `read`, which is for what is posted: the event streams of a session are idle by nature.
        :param over_sse: Whether the transport is SSE: all answers come over one event stream, so a message that cannot
            be posted means the end of the session.
        :param lose_session: Called with the reason when the session turns out to be lost, and with
            `SessionState.DRAINING` if its other calls may still be answered.
        :param heard: Called when something came from the server.
        :param max_message_size: How many bytes the body of a response may have after it was decompressed, unless it is
            an event stream, whose reader bounds its events.
        :param route: Certificates, proxy and transport.
        :param auth: Authenticates the requests.
        :param time_left: Tells how many seconds the task of a call has left; None without a limit.
        :param rest: For how long the server wants to get no requests, as other sessions know it, too.
        """
        phases = httpx2.Timeout(**timeout) if isinstance(timeout, Mapping) else httpx2.Timeout(timeout, read=None)
        without_read = httpx2.Timeout(**{**phases.as_dict(), "read": None})
        super().__init__(**client_options(headers, without_read, route), auth=auth)
        self._over_sse = over_sse
        self._max_message_size = max_message_size
        if over_sse and phases.read is None:
            phases.read = phases.connect
        self._post_timeout = phases if phases.read is not None else None
        self._lose_session = lose_session
        self._heard = heard
        self._time_left = time_left
        self._rest = rest or ServerRest()
        self._cancellations: set[asyncio.Task[None]] = set()
        self._has_streamed = False

    def build_request(self, method: str, url: httpx2.URL | str, **kwargs: Any) -> httpx2.Request:
        """
        Build a request.

        :param method: As in httpx2.
        :param url: As in httpx2.
        :param kwargs: As in httpx2.
        :returns: The request.
        """
        return super().build_request(method, _parsed(url), **kwargs)

    async def send(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        """
        Send a request.

        A cancellation is posted in the background: one that is refused or never acknowledged must neither delay the
        calls behind it nor end the session.

        :param request: The request.
        :param kwargs: As in httpx2.
        :returns: The response, or one that describes the failure.
        """
        identity = current_identity.get()
        if identity is not None:
            request.headers.update(identity.headers)
        if request.method == "DELETE":
            return await self._delete_session(request, **kwargs)
        if request.method != "POST":
            return await self._open_event_stream(request, **kwargs)
        await request.aread()  # httpx2 does not read the body of a request that follows a redirect
        head = request.content[:100]
        if _IS_NOT_A_REQUEST.match(head):
            _set_timeout(request, _NOTIFICATION_TIMEOUT)
        elif self._post_timeout is not None:
            _set_timeout(request, self._post_timeout)
        if f'"method":"{CANCEL_METHOD}"'.encode() in head:
            task = asyncio.create_task(self._post_cancellation(request, **{**kwargs, "stream": True}))
            self._cancellations.add(task)
            task.add_done_callback(self._cancellations.discard)
            return httpx2.Response(httpx2.codes.ACCEPTED, request=request)
        return await self._post(request, head, **kwargs)

    async def __aexit__(self, *exc_info: Any) -> None:
        """
        Close the client.
        """
        try:
            if self._cancellations:
                await asyncio.wait(self._cancellations, timeout=_PENDING_CANCELLATIONS_TIMEOUT)
        finally:
            for task in list(self._cancellations):
                task.cancel()
            await super().__aexit__(*exc_info)

    async def _delete_session(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        _set_timeout(request, _DELETE_TIMEOUT)
        try:
            response = await self._read(await super().send(request, **kwargs))
        except (httpx2.RequestError, _TooLargeError, MCPAuthorizationError):
            return httpx2.Response(httpx2.codes.NO_CONTENT, request=request)
        if response.status_code == httpx2.codes.NOT_FOUND:  # the session is gone already, which is what was asked for
            return httpx2.Response(httpx2.codes.NO_CONTENT, request=request)
        return response

    async def _read(self, response: httpx2.Response) -> httpx2.Response:
        """
        Read a body as it is decompressed, in pieces of 1 MiB at most: a few bytes may become gigabytes.
        """
        if "content-encoding" not in response.headers:  # without a copy, which costs as much as the rest of this class
            stream = cast("httpx2.AsyncByteStream", response.stream)
            response.stream = _BoundedBody(stream, self._max_message_size, self._heard)
            try:
                await response.aread()
            finally:
                await response.aclose()
            return response
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                self._heard()
                body += chunk
                if len(body) > self._max_message_size:
                    raise _TooLargeError(too_large(self._max_message_size))
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _BODY_HEADERS]
        copy = httpx2.Response(
            response.status_code,
            headers=headers,
            content=bytes(body),
            request=response.request,
            extensions=response.extensions,
        )
        copy.next_request = response.next_request
        return copy

    async def _open_event_stream(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        if self._has_streamed:
            await asyncio.sleep(_REOPEN_PAUSE)
        self._has_streamed = True
        try:
            response = await super().send(request, **kwargs)
        except MCPAuthorizationError as error:
            outcome = current_outcome.get()
            if outcome is not None:
                _record_unauthorized(outcome, error)
            return httpx2.Response(httpx2.codes.UNAUTHORIZED, request=request)
        wait = retry_after(response) if self._over_sse else None
        if wait is not None:
            self._rest.until = time.monotonic() + wait
        if self._over_sse and is_event_stream(response):
            stream = cast("httpx2.AsyncByteStream", response.stream)
            response.stream = _SessionEventStream(stream, self._lose_session, self._heard)
            _keep_narrow(response)
        return response

    async def _post_cancellation(self, request: httpx2.Request, **kwargs: Any) -> None:
        try:
            for _ in range(_MAX_REDIRECTS):
                response = await super().send(request, **kwargs)
                await response.aclose()
                following = response.next_request
                if following is None or following.method != "POST" or _origin(following) != _origin(request):
                    return
                request = following
        except Exception as error:
            logger.debug("A cancellation did not reach the server: %s", _name(error))

    async def _post(self, request: httpx2.Request, head: bytes, **kwargs: Any) -> httpx2.Response:
        outcome = current_outcome.get() or RequestOutcome()
        if outcome.unauthorized:  # what failed once in this operation is not tried again, e.g. after another handshake
            _record_never_ran(request, outcome)
            return _error_response(request, outcome.fault or "")
        attempt = 0
        try:
            with outcome.until_given_up() as given_up:
                while True:
                    rest = self._rest.seconds
                    # Over SSE, nothing tells the others that they are refused, and they wait.
                    can_refuse = not self._over_sse or (outcome.owner is not None and is_tool_call(request))
                    if can_refuse and not self._is_in_time(rest, outcome):
                        return self._refuse_to_send(request, outcome, rest)
                    await self._let_rest()
                    response = await super().send(request, **kwargs)
                    self._heard()
                    wait = retry_after(response)
                    if wait is None:
                        break
                    # For all requests, whether this one may wait or not.
                    self._rest.until = time.monotonic() + max(wait, min(_SHORTEST_REST * 2**attempt, 1.0))
                    if not self._may_wait(wait, outcome, response):
                        break
                    await response.aclose()
                    attempt += 1
                # Read here, because a connection that is cut while the SDK reads the body ends the session.
                has_result = response.status_code < httpx2.codes.MULTIPLE_CHOICES and not self._over_sse
                is_json = has_content_type(response, "application/json")
                if is_json or not (has_result or is_event_stream(response)):
                    response = await self._read(response)
                answered_request.set(_request_id(head) if is_json and has_result else None)
        except Exception as error:  # raised, any exception would end the session
            return self._handle_failure(request, outcome, error)
        if given_up.cancelled_caught:
            # Nobody reads the response, but over SSE an error status would end the session.
            if self._over_sse:
                return httpx2.Response(httpx2.codes.ACCEPTED, request=request)
            return _error_response(request, "the caller gave up")
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            if not self._handle_refusal(request, outcome, response):
                return httpx2.Response(httpx2.codes.ACCEPTED, request=request)
        elif is_event_stream(response):
            stream = cast("httpx2.AsyncByteStream", response.stream)
            response.stream = _ResponseEventStream(stream, outcome, self._heard)
            _keep_narrow(response)
        return response

    async def _let_rest(self) -> None:
        # Several requests may wait; whoever is refused again sets a later time.
        while (seconds := self._rest.seconds) > 0:
            await asyncio.sleep(seconds)

    def _is_in_time(self, seconds: float, outcome: RequestOutcome) -> bool:
        owner = outcome.owner
        left = self._time_left(owner) if owner is not None else LONGEST_REST_OF_OTHERS
        return left is None or seconds <= 0 or seconds < left

    def _refuse_to_send(self, request: httpx2.Request, outcome: RequestOutcome, seconds: float) -> httpx2.Response:
        _record_never_ran(request, outcome)
        outcome.denied = True
        because = f" (HTTP {outcome.status})" if outcome.status else ""  # of the request before
        outcome.fault = f"the server wants no requests for {seconds:.3g} s{because}"
        if self._over_sse and outcome.end_call():
            return httpx2.Response(httpx2.codes.ACCEPTED, request=request)
        return _error_response(request, outcome.fault)

    def _may_wait(self, seconds: float, outcome: RequestOutcome, response: httpx2.Response) -> bool:
        is_in_time = self._is_in_time(seconds, outcome)
        logger.log(
            logging.INFO if is_in_time else logging.WARNING,
            "%s answers with HTTP %s: %s in %.3g s",
            response.request.url.host,
            response.status_code,
            "the request is sent again" if is_in_time else "nobody waits for it to take requests again",
            seconds,
        )
        return is_in_time

    def _handle_failure(self, request: httpx2.Request, outcome: RequestOutcome, error: Exception) -> httpx2.Response:
        if isinstance(error, CONNECT_ERRORS):
            _record_never_ran(request, outcome)
            outcome.fault = NO_DESCRIPTORS if lacks_descriptors(error) else describe_no_connection(error)
        elif isinstance(error, MCPAuthorizationError):
            _record_never_ran(request, outcome)
            _record_unauthorized(outcome, error)
        elif isinstance(error, _TooLargeError):
            outcome.fault = str(error)
        else:
            outcome.fault = f"the connection was cut before the answer came ({_name(error)})"
        if self._over_sse:
            self._lose_session(outcome.fault)
        return _error_response(request, outcome.fault or "")

    def _handle_refusal(self, request: httpx2.Request, outcome: RequestOutcome, response: httpx2.Response) -> bool:
        # Whether the transport has to know of it.
        outcome.status = f"{response.status_code} {response.reason_phrase}".strip()
        wait = retry_after(response)
        if wait is not None:
            _record_never_ran(request, outcome)
            outcome.denied = True
            outcome.fault = f"the server wants no requests for {wait:.3g} s (HTTP {outcome.status})"
            if self._over_sse and is_tool_call(request) and outcome.end_call():
                return False  # nobody else is affected
            if self._over_sse:
                self._lose_session(outcome.fault)
            return True
        verdict = judge_sse(response) if self._over_sse else judge_streamable_http(request, response)
        if verdict.never_ran:
            _record_never_ran(request, outcome)
        outcome.denied = verdict.denied
        if self._over_sse:
            outcome.fault = f"the server refused a message with HTTP {outcome.status}"
            self._lose_session(outcome.fault)
            return True
        if verdict.session is SessionFate.LOST:
            outcome.fault = "the server does not know the session any more"
        if verdict.session is not SessionFate.ALIVE:
            # Pending calls will get the same response; ending the session now would leave their fate unknown.
            self._lose_session(outcome.fault or "the server seems to have lost the session", SessionState.DRAINING)
        return True


@lru_cache(maxsize=128)
def _parsed(url: httpx2.URL | str) -> httpx2.URL:
    # The SDK gives the same text with every message, and parsing it takes longer than all that this package does.
    return httpx2.URL(url)


def describe_no_connection(error: Exception) -> str:
    """
    Say that a request was not sent.

    :param error: One of `CONNECT_ERRORS`.
    :returns: A clause.
    """
    return f"{NO_CONNECTION} ({_name(error)}: {error})"


def _request_id(head: bytes) -> int | None:
    match = _REQUEST_ID.match(head)
    return int(match[1]) if match else None


def _set_timeout(request: httpx2.Request, timeout: float | httpx2.Timeout) -> None:
    request.extensions = {**request.extensions, "timeout": httpx2.Timeout(timeout).as_dict()}


def _record_never_ran(request: httpx2.Request, outcome: RequestOutcome) -> None:
    if is_tool_call(request):
        outcome.refused += 1


def _record_unauthorized(outcome: RequestOutcome, error: MCPAuthorizationError) -> None:
    # The SDK puts the text on its span, where nobody redacts it any more.
    outcome.fault = outcome.redactor.text(str(error)) if outcome.redactor is not None else str(error)
    outcome.unauthorized = outcome.denied = True


def _error_response(request: httpx2.Request, message: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}
    return httpx2.Response(httpx2.codes.BAD_GATEWAY, request=request, json=error)


def _origin(request: httpx2.Request) -> tuple[str, str, int | None]:
    return request.url.scheme, request.url.host, request.url.port


def _keep_narrow(response: httpx2.Response) -> None:
    """
    Let the text of an event stream, which is JSON, have escapes in place of its widest characters, such as emoji.

    The decoder of event streams copies a text four times without a pause; one of 16 MB with a single emoji would hold
    up all sessions for 200 ms.
    """
    read_text = response.aiter_text

    async def read_narrow_text(chunk_size: int | None = None) -> AsyncIterator[str]:
        async for text in read_text(chunk_size):
            yield text if text.isascii() else _WIDE.sub(lambda found: json.dumps(found[0])[1:-1], text)

    response.aiter_text = read_narrow_text  # type: ignore[method-assign]


def _name(error: BaseException) -> str:
    return type(error).__name__
