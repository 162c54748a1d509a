# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Event streams of SSE servers that are odd, break off or lead elsewhere, without sockets.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification

from haystack_integrations.tools.mcp.transports.http.sse_transport import sse_transport
from tests.support.rows import rows

URL = "https://mcp.example.com/sse"
ENDPOINT = "event: endpoint\ndata: /messages?session=1\n\n"
PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
NOTED = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))


class Server:
    """
    Answers with an event stream, and what is posted with the given statuses.
    """

    def __init__(self, *events: str | Exception, statuses: tuple[int, ...] = (202,)) -> None:
        self._events = events
        self._statuses = iter(statuses)
        self.posted: list[str] = []
        self.lost: list[str] = []

    async def _stream(self) -> AsyncIterator[bytes]:
        for event in self._events:
            if isinstance(event, Exception):
                raise event
            yield event.encode()

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=self._stream())
        self.posted.append(str(request.url))
        return httpx2.Response(next(self._statuses), headers={"Location": "https://elsewhere.example.com/"})

    @asynccontextmanager
    async def connected(self, limit: int = 10_000) -> AsyncIterator[tuple[Any, Any]]:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))
        async with sse_transport(client, URL, max_message_size=limit, lose_session=self.lost.append) as streams:
            yield streams


@rows(
    ("events", "message"),
    [
        ((), "the event stream ended before the server named an endpoint for messages"),
        (("data: hello\n\n",), "the event stream ended before the server named an endpoint for messages"),
        (("event: endpoint\ndata: http://[::1\n\n",), "the server names an endpoint for messages that is no URL"),
        (
            ("event: endpoint\ndata: https://evil.example.com:8443/\n\n",),
            "an endpoint for messages of another origin, https://evil.example.com:8443, which is refused because",
        ),
    ],
    ids=["nothing", "no endpoint", "no URL", "another origin"],
)
async def test_a_stream_without_a_usable_endpoint_fails_the_connect_and_says_why(
    events: tuple[str, ...], message: str
) -> None:
    server = Server(*events)
    with pytest.raises(Exception) as raised:
        async with server.connected():
            pytest.fail("it is connected")
    error: BaseException = raised.value
    while isinstance(error, BaseExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, ConnectionError)
    assert message in str(error)
    assert server.posted == []


async def test_what_is_no_message_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    events = ("event: hint\ndata: x\n\n", ENDPOINT, "event: hint\ndata: x\n\n", "data:\n\n", "data: nonsense\n\n")
    server = Server(*events, f"data: {PING}\n\n")
    async with server.connected() as (incoming, _):
        assert [message.message.method async for message in incoming] == ["ping"]
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()
    assert caplog.text.count("Ignored an event that is no message") == 1
    assert server.lost == []


@rows(
    ("event", "reason"),
    [
        (f"data: {'x' * 2000}\n\n", "is larger than `max_message_size` of the server info allows, 1,000 bytes"),
        (httpx2.ReadError("cut"), "the event stream could not be read (ReadError)"),
    ],
    ids=["too large", "cut"],
)
async def test_a_stream_that_cannot_be_read_on_ends_the_session_with_the_reason(
    event: str | Exception, reason: str
) -> None:
    server = Server(ENDPOINT, f"data: {PING}\n\n", event)
    async with server.connected(limit=1000) as (incoming, _):
        assert (await incoming.receive()).message.method == "ping"
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()
    [lost] = server.lost
    assert reason in lost


@rows(
    ("status", "lost"),
    [(307, ["the server redirected a message elsewhere (HTTP 307)"]), (500, [])],
)
async def test_no_message_is_sent_after_one_that_was_not_taken(status: int, lost: list[str]) -> None:
    server = Server(ENDPOINT, statuses=(202, status))
    async with server.connected() as (_, outgoing):
        await outgoing.send(NOTED)
        await outgoing.send(NOTED)
        with pytest.raises(anyio.ClosedResourceError):
            await outgoing.send(NOTED)  # once the one before was answered
        assert server.posted == ["https://mcp.example.com/messages?session=1"] * 2
    assert server.lost == lost


async def test_a_session_that_was_closed_sends_nothing() -> None:
    server = Server(ENDPOINT)
    async with server.connected() as (incoming, outgoing):
        async with incoming, outgoing:
            pass
        with pytest.raises(anyio.ClosedResourceError):
            await outgoing.send(NOTED)
    assert server.posted == []
