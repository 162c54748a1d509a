# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# So many at the same time.
_THREADS = 8


def side_by_side(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """
    Call a function for each of several items, in several threads.

    A KeyboardInterrupt ends the wait at once: the threads do not keep the process, whose sessions are closed when it
    exits.

    :param function: The function.
    :param items: The items.
    :returns: The results in the order of the items.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(items)):
        waiting.put(number)
    done: queue.SimpleQueue[tuple[int, R | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, function(items[number]), None))
            except BaseException as error:
                done.put((number, None, error))

    for _ in range(min(_THREADS, len(items))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[int, R | None] = {}
    while len(results) < len(items):
        number, result, error = done.get()
        if error is not None:
            raise error
        results[number] = result
    return [results[number] for number in range(len(items))]  # type: ignore[misc]
