# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which requests are sent again after a fault, and after which pause.

.. code-block:: text

    what happened                                              what is done
    a call provably did not run: the connection was refused,   it is sent again, up to `max_retries` times
    nothing was written, the server forgot the session
    … and the server would refuse it again (401, 403, 405)     never sent again
    a call was sent, and its outcome is unknown                sent again only if the tool may run twice: the server
                                                               annotates it so, and the user opted in
    a call timed out, or its caller gave up                    cancelled on the server, never sent again
    a listing or another read was interrupted                  it is sent again, up to `max_retries` times
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import random
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from haystack_integrations.tools.mcp.executor import AsyncExecutor


def back_off(attempt: int, *, base: float, longest: float) -> float:
    """
    Choose the pause before another attempt.

    :param attempt: How many attempts failed before the last one.
    :param base: The pause after the first attempt, in seconds; it doubles with each further one.
    :param longest: The longest pause, in seconds.
    :returns: Seconds. Half of it is jitter, so that many clients do not return to a restarted server at once.
    """
    pause: float = min(longest, base * 2**attempt)
    return pause * random.uniform(0.5, 1)  # noqa: S311


class BackgroundRetry:
    """
    Repeats an attempt in the executor's loop, with growing pauses, until it succeeds or nobody wants it any more.
    """

    def __init__(self, attempt: Callable[[], Coroutine[Any, Any, bool]], *, base: float, longest: float) -> None:
        """
        Initialize the retry. Nothing is tried before `start`.

        :param attempt: A method that tries it and tells whether that is the end of it. Its object is not kept alive.
        :param base: The pause before the first attempt, in seconds; it doubles with each further one.
        :param longest: The longest pause, in seconds.
        """
        self._attempt = weakref.WeakMethod(attempt)
        self._base = base
        self._longest = longest
        self._running: concurrent.futures.Future[Any] | None = None
        self._pid = os.getpid()

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
        Begin to try in the background, unless that is under way.
        """
        if not self.is_running:
            self._pid = os.getpid()
            self._running, _ = AsyncExecutor.get_instance().run_background(lambda _: self._repeat())

    def stop(self) -> None:
        """
        Make no more attempts. From any thread.
        """
        running, self._running = self._running, None
        if running is not None and self._pid == os.getpid():
            running.cancel()

    async def _repeat(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(back_off(number, base=self._base, longest=self._longest))
            attempt = self._attempt()
            if attempt is None or await attempt():
                return
            del attempt  # while it sleeps, the object may be collected
