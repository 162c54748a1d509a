# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that is there and does not answer, over every transport: nothing waits longer than it was told to, other calls
go on, and no process is left.
"""

import asyncio

import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTimeoutError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from haystack_integrations.tools.mcp.transports.stdio import process
from tests.support.background import in_thread, text, together
from tests.support.calls import outcome
from tests.support.kinds import KINDS, LONG, QUICKLY, every_kind, every_way, kinds
from tests.support.processes import StdioServer
from tests.support.waiting import LIMIT, wait_until


def reach(server: StdioServer) -> StdioServerInfo:
    return StdioServerInfo(server.command, server.args, **QUICKLY)


@every_kind
def test_a_call_that_times_out_is_cancelled_on_the_server_and_others_go_on(peer, kind):
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
        if kind.cancels:
            server.wait_for("sleep-cancelled")
            assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
        assert text(other.result(timeout=LIMIT)) == "slept 1.5 s"
        assert patient.status().sessions == 1
    assert len(server.log.pids()) == 1


@every_way
def test_a_call_of_a_frozen_server_times_out_and_works_when_the_server_goes_on(proxied_peer, kind):
    server = proxied_peer(kind)
    with (
        MCPConnection(server.reach(), invocation_timeout=0.5) as connection,
        MCPConnection(server.reach(), invocation_timeout=LONG) as patient,
    ):
        server.freeze()
        waiting = in_thread(patient.call_tool, "add", {"a": 1, "b": 2})
        with pytest.raises(MCPTimeoutError, match=r"timed out after 0\.5 seconds") as failure:
            connection.call_tool("add", {"a": 1, "b": 1})
        assert isinstance(failure.value, MCPInvocationError)
        assert isinstance(failure.value, TimeoutError)
        server.thaw()
        assert text(waiting.result(timeout=LIMIT)) == "3"
        assert text(patient.call_tool("add", {"a": 2, "b": 2})) == "4"
        if not kind.is_http:
            assert connection.status().sessions == 1


@every_way
def test_closing_does_not_wait_for_a_frozen_server_for_long(peer, kind):
    server = peer(kind, "--stubborn")
    connection = MCPConnection(server.reach(), invocation_timeout=LONG)
    connection.open()
    call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
    server.wait_for("sleep")
    server.freeze()
    connection.close()
    error = call.exception(timeout=LIMIT)
    assert isinstance(error, MCPInvocationError)
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
    if not kind.is_http:
        assert "counter server: starting" in str(failure.value)
    connection.close()


def test_connecting_in_a_block_to_a_server_that_ignores_sigterm_does_not_wait_for_its_end(stdio_server, monkeypatch):
    monkeypatch.setattr(process, "_GRACE", LONG)

    def connect(user, server):
        with pytest.raises(MCPConnectionTimeoutError, match="raise `connection_timeout`"):
            with user(reach(server)):
                pass

    limit = {"connection_timeout": 1}
    users = [
        lambda info: MCPConnection(info, **limit),
        *(lambda info, eager=eager: MCPToolset(info, **limit, eager_connect=eager) for eager in (True, False)),
        *(lambda info, eager=eager: MCPTool("add", info, **limit, eager_connect=eager) for eager in (True, False)),
    ]
    # Each has a server of its own, and all wait at the same time.
    servers = [stdio_server("--hang-at-start", "--stubborn") for _ in users]
    waiting = together(
        lambda user=user, server=server: connect(user, server) for user, server in zip(users, servers, strict=True)
    )
    for each in waiting:
        each.result(timeout=LIMIT)
    for server in servers:
        server.kill()


def test_connecting_to_a_server_that_never_answers_leaves_no_process_if_nobody_closes(stdio_server):
    server = stdio_server("--hang-at-start")
    tool = MCPTool("add", reach(server), connection_timeout=1)
    with pytest.raises(MCPConnectionTimeoutError):
        tool.warm_up()
    server.wait_until_gone()


def test_connecting_to_a_server_that_never_answers_does_not_disturb_other_servers(http_server, shared_http_server):
    kind = KINDS["2026"]
    hung, well = http_server("streamable-http", "--hang-at-start"), shared_http_server()
    connection = MCPConnection(kind.reach(hung.url), connection_timeout=LONG)
    opening = in_thread(connection.open)
    with MCPConnection(kind.reach(well.url), connection_timeout=LIMIT) as other:
        assert text(other.call_tool("add", {"a": 1, "b": 1})) == "2"
    assert not opening.done()
    connection.close()
    assert isinstance(opening.exception(timeout=LIMIT), MCPConnectionError)


def test_a_server_that_does_not_read_leaves_nothing_behind_of_calls_that_timed_out(stdio_server):
    server = stdio_server()
    with MCPConnection(reach(server), invocation_timeout=0.5) as connection:
        loop = AsyncExecutor.get_instance().get_loop()
        server.freeze()
        before = len(asyncio.all_tasks(loop))
        calls = together([lambda: connection.call_tool("echo", {"text": "x" * 100_000})] * 20)
        assert all(isinstance(call.exception(timeout=LIMIT), MCPTimeoutError) for call in calls)
        wait_until(lambda: len(asyncio.all_tasks(loop)) <= before, lambda: str(asyncio.all_tasks(loop)))
        server.kill()  # so that closing does not wait for it


@pytest.mark.parametrize("cancellations", ["refuse", "hang"])
@kinds("sessions", "sse")
def test_a_server_that_takes_no_cancellation_harms_no_other_call(refusing_server, kind, cancellations):
    options = ("--transport", kind.transport, "--protocol", "legacy", "--cancellations", cancellations)
    server = refusing_server(*options)
    with (
        MCPConnection(kind.reach(server.url), invocation_timeout=LONG) as patient,
        MCPConnection(kind.reach(server.url), invocation_timeout=0.7) as impatient,
    ):
        other = in_thread(patient.call_tool, "sleep", {"seconds": 1.7})
        hung = together([lambda: impatient.call_tool("sleep", {"seconds": LONG})] * 8)
        assert all(isinstance(call.exception(timeout=LIMIT), MCPTimeoutError) for call in hung)
        server.wait_for("@cancellation")
        assert text(patient.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert text(other.result(timeout=LIMIT)) == "slept 1.7 s"
        assert patient.status().sessions == 1


def test_an_sse_server_that_takes_no_messages_holds_up_no_call_beyond_its_timeout(proxied_peer):
    # The SDK posts messages one after the other, each after the answer to the one before.
    server = proxied_peer(KINDS["sse"])
    with MCPConnection(server.reach(), invocation_timeout=1) as connection:
        server.proxy.hold()
        calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 10)
        errors = [call.exception(timeout=LIMIT) for call in calls]
        assert all(isinstance(error, MCPTimeoutError) for error in errors), errors
        server.proxy.release()


def test_an_sse_server_that_acknowledges_no_message_is_given_up_for_a_new_session(proxied_peer):
    server = proxied_peer(KINDS["sse"])
    with MCPConnection(server.reach(timeout=2), invocation_timeout=LONG) as connection:
        server.proxy.hold()
        call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
        wait_until(lambda: connection.status().state != "ready", "the loss")
        assert "ReadTimeout" in connection.status().last_error
        server.proxy.release()
        # The message that was not acknowledged may be the call, or the one before it.
        assert outcome(call, LIMIT) in ("ran", "may have run")
        assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert connection.status().sessions > 1
