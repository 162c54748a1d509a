# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that is killed, over every transport: the next call reaches the next one, a call that was under way fails at
once, and nothing runs twice.
"""

import psutil
import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
)
from tests.support.background import in_thread, text, together
from tests.support.calls import assert_told_the_truth, outcome
from tests.support.kinds import LONG, QUICKLY, every_kind, every_way, kinds
from tests.support.waiting import LIMIT, wait_until


@every_kind
def test_a_call_after_a_server_was_killed_reaches_the_next_one(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach()) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        server.restart()
        assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        if not kind.is_http:
            assert connection.status().sessions == 2
            assert len(server.gate.server.alive()) == 1
    assert server.calls() == ["add", "add"]


@kinds("sessions")
def test_calls_after_a_server_was_killed_share_one_new_session(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach()) as connection:
        server.restart()
        calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 10)
        assert [text(call.result(timeout=LIMIT)) for call in calls] == ["2"] * 10
        assert connection.status().sessions == 2
    assert server.log.requests("initialize") == ["initialize"] * 2
    assert server.calls() == ["add"] * 10


@kinds("stdio", "sse")
def test_a_server_that_is_killed_between_calls_is_missed_without_a_call(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach()) as connection:
        server.kill()
        wait_until(lambda: connection.status().state == "lost", lambda: str(connection.status()))
        assert not connection.is_ready
        wait_until(lambda: connection.status().last_error, "the reason, for which the end of a process is awaited")
        if not kind.is_http:
            assert "killed by signal 9" in connection.status().last_error


@kinds("stdio", "sessions", "sse")
def test_tools_recover_from_killed_servers_and_toolsets_warm_up_again(peer, kind):
    server = peer(kind)
    with MCPTool("add", server.reach()) as tool, MCPToolset(server.reach(), tool_names=["echo"]) as toolset:
        server.restart()
        assert '"2"' in tool.invoke(a=1, b=1)
        server.restart()
        assert "hello" in toolset[0].invoke(text="hello")
        server.restart()
        if kind.notices_the_end:
            wait_until(lambda: toolset.connection.status().state == "lost", "the loss")
        toolset.warm_up()
        assert "hello" in toolset[0].invoke(text="hello")
        assert toolset.connection.status().state == "ready"
    assert server.calls() == ["add", "echo", "echo"]


@every_kind
def test_a_killed_server_fails_the_pending_call_at_once_saying_that_the_tool_may_have_run(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach(), invocation_timeout=LONG) as connection:
        call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
        server.wait_for("sleep")
        server.kill()
        with pytest.raises(MCPInvocationError, match="may have run") as failure:
            call.result(timeout=LIMIT)
        assert not isinstance(failure.value, TimeoutError)
        assert "Failed to invoke Tool `sleep`" in str(failure.value)
        if not kind.is_http:
            assert "killed by signal 9" in str(failure.value)
        server.revive()
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert server.calls() == ["sleep", "add"]


def test_a_call_that_may_be_repeated_is_sent_as_often_as_max_retries_says(stdio_server):
    server = stdio_server()
    with MCPConnection(server.info(), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPInvocationError, match="may have run"):
            connection.call_tool("die", may_repeat=True)
    assert server.calls() == ["die"] * 4


def test_a_killed_server_whose_child_holds_the_pipes_fails_the_pending_call_at_once(stdio_server, tmp_path):
    server = stdio_server()
    note = tmp_path / "child"
    # As the helper processes of servers do that were started through a shell, npx or uvx.
    script = 'sleep 1000 & echo $! > "$1"; shift; exec "$@"'
    info = StdioServerInfo("/bin/sh", ["-c", script, "sh", str(note), server.command, *server.args], **QUICKLY)
    with MCPConnection(info, invocation_timeout=LONG) as connection:
        call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
        server.wait_for("sleep")
        child = psutil.Process(int(note.read_text()))
        server.kill()
        try:
            with pytest.raises(MCPInvocationError, match="may have run"):
                call.result(timeout=LIMIT)
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        finally:
            child.kill()
        second = psutil.Process(int(note.read_text()))
    if second != child:
        wait_until(lambda: not second.is_running() or second.status() == psutil.STATUS_ZOMBIE, "the child's end")
    assert server.calls() == ["sleep", "add"]


@every_way
def test_a_server_killed_under_50_calls_runs_none_twice_and_every_error_says_whether_it_may_have_run(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach(max_retries=50), invocation_timeout=LONG) as connection:
        numbers = [round(1 + number / 1000, 3) for number in range(50)]
        calls = together(lambda number=number: connection.call_tool("sleep", {"seconds": number}) for number in numbers)
        server.wait_for("sleep", 20)
        server.restart()
        outcomes = {number: outcome(call, 60) for number, call in zip(numbers, calls, strict=True)}
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert "may have run" in outcomes.values()
    assert_told_the_truth(outcomes, server.log, "sleep", "seconds")
