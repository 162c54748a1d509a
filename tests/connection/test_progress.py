# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Functions that get the progress of calls: what they may do, and what their failures do not break.
"""

import asyncio
import contextvars
import threading

import pytest
from mcp.server.mcpserver import Context, MCPServer

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPConnection, MCPHandlers, MCPInvocationError, MCPTool
from haystack_integrations.tools.mcp.handlers import MCPProgress
from tests.connection.test_interceptors import passing, passing_async
from tests.support.background import in_thread, text
from tests.support.kinds import LONG
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until

user = contextvars.ContextVar("user", default="nobody")


@pytest.fixture
def server():
    server = MCPServer("steps")

    @server.tool()
    async def steps(count: int, ctx: Context, end: str = "done") -> str:
        for step in range(1, count + 1):
            await ctx.report_progress(step, count)
        if end == "wait":
            await asyncio.sleep(LONG)
        if end == "fail":
            raise ValueError("no more")
        return end

    return InProcessServerInfo(server)


async def test_concurrent_calls_get_their_own_reports(server):
    reports = {2: [], 3: []}
    async with MCPConnection(server) as connection:
        await asyncio.gather(
            *(
                connection.call_tool_async("steps", {"count": count}, on_progress=reports[count].append)
                for count in reports
            )
        )
    for count, heard in reports.items():
        assert [(report.progress, report.total) for report in heard] == [(step, count) for step in range(1, count + 1)]


def test_a_handler_may_call_the_same_server_and_sees_the_context_of_the_call(server):
    seen = []

    def handler(report):
        if report.total == 2:
            seen.append((user.get(), text(connection.call_tool("steps", {"count": 1}))))

    def call():
        user.set("ada")
        assert text(connection.call_tool("steps", {"count": 2})) == "done"

    with MCPConnection(server, handlers=MCPHandlers(progress=handler)) as connection:
        contextvars.copy_context().run(call)
    assert seen == [("ada", "done")] * 2


@pytest.mark.parametrize("way", ["handler", "call", "async call"])
async def test_a_function_that_raises_is_logged_and_the_call_continues(server, caplog, way):
    def fails(_report):
        raise ArithmeticError("17 is too much")

    async def fails_async(report):
        fails(report)

    async with MCPConnection(server, handlers=MCPHandlers(progress=fails if way == "handler" else None)) as connection:
        if way == "async call":
            result = await connection.call_tool_async("steps", {"count": 3}, on_progress=fails_async)
        else:
            on_progress = fails if way == "call" else None
            result = await asyncio.to_thread(connection.call_tool, "steps", {"count": 3}, on_progress=on_progress)
    assert text(result) == "done"
    (record,) = [record for record in caplog.records if "ArithmeticError" in record.getMessage()]
    assert (record.levelname, bool(record.exc_info)) == ("ERROR", True)
    assert "'steps'" in record.getMessage()


def test_the_result_is_not_lost_if_a_handler_takes_longer_than_the_timeout(server, caplog):
    go_on = threading.Event()
    handlers = MCPHandlers(progress=lambda _report: go_on.wait(LIMIT))
    with MCPConnection(server, invocation_timeout=2, handlers=handlers) as connection:
        assert text(connection.call_tool("steps", {"count": 2})) == "done"
    go_on.set()
    assert "has not ended within the time of a call" in caplog.text
    wait_until(lambda: all(thread.name != "mcp-haystack-handler" for thread in threading.enumerate()), "its end")


@pytest.mark.parametrize("end", ["fail", "wait"])
def test_reports_before_a_failure_arrive(server, end):
    handler, direct = [], []
    handlers = MCPHandlers(progress=handler.append)
    with MCPConnection(server, invocation_timeout=2, handlers=handlers) as connection:
        with pytest.raises(MCPInvocationError):
            connection.call_tool("steps", {"count": 1, "end": end}, on_progress=direct.append)
        wait_until(lambda: len(handler) == len(direct) == 1, "the report")
    assert direct == [MCPProgress(server="in-process server 'steps'", tool_name="steps", progress=1.0, total=1.0)]


async def test_a_caller_that_is_cancelled_does_not_wait_for_its_function(server):
    reported = asyncio.Event()

    async def hangs(_report):
        reported.set()
        await asyncio.Event().wait()

    async with MCPConnection(server, invocation_timeout=LONG) as connection:
        call = asyncio.create_task(connection.call_tool_async("steps", {"count": 1}, on_progress=hangs))
        await asyncio.wait_for(reported.wait(), LIMIT)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, LIMIT)


def test_an_interrupt_in_a_function_ends_the_call(server):
    def interrupted(_report):
        raise KeyboardInterrupt

    with MCPConnection(server, invocation_timeout=LONG) as connection:
        call = in_thread(connection.call_tool, "steps", {"count": 1, "end": "wait"}, on_progress=interrupted)
        assert isinstance(call.exception(timeout=LIMIT), KeyboardInterrupt)
        wait_until(lambda: connection.status().in_flight == 0, "the end of the call")


@rows("interceptors", [], [passing, passing_async])
async def test_a_streaming_callback_gets_progress_in_its_callers_context_even_with_interceptors(server, interceptors):
    chunks = []

    async def streamed(chunk):
        chunks.append((chunk, asyncio.get_running_loop()))

    async with MCPTool("steps", server, exposed_name="x_steps", interceptors=interceptors) as tool:
        tool.invoke(count=1, streaming_callback=streamed)
        assert chunks == []  # an async callback of a synchronous call is not awaited
        tool.invoke(count=1, streaming_callback=lambda chunk: chunks.append((chunk, threading.current_thread())))
        await tool.invoke_async(count=1, streaming_callback=streamed)
    assert [where for _, where in chunks] == [threading.current_thread(), asyncio.get_running_loop()]
    for chunk, _ in chunks:
        assert (chunk.content, chunk.component_info.name) == ("", "x_steps")
        expected = {"type": "progress", "tool_name": "steps", "progress": 1.0, "total": 1.0}
        assert expected.items() <= chunk.meta["mcp"].items()
