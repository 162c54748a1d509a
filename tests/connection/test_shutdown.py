# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The executor is shut down under its users: servers end, calls fail, and the next use starts anew.
"""

import asyncio
import gc
import threading

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
)
from tests.support.background import together
from tests.support.kinds import LONG
from tests.support.processes import StdioServer
from tests.support.waiting import LIMIT, wait_until


def reach(server: StdioServer) -> StdioServerInfo:
    return StdioServerInfo(server.command, server.args, base_delay=0.05, max_delay=0.2)


def test_shutting_the_executor_down_ends_the_servers_and_tools_reconnect(stdio_server):
    server = stdio_server()
    with MCPTool("add", reach(server)) as tool, MCPToolset(reach(server), tool_names=["echo"]) as toolset:
        AsyncExecutor.get_instance().shutdown()
        server.wait_until_gone()
        assert tool._connection.status().state == "lost"
        assert '"3"' in tool.invoke(a=1, b=2)
        toolset.warm_up()
        assert "hello" in toolset[0].invoke(text="hello")
    assert len(server.pids()) == 2


def test_after_a_shutdown_a_new_executor_is_given():
    old = AsyncExecutor.get_instance()
    old.shutdown()
    old.shutdown()
    new = AsyncExecutor.get_instance()
    assert new is not old
    assert new is AsyncExecutor.get_instance()


def test_shutting_the_executor_down_fails_calls_in_flight_promptly(stdio_server):
    server = stdio_server()
    with MCPTool("sleep", reach(server), invocation_timeout=LONG) as tool:
        calls = together([lambda: tool.invoke(seconds=LONG)] * 3)
        server.wait_for("sleep", 3)
        AsyncExecutor.get_instance().shutdown()
        errors = [call.exception(timeout=LIMIT) for call in calls]
        assert all(isinstance(error, MCPInvocationError) for error in errors), errors
        assert all("shut down" in str(error) or "closed" in str(error) for error in errors), errors
        assert all("may have run" in str(error) for error in errors), errors
    server.wait_until_gone()


def test_shutting_the_executor_down_opens_no_session_that_nobody_would_close(stdio_server, caplog):
    hung, late = stdio_server("--stubborn"), stdio_server("--stubborn", "--hang-at-start")
    executor = AsyncExecutor.get_instance()
    connection = MCPConnection(reach(late))

    async def open_late() -> None:
        # As a call does that was in the loop already, and whose session was lost.
        while not executor._closing:
            await asyncio.sleep(0.01)
        await connection._acquire().base.ready_session(LONG)

    with MCPConnection(reach(hung)):
        hung.freeze()
        opening, _ = executor.run_background(lambda _: open_late())
        executor.shutdown()
    assert isinstance(opening.exception(timeout=LIMIT), MCPConnectionError)
    assert late.pids() == []
    assert "did not end" not in caplog.text
    connection.close()


def test_a_close_after_a_shutdown_is_quick_and_silent(stdio_server, caplog):
    server = stdio_server()
    tool = MCPTool("add", reach(server))
    tool.warm_up()
    AsyncExecutor.get_instance().shutdown()
    caplog.clear()
    tool.close()
    assert caplog.text == ""
    server.wait_until_gone()


def test_a_collection_after_a_shutdown_leaves_no_user_behind(stdio_server):
    server = stdio_server()
    tool = MCPTool("add", reach(server))
    tool.warm_up()
    AsyncExecutor.get_instance().shutdown()
    server.wait_until_gone()
    del tool
    gc.collect()
    with MCPConnection(reach(server)) as connection:
        assert connection.status().users == 1
    server.wait_until_gone()


def test_shutting_the_executor_down_under_a_storm_of_calls_hangs_nobody(stdio_server):
    server = stdio_server()
    with MCPTool("echo", reach(server), invocation_timeout=LONG) as tool:
        stop = threading.Event()

        def call() -> int:
            calls = 0
            while not stop.is_set():
                calls += 1
                try:
                    tool.invoke(text="hello")
                except MCPInvocationError:
                    continue
            return calls

        callers = together([call] * 4)
        for _ in range(3):
            wait_until(lambda: tool._connection.status().state == "ready", "a session")
            AsyncExecutor.get_instance().shutdown()
        stop.set()
        assert all(caller.result(timeout=LIMIT) for caller in callers)


def test_shutting_the_executor_down_ends_a_server_that_ignores_everything(stdio_server) -> None:
    server = stdio_server("--stubborn")
    connection = MCPConnection(reach(server))
    connection.open()
    AsyncExecutor.get_instance().shutdown()
    wait_until(lambda: not server.alive(), "the end of the server process")
    assert connection.status().state == "lost"
    connection.close()
