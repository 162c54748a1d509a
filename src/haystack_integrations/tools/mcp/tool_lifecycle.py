# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Warming up and closing of tools and toolsets of any kind; MCP servers are connected to at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset, warm_up_toolsets, warm_up_toolsets_async


def tool_items(tools: Any) -> list[Any]:
    """
    List tools and toolsets.

    :param tools: A Tool, a Toolset, or a list of them.
    :returns: The list.
    """
    return [tools] if isinstance(tools, Tool | Toolset) else list(tools)


def connected_items(tools: Any) -> list[MCPTool | MCPToolset]:
    """
    Find what has a connection to a server, also in toolsets that consist of toolsets.

    :param tools: A Tool, a Toolset, or a list of them.
    :returns: The MCPTools and MCPToolsets.
    """
    found: list[MCPTool | MCPToolset] = []
    for item in tool_items(tools):
        if isinstance(item, MCPTool | MCPToolset):
            found.append(item)
        elif isinstance(item, Toolset):
            parts = getattr(item, "toolsets", ())
            found += connected_items(list(parts.values()) if isinstance(parts, Mapping) else parts)
    return found


def warm_up_tools(tools: Any) -> None:
    """
    Warm tools up, those of MCP servers at the same time.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    servers = connected_items(tools)
    if len(servers) > 1:
        warm_up_toolsets(servers)
    for item in tool_items(tools):
        if isinstance(item, MCPTool | MCPToolset) and len(servers) > 1:
            continue
        if hasattr(item, "warm_up"):
            item.warm_up()


async def warm_up_tools_async(tools: Any) -> None:
    """
    Warm tools up like `warm_up_tools`, without blocking the event loop where they can.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    servers = connected_items(tools)
    await warm_up_toolsets_async(servers)
    for item in tool_items(tools):
        if isinstance(item, MCPTool | MCPToolset):
            continue
        if hasattr(item, "warm_up_async"):
            await item.warm_up_async()
        elif hasattr(item, "warm_up"):
            item.warm_up()


def close_tools(tools: Any) -> None:
    """
    Close the tools that can be closed.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    for item in tool_items(tools):
        if hasattr(item, "close"):
            item.close()


async def close_tools_async(tools: Any) -> None:
    """
    Close the tools that can be closed, without blocking the event loop where they can.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    for item in tool_items(tools):
        if hasattr(item, "close_async"):
            await item.close_async()
        elif hasattr(item, "close"):
            item.close()
