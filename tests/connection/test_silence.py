# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How the silence of a server is counted over several calls.
"""

import asyncio
import time

import pytest

from haystack_integrations.tools.mcp.connection import session as silence
from haystack_integrations.tools.mcp.connection.session import UnderWay, Watch
from haystack_integrations.tools.mcp.protocol.life import SessionLife
from tests.support.kinds import LONG
from tests.support.waiting import LIMIT


class Clock:
    """
    The real time, and what a test has added to it.
    """

    def __init__(self) -> None:
        self.added = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(silence, "monotonic", clock)
    return clock


async def never() -> bool:
    raise AssertionError


def request(name: str | int, limit: float) -> UnderWay:
    task = asyncio.get_running_loop().create_task(asyncio.Event().wait(), name=str(name))
    task.cancel()
    return UnderWay(task, limit)


def watched() -> tuple[Watch, SessionLife]:
    life = SessionLife()
    return Watch(life, never), life


async def test_a_call_after_a_pause_waits_only_for_the_silence_that_earlier_calls_have_left(clock: Clock) -> None:
    watch, life = watched()
    first = request("first", LONG)
    watch.begin(first)
    clock.added += LONG - 1
    watch.end(first)
    clock.added += 3600
    watch._look()  # the timer of the first call, which finds none
    assert not life.over.is_set()
    watch.begin(request("second", LONG))
    await asyncio.wait_for(life.over.wait(), LIMIT)
    assert f"sent nothing for {LONG:g} seconds" in str(life.reason)
    watch.stop()


async def test_a_call_that_times_out_at_the_limit_of_silence_leaves_it_to_no_other_call(clock: Clock) -> None:
    watch, life = watched()
    for number in range(10):
        assert not life.over.is_set()
        call = request(number, 300)
        watch.begin(call)
        clock.added += 30
        watch.end(call)
    assert "sent nothing for 300 seconds" in str(life.reason)
    watch.stop()


async def test_what_a_server_sends_between_two_calls_ends_its_silence(clock: Clock) -> None:
    watch, life = watched()
    for name in ("first", "second"):
        call = request(name, 300)
        watch.begin(call)
        clock.added += 299
        watch.end(call)
        life.heard()
    assert not life.over.is_set()
    watch.stop()
