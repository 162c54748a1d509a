# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Many users of one server at the same time, from threads and event loops: one process, one session, and everybody's own
result.
"""

import asyncio
import contextvars
import dataclasses
import gc

import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.support.background import AT_ONCE, Stopwatch, in_loop_of_its_own, in_thread, text, together
from tests.support.processes import StdioServer
from tests.support.waiting import LIMIT, wait_until

# No test waits for this.
LONG = 90.0


def reach(server: StdioServer) -> StdioServerInfo:
    """A new server info each time, equal to the others."""
    env = dict(server.env) if server.env else server.env
    return StdioServerInfo(server.command, list(server.args), env, base_delay=0.05, max_delay=0.2)


class TestWarmUpTogether:
    def test_16_threads_with_one_toolset_connect_once(self, stdio_server):
        server = stdio_server()
        with MCPToolset(reach(server)) as toolset:
            toolset.close()
            for future in together([toolset.warm_up] * 16):
                future.result(timeout=LIMIT)
            assert toolset.connection.status().sessions == 1
            assert "add" in [tool.name for tool in toolset]
        assert len(server.pids()) == 2  # one before the close, and one

    def test_16_threads_with_a_cold_toolset_connect_once(self, stdio_server):
        server = stdio_server()
        toolset = MCPToolset(reach(server))
        for future in together([toolset.warm_up] * 16):
            future.result(timeout=LIMIT)
        assert toolset.connection.status().sessions == 1
        assert toolset.connection.status().users == 1
        assert len(server.pids()) == 1
        assert server.requests("tools/list") == ["tools/list"]
        toolset.close()

    def test_16_toolsets_of_equal_server_infos_connect_once(self, stdio_server):
        server = stdio_server()
        toolsets = [MCPToolset(reach(server)) for _ in range(16)]
        for future in together([toolset.warm_up for toolset in toolsets]):
            future.result(timeout=LIMIT)
        for toolset in toolsets:
            status = toolset.connection.status()
            assert (status.state, status.sessions, status.users) == ("ready", 1, 16)
        assert len(server.pids()) == 1
        assert server.requests("tools/list") == ["tools/list"]
        names = {tuple(tool.name for tool in toolset) for toolset in toolsets}
        assert len(names) == 1
        for future in together([toolset.close for toolset in toolsets]):
            future.result(timeout=LIMIT)
        server.wait_until_gone()

    def test_16_threads_whose_server_does_not_start_share_one_attempt_and_its_error(self, tmp_path):
        starts = tmp_path / "starts"
        script = f"echo start >> {starts}; sleep 1; echo no luck >&2; exit 4"
        toolset = MCPToolset(StdioServerInfo("/bin/sh", ["-c", script]), connection_timeout=LONG)
        errors = [future.exception(timeout=LIMIT) for future in together([toolset.warm_up] * 16)]
        assert all(isinstance(error, MCPConnectionError) and "exit code 4" in str(error) for error in errors), errors
        assert starts.read_text().splitlines() == ["start"]
        toolset.close()

    def test_an_impatient_user_leaves_the_connect_to_the_others(self, stdio_server):
        server = stdio_server("--slow-list", "3")
        impatient = MCPConnection(reach(server), connection_timeout=0.5)
        patient = MCPConnection(reach(server), connection_timeout=LONG)
        first, second = in_thread(impatient.open), in_thread(patient.open)
        assert isinstance(first.exception(timeout=LIMIT), TimeoutError)
        assert second.result(timeout=LIMIT)[0] > 0
        assert len(server.pids()) == 1
        impatient.close()
        patient.close()

    def test_threads_and_loops_connect_once(self, stdio_server):
        server = stdio_server()
        toolset = MCPToolset(reach(server))
        futures = [*[in_loop_of_its_own(toolset.warm_up_async) for _ in range(3)], *together([toolset.warm_up] * 5)]
        for future in futures:
            future.result(timeout=LIMIT)
        assert len(server.pids()) == 1
        toolset.close()


class TestCallsTogether:
    @pytest.fixture(params=["stdio", "streamable-http", "sse"])
    def connection(self, request, stdio_server, shared_http_server):
        if request.param == "stdio":
            info = reach(stdio_server())
        else:
            kind = StreamableHttpServerInfo if request.param == "streamable-http" else SSEServerInfo
            info = kind(shared_http_server(request.param).url)
        with MCPConnection(info, invocation_timeout=LONG) as connection:
            yield connection

    def test_50_from_threads_each_get_their_own_result(self, connection):
        names = [f"call {number}" for number in range(50)]
        calls = together(lambda name=name: connection.call_tool("echo", {"text": name}) for name in names)
        assert [text(call.result(timeout=LIMIT)) for call in calls] == names
        assert connection.status().sessions == 1
        assert connection.status().calls == 50
        assert connection.status().in_flight == 0

    def test_50_from_three_event_loops_each_get_their_own_result(self, connection):
        async def call_all(loop: int) -> None:
            names = [f"call {loop}.{number}" for number in range(50)]
            results = await asyncio.gather(*(connection.call_tool_async("echo", {"text": name}) for name in names))
            assert [text(result) for result in results] == names

        for future in [in_loop_of_its_own(lambda loop=loop: call_all(loop)) for loop in range(3)]:
            future.result(timeout=LIMIT)
        assert connection.status().sessions == 1
        assert connection.status().calls == 150

    def test_run_at_the_same_time_and_not_one_after_the_other(self, connection):
        with Stopwatch() as watch:
            calls = together([lambda: connection.call_tool("sleep", {"seconds": 1})] * 20)
            assert {text(call.result(timeout=LIMIT)) for call in calls} == {"slept 1.0 s"}
        assert watch.seconds < 1 + AT_ONCE  # one after the other it would be 20 s

    def test_the_loop_of_an_asynchronous_caller_goes_on(self, connection):
        async def count_while_calling() -> int:
            call = asyncio.ensure_future(connection.call_tool_async("sleep", {"seconds": 1}))
            turns = 0
            while not call.done():
                await asyncio.sleep(0.01)
                turns += 1
            assert text(await call) == "slept 1.0 s"
            return turns

        assert asyncio.run(count_while_calling()) > 10

    def test_a_session_outlives_the_loops_of_its_users(self, connection):
        for number in range(3):
            result = asyncio.run(connection.call_tool_async("echo", {"text": str(number)}))
            assert text(result) == str(number)
        assert connection.status().sessions == 1


class TestSharing:
    def test_20_tools_of_a_server_are_one_process_that_ends_with_the_last_of_them(self, stdio_server):
        server = stdio_server()
        tools = [MCPTool(name, reach(server)) for name in ["add", "echo"] * 10]
        for tool in tools:
            tool.warm_up()
        for tool in tools:
            assert tool.invoke(**({"a": 1, "b": 1} if tool.name == "add" else {"text": "hello"}))
        assert len(server.pids()) == 1
        for tool in tools[:-1]:
            tool.close()
        assert server.alive()
        assert "hello" in tools[-1].invoke(text="hello")
        tools[-1].close()
        server.wait_until_gone()
        assert len(server.pids()) == 1

    def test_a_tool_and_a_toolset_share_too(self, stdio_server):
        server = stdio_server()
        with MCPTool("add", reach(server)) as tool, MCPToolset(reach(server)) as toolset:
            assert toolset.connection.status().users == 2
            assert '"3"' in tool.invoke(a=1, b=2)
        assert len(server.pids()) == 1

    def test_share_false_isolates(self, stdio_server):
        server = stdio_server()
        with (
            MCPConnection(reach(server)) as shared,
            MCPConnection(reach(server), share=False) as one,
            MCPConnection(reach(server), share=False) as another,
        ):
            pids = [text(connection.call_tool("pid")) for connection in (shared, one, another)]
            assert len(set(pids)) == 3
            one.close()
            wait_until(lambda: len(server.alive()) == 2, "the end of one")
            assert text(another.call_tool("add", {"a": 1, "b": 1})) == "2"
            assert text(shared.call_tool("pid")) == pids[0]

    def test_servers_that_differ_in_anything_are_not_shared(self, stdio_server):
        server = stdio_server()
        same = reach(server)
        infos = [same, *(dataclasses.replace(same, env={"GREETING": greeting}) for greeting in ("hello", "goodbye"))]
        connections = [MCPConnection(info) for info in infos]
        greetings = [text(connection.call_tool("env", {"name": "GREETING"})) for connection in connections]
        for connection in connections:
            connection.close()
        assert greetings == ["", "hello", "goodbye"]
        assert len(server.pids()) == 3

    def test_equal_secrets_are_shared_and_others_are_not(self, stdio_server, monkeypatch):
        monkeypatch.setenv("ONE", "1")
        monkeypatch.setenv("TWO", "2")
        server = stdio_server()
        infos = [
            dataclasses.replace(reach(server), env={"KEY": Secret.from_env_var(name)}) for name in ("ONE", "ONE", "TWO")
        ]
        connections = [MCPConnection(info) for info in infos]
        values = [text(connection.call_tool("env", {"name": "KEY"})) for connection in connections]
        for connection in connections:
            connection.close()
        assert values == ["1", "1", "2"]
        assert len(server.pids()) == 2

    def test_in_process_servers_are_shared_by_identity(self):
        from mcp.server import MCPServer

        one, other = MCPServer("twin"), MCPServer("twin")
        for server, answer in ((one, "one"), (other, "other")):
            server.add_tool(lambda answer=answer: answer, name="who")
        with (
            MCPConnection(InProcessServerInfo(one)) as first,
            MCPConnection(InProcessServerInfo(other)) as second,
            MCPConnection(InProcessServerInfo(one)) as third,
        ):
            assert [text(connection.call_tool("who")) for connection in (first, second, third)] == [
                "one",
                "other",
                "one",
            ]
            assert first.status().users == 2

    def test_users_come_and_go_in_many_threads_and_no_process_is_left(self, stdio_server):
        server = stdio_server()

        def use(number: int) -> None:
            for turn in range(3):
                with MCPTool("echo", reach(server)) as tool:
                    assert f"{number}.{turn}" in tool.invoke(text=f"{number}.{turn}")

        for future in together([lambda number=number: use(number) for number in range(8)]):
            future.result(timeout=60)
        server.wait_until_gone()
        assert len(server.calls()) == 24

    def test_a_user_that_was_collected_leaves_the_session_to_the_others(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server)) as kept:
            dropped = MCPTool("add", reach(server))
            dropped.warm_up()
            assert kept.status().users == 2
            del dropped
            gc.collect()
            wait_until(lambda: kept.status().users == 1, "the release")
            assert text(kept.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert len(server.pids()) == 1


class TestCancelling:
    async def test_an_awaited_call_reaches_the_server_and_does_not_disturb_others(self, stdio_server):
        server = stdio_server()
        tool = MCPTool("sleep", reach(server), invocation_timeout=LONG)
        async with tool:
            other = asyncio.create_task(tool.ainvoke(seconds=2))
            await server.wait_for_async("sleep")
            cancelled = asyncio.create_task(tool.ainvoke(seconds=LONG))
            await server.wait_for_async("sleep", 2)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await server.wait_for_async("sleep-cancelled")
            assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
            assert "slept 2.0 s" in await other
        assert len(server.pids()) == 1

    async def test_with_a_timeout_of_the_caller_reaches_the_server(self, stdio_server):
        server = stdio_server()
        async with MCPTool("sleep", reach(server), invocation_timeout=LONG) as tool:
            with pytest.raises(TimeoutError) as failure:
                async with asyncio.timeout(1):
                    await tool.ainvoke(seconds=LONG)
            assert not isinstance(failure.value, MCPInvocationError)
            await server.wait_for_async("sleep-cancelled")

    async def test_a_warm_up_leaves_it_to_the_others(self, stdio_server):
        server = stdio_server("--slow-list", "2")
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

    async def test_the_only_warm_up_leaves_no_process(self, stdio_server):
        server = stdio_server("--slow-list", "1000")
        toolset = MCPToolset(reach(server))
        cancelled = asyncio.create_task(toolset.warm_up_async())
        await server.wait_for_async("@tools/list")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        server.wait_until_gone()
        await toolset.close_async()

    async def test_all_calls_of_a_loop_that_ends_reaches_the_server(self, stdio_server):
        server = stdio_server()
        tool = MCPTool("sleep", reach(server), invocation_timeout=LONG)

        async def leave() -> None:
            for _ in range(5):
                asyncio.ensure_future(tool.ainvoke(seconds=LONG))  # noqa: RUF006 - the loop's end cancels them
            await server.wait_for_async("sleep", 5)

        await asyncio.to_thread(asyncio.run, leave())
        await server.wait_for_async("sleep-cancelled", 5)
        assert not await asyncio.to_thread(lambda: tool._connection.status().in_flight)
        await tool.close_async()


name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


class TestContextVariables:
    async def test_of_an_asynchronous_caller_are_visible_in_process(self):
        with MCPConnection(InProcessServerInfo(_server_that_looks())) as connection:

            async def ask(value: str) -> str:
                name.set(value)
                return text(await connection.call_tool_async("look"))

            assert await asyncio.gather(*(ask(f"user {number}") for number in range(5))) == [
                f"user {number}" for number in range(5)
            ]

    def test_of_a_thread_are_visible_in_process(self):
        with MCPConnection(InProcessServerInfo(_server_that_looks())) as connection:

            def ask(value: str) -> str:
                name.set(value)
                return text(connection.call_tool("look"))

            futures = together([lambda number=number: ask(f"user {number}") for number in range(5)])
            assert [future.result(timeout=LIMIT) for future in futures] == [f"user {number}" for number in range(5)]

    def test_of_the_caller_are_visible_in_the_executor(self):
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
