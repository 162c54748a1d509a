# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How the tools of a toolset stay those that the server has, and who sees new ones when.

.. code-block:: text

    the server says that its tools changed ──> they are listed in the background ──> `on_change`
                                                        │
                        `warm_up`, `refresh` or the start of an Agent's run: from then on, the toolset has them
                                                        │
                               runs that began before go on with the tools that they began with
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import uuid
import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar

from haystack import logging
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.connection.limits import BackgroundRetry
from haystack_integrations.tools.mcp.connection.listening import Delivery
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.convert.tool_schemas import permissive_schema
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPDriftError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers.calling import call
from haystack_integrations.tools.mcp.haystack_compat import combine
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.options import ToolSelection
from haystack_integrations.tools.mcp.parameters import short_repr
from haystack_integrations.tools.mcp.protocol.changes import (
    ServerChange,
    Unsubscribe,
    WantedChanges,
    Watcher,
    next_moment,
)
from haystack_integrations.tools.mcp.tool_base import ToolBase

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.requests import ToolListing

__all__ = ["MCPToolsChange"]

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# The shortest time between two listings in the background, in seconds: a server may say a thousand times a second that
# its tools changed.
_PAUSE = 0.2

# The pauses between attempts to reach a server that is not required, in seconds.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPToolsChange:
    """
    How the tools of a toolset changed, by the names that the model sees, in alphabetical order.

    :param added: Tools that it did not have.
    :param removed: Tools that it does not have any more.
    :param changed: Tools that have another description or other parameters.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


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
        return f"{type(self).__name__} has {missing}{why or f'. {choices}'}"

    def __contains__(self, item: Any) -> bool:
        """
        Check if a tool is among them.

        :param item: Tool instance or tool name.
        """
        return any(tool is item or tool.name == item for tool in self._shown())

    @staticmethod
    def _to_add(tool: Any, present: Iterable[Tool]) -> list[Tool]:
        """
        Return the tools that are to be added.

        :param tool: A Tool, or a Toolset whose tools are added.
        :param present: The tools that are there.
        :raises ValueError: If a tool of the same name is already there.
        :raises TypeError: If `tool` is neither.
        """
        added = [tool] if isinstance(tool, Tool) else list(tool) if isinstance(tool, Toolset) else None
        if added is None:
            msg = f"Expected Tool or Toolset, got {type(tool).__name__}"
            raise TypeError(msg)
        owners = Counter(each.name for each in [*present, *added])
        if twice := sorted(name for name, count in owners.items() if count > 1):
            msg = f"Duplicate tool names found: {', '.join(twice)}"
            raise ValueError(msg)
        return added

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


def while_alive(method: Callable[[T], None]) -> Callable[[T], None]:
    """
    Return a function that calls a method, and that does not keep its object alive, as what a connection holds.

    :param method: The method.
    :returns: The function. It does nothing after the object is gone.
    """
    reference = weakref.WeakMethod(method)

    def called(argument: T) -> None:
        bound = reference()
        if bound is not None:
            bound(argument)

    return called


class FreshToolset(ToolBase, LiveToolset):
    """
    Base of MCPToolset: a toolset whose tools stay those that its server has.
    """

    tool_selection: ToolSelection

    def _begin(self) -> None:
        """
        Set up a toolset without tools. Nothing is connected yet.
        """
        # One for each process: a lock held by another thread during a fork would stay locked in the child.
        self._locks: dict[int, threading.Lock] = {}
        self._generation = 0
        self._retry = BackgroundRetry(self._try_again, base=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        # The server's tools by remote name. A tool remains the same object across reconnects.
        self._children: dict[str, MCPTool] = {}
        self._hold_place()
        # The moment of the listing in use, and that of the last change.
        self._listed_at = 0
        self._changed_at = 0
        self._expires_at: float | None = None
        # What the server has and the toolset not yet.
        self._fetched: list[MCPTool] | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._may_fetch_at = 0.0
        self._callbacks: list[Delivery] = []
        # What the callbacks know of: what the model sees of each tool.
        self._told: dict[str, Any] = {}
        self._telling = threading.Lock()
        # What runs of Agents of Haystack 3 began with.
        self._spawned: list[weakref.ref[ToolsOfRun]] = []
        watcher = Watcher(WantedChanges(lists=frozenset({"tools"})), while_alive(self._note_change))
        self._connection._watch(watcher)

    @abstractmethod
    def _reasons_against(self, listing: ToolListing) -> dict[str, str]:
        """Return why tools of a listing are not to be loaded, by their names. Without the lock."""

    @abstractmethod
    def _load_children(self, listing: ToolListing, reasons: dict[str, str]) -> list[MCPTool]:
        """Return the tools that are made of a listing. With the lock."""

    @abstractmethod
    def _instructed(self, tools: list[Tool]) -> list[Tool]:
        """Return tools with the instructions of the server, if the model is to get them."""

    def _lock(self) -> threading.Lock:
        # Held only to read and change this object, never while waiting for a server.
        return self._locks.setdefault(os.getpid(), threading.Lock())

    # What it has now

    def _own_tools(self) -> list[Tool]:
        """
        Return the tools of the server that the toolset has.
        """
        tools = self.tools
        return [*self._children.values()] if self._placeholder in tools else list(filter(self._is_child, tools))

    def _added_tools(self) -> list[Tool]:
        return [tool for tool in self.tools if tool is not self._placeholder and not self._is_child(tool)]

    def _is_child(self, tool: Tool) -> bool:
        return isinstance(tool, MCPTool) and tool._toolset is self

    def _shown(self) -> list[Tool]:
        if self.tool_selection.update_between_steps:
            self._publish()
        return [*([] if self._absence is not None else self._own_tools()), *self._added_tools()]

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools, without connecting.

        :returns: The loaded tools; before warm-up, placeholders for the tools in `tool_names`. None of a server that is
            not required and cannot be reached.
        """
        return iter(self._instructed(self._shown()))

    def add(self, tool: Tool | Toolset) -> None:
        """
        Add a tool that is not one of the server's.

        Added tools are not serialized: `to_dict` contains only how to reach the server.

        :param tool: A Tool, or a Toolset whose tools are added.
        :raises ValueError: If a tool of the same name is already there.
        :raises TypeError: If `tool` is neither.
        """
        with self._lock():
            self.tools = [*self.tools, *self._to_add(tool, [*self._own_tools(), *self._added_tools()])]
        self._announce()

    def spawn(self, selected_tool_names: set[str] | None = None) -> Toolset:
        """
        Return the tools that this toolset has now. Haystack 3 calls this at the start of each run of an Agent.

        :param selected_tool_names: Names of the tools that the run may use. Default: all.
        :returns: A toolset that keeps these tools; with `update_between_steps`, one that does not.
        """
        tools = ToolsOfRun(self, selected_tool_names)
        self._hold_for(tools)
        with self._lock():
            self._spawned = [*(each for each in self._spawned if each() is not None), weakref.ref(tools)]
        return tools

    # Warm-up

    def warm_up(self) -> None:
        """
        Connect and load the tool definitions.

        Agents, pipelines and ToolInvokers call this. Idempotent and cheap while the connection is open; reopens it if
        it was closed or lost. With a `snapshot` and without `eager_connect` it does not connect: the first call does.

        :raises MCPConnectionError: If connecting fails and `required` is True.
        :raises MCPDriftError: If the server is connected to, and its tools are not those of the `snapshot`.
        :raises MCPToolNotFoundError: If the server does not have a tool that was requested by name.
        :raises ValueError: If `inputs_from_state` names a parameter that a tool does not have, `bound_arguments` a tool
            or a parameter that is not there, two tools get the same name, or the schema of a tool that was requested by
            name is unusable.
        """
        if self._needs_warm_up():
            with self._reaching():
                if self._is_due_and_warm():
                    self._load_or_leave(self._connection._list())
                else:
                    super().warm_up()

    async def warm_up_async(self) -> None:
        """
        Connect and load the tool definitions like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPToolNotFoundError: As `warm_up`.
        :raises ValueError: As `warm_up`.
        """
        if self._needs_warm_up():
            with self._reaching():
                if self._is_due_and_warm():
                    await self._load_or_leave_async(await self._connection._list_async())
                else:
                    await super().warm_up_async()

    def _needs_warm_up(self) -> bool:
        # A server that refuses connections is tried at once. One that does not answer would hold up every run of an
        # Agent: it is left to the background.
        if isinstance(self._absence, TimeoutError) and self._retry.is_running:
            return False
        self._publish()
        return self._absence is not None or not self._stays_cold()

    def _is_due_and_warm(self) -> bool:
        return self._is_warm() and self._is_due

    def refresh(self) -> None:
        """
        List the tools of the server now. The toolset has them from then on; runs of Agents that began before do not.

        :raises MCPConnectionError: If that fails.
        :raises MCPToolNotFoundError: As `warm_up`.
        :raises ValueError: As `warm_up`.
        """
        self._load_or_leave(self._connection._list())
        self._note_presence()

    async def refresh_async(self) -> None:
        """
        List the tools of the server now like `refresh`, without blocking the event loop.
        """
        await self._load_or_leave_async(await self._connection._list_async())
        self._note_presence()

    @property
    def _is_due(self) -> bool:
        """
        Whether the server is to be asked for its tools again.
        """
        has_expired = self._expires_at is not None and monotonic() >= self._expires_at
        return not self.tool_selection.cache_tools or has_expired or self._has_unknown_changes()

    def _is_outdated(self) -> bool:
        # While a session is open: whether the server is to be asked for its tools, or has told of others.
        return self._connection.is_ready and (not self._is_warm() or self._is_due or self._fetched is not None)

    def _has_unknown_changes(self) -> bool:
        return self._listed_at < self._changed_at

    # A server that is not required

    def _note_absence(self, error: MCPConnectionError) -> None:
        super()._note_absence(error)
        self._retry.start()
        self._announce()

    def _note_presence(self) -> None:
        if self._absence is not None:
            super()._note_presence()
            self._retry.stop()
            self._announce()

    async def _try_again(self) -> bool:
        """
        Try to reach the server in the background.

        :returns: Whether that is the end of it.
        """
        if self._absence is None:
            return True
        try:
            await super().warm_up_async()
        except MCPConnectionError as error:
            if self._absence is not None:
                self._absence = error.with_traceback(None)
            return self._absence is None
        except (MCPDriftError, MCPToolNotFoundError, ValueError) as error:  # the next `warm_up` raises it
            logger.warning(
                "The tools of {server} cannot be used: {error}", server=self.server_info.describe(), error=str(error)
            )
            return True
        self._note_presence()
        return True

    def _stop_trying(self) -> None:
        self._retry.stop()
        self._absence = None

    def close(self) -> None:
        """
        Release the connection, for all who use this toolset: open `with` blocks do not prevent it, and calls fail.

        It is closed when the last tool or toolset that shares it has released it. Safe to call before warm-up and
        repeatedly; the next `warm_up` or call connects again. Closing a tool of a toolset closes the toolset. A server
        that is not required and cannot be reached is no longer tried.
        """
        self._stop_trying()
        super().close()

    async def close_async(self) -> None:
        """
        Release the connection like `close`, without blocking the event loop.
        """
        self._stop_trying()
        await super().close_async()

    def _leave(self) -> None:
        self._stop_trying()
        super()._leave()

    # Listings

    def _load_listing(self, listing: ToolListing, *, publish: bool = True) -> None:
        """
        Take over what the server listed.

        :param listing: The tools.
        :param publish: Whether the toolset has them at once.
        """
        reasons = self._reasons_against(listing)
        with self._lock():
            # Listings may arrive out of order; the newest one wins.
            if listing.number > self._listed_at:
                self._fetched = self._load_children(listing, reasons)
                self._listed_at, self._expires_at = listing.number, listing.expires_at
                if self._has_unknown_changes():
                    AsyncExecutor.get_instance().post(self._start_fetching)
            if publish:
                self._publish_fetched()
        self._announce()

    def _publish(self) -> None:
        """
        Take over what the server has, as far as that is known.
        """
        if self._fetched is not None:
            with self._lock():
                self._publish_fetched()

    def _publish_fetched(self) -> None:
        # With the lock.
        children, self._fetched = self._fetched, None
        if children is None:
            return
        known = dict(self._children)
        for child in children:
            present = known.setdefault(child.remote_name, child)
            if present is not child:
                # A tool remains the same object. What is running goes on with the other one, which becomes the old.
                for reference in self._spawned:
                    if (run := reference()) is not None:
                        run.own[:] = [child if each is present else each for each in run.own]
                present._trade_definitions(child)
        self._children = known
        # In one assignment, so that another thread sees either the old tools or the new ones.
        self.tools: list[Tool] = [*(known[child.remote_name] for child in children), *self._added_tools()]

    def _note_change(self, _change: ServerChange) -> None:
        self._changed_at = next_moment()
        if self._listed_at:  # otherwise it is being warmed up
            self._start_fetching()

    def _start_fetching(self) -> None:
        if self._fetching is None or self._fetching.done():
            # Not in the context of a call: it is on nobody's behalf.
            self._fetching = asyncio.create_task(_keep_fetching(weakref.ref(self)), context=contextvars.Context())

    @property
    def _fetch_pause(self) -> float | None:
        """
        How long to wait before the next listing, in seconds; None if there is to be none.
        """
        return max(self._may_fetch_at - monotonic(), 0.0) if self._has_unknown_changes() else None

    async def _fetch(self) -> bool:
        """
        List the tools in the background.

        :returns: Whether to go on if they have changed meanwhile.
        """
        connection = self._connection
        if not connection._has_own_session():
            return False  # the next warm-up lists them, and a background task opens no session
        try:
            listing = await connection._list_if_open_async()
            # In a thread: `tool_filter` is the user's.
            await call(self._load_unpublished, listing)
        except (MCPConnectionError, TimeoutError) as error:
            logger.info("The tools changed, but could not be listed: {error}", error=str(error))
            return False
        except MCPDriftError:  # which was said already, and the next `warm_up` raises it
            return False
        except (MCPToolNotFoundError, ValueError) as error:  # likewise
            logger.warning("The tools changed and cannot be used as they are now: {error}", error=str(error))
            return False
        finally:
            self._may_fetch_at = monotonic() + _PAUSE
        return True

    def _load_unpublished(self, listing: ToolListing) -> None:
        self._load_listing(listing, publish=False)

    # Who is told

    def on_change(self, callback: Callable[[MCPToolsChange], Any]) -> Unsubscribe:
        """
        Call a function when the tools of this toolset changed.

        They do when the server has others, when `add` adds some, and when a server that is not required goes away or
        comes back.

        The toolset itself has the server's new tools from the next `warm_up`, `refresh` or run of an Agent on; the
        function may call `warm_up`. It is called as that of `on_list_change`.

        :param callback: Gets an MCPToolsChange.
        :returns: A function that ends this.
        :raises ValueError: If `callback` is no function.
        """
        delivery = Delivery(callback, "The function of `on_change`")
        if not self._callbacks:
            self._told = self._seen()
        self._callbacks = [*self._callbacks, delivery]

        def unsubscribe() -> None:
            self._callbacks = [each for each in self._callbacks if each is not delivery]

        return unsubscribe

    def _seen(self) -> dict[str, Any]:
        own = self._own_tools() if self._fetched is None else self._fetched
        tools = [*(own if self._absence is None else []), *self._added_tools()]
        return {tool.name: (tool.description, tool.parameters) for tool in tools}

    def _announce(self) -> None:
        """
        Call the functions of `on_change` if the tools are others now. From any thread.
        """
        with self._telling:  # threads tell their changes in the order in which they saw them
            if not self._callbacks:
                return
            before, now = self._told, self._seen()
            change = MCPToolsChange(
                added=tuple(sorted(now.keys() - before.keys())),
                removed=tuple(sorted(before.keys() - now.keys())),
                changed=tuple(sorted(name for name in now.keys() & before.keys() if now[name] != before[name])),
            )
            if change == MCPToolsChange():
                return
            self._told = now
            callbacks = self._callbacks

            def deliver() -> None:
                for delivery in callbacks:
                    delivery.put(change)

            AsyncExecutor.get_instance().post(deliver)


async def _keep_fetching(reference: weakref.ref[FreshToolset]) -> None:
    # It must not keep the toolset alive while it waits: a server may never come to rest.
    while (toolset := reference()) is not None and (pause := toolset._fetch_pause) is not None:
        if pause:
            del toolset
            await asyncio.sleep(pause)
        elif not await toolset._fetch():
            return


class ToolsOfRun(RunToolset):
    """
    The tools of a toolset as they are at the start of an Agent's run.
    """

    def __init__(self, toolset: FreshToolset, names: set[str] | None) -> None:
        """
        Initialize the ToolsOfRun.

        :param toolset: The toolset.
        :param names: Names of the tools that the run may use; None for all.
        """
        super().__init__(toolset, names)
        self._toolset = toolset
        self.own: list[Tool] = [] if toolset._absence is not None else toolset._own_tools()

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools of the run. Those that are added to the toolset meanwhile are among them.
        """
        is_live = self._toolset.tool_selection.update_between_steps
        tools = list(self._toolset) if is_live else [*self.own, *self._toolset._added_tools()]
        return iter(self._toolset._instructed([tool for tool in tools if self._is_selected(tool)]))
