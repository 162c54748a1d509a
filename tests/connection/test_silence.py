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
from haystack_integrations.tools.mcp.connection.session import SilenceWatch
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


def watched() -> tuple[SilenceWatch, SessionLife]:
    life = SessionLife()
    return SilenceWatch(life, never), life


async def test_a_call_after_a_pause_waits_only_for_the_silence_that_earlier_calls_have_left(clock: Clock) -> None:
    watch, life = watched()
    watch.begin("first", LONG, None)
    clock.added += LONG - 1
    watch.end("first")
    clock.added += 3600
    watch._look()  # the timer of the first call, which finds none
    assert not life.over.is_set()
    watch.begin("second", LONG, None)
    await asyncio.wait_for(life.over.wait(), LIMIT)
    assert f"sent nothing for {LONG:g} seconds" in str(life.reason)
    watch.stop()


async def test_a_call_that_times_out_at_the_limit_of_silence_leaves_it_to_no_other_call(clock: Clock) -> None:
    watch, life = watched()
    for number in range(10):
        assert not life.over.is_set()
        watch.begin(number, 300, None)
        clock.added += 30
        watch.end(number)
    assert "sent nothing for 300 seconds" in str(life.reason)
    watch.stop()


async def test_what_a_server_sends_between_two_calls_ends_its_silence(clock: Clock) -> None:
    watch, life = watched()
    watch.begin("first", 300, None)
    clock.added += 299
    watch.end("first")
    life.heard()
    watch.begin("second", 300, None)
    clock.added += 299
    watch.end("second")
    assert not life.over.is_set()
    watch.stop()
