# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the servers of tools say about their use, by the names under which a model is told of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from haystack.tools import ToolsType

from haystack_integrations.tools.mcp.convert.server_texts import (
    MAX_CHARS,
    TEMPLATE,
    check_template,
    fenced_instructions,
)
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.tool_base import ToolBase
from haystack_integrations.tools.mcp.tool_lifecycle import connected_items

__all__ = ["instructions_for_model"]


def instructions_for_model(tools: ToolsType, *, max_chars: int = MAX_CHARS, template: str = TEMPLATE) -> str | None:
    """
    Give what the servers of tools say about their use, fenced as the text of third parties and limited in length.

    For a system message among the `messages` of an Agent. Not for its `system_prompt`: for Haystack, that is a Jinja
    template, and a server could write one. On Haystack 3, MCPInstructionsHook does it.

    ```python
    with MCPToolset(server_info) as toolset:
        said = instructions_for_model(toolset)
        messages = [ChatMessage.from_system(said), question] if said else [question]
    ```

    :param tools: A Tool, a Toolset, or a list of them. Those without a snapshot must be warm.
    :param max_chars: How many characters of each server's instructions are kept.
    :param template: What is put around them, with `{server}` and `{instructions}`.
    :returns: The text; None if no server says anything.
    :raises MCPConfigurationError: If a parameter is invalid.
    """
    check_template("instructions_for_model", template, max_chars)
    said = instructions_by_server(connected_items(tools))
    return "\n\n".join(fenced_instructions(said, max_chars=max_chars, template=template)) or None


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
        said[_unused(source._known_name(), said)] = source._guarded_instructions(source.connection.instructions)
    return said


def _source(tool: ToolBase) -> ToolBase:
    return tool._toolset if isinstance(tool, MCPTool) and tool._toolset is not None else tool


def _unused(name: str, taken: Container[str]) -> str:
    number, unused = 2, name
    while unused in taken:
        number, unused = number + 1, f"{name} {number}"
    return unused
