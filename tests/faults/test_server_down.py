# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that is down for a while, over every transport: calls report that the tool did not run, or wait within their
limit and run once when the server is back. The toolset of an optional server is empty until then.
"""

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.server.mcpserver import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
    mcp_toolset,
    warm_up_toolsets,
)
from haystack_integrations.tools.mcp.connection.limits import back_off
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from tests.support.background import in_thread, text, together
from tests.support.calls import outcome
from tests.support.kinds import KINDS, LONG, every_kind, every_streamable_kind, every_way, kinds
from tests.support.waiting import LIMIT, wait_until

PATIENTLY = {"connection_timeout": LONG, "invocation_timeout": LONG}


def waiting_call(server, connection, caplog) -> Future[Any]:
    """
    Take the server down, and start a call that waits until the connection has tried to reach it more than once.
    """
    caplog.set_level(logging.INFO, logger="haystack_integrations.tools.mcp")
    server.go_down()
    if server.kind.notices_the_end:
        wait_until(lambda: connection.status().state == "lost", "the loss")
    call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
    if not server.kind.is_http:
        wait_until(lambda: server.gate.starts > 3, "attempts to start it")
        assert connection.status().state == "connecting"
    elif server.kind.transport == "sse":
        wait_until(lambda: connection.status().state == "connecting", "an attempt")
    else:
        wait_until(lambda: caplog.text.count("sending it again") > 2, lambda: f"attempts in {caplog.text}")
    assert not call.done()
    return call


@every_way
def test_calls_to_a_server_that_is_down_are_tried_max_retries_times_and_did_not_run(peer, kind, caplog):
    server = peer(kind)
    with MCPConnection(server.reach(max_retries=2), invocation_timeout=LONG) as connection:
        server.go_down()
        if kind.is_http:
            # The first request may or may not be lost with a kept-alive connection.
            in_thread(connection.call_tool, "add", {"a": 0, "b": 0}).exception(timeout=LIMIT)
        else:
            wait_until(lambda: connection.status().state == "lost", "the loss")
        caplog.set_level(logging.INFO, logger="haystack_integrations.tools.mcp")
        caplog.clear()
        reason = "" if kind.is_http else "(?s)exit code 9.*down for maintenance.*"
        for _ in range(3):
            with pytest.raises(MCPInvocationError, match=f"{reason}did not run") as failure:
                connection.call_tool("add", {"a": 1, "b": 1})
            assert not isinstance(failure.value, MCPOutcomeUnknownError)
        if kind.is_http:
            assert caplog.text.count("sending it again") == 3 * 2
        else:
            assert server.gate.starts == 1 + 3 * (1 + 2)
            # Only the next call would start it again.
            assert (connection.status().state, connection.status().is_healthy) == ("lost", True)
        server.come_back()
        assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
    assert server.calls() == ["add"]


@every_streamable_kind
def test_a_call_without_a_connection_at_its_deadline_did_not_run(peer, kind):
    is_down = threading.Event()

    class Filtered(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request):
            if is_down.is_set():
                await asyncio.sleep(request.extensions["timeout"]["connect"])
                raise httpx2.ConnectTimeout("nobody answers")
            return await super().handle_async_request(request)

    with MCPConnection(peer(kind).reach(http_transport=Filtered), invocation_timeout=3.0) as connection:
        connection.open()
        is_down.set()
        with pytest.raises(MCPInvocationError, match=r"no connection could be made .* The tool did not run") as failure:
            connection.call_tool("add", {"a": 1, "b": 1})
        assert not isinstance(failure.value, MCPOutcomeUnknownError)
        is_down.clear()
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"


@every_kind
def test_a_call_waits_for_a_server_that_is_down_and_runs_once_when_it_is_back(proxied_peer, caplog, kind):
    server = proxied_peer(kind)
    before = len(server.calls())
    with MCPConnection(server.reach(max_retries=1000), **PATIENTLY) as connection:
        call = waiting_call(server, connection, caplog)
        server.come_back()
        assert text(call.result(timeout=LIMIT)) == "2"
    assert server.calls()[before:] == ["add"]


@kinds("stdio", "sessions", "sse")
def test_closing_ends_the_attempts_of_a_call_that_waits_for_a_server_that_is_down(proxied_peer, caplog, kind):
    server = proxied_peer(kind)
    connection = MCPConnection(server.reach(max_retries=10_000), **PATIENTLY)
    connection.open()
    call = waiting_call(server, connection, caplog)
    connection.close()
    with pytest.raises(MCPInvocationError, match=r"closed.*did not run"):
        call.result(timeout=LIMIT)


def test_a_lost_call_that_could_not_be_repeated_may_have_run(gate):
    with MCPConnection(gate.server.info(max_retries=1), invocation_timeout=LONG) as connection:
        call = in_thread(connection.call_tool, "sleep", {"seconds": LONG}, may_repeat=True)
        gate.server.wait_for("sleep")
        gate.close()
        gate.server.kill()
        with pytest.raises(MCPInvocationError, match=r"(?s)exit code 9.*may have run") as failure:
            call.result(timeout=LIMIT)
    assert "did not run" not in str(failure.value)


def test_calls_that_wait_for_a_server_share_the_attempts_to_start_it(gate):
    with MCPConnection(gate.server.info(max_retries=2)) as connection:
        _take_down(gate, connection)
        calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 10)
        assert {outcome(call, LIMIT) for call in calls} == {"did not run"}
        # Fewer than 30, although a late call may begin another round of attempts.
        assert gate.starts <= 1 + 3 * 3


def test_a_call_waits_for_a_server_no_longer_than_the_connection_timeout_and_the_attempts_end(gate):
    with MCPConnection(gate.server.info(max_retries=1000), connection_timeout=1.5) as connection:
        _take_down(gate, connection)
        with pytest.raises(MCPInvocationError, match=r"(?s)timed out after.*exit code 9.*did not run"):
            connection.call_tool("add", {"a": 1, "b": 1})
        wait_until(lambda: connection.status().state == "lost", "the end of the attempts")


def _take_down(gate, connection):
    gate.close()
    gate.server.kill()
    wait_until(lambda: connection.status().state == "lost", "the loss")


COUNTER = InProcessServerInfo("tests.servers.inprocess:server")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_toolset, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(mcp_toolset, "_MAX_PAUSE", 0.2)


@every_way
def test_a_server_that_is_down_leaves_its_toolset_empty_until_it_is_back(peer, kind, caplog):
    server = peer(kind)
    server.go_down()
    with MCPToolset(server.reach(), tool_names=["add"], required=False) as toolset:
        toolset.warm_up()
        assert list(toolset) == [] and toolset
        assert repr(toolset).endswith("tools=[], not reachable)")
        assert "Failed to connect" in (toolset.connection.status().last_error or "")
        [warning] = [record for record in caplog.records if "is left out until it can be reached" in record.message]
        assert warning.levelno == logging.WARNING
        with pytest.raises(KeyError, match="its server cannot be reached"):
            toolset["add"]
        server.come_back()
        wait_until(lambda: len(toolset) == 1, "the tools")
        assert "8" in toolset["add"].invoke(a=5, b=3)
        assert repr(toolset).endswith("tools=['add'])")


def test_the_tools_of_a_lost_server_that_does_not_come_back_are_removed(peer):
    server = peer(KINDS["stdio"])
    with MCPToolset(server.reach(max_retries=0), required=False) as toolset, MCPToolset(COUNTER) as other:
        assert "add" in toolset
        server.go_down()
        wait_until(lambda: not toolset.connection.is_ready, "the loss")
        warm_up_toolsets([toolset, other])
        assert list(toolset) == []
        assert "add" in other
        server.come_back()
        toolset.warm_up()
        assert "add" in toolset


def test_attempts_continue_for_days():
    assert 30 <= back_off(10_000, base=1.0, max_pause=60.0) <= 60


def test_closing_ends_the_attempts_to_reach_a_server(peer):
    server = peer(KINDS["stdio"])
    server.go_down()
    with pytest.raises(MCPConnectionError, match="exit code 9"):
        MCPToolset(server.reach()).warm_up()
    toolset = MCPToolset(server.reach(), tool_names=["add"], required=False)
    for closed in (toolset, toolset["add"]):
        toolset.warm_up()
        starts = server.gate.starts
        wait_until(lambda starts=starts: server.gate.starts > starts, "an attempt in the background")
        closed.close()
        assert not toolset._retry.is_running
        assert toolset.connection.status().state == "closed"
    server.come_back()
    # If the first toolset is not garbage-collected yet, this one shares its running attempt.
    toolset.warm_up()
    wait_until(lambda: "add" in toolset, "the tool")
    toolset.close()


def test_a_warm_up_that_is_interrupted_by_a_close_does_not_start_attempts(stdio_server):
    server = stdio_server("--hang-at-start")
    toolset = MCPToolset(server.info(), required=False, connection_timeout=LONG)
    warming = in_thread(toolset.warm_up)
    server.wait_for("@start")
    toolset.close()
    warming.result(LIMIT)
    assert not toolset._retry.is_running
    assert toolset.connection.status().state == "closed"


def test_two_threads_that_start_attempts_at_once_share_one(monkeypatch):
    begun: list[Any] = []

    def begin(factory: Any) -> tuple[Future[Any], None]:
        begun.append(factory)
        if len(begun) == 1:
            with contextlib.suppress(TimeoutError):
                in_thread(retry.start).result(0.3)
        return Future(), None

    monkeypatch.setattr(AsyncExecutor.get_instance(), "run_background", begin)
    toolset = MCPToolset(COUNTER, required=False)
    retry = toolset._retry
    retry.start()
    assert len(begun) == 1
    retry.stop()


def test_a_server_that_does_not_answer_delays_only_the_first_warm_up():
    with MCPToolset(StdioServerInfo("sleep", ["600"]), required=False, connection_timeout=0.3) as toolset:
        toolset.connection.connection_timeout = 600
        in_thread(toolset.warm_up).result(LIMIT)
        assert list(toolset) == []


def test_the_end_of_a_block_also_ends_an_attempt_in_the_background():
    begun, ended = [], []

    @asynccontextmanager
    async def hang(server):
        begun.append(server)
        try:
            await asyncio.sleep(10 * LIMIT)
            yield
        finally:
            ended.append(server)

    info = InProcessServerInfo(MCPServer("hanging", lifespan=hang))
    with MCPToolset(info, required=False, connection_timeout=0.3) as toolset:
        toolset.connection.connection_timeout = 10 * LIMIT
        wait_until(lambda: len(begun) == 2, "the first attempt in the background")
    wait_until(lambda: len(ended) == 2, "the end of that attempt")


def test_a_tool_that_a_reachable_optional_server_does_not_have_is_still_an_error():
    with pytest.raises(MCPToolNotFoundError, match="Did you mean 'add'"):
        MCPToolset(COUNTER, tool_names=["ad"], required=False, eager_connect=True)


def test_the_option_required_is_stored():
    toolset = MCPToolset(COUNTER, required=False)
    assert MCPToolset.from_dict(toolset.to_dict()).required is False
    assert "required" not in MCPToolset(COUNTER).to_dict()["data"]
    with pytest.raises(ValueError, match="`required` must be a valid boolean"):
        MCPToolset(COUNTER, required="no")
