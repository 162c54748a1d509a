# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that accepts requests but does not answer, and closing during calls, over every transport: no wait exceeds its
limit, every waiting call gets an error, other calls continue, and no process is left.
"""

import time
from functools import partial

import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError, MCPTimeoutError
from tests.support.background import in_thread, text, together
from tests.support.calls import outcome
from tests.support.kinds import KINDS, LONG, every_kind, every_way
from tests.support.raw import raw_server
from tests.support.waiting import LIMIT, wait_until


@every_kind
def test_a_call_that_times_out_is_cancelled_on_the_server_and_others_continue(peer, kind):
    server = peer(kind)
    with (
        MCPConnection(server.reach(), invocation_timeout=LONG) as patient,
        MCPConnection(server.reach(), invocation_timeout=1) as impatient,
    ):
        other = in_thread(patient.call_tool, "sleep", {"seconds": 1.5})
        server.wait_for("sleep")
        with pytest.raises(MCPTimeoutError, match="timed out after 1 seconds") as failure:
            impatient.call_tool("sleep", {"seconds": LONG})
        assert isinstance(failure.value, MCPOutcomeUnknownError)
        assert isinstance(failure.value, TimeoutError)
        assert failure.value.__cause__ is not failure.value
        server.wait_for("sleep-cancelled")
        assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
        assert text(other.result(timeout=LIMIT)) == "slept 1.5 s"
        assert patient.status().sessions == 1
    assert len(server.log.pids()) == 1


@every_way
def test_a_call_of_a_frozen_server_times_out_and_the_next_one_works_when_the_server_continues(proxied_peer, kind):
    server = proxied_peer(kind)
    with (
        MCPConnection(server.reach(), invocation_timeout=0.5) as connection,
        MCPConnection(server.reach(), invocation_timeout=LONG) as patient,
    ):
        server.freeze()
        waiting = in_thread(patient.call_tool, "add", {"a": 1, "b": 2})
        with pytest.raises(MCPTimeoutError, match=r"timed out after 0\.5 seconds"):
            connection.call_tool("add", {"a": 1, "b": 1})
        server.thaw()
        assert text(waiting.result(timeout=LIMIT)) == "3"
        assert text(patient.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert kind.is_http or connection.status().sessions == 1


@every_kind
def test_an_answer_that_came_while_this_process_was_stopped_counts_although_the_deadline_has_passed(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach(), invocation_timeout=1) as connection:
        call = in_thread(connection.call_tool, "sleep", {"seconds": 0.2})
        server.wait_for("sleep")
        AsyncExecutor.get_instance().post(partial(time.sleep, 3))
        assert text(call.result(timeout=LIMIT)) == "slept 0.2 s"
        assert connection.status().sessions == 1


@every_kind
def test_closing_fails_the_calls_in_flight_promptly_even_if_the_server_is_frozen(peer, kind):
    server = peer(kind, "--stubborn")
    connection = MCPConnection(server.reach(), invocation_timeout=LONG)
    connection.open()
    calls = together([lambda: connection.call_tool("sleep", {"seconds": LONG})] * 5)
    server.wait_for("sleep", 5)
    server.freeze()
    connection.close()
    for call in calls:
        with pytest.raises(MCPInvocationError, match=r"closed(.|\n)*may have run"):
            call.result(timeout=LIMIT)
    server.wait_until_gone()
    if kind.is_http:
        server.thaw()


@every_way
def test_connecting_to_a_server_that_never_answers_fails_within_the_timeout_and_leaves_no_process(peer, kind):
    server = peer(kind, "--hang-at-start")
    connection = MCPConnection(server.reach(), connection_timeout=1.5)
    with pytest.raises(MCPConnectionTimeoutError, match=r"timed out after 1\.5 seconds") as failure:
        connection.open()
    assert isinstance(failure.value, MCPConnectionError)
    assert isinstance(failure.value, TimeoutError)
    server.wait_until_gone()
    assert connection.status().state == "idle"
    assert ("nothing came from its host" if kind.is_http else "counter server: starting") in str(failure.value)
    connection.close()


def test_a_timeout_while_the_server_lists_its_tools_says_so():
    with pytest.raises(MCPConnectionTimeoutError, match=r"session, but not listed its tools \(it wrote nothing to"):
        MCPConnection(raw_server("stdio", {"tools/list": "silence"}), connection_timeout=3).open()


def test_an_sse_session_without_acknowledgements_is_replaced_by_a_new_session(proxied_peer):
    server = proxied_peer(KINDS["sse"])
    with MCPConnection(server.reach(timeout=2), invocation_timeout=LONG) as connection:
        server.proxy.hold()
        call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
        wait_until(lambda: connection.status().state != "ready", "the loss")
        assert "ReadTimeout" in connection.status().last_error
        server.proxy.release()
        # The unacknowledged message may be the call or the message before it.
        assert outcome(call, LIMIT) in ("ran", "may have run")
        assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert connection.status().sessions > 1


@every_way
def test_closing_while_connecting_fails_the_connect_promptly_and_leaves_no_process(proxied_peer, kind):
    server = proxied_peer(kind, "--hang-at-start")
    connection = MCPConnection(server.reach(), connection_timeout=LONG)
    opening = in_thread(connection.open)
    if kind.is_http:
        wait_until(lambda: server.proxy.sent, "the first request")
    else:
        server.wait_for("@start")
    connection.close()
    error = opening.exception(timeout=LIMIT)
    assert isinstance(error, MCPConnectionError)
    assert "closed" in str(error)
    server.wait_until_gone()
