# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who shares what: users of equal servers have one process and one session, however many there are and whoever is first.
`with` blocks and calls each use a connection; the last to leave closes it.
"""

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from haystack.utils import Secret
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPInvocationError,
    MCPRegistry,
    MCPSearchableToolset,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    ToolConfig,
)
from tests.support.background import in_loop_of_its_own, in_thread, text, together
from tests.support.kinds import LONG
from tests.support.waiting import LIMIT, wait_until


def test_16_toolsets_of_equal_server_infos_connect_once(stdio_server):
    server = stdio_server()
    toolsets = [MCPToolset(server.info()) for _ in range(16)]
    for future in together([toolset.warm_up for toolset in toolsets]):
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


def test_servers_that_differ_in_anything_are_not_shared(stdio_server, monkeypatch):
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
    A server in process whose tool `wait` runs until it is released.
    """
    started, released = threading.Semaphore(0), threading.Event()
    server = MCPServer("held")

    def wait() -> str:
        started.release()
        released.wait(LIMIT)
        return "done"

    server.add_tool(wait)
    server.add_tool(lambda: "pong", name="ping", description="Answer.")
    yield SimpleNamespace(
        info=InProcessServerInfo(server), wait=lambda: started.acquire(timeout=LIMIT), release=released.set
    )
    released.set()


# What is entered.
USERS = {
    "toolset": lambda toolset: toolset,
    "connection": lambda toolset: toolset.connection,
    "tool": lambda toolset: toolset["wait"],
    "search": lambda toolset: MCPSearchableToolset([toolset]),
}


def state_of(toolset: MCPToolset) -> str:
    return toolset.connection.status().state


@pytest.mark.parametrize("user", USERS)
async def test_the_last_of_several_blocks_closes(held, user):
    toolset = MCPToolset(held.info, tool_names=["wait", "ping"], invocation_timeout=LONG)
    entered = USERS[user](toolset)

    async def work() -> str:
        async with entered:
            return text(await toolset.connection.call_tool_async("wait"))

    async with entered:
        with entered:
            pass
        # One in this loop and one in another.
        mine, other = asyncio.create_task(work()), in_loop_of_its_own(work)
        for _ in range(2):
            assert await asyncio.to_thread(held.wait)
    assert state_of(toolset) == "ready"
    held.release()
    assert (await mine, await asyncio.wrap_future(other)) == ("done", "done")
    wait_until(lambda: state_of(toolset) == "closed", "the end of the session")


def test_a_call_without_a_block_outlives_the_block_of_somebody_else(held):
    toolset = MCPToolset(held.info, invocation_timeout=LONG)
    with toolset:
        calling = in_thread(toolset["wait"].call)
        assert held.wait()
    assert state_of(toolset) == "ready"
    held.release()
    assert calling.result(LIMIT).text == "done"
    wait_until(lambda: state_of(toolset) == "closed", "the end of the session")
    # What is used without a block stays open.
    assert toolset["ping"].call().text == "pong"
    assert state_of(toolset) == "ready"
    toolset.close()


def test_blocks_of_a_registry_and_of_its_aliases_hold_each_others_connections(held):
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


def test_a_close_by_hand_closes_for_all(held):
    toolset = MCPToolset(held.info, invocation_timeout=LONG)
    with toolset, toolset:
        calling = in_thread(toolset["wait"].call)
        assert held.wait()
        toolset.close()
        with pytest.raises(MCPInvocationError, match="closed before the answer came"):
            calling.result(LIMIT)
        assert state_of(toolset) == "closed"
        # What is used after that in a block is closed at its end.
        assert toolset["ping"].call().text == "pong"
    assert state_of(toolset) == "closed"


def test_a_block_that_fails_to_open_leaves_the_blocks_of_others_open(held):
    with MCPConnection(held.info) as connection:
        tool = MCPTool("absent", held.info)
        with pytest.raises(MCPToolNotFoundError), tool:
            pass
        assert connection.is_ready
        assert connection.status().users == 1
