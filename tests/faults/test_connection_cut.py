# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A connection over HTTP that is cut while the server lives on: what was sent may have run, and is not sent again.
"""

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError
from tests.support.background import in_thread, text, together
from tests.support.calls import assert_told_the_truth, outcome
from tests.support.kinds import KINDS, LONG, every_http_kind, every_http_transport, every_streamable_kind
from tests.support.waiting import LIMIT, wait_until


@every_http_kind
def test_a_cut_connection_fails_the_pending_call_at_once_saying_that_the_tool_may_have_run(proxied_peer, kind):
    server = proxied_peer(kind)
    before = len(server.calls())
    with MCPConnection(server.reach(), invocation_timeout=LONG) as connection:
        trap = server.proxy.cut_when(b'"tools/call"')
        with pytest.raises(MCPInvocationError, match="may have run"):
            connection.call_tool("echo", {"text": "once"})
        assert trap.sprung.is_set()
        wait_until(lambda: len(server.calls()) > before, "the execution")
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert server.calls()[before:] == ["echo", "add"]


@every_http_kind
def test_a_call_whose_connection_was_cut_before_it_got_through_is_not_repeated_either(proxied_peer, kind):
    # From here nobody can tell whether the server got it.
    server = proxied_peer(kind)
    before = len(server.calls())
    with MCPConnection(server.reach(), invocation_timeout=LONG) as connection:
        server.proxy.cut_when(b'"tools/call"', when="before")
        with pytest.raises(MCPInvocationError, match="may have run"):
            connection.call_tool("echo", {"text": "never"})
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert server.calls()[before:] == ["add"]


@every_http_transport
def test_connections_cut_under_50_calls_run_none_twice(http_server, cutting_proxy, kind):
    server = http_server(kind.transport, *kind.options)
    proxy = cutting_proxy(server.url)
    with MCPConnection(kind.reach(proxy.url, max_retries=20), invocation_timeout=LONG) as connection:
        numbers = [round(0.5 + number / 1000, 3) for number in range(50)]
        calls = together(lambda number=number: connection.call_tool("sleep", {"seconds": number}) for number in numbers)
        server.wait_for("sleep", 25)
        assert proxy.cut() > (1 if kind.transport == "sse" else 10)
        outcomes = {number: outcome(call, 60) for number, call in zip(numbers, calls, strict=True)}
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert "may have run" in outcomes.values()
    assert_told_the_truth(outcomes, server.log, "sleep", "seconds")


@every_streamable_kind
def test_a_streamable_http_connection_cut_between_calls_is_not_missed(proxied_peer, kind):
    server = proxied_peer(kind)
    before = len(server.calls())
    with MCPConnection(server.reach()) as connection:
        connection.call_tool("add", {"a": 1, "b": 2})
        server.proxy.cut()
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert connection.status().sessions == 1
    assert server.calls()[before:] == ["add", "add"]


def test_an_event_stream_of_sse_cut_between_calls_is_missed_and_the_next_call_opens_a_new_session(proxied_peer):
    server = proxied_peer(KINDS["sse"])
    before = len(server.calls())
    with MCPConnection(server.reach()) as connection:
        server.proxy.cut()
        wait_until(lambda: connection.status().state == "lost", lambda: str(connection.status()))
        assert "cut" in connection.status().last_error
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert connection.status().sessions == 2
    assert server.calls()[before:] == ["add"]


@every_streamable_kind
def test_a_cut_connection_leaves_calls_on_other_connections_alone(shared_http_server, cutting_proxy, kind):
    server = shared_http_server(kind.transport, *kind.options)
    through, past = cutting_proxy(server.url), server.url
    sleeps = len(server.calls("sleep"))
    with (
        MCPConnection(kind.reach(past), invocation_timeout=LONG) as direct,
        MCPConnection(kind.reach(through.url), invocation_timeout=LONG) as cut,
    ):
        other = in_thread(direct.call_tool, "sleep", {"seconds": 0.7})
        server.wait_for("sleep", sleeps + 1)
        through.cut_when(b'"tools/call"')
        with pytest.raises(MCPInvocationError, match="may have run"):
            cut.call_tool("echo", {"text": "once"})
        assert text(other.result(timeout=LIMIT)) == "slept 0.7 s"
