# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Transports that crash, end, and are slow to close. One that crashes cancels the task that owns the session, which must
not be the end of anything else.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp
import pytest
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
    sessions: int = 0
    # Closing waits for it.
    may_close: threading.Event = field(default_factory=threading.Event)

    @asynccontextmanager
    async def transport(self, server: MCPServer) -> AsyncIterator[tuple[Any, Any]]:
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

        return self._client(self._wire.transport(server))


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
    assert wire.sessions == 2


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
