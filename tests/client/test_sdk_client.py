# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Transports that crash, end, and are slow to close. One that crashes cancels the task that owns the session, which must
not be the end of anything else.
"""

import asyncio
import gc
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp
import pytest
from mcp import types
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPServerInfo,
)
from haystack_integrations.tools.mcp.client.sdk_client import SDKClient
from tests.support.background import in_thread
from tests.support.waiting import LIMIT


@dataclass
class Wire:
    """
    Crashes when the client sends a message with the method `crash_at`, which then never reaches the server.
    """

    crash_at: str | None = None
    # Ends the stream of messages from the server when the client sends a message with this method.
    end_at: str | None = None
    # Ends the session when the client sends a message with this method, as the HTTP client does that was refused one.
    lose_at: str | None = None
    sessions: int = 0
    closed: int = 0
    # Closing waits for it.
    may_close: threading.Event = field(default_factory=threading.Event)

    @asynccontextmanager
    async def transport(self, server: MCPServer, lose: Callable[[str], None]) -> AsyncIterator[tuple[Any, Any]]:
        self.sessions += 1
        crash = asyncio.Event()

        async def crash_when_told() -> None:
            await crash.wait()
            raise OSError("the wire broke")

        wire = self

        class Outgoing:
            def __init__(self, stream: Any) -> None:
                self._stream = stream

            async def send(self, message: Any) -> None:
                method = getattr(message.message, "method", None)
                if method is not None and method == wire.crash_at:
                    crash.set()
                elif method is not None and method == wire.end_at:
                    await read.aclose()
                elif method is not None and method == wire.lose_at:
                    asyncio.get_running_loop().call_soon(lose, "the server refused a message")
                else:
                    await self._stream.send(message)

            async def aclose(self) -> None:
                await self._stream.aclose()

            async def __aenter__(self) -> "Outgoing":
                return self

            async def __aexit__(self, *_exc_info: Any) -> None:
                await self.aclose()

        async with InMemoryTransport(server._lowlevel_server) as (read, write), anyio.create_task_group() as group:
            group.start_soon(crash_when_told)
            try:
                yield read, Outgoing(write)
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self.may_close.wait, LIMIT)
                self.closed += 1


class WireClient(SDKClient):
    _handshake_first = True

    def __init__(self, wire: Wire) -> None:
        super().__init__(max_retries=0)
        self._wire = wire

    def _describe(self) -> str:
        return "a server on a wire"

    def _server_info(self) -> None:
        return None

    async def _open_transport(self) -> mcp.Client:
        server = MCPServer("wired")

        @server.tool()
        def echo(text: str) -> str:
            return text

        return self._client(self._wire.transport(server, self.life.end))

    async def _advice(self) -> str | None:
        return "Mend the wire."


@dataclass
class WireInfo(MCPServerInfo):
    wire: Wire
    max_retries: int = 0

    def create_client(self) -> MCPClient:
        return WireClient(self.wire)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    wire.may_close.set()
    yield wire
    wire.may_close.set()


def test_a_transport_that_crashes_under_a_call_fails_it_with_the_reason_and_the_next_call_opens_a_session(wire):
    with MCPConnection(WireInfo(wire), share=False) as connection:
        assert connection.call_tool("echo", {"text": "one"}).structured_content == {"result": "one"}
        wire.crash_at = "tools/call"
        with pytest.raises(MCPInvocationError, match="may have run"):
            in_thread(lambda: connection.call_tool("echo", {"text": "two"})).result(timeout=LIMIT)
        assert connection.status().state == "lost"
        wire.crash_at = None
        assert connection.call_tool("echo", {"text": "three"}).structured_content == {"result": "three"}
    assert wire.sessions == wire.closed == 2


def test_a_transport_that_crashes_under_a_listing_fails_it_and_the_loss_is_logged_once(wire, caplog):
    with MCPConnection(WireInfo(wire), share=False) as connection:
        wire.crash_at = "tools/list"
        with pytest.raises(MCPConnectionError):
            in_thread(connection.list_tools).result(timeout=LIMIT)
        wire.crash_at = None
        assert [tool.name for tool in connection.list_tools()] == ["echo"]
    assert caplog.text.count("Lost the session with WireInfo") == 1
    assert wire.sessions == 2


def test_a_pending_call_fails_when_its_session_ends_and_not_when_the_transport_has_finished_closing(wire):
    wire.may_close.clear()
    with MCPConnection(WireInfo(wire), share=False) as connection:
        wire.end_at = "tools/call"
        pending = in_thread(lambda: connection.call_tool("echo", {"text": "one"}))
        with pytest.raises(MCPInvocationError, match=r"the server closed the connection\. The tool may have run"):
            pending.result(timeout=LIMIT / 2)
        assert connection.status().state == "lost"
        wire.may_close.set()


@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/list"])
def test_a_transport_that_crashes_while_a_session_opens_fails_the_connect_with_the_reason(wire, method):
    wire.crash_at = method
    connection = MCPConnection(WireInfo(wire), share=False)
    with pytest.raises(MCPConnectionError, match="Failed to connect to a server on a wire: the wire broke"):
        in_thread(connection.open).result(timeout=LIMIT)
    wire.crash_at = None
    connection.open()
    connection.close()
    assert wire.sessions == 2


async def test_a_client_without_a_connection_opens_calls_closes_and_opens_again(wire):
    client = WireClient(wire)
    with pytest.raises(MCPConnectionError, match="Not connected"):
        await client.call_tool("echo", {"text": "early"})
    for round_ in ("first", "second"):
        assert [tool.name for tool in await client.connect()] == ["echo"]
        assert round_ in await client.call_tool("echo", {"text": round_})
        await client.aclose()
        with pytest.raises(MCPConnectionError):
            await client.call_tool("echo", {"text": "late"})


async def test_a_client_without_a_connection_connects_after_a_failure(wire):
    client = WireClient(wire)
    wire.crash_at = "tools/list"
    with pytest.raises(MCPConnectionError, match="the wire broke"):
        await client.connect()
    wire.crash_at = None
    assert [tool.name for tool in await client.connect()] == ["echo"]
    await client.aclose()
    assert not asyncio.current_task().cancelling()


MESSAGES_OF_A_CONNECT = ["initialize", "notifications/initialized", "tools/list"]


@pytest.mark.parametrize("method", MESSAGES_OF_A_CONNECT)
async def test_a_session_that_is_lost_while_a_client_connects_leaves_no_cancellation_in_its_task(wire, method):
    client = WireClient(wire)
    for _ in range(3):
        wire.lose_at = method
        with pytest.raises(MCPConnectionError, match="the server refused a message"):
            await asyncio.wait_for(client.connect(), LIMIT)
        assert not asyncio.current_task().cancelling()
    wire.lose_at = None
    assert [tool.name for tool in await client.connect()] == ["echo"]
    await client.aclose()


@pytest.mark.parametrize("method", MESSAGES_OF_A_CONNECT)
def test_a_session_that_is_lost_while_it_opens_is_reported_with_the_advice(wire, method):
    wire.lose_at = method
    connection = MCPConnection(WireInfo(wire), share=False)
    with pytest.raises(MCPConnectionError, match=r"the server refused a message\. Mend the wire\.$"):
        connection.open()
    connection.close()


@pytest.mark.parametrize("lost", [False, True])
def test_closing_does_not_wait_for_the_advice_about_a_failed_connect(wire, lost):
    looking = threading.Event()

    class Pensive(WireClient):
        async def _advice(self) -> str | None:
            looking.set()
            await asyncio.Event().wait()
            raise AssertionError

    class Info(WireInfo):
        def create_client(self) -> MCPClient:
            return Pensive(self.wire)

    wire.lose_at, wire.crash_at = ("initialize", None) if lost else (None, "initialize")
    connection = MCPConnection(Info(wire), share=False)
    opening = in_thread(connection.open)
    assert looking.wait(LIMIT)
    in_thread(connection.close).result(timeout=LIMIT)
    with pytest.raises(MCPConnectionError, match="the connection was closed"):
        opening.result(timeout=LIMIT)


def test_a_client_may_try_again_to_connect_in_its_own_connect(wire):
    class Persistent(WireClient):
        async def connect(self) -> list[types.Tool]:
            try:
                return await super().connect()
            except MCPConnectionError:
                wire.lose_at = wire.crash_at = None
                return await super().connect()

    class Info(WireInfo):
        def create_client(self) -> MCPClient:
            return Persistent(self.wire)

    for method in MESSAGES_OF_A_CONNECT:
        for attribute in ("lose_at", "crash_at"):
            setattr(wire, attribute, method)
            with MCPConnection(Info(wire), share=False) as connection:
                assert connection.call_tool("echo", {"text": "one"}).structured_content == {"result": "one"}


def test_a_client_may_call_a_tool_in_its_own_connect(wire):
    class LoggingIn(WireClient):
        async def connect(self) -> list[types.Tool]:
            tools = await super().connect()
            assert "me" in await self.call_tool("echo", {"text": "me"})
            return tools

    class Info(WireInfo):
        def create_client(self) -> MCPClient:
            return LoggingIn(self.wire)

    with MCPConnection(Info(wire), share=False) as connection:
        assert connection.status().state == "ready"


def test_a_custom_client_around_a_client_of_this_package_learns_of_its_loss(wire, caplog):
    class Wrapper(MCPClient):
        def __init__(self) -> None:
            super().__init__(max_retries=0)
            self._inner = WireClient(wire)

        async def connect(self) -> list[types.Tool]:
            return await self._inner.connect()

        async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
            return await self._inner.call_tool(tool_name, tool_args)

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Info(MCPServerInfo):
        def create_client(self) -> MCPClient:
            return Wrapper()

    with MCPConnection(Info()) as connection:
        wire.end_at = "tools/call"
        with pytest.raises(MCPInvocationError, match="may have run"):
            connection.call_tool("echo", {"text": "one"})
        assert connection.status().state == "lost"
        wire.end_at = None
        assert connection.call_tool("echo", {"text": "two"}).structured_content == {"result": "two"}
    assert wire.sessions == 2
    assert re.search(r"Lost the session with Info after \S+ s: the server closed the connection", caplog.text)


def test_a_custom_client_that_ends_its_session_while_its_caller_gives_up_makes_no_noise(caplog):
    finished, gave_up = threading.Event(), threading.Event()

    class Client(MCPClient):
        async def connect(self) -> list[types.Tool]:
            asyncio.get_running_loop().call_later(0.05, self.life.end, "lost early")
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.to_thread(gave_up.wait, LIMIT)
            raise AssertionError

        async def aclose(self) -> None:
            finished.set()

    class Info(MCPServerInfo):
        def create_client(self) -> MCPClient:
            return Client()

    connection = MCPConnection(Info(), connection_timeout=0.2)
    with pytest.raises(TimeoutError):
        connection.open()
    gave_up.set()
    assert finished.wait(LIMIT)
    connection.close()
    gc.collect()
    assert "never retrieved" not in caplog.text
