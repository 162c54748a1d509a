# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Messages over Streamable HTTP to a server that writes exactly the bytes of a test and breaks off where the test wants.
"""

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import Fate, RefusedError, UnreadableError
from haystack_integrations.tools.mcp.transports import streamable_http
from haystack_integrations.tools.mcp.transports.http_client import StreamableHttpClient
from haystack_integrations.tools.mcp.transports.http_route import open_transport
from haystack_integrations.tools.mcp.transports.posting import HttpSender
from haystack_integrations.tools.mcp.transports.refusals import UNKNOWN_SESSION
from haystack_integrations.tools.mcp.transports.server_infos import StreamableHttpServerInfo
from haystack_integrations.tools.mcp.transports.streamable_http import StreamableHttpTransport
from tests.support.exchanges import TestedChannel, channel_over, failure_of
from tests.support.rows import rows
from tests.support.scripted_peer import HttpRequest, ScriptedPeer, chunked, event, response, result
from tests.support.waiting import LIMIT, wait_until_async

pytestmark = pytest.mark.usefixtures("no_proxies")

over_both_stacks = pytest.mark.usefixtures("http_stack")

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


def connected(url: str, **options: Any) -> AbstractAsyncContextManager[TestedChannel]:
    """
    Open a channel without a handshake.
    """
    phases: dict[str, float | None] = {"connect": 5.0, "write": 5.0, "pool": 5.0, "read": None}
    sender = HttpSender(open_transport(of_session=True), **{"headers": {}, "timeout": phases, **options})
    transport = StreamableHttpTransport(sender, url)
    return channel_over(transport, method="tools/call", params={"name": "pay"}, version=LEGACY)


def always(written: Callable[[HttpRequest], bytes]) -> Callable[[HttpRequest], Awaitable[bytes]]:
    async def answer(request: HttpRequest) -> bytes:
        return written(request)

    return answer


def with_session(answer: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Awaitable[bytes | None]]:
    async def respond(request: HttpRequest) -> bytes | None:
        if request.method == "POST" and request.message.get("method") == "initialize":
            named = {"capabilities": {"tools": {}}, "serverInfo": {"name": "scripted", "version": "1"}}
            return response("200 OK", result(request, protocolVersion=LEGACY, **named), Mcp_Session_Id="s-1")
        written = answer(request)
        return await written if asyncio.iscoroutine(written) else written

    return respond


async def stay_open(request: HttpRequest, *pieces: bytes) -> None:
    """
    Write an event stream that does not end.
    """
    request.writer.write(chunked(*pieces, is_finished=False))
    await asyncio.Event().wait()


async def shake_hands(channel: TestedChannel) -> None:
    await channel.request(channel.exchange("initialize", version=None))
    channel.transport.opened(LEGACY)


class TestSentHeaders:
    async def test_headers_before_and_within_a_session(self) -> None:
        async def answer(request: HttpRequest) -> bytes:
            if request.method == "DELETE":
                return response("405 Method Not Allowed")
            if "id" not in request.message:
                return response("202 Accepted", b"", "")
            return response("200 OK", result(request, protocolVersion=LEGACY), Mcp_Session_Id="s-1")

        async with ScriptedPeer(answer) as peer:
            async with connected(peer.url) as channel:
                await shake_hands(channel)
                await channel.send_notification("notifications/initialized")
                await channel.request(channel.exchange(headers={"Mcp-Param-A": "x"}))
            first, *others = peer.requests
        assert "mcp-session-id" not in first.headers and "mcp-protocol-version" not in first.headers
        assert first.headers["accept"] == "application/json, text/event-stream"
        assert first.headers["content-type"] == "application/json"
        assert [request.method for request in others] == ["POST", "POST", "DELETE"]
        for request in others:
            assert request.headers["mcp-session-id"] == "s-1"
            assert request.headers["mcp-protocol-version"] == LEGACY
            assert not {"mcp-method", "mcp-name", "mcp-param-a"} & request.headers.keys()

    async def test_headers_since_revision_2026_07_28(self) -> None:
        def written(request: HttpRequest) -> bytes:
            return response("200 OK", result(request), Mcp_Session_Id="s")

        async with ScriptedPeer(always(written)) as peer:
            async with connected(peer.url) as channel:
                for name in ("pay", "\u6f22", " padded", "=?base64?cGF5?="):
                    headers = {"Mcp-Param-A": "=?base64?eA==?="}
                    await channel.request(channel.exchange(params={"name": name}, version=MODERN, headers=headers))
                await channel.request(channel.exchange("tools/list", version=MODERN))
        names = [request.headers.get("mcp-name") for request in peer.requests]
        coded = [base64.b64encode(name.encode()).decode() for name in ("\u6f22", " padded", "=?base64?cGF5?=")]
        assert names == ["pay", *(f"=?base64?{value}?=" for value in coded), None]
        for request in peer.requests:
            assert request.headers["mcp-protocol-version"] == MODERN
            assert request.headers["mcp-method"] == request.message["method"]
            assert "mcp-session-id" not in request.headers
        assert peer.requests[0].headers["mcp-param-a"] == "=?base64?eA==?="
        assert len(peer.requests) == 5  # there is no session to end


# The answer to the first request of a session.
RESULT = {"jsonrpc": "2.0", "id": 0, "result": {"n": 1}}
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


class TestBodies:
    @rows(
        "frames",
        RESULT,
        {**RESULT, "id": "0"},
        [NOTE, RESULT],
        [{**RESULT, "id": 77}, RESULT],
        [RESULT, {**RESULT, "result": {"n": 2}}],
    )
    async def test_the_answer_in_a_body_or_a_batch_is_found(self, frames: Any) -> None:
        async with ScriptedPeer(always(lambda _: response("200 OK", frames))) as peer, connected(peer.url) as channel:
            assert await channel.request(channel.exchange()) == {"n": 1}

    @rows(
        ("written", "says"),
        (response("202 Accepted", b"", ""), "the server answered a request with 202 Accepted"),
        (response("204 No Content", b"", ""), "content of no type, which is not an MCP answer"),
        (response("200 OK", b"<html>", "Text/HTML; charset=x"), "content of the type 'text/html; charset=x'"),
        (response("200 OK", b""), "not a valid JSON-RPC message"),
        (response("200 OK", b'{"jsonrpc": "2.0", "id": 0, "result": {'), "could not be read as JSON"),
        (response("200 OK", b"x" * 2000), "`max_message_size` of the server info allows, 1,000 bytes"),
        (chunked(b"data: " + b"x" * 2000), "`max_message_size` of the server info allows, 1,000 bytes"),
    )
    async def test_a_response_without_an_answer_is_an_unknown_outcome(self, written: bytes, says: str) -> None:
        async with ScriptedPeer(always(lambda _: written)) as peer:
            async with connected(peer.url, max_message_size=1000) as channel:
                exchange, error = await channel.fail()
        assert exchange.fate is Fate.LOST and isinstance(error, UnreadableError)
        assert says in str(error)


@over_both_stacks
class TestBreaks:
    @rows(
        ("written", "says"),
        (b"", "the connection was cut before the answer came"),
        (chunked(b": alive\n\n", is_finished=False), "the connection was cut before the answer came"),
        (response("200 OK", b"{}", Content_Encoding="gzip"), "before the answer came (DecodingError)"),
        (chunked(b": alive\n\n"), "the server closed the response before the answer came"),
        (chunked(event(RESULT)[:-1]), "the server closed the response before the answer came"),
    )
    async def test_a_cut_connection_loses_only_its_own_request(self, written, says):
        async def answer(request: HttpRequest) -> bytes | None:
            if request.message["method"] != "tools/call":
                await lost.wait()
                return response("200 OK", result(request))
            request.writer.write(written)
            await request.writer.drain()
            await asyncio.sleep(0.05)  # the reset would drop bytes that have not arrived
            if "cut" in says:
                request.cut()
            return None

        lost = asyncio.Event()
        async with ScriptedPeer(answer) as peer, connected(peer.url) as channel:
            other = asyncio.create_task(channel.request(channel.exchange("tools/list")))
            exchange, error = await channel.fail()
            lost.set()
            assert await other == {}
        assert exchange.fate is Fate.LOST and says in str(error)
        assert (channel.peer.drains, channel.peer.ends) == ([], [])

    @rows(
        "written",
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 99\r\n\r\nno",
        response("403 Forbidden", b"no gzip", Content_Encoding="gzip"),
        response("403 Forbidden", b"no session", "text/plain; charset=undefined"),
        response("403 Forbidden", b"[" * 200_000),
        response("403 Forbidden", b"\xff\xfe"),
    )
    async def test_an_error_response_that_cannot_be_read_is_judged_by_its_status(self, written: bytes) -> None:
        async def answer(request: HttpRequest) -> None:
            request.writer.write(written)
            await request.writer.drain()

        async with ScriptedPeer(answer) as peer, connected(peer.url) as channel:
            exchange, error = await channel.fail()
        assert exchange.fate is Fate.REFUSED and error.status == "403 Forbidden"


@over_both_stacks
class TestStreams:
    async def test_messages_before_the_answer_are_delivered(self) -> None:
        answers: list[Any] = []

        async def answer(request: HttpRequest) -> bytes:
            if "method" not in request.message:
                answers.append(request.message)
                await asyncio.Event().wait()  # must not block anything else
            ping = {"jsonrpc": "2.0", "id": "q", "method": "ping"}
            odd = b"event: other\ndata: {}\n\ndata: nonsense\n\n: alive\n\n"
            return chunked(event(NOTE), odd, event(ping), event({**RESULT, "id": "whatever"}))

        async with ScriptedPeer(answer) as peer, connected(peer.url) as channel:
            exchange = channel.exchange()
            assert await channel.request(exchange) == {"n": 1}
            await wait_until_async(lambda: answers, "the answer")
        assert (channel.peer.notes, channel.peer.places) == ([("notifications/message", {})], [exchange])
        assert answers == [{"jsonrpc": "2.0", "id": "q", "result": {"asked": "ping"}}]

    @pytest.mark.parametrize("is_open", [False, True], ids=["each in the other's", "both in one, the other stays open"])
    async def test_an_answer_in_the_stream_of_another_request_reaches_its_own_request(self, is_open: bool) -> None:
        asked: list[HttpRequest] = []
        both = asyncio.Event()

        async def answer(request: HttpRequest) -> bytes:
            asked.append(request)
            if len(asked) == 2:
                both.set()
            await both.wait()
            others_first = [] if is_open else asked[::-1]
            written = asked if request is asked[1] else others_first
            events = (event(result(each, n=each.message["id"])) for each in written)
            return chunked(*events, is_finished=not is_open)

        async with ScriptedPeer(answer) as peer, connected(peer.url) as channel:
            exchanges = [channel.exchange(), channel.exchange()]
            async with asyncio.timeout(LIMIT):
                answers = await asyncio.gather(*map(channel.request, exchanges))
        assert answers == [{"n": exchange.id} for exchange in exchanges]

    @pytest.mark.parametrize("later", [-1, 1])
    async def test_a_late_answer_to_another_request_does_not_answer_the_request_of_its_stream(self, later) -> None:
        def written(request: HttpRequest) -> bytes:
            late = {**result(request, n="late"), "id": request.message["id"] + later}
            return chunked(event(late), event(result(request, n="own")))

        async with ScriptedPeer(always(written)) as peer, connected(peer.url) as channel:
            before, exchange, after = (channel.exchange() for _ in range(3))
            for other in (before, after):
                await channel.request(other)
            assert await channel.request(exchange) == {"n": "own"}

    @rows(("stream", "cut_after"), (chunked(b": ping\n\n"), LIMIT), (chunked(), 0.0))
    async def test_streams_that_a_gateway_ends_during_slow_calls_do_not_affect_the_session(
        self, monkeypatch: pytest.MonkeyPatch, stream: bytes, cut_after: float
    ) -> None:
        monkeypatch.setattr(streamable_http, "_CUT_AFTER", cut_after)
        async with ScriptedPeer(with_session(lambda _: stream)) as peer, connected(peer.url) as channel:
            await shake_hands(channel)
            for _ in range(2):
                await channel.fail()
            assert channel.peer.drains == []

    async def test_two_streams_that_are_cut_before_the_answer_put_the_session_in_doubt(self) -> None:
        async def cut(request: HttpRequest) -> None:  # as Python SDK 1.8 does after a call was cancelled
            request.writer.write(chunked(is_finished=False))

        async with ScriptedPeer(with_session(cut)) as peer, connected(peer.url) as channel:
            await shake_hands(channel)
            for _ in range(2):
                assert channel.peer.drains == []
                await channel.fail()
            assert channel.peer.drains == ["the server seems to have lost the session"]

    async def test_the_connection_of_an_ended_stream_is_reused_and_no_stream_is_opened_without_a_session(self):
        async with ScriptedPeer(always(lambda request: chunked(event(result(request))))) as peer:
            async with connected(peer.url) as channel:
                channel.transport.start_listening()
                for _ in range(5):
                    await channel.request(channel.exchange())
                    await asyncio.sleep(0.02)
                assert peer.connections < 5
        assert [request.method for request in peer.requests] == ["POST"] * 5

    async def test_a_stream_that_continues_after_the_answer_does_not_block_others(self) -> None:
        async def answer(request: HttpRequest) -> bytes | None:
            return await stay_open(request, event(RESULT))

        async with ScriptedPeer(answer) as peer, connected(peer.url) as channel:
            assert await asyncio.wait_for(channel.request(channel.exchange()), LIMIT) == {"n": 1}
            await wait_until_async(lambda: peer.closed, "the end of the connection")

    async def test_a_broken_stream_is_resumed_after_its_last_event(self) -> None:
        gets: list[str | None] = []

        def answer(request: HttpRequest) -> bytes:
            if request.method != "GET":
                return chunked(b"id: 1\nretry: 10\n\n", event(NOTE, "2"), b"id: 3\ndata: cut")
            gets.append(request.headers.get("last-event-id"))
            return chunked(event(NOTE, "4")) if len(gets) == 1 else chunked(event({**RESULT, "id": 1}))

        async with ScriptedPeer(with_session(answer)) as peer, connected(peer.url) as channel:
            await shake_hands(channel)
            assert await channel.request(channel.exchange()) == {"n": 1}
        assert gets == ["2", "4"]
        assert len(channel.peer.notes) == 2

    @rows("refusal", response("404 Not Found"), response("200 OK", {}), chunked(b": nothing\n\n"))
    async def test_resuming_ends_after_two_attempts_without_progress(self, refusal: bytes) -> None:
        def answer(request: HttpRequest) -> bytes:
            return chunked(b"id: 1\nretry: 10\n\n") if request.method == "POST" else refusal

        async with ScriptedPeer(with_session(answer)) as peer, connected(peer.url) as channel:
            await shake_hands(channel)
            exchange, error = await channel.fail()
            assert exchange.fate is Fate.LOST
            assert str(error) == "the server closed the response before the answer came"
            assert [request.method for request in peer.requests].count("GET") == 2

    @rows(("version", "stream"), (MODERN, b"id: 1\nretry: 10\n\n"), (LEGACY, b": no cursor\n\n"))
    async def test_streams_without_event_ids_or_since_2026_07_28_are_not_resumed(
        self, version: str, stream: bytes
    ) -> None:
        async with ScriptedPeer(always(lambda _: chunked(stream))) as peer, connected(peer.url) as channel:
            exchange, _ = await channel.fail(version=version)
            assert exchange.fate is Fate.LOST
            assert len(peer.requests) == 1


@asynccontextmanager
async def listening(
    get: Callable[[HttpRequest], Awaitable[bytes | None]], **options: Any
) -> AsyncIterator[TestedChannel]:
    """
    Open a session in which a test answers the requests for its stream.
    """

    async def answer(request: HttpRequest) -> bytes | None:
        if request.method == "GET":
            return await get(request)
        return response("200 OK", result(request) if request.method == "POST" else b"")

    async with ScriptedPeer(with_session(answer)) as peer, connected(peer.url, **options) as channel:
        await shake_hands(channel)
        channel.transport.start_listening()
        yield channel


@over_both_stacks
class TestListening:
    @rows("status", "400 Bad Request", "401 Unauthorized", "404 Not Found", "405 Method Not Allowed", "406 No")
    async def test_a_server_need_not_have_a_stream(self, status: str) -> None:
        async def get(_: HttpRequest) -> bytes:
            asked.set()
            return response(status)

        asked = asyncio.Event()
        async with listening(get) as channel:
            await asyncio.wait_for(asked.wait(), LIMIT)
            assert await channel.request(channel.exchange()) == {}
            assert (channel.peer.drains, channel.peer.ends) == ([], [])

    async def test_a_stream_that_a_proxy_refuses_for_a_while_is_opened_later(self) -> None:
        async def get(request: HttpRequest) -> bytes | None:
            gets.append(request)
            if len(gets) == 1:
                return chunked(b"retry: 10\n\n")
            if len(gets) in (2, 3):
                request.cut()
                return None
            if len(gets) < 6:
                return response("502 Bad Gateway")
            return await stay_open(request, b"event: other\ndata: {}\n\ndata: nonsense\n\n: alive\n\n", event(NOTE))

        gets: list[HttpRequest] = []
        async with listening(get) as channel:
            await wait_until_async(lambda: channel.peer.notes, "the note")
            assert channel.peer.gaps == 1

    async def test_a_stream_that_the_server_ends_repeatedly_is_always_reopened_after_its_last_event(
        self, monkeypatch
    ) -> None:
        async def get(request: HttpRequest) -> bytes | None:
            gets.append(request.headers.get("last-event-id"))
            if len(gets) < 6:
                return chunked(b"retry: 0\n\n", event(NOTE, str(len(gets))))
            return await stay_open(request, event(NOTE))

        monkeypatch.setattr(streamable_http, "_MAX_DOUBLINGS", 1)
        gets: list[str | None] = []
        async with listening(get) as channel:
            began = time.monotonic()
            await wait_until_async(lambda: len(channel.peer.notes) == 6, "the notes")
            assert time.monotonic() - began >= 0.45  # with a pause before each
        assert gets == [None, "1", "2", "3", "4", "5"]

    @rows("refusal", "404 Not Found", "400 Bad Request")
    async def test_a_server_that_has_had_a_stream_and_refuses_it_has_forgotten_the_session(self, refusal: str) -> None:
        body = {"error": {"message": "Bad Request: No valid session ID provided"}}
        answers = iter([chunked(b"retry: 10\n\n"), response("503 Service Unavailable"), response(refusal, body)])

        async def get(_: HttpRequest) -> bytes:
            return next(answers, response("503 Service Unavailable"))

        async with listening(get) as channel:
            await wait_until_async(lambda: bool(channel.peer.drains), "the end of the session")
        assert channel.peer.drains == [UNKNOWN_SESSION]

    async def test_no_stream_is_opened_without_credentials_for_it(self) -> None:
        class NoCredentials(httpx2.Auth):
            async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
                if request.method == "GET":
                    asked.append(request)
                    msg = "nobody is there"
                    raise MCPAuthorizationError(msg)
                yield request

        asked: list[httpx2.Request] = []
        async with listening(stay_open, auth=NoCredentials()) as channel:
            await wait_until_async(lambda: not channel.background, "the end of the attempts")
        assert len(asked) == 1

    async def test_a_client_is_connected_once_the_stream_is_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streamable_http, "_STREAM_TIMEOUT", LIMIT)
        listed, order = asyncio.Event(), []

        async def answer(request: HttpRequest) -> bytes | None:
            if request.method == "GET":
                await listed.wait()
                await asyncio.sleep(0.1)  # a client that does not wait would be connected by then
                order.append("stream")
                return await stay_open(request, b": open\n\n")
            if request.method == "DELETE" or "id" not in request.message:
                return response("202 Accepted", b"", "")
            listed.set()
            return response("200 OK", result(request, tools=[]))

        async with ScriptedPeer(with_session(answer)) as peer:
            client = StreamableHttpClient(StreamableHttpServerInfo(peer.url, negotiation="handshake"))
            try:
                assert await client.connect() == []
                order.append("connected")
            finally:
                await client.aclose()
        assert order == ["stream", "connected"]


@over_both_stacks
class TestEnds:
    @rows(("version", "is_answered"), (LEGACY, True), (LEGACY, False), (MODERN, True))
    async def test_a_caller_that_gives_up_closes_its_response(self, version: str, is_answered: bool) -> None:
        async def answer(request: HttpRequest) -> bytes | None:
            if "id" not in request.message:
                return response("202 Accepted", b"", "")
            began.set()
            if is_answered:
                await stay_open(request, b": alive\n\n")
            await asyncio.Event().wait()

        began = asyncio.Event()
        async with ScriptedPeer(answer) as peer, connected(peer.url) as channel:
            exchange = channel.exchange(version=version)
            call = asyncio.create_task(channel.request(exchange))
            await asyncio.wait_for(began.wait(), LIMIT)
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled() and exchange.fate is Fate.GIVEN_UP
            told = [] if version == MODERN else ["notifications/cancelled"]
            await wait_until_async(lambda: peer.closed and len(peer.requests) == 1 + len(told), "the end")
        assert [request.message["method"] for request in peer.requests[1:]] == told

    @rows("status", "200 OK", "404 Not Found", "405 Method Not Allowed", "500 No")
    async def test_a_session_is_ended_whatever_the_server_answers(self, status: str) -> None:
        async with ScriptedPeer(with_session(lambda _: response(status))) as peer:
            async with connected(peer.url) as channel:
                await shake_hands(channel)
            assert [request.method for request in peer.requests] == ["POST", "DELETE"]
            assert peer.requests[1].headers["mcp-session-id"] == "s-1"


async def test_a_request_that_gets_its_token_while_the_channel_closes_is_not_sent() -> None:
    class WaitingAuth(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            began.set()
            await token
            yield request

    def handle(request: httpx2.Request) -> httpx2.Response:  # never waits, like an app in this process
        requests.append(request)
        return httpx2.Response(200)

    requests: list[httpx2.Request] = []
    began, token = asyncio.Event(), asyncio.get_running_loop().create_future()
    sender = HttpSender(httpx2.MockTransport(handle), headers={}, timeout={}, auth=WaitingAuth())
    async with channel_over(StreamableHttpTransport(sender, "http://mcp.test/mcp")) as channel:
        exchange, call = channel.start()
        await asyncio.wait_for(began.wait(), LIMIT)
        token.set_result(None)
        await channel.close()
        assert isinstance(await failure_of(call), RefusedError)
        assert exchange.fate is Fate.REFUSED
        assert not requests


@over_both_stacks
@rows("written", lambda request: chunked(event(result(request))), lambda request: response("200 OK", result(request)))
async def test_128_concurrent_requests_are_answered(written: Callable[[HttpRequest], bytes]) -> None:
    async with ScriptedPeer(always(written)) as peer, connected(peer.url) as channel:
        exchanges: list[Exchange] = [channel.exchange() for _ in range(128)]
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*map(channel.request, exchanges))
        assert {exchange.fate for exchange in exchanges} == {Fate.ANSWERED}
        assert len({request.message["id"] for request in peer.requests}) == 128
