# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.budgets import CallCounts, note_refusal
from haystack_integrations.tools.mcp.errors import MCPCallRefusedError
from haystack_integrations.tools.mcp.haystack_compat import current_run
from haystack_integrations.tools.mcp.instructed_tools import with_instructions
from haystack_integrations.tools.mcp.run_toolset import RunToolset


class ToolsOfAliasRun(RunToolset):
    """
    The tools of an alias as they are at the start of an Agent's run.
    """

    def __init__(self, alias: Toolset, tools: Callable[[], list[Tool]], names: set[str] | None) -> None:
        """
        Initialize the ToolsOfAliasRun.

        :param alias: The toolset of the alias.
        :param tools: Returns the tools of the alias, as the run sees them.
        :param names: Names of the tools that the run may use; None for all.
        """
        super().__init__(alias, names)
        self._tools_now = tools

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools of the run. Those that are added to the alias meanwhile are among them.
        """
        return iter(with_instructions(filter(self._is_selected, self._tools_now())))


class TurnsOfRuns:
    """
    Refuses tool calls after a number of turns in each run of an Agent of Haystack 2, which has no hooks to do it.
    """

    def __init__(self, max_turns: int) -> None:
        """
        Initialize the TurnsOfRuns.

        :param max_turns: How many replies of the model may call tools in a run.
        """
        self._counts = CallCounts(max_turns=max_turns)
        self._lock = threading.Lock()
        # The steps with tool calls by the identity of the run, until it is over.
        self._steps: dict[int, tuple[weakref.ref[Any], set[int]]] = {}

    def recognize_run(self) -> None:
        """
        Find the run that the code is part of, so that `admit` knows it in the threads in which Haystack calls tools.
        """
        current_run()

    def admit(self, tool_name: str) -> None:
        """
        Ask for a call. Calls outside of Agents' runs are not counted.

        :param tool_name: Name of the tool.
        :raises MCPCallRefusedError: If the run has had its turns.
        """
        run = current_run()
        if run is None:
            return
        with self._lock:
            steps = self._steps_of(run)
            # The calls of one reply, which run at the same time, are one turn.
            limit = None if run.counter in steps else self._counts.reason_against(tool_name, {}, turns=len(steps))
            if limit is None:
                steps.add(run.counter)
                return
        note_refusal(tool_name, limit)
        raise MCPCallRefusedError(self._counts.refusal(tool_name, limit), tool_name)

    def _steps_of(self, run: Any) -> set[int]:
        known = self._steps.get(id(run))
        if known is None or known[0]() is not run:
            steps, key = self._steps, id(run)
            known = steps[key] = (weakref.ref(run, lambda _: steps.pop(key, None)), set())
        return known[1]
