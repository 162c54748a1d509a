# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""Measures for how long an event loop stalls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

_TICK = 0.002


@asynccontextmanager
async def stall_watch() -> AsyncIterator[list[float]]:
    """Collect how long the running loop delays a task beyond its time, in seconds."""
    gaps = [0.0]

    async def watch() -> None:
        while True:
            begin = perf_counter()
            await asyncio.sleep(_TICK)
            gaps.append(perf_counter() - begin - _TICK)

    watcher = asyncio.ensure_future(watch())
    await asyncio.sleep(2 * _TICK)
    yield gaps
    await asyncio.sleep(2 * _TICK)
    watcher.cancel()
