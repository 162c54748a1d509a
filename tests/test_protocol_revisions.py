# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which revision of the protocol is spoken with which server, and how a session begins.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTimeoutError,
    SSEServerInfo,
    StdioServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.processes import SERVERS, CallLog, StdioServer, is_alive, python_script
from tests.support.waiting import LIMIT, wait_until

# No test waits for this.
LONG = 90.0

NEWEST = "2026-07-28"
NEWEST_WITH_HANDSHAKE = "2025-11-25"

# The specification's code for an unknown revision; the JSON-RPC codes for a method, a request and parameters that are
# not known.
refusals = pytest.mark.parametrize("code", [-32022, -32601, -32600, -32602])


def reach(server: StdioServer) -> StdioServerInfo:
    return StdioServerInfo(server.command, server.args, server.env, base_delay=0.05, max_delay=0.2)


@pytest.fixture
def picky_server(tmp_path: Path) -> Callable[..., StdioServer]:
    def describe(*options: str) -> StdioServer:
        log = CallLog(tmp_path / "picky.txt")
        command, *args = python_script(SERVERS / "picky_server.py", "--calls-file", str(log.path), *options)
        return StdioServer(command, args, log)

    return describe


class TestServerOfBothErasIsGreetedWithTheHandshake:
    def test_over_stdio(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            assert connection.status().protocol_version == NEWEST_WITH_HANDSHAKE
        assert server.requests()[0] == "initialize"
        assert server.requests("server/discover") == []

    def test_over_sse(self, http_server):
        server = http_server("sse")
        with MCPConnection(SSEServerInfo(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            assert connection.status().protocol_version == NEWEST_WITH_HANDSHAKE
        assert server.requests("server/discover") == []


class TestServerThatOnlyKnowsTheHandshake:
    @pytest.mark.parametrize("at_discover", ["exit", "silence"])
    def test_is_asked_nothing_before_it(self, picky_server, at_discover):
        server = picky_server("--discover", at_discover)
        with MCPConnection(reach(server), connection_timeout=LONG) as connection:
            with Stopwatch() as watch:
                assert text(connection.call_tool("hello")) == "hello"
            assert watch.seconds < AT_ONCE
            assert connection.status().protocol_version == "2025-06-18"
        assert server.requests()[0] == "initialize"
        assert len(server.pids()) == 1


class TestServerThatRefusesTheHandshake:
    @refusals
    def test_is_asked_for_its_revisions(self, picky_server, code):
        server = picky_server("--initialize", str(code))
        with MCPConnection(reach(server)) as connection:
            assert text(connection.call_tool("hello")) == "hello"
            assert connection.status().protocol_version == NEWEST
            refused, spoken_with = server.pids()
            assert not is_alive(refused)
            assert connection.status().sessions == 1
        assert not is_alive(spoken_with)
        assert server.requests()[:2] == ["initialize", "server/discover"]
        assert server.calls() == ["hello"]

    def test_for_another_reason_is_not_asked_for_them(self, picky_server):
        server = picky_server("--initialize", "-32000")
        with pytest.raises(MCPConnectionError, match="not like this"), MCPConnection(reach(server)):
            pass
        assert server.requests() == ["initialize"]

    def test_and_ends_at_the_question_is_an_error_and_leaves_nothing(self, picky_server):
        server = picky_server("--initialize", "-32601", "--discover", "exit")
        with pytest.raises(MCPConnectionError, match="ended with exit code 1"), MCPConnection(reach(server)):
            pass
        assert len(server.pids()) == 2
        wait_until(lambda: not any(map(is_alive, server.pids())), "the end of both")

    def test_and_is_silent_then_is_a_timeout_and_leaves_nothing(self, picky_server):
        server = picky_server("--initialize", "-32601", "--discover", "silence")
        with pytest.raises(MCPConnectionTimeoutError), MCPConnection(reach(server), connection_timeout=2):
            pass
        wait_until(lambda: not any(map(is_alive, server.pids())), "the end of both")

    def test_over_sse_is_asked_for_its_revisions(self, http_server):
        server = http_server("sse", "--protocol", "modern")
        with MCPConnection(SSEServerInfo(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            assert connection.status().protocol_version == NEWEST


class TestNewestRevisionOverStdio:
    @pytest.fixture
    def server(self, stdio_server: Callable[..., StdioServer]) -> StdioServer:
        return stdio_server("--protocol", "modern")

    def test_runs_calls_side_by_side(self, server):
        with MCPConnection(reach(server)) as connection:
            assert connection.status().protocol_version == NEWEST
            calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 20)
            assert [text(call.result(timeout=LIMIT)) for call in calls] == ["2"] * 20
        assert server.calls() == ["add"] * 20

    def test_cancels_a_call_on_the_server(self, server):
        with MCPConnection(reach(server), invocation_timeout=1) as connection:
            with pytest.raises(MCPTimeoutError):
                connection.call_tool("sleep", {"seconds": LONG})
            server.wait_for("sleep-cancelled")
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            assert connection.status().sessions == 1

    def test_recovers_from_the_end_of_the_server(self, server):
        with MCPConnection(reach(server), invocation_timeout=LONG) as connection:
            call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
            server.wait_for("sleep")
            server.kill()
            with pytest.raises(MCPInvocationError, match="may have run"):
                call.result(timeout=LIMIT)
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            assert connection.status().protocol_version == NEWEST
        assert server.calls() == ["sleep", "add"]
