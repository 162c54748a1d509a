# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Many calls of one session at the same time, from threads and event loops: everybody gets their own result, and whoever
gives up disturbs nobody.
"""

import asyncio
import contextvars

import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPConnection,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.support.background import in_loop_of_its_own, text, together
from tests.support.kinds import LONG
from tests.support.processes import StdioServer
from tests.support.waiting import LIMIT, wait_until_async


def reach(server: StdioServer) -> StdioServerInfo:
    """A new server info each time, equal to the others."""
    env = dict(server.env) if server.env else server.env
    return StdioServerInfo(server.command, list(server.args), env, base_delay=0.05, max_delay=0.2)


@pytest.fixture(params=["stdio", "streamable-http", "sse"])
def connection(request, stdio_server, shared_http_server):
    if request.param == "stdio":
        info = reach(stdio_server())
    else:
        kind = StreamableHttpServerInfo if request.param == "streamable-http" else SSEServerInfo
        info = kind(shared_http_server(request.param).url)
    with MCPConnection(info, invocation_timeout=LONG) as connection:
        yield connection


def test_50_calls_from_threads_each_get_their_own_result(connection):
    names = [f"call {number}" for number in range(50)]
    calls = together(lambda name=name: connection.call_tool("echo", {"text": name}) for name in names)
    assert [text(call.result(timeout=LIMIT)) for call in calls] == names
    assert connection.status().sessions == 1
    assert connection.status().calls == 50
    assert connection.status().in_flight == 0


def test_calls_from_three_event_loops_each_get_their_own_result(connection):
    async def call_all(loop: int) -> None:
        names = [f"call {loop}.{number}" for number in range(20)]
        results = await asyncio.gather(*(connection.call_tool_async("echo", {"text": name}) for name in names))
        assert [text(result) for result in results] == names

    for future in [in_loop_of_its_own(lambda loop=loop: call_all(loop)) for loop in range(3)]:
        future.result(timeout=LIMIT)
    assert connection.status().sessions == 1
    assert connection.status().calls == 60


def test_calls_run_at_the_same_time_and_not_one_after_the_other(connection):
    # One after the other they would take longer than is waited for them.
    seconds = 3
    calls = together([lambda: connection.call_tool("sleep", {"seconds": seconds})] * int(2 * LIMIT / seconds))
    assert {text(call.result(timeout=LIMIT)) for call in calls} == {"slept 3.0 s"}


def test_the_loop_of_an_asynchronous_caller_goes_on_during_a_call(connection):
    async def count_while_calling() -> int:
        call = asyncio.ensure_future(connection.call_tool_async("sleep", {"seconds": 0.5}))
        turns = 0
        while not call.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert text(await call) == "slept 0.5 s"
        return turns

    assert asyncio.run(count_while_calling()) > 2


def test_a_session_outlives_the_loops_of_its_users(connection):
    for number in range(3):
        result = asyncio.run(connection.call_tool_async("echo", {"text": str(number)}))
        assert text(result) == str(number)
    assert connection.status().sessions == 1


async def test_cancelling_an_awaited_call_reaches_the_server_and_does_not_disturb_others(stdio_server):
    server = stdio_server()
    tool = MCPTool("sleep", reach(server), invocation_timeout=LONG)
    async with tool:
        other = asyncio.create_task(tool.ainvoke(seconds=1.2))
        await server.wait_for_async("sleep")
        cancelled = asyncio.create_task(tool.ainvoke(seconds=LONG))
        await server.wait_for_async("sleep", 2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await server.wait_for_async("sleep-cancelled")
        assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
        assert "slept 1.2 s" in await other
    assert len(server.pids()) == 1


async def test_a_timeout_of_the_caller_cancels_the_call_on_the_server(stdio_server):
    server = stdio_server()
    async with MCPTool("sleep", reach(server), invocation_timeout=LONG) as tool:
        limit = asyncio.timeout(LIMIT)

        async def let_the_time_be_over() -> None:
            await server.wait_for_async("sleep")
            limit.reschedule(asyncio.get_running_loop().time())

        with pytest.raises(TimeoutError) as failure:
            async with limit:
                ending = asyncio.create_task(let_the_time_be_over())
                await tool.ainvoke(seconds=LONG)
        await ending
        assert not isinstance(failure.value, MCPInvocationError)
        await server.wait_for_async("sleep-cancelled")


async def test_cancelling_a_warm_up_leaves_it_to_the_others(stdio_server):
    server = stdio_server("--slow-list", "0.8")
    one, other = MCPToolset(reach(server)), MCPToolset(reach(server))
    cancelled, kept = asyncio.create_task(one.warm_up_async()), asyncio.create_task(other.warm_up_async())
    await server.wait_for_async("@tools/list")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await kept
    assert len(server.pids()) == 1
    await one.close_async()
    await other.close_async()


async def test_cancelling_the_only_warm_up_leaves_no_process(stdio_server):
    server = stdio_server("--slow-list", "1000")
    toolset = MCPToolset(reach(server))
    cancelled = asyncio.create_task(toolset.warm_up_async())
    await server.wait_for_async("@tools/list")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    server.wait_until_gone()
    await toolset.close_async()


async def test_the_end_of_a_loop_cancels_its_calls_on_the_server(stdio_server):
    server = stdio_server()
    tool = MCPTool("sleep", reach(server), invocation_timeout=LONG)

    async def leave() -> None:
        for _ in range(5):
            asyncio.ensure_future(tool.ainvoke(seconds=LONG))  # noqa: RUF006 - the loop's end cancels them
        await server.wait_for_async("sleep", 5)

    await asyncio.to_thread(asyncio.run, leave())
    await server.wait_for_async("sleep-cancelled", 5)
    await wait_until_async(lambda: not tool._connection.status().in_flight, "the end of the calls")
    await tool.close_async()


name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


async def test_context_variables_of_an_asynchronous_caller_are_visible_in_process():
    with MCPConnection(InProcessServerInfo(_server_that_looks())) as connection:

        async def ask(value: str) -> str:
            name.set(value)
            return text(await connection.call_tool_async("look"))

        assert await asyncio.gather(*(ask(f"user {number}") for number in range(5))) == [
            f"user {number}" for number in range(5)
        ]


def test_context_variables_of_a_thread_are_visible_in_process():
    with MCPConnection(InProcessServerInfo(_server_that_looks())) as connection:

        def ask(value: str) -> str:
            name.set(value)
            return text(connection.call_tool("look"))

        futures = together([lambda number=number: ask(f"user {number}") for number in range(5)])
        assert [future.result(timeout=LIMIT) for future in futures] == [f"user {number}" for number in range(5)]


def test_context_variables_of_the_caller_are_visible_in_the_executor():
    name.set("Ada")

    async def look() -> str:
        return name.get()

    assert AsyncExecutor.get_instance().run(look()) == "Ada"
    future, _ = AsyncExecutor.get_instance().run_background(lambda _stop: look())
    assert future.result(timeout=LIMIT) == "Ada"


def _server_that_looks():
    from mcp.server import MCPServer

    server = MCPServer("looking")

    @server.tool()
    def look() -> str:
        return name.get()

    return server
