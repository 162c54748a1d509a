# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Listings that come in pages, late or never, over every transport.
"""

import pytest

from haystack_integrations.tools.mcp import (
    MCPInvocationError,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
)
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.kinds import LONG, every_way, kinds


@kinds("stdio", "stdio of the SDK", "2026", "sessions", "sse")
def test_a_listing_in_pages_is_complete(proxied_peer, kind):
    server = proxied_peer(kind, "--tools", "25", "--page-size", "4")
    with MCPToolset(server.reach()) as toolset:
        names = [tool.name for tool in toolset]
    assert len(names) == len(set(names))
    assert {f"tool_{number:04}" for number in range(25)} <= set(names)
    assert "add" in names


@every_way
def test_a_slow_listing_is_waited_for_until_the_timeout_and_then_leaves_no_process(proxied_peer, kind):
    server = proxied_peer(kind, "--slow-list", "1")
    with MCPToolset(server.reach(), connection_timeout=LONG) as toolset:
        assert "add" in [tool.name for tool in toolset]
    toolset = MCPToolset(server.reach(), connection_timeout=0.5)
    with pytest.raises(MCPConnectionTimeoutError):
        toolset.warm_up()
    server.wait_until_gone()
    toolset.close()


def test_a_server_without_the_wanted_tool_is_left_at_once(stdio_server):
    server = stdio_server()
    info = server.info()
    tool, toolset = MCPTool("no_such", info), MCPToolset(info, tool_names=["no_such"])
    for cold in (tool, toolset):
        with pytest.raises(MCPToolNotFoundError):
            cold.warm_up()
    server.wait_until_gone()
    with pytest.raises(MCPInvocationError, match="not found"):
        tool.invoke()
