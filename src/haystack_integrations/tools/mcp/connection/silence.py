# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Gives up a session whose server is silent while calls are under way, and pings servers where that is asked for.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from haystack_integrations.tools.mcp.protocol.life import SessionLife

# What came while the loop was blocked has not been read when the timer fires.
_SECOND_LOOK = 0.1

# Timers and pings belong to no call, so they see the context variables of none.
_no_context = contextvars.Context()


class SilenceWatch:
    """
    Watches one session while calls are under way. To be used in the event loop of the session.

    Silence is counted only while calls are under way, and from the last thing that the server sent, whatever that was.
    Of several calls, the most patient one decides. The only cost of a call is a look at the clock: one timer serves
    all calls, and goes on for a while after the last one.
    """

    def __init__(self, life: SessionLife, ping: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """
        Initialize the SilenceWatch.

        :param life: The life of the session, which hears the server.
        :param ping: Sends a ping and waits for the answer; returns False if pings cannot be sent.
        """
        self._life = life
        self._send_ping = ping
        # The limits of each call: of silence, and of silence without a ping.
        self._calls: dict[object, tuple[float | None, float | None]] = {}
        # From when silence counts, if the server was not heard since: pauses between calls are left out.
        self._since = 0.0
        # How long the server had been silent at the end of the last call, and when it was last heard then.
        self._earlier = self._earlier_heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        self._is_second_look = False
        self._ping: asyncio.Task[bool] | None = None
        self._pinged_at = 0.0
        self._may_ping = True

    def begin(self, call: object, longest_silence: float | None, ping_interval: float | None) -> None:
        """
        Note a call.

        :param call: Identifies it.
        :param longest_silence: After how many seconds of silence the session may be given up; None for never.
        :param ping_interval: How long the server may be silent until it is pinged, in seconds; None for no pings.
        """
        now = monotonic()
        if not self._calls:
            self._since = now - self._earlier if self._life.heard_at == self._earlier_heard_at else now
        self._calls[call] = longest_silence, ping_interval
        look_in = ping_interval
        if longest_silence is not None:
            left = max(longest_silence - now + max(self._since, self._life.heard_at), 0.0)
            look_in = left if look_in is None else min(look_in, left)
        if look_in is not None and (self._timer is None or now + look_in < self._looks_at):
            self._look_in(look_in)

    def end(self, call: object) -> None:
        """
        Note the end of a call.

        :param call: As given to `begin`.
        """
        limit, _ = self._calls.pop(call, (None, None))
        if self._calls:
            return
        self._earlier, self._earlier_heard_at = self._silence(monotonic()), self._life.heard_at
        if limit is not None and self._earlier >= limit:
            self._give_up(limit)  # it timed out at the same time; the next call must not pay for it

    def stop(self) -> None:
        """
        Stop watching.
        """
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._ping is not None:
            self._ping.cancel()

    def _silence(self, now: float) -> float:
        return now - max(self._since, self._life.heard_at)

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = monotonic() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, context=_no_context)

    def _look(self) -> None:
        self._timer = None
        if not self._calls:
            return
        now = monotonic()
        silence = self._silence(now)
        limits = [limit for limit, _ in self._calls.values() if limit is not None]
        waits = []
        if limits and len(limits) < len(self._calls):
            waits.append(min(limits))  # the most patient call may have ended by then
        elif limits and silence < max(limits):
            waits.append(max(limits) - silence)
        elif limits and self._is_second_look:
            self._give_up(max(limits))
            return
        elif limits:
            self._is_second_look = True
            self._look_in(_SECOND_LOOK)
            return
        self._is_second_look = False
        intervals = [interval for _, interval in self._calls.values() if interval is not None]
        if intervals and self._may_ping:
            waits.append(self._ping_if_due(min(intervals), silence, now))
        if waits:
            self._look_in(max(min(waits), 0.001))

    def _ping_if_due(self, interval: float, silence: float, now: float) -> float:
        quiet = min(silence, now - self._pinged_at)
        if quiet < interval:
            return interval - quiet
        if self._ping is None:
            self._pinged_at = now
            self._ping = asyncio.get_running_loop().create_task(self._send_ping(), context=_no_context.copy())
            self._ping.add_done_callback(self._pinged)
        return interval

    def _pinged(self, task: asyncio.Task[bool]) -> None:
        self._ping = None
        if not task.cancelled() and task.exception() is None:
            self._may_ping = task.result()

    def _give_up(self, limit: float) -> None:
        self._life.end(
            f"the server has sent nothing for {limit:g} seconds while a call was under way. If its tools are silent "
            "for longer, raise `read_timeout`"
        )
