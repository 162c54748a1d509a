# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Users that are dropped and not closed: the last one ends the server, and nothing deadlocks.
"""

import asyncio
import gc
import weakref

import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    warm_up_toolsets,
)
from tests.support.background import text
from tests.support.processes import StdioServer
from tests.support.waiting import LIMIT, wait_until


def reach(server: StdioServer) -> StdioServerInfo:
    return StdioServerInfo(server.command, server.args, base_delay=0.05, max_delay=0.2)


@pytest.mark.parametrize("use", [lambda info: MCPTool("add", info), MCPToolset], ids=["tool", "toolset"])
def test_collecting_a_user_ends_its_server(stdio_server, use):
    server = stdio_server()
    user = use(reach(server))
    user.warm_up()
    del user
    gc.collect()
    server.wait_until_gone()


def test_dropping_a_connection_ends_its_server_without_a_cycle_to_collect(stdio_server):
    server = stdio_server()
    connection = MCPConnection(reach(server))
    connection.call_tool("add", {"a": 1, "b": 2})
    gc.disable()
    try:
        del connection
        server.wait_until_gone()
    finally:
        gc.enable()


def test_a_collected_toolset_leaves_the_session_to_its_tools(stdio_server):
    server = stdio_server()
    toolset = MCPToolset(reach(server), tool_names=["echo"])
    toolset.warm_up()
    tool = toolset[0]
    del toolset
    gc.collect()
    assert "hello" in tool.invoke(text="hello")
    assert len(server.pids()) == 1
    del tool
    gc.collect()
    server.wait_until_gone()


def test_collecting_in_the_thread_of_the_executor_does_not_stall_it(stdio_server):
    server = stdio_server()
    tools = [MCPTool("add", reach(server)), MCPToolset(reach(server))]
    for tool in tools:
        tool.warm_up()
    del tool

    async def collect() -> None:
        tools.clear()
        gc.collect()

    executor = AsyncExecutor.get_instance()
    executor.run(collect(), timeout=LIMIT)
    server.wait_until_gone()
    with MCPConnection(reach(server)) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"


class Anything:
    """Something that a caller holds in a local variable."""


@pytest.mark.parametrize(
    "use",
    [
        lambda info: MCPTool("x", info).invoke(),
        lambda info: asyncio.run(MCPTool("x", info).ainvoke()),
        lambda info: warm_up_toolsets([MCPToolset(info), MCPToolset(info)]),
    ],
)
def test_a_failed_connect_keeps_nothing_of_its_caller_alive(use):
    def fail(number: int) -> weakref.ref[Anything]:
        held = Anything()
        with pytest.raises((MCPConnectionError, MCPInvocationError)):
            use(StdioServerInfo("no-such-command", [str(number)]))
        return weakref.ref(held)

    held = [fail(number) for number in range(3)]

    def is_forgotten() -> bool:
        gc.collect()
        return not any(each() for each in held)

    wait_until(is_forgotten, "the end of the callers' frames")
