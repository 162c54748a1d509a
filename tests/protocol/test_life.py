# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The life of a session: one state, one way out, one reason.
"""

import asyncio

import pytest

from haystack_integrations.tools.mcp.protocol.channel import SessionLife, SessionOwner, SessionState
from tests.support.rows import rows

NEW, OPENING, OPEN = SessionState.NEW, SessionState.OPENING, SessionState.OPEN
DRAINING, LOST, CLOSED = SessionState.DRAINING, SessionState.LOST, SessionState.CLOSED


@rows(
    ("ends", "reason", "losses"),
    # The first reason is kept.
    ([(None, LOST), ("exit code 7", LOST), ("the stream ended", LOST)], "exit code 7", ["exit code 7"]),
    # A session that is closed after it was lost has no reason for its loss unless one is reported.
    ([(None, LOST), ("closed by its owner", CLOSED)], None, []),
    ([(None, LOST), ("closed by its owner", CLOSED), ("exit code 7", LOST)], "exit code 7", ["exit code 7"]),
    ([("closed by its owner", CLOSED)], "closed by its owner", []),
    # A draining session is lost once.
    ([("unknown session", DRAINING), (None, LOST)], "unknown session", ["unknown session"]),
)
async def test_a_session_has_one_reason_for_its_end_and_a_loss_is_reported_once(ends, reason, losses):
    told: list[str] = []
    owner = SessionOwner()
    owner.lost = told.append
    life = SessionLife(owner)
    life.state = OPEN
    for end in ends:
        life.end(*end)
    assert (life.reason, told, life.ended_event.is_set()) == (reason, losses, True)


async def test_a_lost_session_may_be_reopened_unless_it_ends_meanwhile_or_was_closed():
    life = SessionLife()
    life.opening()
    life.end("exit code 7")
    life.opened()
    assert life.state is LOST
    life.opening()
    assert (life.state, life.reason, life.ended_event.is_set()) == (OPENING, None, False)
    life.opened()
    assert life.state is OPEN
    life.end("closed by its owner", CLOSED)
    with pytest.raises(asyncio.CancelledError):
        life.opening()
