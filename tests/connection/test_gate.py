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
from typing import Any, cast

import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPConnection,
    MCPHandlers,
    MCPInvocationError,
    MCPServerInfo,
)
from haystack_integrations.tools.mcp.connection.gate import Gate
from haystack_integrations.tools.mcp.connection.identities import Identities
from haystack_integrations.tools.mcp.protocol.exchange import CallDidNotRunError
from tests.handlers.conftest import BOTH_ERAS, Ask, ask, servers  # noqa: F401 - fixtures
from tests.support.background import text
from tests.support.kinds import LONG
from tests.support.waiting import LIMIT, wait_until_async


def gate_of(*, max_in_flight: int | None = None, pause: float | None = 20.0) -> Gate:
    return Gate("the server", max_in_flight=max_in_flight, pause=pause)


def fail(gate: Gate, times: int) -> None:
    for _ in range(times):
        gate.failed("it is broken", monotonic())


async def test_a_server_that_fails_again_after_the_pause_is_left_alone_for_twice_as_long():
    gate = gate_of(pause=0.05)
    fail(gate, 5)
    assert gate.state == "open"
    with pytest.raises(CallDidNotRunError, match=r"5 of the last 5 calls of it failed\. The last one: it is broken"):
        await gate.enter(None)
    await wait_until_async(lambda: not gate.retry_in, "the end of the pause")
    assert gate.state == "half-open"
    await gate.enter(None)
    gate._pause = 20.0
    fail(gate, 1)
    assert gate.state == "open"
    assert gate.retry_in > 30
    gate._open_until = monotonic()
    gate.answered()
    assert gate.state == "closed"


async def test_one_failure_in_many_is_none_again_and_again():
    gate = gate_of()
    for _ in range(20):
        fail(gate, 4)
        for _ in range(7):
            gate.answered()
    assert gate.state == "closed"
    fail(gate, 4)
    gate.answered()
    fail(gate, 1)
    assert gate.state == "open"


async def test_calls_that_fail_together_count_as_one_failure():
    gate, began = gate_of(), monotonic()
    for _ in range(50):
        gate.failed("the server crashed", began)
    assert gate.state == "closed"


async def test_a_server_that_is_never_to_be_left_alone_is_not():
    gate = gate_of(pause=None)
    fail(gate, 50)
    assert gate.state == "closed"


async def test_places_are_handed_on_in_order_and_not_lost_to_those_who_gave_up():
    gate = gate_of(max_in_flight=1)
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
    first = await gate.enter(None)
    assert await gate.enter(0.01) is None  # inside of a call
    with pytest.raises(CallDidNotRunError, match="no place became free among the 1 calls"):
        await asyncio.create_task(gate.enter(0.01), context=nobody.copy())
    gate.leave(first)


def left_alone_before(connection: MCPConnection) -> None:
    """
    Have the server left alone, and the pause over.
    """
    gate = cast("Identities", connection._identities).base.gate

    async def fail_and_come_back() -> None:
        fail(gate, 5)
        gate._open_until = monotonic()

    AsyncExecutor.get_instance().run(fail_and_come_back(), LIMIT)
    assert connection.status().circuit == "half-open"


def test_a_call_that_cannot_be_sent_does_not_show_that_the_server_is_back():
    with MCPConnection(InProcessServerInfo("tests.servers.asking_server:server")) as connection:
        left_alone_before(connection)
        with pytest.raises(MCPInvocationError, match="cannot be sent as JSON"):
            connection.call_tool("add", {"a": object(), "b": 1})
        assert connection.status().circuit == "half-open"
        with pytest.raises(MCPInvocationError, match="Unknown tool"):
            connection.call_tool("no such tool")
        assert connection.status().circuit == "closed"


@pytest.mark.parametrize("way", [*BOTH_ERAS, "stdio"])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_may_call_the_server_although_no_more_calls_may_be_in_flight(
    servers: Callable[[str], MCPServerInfo],  # noqa: F811
    way: str,
    is_async: bool,
):
    inner: list[str] = []

    def answered(result: Any) -> dict[str, Any]:
        inner.append(text(result))
        return {"colour": "red", "count": int(inner[-1])}

    def answer(_params: Any) -> dict[str, Any]:
        return answered(connection.call_tool("add", {"a": 1, "b": 2}))

    async def answer_async(_params: Any) -> dict[str, Any]:
        return answered(await connection.call_tool_async("add", {"a": 1, "b": 2}))

    info = copy(servers(way))
    info.max_in_flight = 1
    handlers = MCPHandlers(elicitation=answer_async if is_async else answer)
    with MCPConnection(info, handlers=handlers, invocation_timeout=LONG) as connection:
        connection.open()  # so that the session is no part of the first call
        assert text(connection.call_tool("ask_order")) == "3 red"
        # The place was taken once and given back once.
        assert text(connection.call_tool("ask_order")) == "3 red"
        assert cast("Identities", connection._identities).base.gate._places._value == 1
        assert inner == ["3", "3"]
