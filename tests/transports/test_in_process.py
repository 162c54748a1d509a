# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers in this very process, and what they could do to it.
"""

from typing import Any

import pytest
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPInvocationError,
    MCPTool,
    StdioServerInfo,
)
from tests.support.background import in_thread
from tests.support.waiting import LIMIT

SECRET = "sk-s3ntinel-4711"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_server_in_this_process_that_exits_ends_nothing_else(stdio_server: Any, error: type[BaseException]) -> None:
    server = MCPServer("quitter")

    @server.tool()
    async def leave() -> str:
        raise error(2)

    other = stdio_server()
    with (
        MCPConnection(StdioServerInfo(other.command, other.args)) as connection,
        MCPTool("leave", InProcessServerInfo(server)) as tool,
    ):
        call = in_thread(connection.call_tool, "sleep", {"seconds": 0.5})
        other.wait_for("sleep")
        with pytest.raises(MCPInvocationError, match=f"{error.__name__}.*may have run"):
            tool.invoke()
        assert call.result(timeout=LIMIT).content[0].text == "slept 0.5 s"
        assert connection.call_tool("add", {"a": 1, "b": 2}).content[0].text == "3"


def test_a_result_that_is_no_unicode_is_an_invocation_error() -> None:
    server = MCPServer("odd")

    @server.tool()
    async def odd() -> str:
        return "\ud800"

    with MCPTool("odd", InProcessServerInfo(server)) as tool, pytest.raises(MCPInvocationError):
        tool.invoke()
