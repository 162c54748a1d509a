# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Sends HTTP requests over a transport of httpx2, and derives the fate of the MCP request that they carry.

Authentication, redirects within the origin and cookies are handled here instead of in `httpx2.AsyncClient`, because
here it is known when a byte can have left. So is the wait for a server that is too busy.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, cast

import anyio
import httpx2

from haystack_integrations.tools.mcp.convert.odd_messages import describe_size_limit
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.protocol.channel import Exchange, SessionLife, Transport, describe_throttle
from haystack_integrations.tools.mcp.protocol.request_errors import Fate, RefusedError, UnreadableError
from haystack_integrations.tools.mcp.protocol.server_info import DEFAULT_MAX_MESSAGE_SIZE
from haystack_integrations.tools.mcp.request_context import Identity, current_identity
from haystack_integrations.tools.mcp.transports.http_route import redacted_logs
from haystack_integrations.tools.mcp.transports.refusals import (
    is_event_stream,
    is_redirect,
    redirect_target,
    retry_after,
    status_of,
)

logger: logging.Logger = logging.getLogger(__name__)

# These errors prove that nothing was sent.
CONNECT_ERRORS = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)

_MAX_REDIRECTS = 10

# The maximum number of identities whose cookies are kept separately.
_MAX_COOKIE_JARS = 1000

# The shortest pause if a server is too busy, in seconds: some want the request again at once.
_MIN_THROTTLE = 0.25

# The share of a request's time that connecting may take. If connecting fails before the request does, nothing was sent.
_CONNECT_SHARE = 0.9

# Statuses of a server that did not process the request, so that it may be sent again.
_CREDENTIAL_STATUSES = frozenset({401, 403, 407})

GET_HEADERS = {"Accept": "text/event-stream", "Cache-Control": "no-store"}

# The headers of every client of httpx2. They accept the encodings for which libraries are installed.
_DEFAULT_HEADERS = httpx2.Client(transport=httpx2.BaseTransport()).headers


class TooLargeError(Exception):
    """
    Raised for a body, or an event of a stream, that is larger than the limit.
    """


class BusyError(Exception):
    """
    Raised instead of sending a request: the server wants none for longer than the caller waits, or the request is over.
    """


@dataclass(eq=False)
class HttpSender:
    """
    Sends the HTTP requests of one session.

    :param transport: Sends the requests. It is closed together with this object.
    :param headers: Headers of every request.
    :param timeout: How many seconds each phase of a request may take: `connect`, `write`, `pool` and `read`.
    :param auth: Authenticates the requests.
    :param max_message_size: How many bytes the body of a response may have after it was decompressed.
    :param life: The life of the session. It is notified when something comes in. Its owner knows identities and time
        limits.
    """

    transport: httpx2.AsyncBaseTransport
    _: KW_ONLY
    headers: Mapping[str, str]
    timeout: Mapping[str, float | None]
    auth: httpx2.Auth | None = None
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    life: SessionLife = field(default_factory=SessionLife)

    def __post_init__(self) -> None:
        """
        Prepare the headers that all requests have in common.
        """
        self._common_headers = _by_lower_case_name(_DEFAULT_HEADERS) | _by_lower_case_name(self.headers)
        # Cookies, by which load balancers route sessions, by identity key. None: the server info's own, which are also
        # used for identities without cookies.
        self._cookies: dict[Any, httpx2.Cookies] = {}

    async def open(self) -> None:
        """
        Open the transport.
        """
        await self.transport.__aenter__()

    async def aclose(self) -> None:
        """
        Close all connections.
        """
        await self.transport.__aexit__(None, None, None)

    async def send(
        self,
        method: str,
        url: httpx2.URL,
        headers: Mapping[str, str],
        content: bytes | None = None,
        *,
        exchange: Exchange | None = None,
        may_log_in: bool = True,
    ) -> httpx2.Response:
        """
        Send a request. Repeat it if the server was too busy, and follow redirects within the origin.

        :param method: The method. Only a POST waits while the server wants no requests. A GET opens an event stream;
            like the stream of a subscription, it may be idle and has no read timeout.
        :param url: The URL.
        :param headers: Headers of this request.
        :param content: The body.
        :param exchange: The MCP request in the body; it is marked as sent.
        :param may_log_in: Whether a person may be asked to log in. If not, a refused GET or DELETE is not sent again.
        :returns: The response, which the caller must close. Its body is not read.
        :raises httpx2.HTTPError: If there is no response.
        :raises BusyError: If the server wants no requests, and there is no time to wait.
        :raises MCPAuthorizationError: If there are no credentials.
        """
        identity = self._identity(method)
        # The headers that `httpx2.Request` would add for a body. This takes a quarter of the time, on every call.
        fields = {"host": ("Host", url.netloc.decode())}
        if content is not None:
            fields["content-length"] = ("Content-Length", str(len(content)))
        fields |= self._common_headers | _by_lower_case_name(headers)
        if identity.headers:
            fields |= _by_lower_case_name(identity.headers)
        merged, body = [*fields.values()], httpx2.ByteStream(content or b"")
        is_stream = method == "GET" or (exchange is not None and exchange.method == "subscriptions/listen")
        phases = {**self.timeout, "read": None} if is_stream else self.timeout
        time_left, limit = self.life.owner.time_left(), phases.get("connect")
        if time_left is not None and (limit is None or limit > _CONNECT_SHARE * time_left):
            phases = {**phases, "connect": _CONNECT_SHARE * time_left}
        extensions = {"timeout": phases, "may_log_in": may_log_in}
        status = ""
        with redacted_logs(self.life.redact):
            while True:
                if method == "POST":
                    await self._wait_while_throttled(status)
                request = httpx2.Request(method, url, headers=merged, stream=body, extensions=extensions)
                request.read()
                response = await self._follow(request, exchange)
                self.life.heard()
                wait = retry_after(response) if method == "POST" else None
                if wait is None:
                    return response
                # This applies to all requests, whether this one can wait or not.
                self.life.owner.throttle.until = time.monotonic() + max(wait, _MIN_THROTTLE)
                status = status_of(response)
                if not self._is_in_time(wait):
                    return response
                logger.info("%s answers with HTTP %s: the request is sent again in %.3g s", url.host, status, wait)
                await response.aclose()

    async def _wait_while_throttled(self, status: str) -> None:
        # Several requests may wait; one that is refused again sets a later time.
        while (seconds := self.life.owner.throttle.seconds) > 0:
            if not self._is_in_time(seconds):
                because = f" (HTTP {status})" if status else ""
                msg = f"{describe_throttle(seconds)}{because}"
                raise BusyError(msg)
            await asyncio.sleep(seconds)

    def _is_in_time(self, seconds: float) -> bool:
        time_left = self.life.owner.time_left()
        return time_left is None or seconds <= 0 or seconds < time_left

    async def _follow(self, request: httpx2.Request, exchange: Exchange | None) -> httpx2.Response:
        # Without the headers that `auth` adds, which may be valid for this URL only. It adds new ones for the target.
        original_headers = request.headers if self.auth is None else request.headers.copy()
        response = await self._authenticate(request, exchange)
        for _ in range(_MAX_REDIRECTS - 1):
            target = redirect_target(response)
            if target is None or not _is_followed(response, target):
                break
            await self.read(response)
            headers = original_headers.copy()
            for name in ("Host", "Cookie"):
                headers.pop(name, None)
            request = httpx2.Request(
                request.method, target, headers=headers, content=request.content or None, extensions=request.extensions
            )
            response = await self._authenticate(request, exchange)
        return response

    async def _authenticate(self, request: httpx2.Request, exchange: Exchange | None) -> httpx2.Response:
        auth = self.auth
        if auth is None:
            username, password = request.url.username, request.url.password
            if not username and not password:
                return await self._send_once(request, exchange)
            auth = httpx2.BasicAuth(username, password)
        flow = auth.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                # A copy of the request, e.g. with another URL, also counts as the request.
                carries_request = outgoing is request or (
                    bool(request.content) and await outgoing.aread() == request.content
                )
                outgoing.extensions = {**request.extensions, **outgoing.extensions}
                response = await self._send_once(outgoing, exchange if carries_request else None)
                if carries_request and request.method != "POST" and not request.extensions.get("may_log_in", True):
                    return response
                try:
                    outgoing = await flow.asend(response)
                except StopAsyncIteration:
                    return response
                except BaseException:
                    await response.aclose()
                    raise
                await self.read(response)  # some schemes authenticate connections
        finally:
            await flow.aclose()

    async def _send_once(self, request: httpx2.Request, exchange: Exchange | None) -> httpx2.Response:
        cookie_key = self._identity(request.method).key
        cookies = self._cookies.get(cookie_key) or self._cookies.get(None)
        if cookies:
            cookies.set_cookie_header(request)
        if exchange is not None and exchange.is_settled:  # the session has just ended; the request counts as not run
            raise BusyError
        # If an earlier attempt may have left, the exchange stays marked as sent.
        unsent = exchange if exchange is not None and exchange.fate is Fate.NEW else None
        if unsent is not None:
            unsent.mark_sent()
        try:
            response = await self.transport.handle_async_request(request)
        except CONNECT_ERRORS as error:
            error.request = request  # for the address in the message
            if unsent is not None:
                unsent.unmark_sent()
            raise
        response.request = request
        response.stream = _HeardStream(response.stream, self.life.heard)
        if "set-cookie" in response.headers:
            jar = self._cookies.pop(cookie_key) if cookie_key in self._cookies else httpx2.Cookies(cookies)
            jar.extract_cookies(response)
            self._cookies[cookie_key] = jar  # inserted last, so dropped last
            if len(self._cookies) > _MAX_COOKIE_JARS:
                del self._cookies[next(iter(self._cookies))]
        is_refused = response.status_code in _CREDENTIAL_STATUSES or retry_after(response) is not None
        if unsent is not None and (is_refused or is_redirect(response)):
            unsent.unmark_sent()
        return response

    def _identity(self, method: str) -> Identity:
        """Return the identity of a request: its caller's for a POST, the latest one for others."""
        return current_identity.get() if method == "POST" else self.life.owner.latest_identity()

    async def read(self, response: httpx2.Response) -> bytes:
        """
        Read a body and close the response. Event streams are not read, because they may never end.

        :param response: The response.
        :returns: The body, decompressed; empty for an event stream.
        :raises TooLargeError: If it is too large.
        :raises httpx2.HTTPError: If it cannot be read.
        """
        body: list[bytes] = []
        size = 0
        try:
            if is_event_stream(response):
                return b""
            is_plain = not response.is_closed and "content-encoding" not in response.headers
            # A compressed body may expand to gigabytes, so it is decompressed in pieces of at most 1 MiB.
            chunks: Any = aiter(cast("Any", response.stream)) if is_plain else response.aiter_bytes()
            async with aclosing(chunks):
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self.max_message_size:
                        raise TooLargeError
                    body.append(chunk)
        finally:
            await response.aclose()
        return body[0] if len(body) == 1 else b"".join(body)

    async def events(self, response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent]:
        """
        Read an event stream. An event that is incomplete when the stream ends is dropped.

        :param response: The response. It is closed at the end.
        :returns: The events. Events without data may have an id or a retry time.
        :raises TooLargeError: If an event is too large.
        :raises httpx2.HTTPError: If it cannot be read.
        """
        response.encoding = "utf-8-sig"  # regardless of the content type
        source = httpx2.EventSource(response, max_event_size=self.max_message_size)
        try:
            async for event in source:
                yield event
        except httpx2.SSEError as error:
            raise TooLargeError from error
        finally:
            await response.aclose()

    def settle(self, exchange: Exchange, error: Exception) -> None:
        """
        Settle an MCP request after the HTTP request that carries it has failed.

        :param exchange: The MCP request.
        :param error: The failure.
        """
        if isinstance(error, BusyError):
            exchange.settle(RefusedError(str(error), is_final=True))
        elif isinstance(error, MCPAuthorizationError) and exchange.fate is Fate.NEW:
            exchange.settle(RefusedError(str(error), is_final=True, is_unauthorized=True))
        elif isinstance(error, TooLargeError):
            exchange.settle(UnreadableError(describe_size_limit(self.max_message_size)))
        else:
            exchange.lose(describe_failure(error))


class _HeardStream(httpx2.AsyncByteStream):
    """
    The body of a response. Each piece of it shows that the server is alive.
    """

    def __init__(self, stream: Any, heard: Callable[[], None]) -> None:
        self._stream = stream
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                self._heard()
                yield piece
        except ssl.SSLError as error:  # httpcore2 leaks it
            raise httpx2.ReadError(str(error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _by_lower_case_name(headers: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {name.lower(): (name, value) for name, value in headers.items()}


def describe_failure(error: Exception) -> str:
    """
    Describe what went wrong with a request that was not answered.

    :param error: The failure.
    :returns: A clause.
    """
    if isinstance(error, CONNECT_ERRORS):
        place = "" if error._request is None else f" to {error._request.url.netloc.decode()}"
        return f"no connection could be made{place} ({type(error).__name__}: {error})"
    if isinstance(error, MCPAuthorizationError):
        return str(error)
    return f"the connection was cut before the answer came ({type(error).__name__})"


def _is_followed(response: httpx2.Response, target: httpx2.URL) -> bool:
    """
    Return whether the target of a redirect may get everything that was sent to the original URL.
    """
    sent = response.request
    keeps_method = sent.method == "GET" or response.status_code in {307, 308}
    if not keeps_method or (target.userinfo and target.userinfo != sent.url.userinfo):
        return False
    old, new = sent.url, target
    is_upgrade = (old.scheme, new.scheme) == ("http", "https") and old.port is None and new.port is None
    return old.host == new.host and (is_upgrade or (old.scheme, old.port) == (new.scheme, new.port))


class HttpTransport(Transport):
    """
    Base class of the two HTTP transports, which post messages to a URL.
    """

    _post_headers: ClassVar[Mapping[str, str]] = {"Content-Type": "application/json"}

    def __init__(self, sender: HttpSender, url: str) -> None:
        """
        Initialize the transport.

        :param sender: Sends its requests. It is closed together with the transport.
        :param url: The URL.
        """
        self._sender = sender
        # The URL to which messages are posted.
        self._url = httpx2.URL(url)

    async def carry(self, content: bytes, exchange: Exchange) -> None:
        """
        Post a request, and stop when it is settled.

        :param content: The request as JSON.
        :param exchange: The request.
        """
        with anyio.CancelScope() as scope:
            # The answer may come another way before this response ends; or the request is lost when this closes.
            exchange.answer.add_done_callback(lambda _: scope.cancel())
            await self._post(content, exchange)

    @abstractmethod
    async def _post(self, content: bytes, exchange: Exchange) -> None:
        """Post a request, and settle it if its response allows that."""

    def _headers(self, common: Mapping[str, str], exchange: Exchange | None = None) -> Mapping[str, str]:  # noqa: ARG002
        """Return the headers of a request."""
        return common

    def cancel_scope(self) -> anyio.CancelScope:
        """
        Make a scope of anyio.

        The HTTP libraries shield the closing of connections only from anyio's cancellation. A task that is cancelled
        otherwise may leave connections open.

        :returns: The scope.
        """
        return anyio.CancelScope()

    async def send(self, content: bytes) -> None:
        """
        Post a message that is not answered.

        :param content: The message as JSON.
        :raises ConnectionError: If the server refuses it.
        :raises Exception: If it cannot be sent.
        """
        # Nobody waits long enough for such a message that a person could log in.
        headers = self._headers(self._post_headers)
        response = await self._sender.send("POST", self._url, headers, content, may_log_in=False)
        await self._sender.read(response)
        if not response.is_success:
            msg = f"the server refused a message with HTTP {status_of(response)}"
            raise ConnectionError(msg)

    async def close(self) -> None:
        """
        End the session, and close all connections.
        """
        try:
            await self._end_session()
        finally:
            await self._sender.aclose()

    async def _end_session(self) -> None:
        """End the session at the server."""
