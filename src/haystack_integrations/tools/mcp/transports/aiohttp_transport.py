# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A transport for httpx2 over aiohttp, which takes much less CPU than httpx2's own. The extra `fast` installs aiohttp.

Its errors mean the same as those of httpx2's transport. The first three prove that the request was not sent:

.. code-block:: text

    ConnectError           the name is unknown, nothing listens at the port, or TLS fails
    ConnectTimeout         there is no connection in time
    UnsupportedProtocol    the URL has an unsupported scheme
    ReadTimeout            nothing arrives in time
    ReadError              the connection is reset
    RemoteProtocolError    the connection is closed before the response is complete, or the response is not HTTP

aiohttp resends a GET or a DELETE, but never a POST, if a reused connection breaks.
"""

from __future__ import annotations

import asyncio
import io
import select
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import aiohttp
import httpx2
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

# The limit of httpcore2, instead of 8 KB.
_MAX_HEADER_SIZE = 100 * 1024

# How long closing waits for the sockets, in seconds.
_CLOSING_TIMEOUT = 1.0

# The headers that aiohttp would add.
_AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

# The exceptions of requests and of reading bodies.
_FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError)


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """
    Sends requests over aiohttp, without a proxy. It handles no redirects, cookies, authentication or compression.
    """

    def __init__(
        self, *, verify: ssl.SSLContext | bool, limits: httpx2.Limits, socket_options: Iterable[tuple[int, int, int]]
    ) -> None:
        """
        Initialize the AiohttpTransport. It belongs to the event loop of its first request.

        :param verify: The trusted certificates, and the client's own.
        :param limits: For how long idle connections are kept. Their number is not limited.
        :param socket_options: Options of every socket.
        """
        self._ssl_context = httpx2.create_ssl_context(verify)
        self._ssl_context.set_alpn_protocols(["http/1.1"])
        self._keepalive_expiry = limits.keepalive_expiry
        self._socket_options = tuple(socket_options)
        self._session: Any = None
        # The last URL and its parsed form: most requests go to the same URL.
        self._url: tuple[str, URL] = ("", URL())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Send a request.

        :param request: The request. Its body is read into memory.
        :returns: The response. Its body is not read.
        :raises httpx2.TransportError: If there is no response.
        """
        content = await request.aread()
        phases = request.extensions.get("timeout", {})
        timeout = aiohttp.ClientTimeout(total=None, connect=phases.get("connect"), sock_read=phases.get("read"))
        try:
            response = await self._open_session().request(
                request.method,
                self._to_yarl(request.url),
                headers=CIMultiDict([(name.decode(), value.decode()) for name, value in request.headers.raw]),
                data=io.BytesIO(content) if content else None,
                allow_redirects=False,
                timeout=timeout,
            )
        except _FAILURES as error:
            raise _translated(error, request) from _cause(error)
        extensions = {
            "http_version": f"HTTP/{response.version.major}.{response.version.minor}".encode(),
            "reason_phrase": response.reason.encode(errors="surrogateescape"),
        }
        body = _Body(response, request)
        return httpx2.Response(response.status, headers=response.raw_headers, stream=body, extensions=extensions)

    async def aclose(self) -> None:
        """
        Close all connections.
        """
        if self._session is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_TIMEOUT):
                    await self._session.close()

    def _open_session(self) -> Any:
        if self._session is None:
            connector = _Connector(
                ssl=self._ssl_context,
                limit=0,
                keepalive_timeout=self._keepalive_expiry,
                socket_factory=self._open_socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_AUTOMATIC_HEADERS,
                max_line_size=_MAX_HEADER_SIZE,
                max_field_size=_MAX_HEADER_SIZE,
            )
        return self._session

    def _open_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        for option in self._socket_options:
            opened.setsockopt(*option)
        return opened

    def _to_yarl(self, url: httpx2.URL) -> URL:
        text = str(url)
        if text != self._url[0]:
            self._url = (text, URL(str(url.copy_with(userinfo=b"", fragment=None)), encoded=True))
        return self._url[1]


class _Connector(aiohttp.TCPConnector):
    """
    Checks each connection before it is reused.

    If something arrived on an idle connection, it is either the end of the connection, or a response without a request
    ("408 Request Timeout"), which aiohttp would take for the response to the next request.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: WeakSet[Any] = WeakSet()

    async def connect(self, req: Any, *args: Any, **options: Any) -> Any:
        while True:
            connection: Any = await super().connect(req, *args, **options)
            protocol = connection.protocol
            if protocol not in self._used:
                self._used.add(protocol)
                return connection
            if protocol.is_connected() and not (protocol.should_close or _is_readable(protocol.transport)):
                return connection
            connection.close()


class _Body(httpx2.AsyncByteStream):
    """
    The body of a response, read as it arrives.
    """

    def __init__(self, response: aiohttp.ClientResponse, request: httpx2.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._response.content
        try:
            while piece := await content.readany():
                yield piece
        except _FAILURES as error:
            raise _translated(error, self._request) from None

    async def aclose(self) -> None:
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            # The rest is not needed. A TLS connection would otherwise wait for the server to close its side as well.
            connection.transport.abort()
        self._response.close()


def _is_readable(transport: Any) -> bool:
    # The event loop has not yet read what arrived since its last iteration.
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _cause(error: Exception) -> BaseException | None:
    # The messages of other errors quote the URL, or data that the server sent.
    return error.__cause__ if isinstance(error, aiohttp.ClientConnectorError) else None


def _translated(error: Exception, request: httpx2.Request) -> httpx2.TransportError:
    """
    Translate an error into the exception that httpx2's own transport would raise.
    """
    kind: type[httpx2.TransportError]
    message = type(error).__name__
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        kind, message = httpx2.ConnectTimeout, "there was no connection in time"
    elif isinstance(error, aiohttp.ClientConnectorError):
        kind, message = httpx2.ConnectError, str(_cause(error) or error)
    elif isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        kind, message = httpx2.UnsupportedProtocol, "aiohttp takes no such URL"
    elif isinstance(error, aiohttp.ServerTimeoutError):
        kind = httpx2.ReadTimeout
    # The second one if the connection was closed.
    elif isinstance(error, OSError) or type(error) is aiohttp.ClientConnectionError:
        kind = httpx2.ReadError
    else:
        kind = httpx2.RemoteProtocolError
    return kind(message, request=request)
