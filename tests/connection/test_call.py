# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One call, seen from inside: what it leaves on the heap, and what its deadline does.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import mcp
import pytest
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPCallTimeoutError,
    MCPConnection,
    MCPToolset,
    StdioServerInfo,
)
from haystack_integrations.tools.mcp.connection.deadlines import Deadlines
from tests.support.processes import StdioServer
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until, wait_until_async

# Enough for what is there once, such as a timer, not to count.
CALLS = 50


async def objects_of_a_call(call: Callable[[], Awaitable[object]], server: StdioServer, *, earlier: int) -> float:
    """
    How many objects of one call in flight the garbage collector has to look at.
    """
    gc.collect()
    gc.disable()
    try:
        known = {id(thing) for thing in gc.get_objects()}
        calls = [asyncio.ensure_future(call()) for _ in range(CALLS)]
        await server.wait_for_async("sleep", earlier + CALLS)
        await asyncio.sleep(0)
        count = sum(id(thing) not in known for thing in gc.get_objects())
    finally:
        gc.enable()
    for task in calls:
        task.cancel()
    await asyncio.wait(calls)
    return count / CALLS


@pytest.mark.usefixtures("nothing_left_behind")
async def test_a_call_in_flight_has_at_most_half_as_many_objects_again_as_that_of_the_sdk(stdio_server):
    # With 256 calls in flight, it is these objects that make Python collect the garbage of the whole process.
    server = stdio_server()
    info = StdioServerInfo(server.command, list(server.args), dict(server.env or {}))
    parameters = mcp.StdioServerParameters(command=server.command, args=list(server.args), env=server.env)
    arguments = {"seconds": 60}
    async with mcp.Client(parameters, mode="legacy") as client:
        least = await objects_of_a_call(lambda: client.call_tool("sleep", arguments), server, earlier=0)
    async with MCPToolset(info) as toolset:
        sleep = toolset["sleep"]
        ours = await objects_of_a_call(lambda: sleep.invoke_async(**arguments), server, earlier=CALLS)
    assert least > 50
    assert ours <= 1.5 * least


class TestDeadlines:
    async def test_each_task_is_cancelled_at_its_own_deadline(self):
        deadlines, loop = Deadlines(), asyncio.get_running_loop()
        began = loop.time()

        async def wait(seconds: float | None) -> float:
            task = asyncio.current_task()
            assert task is not None
            deadlines.set(task, None if seconds is None else began + seconds)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                assert deadlines.end(task)
                assert not task.uncancel()
            return loop.time() - began

        late, early, never = (asyncio.ensure_future(wait(seconds)) for seconds in (0.3, 0.1, None))
        assert await early > 0.09
        assert await late > 0.29
        assert not never.done()
        never.cancel()
        with pytest.raises(AssertionError):  # it was not the deadline
            await never

    async def test_a_deadline_can_be_put_off_and_one_that_passed_cannot(self):
        deadlines, loop = Deadlines(), asyncio.get_running_loop()
        task, other = (asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2))
        deadlines.set(task, loop.time() + 0.05)
        deadlines.set(task, loop.time() + 3600)
        deadlines.set(other, loop.time() + 0.1)
        await asyncio.wait({other})
        assert not task.cancelling()
        assert 3590 < (deadlines.left(task) or 0) < 3600
        deadlines.set(task, loop.time())
        await wait_until_async(task.done, "the deadline")
        deadlines.set(task, loop.time() + 3600)
        assert deadlines.left(task) == 0
        assert deadlines.end(task)
        assert not deadlines.end(task)

    def test_a_deadline_that_is_due_at_once_does_not_disturb_others_in_the_loop_of_sessions(self):
        async def wait() -> float:
            deadlines, loop = Deadlines(), asyncio.get_running_loop()
            due, other = (asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2))
            deadlines.set(due, loop.time())
            deadlines.set(other, loop.time() + 3600)
            await asyncio.wait({due})
            other.cancel()
            return deadlines.left(other) or 0.0

        assert AsyncExecutor.get_instance().run(wait(), LIMIT) > 3500


@rows("is_inner_late", [False, True])
def test_a_tool_in_process_that_calls_another_of_its_server_is_held_to_its_own_deadline(is_inner_late):
    server = MCPServer("nested", log_level="WARNING")

    @server.tool()
    async def inner() -> str:
        await asyncio.sleep(60 if is_inner_late else 0)
        return "inner"

    @server.tool()
    async def outer() -> str:
        await connection.call_tool_async("inner", invocation_timeout=60)
        await asyncio.sleep(60)
        return "outer"

    with MCPConnection(InProcessServerInfo(server), invocation_timeout=0.3) as connection:
        with pytest.raises(MCPCallTimeoutError, match=r"`outer`: timed out after 0\.3 seconds"):
            connection.call_tool("outer")
        wait_until(lambda: not connection.status().in_flight, "the end of the inner call, too")
