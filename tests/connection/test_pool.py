# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who shares what: users of equal servers have one process and one session, however many there are and whoever is first.
"""

import dataclasses

from haystack.utils import Secret
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPToolset,
    StdioServerInfo,
)
from tests.support.background import text, together
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


def test_users_with_share_false_have_a_session_of_their_own(stdio_server):
    server = stdio_server()
    with (
        MCPConnection(server.info()) as shared,
        MCPConnection(server.info(), share=False) as one,
        MCPConnection(server.info(), share=False) as another,
    ):
        pids = [text(connection.call_tool("pid")) for connection in (shared, one, another)]
        assert len(set(pids)) == 3
        one.close()
        wait_until(lambda: len(server.alive()) == 2, "the end of one")
        assert text(another.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert text(shared.call_tool("pid")) == pids[0]


def test_servers_that_differ_in_anything_are_not_shared(stdio_server, monkeypatch):
    monkeypatch.setenv("ONE", "1")
    one, two = Secret.from_env_var("ONE"), Secret.from_token("2")
    environments = [None, {"KEY": "hello"}, {"KEY": "goodbye"}, {"KEY": one}, {"KEY": one}, {"KEY": two}]
    server = stdio_server()
    connections = [MCPConnection(dataclasses.replace(server.info(), env=env)) for env in environments]
    values = [text(connection.call_tool("env", {"name": "KEY"})) for connection in connections]
    assert values == ["", "hello", "goodbye", "1", "1", "2"]
    for connection in connections:
        connection.close()
    assert len(server.pids()) == 5


def test_in_process_servers_are_shared_by_identity():
    one, other = MCPServer("twin"), MCPServer("twin")
    one.add_tool(lambda: "one", name="who")
    other.add_tool(lambda: "other", name="who")
    with (
        MCPConnection(InProcessServerInfo(one)) as first,
        MCPConnection(InProcessServerInfo(other)) as second,
        MCPConnection(InProcessServerInfo(one)) as third,
    ):
        answers = [text(connection.call_tool("who")) for connection in (first, second, third)]
        assert answers == ["one", "other", "one"]
        assert first.status().users == 2
