# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How users hear of changes at a server. Free of the MCP SDK.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, get_args

from haystack import logging

from haystack_integrations.tools.mcp.handlers.calling import call
from haystack_integrations.tools.mcp.protocol.changes import ChangedList, ServerChange, WantedChanges

logger: logging.PatchedLogger = logging.getLogger(__name__)

_moments = itertools.count(1)


def next_moment() -> int:
    """
    Give a moment, for the order of listings and changes.

    :returns: A number greater than all before in this process.
    """
    return next(_moments)


# Ends a subscription; it may be called from any thread, and again.
Unsubscribe: TypeAlias = Callable[[], None]


class Watcher:
    """
    Somebody who wants to hear of changes. It is heard as long as somebody holds it.
    """

    def __init__(self, wanted: WantedChanges, notify: Callable[[ServerChange], None]) -> None:
        """
        Initialize the Watcher.

        :param wanted: Of which changes.
        :param notify: Called with each of them in the executor's loop; must not block and must not raise.
        """
        self.wanted = wanted
        self.notify = notify


class Delivery:
    """
    Calls a function of the user with what changed, one after the other; the same change that still waits only once.
    """

    def __init__(self, callback: Callable[[Any], Any], what: str) -> None:
        """
        Initialize the Delivery.

        :param callback: The function. A sync one runs in threads of its own, an async one in the executor's loop.
        :param what: Names it in logs.
        """
        self._callback = callback
        self._what = what
        self._waiting: dict[Any, None] = {}
        self._task: asyncio.Task[None] | None = None

    def put(self, item: Any) -> None:
        """
        Deliver something after what waits. To be called in the loop.

        :param item: What the function gets; hashable.
        """
        # The last change is told last: a tool that comes, goes and comes again is there.
        self._waiting.pop(item, None)
        self._waiting[item] = None
        if self._task is None or self._task.done():
            # Not in the context of a call: it may outlive the call.
            self._task = asyncio.create_task(self._drain(), context=contextvars.Context())

    async def _drain(self) -> None:
        while self._waiting:
            item = next(iter(self._waiting))
            del self._waiting[item]
            try:
                await call(self._callback, item)
            except Exception as error:
                logger.exception(
                    "{what} failed: {kind}: {error}", what=self._what, kind=type(error).__name__, error=str(error)
                )


class Watching:
    """
    What a connection or a toolset has for users who want to hear of changes at the server.
    """

    @abstractmethod
    def _watch(self, watcher: Watcher) -> Unsubscribe:
        """
        Tell somebody of changes.

        :param watcher: Who.
        :returns: Ends that.
        """

    @abstractmethod
    def _subscribe(self, watcher: Watcher, uri: str) -> None:
        """
        Tell somebody, who watches already, of the changes of a resource.

        :param watcher: Who.
        :param uri: URI of the resource.
        :raises MCPConnectionError: If the server does not tell of them.
        """

    @abstractmethod
    async def _subscribe_async(self, watcher: Watcher, uri: str) -> None:
        """Do the same without blocking the event loop."""

    def on_list_change(
        self,
        callback: Callable[[str], Any],
        lists: ChangedList | Iterable[ChangedList] = ("tools", "prompts", "resources"),
    ) -> Unsubscribe:
        """
        Call a function whenever the server says that one of its lists changed.

        It is called as well when listening begins, and after a lost session was opened again, because a change may have
        been missed. A server tells of changes only while a session is open; this opens none.

        A sync function runs in a thread of its own, and may use the same connection. An async one runs in the event
        loop of all sessions, which it must not block. It is called again only after it returned. If it raises, that is
        logged, and it is called for the next change all the same.

        :param callback: Gets the name of the list: "tools", "prompts" or "resources".
        :param lists: Which list, or which lists.
        :returns: A function that ends this. It ends with `close` and garbage collection of the connection, too, but not
            if the connection is used again after `close`.
        :raises ValueError: If a parameter is invalid.
        """
        check_callback(callback)
        wanted = {lists} if isinstance(lists, str) else set(lists)
        names: frozenset[ChangedList] = frozenset(name for name in get_args(ChangedList) if name in wanted)
        if not names or names != wanted:
            msg = f"`lists` must be some of {', '.join(map(repr, get_args(ChangedList)))}, got {lists!r}"
            raise ValueError(msg)
        delivery = Delivery(callback, "The function of `on_list_change`")
        return self._watch(Watcher(WantedChanges(lists=names), lambda change: delivery.put(change.kind)))

    def subscribe_resource(self, resource: Any, callback: Callable[[str], Any]) -> Unsubscribe:
        """
        Call a function whenever the server says that a resource changed.

        Opens a session if none is open. After a lost session was opened again, the resource is subscribed to again, and
        the function is called, because a change may have been missed.

        :param resource: Its URI, or what `list_resources` says of it.
        :param callback: Gets the URI that changed, which may be that of a part of the resource. Read it again to know
            what it is now. It is called as that of `on_list_change`.
        :returns: A function that ends the subscription.
        :raises MCPConnectionError: If the server does not tell of changes of this resource.
        :raises ValueError: If a parameter is invalid.
        """
        uri, watcher = _resource_watcher(resource, callback)
        unsubscribe = self._watch(watcher)
        try:
            self._subscribe(watcher, uri)
        except BaseException:
            unsubscribe()
            raise
        return unsubscribe

    async def subscribe_resource_async(self, resource: Any, callback: Callable[[str], Any]) -> Unsubscribe:
        """
        Do the same as `subscribe_resource` without blocking the event loop.
        """
        uri, watcher = _resource_watcher(resource, callback)
        unsubscribe = self._watch(watcher)
        try:
            await self._subscribe_async(watcher, uri)
        except BaseException:
            unsubscribe()
            raise
        return unsubscribe


def _resource_watcher(resource: Any, callback: Callable[[str], Any]) -> tuple[str, Watcher]:
    check_callback(callback)
    uri = resource if isinstance(resource, str) else getattr(resource, "uri", None)
    if not uri:
        msg = f"`resource` must be a URI or a Resource, got {type(resource).__name__}"
        raise ValueError(msg)
    delivery = Delivery(callback, "The function of `subscribe_resource`")
    return str(uri), Watcher(WantedChanges(uris=frozenset([str(uri)])), lambda change: delivery.put(change.uri))


def check_callback(callback: object) -> None:
    """
    Check a function of the user.

    :param callback: The function.
    :raises ValueError: If it is none.
    """
    if not callable(callback):
        msg = f"`callback` must be a function, got {type(callback).__name__}"
        raise ValueError(msg)
