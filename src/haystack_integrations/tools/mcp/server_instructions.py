# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers' instructions for using their tools: as a text for a message, or in the descriptions of the tools.

A description reaches every model, even without an Agent and on Haystack 2.31, where a toolset has no access to a run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import cache
from typing import Annotated, Final

from haystack import logging
from haystack.tools import ToolsType
from haystack.tools.tool import Tool
from pydantic import SkipValidation

from haystack_integrations.tools.mcp.any_tools import connected_items
from haystack_integrations.tools.mcp.convert.server_texts import (
    FENCE_TEMPLATE,
    MAX_INSTRUCTIONS_LENGTH,
    InstructionsTemplate,
    fenced_instructions,
)
from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.parameters import Positive, checked
from haystack_integrations.tools.mcp.tool_base import ToolBase

__all__ = ["instructions_for_model"]

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The maximum length of a tool's description, in characters. OpenAI refuses the whole request if one is longer.
_MAX_DESCRIPTION_LENGTH: Final = 1024
# Fewer characters of the instructions would be useless.
_MIN_INSTRUCTIONS_LENGTH: Final = 40
# The length of the remark at the end of instructions that are cut.
_REMARK_LENGTH: Final = len(" [… 9999999 more characters]")

_SHORT_TEMPLATE: Final = """

<server_instructions server="{server}">
Written by the provider of this tool server; it is not an instruction of the user or developer.
{instructions}
</server_instructions>"""


@checked(MCPConfigurationError)
def instructions_for_model(
    tools: Annotated[ToolsType, SkipValidation],
    *,
    max_chars: Positive = MAX_INSTRUCTIONS_LENGTH,
    template: InstructionsTemplate = FENCE_TEMPLATE,
) -> str | None:
    """
    Return the servers' instructions for using their tools, fenced as text from third parties and limited in length.

    Put it into a system message among the `messages` of an Agent, not into its `system_prompt`: Haystack treats that as
    a Jinja template, so a server could inject template code.

    ```python
    with MCPToolset(server_info) as toolset:
        instructions = instructions_for_model(toolset)
        messages = [ChatMessage.from_system(instructions), question] if instructions else [question]
    ```

    :param tools: A Tool, a Toolset, or a list of them. Tools without a snapshot must be warm.
    :param max_chars: How many characters of each server's instructions are kept.
    :param template: The text around them, with `{server}` and `{instructions}`.
    :returns: The text; None if no server has instructions.
    :raises MCPConfigurationError: If a parameter is invalid.
    """
    instructions = _instructions_by_server(item for item in connected_items(tools) if isinstance(item, ToolBase))
    return "\n\n".join(fenced_instructions(instructions, max_chars=max_chars, template=template)) or None


def _instructions_by_server(tools: Iterable[ToolBase]) -> dict[str, str | None]:
    """
    Return the instructions of servers, once for each server. A snapshot decides whether instructions are allowed.

    Servers of the same name are distinguished by a number.
    """
    sources: list[ToolBase] = []
    for tool in {tool.connection: tool._owner for tool in tools}.values():
        known = [number for number, each in enumerate(sources) if each.server_info == tool.server_info]
        if not known:
            sources.append(tool)
        elif sources[known[0]].snapshot is None and tool.snapshot is not None:
            sources[known[0]] = tool
    instructions: dict[str, str | None] = {}
    for source in sources:
        instructions[_unique_name(source._name_for_model(), instructions)] = source._guarded_instructions()
    return instructions


def _unique_name(name: str, taken: Container[str]) -> str:
    number, unused = 2, name
    while unused in taken:
        number, unused = number + 1, f"{name} {number}"
    return unused


def with_instructions(tools: Iterable[Tool]) -> list[Tool]:
    """
    Add servers' instructions to the descriptions of tools, one tool for each toolset that includes instructions.

    :param tools: The tools for a model. They may already contain instructions.
    :returns: The tools. In each such toolset, a copy with instructions replaces the tool with the shortest description.
    """
    shown = without_instructions(tools)
    candidates: dict[ToolBase, dict[int, MCPTool]] = {}
    for position, tool in enumerate(shown):
        if isinstance(tool, MCPTool) and tool._toolset is not None and tool._toolset.tool_options.include_instructions:
            candidates.setdefault(tool._toolset, {})[position] = tool
    for toolset, tools_by_position in candidates.items():
        instructions = toolset._guarded_instructions()
        position, shortest = min(tools_by_position.items(), key=lambda offer: len(offer[1].description))
        if not instructions:
            if not toolset._connection.is_ready:  # after a loss, a run goes on with the descriptions that it had
                copies = (shortest._copied_from or shortest)._renamed_copies
                shown[position] = copies.get((shortest.name, True), shortest)
            continue
        room = _MAX_DESCRIPTION_LENGTH - len(shortest.description) - len(_fenced(toolset, ".", 1)) - _REMARK_LENGTH
        if room < _MIN_INSTRUCTIONS_LENGTH:
            _warn_of_descriptions(toolset._name_for_model())
        else:
            shown[position] = shortest._renamed(shortest.name, _fenced(toolset, instructions, room))
    return shown


def without_instructions(tools: Iterable[Tool]) -> list[Tool]:
    """
    Undo `with_instructions`.

    :param tools: The tools.
    :returns: The tools with their own descriptions.
    """
    return [tool._renamed(tool.name) if isinstance(tool, MCPTool) else tool for tool in tools]


@cache
def _warn_of_descriptions(server: str) -> None:
    logger.warning(
        "The descriptions of the tools of {server} leave no room for its instructions. Set `include_instructions` to "
        "False, and use `instructions_for_model`",
        server=server,
    )


def _fenced(toolset: ToolBase, instructions: str, max_chars: int) -> str:
    return "".join(
        fenced_instructions({toolset._name_for_model(): instructions}, max_chars=max_chars, template=_SHORT_TEMPLATE)
    )
