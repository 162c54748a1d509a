# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Listens to changes at a server, and notifies their watchers. Does not import the MCP SDK.

.. code-block:: text

    before 2026-07-28   lists: notifications, unsolicited       resources: resources/subscribe, one by one
    since 2026-07-28    both: one subscriptions/listen for each session, reopened when it ends or others are wanted

Changes that may have been missed count as changes. Listening ends with its session, and opens none. All state is
touched in the executor's loop only.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging as stdlib_logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, get_args

from haystack import logging

from haystack_integrations.tools.mcp.connection.context_managed import UsesRunner, asynchronous, blocking
from haystack_integrations.tools.mcp.connection.limits import back_off
from haystack_integrations.tools.mcp.connection.reading import uri_of
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError, MCPConnectionError
from haystack_integrations.tools.mcp.handlers.calling import DeliveryQueue, call
from haystack_integrations.tools.mcp.protocol.changes import (
    ChangedList,
    ServerChange,
    Unsubscribe,
    WantedChanges,
    Watcher,
)
from haystack_integrations.tools.mcp.protocol.request_errors import failed_to

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.session import Session

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The pauses before a stream is reopened, and how long a stream must last to reset them, in seconds.
_FIRST_PAUSE = 0.5
_MAX_PAUSE = 60.0
_STABLE_AFTER = 30.0

# The protocol's code for "Method not found".
_METHOD_NOT_FOUND = -32601


class ChangeQueue(DeliveryQueue):
    """
    Passes changes to a user's function one at a time; a change already in the queue is not queued again.
    """

    def __init__(self, callback: Callable[[Any], Any], description: str) -> None:
        """
        Initialize the ChangeQueue.

        :param callback: The function. A sync one runs in separate threads, an async one in the executor's loop.
        :param description: Describes it in logs.
        :raises ValueError: If it is not a function.
        """
        if not callable(callback):
            msg = f"`callback` must be a function, got {type(callback).__name__}"
            raise ValueError(msg)
        # The function may outlive the call during which the change arrives, and does not run for that caller.
        super().__init__(self._call, context=contextvars.Context())
        self._callback = callback
        self._description = description

    def put(self, item: Any) -> None:
        """
        Queue a change. Call this in the loop.

        :param item: The argument of the function.
        """
        # A repeated change moves to the end, so that the latest change is reported last.
        self._queue = deque(each for each in self._queue if each[0] != item)
        super().put(item)

    async def _call(self, item: Any) -> None:
        try:
            await call(self._callback, item)
        except Exception as error:
            logger.exception(
                "{what} failed: {kind}: {error}", what=self._description, kind=type(error).__name__, error=str(error)
            )


class Watching(UsesRunner):
    """
    The methods of connections and toolsets by which users subscribe to changes at the server.
    """

    def on_list_change(
        self,
        callback: Callable[[str], Any],
        lists: ChangedList | Iterable[ChangedList] = ("tools", "prompts", "resources"),
    ) -> Unsubscribe:
        """
        Call a function whenever the server reports that one of its lists changed.

        It is also called when listening starts again, e.g. after a lost session was reopened or another function was
        added, because a change may have been missed. A server reports changes only while a session is open; this
        method opens none.

        A sync function runs in a separate thread, and may use the same connection. An async one runs in the event loop
        that all sessions share, and must not block it. It is called again only after it has returned. If it raises, the
        error is logged, and the next change is reported to it all the same.

        :param callback: Gets the name of the list: "tools", "prompts" or "resources".
        :param lists: The list or lists to watch.
        :returns: A function that ends the subscription. `close` pauses it until the connection is used again, and
            garbage collection of the connection ends it.
        :raises ValueError: If a parameter is invalid.
        """
        delivery = ChangeQueue(callback, "The function of `on_list_change`")
        wanted = {lists} if isinstance(lists, str) or not isinstance(lists, Iterable) else set(lists)
        names: frozenset[ChangedList] = frozenset(name for name in get_args(ChangedList) if name in wanted)
        if not names or names != wanted:
            msg = f"`lists` must be some of {', '.join(map(repr, get_args(ChangedList)))}, got {lists!r}"
            raise ValueError(msg)
        return self._runner._watch(Watcher(WantedChanges(lists=names), lambda change: delivery.put(change.kind)))

    async def _subscribe_resource(self, resource: str | types.Resource, callback: Callable[[str], Any]) -> Unsubscribe:
        """
        Call a function whenever the server reports that a resource changed.

        Opens a session if none is open. After a lost session was reopened, the resource is subscribed to again, and the
        function is called, because a change may have been missed.

        :param resource: Its URI, or its entry from `list_resources`.
        :param callback: Gets the URI that changed, which may name a part of the resource. Read the resource again to
            get its new contents. The function runs as for `on_list_change`.
        :returns: A function that ends the subscription.
        :raises MCPConnectionError: If the server does not report changes of this resource.
        :raises ValueError: If a parameter is invalid.
        """
        delivery = ChangeQueue(callback, "The function of `subscribe_resource`")
        uri = uri_of(resource)
        watcher = Watcher(WantedChanges(uris=frozenset([uri])), lambda change: delivery.put(change.uri))
        unsubscribe = self._runner._watch(watcher)
        try:
            await self._runner._subscribed(uri)
            watcher.is_subscribed = True
        except BaseException:
            unsubscribe()
            raise
        return unsubscribe

    subscribe_resource: Final = blocking(_subscribe_resource)
    subscribe_resource_async: Final = asynchronous(_subscribe_resource)


class Watchers:
    """
    The watchers of one server.
    """

    def __init__(self, server: str) -> None:
        """
        Initialize the Watchers. There are none yet.

        :param server: Describes the server.
        """
        self.server: str = server
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()
        # Listens in the latest session.
        self.listener: ChangeListener | None = None

    def add(self, watcher: Watcher) -> None:
        """
        Notify a watcher from now on.

        :param watcher: The watcher.
        """
        self._watchers.add(watcher)
        self._wake()

    def remove(self, watcher: Watcher) -> None:
        """
        Do not notify a watcher any more.

        :param watcher: The watcher.
        """
        self._watchers.discard(watcher)
        self._wake()

    def _wake(self) -> None:
        # While the executor is shut down, there may be a new loop already.
        if self.listener is not None and self.listener.loop is asyncio.get_running_loop():
            self.listener.wake_event.set()

    def wanted(self) -> WantedChanges:
        """
        Return the changes that any watcher wants.

        :returns: The changes of all watchers together.
        """
        all_wanted = [watcher.wanted for watcher in list(self._watchers)]
        return WantedChanges(
            frozenset[ChangedList]().union(*(wanted.lists for wanted in all_wanted)),
            frozenset[str]().union(*(wanted.uris for wanted in all_wanted)),
        )

    def subscribed(self) -> frozenset[str]:
        """
        Return the resources whose changes were reported before, perhaps in an earlier session.

        :returns: Their URIs.
        """
        return frozenset[str]().union(*(each.wanted.uris for each in list(self._watchers) if each.is_subscribed))

    def announce(self, *changes: ServerChange) -> None:
        """
        Notify the watchers that want these changes.

        :param changes: What changed.
        """
        for change in changes:
            for watcher in list(self._watchers):
                if change.kind in watcher.wanted.lists or _is_part(change.uri, watcher.wanted):
                    watcher.notify(change)

    def listen_in(self, session: Session, *, is_first: bool, on_gap: Callable[[], None]) -> ChangeListener:
        """
        Make the listener of a session.

        :param session: The session.
        :param is_first: Whether it is the first one. In a later one, everything may have changed.
        :param on_gap: Called when changes may have been missed in the middle of the session.
        :returns: The listener, which lasts as long as the session.
        """
        self.listener = ChangeListener(self, session, is_first=is_first, on_gap=on_gap)
        return self.listener


def _is_part(uri: str | None, wanted: WantedChanges) -> bool:
    # A server may name a part of the resource that was subscribed to.
    return uri is not None and any(uri == each or uri.startswith(each.rstrip("/") + "/") for each in wanted.uris)


class ChangeListener:
    """
    Listens to changes in one session.
    """

    def __init__(self, watchers: Watchers, session: Session, *, is_first: bool, on_gap: Callable[[], None]) -> None:
        """
        Initialize the ChangeListener.

        :param watchers: The watchers to notify.
        :param session: The session.
        :param is_first: Whether it is the first session.
        :param on_gap: Called when changes may have been missed.
        """
        self._watchers = watchers
        self._session = session
        self._is_first = is_first
        self._on_gap = on_gap
        # Set when other changes are wanted, or a stream has ended.
        self.wake_event: asyncio.Event = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        # The changes that the server reports, and why it does not report those of a resource.
        self._served = WantedChanges()
        self._refused: dict[str, MCPConnectionError] = {}
        # Whether a stream is being opened, and which resources the last stream, or session, reported.
        self._is_opening = False
        self._reported_before = watchers.subscribed()
        # The tasks that end subscriptions to resources.
        self._unsubscribing: dict[str, asyncio.Task[None]] = {}
        # Why the server reports no more changes.
        self._end_reason: str | None = None
        self._served_changed = asyncio.Event()

    @property
    def offers_resources(self) -> bool:
        """
        Whether the server offers to report changes of single resources.
        """
        return bool(((self._session.details.capabilities or {}).get("resources") or {}).get("subscribe"))

    def wanted(self) -> WantedChanges:
        """
        Return the wanted changes that the server offers to report.

        :returns: The lists and the URIs.
        """
        wanted, capabilities = self._watchers.wanted(), self._session.details.capabilities or {}
        lists: frozenset[ChangedList] = frozenset(
            kind for kind in wanted.lists if (capabilities.get(kind) or {}).get("listChanged")
        )
        return WantedChanges(lists, wanted.uris if self.offers_resources else frozenset())

    async def wait_until_served(self, uri: str) -> None:
        """
        Wait until the server reports the changes of a resource.

        :param uri: Its URI, which a watcher wants.
        :raises MCPConnectionError: If the server does not report them.
        """
        while uri not in self._served.uris:
            if uri in self._refused:
                raise self._refused[uri]
            if self._end_reason is not None:
                raise MCPConnectionError(self._end_reason, operation="subscribe_resource")
            if self._session.client.listens:
                await self._served_changed.wait()
            else:
                if (ending := self._unsubscribing.get(uri)) is not None:  # the server may reorder the two requests
                    await asyncio.wait({ending})
                await self._session.uncounted(self._session.client.subscribe_resource(uri))
                self._set_served(WantedChanges(uris=self._served.uris | {uri}))

    def _set_served(self, served: WantedChanges) -> None:
        self._served = served
        self._served_changed.set()
        self._served_changed.clear()

    async def run(self) -> None:
        """
        Listen until it is cancelled, or the server does not report changes at all.
        """
        if not self._is_first:
            # Watchers of resources are notified once the server knows their subscriptions again.
            self._watchers.announce(*WantedChanges(self._watchers.wanted().lists).as_changes())
        try:
            async with asyncio.TaskGroup() as group:
                await (self._listen(group) if self._session.client.listens else self._keep_subscribed(group))
        except Exception:
            logger.exception("Listening to changes of {server} ended", server=self._watchers.server)
        finally:
            where = failed_to("subscribe_resource", self._watchers.server)
            self._end_reason = self._end_reason or f"{where}: the session ended meanwhile"
            self._set_served(WantedChanges())

    async def _keep_subscribed(self, group: asyncio.TaskGroup) -> None:
        begun = frozenset[str]()
        while True:
            wanted = self.wanted().uris
            for uri in self._served.uris - wanted:
                self._set_served(WantedChanges(uris=self._served.uris - {uri}))
                self._unsubscribing[uri] = group.create_task(self._unsubscribe(uri))
            # After a lost session, or for a connection that was closed and is used again.
            lacking = (wanted & self._watchers.subscribed()) - self._served.uris
            for uri in lacking - begun:
                group.create_task(self._subscribe_again(uri))
            begun = wanted & (begun | lacking)
            await self.wake_event.wait()
            self.wake_event.clear()

    async def _subscribe_again(self, uri: str) -> None:
        failures = 0
        while uri in self.wanted().uris:
            try:
                await self.wait_until_served(uri)
            except MCPConnectionError as error:
                # A user who declined to log in is not asked again.
                if error.code is not None or isinstance(error, MCPAuthorizationError):
                    logger.warning(
                        "No more changes of resource '{uri}' are reported: {error}", uri=uri, error=str(error)
                    )
                    return
                failures = await self._wait_before_retry(error, failures)
            else:
                self._watchers.announce(ServerChange("resource", uri))
                return

    async def _unsubscribe(self, uri: str) -> None:
        try:
            await self._session.uncounted(self._session.client.unsubscribe_resource(uri))
        except MCPConnectionError as error:
            logger.debug("{error}", error=str(error))
        finally:
            self._unsubscribing.pop(uri, None)

    async def _listen(self, group: asyncio.TaskGroup) -> None:
        failures = 0
        while True:
            self.wake_event.clear()
            self._refused = {}
            wanted, began = self.wanted(), monotonic()
            if not wanted:
                await self.wake_event.wait()
                continue
            self._is_opening = True
            stream = group.create_task(self._stream(wanted))
            # The acknowledgement of one stream must not be taken for the next stream's.
            while not stream.done() and (self._is_opening or self.wanted() == wanted):
                await self.wake_event.wait()
                self.wake_event.clear()
            self._set_served(WantedChanges())
            if not stream.done():
                stream.cancel()
                continue
            self._on_gap()  # results that were cached during the stream may be out of date
            if self._is_refused(wanted, stream.result()):
                return
            failures = await self._wait_before_retry(
                stream.result(), 0 if monotonic() - began > _STABLE_AFTER else failures
            )

    async def _stream(self, wanted: WantedChanges) -> Exception | None:
        """
        Listen to one stream until it ends, and return its error.
        """
        try:
            await self._session.uncounted(self._session.client.listen(wanted, partial(self._opened, wanted)))
        except Exception as error:
            return error
        finally:
            self.wake_event.set()
        return None

    def _opened(self, wanted: WantedChanges, honored: WantedChanges) -> None:
        for uri in wanted.uris - honored.uris:
            msg = f"{self._watchers.server} does not report changes of resource '{uri}'"
            self._refused[uri] = MCPConnectionError(msg)
        self._set_served(honored)
        self._on_gap()  # results that were cached without a stream may be out of date
        # Changes may have been missed while there was no stream. New subscribers to a resource read it only now.
        self._watchers.announce(*WantedChanges(honored.lists, honored.uris & self._reported_before).as_changes())
        self._reported_before = honored.uris
        self._is_opening = False
        self.wake_event.set()

    def _is_refused(self, wanted: WantedChanges, failure: Exception | None) -> bool:
        if not isinstance(failure, MCPConnectionError) or failure.code is None:
            return False
        server = self._watchers.server
        if failure.code == _METHOD_NOT_FOUND:
            logger.info(
                "{server} says that it reports changes, but does not: {error}", server=server, error=str(failure)
            )
            self._end_reason = f"{server} does not report changes: {failure}"
            return True
        self._refused = dict.fromkeys(wanted.uris, failure)
        self._set_served(WantedChanges())
        return False

    async def _wait_before_retry(self, failure: Exception | None, failures: int) -> int:
        pause = back_off(failures, base=_FIRST_PAUSE, max_pause=_MAX_PAUSE)
        logger.log(
            stdlib_logging.INFO if not failures else stdlib_logging.DEBUG,
            "Listening to changes of {server} ended ({reason}); listening again in {seconds:.1f} s",
            server=self._watchers.server,
            reason="the server closed it" if failure is None else str(failure).rstrip("."),
            seconds=pause,
        )
        await asyncio.sleep(pause)
        return failures + 1
