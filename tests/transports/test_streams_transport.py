# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests over streams of the SDK's messages, and to its servers in this process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from mcp import types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server import MCPServer, Server
from mcp.shared.memory import create_client_server_memory_streams

from haystack_integrations.tools.mcp.protocol.exchange import (
    Fate,
    LostError,
    RefusedError,
)
from haystack_integrations.tools.mcp.transports import in_process
from haystack_integrations.tools.mcp.transports.in_process import InProcessTransport
from haystack_integrations.tools.mcp.transports.sdk_streams import Streams, StreamsTransport
from tests.support.exchanges import TestedChannel, channel_over, failure_of
from tests.support.processes import PLAIN_SERVER, python_script
from tests.support.waiting import wait_until_async
from tests.transports.test_in_process import FATAL

HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
caller: ContextVar[str] = ContextVar("caller", default="nobody")


class Tools:
    """
    The tools of a server, and what they have seen.
    """

    def __init__(self) -> None:
        self.is_running = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        self.lifespan = "before"
        self.server: Server[Any] = Server("tools", on_call_tool=self.call, lifespan=self.live)

    @asynccontextmanager
    async def live(self, server: Server[Any]) -> AsyncIterator[None]:
        assert server is self.server
        self.lifespan = "within"
        yield
        self.lifespan = "after"

    async def call(self, _context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = "done"
        if params.name == "sleep":
            self.is_running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.was_cancelled.set()
                raise
        elif params.name == "who":
            text = caller.get()
        return types.CallToolResult(content=[types.TextContent(text=text)])


@asynccontextmanager
async def in_this_process(tools: Tools) -> AsyncIterator[TestedChannel]:
    async with channel_over(InProcessTransport(tools.server)) as channel:
        await channel.request(channel.exchange("initialize", HANDSHAKE))
        await channel.tell("notifications/initialized")
        yield channel


def call_of(name: str) -> dict[str, Any]:
    return {"name": name, "arguments": {}}


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


class TestInThisProcess:
    async def test_a_server_answers_in_the_context_of_the_caller_and_lives_as_long_as_the_session(self):
        tools = Tools()
        async with in_this_process(tools) as channel:
            assert tools.lifespan == "within"
            caller.set("somebody")
            assert text_of(await channel.request(channel.exchange("tools/call", call_of("who")))) == "somebody"
        assert tools.lifespan == "after"
        assert len(tools.server.middleware) == len(Server("other").middleware)

    async def test_a_tool_whose_caller_gives_up_is_cancelled(self):
        tools = Tools()
        async with in_this_process(tools) as channel:
            exchange, call = channel.start("tools/call", call_of("sleep"))
            await tools.is_running.wait()
            call.cancel()
            await tools.was_cancelled.wait()
            assert exchange.fate is Fate.GIVEN_UP
            assert text_of(await channel.request(channel.exchange("tools/call", call_of("quick")))) == "done"

    @pytest.mark.parametrize("error", [*FATAL, LookupError("no database")], ids=lambda error: type(error).__name__)
    async def test_what_a_lifespan_raises_fails_the_opening_and_an_exception_is_raised_as_it_is(self, error):
        @asynccontextmanager
        async def live(_server: Any) -> AsyncIterator[None]:
            raise error
            yield

        transport = InProcessTransport(Server("broken", lifespan=live))
        channel = TestedChannel(transport)
        with pytest.raises((ConnectionError, LookupError)) as raised:
            await transport.open()
        assert raised.value is error or str(raised.value) == f"the server raised {type(error).__name__}"
        assert (raised.value is error) == isinstance(error, Exception)
        await channel.close()

    async def test_an_opening_that_is_given_up_ends_the_server(self):
        was_cancelled = asyncio.Event()

        @asynccontextmanager
        async def live(_server: Any) -> AsyncIterator[None]:
            try:
                await asyncio.Event().wait()
            finally:
                was_cancelled.set()
            yield

        transport = InProcessTransport(Server("slow", lifespan=live))
        TestedChannel(transport)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transport.open(), 0.1)
        await was_cancelled.wait()

    async def test_closing_ends_what_is_under_way_within_a_bound(self, monkeypatch):
        monkeypatch.setattr(in_process, "_GRACE", 0.2)
        goes_on = asyncio.Event()
        server = MCPServer("stubborn")

        @server.tool()
        async def resist() -> str:
            while not goes_on.is_set():
                with anyio.CancelScope(shield=True):
                    await asyncio.shield(goes_on.wait())
            return "at last"

        async with channel_over(InProcessTransport(server._lowlevel_server)) as channel:
            await channel.request(channel.exchange("initialize", HANDSHAKE))
            await channel.tell("notifications/initialized")
            exchange, call = channel.start("tools/call", call_of("resist"))
            await asyncio.sleep(0.05)
            closing = asyncio.create_task(channel.close())
            assert isinstance(await failure_of(call), LostError)
            assert exchange.fate is Fate.LOST
            await closing
        goes_on.set()


class TestStreams:
    async def test_a_process_of_the_sdk_is_served_and_ends(self, tmp_path):
        command, *args = python_script(PLAIN_SERVER, "--calls-file", str(tmp_path / "calls"))
        parameters = StdioServerParameters(command=command, args=args)
        async with channel_over(StreamsTransport(lambda: stdio_client(parameters))) as channel:
            result = await channel.request(channel.exchange("initialize", HANDSHAKE))
            assert result["serverInfo"]
            await channel.tell("notifications/initialized")
            assert (await channel.request(channel.exchange("tools/list", {})))["tools"]

    async def test_requests_in_flight_are_lost_and_later_ones_refused_when_the_streams_end(self):
        async with channel_over(StreamsTransport(pair := Pair())) as channel:
            exchange, request = channel.start()
            await pair.taken(1)
            await pair.far[1].aclose()
            assert isinstance(await failure_of(request), LostError)
            assert exchange.fate is Fate.LOST
            assert channel.peer.ends == [None]
            assert isinstance(await channel.failure(channel.exchange()), RefusedError)

    async def test_a_request_that_nobody_takes_did_not_run(self):
        async with channel_over(StreamsTransport(pair := Pair())) as channel:
            await pair.far[0].aclose()
            exchange = channel.exchange()
            assert isinstance(await channel.failure(exchange), RefusedError)
            assert exchange.fate is Fate.REFUSED

    async def test_what_the_sdk_cannot_read_is_ignored_and_logged_once(self, caplog):
        async with channel_over(StreamsTransport(pair := Pair())) as channel:
            for _ in range(2):
                await pair.far[1].send(ValueError("s3same"))
            await wait_until_async(lambda: channel.peer.heard_times == 2, "both")
            assert not channel.has_ended
        assert caplog.text.count("no message") == 1
        assert "s3same" not in caplog.text

    async def test_streams_that_cannot_be_opened_fail_the_opening(self):
        transport = StreamsTransport(lambda: stdio_client(StdioServerParameters(command="/no/such/command")))
        TestedChannel(transport)
        with pytest.raises(OSError, match="no/such/command"):
            await transport.open()


class Pair:
    """
    Opens a pair of streams, of which `far` is the server's.
    """

    far: Streams

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Streams]:
        async with create_client_server_memory_streams() as (near, self.far):
            yield near

    async def taken(self, count: int) -> None:
        for _ in range(count):
            await self.far[0].receive()
