# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio.to_thread
from fastmcp.tools.base import Tool as FastMCPTool
from haystack import logging
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.serving.changes import Unsubscribe

logger: logging.PatchedLogger = logging.getLogger(__name__)


class LiveTools:
    """
    The tools of a toolset as they are now, or one tool as it is now.

    A tool of another server gets its definition when it is warmed up.
    """

    def __init__(
        self, tools: Tool | Toolset, serve: Callable[[Tool], FastMCPTool], changed: Callable[[], None]
    ) -> None:
        """
        Initialize the LiveTools.

        :param tools: The toolset or tool.
        :param serve: Makes a tool of the server of one of Haystack; raises a ValueError if it cannot be served.
        :param changed: Called when there are others, in any thread.
        :raises ValueError: If it is one tool, and cannot be served.
        """
        self._tools = tools
        self._serve = serve
        self.changed = changed
        self._is_stale = True
        self._unsubscribe: Unsubscribe | None = None
        self._lock = threading.Lock()
        # What was made of which tool, with the definition that it had then.
        self._served: dict[int, tuple[Tool, Any, FastMCPTool | None]] = {}
        self.known: list[FastMCPTool] = []
        if isinstance(tools, Tool) and not isinstance(tools, MCPTool):
            self.known = [serve(tools)]
            self._served = {id(tools): (tools, _definition(tools), self.known[0])}

    @property
    def may_change(self) -> bool:
        """
        Whether it may have other tools by itself, as a toolset of another server does, which may be down at first.
        """
        return isinstance(self._tools, Toolset) and type(self._tools) is not Toolset

    async def list(self) -> Sequence[FastMCPTool]:
        """
        List the tools that there are now.

        :returns: The tools.
        """
        if self._is_stale:
            await self.warm_up()
        now = [self._tools] if isinstance(self._tools, Tool) else list(self._tools)
        with self._lock:
            before = self._served
            after = {id(tool): self._made(tool, before.get(id(tool))) for tool in now}
            self._served = after
        if before and before != after:
            self.changed()
        return self.last_listed

    @property
    def last_listed(self) -> Sequence[FastMCPTool]:
        """
        The tools that there were at the last listing.
        """
        with self._lock:
            return [served for _, _, served in self._served.values() if served is not None]

    def _made(
        self, tool: Tool, before: tuple[Tool, Any, FastMCPTool | None] | None
    ) -> tuple[Tool, Any, FastMCPTool | None]:
        definition = _definition(tool)
        if before is not None and before[1] == definition:
            return before
        try:
            return tool, definition, self._serve(tool)
        except ValueError as error:
            # The others of a toolset are of use without it.
            logger.warning("Tool '{tool}' is not served: {error}", tool=tool.name, error=str(error))
            return tool, definition, None

    async def warm_up(self) -> None:
        """
        Warm up the toolset or tool, and have it tell when it changes.
        """
        watch = getattr(self._tools, "on_change", None)
        if self._unsubscribe is None and watch is not None:
            self._unsubscribe = watch(self._note_change)
        self._is_stale = False
        try:
            await _call(self._tools, "warm_up")
        except BaseException:
            self._is_stale = True
            raise

    def _note_change(self, _change: Any) -> None:
        # It has the new tools from its next warm-up on.
        self._is_stale = True
        self.changed()

    async def close(self) -> None:
        """
        Close the toolset or tool.
        """
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._is_stale = True
        await _call(self._tools, "close")


def _definition(tool: Tool) -> tuple[Any, ...]:
    # An object is compared with itself first, so that this costs little.
    return tool.name, tool.description, tool.parameters


async def _call(tools: Tool | Toolset, method: str) -> None:
    """Call `warm_up` or `close`, which not all tools of all majors have, without blocking the event loop."""
    asynchronous = getattr(tools, f"{method}_async", None)
    if asynchronous is not None:
        await asynchronous()
    elif (synchronous := getattr(tools, method, None)) is not None:
        await anyio.to_thread.run_sync(synchronous)
