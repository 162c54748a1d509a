# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The life of a session: one state, one way out, one reason.
"""

import asyncio

import pytest

from haystack_integrations.tools.mcp.protocol.life import SessionLife, SessionState

NEW, OPENING, OPEN = SessionState.NEW, SessionState.OPENING, SessionState.OPEN
DRAINING, LOST, CLOSED = SessionState.DRAINING, SessionState.LOST, SessionState.CLOSED


def life_in(state: SessionState, losses: list[str]) -> SessionLife:
    life = SessionLife(losses.append)
    life.state = state
    return life


@pytest.mark.parametrize(
    ("before", "end", "after"),
    [
        (NEW, LOST, LOST),
        (NEW, CLOSED, CLOSED),
        (OPENING, LOST, LOST),
        (OPENING, DRAINING, LOST),  # nothing is in flight
        (OPENING, CLOSED, CLOSED),
        (OPEN, LOST, LOST),
        (OPEN, DRAINING, DRAINING),
        (OPEN, CLOSED, CLOSED),
        (DRAINING, DRAINING, DRAINING),
        (DRAINING, LOST, LOST),
        (DRAINING, CLOSED, CLOSED),
        (LOST, DRAINING, LOST),
        (LOST, LOST, LOST),
        (LOST, CLOSED, LOST),
        (CLOSED, DRAINING, CLOSED),
        (CLOSED, LOST, CLOSED),
        (CLOSED, CLOSED, CLOSED),
    ],
)
async def test_every_transition_of_a_session(before, end, after):
    life = life_in(before, [])
    life.end("a reason", end)
    assert life.state is after
    assert life.over.is_set() == (after is not DRAINING)
    assert not life.is_open


async def test_the_first_reason_for_the_end_of_a_session_stays():
    losses: list[str] = []
    life = life_in(OPEN, losses)
    life.end()
    assert (life.reason, losses, life.over.is_set()) == (None, [], True)
    life.end("exit code 7")
    life.end("the stream ended")
    assert (life.reason, life.loss, losses) == ("exit code 7", "exit code 7", ["exit code 7"])


async def test_a_lost_session_that_is_closed_keeps_its_loss_without_a_reason_until_somebody_knows_it():
    losses: list[str] = []
    life = life_in(OPEN, losses)
    life.end()
    life.end("closed by its owner", CLOSED)
    assert life.reason is None
    life.end("exit code 7")
    assert losses == ["exit code 7"]


async def test_a_session_that_its_owner_closed_was_not_lost():
    losses: list[str] = []
    life = life_in(OPEN, losses)
    life.end("closed by its owner", CLOSED)
    assert (life.reason, life.loss, losses) == ("closed by its owner", None, [])


async def test_a_draining_session_tells_its_loss_once_and_is_over_when_it_ends():
    losses: list[str] = []
    life = life_in(OPEN, losses)
    life.end("unknown session", DRAINING)
    assert (losses, life.over.is_set()) == (["unknown session"], False)
    life.end()
    assert (losses, life.over.is_set(), life.state) == (["unknown session"], True, LOST)


async def opening(life: SessionLife, started: asyncio.Event) -> str:
    life.opening()
    started.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "interrupted" if life.interruption() else "cancelled"
    raise AssertionError


@pytest.mark.parametrize("end", [LOST, DRAINING, CLOSED])
async def test_ending_a_session_while_it_opens_interrupts_its_opener_once_and_leaves_no_cancellation(end):
    life, started = SessionLife(), asyncio.Event()
    opener = asyncio.create_task(opening(life, started))
    await started.wait()
    life.end("a reason", end)
    life.end("another reason", CLOSED)
    assert await opener == "interrupted"
    assert not opener.cancelling()


async def test_an_opener_that_its_caller_cancels_was_not_interrupted_by_the_session():
    life, started = SessionLife(), asyncio.Event()
    opener = asyncio.create_task(opening(life, started))
    await started.wait()
    opener.cancel()
    assert await opener == "cancelled"


async def test_a_stream_that_ends_while_a_session_opens_leaves_the_opener_to_fail_by_itself():
    life, started = SessionLife(), asyncio.Event()
    opener = asyncio.create_task(opening(life, started))
    await started.wait()
    life.end()
    life.end("exit code 7")
    await asyncio.sleep(0)
    assert not opener.cancelling()
    life.end(state=CLOSED)  # nobody waits any more
    assert await opener == "interrupted"


async def test_an_opener_that_looks_for_the_fault_of_a_lost_session_is_interrupted_when_that_is_closed():
    life, looking = SessionLife(), asyncio.Event()

    async def open_and_look() -> None:
        life.opening()
        life.end("a reason")
        assert not life.interruption()
        life.allow_interruption()
        looking.set()
        await asyncio.Event().wait()

    opener = asyncio.create_task(open_and_look())
    await looking.wait()
    life.end("nobody waits any more", CLOSED)
    with pytest.raises(asyncio.CancelledError):
        await opener


async def test_nobody_looks_for_the_fault_of_a_session_that_was_closed():
    life = SessionLife()
    life.opening()
    life.end("closed by its owner", CLOSED)
    with pytest.raises(asyncio.CancelledError):
        life.allow_interruption()


async def test_the_same_task_may_open_a_lost_session_again():
    life = SessionLife()
    life.opening()
    life.end("exit code 7")
    life.opening()
    assert (life.state, life.reason, life.over.is_set()) == (OPENING, None, False)
    life.opened()
    assert life.state is OPEN
    with pytest.raises(asyncio.CancelledError):
        life.opening()


async def test_a_session_that_was_closed_before_it_started_does_not_open():
    life = SessionLife()
    life.end("closed by its owner", CLOSED)
    with pytest.raises(asyncio.CancelledError):
        life.opening()


async def test_a_session_that_ended_in_the_moment_it_was_opened_is_not_open():
    life = SessionLife()
    life.opening()
    life.end()
    life.opened()
    assert life.state is LOST
