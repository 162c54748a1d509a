# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over stdio that cannot be started, or ends or falls silent at its start: the error says why, at once.
"""

import sys

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
)
from tests.support.kinds import LONG, QUICKLY


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([sys.executable, "-c", "raise SystemExit('config.toml is missing')"], "exit code 1.*config.toml is missing"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], "killed by signal 11"),
        ([sys.executable, "-c", "import os, time; os.close(1); time.sleep(1000)"], "closed its output"),
        (["no-such-command-anywhere"], "'no-such-command-anywhere' was not found"),
        ([__file__], r"test_no_start\.py' may not be executed"),
        ([sys.executable, "/no/such/folder"], "working directory '/no/such/folder' does not exist"),
    ],
    ids=["exit code", "signal", "closed output", "unknown command", "no program", "no folder"],
)
def test_a_server_that_ends_at_its_start_or_cannot_be_started_is_reported_at_once(command, reason):
    cwd = command.pop() if "working directory" in reason else None
    info = StdioServerInfo(command[0], command[1:], cwd=cwd, **QUICKLY)
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=reason):
        connection.open()
    assert connection.status().state == "idle"
    with pytest.raises(MCPInvocationError, match=rf"(?s){reason}.*did not run"):
        connection.call_tool("add", {"a": 1, "b": 1})
    connection.close()


def test_a_server_without_the_wanted_tool_is_left_at_once(stdio_server):
    server = stdio_server()
    tool, toolset = MCPTool("no_such", server.info()), MCPToolset(server.info(), tool_names=["no_such"])
    for cold in (tool, toolset):
        with pytest.raises(MCPToolNotFoundError):
            cold.warm_up()
    server.wait_until_gone()
    with pytest.raises(MCPInvocationError, match="not found"):
        tool.invoke()
