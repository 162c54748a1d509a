# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Many calls of one session at the same time, from threads and event loops: everybody gets their own result, and whoever
gives up disturbs nobody.
"""

import asyncio
import contextvars

import pytest
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPCallTimeoutError,
    MCPConnection,
    MCPTool,
    MCPToolset,
    StreamableHttpServerInfo,
)
from tests.support.background import in_loop_of_its_own, text, together
from tests.support.kinds import LONG
from tests.support.waiting import LIMIT, wait_until


@pytest.fixture(params=["stdio", "streamable-http"])
def connection(request, stdio_server, shared_http_server):
    is_http = request.param == "streamable-http"
    info = StreamableHttpServerInfo(shared_http_server().url) if is_http else stdio_server().info()
    with MCPConnection(info, invocation_timeout=LONG) as connection:
        yield connection


def test_calls_from_50_threads_and_three_event_loops_each_get_their_own_result(connection):
    async def call_all(loop: int) -> None:
        names = [f"call {loop}.{number}" for number in range(20)]
        results = await asyncio.gather(*(connection.call_tool_async("echo", {"text": name}) for name in names))
        assert [text(result) for result in results] == names

    names = [f"call {number}" for number in range(50)]
    calls = together(lambda name=name: connection.call_tool("echo", {"text": name}) for name in names)
    for future in [in_loop_of_its_own(lambda loop=loop: call_all(loop)) for loop in range(3)]:
        future.result(timeout=LIMIT)
    assert [text(call.result(timeout=LIMIT)) for call in calls] == names
    status = connection.status()
    assert (status.sessions, status.calls, status.in_flight) == (1, 110, 0)


async def test_cancelling_an_awaited_call_reaches_the_server_and_does_not_disturb_others(stdio_server):
    server = stdio_server()
    tool = MCPTool("sleep", server.info(), invocation_timeout=LONG)
    async with tool:
        other = asyncio.create_task(tool.ainvoke(seconds=1.2))
        await server.wait_for_async("sleep")
        cancelled = asyncio.create_task(tool.ainvoke(seconds=LONG))
        await server.wait_for_async("sleep", 2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await server.wait_for_async("sleep-cancelled")
        assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
        assert "slept 1.2 s" in await other
    assert len(server.pids()) == 1


async def test_cancelling_a_warm_up_leaves_it_to_the_others_and_that_of_the_last_one_ends_the_server(stdio_server):
    server = stdio_server("--slow-list", "0.8")
    toolsets = [MCPToolset(server.info()) for _ in range(3)]

    async def cancel_warm_up(toolset: MCPToolset, listings: int) -> None:
        cancelled = asyncio.create_task(toolset.warm_up_async())
        await server.wait_for_async("@tools/list", listings)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    kept = asyncio.create_task(toolsets[0].warm_up_async())
    await cancel_warm_up(toolsets[1], 1)
    await kept
    assert len(server.pids()) == 1
    for toolset in toolsets:
        await toolset.close_async()
    server.wait_until_gone()
    await cancel_warm_up(toolsets[2], 2)
    server.wait_until_gone()


def test_a_tool_in_process_that_calls_another_of_its_server_is_held_to_its_own_deadline():
    server = MCPServer("nested", log_level="WARNING")

    @server.tool()
    async def inner() -> str:
        await asyncio.sleep(60)
        return "inner"

    @server.tool()
    async def outer() -> str:
        await connection.call_tool_async("inner", invocation_timeout=60)
        await asyncio.sleep(60)
        return "outer"

    with MCPConnection(InProcessServerInfo(server), invocation_timeout=0.3) as connection:
        with pytest.raises(MCPCallTimeoutError, match=r"`outer`: timed out after 0\.3 seconds"):
            connection.call_tool("outer")
        wait_until(lambda: not connection.status().in_flight, "the end of the inner call, too")


name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


async def test_context_variables_of_an_asynchronous_caller_are_visible_in_process():
    server = MCPServer("looking")

    @server.tool()
    def look() -> str:
        return name.get()

    users = [f"user {number}" for number in range(5)]

    async def ask(value: str) -> str:
        name.set(value)
        return text(await connection.call_tool_async("look"))

    async with MCPConnection(InProcessServerInfo(server)) as connection:
        assert await asyncio.gather(*map(ask, users)) == users
