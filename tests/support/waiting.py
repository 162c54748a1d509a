# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Wait for a condition, with a limit that only a broken program reaches.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

LIMIT = 60.0
_INTERVAL = 0.01

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str | Callable[[], str], *, limit: float = LIMIT) -> T:
    """
    Wait until the condition is truthy, and return its value.

    :param condition: Called again and again.
    :param what: Describes the condition in the error.
    :param limit: Seconds to wait.
    :raises AssertionError: If the condition is not met within the limit.
    """
    deadline = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {what if isinstance(what, str) else what()}")
        time.sleep(_INTERVAL)
    return value


async def wait_until_async(condition: Callable[[], T], what: str | Callable[[], str], *, limit: float = LIMIT) -> T:
    """
    Like `wait_until`, for coroutines: the event loop keeps running.
    """
    deadline = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {what if isinstance(what, str) else what()}")
        await asyncio.sleep(_INTERVAL)
    return value
