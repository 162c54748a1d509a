# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.run_toolset import RunToolset

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.registry.aliases import MCPAliasToolset


class ToolsOfAliasRun(RunToolset):
    """
    The tools of an alias as they are at the start of an Agent's run.
    """

    def __init__(self, alias: MCPAliasToolset, members: Mapping[str, Toolset], names: set[str] | None) -> None:
        """
        Initialize the ToolsOfAliasRun.

        :param alias: The toolset of the alias.
        :param members: What the toolsets of its providers have spawned for the run.
        :param names: Names of the tools that the run may use; None for all.
        """
        super().__init__(alias, names)
        self._alias = alias
        self._members = members

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools of the run. Those that are added to the alias meanwhile are among them.
        """
        return iter([tool for tool in self._alias._arrange(self._members) if self._is_selected(tool)])
