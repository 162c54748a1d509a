# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset


class RunToolset(Toolset):
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

    def __len__(self) -> int:
        """
        Count the tools of the run.
        """
        return sum(1 for _ in self)

    def __contains__(self, item: Any) -> bool:
        """
        Check if a tool is among them.

        :param item: Tool instance or tool name.
        """
        return any(tool is item or tool.name == item for tool in self)

    def __hash__(self) -> int:
        """
        Hash this object by its identity.
        """
        return id(self)

    def __eq__(self, other: object) -> bool:
        """
        Tell whether it is this object: each run has its own.
        """
        return self is other

    def __bool__(self) -> bool:
        """
        Return True, as the toolset does.
        """
        return True

    def get_selectable_tools(self) -> list[Tool]:
        """
        Return the tools of the run.
        """
        return list(self)

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
