# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Users that are closed or dropped, and the shutdown of their executor: it blocks nobody and leaves no process.
"""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

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
from tests.support.background import text, together
from tests.support.kinds import LONG
from tests.support.waiting import LIMIT, wait_until


async def test_a_close_goes_on_when_its_caller_is_cancelled(stdio_server) -> None:
    server = stdio_server()
    connection = MCPConnection(server.info())
    await connection.open_async()
    closing = asyncio.create_task(connection.close_async())
    asyncio.get_running_loop().call_soon(closing.cancel)
    with pytest.raises(asyncio.CancelledError):
        await closing
    wait_until(lambda: not server.alive(), "the end of the server process")


def test_shutting_the_executor_down_ends_the_servers_and_tools_reconnect(stdio_server):
    server = stdio_server()
    with MCPTool("add", server.info()) as tool, MCPToolset(server.info(), tool_names=["echo"]) as toolset:
        AsyncExecutor.get_instance().shutdown()
        server.wait_until_gone()
        assert tool._connection.status().state == "lost"
        assert '"3"' in tool.invoke(a=1, b=2)
        toolset.warm_up()
        assert "hello" in toolset[0].invoke(text="hello")
    assert len(server.pids()) == 2


def test_shutting_the_executor_down_fails_calls_in_flight_promptly(stdio_server):
    server = stdio_server()
    with MCPTool("sleep", server.info(), invocation_timeout=LONG) as tool:
        calls = together([lambda: tool.invoke(seconds=LONG)] * 3)
        server.wait_for("sleep", 3)
        AsyncExecutor.get_instance().shutdown()
        errors = [call.exception(timeout=LIMIT) for call in calls]
        assert all(isinstance(error, MCPInvocationError) for error in errors), errors
        assert all("shut down" in str(error) or "closed" in str(error) for error in errors), errors
        assert all("may have run" in str(error) for error in errors), errors
    server.wait_until_gone()


def test_a_collected_toolset_leaves_the_session_to_its_tools(stdio_server):
    server = stdio_server()
    toolset = MCPToolset(server.info(), tool_names=["echo"])
    toolset.warm_up()
    tool = toolset[0]
    del toolset
    gc.collect()
    assert "hello" in tool.invoke(text="hello")
    assert len(server.pids()) == 1
    del tool
    gc.collect()
    server.wait_until_gone()


@pytest.mark.parametrize("way", ["closed", "collected"])
def test_in_the_thread_of_the_executor_users_may_be_closed_or_collected(stdio_server, way):
    server = stdio_server()
    users = [MCPTool("add", server.info()), MCPToolset(server.info())]
    for user in users:
        user.warm_up()
    del user

    async def forget() -> None:
        if way == "closed":
            for each in users:
                each.close()
        users.clear()
        gc.collect()

    AsyncExecutor.get_instance().run(forget(), timeout=LIMIT)
    server.wait_until_gone()
    with MCPConnection(server.info()) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"


def test_a_failed_connect_keeps_nothing_of_its_caller_alive():
    def fail(use: Callable[[StdioServerInfo], object]) -> weakref.ref[Any]:
        held = {"something in a local variable"}
        with pytest.raises((MCPConnectionError, MCPInvocationError)):
            use(StdioServerInfo("no-such-command"))
        return weakref.ref(held)

    held = [
        fail(lambda info: MCPTool("x", info).invoke()),
        fail(lambda info: asyncio.run(MCPTool("x", info).ainvoke())),
        fail(lambda info: warm_up_toolsets([MCPToolset(info), MCPToolset(info)])),
    ]
    wait_until(lambda: gc.collect() >= 0 and not any(each() for each in held), "the end of the callers' frames")
