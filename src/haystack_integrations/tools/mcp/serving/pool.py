# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How many calls run at a time.

A call takes a place, or waits for one; if too many wait already, it is refused. It keeps its place until it ended and
the threads that it started ended, too: a thread cannot be stopped, so a call that was cancelled may leave one behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from haystack_integrations.tools.mcp.concurrency import check_max_concurrency
from haystack_integrations.tools.mcp.serving.exits import ORDERS, CodeExitedError

T = TypeVar("T")

# Enough for tools that wait for servers, and few enough for a machine with few cores.
DEFAULT_MAX_CONCURRENCY = 32
# How many calls may wait for each that runs. The last of them waits about this many times as long as a call takes.
_WAITING_PER_PLACE = 8


class ServerBusyError(Exception):
    """
    Raised when a call finds too many others waiting.
    """

    def __init__(self, running: int, waiting: int) -> None:
        """
        Initialize the ServerBusyError.

        :param running: How many calls run.
        :param waiting: How many calls wait.
        """
        super().__init__(
            f"The server is busy: {running} calls are running and {waiting} are waiting. Try again in a while."
        )


class CallPool:
    """
    Bounds how many calls run at a time. It may be used from several event loops.
    """

    def __init__(self, max_concurrency: int = DEFAULT_MAX_CONCURRENCY) -> None:
        """
        Initialize the CallPool.

        :param max_concurrency: How many calls may run at a time. Eight times as many may wait.
        """
        self.max_concurrency: int = check_max_concurrency(max_concurrency)
        self.max_waiting: int = self.max_concurrency * _WAITING_PER_PLACE
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @property
    def running(self) -> int:
        """
        How many calls run, including abandoned ones whose threads go on.
        """
        return self._running

    @property
    def waiting(self) -> int:
        """
        How many calls wait for a place.
        """
        return len(self._waiting)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """
        Take a place for a call.

        :returns: A context manager; the place is free again when it was left and the threads of the place ended.
        :raises ServerBusyError: If too many calls wait already.
        """
        await self._enter()
        place = Place(self)
        try:
            yield place
        finally:
            place.leave()

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._running < self.max_concurrency:
                self._running += 1
                return
            if len(self._waiting) >= self.max_waiting:
                raise ServerBusyError(self._running, len(self._waiting))
            turn: asyncio.Future[None] = loop.create_future()
            waiting = (loop, turn)
            self._waiting.append(waiting)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                with suppress(ValueError):
                    self._waiting.remove(waiting)
                    raise
            # The place was handed over already.
            self.free()
            raise

    def free(self) -> None:
        """
        Give a place to the call that waits longest. From any thread.
        """
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                loop, turn = self._waiting.popleft()
            with suppress(RuntimeError):  # its loop was closed, and it waits no more
                loop.call_soon_threadsafe(_take_turn, turn)
                return


def _take_turn(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Place:
    """
    The place of one call.
    """

    def __init__(self, pool: CallPool) -> None:
        """
        Initialize the Place.

        :param pool: The pool.
        """
        self._pool = pool
        self._users = 1
        self._lock = threading.Lock()

    def leave(self) -> None:
        """
        Free the place, unless a thread of it still runs.
        """
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._pool.free()

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """
        Call a function in a thread, with the context of the caller.

        If the caller is cancelled, the thread is left behind, and keeps the place until it ends. In it,
        `anyio.from_thread.run` runs coroutines of this event loop.

        :param function: The function.
        :param args: Its arguments.
        :returns: What it returns.
        """
        with self._lock:
            self._users += 1
        thread = _ThreadOfCall(self)

        def call() -> T:
            thread.begin()
            try:
                return function(*args)
            except ORDERS as error:
                # Of the function's own code, as nobody can end or cancel it in a thread.
                raise CodeExitedError(error) from error
            finally:
                self.leave()

        try:
            # The number of threads is bounded by the number of places.
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(inf))
        finally:
            thread.give_up()


class _ThreadOfCall:
    """
    Decides who frees the place if a call is cancelled just when its thread begins.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._is_decided = False

    def begin(self) -> None:
        with self._lock:
            if self._is_decided:
                raise _GivenUpError
            self._is_decided = True

    def give_up(self) -> None:
        with self._lock:
            has_begun, self._is_decided = self._is_decided, True
        if not has_begun:
            self._place.leave()


class _GivenUpError(Exception):
    """Raised in a thread whose caller was cancelled before it began; nobody sees it."""
