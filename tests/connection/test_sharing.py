# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Users of equal servers share one process and one session, however many there are and whichever is first. `with` blocks
and calls use a connection; the last one to leave closes it. Concurrent calls from threads and event loops each get
their own result, and a cancelled call does not disturb others. Closing or dropping users, or shutting down their
executor, does not block and leaves no process.
"""

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from haystack.utils import Secret
from mcp import types
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPRegistry,
    MCPSearchableToolset,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
    ToolConfig,
    warm_up_toolsets,
)
from tests.support.background import in_new_loop, in_thread, text, together
from tests.support.in_process import COUNTER
from tests.support.kinds import LONG
from tests.support.waiting import LIMIT, wait_until


def test_16_toolsets_of_equal_server_infos_connect_once(stdio_server):
    server = stdio_server()
    toolsets = [MCPToolset(server.info()) for _ in range(16)]
    for future in together([toolset.warm_up for toolset in toolsets * 2]):
        future.result(timeout=LIMIT)
    for toolset in toolsets:
        status = toolset.connection.status()
        assert (status.state, status.sessions, status.users) == ("ready", 1, 16)
    assert len(server.pids()) == 1
    assert server.requests("tools/list") == ["tools/list"]
    assert len({tuple(tool.name for tool in toolset) for toolset in toolsets}) == 1
    for future in together([toolset.close for toolset in toolsets]):
        future.result(timeout=LIMIT)
    server.wait_until_gone()


def test_servers_that_differ_in_any_field_are_not_shared(stdio_server, monkeypatch):
    monkeypatch.setenv("ONE", "1")
    one, two = Secret.from_env_var("ONE"), Secret.from_token("2")
    environments = [None, {"KEY": "hello"}, {"KEY": "goodbye"}, {"KEY": one}, {"KEY": one}, {"KEY": two}]
    server = stdio_server()
    connections = [MCPConnection(server.info(env=env)) for env in environments]
    values = [text(connection.call_tool("env", {"name": "KEY"})) for connection in connections]
    for connection in connections:
        connection.close()
    assert values == ["", "hello", "goodbye", "1", "1", "2"]
    assert len(server.pids()) == 5


def test_in_process_servers_are_shared_by_identity():
    one, other = MCPServer("twin"), MCPServer("twin")
    one.add_tool(lambda: "one", name="who")
    other.add_tool(lambda: "other", name="who")
    infos = [InProcessServerInfo(server) for server in (one, other, one)]
    with MCPConnection(infos[0]) as first, MCPConnection(infos[1]) as second, MCPConnection(infos[2]) as third:
        assert [text(connection.call_tool("who")) for connection in (first, second, third)] == ["one", "other", "one"]
        assert first.status().users == 2


@pytest.fixture
def held() -> Iterator[SimpleNamespace]:
    """
    A server in process whose tool `wait` runs until the test releases it.
    """
    started, released = threading.Semaphore(0), threading.Event()
    server = MCPServer("held")

    def wait() -> list[str | types.ResourceLink]:
        started.release()
        released.wait(LIMIT)
        return ["done", types.ResourceLink(type="resource_link", uri="memo://it", name="it")]

    server.add_tool(wait)
    server.add_tool(lambda: "pong", name="ping", description="Answer.")
    yield SimpleNamespace(
        info=InProcessServerInfo(server), wait=lambda: started.acquire(timeout=LIMIT), release=released.set
    )
    released.set()


# The objects whose `with` block is entered.
USERS = {
    "toolset": lambda toolset: toolset,
    "connection": lambda toolset: toolset.connection,
    "tool": lambda toolset: toolset["wait"],
    "search": lambda toolset: MCPSearchableToolset([toolset]),
}


def state_of(toolset: MCPToolset) -> str:
    return toolset.connection.status().state


@pytest.mark.parametrize("user", USERS)
async def test_the_last_of_several_blocks_closes_the_connection(held, user):
    toolset = MCPToolset(held.info, tool_names=["wait", "ping"], invocation_timeout=LONG)
    entered = USERS[user](toolset)

    async def work() -> str:
        async with entered:
            return (await toolset.connection.call_tool_async("wait")).content[0].text

    async with entered:
        with entered:
            pass
        # One user is in this loop and one in another loop.
        mine, other = asyncio.create_task(work()), in_new_loop(work)
        for _ in range(2):
            assert await asyncio.to_thread(held.wait)
    assert state_of(toolset) == "ready"
    held.release()
    assert (await mine, await asyncio.wrap_future(other)) == ("done", "done")
    wait_until(lambda: state_of(toolset) == "closed", "the end of the session")


def test_a_call_without_a_block_outlives_the_block_of_another_user(held):
    toolset = MCPToolset(held.info, invocation_timeout=LONG)
    with toolset:
        calling = in_thread(toolset["wait"].call)
        assert held.wait()
    assert state_of(toolset) == "ready"
    held.release()
    assert calling.result(LIMIT).raw.content[0].text == "done"
    wait_until(lambda: state_of(toolset) == "closed", "the end of the session")
    # A connection that is used without a block stays open.
    assert toolset["ping"].call().text == "pong"
    assert state_of(toolset) == "ready"
    toolset.close()


def test_blocks_of_a_registry_and_of_its_aliases_keep_each_others_connections_open(held):
    registry = MCPRegistry(providers={"held": held.info}, tool_configs=[ToolConfig("all", ["held"], timeout_sec=LONG)])
    alias = registry.toolset("all")
    with registry:
        with registry, alias:
            (member,) = alias.toolsets.values()
        assert state_of(member) == "ready"
    assert state_of(member) == "closed"
    with alias:
        with registry:
            pass
        assert state_of(member) == "ready"
    assert state_of(member) == "closed"


def test_an_explicit_close_closes_the_connection_for_all_users(held):
    toolset = MCPToolset(held.info, invocation_timeout=LONG)
    with toolset, toolset:
        calling = in_thread(toolset["wait"].call)
        assert held.wait()
        toolset.close()
        with pytest.raises(MCPInvocationError, match="closed before the answer came"):
            calling.result(LIMIT)
        assert state_of(toolset) == "closed"
        # If it is used in a block after that, it is closed at the end of the block.
        assert toolset["ping"].call().text == "pong"
    assert state_of(toolset) == "closed"


async def test_a_block_that_fails_to_open_is_closed_and_does_not_close_other_blocks(held):
    with MCPConnection(held.info) as connection:
        tool = MCPTool("absent", held.info)
        with pytest.raises(MCPToolNotFoundError), tool:
            pass
        assert connection.is_ready
        assert connection.status().users == 1
    broken = MCPConnection(StdioServerInfo("no-such-command"))
    with pytest.raises(MCPConnectionError):
        async with broken:
            pass
    assert broken.status().state == "closed"


async def test_a_close_continues_when_its_caller_is_cancelled(stdio_server) -> None:
    server = stdio_server()
    connection = MCPConnection(server.info())
    await connection.open_async()
    closing = asyncio.create_task(connection.close_async())
    asyncio.get_running_loop().call_soon(closing.cancel)
    with pytest.raises(asyncio.CancelledError):
        await closing
    wait_until(lambda: not server.alive(), "the end of the server process")


def test_shutting_down_the_executor_fails_calls_in_flight_and_ends_servers_and_tools_reconnect(stdio_server):
    server = stdio_server()
    with MCPTool("sleep", server.info(), invocation_timeout=LONG) as tool, MCPToolset(server.info()) as toolset:
        calls = together([lambda: tool.invoke(seconds=LONG)] * 3)
        server.wait_for("sleep", 3)
        AsyncExecutor.get_instance().shutdown()
        for call in calls:
            with pytest.raises(MCPInvocationError, match=r"(shut down|closed).*may have run"):
                call.result(timeout=LIMIT)
        server.wait_until_gone()
        assert tool.connection.status().state == "lost"
        assert "slept" in tool.invoke(seconds=0)
        toolset.warm_up()
        assert "hello" in toolset["echo"].invoke(text="hello")
    assert len(server.pids()) == 2


def test_the_tools_of_a_garbage_collected_toolset_keep_the_session(stdio_server):
    server = stdio_server()
    toolset = MCPToolset(server.info(), tool_names=["echo"])
    toolset.warm_up()
    tool = toolset[0]
    del toolset
    gc.collect()
    assert "hello" in tool.invoke(text="hello")
    assert len(server.pids()) == 1
    del tool
    gc.collect()
    server.wait_until_gone()


def test_a_connection_collected_after_a_shutdown_does_not_keep_later_sessions_open(stdio_server):
    server = stdio_server()
    connection = MCPConnection(server.info())
    connection.open()
    AsyncExecutor.get_instance().shutdown()
    del connection
    gc.collect()
    with MCPConnection(server.info()) as later:
        assert later.status().users == 1
    server.wait_until_gone()


def test_users_may_be_closed_or_garbage_collected_in_the_thread_of_the_executor(stdio_server):
    server = stdio_server()
    users = [MCPTool("add", server.info()), MCPTool("add", server.info(), share=False)]
    users[0].warm_up()
    users[1].warm_up()

    async def forget() -> None:
        users.pop().close()
        users.clear()
        gc.collect()

    AsyncExecutor.get_instance().run(forget(), timeout=LIMIT)
    server.wait_until_gone()


def test_a_failed_connect_or_call_keeps_no_object_of_its_caller_alive():
    def fail(use: Callable[[StdioServerInfo], object]) -> weakref.ref[Any]:
        held = {"something in a local variable"}
        with pytest.raises((MCPConnectionError, MCPInvocationError)):
            use(StdioServerInfo("no-such-command"))
        return weakref.ref(held)

    held = [
        fail(lambda info: asyncio.run(MCPTool("x", info).ainvoke())),
        fail(lambda info: warm_up_toolsets([MCPToolset(info), MCPToolset(info)])),
        fail(lambda _: MCPConnection(COUNTER).call_tool("no_such_tool")),
    ]
    wait_until(lambda: gc.collect() >= 0 and not any(each() for each in held), "the end of the callers' frames")


def test_calls_from_50_threads_and_three_event_loops_each_get_their_own_result(stdio_server):
    async def call_all(loop: int) -> None:
        names = [f"call {loop}.{number}" for number in range(20)]
        results = await asyncio.gather(*(connection.call_tool_async("echo", {"text": name}) for name in names))
        assert [text(result) for result in results] == names

    names = [f"call {number}" for number in range(50)]
    with MCPConnection(stdio_server().info(), invocation_timeout=LONG) as connection:
        calls = together(lambda name=name: connection.call_tool("echo", {"text": name}) for name in names)
        for future in [in_new_loop(lambda loop=loop: call_all(loop)) for loop in range(3)]:
            future.result(timeout=LIMIT)
        assert [text(call.result(timeout=LIMIT)) for call in calls] == names
        status = connection.status()
        assert (status.sessions, status.calls, status.in_flight) == (1, 110, 0)


async def test_cancelling_an_awaited_call_reaches_the_server_and_does_not_disturb_others(stdio_server):
    server = stdio_server()
    async with MCPTool("sleep", server.info(), invocation_timeout=LONG) as tool:
        other = asyncio.create_task(tool.ainvoke(seconds=1.2))
        cancelled = asyncio.create_task(tool.ainvoke(seconds=LONG))
        await server.wait_for_async("sleep", 2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await server.wait_for_async("sleep-cancelled")
        assert "slept 1.2 s" in await other
    assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
    assert len(server.pids()) == 1


async def test_a_cancelled_warm_up_continues_for_others_and_the_last_cancellation_ends_the_server(stdio_server):
    server = stdio_server("--slow-list", "0.8")

    async def cancel_warm_up(toolset: MCPToolset, listings: int) -> None:
        cancelled = asyncio.create_task(toolset.warm_up_async())
        await server.wait_for_async("@tools/list", listings)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    kept, given_up, last = (MCPToolset(server.info()) for _ in range(3))
    warming = asyncio.create_task(kept.warm_up_async())
    await cancel_warm_up(given_up, 1)
    await warming
    assert len(server.pids()) == 1
    await kept.close_async()
    await given_up.close_async()
    server.wait_until_gone()
    await cancel_warm_up(last, 2)
    server.wait_until_gone()


async def test_context_variables_of_an_asynchronous_caller_are_visible_in_process():
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    server = MCPServer("looking")
    server.add_tool(lambda: name.get("nobody"), name="look")

    async def ask(value: str) -> str:
        name.set(value)
        return text(await connection.call_tool_async("look"))

    async with MCPConnection(InProcessServerInfo(server)) as connection:
        assert await asyncio.gather(ask("ada"), ask("bob")) == ["ada", "bob"]
