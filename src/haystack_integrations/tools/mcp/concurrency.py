# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_bounded(functions: Iterable[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """
    Run asynchronous functions concurrently, not more than a number of them at a time.

    If one fails, or the caller is cancelled, those that have not ended are cancelled and waited for.

    :param functions: The functions.
    :param limit: How many may run at a time.
    :returns: Their results, in their order.
    """
    semaphore = asyncio.Semaphore(limit)

    async def run(function: Callable[[], Awaitable[T]]) -> T:
        async with semaphore:
            return await function()

    tasks = [asyncio.create_task(run(function)) for function in functions]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def check_max_concurrency(value: object) -> int:
    """
    Check how many calls or readings may be under way at a time.

    :param value: The number.
    :returns: The number.
    :raises ValueError: If it is not a positive integer.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"`max_concurrency` must be an integer of at least 1, got {value!r}"
        raise ValueError(msg)
    return value
