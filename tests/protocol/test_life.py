# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The life of a session: one state, one way out, one reason.
"""

import asyncio

import pytest

from haystack_integrations.tools.mcp.protocol.exchange import SessionLife, SessionState
from tests.support.rows import rows

NEW, OPENING, OPEN = SessionState.NEW, SessionState.OPENING, SessionState.OPEN
DRAINING, LOST, CLOSED = SessionState.DRAINING, SessionState.LOST, SessionState.CLOSED


def life_in(state: SessionState, losses: list[str]) -> SessionLife:
    life = SessionLife(losses.append)
    life.state = state
    return life


@rows(
    ("before", "end", "after"),
    [
        *((state, LOST, LOST) for state in (NEW, OPENING, OPEN, DRAINING, LOST)),
        *((state, CLOSED, CLOSED) for state in (NEW, OPENING, OPEN, DRAINING, CLOSED)),
        (OPENING, DRAINING, LOST),  # nothing is in flight
        (OPEN, DRAINING, DRAINING),
        (LOST, CLOSED, LOST),
        (CLOSED, LOST, CLOSED),
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


async def test_a_lost_session_may_be_opened_again():
    life = SessionLife()
    life.opening()
    life.end("exit code 7")
    life.opening()
    assert (life.state, life.reason, life.over.is_set()) == (OPENING, None, False)
    life.opened()
    assert life.state is OPEN


async def test_a_session_that_ends_before_it_is_open_does_not_open():
    life = SessionLife()
    life.opening()
    life.end()
    life.opened()
    assert life.state is LOST
    closed = life_in(CLOSED, [])
    with pytest.raises(asyncio.CancelledError):
        closed.opening()
