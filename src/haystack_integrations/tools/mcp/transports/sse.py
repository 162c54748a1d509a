# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The transport of revision 2024-11-05, SSE: messages are posted, and all answers come in one event stream.

https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import httpx2

from haystack_integrations.tools.mcp.convert.odd_messages import describe_size_limit, read_messages
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import RefusedError
from haystack_integrations.tools.mcp.transports.posting import (
    GET_HEADERS,
    BusyError,
    HttpTransport,
    TooLargeError,
    describe_failure,
)
from haystack_integrations.tools.mcp.transports.refusals import (
    describe_content,
    is_event_stream,
    retry_after,
    settle_sse_refusal,
    status_of,
)

# Seconds within which a server names the endpoint for messages, which is the first event of a stream. Streamable HTTP
# servers may also open a stream, which stays empty.
_ENDPOINT_TIMEOUT = 15.0


class SseTransport(HttpTransport):
    """
    Carries messages to and from one server. Its URL is the event stream's, until the stream names the endpoint.
    """

    async def open(self) -> None:
        """
        Open the event stream, and wait until the server names the endpoint for messages.

        :raises RefusedError: If there is no event stream.
        :raises ConnectionError: If the server names no endpoint, or a forbidden one.
        """
        await self._sender.open()
        try:
            response = await self._sender.send("GET", self._url, GET_HEADERS)
        except Exception as error:
            is_unauthorized = isinstance(error, MCPAuthorizationError)
            raise RefusedError(describe_failure(error), is_unauthorized=is_unauthorized) from error
        if not response.is_success or not is_event_stream(response):
            await response.aclose()
            raise self._refusal(response)
        endpoint: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()
        self.channel.spawn(self._read(response, endpoint))
        try:
            async with asyncio.timeout(_ENDPOINT_TIMEOUT):
                self._url = await endpoint
        except TimeoutError:
            msg = f"the event stream named no endpoint for messages within {_ENDPOINT_TIMEOUT:g} s"
            raise ConnectionError(msg) from None

    def _refusal(self, response: httpx2.Response) -> Exception:
        if response.is_success:
            content = describe_content(response)
            return ConnectionError(f"the server answered with {content}, which is not an event stream")
        wait = retry_after(response)
        if wait is not None:
            self._sender.life.owner.throttle.until = time.monotonic() + wait
        status = status_of(response)
        return RefusedError(f"the server answered with HTTP {status}", status=status)

    async def _read(self, response: httpx2.Response, endpoint: asyncio.Future[httpx2.URL]) -> None:
        failure = "the event stream ended before the server named an endpoint for messages"
        reason = None
        try:
            async with aclosing(self._sender.events(response)) as events:
                async for event in events:
                    if event.event == "message" and endpoint.done():
                        for frame in read_messages(event.data):
                            self.channel.received(frame)
                    elif event.event == "endpoint" and not endpoint.done():
                        endpoint.set_result(_endpoint(event.data, response.request.url))
        except TooLargeError:
            reason = describe_size_limit(self._sender.max_message_size)
        except httpx2.HTTPError as error:
            reason = f"the event stream was cut ({type(error).__name__})"
        except ConnectionError as error:  # the endpoint is forbidden
            failure = str(error)
        if not endpoint.done():
            endpoint.set_exception(ConnectionError(reason or failure))
        self.channel.ended(reason)

    async def _post(self, content: bytes, exchange: Exchange) -> None:
        """Post a request. It is settled by a message on the event stream, or here if it could not be posted."""
        # A request that was not accepted will not be answered, and the session is in doubt.
        try:
            response = await self._sender.send("POST", self._url, self._post_headers, content, exchange=exchange)
            await self._sender.read(response)
        except Exception as error:
            self._sender.settle(exchange, error)
            if not isinstance(error, BusyError | MCPAuthorizationError):
                self.channel.drained(describe_failure(error))
            return
        reason = None if response.is_success else settle_sse_refusal(response, exchange)
        if reason is not None:
            self.channel.drained(reason)


def _endpoint(named: str, url: httpx2.URL) -> httpx2.URL:
    try:
        endpoint = url.join(named.strip())
    except httpx2.InvalidURL:
        msg = "the server names an endpoint for messages that is not a URL"
        raise ConnectionError(msg) from None
    if _origin(endpoint) != _origin(url):
        scheme, host, port = _origin(endpoint)
        msg = (
            f"the server names an endpoint for messages of another origin, {scheme}://{host}{port and f':{port}'}, "
            "which is refused because messages carry credentials. Correct the public URL in the configuration of "
            "the server or of its proxy"
        )
        raise ConnectionError(msg)
    return endpoint


def _origin(url: httpx2.URL) -> tuple[str, str, int | str]:
    return url.scheme, url.host, url.port or ""
