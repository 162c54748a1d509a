# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who shares what: users of equal servers have one process and one session, however many there are and whoever is first.
"""

import dataclasses
import gc

import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
)
from tests.support.background import in_loop_of_its_own, in_thread, text, together
from tests.support.kinds import LONG
from tests.support.processes import StdioServer
from tests.support.waiting import LIMIT, wait_until


def reach(server: StdioServer) -> StdioServerInfo:
    """A new server info each time, equal to the others."""
    env = dict(server.env) if server.env else server.env
    return StdioServerInfo(server.command, list(server.args), env, base_delay=0.05, max_delay=0.2)


def test_16_toolsets_of_equal_server_infos_connect_once(stdio_server):
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


def test_16_threads_whose_server_does_not_start_share_one_attempt_and_its_error(tmp_path):
    starts = tmp_path / "starts"
    script = f"echo start >> {starts}; sleep 1; echo no luck >&2; exit 4"
    toolset = MCPToolset(StdioServerInfo("/bin/sh", ["-c", script]), connection_timeout=LONG)
    errors = [future.exception(timeout=LIMIT) for future in together([toolset.warm_up] * 16)]
    assert all(isinstance(error, MCPConnectionError) and "exit code 4" in str(error) for error in errors), errors
    assert starts.read_text().splitlines() == ["start"]
    toolset.close()


def test_an_impatient_user_leaves_the_connect_to_the_others(stdio_server):
    server = stdio_server("--slow-list", "1.2")
    impatient = MCPConnection(reach(server), connection_timeout=0.5)
    patient = MCPConnection(reach(server), connection_timeout=LONG)
    first, second = in_thread(impatient.open), in_thread(patient.open)
    assert isinstance(first.exception(timeout=LIMIT), TimeoutError)
    assert second.result(timeout=LIMIT)[0] > 0
    assert len(server.pids()) == 1
    impatient.close()
    patient.close()


def test_threads_and_loops_connect_once(stdio_server):
    server = stdio_server()
    toolset = MCPToolset(reach(server))
    futures = [*[in_loop_of_its_own(toolset.warm_up_async) for _ in range(3)], *together([toolset.warm_up] * 5)]
    for future in futures:
        future.result(timeout=LIMIT)
    assert len(server.pids()) == 1
    toolset.close()


def test_20_tools_of_a_server_are_one_process_that_ends_with_the_last_of_them(stdio_server):
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


def test_users_with_share_false_have_a_session_of_their_own(stdio_server):
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


ONE, TWO = Secret.from_env_var("ONE"), Secret.from_env_var("TWO")


@pytest.mark.parametrize(
    ("environments", "values", "processes"),
    [
        ([None, {"KEY": "hello"}, {"KEY": "goodbye"}], ["", "hello", "goodbye"], 3),
        ([{"KEY": ONE}, {"KEY": ONE}, {"KEY": TWO}], ["1", "1", "2"], 2),
    ],
    ids=["texts", "secrets"],
)
def test_servers_that_differ_in_anything_are_not_shared(stdio_server, monkeypatch, environments, values, processes):
    monkeypatch.setenv("ONE", "1")
    monkeypatch.setenv("TWO", "2")
    server = stdio_server()
    connections = [MCPConnection(dataclasses.replace(reach(server), env=env)) for env in environments]
    assert [text(connection.call_tool("env", {"name": "KEY"})) for connection in connections] == values
    for connection in connections:
        connection.close()
    assert len(server.pids()) == processes


def test_in_process_servers_are_shared_by_identity():
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


def test_a_user_that_was_collected_leaves_the_session_to_the_others(stdio_server):
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
