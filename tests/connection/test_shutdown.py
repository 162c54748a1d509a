# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The executor is shut down under its users: servers end, calls fail, and the next use starts anew.
"""

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPConnection,
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


def test_shutting_the_executor_down_ends_a_server_that_ignores_everything(stdio_server) -> None:
    server = stdio_server("--stubborn")
    connection = MCPConnection(reach(server))
    connection.open()
    AsyncExecutor.get_instance().shutdown()
    wait_until(lambda: not server.alive(), "the end of the server process")
    assert connection.status().state == "lost"
    connection.close()
