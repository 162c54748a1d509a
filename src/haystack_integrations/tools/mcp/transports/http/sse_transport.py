# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self, cast

import anyio
import httpx2
from anyio.abc import TaskGroup
from haystack import logging
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage

from haystack_integrations.tools.mcp.client.large_messages import is_large, parse, parse_large
from haystack_integrations.tools.mcp.client.messages import read_damaged, too_large
from haystack_integrations.tools.mcp.client.request_outcome import current_outcome
from haystack_integrations.tools.mcp.client.sdk_workarounds import stream_within_origin
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error

logger: logging.PatchedLogger = logging.getLogger(__name__)


class _Incoming:
    """
    The messages in the event stream, read in the session's own task.
    """

    def __init__(
        self, events: AsyncIterator[httpx2.ServerSentEvent], limit: int, lose_session: Callable[[str], None]
    ) -> None:
        self._events = events
        self._limit = limit
        self._lose_session = lose_session
        # Of an event with several.
        self._messages: deque[JSONRPCMessage] = deque()
        self._has_warned = False

    async def aclose(self) -> None:
        pass  # the transport closes the event stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            if self._messages:
                return SessionMessage(self._messages.popleft())
            try:
                event = await anext(self._events)
            except httpx2.SSEError:
                self._lose_session(too_large(self._limit))
                raise StopAsyncIteration from None
            except httpx2.RequestError as error:
                self._lose_session(f"the event stream could not be read ({type(error).__name__})")
                raise StopAsyncIteration from None
            if event.event != "message" or not event.data:
                continue
            try:
                return SessionMessage(await parse_large(event.data) if is_large(event.data) else parse(event.data))
            except ValueError as error:
                self._messages.extend(read_damaged(event.data, error))
                if not self._messages:  # heartbeats come again and again
                    log = logger.debug if self._has_warned else logger.warning
                    self._has_warned = True
                    log("Ignored an event that is no message ({error})", error=describe_error(error))

    async def receive(self) -> SessionMessage:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class _Outgoing:
    """
    The messages to the server, posted one after the other, each in the context of whoever sends it.
    """

    def __init__(
        self, http: httpx2.AsyncClient, endpoint: httpx2.URL, tasks: TaskGroup, lose_session: Callable[[str], None]
    ) -> None:
        self._http = http
        self._endpoint = endpoint
        self._tasks = tasks
        self._lose_session = lose_session
        self._turn = asyncio.Semaphore()
        self._closed = False

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def send(self, message: SessionMessage) -> None:
        """
        Begin to post a message, once the one before it was acknowledged.

        It is not awaited: the answer comes over the event stream, and may come before the acknowledgement.

        :param message: The message.
        :raises anyio.ClosedResourceError: If the session has ended.
        """
        await self._turn.acquire()
        if self._closed:
            self._turn.release()
            raise anyio.ClosedResourceError
        self._tasks.start_soon(self._post, message)

    async def _post(self, message: SessionMessage) -> None:
        try:
            body = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            async with stream_within_origin(self._http, "POST", self._endpoint, json=body) as response:
                await response.aread()
            if response.is_redirect:  # the client takes care of all other failures
                fault = f"the server redirected a message elsewhere (HTTP {response.status_code})"
                outcome = current_outcome.get()
                if outcome is not None:
                    outcome.fault = fault
                self._lose_session(fault)
            if not response.is_success:
                await self.aclose()
        finally:
            self._turn.release()


@asynccontextmanager
async def sse_transport(
    http: httpx2.AsyncClient, url: str, *, max_message_size: int, lose_session: Callable[[str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """
    Connect to a server over the SSE transport: a transport of the SDK.

    The SDK's own transport hangs if the server names an endpoint of another origin, refuses events of more than 1 MiB,
    and drops a message that it cannot read.

    :param http: The HTTP client, not yet entered.
    :param url: Where the event stream is.
    :param max_message_size: How many bytes an event may have.
    :param lose_session: Called with the reason when the session turns out to be lost.
    :returns: A context manager with the messages from the server and to it.
    :raises ConnectionError: If the server names no endpoint, or one that must not be used.
    """
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    async with http, stream_within_origin(http, "GET", url, headers=headers) as response:
        response.raise_for_status()
        source = aiter(httpx2.EventSource(response, max_event_size=max_message_size))
        async with (
            aclosing(cast("AsyncGenerator[httpx2.ServerSentEvent]", source)) as events,
            anyio.create_task_group() as tasks,
        ):
            endpoint = await _endpoint(events, response.url)
            yield (
                _Incoming(events, max_message_size, lose_session),
                _Outgoing(http, endpoint, tasks, lose_session),
            )
            tasks.cancel_scope.cancel()


async def _endpoint(events: AsyncIterator[httpx2.ServerSentEvent], url: httpx2.URL) -> httpx2.URL:
    async for event in events:
        if event.event != "endpoint":
            continue
        try:
            endpoint = url.join(event.data)
        except httpx2.InvalidURL:
            msg = "the server names an endpoint for messages that is no URL"
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
    msg = "the event stream ended before the server named an endpoint for messages"
    raise ConnectionError(msg)


def _origin(url: httpx2.URL) -> tuple[str, str, int | str]:
    return url.scheme, url.host, url.port or ""
