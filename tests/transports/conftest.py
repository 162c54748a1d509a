# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.waiting import LIMIT

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """
    Runs a coroutine in a new event loop of that kind.
    """
    factory = None if request.param == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    def run_it(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(coroutine, LIMIT))

    return run_it
