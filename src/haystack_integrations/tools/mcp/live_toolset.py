# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What toolsets have in common whose tools are others at another time, and what runs of Agents see of them.
"""

from __future__ import annotations

import uuid
from typing import Any, Self

from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.convert.tool_schemas import permissive_schema
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.haystack_compat import combine


class LiveToolset(Toolset):
    """
    A Toolset whose tools are whatever its iteration yields at that moment.
    """

    def _hold_place(self) -> None:
        # Haystack 2 treats a toolset with an empty `tools` list as no tools at all. Iteration skips this one.
        self._placeholder = Tool(
            name=f"mcp_not_connected_placeholder_{uuid.uuid4().hex[:8]}",
            description="",
            parameters=permissive_schema(),
            function=_not_connected,
        )
        Toolset.__init__(self, tools=[self._placeholder])

    def __len__(self) -> int:
        """
        Count the tools that iteration yields.
        """
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """
        Return True even while there are no tools yet, because Haystack ignores toolsets that are false.
        """
        return True

    def __getitem__(self, index: Any) -> Any:
        """
        Get a tool by its position or its name.

        :param index: The position, the name, or a slice of positions.
        :returns: The tool; a list of tools for a slice.
        :raises IndexError: If there is no such position. The message says what there is.
        :raises KeyError: If there is no such name. The message has the closest names.
        """
        tools = self._shown()
        if isinstance(index, str):
            for tool in tools:
                if tool.name == index:
                    return tool
            raise KeyError(self._describe_missing(f"no tool '{index}'", [index]))
        try:
            return tools[index]
        except IndexError:
            raise IndexError(self._describe_missing(f"no tool at position {index}", [])) from None

    def _shown(self) -> list[Tool]:
        """
        Return the tools that can be looked up.
        """
        return list(self)

    def _describe_missing(self, missing: str, wanted: list[str], why: str = "") -> str:
        """
        Return the message of an error about a tool that is not there.

        :param missing: What is missing, as in "no tool 'search'".
        :param wanted: The name that was looked up, if it was one.
        :param why: A colon and why it is missing, instead of what there is.
        """
        choices = describe_choices(wanted, [tool.name for tool in self], "It")
        return f"{self._described()} has {missing}{why or f'. {choices}'}"

    def _described(self) -> str:
        return type(self).__name__

    def __contains__(self, item: Any) -> bool:
        """
        Check if a tool is among them.

        :param item: Tool instance or tool name.
        """
        return any(tool is item or tool.name == item for tool in self._shown())

    def get_selectable_tools(self) -> list[Tool]:
        """
        Return the tools available for selection by name, as in `Agent.run(tools=["tool_name"])`.
        """
        return list(self)

    def __add__(self, other: Tool | Toolset | list[Tool]) -> Toolset:
        """
        Combine this toolset with other tools, on Haystack 2.

        The combination contains the toolset itself, not a snapshot of its current tools.

        :param other: A Tool, a Toolset or a list of Tools.
        :returns: The combination.
        """
        combination: Toolset = combine(self, other)
        return combination

    def __radd__(self, other: Tool | Toolset | list[Tool]) -> Toolset:
        """
        Combine other tools with this toolset, on Haystack 2.

        Python calls this before `Toolset.__add__`, whose combination would serialize a snapshot of the tools.

        :param other: A Tool, a Toolset or a list of Tools.
        :returns: The combination.
        """
        combination: Toolset = combine(other, self)
        return combination

    def __copy__(self) -> Self:
        """
        Return the object itself: open connections cannot be copied.
        """
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """
        Return the object itself: open connections cannot be copied.
        """
        return self

    def __hash__(self) -> int:
        """
        Hash this object by its identity.
        """
        return id(self)

    def __eq__(self, other: object) -> bool:
        """
        Return whether it is this object.
        """
        return self is other


class RunToolset(LiveToolset):
    """
    Base of what a toolset spawns for one run of an Agent: it has tools of its own, and is the toolset in all else.
    """

    def __init__(self, origin: Toolset, names: set[str] | None = None) -> None:
        """
        Initialize the RunToolset.

        :param origin: The toolset.
        :param names: Names of the tools that the run may use; None for all.
        """
        super().__init__(tools=[])
        self._origin = origin
        self.names = names

    def _is_selected(self, tool: Tool) -> bool:
        return self.names is None or tool.name in self.names

    def add(self, tool: Any) -> None:
        """
        Add a tool to the toolset.

        :param tool: The tool.
        """
        self._origin.add(tool)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the toolset.
        """
        return self._origin.to_dict()

    def _to_trace_dict(self) -> dict[str, Any]:
        traced: dict[str, Any] = self._origin._to_trace_dict()  # type: ignore[attr-defined]
        return traced


def _not_connected(**_arguments: Any) -> str:
    msg = "The toolset is not connected yet. Call warm_up() before using its tools."
    raise MCPConnectionError(msg)
