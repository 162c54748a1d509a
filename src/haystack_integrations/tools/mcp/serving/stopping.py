# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How a server that runs as a process of its own is told to stop, and ends in time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from haystack import logging

logger: logging.PatchedLogger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# The last part of the grace period is for cancelling the calls that are left, and for closing what was opened.
_CLOSING_SHARE, _LONGEST_CLOSING = 0.2, 2.0


class Stop:
    """
    The order to stop: given once, by a signal, by the end of stdin or by code.

    From then on the process has `grace_period` seconds. If it has not ended by then, because a thread is still busy
    that nobody can interrupt, it is ended with `os._exit`.
    """

    def __init__(self, grace_period: float) -> None:
        """
        Prepare the order without giving it.

        :param grace_period: Seconds from the order to the end of the process.
        """
        self.grace_period = grace_period
        self._requested = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def requested(self) -> bool:
        """
        Whether the order was given.
        """
        return self._requested

    @property
    def time_for_calls(self) -> float:
        """
        The part of the grace period in which running calls may finish, in seconds.
        """
        return self.grace_period - min(self.grace_period * _CLOSING_SHARE, _LONGEST_CLOSING)

    @property
    def time_for_answers(self) -> float:
        """
        When calls that were cut are answered, too, so that their connections may be closed, in seconds from the order.
        """
        return (self.time_for_calls + self.grace_period) / 2

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        """
        Call a function when the order is given, or now if it was, as long as the `with` block lasts.

        :param callback: Called on the thread that gives the order, which may be in a signal handler: so it must neither
            wait nor raise. If it is registered in the very moment of the order, it may be called twice.
        """
        self._callbacks.append(callback)
        try:
            if self.requested:
                callback()
            yield
        finally:
            self._callbacks.remove(callback)

    def request(self, reason: str) -> None:
        """
        Give the order. Later ones change nothing.

        :param reason: What gave it, for the log.
        """
        if self.requested:
            return
        self._requested = True
        threading.Thread(target=self._watch, args=(reason,), name="mcp-serving-watchdog", daemon=True).start()
        for callback in list(self._callbacks):
            callback()

    @contextmanager
    def on_signals(self, *, in_place_of_others: bool = False) -> Iterator[None]:
        """
        Stop at SIGTERM and SIGINT; a second SIGINT ends the process at once.

        Signals reach the main thread only: on any other thread this does nothing.

        :param in_place_of_others: Whether those who handled the signals before are not called. They may end the process
            at once, as `sys.exit` does, and every running call with it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {int(number): signal.getsignal(number) for number in STOP_SIGNALS}

        def handle(number: int, frame: FrameType | None) -> None:
            if self.requested and number == signal.SIGINT:
                os._exit(128 + number)
            self.request(signal.Signals(number).name)
            before = previous[number]
            # The default handlers end the process, and so does Python's own of SIGINT.
            if not in_place_of_others and callable(before) and before is not signal.default_int_handler:
                before(number, frame)

        for number in STOP_SIGNALS:
            signal.signal(number, handle)
        try:
            yield
        finally:
            # What comes while the process winds up is part of the same order.
            restored: Any
            for stop_signal, before in previous.items():
                is_default = before in (signal.SIG_DFL, signal.default_int_handler)
                restored = signal.SIG_IGN if self.requested and is_default else before
                signal.signal(stop_signal, restored)

    def _watch(self, reason: str) -> None:
        # Logged here: a signal handler may have interrupted a thread that was writing to the log.
        logger.info("Stopping: {reason}. Running calls have {seconds} s.", reason=reason, seconds=self.time_for_calls)
        time.sleep(self.grace_period)
        busy = [thread.name for thread in threading.enumerate() if not thread.daemon]
        logger.warning("The grace period is over. Ending the process with these threads: {threads}", threads=busy)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                # Nobody reads it any more.
                continue
        os._exit(0)
