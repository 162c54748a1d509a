# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How long a tool call may take, how long its server may be silent, and the pauses between attempts.

Which calls are sent again is decided in `connection.tool_call`, and which reads in `connection.supervisor`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import dataclasses
import itertools
import os
import random
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.concurrency import lock_of_each_process
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.parameters import CHECKED, MAX_TIMEOUT, Options, Seconds, explains_options

DEFAULT_READ_TIMEOUT = 300.0

# How long a caller waits for a call that the server runs as a task.
DEFAULT_TASK_TIMEOUT = 3600.0


def check_timeout(parameter: str, value: float, or_none: str = "") -> float:
    """
    Check a timeout.

    :param parameter: Name of the parameter.
    :param value: Seconds.
    :param or_none: What None would mean, for the message.
    :returns: The value.
    :raises ValueError: If it is not a positive number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_TIMEOUT:
        msg = f"`{parameter}` must be a positive number of seconds{or_none}, got {value!r}"
        raise ValueError(msg)
    return value


@explains_options
@checked_dataclass(frozen=True, kw_only=True, repr=False, config=CHECKED)
class CallOptions(Options):
    """
    How the calls of a connection are made: how long they may take, and how long their server may be silent.

    :param reset_timeout_on_progress: Whether each report of progress gives a call `invocation_timeout` seconds from
        then on.
    :param max_total_timeout: With `reset_timeout_on_progress`: how long a call may take altogether, in seconds.
        Default: no limit, as long as the server reports progress.
    :param read_timeout: How long the server may be silent while a call is under way, in seconds. Then the session is
        given up; the next call opens a new one. Default: 300, or `invocation_timeout` if that is longer. None for no
        limit.
    :param ping_interval: After how many seconds of silence, while a call is under way, the server is pinged. An answer
        shows that it is alive. Default: no pings. The protocol has them up to revision 2025-11-25.
    :param task_timeout: How long to wait for a call that the server runs as a task, in seconds; `invocation_timeout`
        limits each request about it. After that, the call fails, but the task goes on; the error says how to resume it.
        Default: an hour. None for no limit.
    :raises ValueError: If an option is invalid. The message names it.
    """

    _parameter: ClassVar[str] = "call_options"

    reset_timeout_on_progress: bool = False
    max_total_timeout: Seconds | None = None
    read_timeout: Seconds | None = DEFAULT_READ_TIMEOUT
    ping_interval: Seconds | None = None
    task_timeout: Seconds | None = DEFAULT_TASK_TIMEOUT


@dataclass(frozen=True, kw_only=True)
class CallLimits(CallOptions):
    """
    The options of a connection's calls together with its `invocation_timeout`.
    """

    invocation_timeout: float | None = 30.0
    # The name of the parameter by which the user set `invocation_timeout`, for messages.
    timeout_name: str = "invocation_timeout"

    def __post_init__(self) -> None:
        """
        Validate the timeout.

        :raises ValueError: If it is invalid.
        """
        if self.invocation_timeout is not None:
            check_timeout("invocation_timeout", self.invocation_timeout, ", or None for no limit")

    def within(self, timeout: float) -> CallLimits:
        """
        Make the limits of a call that has a timeout of its own.

        :param timeout: The timeout, in seconds.
        :returns: The limits.
        """
        return dataclasses.replace(self, invocation_timeout=timeout, timeout_name="invocation_timeout")

    @cached_property
    def max_call_time(self) -> float | None:
        """
        How long a call may take altogether, in seconds; None if nothing limits it.
        """
        return self.max_total_timeout if self.reset_timeout_on_progress else self.invocation_timeout

    @cached_property
    def max_silence(self) -> float | None:
        """
        After how many seconds of silence the session is given up; None for never.

        The default of `read_timeout` does not end a call that may take longer.
        """
        if self.read_timeout == DEFAULT_READ_TIMEOUT and self.invocation_timeout is not None:
            return max(DEFAULT_READ_TIMEOUT, self.invocation_timeout)
        return self.read_timeout


DEFAULT_LIMITS = CallLimits()


def back_off(attempt: int, *, base: float, max_pause: float) -> float:
    """
    Choose the pause before another attempt.

    :param attempt: How many attempts failed before the last one.
    :param base: The pause after the first attempt, in seconds; it doubles with each further one.
    :param max_pause: The longest pause, in seconds.
    :returns: Seconds. Half of it is jitter, so that many clients do not return to a restarted server at once.
    """
    # Retries go on for days: a power beyond this one is too large for a float.
    pause: float = min(max_pause, base * 2 ** min(attempt, 100))
    return pause * random.uniform(0.5, 1)  # noqa: S311


class BackgroundRetry:
    """
    Repeats an attempt in the executor's loop, with growing pauses, until it succeeds, is stopped, or loses its object.
    """

    def __init__(self, attempt: Callable[[], Coroutine[Any, Any, bool]], *, base: float, max_pause: float) -> None:
        """
        Initialize the retry. Nothing is tried before `start`.

        :param attempt: The method to repeat, which returns whether to stop. Its object is not kept alive.
        :param base: The pause before the first attempt, in seconds; it doubles with each further one.
        :param max_pause: The longest pause, in seconds.
        """
        self._attempt = weakref.WeakMethod(attempt)
        self._base = base
        self._max_pause = max_pause
        self._running: concurrent.futures.Future[Any] | None = None
        self._pid = os.getpid()
        self._start_lock = lock_of_each_process()

    @property
    def is_running(self) -> bool:
        """
        Whether another attempt will be made.
        """
        running = self._running
        # In a forked child, the future of the parent is never done.
        return running is not None and not running.done() and self._pid == os.getpid()

    def start(self) -> None:
        """
        Start trying in the background, unless that has been started.
        """
        with self._start_lock():
            if not self.is_running:
                self._pid = os.getpid()
                # In an empty context, because it is not on behalf of the user for whom the first attempt was made.
                begin = AsyncExecutor.get_instance().run_background
                self._running, _ = contextvars.Context().run(begin, lambda _: self._repeat())

    def stop(self) -> None:
        """
        Make no more attempts. Thread-safe.
        """
        running, self._running = self._running, None
        if running is not None and self._pid == os.getpid():
            running.cancel()

    async def _repeat(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(back_off(number, base=self._base, max_pause=self._max_pause))
            attempt = self._attempt()
            if attempt is None or await attempt():
                return
            del attempt  # so that the object can be garbage-collected during the pause
