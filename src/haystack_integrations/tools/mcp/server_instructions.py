# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the servers of tools say about their use, by the names under which a model is told of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.tool_base import ToolBase


def instructions_by_server(tools: Iterable[ToolBase]) -> dict[str, str | None]:
    """
    Give the instructions of servers, each server's once. Where there is a snapshot, they are those that it allows.

    :param tools: MCPTools and MCPToolsets.
    :returns: The instructions by the names of the servers; servers of one name are told apart by a number.
    """
    sources: list[ToolBase] = []
    for tool in {source.connection: source for source in map(_source, tools)}.values():
        known = [number for number, each in enumerate(sources) if each.server_info == tool.server_info]
        if not known:
            sources.append(tool)
        elif sources[known[0]].snapshot is None:
            sources[known[0]] = tool  # which may have one
    said: dict[str, str | None] = {}
    for source in sources:
        said[_unused(_name(source), said)] = source._guarded_instructions()
    return said


def _source(tool: ToolBase) -> ToolBase:
    return tool._toolset if isinstance(tool, MCPTool) and tool._toolset is not None else tool


def _name(source: ToolBase) -> str:
    given = source._provider_name or source.tool_name_prefix
    # With a snapshot, what a model sees is the same before the server is connected to.
    pinned = source.snapshot
    own = source.connection.status().server_name if pinned is None else pinned.server_name
    return given or own or source.server_info.describe()


def _unused(name: str, taken: Container[str]) -> str:
    number, unused = 2, name
    while unused in taken:
        number, unused = number + 1, f"{name} {number}"
    return unused
