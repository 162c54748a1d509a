# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a type checker sees of the package from outside. `make types` checks this file with pyright; nothing runs it.
"""

from typing import assert_type

from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from mcp.types import CallToolResult

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionStatus,
    MCPInvocationError,
    MCPServerInfo,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    warm_up_toolsets,
)


def servers() -> list[MCPServerInfo]:
    stdio = StdioServerInfo("uvx", ["mcp-server-time"], env={"TZ": "UTC"})
    assert_type(stdio, StdioServerInfo)
    assert_type(stdio.command, str)
    assert_type(stdio.args, list[str] | None)
    http = StreamableHttpServerInfo("http://127.0.0.1:8000/mcp", max_retries=1)
    assert_type(http.max_retries, int)
    return [stdio, http, SSEServerInfo("http://127.0.0.1:8001/sse")]


def use(info: MCPServerInfo) -> None:
    with MCPTool("add", info, invocation_timeout=5) as tool:
        assert_type(tool, MCPTool)
        assert_type(tool.name, str)
        plain: Tool = tool
        plain.invoke(a=1, b=2)
    with MCPToolset(info, tool_names=["add"]) as toolset:
        assert_type(toolset, MCPToolset)
        assert_type(toolset.connection, MCPConnection)
        plain_toolset: Toolset = toolset
        assert_type(len(plain_toolset), int)
    warm_up_toolsets([toolset, tool])
    with MCPConnection(info) as connection:
        assert_type(connection.status(), MCPConnectionStatus)
        assert_type(connection.call_tool("add", {"a": 1}), CallToolResult)


async def use_async(info: MCPServerInfo) -> None:
    async with MCPConnection(info) as connection:
        try:
            assert_type(await connection.call_tool_async("add"), CallToolResult)
        except MCPInvocationError as error:
            assert_type(error.code, int | None)
