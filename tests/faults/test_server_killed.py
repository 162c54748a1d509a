# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server is killed, or the connection to it is cut: the next call reaches it again, a running call fails at once, and
nothing runs twice.
"""

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError, MCPToolset
from tests.support.background import in_thread, text, together
from tests.support.calls import assert_outcomes_match_the_log, outcome
from tests.support.kinds import LONG, every_kind, every_way, kinds
from tests.support.waiting import LIMIT, wait_until


@every_kind
def test_calls_after_a_kill_reach_the_restarted_server_in_one_new_session(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach()) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        server.restart()
        calls = together([lambda: connection.call_tool("add", {"a": 2, "b": 2})] * 10)
        assert [text(call.result(timeout=LIMIT)) for call in calls] == ["4"] * 10
        assert connection.status().sessions <= 2
        assert kind.is_http or len(server.gate.server.alive()) == 1
    assert server.calls() == ["add"] * 11


@kinds("stdio", "sse")
def test_a_kill_between_calls_is_noticed_without_a_call_and_a_warm_up_reconnects(peer, kind):
    server = peer(kind)
    with MCPToolset(server.reach()) as toolset:
        server.kill()
        status = toolset.connection.status
        wait_until(lambda: status().state == "lost", lambda: str(status()))
        assert not toolset.connection.is_ready
        wait_until(lambda: status().last_error, "the reason, for which the end of a process is awaited")
        assert kind.is_http or "killed by signal 9" in status().last_error
        server.revive()
        toolset.warm_up()
        assert status().state == "ready"
        assert "hello" in toolset["echo"].invoke(text="hello")


@kinds("stdio", "2026", "2026 json", "sessions", "sse")
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


def test_a_call_that_may_be_repeated_is_repeated_max_retries_times(stdio_server):
    server = stdio_server()
    with MCPConnection(server.info(), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPInvocationError, match="may have run"):
            connection.call_tool("die", may_repeat=True)
    assert server.calls() == ["die"] * 4


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
    assert_outcomes_match_the_log(outcomes, server.log, "sleep", "seconds")


@pytest.mark.parametrize("when", ["before", "forwarded"])
@kinds("2026", "2026 json", "sessions", "sse")
def test_a_cut_connection_fails_the_pending_call_at_once_and_it_is_not_repeated(proxied_peer, kind, when):
    server = proxied_peer(kind)
    before = len(server.calls())
    with MCPConnection(server.reach(), invocation_timeout=LONG) as connection:
        # The client cannot know whether the call reached the server.
        trap = server.proxy.cut_when(b'"tools/call"', when=when)
        with pytest.raises(MCPInvocationError, match="may have run"):
            connection.call_tool("echo", {"text": "once"})
        assert trap.sprung.is_set()
        if when == "forwarded":
            wait_until(lambda: len(server.calls()) > before, "the execution")
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        if kind.transport == "streamable-http":  # a cut between calls does not end its session
            sessions = connection.status().sessions
            server.proxy.cut()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
            assert connection.status().sessions == sessions
    expected = ["add", "add"] if kind.transport == "streamable-http" else ["add"]
    assert server.calls()[before:] == (["echo", *expected] if when == "forwarded" else expected)
