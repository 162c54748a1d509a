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
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from haystack import logging
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.connection.context_managed import ContextManaged
from haystack_integrations.tools.mcp.connection.listening import Delivery
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPDriftError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers.calling import call
from haystack_integrations.tools.mcp.parameters import short_repr
from haystack_integrations.tools.mcp.protocol.changes import (
    ServerChange,
    Unsubscribe,
    WantedChanges,
    Watcher,
    next_moment,
)
from haystack_integrations.tools.mcp.run_toolset import LiveToolset, RunToolset

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.requests import ToolListing

__all__ = ["MCPToolsChange"]

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The shortest time between two listings in the background, in seconds: a server may say a thousand times a second that
# its tools changed.
_PAUSE = 0.2


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


class RefreshedToolset(ContextManaged, LiveToolset):
    """
    What the keeper of fresh tools needs of a toolset.
    """

    _connection: MCPConnection

    @abstractmethod
    def warm_up(self) -> None:
        """Connect and load the tool definitions."""

    @abstractmethod
    def _load_listing(self, listing: ToolListing, *, publish: bool = True) -> None:
        """
        Use what the server listed.

        :param listing: The tools.
        :param publish: Whether the toolset has them at once.
        """

    @abstractmethod
    def _lock(self) -> threading.Lock:
        """Give the lock that is held while the tools are changed."""

    @abstractmethod
    def _publish(self, children: list[Tool]) -> None:
        """Have these tools of the server from now on. With the lock."""

    @abstractmethod
    def _own_tools(self) -> list[Tool]:
        """Give the tools of the server that the toolset has now."""

    @abstractmethod
    def _added_tools(self) -> list[Tool]:
        """Give the tools that are not the server's."""

    @abstractmethod
    def _instructed(self, tools: list[Tool]) -> list[Tool]:
        """Give tools the instructions of the server, if the model is to get them."""

    @abstractmethod
    def _is_absent(self) -> bool:
        """Tell whether the server is not required and cannot be reached."""


class FreshTools:
    """
    Keeps the tools of a toolset fresh.
    """

    def __init__(self, toolset: RefreshedToolset, *, cache_tools: bool, update_between_steps: bool) -> None:
        """
        Initialize the FreshTools.

        :param toolset: Whose tools.
        :param cache_tools: Whether a listing is used again until the server says that it changed.
        :param update_between_steps: Whether a run of an Agent sees new tools at its next step.
        """
        self._toolset = toolset
        self._cache_tools = cache_tools
        self._updates_between_steps = update_between_steps
        # The moment of the listing in use, and that of the last change.
        self._listed_at = 0
        self._changed_at = 0
        self._expires_at: float | None = None
        # What the server has and the toolset not yet.
        self._fetched: list[Tool] | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._may_fetch_at = 0.0
        self._callbacks: list[Delivery] = []
        # What the callbacks know of: what the model sees of each tool.
        self._told: dict[str, Any] = {}
        self._telling = threading.Lock()
        # What runs of Agents of Haystack 3 began with.
        self._spawned: list[weakref.ref[ToolsOfRun]] = []
        # Held by the connection, which must not keep the toolset alive.
        noting = weakref.WeakMethod(self._note_change)

        def note(change: ServerChange) -> None:
            method = noting()
            if method is not None:
                method(change)

        toolset._connection._watch(Watcher(WantedChanges(lists=frozenset({"tools"})), note))

    @property
    def is_due(self) -> bool:
        """
        Whether the server is to be asked for its tools again.
        """
        has_expired = self._expires_at is not None and monotonic() >= self._expires_at
        return not self._cache_tools or has_expired or self.is_outdated

    @property
    def is_outdated(self) -> bool:
        """
        Whether the server has said that its tools changed, and not yet how.
        """
        return self._listed_at < self._changed_at

    @property
    def has_news(self) -> bool:
        """
        Whether the server was asked for its tools, and the toolset does not have the answer yet.
        """
        return self._fetched is not None

    def is_older(self, listing: ToolListing) -> bool:
        """
        Tell whether a later listing is in use already.

        :param listing: A listing.
        :returns: True if nothing is to be done.
        """
        return listing.number <= self._listed_at

    def loaded(self, listing: ToolListing, children: list[Tool], *, publish: bool) -> None:
        """
        Take tools over. With the toolset's lock.

        :param listing: What the server listed.
        :param children: The tools that are made of it.
        :param publish: Whether the toolset has them at once.
        """
        self._listed_at, self._expires_at = listing.number, listing.expires_at
        self._fetched = children
        if publish:
            self.publish_now()
        if listing.number < self._changed_at:
            AsyncExecutor.get_instance().post(self._start_fetching)

    def publish_now(self) -> None:
        """
        Do the same as `publish`, with the toolset's lock.
        """
        children, self._fetched = self._fetched, None
        if children is not None:
            self._toolset._publish(children)

    def publish(self) -> None:
        """
        Have the toolset have what the server has, as far as that is known.
        """
        if self._fetched is not None:
            with self._toolset._lock():
                self.publish_now()

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
        # How long to wait before the next listing, in seconds; None if there is to be none.
        if not self.is_outdated:
            return None
        return max(self._may_fetch_at - monotonic(), 0.0)

    async def _fetch(self) -> bool:
        # Tells whether it may go on.
        connection = self._toolset._connection
        if not connection._has_own_session():
            return False  # the next warm-up lists them, and a background task opens no session
        try:
            listing = await connection._list_if_open_async()
            # In a thread: `tool_filter` is the user's.
            await call(self._load, listing)
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

    def _load(self, listing: ToolListing) -> None:
        self._toolset._load_listing(listing, publish=False)

    def on_change(self, callback: Callable[[MCPToolsChange], Any]) -> Unsubscribe:
        """
        Call a function when the tools changed.

        :param callback: The function.
        :returns: Ends that.
        """
        delivery = Delivery(callback, "The function of `on_change`")
        if not self._callbacks:
            self._told = self._seen()
        self._callbacks = [*self._callbacks, delivery]

        def unsubscribe() -> None:
            self._callbacks = [each for each in self._callbacks if each is not delivery]

        return unsubscribe

    def _seen(self) -> dict[str, Any]:
        own = self._toolset._own_tools() if self._fetched is None else self._fetched
        tools = [*(own if not self._toolset._is_absent() else []), *self._toolset._added_tools()]
        return {tool.name: (tool.description, tool.parameters) for tool in tools}

    def announce(self) -> None:
        """
        Tell the callbacks if the tools are others now. From any thread.
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

    def shown(self) -> list[Tool]:
        """
        Return the tools of the server that the toolset has.
        """
        if self._updates_between_steps:
            self.publish()
        return self._toolset._own_tools()

    def spawn(self, names: set[str] | None) -> Toolset:
        """
        Give a run of an Agent its tools, on Haystack 3.

        :param names: Names of the tools that it may use; all by default.
        :returns: A toolset for the run.
        """
        tools = ToolsOfRun(self._toolset, names, live=self._updates_between_steps)
        self._toolset._hold_for(tools)
        with self._toolset._lock():
            self._spawned = [*(each for each in self._spawned if each() is not None), weakref.ref(tools)]
        return tools

    def replace_in_runs(self, tool: Tool, other: Tool) -> None:
        """
        Have the runs that began so far use another object for a tool. With the toolset's lock.

        :param tool: The tool.
        :param other: The object.
        """
        spawned = (each() for each in self._spawned)
        for tools in (each.own for each in spawned if each):
            tools[:] = [other if each is tool else each for each in tools]


async def _keep_fetching(reference: weakref.ref[FreshTools]) -> None:
    # It must not keep the toolset alive while it waits: a server may never come to rest.
    while (fresh := reference()) is not None and (pause := fresh._fetch_pause) is not None:
        if pause:
            del fresh
            await asyncio.sleep(pause)
        elif not await fresh._fetch():
            return


class ToolsOfRun(RunToolset):
    """
    The tools of a toolset as they are at the start of an Agent's run.
    """

    def __init__(self, toolset: RefreshedToolset, names: set[str] | None, *, live: bool) -> None:
        """
        Initialize the ToolsOfRun.

        :param toolset: The toolset.
        :param names: Names of the tools that the run may use; None for all.
        :param live: Whether it sees new tools of the server, too.
        """
        super().__init__(toolset, names)
        self._toolset = toolset
        self._live = live
        self.own: list[Tool] = [] if toolset._is_absent() else toolset._own_tools()

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools of the run. Those that are added to the toolset meanwhile are among them.
        """
        tools = list(self._toolset) if self._live else [*self.own, *self._toolset._added_tools()]
        return iter(self._toolset._instructed([tool for tool in tools if self._is_selected(tool)]))
