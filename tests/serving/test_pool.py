# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How many calls run at a time, seen from within one event loop, where each step is known.
"""

import asyncio
import contextlib
import threading

import anyio
import pytest
from fastmcp.exceptions import ToolError

from haystack_integrations.tools.mcp.serving.calls import CallPool, ServedCall
from tests.support.waiting import LIMIT


def counts(pool: CallPool) -> tuple[int, int]:
    now = pool.limiter.statistics()
    return now.borrowed_tokens, now.tasks_waiting


async def until_waiting(pool: CallPool, number: int) -> None:
    with anyio.fail_after(LIMIT):
        while counts(pool)[1] != number:
            await asyncio.sleep(0)


async def take(pool: CallPool) -> None:
    async with ServedCall(pool):
        pass


async def test_a_call_that_gives_up_waiting_leaves_the_queue() -> None:
    pool = CallPool(1)
    async with ServedCall(pool):
        waiting = asyncio.create_task(take(pool))
        await until_waiting(pool, 1)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert counts(pool) == (1, 0)
    assert counts(pool) == (0, 0)


async def test_so_many_calls_wait_and_no_more() -> None:
    pool = CallPool(1)
    async with ServedCall(pool):
        waiting = [asyncio.create_task(take(pool)) for _ in range(8)]
        await until_waiting(pool, 8)
        with pytest.raises(ToolError, match=r"1 calls are running and 8 are waiting\. Try again in a while"):
            await take(pool)
    with anyio.fail_after(LIMIT):
        await asyncio.gather(*waiting)
    assert counts(pool) == (0, 0)


async def test_a_place_stays_taken_while_a_thread_of_it_runs() -> None:
    pool, may_end = CallPool(1), threading.Event()
    async with ServedCall(pool) as call:
        abandoned = asyncio.create_task(call.in_thread(may_end.wait))
        await asyncio.sleep(0.1)
        abandoned.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await abandoned
    assert counts(pool) == (1, 0)
    may_end.set()
    with anyio.fail_after(LIMIT):
        while counts(pool) != (0, 0):
            await asyncio.sleep(0.01)
