# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Ends calls whose time is over.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

# Timers belong to no call, so they see the context variables of none.
_no_context = contextvars.Context()

# How early the timer of a loop may fire, in seconds.
_RESOLUTION = 0.002

# Seconds between two looks whether a person is still logging in.
_POLL = 0.5


class Deadlines:
    """
    The deadlines of one session's calls. To be used in the event loop of the session.

    It does what `asyncio.timeout` does, with one timer for all calls instead of one for each: what a call in flight
    leaves on the heap is what makes the garbage collector run.
    """

    def __init__(self) -> None:
        """
        Initialize the Deadlines.
        """
        self._times: dict[asyncio.Task[object], float] = {}
        self._passed: set[asyncio.Task[object]] = set()
        # How long a person has been logging in, in seconds, while calls wait for that; else None.
        self.login_seconds: Callable[[], float | None] = lambda: None
        # What the calls had left when the login began.
        self._held: dict[asyncio.Task[object], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        # When it fires. That of uvloop does not know it if it fires at once.
        self._fires_at = 0.0

    def set(self, task: asyncio.Task[object], when: float | None) -> None:
        """
        Set the deadline of a task, or set another one.

        :param task: Runs the call. It is cancelled at its deadline.
        :param when: In the seconds of the loop; None for no deadline.
        """
        if task in self._passed:
            return
        if when is None:
            self._times.pop(task, None)
            return
        self._times[task] = when
        if self._timer is None or when < self._fires_at:
            self._arm(when)

    def left(self, task: asyncio.Task[object]) -> float | None:
        """
        Tell how much time a task has left.

        :param task: The task.
        :returns: Seconds; None without a deadline.
        """
        if task in self._passed:
            return 0.0
        when = self._times.get(task)
        return None if when is None else max(when - asyncio.get_running_loop().time(), 0.0)

    def end(self, task: asyncio.Task[object]) -> bool:
        """
        Forget the deadline of a task.

        :param task: The task.
        :returns: Whether it was cancelled because its deadline has passed.
        """
        self._times.pop(task, None)
        self._held.pop(task, None)
        if task not in self._passed:
            return False
        self._passed.discard(task)
        return True

    def stop(self) -> None:
        """
        Stop watching. Calls that are under way have no deadline any more.
        """
        self._times.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = when
        self._timer = asyncio.get_running_loop().call_at(when, self._look, context=_no_context)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time() + _RESOLUTION
        login = self.login_seconds()
        for task in [task for task, when in self._times.items() if when <= now]:
            if login is not None or task in self._held:
                left = self._held.setdefault(task, login or 0.0)
                self._times[task] = now + (_POLL if login is not None else self._held.pop(task, left))
                continue
            del self._times[task]
            self._passed.add(task)
            task.cancel()
        if self._times:
            self._arm(min(self._times.values()))
