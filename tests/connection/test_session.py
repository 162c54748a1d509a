# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Sessions that end before they have begun.
"""

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest
from mcp import types
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import AsyncExecutor, InProcessServerInfo, MCPClient, MCPConnection, MCPServerInfo
from haystack_integrations.tools.mcp.connection.session import Session
from tests.support.waiting import LIMIT


async def test_a_session_that_is_closed_before_it_starts_is_forgotten_and_holds_nobody_up() -> None:
    client = InProcessServerInfo(MCPServer("never used")).create_client()
    session = Session(client, "a server", on_end=lambda *_: None)
    opening, closing = asyncio.create_task(session.open()), asyncio.create_task(session.close())
    await asyncio.wait({opening, closing}, timeout=LIMIT)
    assert opening.cancelled()
    assert closing.done()
    forgotten = weakref.ref(session)
    del session, client, opening, closing
    gc.collect()
    assert forgotten() is None


def test_a_session_that_is_opened_just_as_the_last_one_who_waits_gives_up_is_closed() -> None:
    closed = threading.Event()

    class Client(MCPClient):
        async def connect(self) -> list[types.Tool]:
            for waiting in AsyncExecutor.get_instance()._operations:
                waiting.cancel()  # as the caller's timer may, in this very turn of the loop
            return []

        async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
            raise NotImplementedError

        async def aclose(self) -> None:
            closed.set()

    class Info(MCPServerInfo):
        def create_client(self) -> MCPClient:
            return Client()

    connection = MCPConnection(Info())
    with pytest.raises(RuntimeError, match="cancelled"):
        connection.open()
    assert closed.wait(LIMIT)
    assert connection.status().state == "idle"
    connection.close()
