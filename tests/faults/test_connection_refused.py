# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What happens over streamable HTTP only: connections of calls that break, sessions that get lost, errors of HTTP.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTimeoutError,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
)
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.kinds import KINDS, LONG, kinds
from tests.support.processes import SERVERS, CallLog, HttpServer, python_script
from tests.support.waiting import LIMIT, wait_until

STREAMABLE = [name for name, kind in KINDS.items() if kind.transport == "streamable-http"]
each_kind = kinds(*STREAMABLE)
with_sessions = kinds(*[name for name in STREAMABLE if "sessions" in name])

reach = KINDS["2026"].reach


@pytest.fixture
def refusing_server(tmp_path: Path) -> Iterator[Callable[..., HttpServer]]:
    """
    Starts servers that refuse: `refusing_server(*options)`, with the options of `tests/servers/refusing_server.py`.
    """
    servers: list[HttpServer] = []

    def start(*options: str) -> HttpServer:
        log = CallLog(tmp_path / "calls.txt")
        command = python_script(SERVERS / "refusing_server.py", "--calls-file", str(log.path), *options)
        servers.append(HttpServer(command, "/sse" if "sse" in options else "/mcp", tmp_path, log))
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def refusing_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], HttpServer]]:
    """
    The same for tests that do not break it, by the protocol's era: `refusing_servers("auto")`.
    """
    servers: dict[str, HttpServer] = {}

    def get(protocol: str) -> HttpServer:
        if protocol not in servers:
            folder = tmp_path_factory.mktemp("refusing")
            log = CallLog(folder / "calls.txt")
            options = ("--calls-file", str(log.path), "--protocol", protocol)
            servers[protocol] = HttpServer(
                python_script(SERVERS / "refusing_server.py", *options), "/mcp", folder, log
            ).start()
        return servers[protocol]

    yield get
    for server in servers.values():
        server.close()


class TestServerKilled:
    @with_sessions
    def test_between_calls_a_new_session_is_opened(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        with MCPConnection(reach(server.url)) as connection:
            server.restart()
            calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 10)
            assert [text(call.result(timeout=LIMIT)) for call in calls] == ["2"] * 10
            assert connection.status().sessions == 2
        assert server.requests("initialize") == ["initialize"] * 2
        assert server.calls() == ["add"] * 10

    def test_between_calls_tools_recover_and_toolsets_warm_up_again(self, http_server):
        server = http_server("streamable-http", "--protocol", "legacy")
        with MCPTool("add", reach(server.url)) as tool, MCPToolset(reach(server.url)) as toolset:
            server.restart()
            assert '"2"' in tool.invoke(a=1, b=1)
            toolset.warm_up()
            echo = next(tool for tool in toolset if tool.name == "echo")
            server.restart()
            assert "hello" in echo.invoke(text="hello")
        assert server.calls() == ["add", "echo"]


class TestConnectionCut:
    @each_kind
    def test_between_calls_is_not_noticed(self, shared_http_server, cutting_proxy, kind):
        server = shared_http_server(kind.transport, *kind.options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url)) as connection:
            connection.call_tool("add", {"a": 1, "b": 2})
            proxy.cut()
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
            assert connection.status().sessions == 1
        assert server.calls()[before:] == ["add", "add"]

    @each_kind
    def test_leaves_calls_on_other_connections_of_the_session_alone(self, shared_http_server, cutting_proxy, kind):
        server = shared_http_server(kind.transport, *kind.options)
        through, past = cutting_proxy(server.url), server.url
        with (
            MCPConnection(reach(past), invocation_timeout=LONG) as direct,
            MCPConnection(reach(through.url), invocation_timeout=LONG) as cut,
        ):
            other = in_thread(direct.call_tool, "sleep", {"seconds": 1.5})
            through.cut_when(b'"tools/call"')
            with pytest.raises(MCPInvocationError, match="may have run"):
                cut.call_tool("echo", {"text": "once"})
            assert text(other.result(timeout=LIMIT)) == "slept 1.5 s"


class TestConnectionRefused:
    @each_kind
    def test_at_first_and_accepted_later_is_tried_again_until_it_runs_once(
        self, shared_http_server, cutting_proxy, caplog, kind
    ):
        server = shared_http_server(kind.transport, *kind.options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        caplog.set_level(logging.INFO, logger="haystack_integrations.tools.mcp")
        with MCPConnection(reach(proxy.url, max_retries=1000), invocation_timeout=LONG) as connection:
            proxy.refuse()
            proxy.cut()
            call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
            wait_until(lambda: caplog.text.count("sending it again") > 2, lambda: f"attempts in {caplog.text}")
            assert not call.done()
            proxy.accept()
            assert text(call.result(timeout=LIMIT)) == "2"
        assert server.calls()[before:] == ["add"]

    @pytest.mark.parametrize(("max_retries", "repetitions"), [(0, 0), (2, 2)])
    def test_is_tried_again_as_often_as_max_retries_says(
        self, shared_http_server, cutting_proxy, caplog, max_retries, repetitions
    ):
        server = shared_http_server()
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        caplog.set_level(logging.INFO, logger="haystack_integrations.tools.mcp")
        with MCPConnection(reach(proxy.url, max_retries=max_retries)) as connection:
            proxy.refuse()
            proxy.cut()
            with pytest.raises(MCPInvocationError, match="did not run") as failure:
                connection.call_tool("add", {"a": 1, "b": 1})
            assert "no connection could be made" in str(failure.value)
            assert caplog.text.count("sending it again") == repetitions
            proxy.accept()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert server.calls()[before:] == ["add"]

    def test_for_longer_than_the_timeout_of_connecting_ends_the_attempts(self, http_server):
        server = http_server()
        info = reach(server.url, max_retries=6, base_delay=1000, max_delay=1000)
        with MCPConnection(info, connection_timeout=LIMIT, invocation_timeout=LIMIT) as connection:
            server.kill()
            in_thread(connection.call_tool, "add", {"a": 0, "b": 0}).exception(timeout=LIMIT)
            with pytest.raises(MCPInvocationError, match="did not run"):
                connection.call_tool("add", {"a": 1, "b": 1})
            with pytest.raises(MCPConnectionError):
                connection.list_tools()


class TestUnknownSession:
    @pytest.mark.parametrize("like", ["typescript", "python-1.20", "python-1.9"])
    def test_answered_with_400_is_opened_anew_and_the_call_sent_again(self, refusing_server, like):
        server = refusing_server("--protocol", "legacy", "--unknown-session", like)
        with MCPConnection(reach(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            server.restart()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
            assert connection.status().sessions == 2
        assert server.calls() == ["add", "add"]

    @pytest.mark.parametrize("max_retries", [0, 2])
    def test_that_stays_unknown_is_tried_again_as_often_as_max_retries_says(self, refusing_server, max_retries):
        server = refusing_server("--protocol", "legacy", "--always", "404")
        with MCPConnection(reach(server.url, max_retries=max_retries)) as connection:
            with pytest.raises(MCPInvocationError, match="did not run") as failure:
                connection.call_tool("add", {"a": 1, "b": 1})
            assert "does not know the session" in str(failure.value)
        assert len(server.log.events("@post")) == 1 + max_retries
        assert server.calls() == []

    def test_in_a_listing_is_opened_anew(self, http_server):
        server = http_server("streamable-http", "--protocol", "legacy")
        with MCPConnection(reach(server.url)) as connection:
            server.restart()
            assert "add" in [tool.name for tool in connection.list_tools()]
            assert connection.status().sessions == 2


class TestRedirect:
    def test_is_followed_by_cancellations_too(self, shared_http_server):
        server = shared_http_server("streamable-http", "--mounted", "--protocol", "legacy")
        with MCPConnection(reach(server.url), invocation_timeout=1) as connection:
            with pytest.raises(MCPTimeoutError):
                connection.call_tool("sleep", {"seconds": LONG})
            server.wait_for("sleep-cancelled")


class TestHttpError:
    @pytest.mark.parametrize("protocol", ["auto", "legacy"])
    @pytest.mark.parametrize("body", ["", " empty"])
    @pytest.mark.parametrize(
        ("status", "reason"),
        [(401, "401 Unauthorized"), (403, "403 Forbidden"), (429, "429"), (500, "500"), (503, "503")],
    )
    def test_of_a_call_is_reported_with_its_status(self, refusing_servers, protocol, status, reason, body):
        server = refusing_servers(protocol)
        posts = len(server.log.events("@post"))
        with MCPConnection(reach(server.url), invocation_timeout=LONG) as connection:
            with Stopwatch() as watch, pytest.raises(MCPInvocationError) as failure:
                connection.call_tool("echo", {"text": f"HTTP {status}{body}"})
            assert watch.seconds < AT_ONCE
            assert f"HTTP {reason}" in str(failure.value)
            assert len(server.log.events("@post")) == posts + 1
            assert text(connection.call_tool("echo", {"text": "well"})) == "well"
            assert connection.status().sessions == 1

    @pytest.mark.parametrize("protocol", ["auto", "legacy"])
    def test_with_a_protocol_error_in_it_is_reported_with_its_text_and_code(self, refusing_servers, protocol):
        server = refusing_servers(protocol)
        with MCPConnection(reach(server.url), invocation_timeout=LONG) as connection:
            with pytest.raises(MCPInvocationError, match="Too many cooks") as failure:
                connection.call_tool("echo", {"text": "HTTP 503 rpc"})
            assert failure.value.code == -32000

    @pytest.mark.parametrize("transport", ["streamable-http", "sse"])
    def test_of_the_handshake_fails_the_connect_at_once(self, refusing_server, transport):
        # Over SSE the SDK goes on waiting for an answer.
        server = refusing_server("--transport", transport, "--protocol", "legacy", "--handshakes", "403")
        info = reach(server.url) if transport == "streamable-http" else SSEServerInfo(server.url)
        with (
            Stopwatch() as watch,
            pytest.raises(MCPConnectionError, match="HTTP 403 Forbidden"),
            MCPConnection(info, connection_timeout=LONG),
        ):
            pass
        assert watch.seconds < AT_ONCE


class TestHungServer:
    @pytest.mark.parametrize("cancellations", ["refuse", "hang"])
    @pytest.mark.parametrize("transport", ["streamable-http", "sse"])
    def test_that_takes_no_cancellation_harms_no_other_call(self, refusing_server, transport, cancellations):
        server = refusing_server("--transport", transport, "--protocol", "legacy", "--cancellations", cancellations)
        info = reach(server.url) if transport == "streamable-http" else SSEServerInfo(server.url)
        with (
            MCPConnection(info, invocation_timeout=LONG) as patient,
            MCPConnection(info, invocation_timeout=2) as impatient,
        ):
            other = in_thread(patient.call_tool, "sleep", {"seconds": 4})
            hung = together([lambda: impatient.call_tool("sleep", {"seconds": LONG})] * 8)
            assert all(isinstance(call.exception(timeout=LIMIT), MCPTimeoutError) for call in hung)
            server.wait_for("@cancellation")
            assert text(impatient.call_tool("add", {"a": 1, "b": 2})) == "3"
            assert text(other.result(timeout=LIMIT)) == "slept 4.0 s"
            assert patient.status().sessions == 1

    def test_connecting_in_vain_does_not_disturb_other_servers(self, http_server, shared_http_server):
        hung, well = http_server("streamable-http", "--hang-at-start"), shared_http_server()
        connection = MCPConnection(reach(hung.url), connection_timeout=LONG)
        opening = in_thread(connection.open)
        with MCPConnection(reach(well.url), connection_timeout=AT_ONCE) as other:
            assert text(other.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert not opening.done()
        connection.close()
        assert isinstance(opening.exception(timeout=LIMIT), MCPConnectionError)


class TestClosing:
    def test_while_a_call_waits_for_the_server_to_come_back_ends_the_attempts(
        self, shared_http_server, cutting_proxy, caplog
    ):
        proxy = cutting_proxy(shared_http_server("streamable-http", "--protocol", "legacy").url)
        caplog.set_level(logging.INFO, logger="haystack_integrations.tools.mcp")
        connection = MCPConnection(reach(proxy.url, max_retries=10_000), invocation_timeout=LONG)
        connection.open()
        proxy.refuse()
        proxy.cut()
        call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
        wait_until(lambda: caplog.text.count("sending it again") > 2, lambda: f"attempts in {caplog.text}")
        with Stopwatch() as watch:
            connection.close()
            error = call.exception(timeout=LIMIT)
        assert watch.seconds < AT_ONCE
        assert isinstance(error, MCPInvocationError)
        assert "closed" in str(error)
        assert "did not run" in str(error)
