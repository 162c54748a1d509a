# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp.durable import RunJournal


@pytest.fixture
def new_journal(tmp_path: Path) -> Iterator[Callable[..., RunJournal]]:
    """
    Opens journals of one database, `new_journal(lease=5)`, and closes them at the end.
    """
    opened: list[RunJournal] = []

    def open_one(**options: Any) -> RunJournal:
        opened.append(RunJournal(f"sqlite:///{tmp_path}/runs.db", **options))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(new_journal: Callable[..., RunJournal]) -> RunJournal:
    return new_journal(lease=5)


def cause_of(error: BaseException, kind: type[BaseException]) -> Any:
    """
    Return the error of this kind that Haystack has wrapped.
    """
    while not isinstance(error, kind):
        assert error.__cause__ is not None, error
        error = error.__cause__
    return error
