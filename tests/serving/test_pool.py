# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How many calls run at a time, seen from within one event loop, where each step is known.
"""

import asyncio
import contextlib

import anyio
import pytest

from haystack_integrations.tools.mcp.serving.calls import CallPool, ServerBusyError
from tests.support.waiting import LIMIT


async def until_waiting(pool: CallPool, number: int) -> None:
    with anyio.fail_after(LIMIT):
        while pool.waiting != number:
            await asyncio.sleep(0)


async def take(pool: CallPool) -> None:
    async with pool.place():
        pass


async def test_a_call_that_gives_up_waiting_leaves_the_queue() -> None:
    pool = CallPool(1)
    async with pool.place():
        waiting = asyncio.create_task(take(pool))
        await until_waiting(pool, 1)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert (pool.running, pool.waiting) == (1, 0)
    assert pool.running == 0


async def test_a_place_that_was_handed_to_a_call_just_as_it_gave_up_goes_to_the_next() -> None:
    pool = CallPool(1)
    async with pool.place():
        first, second = asyncio.create_task(take(pool)), asyncio.create_task(take(pool))
        await until_waiting(pool, 2)
    # The first has the place now, and has not run since.
    assert (pool.running, pool.waiting) == (1, 1)
    first.cancel()
    with anyio.fail_after(LIMIT):
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
    assert (pool.running, pool.waiting) == (0, 0)


async def test_so_many_calls_wait_and_no_more() -> None:
    pool = CallPool(1)
    async with pool.place():
        waiting = [asyncio.create_task(take(pool)) for _ in range(8)]
        await until_waiting(pool, 8)
        with pytest.raises(ServerBusyError, match=r"1 calls are running and 8 are waiting\. Try again in a while"):
            await take(pool)
    with anyio.fail_after(LIMIT):
        await asyncio.gather(*waiting)
    assert (pool.running, pool.waiting) == (0, 0)


async def test_a_place_stays_taken_while_a_thread_of_it_runs() -> None:
    pool = CallPool(1)
    async with pool.place() as place:
        assert await place.in_thread(lambda number: pool.running + number, 1) == 2
    assert pool.running == 0
