# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Messages over SSE to servers that behave oddly, break off or redirect.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.protocol.request_errors import Fate, RefusedError
from haystack_integrations.tools.mcp.transports import sse
from haystack_integrations.tools.mcp.transports.posting import HttpSender
from haystack_integrations.tools.mcp.transports.sse import SseTransport
from tests.support.exchanges import TestedChannel, channel_over
from tests.support.rows import rows
from tests.support.scripted_peer import event
from tests.support.waiting import LIMIT, wait_until_async

URL = "https://mcp.example.com/sse"
# Some servers write white space around the endpoint.
ENDPOINT = b"event: endpoint\ndata:  /messages?session=1 \n\n"
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


class Server:
    """
    Answers with an event stream of the test's events, and answers each message as the test says.
    """

    def __init__(self, *events: bytes | Exception, post: Callable[[httpx2.Request], Any] = lambda _: 202) -> None:
        self._post = post
        self._events: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for each in events:
            self._events.put_nowait(each)
        # The answer in place of the stream.
        self.refusal: httpx2.Response | Exception | None = None
        self.posted: list[httpx2.Request] = []

    def say(self, *events: bytes | Exception | None) -> None:
        for each in events:
            self._events.put_nowait(each)

    async def _stream(self) -> AsyncIterator[bytes]:
        while (each := await self._events.get()) is not None:
            if isinstance(each, Exception):
                raise each
            yield each

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            stream = httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=self._stream())
            answer: Any = self.refusal or stream
        else:
            self.posted.append(request)
            answer = self._post(request)
            answer = await answer if asyncio.iscoroutine(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(answer)

    @asynccontextmanager
    async def connected(self, limit: int = 10_000) -> AsyncIterator[TestedChannel]:
        phases: dict[str, float | None] = {"connect": 5.0, "write": 5.0, "pool": 5.0, "read": 5.0}
        sender = HttpSender(httpx2.MockTransport(self._answer), headers={}, timeout=phases, max_message_size=limit)
        usual = {"method": "tools/call", "params": {"name": "pay"}}
        async with asyncio.timeout(LIMIT), channel_over(SseTransport(sender, URL), **usual) as channel:
            yield channel


def result(number: int) -> bytes:
    return event({"jsonrpc": "2.0", "id": number, "result": {"n": number}})


@rows(
    ("events", "message"),
    ((), "the event stream ended before the server named an endpoint for messages"),
    ((b"data: hello\n\n",), "the event stream ended before the server named an endpoint for messages"),
    ((b"event: endpoint\ndata: http://[::1\n\n",), "the server names an endpoint for messages that is not a URL"),
    (
        (b"event: endpoint\ndata: https://evil.example.com:8443/\n\n",),
        "an endpoint for messages of another origin, https://evil.example.com:8443, which is refused because",
    ),
    ((httpx2.ReadError("cut"),), "the event stream was cut (ReadError)"),
)
async def test_a_stream_without_a_usable_endpoint_fails_the_connect_with_the_reason(events, message):
    server = Server(*events)
    server.say(None)
    with pytest.raises(ConnectionError) as raised:
        async with server.connected():
            pytest.fail("it is connected")
    assert message in str(raised.value)
    assert server.posted == []


async def test_a_stream_that_stays_empty_like_that_of_a_streamable_http_server_fails_the_connect(monkeypatch) -> None:
    monkeypatch.setattr(sse, "_ENDPOINT_TIMEOUT", 0.05)
    with pytest.raises(ConnectionError, match=r"named no endpoint for messages within 0\.05 s"):
        async with Server(b": ping\n\n").connected():
            pytest.fail("it is connected")


@rows(
    ("answer", "status", "says"),
    (httpx2.Response(401), "401 Unauthorized", "HTTP 401 Unauthorized"),
    (httpx2.Response(302, headers={"Location": "https://elsewhere.test/"}), "302 Found", "HTTP 302 Found"),
    (httpx2.Response(503, headers={"Retry-After": "9"}), "503 Service Unavailable", "HTTP 503"),
    (httpx2.ConnectError("refused"), None, "no connection could be made to mcp.example.com (ConnectError"),
    (MCPAuthorizationError("no token"), None, "no token"),
)
async def test_the_connect_fails_without_a_stream(answer: Any, status: str | None, says: str) -> None:
    server = Server()
    server.refusal = answer
    with pytest.raises(RefusedError) as raised:
        async with server.connected():
            pytest.fail("it is connected")
    assert raised.value.status == status and says in str(raised.value)
    assert raised.value.is_unauthorized is isinstance(answer, MCPAuthorizationError)
    server.refusal = httpx2.Response(200, html="<html>")
    with pytest.raises(ConnectionError, match=r"content of the type 'text/html.* is not an event stream"):
        async with server.connected():
            pytest.fail("it is connected")


async def test_answers_find_their_requests_in_any_order_and_before_the_acknowledgement() -> None:
    async def never(_: httpx2.Request) -> int:
        if len(server.posted) == 2:
            server.say(result(1), event(NOTE), b"event: hint\ndata: x\n\ndata: nonsense\n\n", result(0))
        await asyncio.Event().wait()
        return 202

    server = Server(ENDPOINT, post=never)
    async with server.connected() as channel:
        requests = [channel.request(channel.exchange()) for _ in range(2)]
        assert await asyncio.gather(*requests) == [{"n": 0}, {"n": 1}]
        assert (channel.peer.notes, channel.peer.places) == ([("notifications/message", {})], [None])
    assert {str(request.url) for request in server.posted} == {"https://mcp.example.com/messages?session=1"}


@rows(
    ("events", "reason"),
    ((f"data: {'x' * 2000}\n\n".encode(),), "is larger than `max_message_size` of the server info allows, 1,000"),
    ((httpx2.ReadError("cut"),), "the event stream was cut (ReadError)"),
    ((None,), None),
)
async def test_the_end_of_the_stream_ends_the_session_and_all_requests(events, reason):
    server = Server(ENDPOINT)
    async with server.connected(limit=1000) as channel:
        call = asyncio.create_task(channel.fail())
        await wait_until_async(lambda: server.posted, "the message")
        server.say(*events)
        exchange, error = await call
        assert exchange.fate is Fate.LOST
        [ended] = channel.peer.ends
        assert (reason in (ended or "") and reason in str(error)) if reason else ended is None
        later, _ = await channel.fail()
        assert later.fate is Fate.REFUSED
        assert len(server.posted) == 1


@rows(
    ("answer", "fate", "drained"),
    (401, Fate.REFUSED, "HTTP 401"),
    (405, Fate.REFUSED, "HTTP 405"),
    (404, Fate.REFUSED, "HTTP 404"),
    (410, Fate.REFUSED, "HTTP 410"),
    (406, Fate.LOST, "HTTP 406"),
    (429, Fate.LOST, "HTTP 429"),
    (500, Fate.LOST, "HTTP 500"),
    (503, Fate.LOST, "HTTP 503"),
    (httpx2.Response(307, headers={"Location": "https://elsewhere.test/"}), Fate.REFUSED, "redirected a message"),
    (httpx2.ConnectError("refused"), Fate.REFUSED, "no connection could be made"),
    (httpx2.ReadError("cut"), Fate.LOST, "the connection was cut"),
    (httpx2.Response(429, headers={"Retry-After": "60"}), Fate.REFUSED, None),
)
async def test_a_refused_message_fails_only_its_own_request(answer, fate, drained):
    server = Server(ENDPOINT, post=lambda _: answer if len(server.posted) == 2 else 202)
    async with server.connected() as channel:
        other = asyncio.create_task(channel.request(channel.exchange()))
        await wait_until_async(lambda: server.posted, "the message")
        exchange, error = await channel.fail()
        assert exchange.fate is fate
        # These messages would be refused again in another session.
        assert answer not in (401, 404, 405, 410) or error.is_final is (answer in (401, 405))
        assert [reason for reason in channel.peer.drains if drained is None or drained not in reason] == []
        assert len(channel.peer.drains) == (drained is not None)
        server.say(result(0))
        assert await other == {"n": 0}


async def test_a_refused_notification_does_not_end_the_session() -> None:
    async with Server(ENDPOINT, post=lambda _: 400).connected() as channel:
        with pytest.raises(ConnectionError, match="HTTP 400"):
            await channel.send_notification("notifications/initialized")
        assert (channel.peer.drains, channel.peer.ends) == ([], [])
