# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The short form of `python -m tests.durable.kills --kills 1000`.
"""

import pytest

from tests.durable.kills import Figures, run_in
from tests.durable.postgres import postgres, programs


def assert_once(figures: Figures) -> None:
    assert (figures.twice, figures.missing) == (0, 0)
    assert figures.payments == 7 * figures.runs


@pytest.mark.parametrize(("transport", "kills"), [("http", 10), ("stdio", 4)])
def test_no_payment_is_made_twice_or_lost(tmp_path, transport, kills):
    assert_once(run_in(tmp_path, kills, transport))


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
def test_no_payment_is_made_twice_or_lost_on_postgresql(tmp_path):
    with postgres() as url:
        assert_once(run_in(tmp_path, 6, "http", url))
