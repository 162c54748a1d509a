# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who passes the gate of a server when, with many calls at once.
"""

import asyncio
import contextvars
from collections.abc import Callable
from copy import copy
from time import monotonic
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPHandlers,
    MCPServerInfo,
)
from haystack_integrations.tools.mcp.connection.gate import Gate
from tests.handlers.conftest import BOTH_ERAS, servers  # noqa: F401 - a fixture
from tests.support.background import text
from tests.support.kinds import LONG
from tests.support.rows import rows


@rows(
    ("pause", "outcomes", "state"),
    [
        (20.0, "FFFFF", "open"),
        (20.0, "FFFF......." * 20, "closed"),
        (20.0, "FFFF.F", "open"),
        (None, "F" * 50, "closed"),
        (20.0, "f" * 50, "closed"),  # calls that fail together count as one failure
    ],
)
async def test_a_server_is_left_alone_that_failed_five_times_of_the_last_ten(pause, outcomes, state):
    gate, began = Gate("the server", max_in_flight=None, pause=pause), monotonic()
    for outcome in outcomes:
        if outcome == ".":
            gate.answered()
        else:
            gate.failed("it is broken", monotonic() if outcome == "F" else began)
    assert gate.state == state


async def test_places_are_handed_on_in_order_and_not_lost_to_those_who_gave_up():
    gate = Gate("the server", max_in_flight=1, pause=None)
    first = await gate.enter(None)
    order: list[int] = []

    async def call(number: int) -> None:
        place = await gate.enter(None)
        order.append(number)
        gate.leave(place)

    # Each in a context of its own, as calls are.
    nobody = contextvars.Context()
    waiting = [asyncio.create_task(call(number), context=nobody.copy()) for number in range(3)]
    await asyncio.sleep(0)
    assert gate.waiting == 3
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.leave(first)
    waiting[1].cancel()  # in the moment in which it was given the place
    await asyncio.wait(waiting)
    assert (order, gate.waiting) == ([2], 0)


@pytest.mark.parametrize("way", [*BOTH_ERAS, "stdio"])
def test_a_handler_may_call_the_server_although_no_more_calls_may_be_in_flight(
    servers: Callable[[str], MCPServerInfo],  # noqa: F811
    way: str,
):
    def answer(_params: Any) -> dict[str, Any]:
        return {"colour": "red", "count": int(text(connection.call_tool("add", {"a": 1, "b": 2})))}

    async def answer_async(_params: Any) -> dict[str, Any]:
        inner = await connection.call_tool_async("add", {"a": 1, "b": 2})
        return {"colour": "red", "count": int(text(inner))}

    info = copy(servers(way))
    info.max_in_flight = 1
    for handler in (answer, answer_async):
        handlers = MCPHandlers(elicitation=handler)
        with MCPConnection(info, handlers=handlers, invocation_timeout=LONG) as connection:
            for _ in range(2):  # the place was taken once and given back once
                assert text(connection.call_tool("ask_order")) == "3 red"
            assert connection._identities.base.gate._places._value == 1
