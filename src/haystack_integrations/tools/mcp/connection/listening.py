# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who wants to hear of changes at a server, and what keeps listening to them.

.. code-block:: text

    before 2026-07-28   lists: the server says it unasked          resources: resources/subscribe, one by one
    since 2026-07-28    both: one subscriptions/listen for each session, opened again when it ends or others are wanted

What may have been missed meanwhile counts as changed. It ends with its session, and opens none. All state is touched in
the executor's loop only.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from haystack import logging

from haystack_integrations.tools.mcp.connection.replay import back_off
from haystack_integrations.tools.mcp.connection.watching import Watcher
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.protocol.changes import ChangedList, ServerChange, WantedChanges
from haystack_integrations.tools.mcp.protocol.error_texts import failed_to

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.session import Session

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The pauses before a stream is opened again, in seconds, and how long one must have lasted to count as a good one.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_GOOD_AFTER = 30.0
_MOST_DOUBLINGS = 10

# The protocol's code for "Method not found".
_METHOD_NOT_FOUND = -32601


class Listening:
    """
    Who wants to hear of changes at one server.
    """

    def __init__(self, server: str) -> None:
        """
        Initialize the Listening.

        :param server: Describes the server.
        """
        self._server = server
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()
        self._attendants: weakref.WeakSet[Attendant] = weakref.WeakSet()

    def add(self, watcher: Watcher) -> None:
        """
        Tell somebody of changes from now on.

        :param watcher: Who.
        """
        self._watchers.add(watcher)
        self._wake()

    def remove(self, watcher: Watcher) -> None:
        """
        Tell somebody no more.

        :param watcher: Who.
        """
        self._watchers.discard(watcher)
        self._wake()

    def _wake(self) -> None:
        for attendant in list(self._attendants):
            attendant.wake()

    def wanted(self) -> WantedChanges:
        """
        Say what anybody wants to hear of.

        :returns: All of it.
        """
        all_wanted = [watcher.wanted for watcher in list(self._watchers)]
        return WantedChanges(
            frozenset[ChangedList]().union(*(wanted.lists for wanted in all_wanted)),
            frozenset[str]().union(*(wanted.uris for wanted in all_wanted)),
        )

    def announce(self, change: ServerChange) -> None:
        """
        Tell everybody who wants to know.

        :param change: What changed.
        """
        for watcher in list(self._watchers):
            if change.kind in watcher.wanted.lists or (change.uri is not None and _is_part(change.uri, watcher.wanted)):
                watcher.notify(change)

    def attend(self, session: Session, *, is_first: bool, on_gap: Callable[[], None]) -> Attendant:
        """
        Listen as long as a session lasts.

        :param session: The session.
        :param is_first: Whether it is the first one; of another, everything may have changed.
        :param on_gap: Called when changes may have been missed in the middle of the session.
        :returns: What listens.
        """
        attendant = Attendant(self, session, self._server, is_first=is_first, on_gap=on_gap)
        self._attendants.add(attendant)
        return attendant


def _is_part(uri: str, wanted: WantedChanges) -> bool:
    # A server may name a part of the resource that was subscribed to.
    return any(uri == each or uri.startswith(each.rstrip("/") + "/") for each in wanted.uris)


class _Stream:
    """One `subscriptions/listen`."""

    def __init__(self, session: Session, wanted: WantedChanges) -> None:
        self.wanted = wanted
        self.honored: WantedChanges | None = None
        self._settled = asyncio.Event()
        self.opened_at = asyncio.get_running_loop().time()
        self.task = asyncio.create_task(session.listen(wanted, self._acknowledged))
        self.task.add_done_callback(self._ended)

    def _acknowledged(self, honored: WantedChanges) -> None:
        self.honored = honored
        self._settled.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # whoever looks for it has it; asyncio is not to log it
        self._settled.set()

    async def opened(self) -> bool:
        await self._settled.wait()
        return not self.task.done()

    @property
    def lasted(self) -> float:
        return asyncio.get_running_loop().time() - self.opened_at

    @property
    def failure(self) -> BaseException | None:
        return None if self.task.cancelled() else self.task.exception()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


class Attendant:
    """
    Listens to changes in one session.
    """

    def __init__(
        self, listening: Listening, session: Session, server: str, *, is_first: bool, on_gap: Callable[[], None]
    ) -> None:
        """
        Initialize the Attendant.

        :param listening: Who wants to know.
        :param session: The session.
        :param server: Describes the server.
        :param is_first: Whether it is the first session.
        :param on_gap: Called when changes may have been missed.
        """
        self._on_gap = on_gap
        self._listening = listening
        self._session = session
        self._server = server
        self._is_first = is_first
        self._waking = asyncio.Event()
        # What the server sends, and why it does not send the changes of a resource.
        self._served = WantedChanges()
        self._refused: dict[str, MCPConnectionError] = {}
        self._progress = asyncio.Condition()
        self._is_over = False

    def wake(self) -> None:
        """
        Look again what is wanted.
        """
        self._waking.set()

    def offered(self) -> WantedChanges:
        """
        Say which of the wanted changes the server says that it tells of.

        :returns: Those.
        """
        wanted, capabilities = self._listening.wanted(), self._session.details.capabilities or {}
        lists: frozenset[ChangedList] = frozenset(
            kind for kind in wanted.lists if (capabilities.get(kind) or {}).get("listChanged")
        )
        return WantedChanges(lists, wanted.uris if self.offers_resources else frozenset())

    @property
    def offers_resources(self) -> bool:
        """
        Whether the server says that it tells of changes of single resources.
        """
        return bool(((self._session.details.capabilities or {}).get("resources") or {}).get("subscribe"))

    async def served(self, uri: str) -> None:
        """
        Wait until the server tells of the changes of a resource.

        :param uri: Its URI, which somebody wants to hear of.
        :raises MCPConnectionError: If it does not.
        """
        async with self._progress:
            await self._progress.wait_for(lambda: uri in self._served.uris or uri in self._refused or self._is_over)
        if uri in self._served.uris:
            return
        if uri in self._refused:
            raise self._refused.pop(uri)
        msg = f"{failed_to('subscribe_resource', self._server)}: the session ended meanwhile"
        raise MCPConnectionError(msg, operation="subscribe_resource")

    async def run(self) -> None:
        """
        Listen until it is cancelled.
        """
        try:
            await self._run()
        finally:
            self._is_over = True
            async with self._progress:
                self._progress.notify_all()

    async def _run(self) -> None:
        if not self._is_first:
            for change in self._listening.wanted().as_changes():
                if change.uri is None:  # who subscribed to a resource is told once the server knows again
                    self._listening.announce(change)
        try:
            await (self._listen() if self._session.listens else self._subscribe())
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("Listening to changes of {server} ended", server=self._server)

    async def _note(self, served: WantedChanges, refused: dict[str, MCPConnectionError] | None = None) -> None:
        self._served = served  # at once: several are noted at the same time
        if refused:
            self._refused.update(refused)
        async with self._progress:
            self._progress.notify_all()

    async def _subscribe(self) -> None:
        # By URI: what the server is asked for, and whether that is to subscribe. One that it never answers holds up no
        # other, and is given up once the opposite is wanted.
        asking: dict[str, tuple[bool, asyncio.Task[None]]] = {}
        try:
            while True:
                self._waking.clear()
                wanted = self.offered().uris
                for uri, (is_to_subscribe, request) in list(asking.items()):
                    if request.done():
                        del asking[uri]
                        request.result()
                    elif is_to_subscribe != (uri in wanted):
                        del asking[uri]
                        request.cancel()
                for uri in sorted(self._served.uris - wanted - asking.keys()):
                    asking[uri] = False, self._ask(self._end_subscription(uri))
                for uri in sorted(wanted - self._served.uris - self._refused.keys() - asking.keys()):
                    asking[uri] = True, self._ask(self._begin_subscription(uri))
                await self._waking.wait()
        finally:
            requests = {request for _, request in asking.values()}
            for request in requests:
                request.cancel()
            if requests:
                await asyncio.wait(requests)

    def _ask(self, request: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(request)
        task.add_done_callback(lambda _: self.wake())
        return task

    async def _end_subscription(self, uri: str) -> None:
        await self._note(WantedChanges(uris=self._served.uris - {uri}))
        try:
            await self._session.unsubscribe_resource(uri)
        except MCPConnectionError as error:
            logger.debug("{error}", error=str(error))

    async def _begin_subscription(self, uri: str) -> None:
        try:
            await self._session.subscribe_resource(uri)
        except MCPConnectionError as error:
            self._warn(uri, error)
            await self._note(self._served, {uri: error})
            return
        await self._note(WantedChanges(uris=self._served.uris | {uri}))
        if not self._is_first:
            self._listening.announce(ServerChange("resource", uri))

    def _warn(self, uri: str, error: MCPConnectionError) -> None:
        if not self._is_first:  # otherwise who subscribes gets it
            logger.warning("No more changes of resource '{uri}' are told: {error}", uri=uri, error=str(error))

    async def _listen(self) -> None:
        stream: _Stream | None = None
        # Whatever was not sent by the stream before may have been missed.
        was_served, failures, has_gap = WantedChanges(), 0, False
        try:
            while True:
                self._waking.clear()
                wanted = self.offered()
                if stream is not None and stream.task.done():
                    ended, stream, was_served, has_gap = stream, None, WantedChanges(), True
                    self._on_gap()  # what is looked at from now on must not be what was known before …
                    await self._note(WantedChanges())
                    failures = 0 if ended.lasted > _GOOD_AFTER else failures
                    failures += await self._wait_after(ended, failures)
                    continue
                if not wanted and stream is not None:
                    await stream.close()
                    stream, was_served = None, WantedChanges()
                    await self._note(WantedChanges())
                if wanted and (stream is None or stream.wanted != wanted):
                    # The new one is open before the old one is closed, so that nothing is missed.
                    following = _Stream(self._session, wanted)
                    try:
                        is_open = await following.opened()
                    except BaseException:
                        await following.close()
                        raise
                    if not is_open:
                        if self._is_refusal(following.failure):
                            await self._give_up(following.failure)
                            return
                        await self._note_refusal(wanted, following.failure)
                        failures += await self._wait_after(following, failures)
                        continue
                    if stream is not None:
                        await stream.close()
                    stream = following
                    if has_gap:
                        has_gap = False
                        self._on_gap()  # … nor what was learned while nobody listened
                    await self._opened(stream, was_served, is_first=self._is_first and not failures)
                    was_served = stream.honored or WantedChanges()
                await self._woken_or_ended(stream)
        finally:
            if stream is not None:
                await stream.close()

    async def _opened(self, stream: _Stream, was_served: WantedChanges, *, is_first: bool) -> None:
        honored = stream.honored or WantedChanges()
        refused = {
            uri: MCPConnectionError(f"{self._server} does not tell of changes of resource '{uri}'")
            for uri in stream.wanted.uris - honored.uris
        }
        await self._note(honored, refused)
        # Who subscribes to a resource waits for this before it reads it.
        uris = frozenset[str]() if is_first else honored.uris - was_served.uris
        for change in WantedChanges(honored.lists - was_served.lists, uris).as_changes():
            self._listening.announce(change)

    async def _note_refusal(self, wanted: WantedChanges, failure: BaseException | None) -> None:
        if isinstance(failure, MCPConnectionError) and failure.code is not None:
            await self._note(self._served, dict.fromkeys(wanted.uris - self._served.uris, failure))

    async def _wait_after(self, stream: _Stream, failures: int) -> int:
        pause = back_off(min(failures, _MOST_DOUBLINGS), base=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        failure = stream.failure
        logger.log(
            20 if not failures else 10,  # info, then debug
            "Listening to changes of {server} ended ({reason}); listening again in {seconds:.1f} s",
            server=self._server,
            reason="the server closed it" if failure is None else str(failure).rstrip("."),
            seconds=pause,
        )
        await asyncio.sleep(pause)
        return 1

    @staticmethod
    def _is_refusal(failure: BaseException | None) -> bool:
        return isinstance(failure, MCPConnectionError) and failure.code == _METHOD_NOT_FOUND

    async def _give_up(self, failure: BaseException | None) -> None:
        logger.info(
            "{server} says that it tells of changes, but does not: {error}", server=self._server, error=str(failure)
        )
        while True:
            self._waking.clear()
            error = MCPConnectionError(f"{self._server} does not tell of changes: {failure}")
            await self._note(WantedChanges(), dict.fromkeys(self._listening.wanted().uris, error))
            await self._waking.wait()

    async def _woken_or_ended(self, stream: _Stream | None) -> None:
        waking = asyncio.create_task(self._waking.wait())
        try:
            await asyncio.wait(
                {waking, *([stream.task] if stream is not None else [])}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waking.cancel()
