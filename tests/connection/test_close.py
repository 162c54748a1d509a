# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Whoever closes, wherever: it blocks nobody and leaves no process.
"""

import asyncio

import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPConnection,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
)
from tests.support.background import in_thread, together
from tests.support.kinds import LONG
from tests.support.processes import StdioServer
from tests.support.waiting import LIMIT, wait_until


def reach(server: StdioServer) -> StdioServerInfo:
    return StdioServerInfo(server.command, server.args, base_delay=0.05, max_delay=0.2)


def test_closing_in_the_thread_of_the_executor_does_not_block_it(stdio_server):
    server = stdio_server()
    tool, toolset = MCPTool("add", reach(server)), MCPToolset(reach(server))
    tool.warm_up()
    toolset.warm_up()

    async def close() -> None:
        tool.close()
        toolset.close()

    AsyncExecutor.get_instance().run(close(), timeout=LIMIT)
    server.wait_until_gone()


def test_closing_by_a_tool_that_runs_in_process_does_not_block():
    from mcp.server import MCPServer

    server = MCPServer("suicidal")
    tool = MCPTool("leave", InProcessServerInfo(server), invocation_timeout=LONG)

    def leave() -> str:
        tool.close()
        return "bye"

    server.add_tool(leave)
    call = in_thread(tool.invoke)
    call.exception(timeout=LIMIT)  # an answer or an error, but soon
    tool.close()


def test_closing_by_many_threads_at_once_closes_once(stdio_server):
    server = stdio_server()
    tool = MCPTool("add", reach(server))
    tool.warm_up()
    for future in together([tool.close] * 8):
        future.result(timeout=LIMIT)
    server.wait_until_gone()


def test_closing_before_anything_was_opened_does_nothing(stdio_server):
    server = stdio_server()
    for user in (MCPTool("add", reach(server)), MCPToolset(reach(server)), MCPConnection(reach(server))):
        user.close()
        user.close()
    assert server.pids() == []


async def test_a_close_goes_on_when_its_caller_is_cancelled(stdio_server) -> None:
    server = stdio_server()
    connection = MCPConnection(reach(server))
    await connection.open_async()
    closing = asyncio.create_task(connection.close_async())
    asyncio.get_running_loop().call_soon(closing.cancel)
    with pytest.raises(asyncio.CancelledError):
        await closing
    wait_until(lambda: not server.alive(), "the end of the server process")
