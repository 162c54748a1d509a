# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Whatever happens between us and a server over streamable HTTP: nothing hangs, nothing runs twice, and errors say why.
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
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.calls import assert_told_the_truth, outcome
from tests.support.processes import SERVERS, CallLog, HttpServer, python_script
from tests.support.waiting import LIMIT, wait_until

# No test waits for this.
LONG = 90.0

# What servers there are. Those of the era before 2026-07-28 have sessions, unless they are stateless.
KINDS = {
    "2026": [],
    "2026 json": ["--json"],
    "sessions": ["--protocol", "legacy"],
    "sessions json": ["--protocol", "legacy", "--json"],
    "stateless": ["--protocol", "legacy", "--stateless"],
}
each_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
with_sessions = pytest.mark.parametrize(
    "options", [options for kind, options in KINDS.items() if "sessions" in kind], ids=["sessions", "sessions json"]
)


def reach(url: str, **retries: float) -> StreamableHttpServerInfo:
    return StreamableHttpServerInfo(url, **{"base_delay": 0.05, "max_delay": 0.2, **retries})


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
    @each_kind
    def test_between_calls_the_next_call_reaches_the_new_one(self, http_server, options):
        server = http_server("streamable-http", *options)
        with MCPConnection(reach(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            server.restart()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert server.calls() == ["add", "add"]

    @with_sessions
    def test_between_calls_a_new_session_is_opened(self, http_server, options):
        server = http_server("streamable-http", *options)
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

    @each_kind
    def test_during_a_call_fails_it_at_once_saying_that_the_tool_may_have_run(self, http_server, options):
        server = http_server("streamable-http", *options)
        with MCPConnection(reach(server.url), invocation_timeout=LONG) as connection:
            call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
            server.wait_for("sleep")
            server.kill()
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run") as failure:
                call.result(timeout=LIMIT)
            assert watch.seconds < AT_ONCE
            assert not isinstance(failure.value, TimeoutError)
            server.start()
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls() == ["sleep", "add"]

    @pytest.mark.parametrize("options", [KINDS["2026"], KINDS["sessions"]], ids=["2026", "sessions"])
    def test_under_50_calls_no_tool_runs_twice_and_every_error_says_whether_it_may_have_run(self, http_server, options):
        server = http_server("streamable-http", *options)
        with MCPConnection(reach(server.url, max_retries=50), invocation_timeout=LONG) as connection:
            numbers = [round(1 + number / 1000, 3) for number in range(50)]
            calls = together(
                lambda number=number: connection.call_tool("sleep", {"seconds": number}) for number in numbers
            )
            server.wait_for("sleep", 20)
            server.restart()
            outcomes = {number: outcome(call, 60) for number, call in zip(numbers, calls, strict=True)}
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert "may have run" in outcomes.values()
        assert_told_the_truth(outcomes, server.log, "sleep", "seconds")

    @pytest.mark.parametrize("options", [KINDS["2026"], KINDS["sessions"]], ids=["2026", "sessions"])
    def test_again_and_again_under_short_calls_no_tool_runs_twice(self, http_server, options):
        server = http_server("streamable-http", *options)
        with MCPConnection(reach(server.url, max_retries=50), invocation_timeout=LONG) as connection:

            def work(worker: int) -> dict[str, str]:
                names = [f"{worker}-{number}" for number in range(30)]
                return {name: outcome(in_thread(connection.call_tool, "echo", {"text": name}), 60) for name in names}

            workers = together(lambda worker=worker: work(worker) for worker in range(5))
            for kills in range(1, 4):
                server.wait_for("echo", 35 * kills)
                server.restart()
            outcomes = {name: told for worker in workers for name, told in worker.result(timeout=90).items()}
        assert len(outcomes) == 150
        assert list(outcomes.values()).count("ran") >= 100
        assert_told_the_truth(outcomes, server.log, "echo", "text")


class TestConnectionCut:
    @each_kind
    def test_during_a_call_fails_it_at_once_saying_that_the_tool_may_have_run(
        self, shared_http_server, cutting_proxy, options
    ):
        server = shared_http_server("streamable-http", *options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url), invocation_timeout=LONG) as connection:
            trap = proxy.cut_when(b'"tools/call"')
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("echo", {"text": "once"})
            assert watch.seconds < AT_ONCE
            assert trap.sprung.is_set()
            server.wait_for("echo")
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["echo", "add"]

    @each_kind
    def test_before_the_request_got_through_is_not_repeated_either(self, shared_http_server, cutting_proxy, options):
        # From here nobody can tell whether the server got it.
        server = shared_http_server("streamable-http", *options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url), invocation_timeout=LONG) as connection:
            proxy.cut_when(b'"tools/call"', when="before")
            with pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("echo", {"text": "never"})
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["add"]

    @each_kind
    def test_between_calls_is_not_noticed(self, shared_http_server, cutting_proxy, options):
        server = shared_http_server("streamable-http", *options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url)) as connection:
            connection.call_tool("add", {"a": 1, "b": 2})
            proxy.cut()
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
            assert connection.status().sessions == 1
        assert server.calls()[before:] == ["add", "add"]

    @each_kind
    def test_leaves_calls_on_other_connections_of_the_session_alone(self, shared_http_server, cutting_proxy, options):
        server = shared_http_server("streamable-http", *options)
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

    @pytest.mark.parametrize("options", [KINDS["2026"], KINDS["sessions"]], ids=["2026", "sessions"])
    def test_under_50_calls_no_tool_runs_twice(self, http_server, cutting_proxy, options):
        server = http_server("streamable-http", *options)
        proxy = cutting_proxy(server.url)
        with MCPConnection(reach(proxy.url, max_retries=20), invocation_timeout=LONG) as connection:
            numbers = [round(0.5 + number / 1000, 3) for number in range(50)]
            calls = together(
                lambda number=number: connection.call_tool("sleep", {"seconds": number}) for number in numbers
            )
            server.wait_for("sleep", 25)
            assert proxy.cut() > 10
            outcomes = {number: outcome(call, 60) for number, call in zip(numbers, calls, strict=True)}
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert "may have run" in outcomes.values()
        assert_told_the_truth(outcomes, server.log, "sleep", "seconds")


class TestConnectionRefused:
    @each_kind
    def test_at_first_and_accepted_later_is_tried_again_until_it_runs_once(
        self, shared_http_server, cutting_proxy, caplog, options
    ):
        server = shared_http_server("streamable-http", *options)
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

    @each_kind
    def test_for_long_fails_calls_saying_that_the_tool_did_not_run_until_the_server_is_back(self, http_server, options):
        server = http_server("streamable-http", *options)
        with MCPConnection(reach(server.url, max_retries=1), invocation_timeout=LONG) as connection:
            server.kill()
            # Whether a kept-alive connection takes the first request with it is a matter of luck.
            in_thread(connection.call_tool, "add", {"a": 0, "b": 0}).exception(timeout=LIMIT)
            for _ in range(3):
                with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="did not run"):
                    connection.call_tool("add", {"a": 1, "b": 1})
                assert watch.seconds < AT_ONCE
            server.start()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert server.calls() == ["add"]

    def test_by_the_first_connect_is_reported_at_once(self, http_server):
        server = http_server()
        server.kill()
        connection = MCPConnection(StreamableHttpServerInfo(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError) as failure:
            connection.open()
        assert watch.seconds < AT_ONCE
        assert "Failed to connect to streamable HTTP server at" in str(failure.value)
        assert server.url in str(failure.value)
        assert connection.status().state == "idle"
        server.start()
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        connection.close()


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
    def test_to_the_path_with_a_slash_is_followed(self, shared_http_server):
        server = shared_http_server("streamable-http", "--mounted")
        before = len(server.calls())
        with MCPConnection(reach(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["add"]

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

    def test_401_at_connect_is_reported_with_what_to_do(self, shared_http_server):
        server = shared_http_server("streamable-http", "--token", "sesame")
        connection = MCPConnection(reach(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="401") as failure:
            connection.open()
        assert watch.seconds < AT_ONCE
        assert "token" in str(failure.value)
        connection.close()
        with MCPConnection(reach(server.url, token="sesame")) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"


class TestHungServer:
    @each_kind
    def test_a_call_that_times_out_is_cancelled_on_the_server_and_others_go_on(self, http_server, options):
        server = http_server("streamable-http", *options)
        with (
            MCPConnection(reach(server.url), invocation_timeout=LONG) as patient,
            MCPConnection(reach(server.url), invocation_timeout=1) as impatient,
        ):
            other = in_thread(patient.call_tool, "sleep", {"seconds": 2})
            server.wait_for("sleep")
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError, match="timed out after 1 seconds") as failure:
                impatient.call_tool("sleep", {"seconds": LONG})
            assert 0.9 < watch.seconds < AT_ONCE
            assert isinstance(failure.value, MCPInvocationError)
            assert isinstance(failure.value, TimeoutError)
            # A stateless server of the earlier era has no way to find the call, and the SDK's server does not notice
            # the end of a request that it answers with JSON.
            if options not in (KINDS["stateless"], KINDS["2026 json"]):
                server.wait_for("sleep-cancelled")
                assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
            assert text(other.result(timeout=LIMIT)) == "slept 2.0 s"
            assert patient.status().sessions == 1

    @each_kind
    def test_behind_a_black_hole_a_call_times_out_and_the_next_works_when_it_is_gone(
        self, shared_http_server, cutting_proxy, options
    ):
        proxy = cutting_proxy(shared_http_server("streamable-http", *options).url)
        with (
            MCPConnection(reach(proxy.url), invocation_timeout=1) as connection,
            MCPConnection(reach(proxy.url), invocation_timeout=LONG) as patient,
        ):
            proxy.hold()
            waiting = in_thread(patient.call_tool, "add", {"a": 1, "b": 2})
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError):
                connection.call_tool("add", {"a": 1, "b": 1})
            assert 0.9 < watch.seconds < AT_ONCE
            proxy.release()
            assert text(waiting.result(timeout=LIMIT)) == "3"
            assert text(patient.call_tool("add", {"a": 2, "b": 2})) == "4"

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

    @each_kind
    def test_closing_does_not_wait_for_it_for_long(self, http_server, options):
        server = http_server("streamable-http", *options)
        connection = MCPConnection(reach(server.url), invocation_timeout=LONG)
        connection.open()
        call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
        server.wait_for("sleep")
        server.freeze()
        with Stopwatch() as watch:
            connection.close()
            error = call.exception(timeout=LIMIT)
        assert watch.seconds < AT_ONCE
        assert isinstance(error, MCPInvocationError)
        server.thaw()

    def test_connecting_fails_within_the_timeout(self, http_server):
        server = http_server("streamable-http", "--hang-at-start")
        connection = MCPConnection(reach(server.url), connection_timeout=3)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError, match="timed out after 3 seconds"):
            connection.open()
        assert watch.seconds < 3 + AT_ONCE
        connection.close()

    def test_connecting_in_vain_does_not_disturb_other_servers(self, http_server, shared_http_server):
        hung, well = http_server("streamable-http", "--hang-at-start"), shared_http_server()
        connection = MCPConnection(reach(hung.url), connection_timeout=LONG)
        opening = in_thread(connection.open)
        with MCPConnection(reach(well.url), connection_timeout=AT_ONCE) as other:
            assert text(other.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert not opening.done()
        connection.close()
        assert isinstance(opening.exception(timeout=LIMIT), MCPConnectionError)


class TestListing:
    @pytest.mark.parametrize("protocol", ["auto", "legacy"])
    def test_in_pages_is_complete(self, shared_http_server, protocol):
        server = shared_http_server("streamable-http", "--protocol", protocol, "--tools", "25", "--page-size", "4")
        with MCPToolset(reach(server.url)) as toolset:
            names = [tool.name for tool in toolset]
        assert len(names) == len(set(names))
        assert {f"tool_{number:04}" for number in range(25)} <= set(names)
        assert "add" in names

    @pytest.mark.parametrize("protocol", ["auto", "legacy"])
    def test_that_repeats_a_page_is_an_error_at_once(self, shared_http_server, protocol):
        server = shared_http_server("streamable-http", "--protocol", protocol, "--page-size", "5", "--repeat-cursor")
        toolset = MCPToolset(reach(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="repeats a page"):
            toolset.warm_up()
        assert watch.seconds < AT_ONCE
        toolset.close()

    def test_that_is_slow_is_waited_for_and_that_is_too_slow_times_out(self, shared_http_server):
        server = shared_http_server("streamable-http", "--slow-list", "2")
        with MCPToolset(reach(server.url), connection_timeout=LONG) as toolset:
            assert "add" in [tool.name for tool in toolset]
        toolset = MCPToolset(reach(server.url), connection_timeout=1)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError):
            toolset.warm_up()
        assert watch.seconds < AT_ONCE
        toolset.close()

    @each_kind
    def test_is_repeated_when_the_connection_is_cut(self, shared_http_server, cutting_proxy, options):
        proxy = cutting_proxy(shared_http_server("streamable-http", *options).url)
        with MCPConnection(reach(proxy.url), connection_timeout=LONG) as connection:
            trap = proxy.cut_when(b'"tools/list"')
            assert "add" in [tool.name for tool in connection.list_tools()]
            assert trap.sprung.is_set()


class TestClosing:
    @each_kind
    def test_while_calls_are_in_flight_fails_them_promptly(self, http_server, options):
        server = http_server("streamable-http", *options)
        connection = MCPConnection(reach(server.url), invocation_timeout=LONG)
        connection.open()
        calls = together([lambda: connection.call_tool("sleep", {"seconds": LONG})] * 5)
        server.wait_for("sleep", 5)
        with Stopwatch() as watch:
            connection.close()
            errors = [call.exception(timeout=LIMIT) for call in calls]
        assert watch.seconds < AT_ONCE
        for error in errors:
            assert isinstance(error, MCPInvocationError)
            assert "closed" in str(error)
            assert "may have run" in str(error)

    def test_while_connecting_fails_it_promptly(self, http_server, cutting_proxy):
        server = http_server("streamable-http", "--hang-at-start")
        proxy = cutting_proxy(server.url)
        connection = MCPConnection(reach(proxy.url), connection_timeout=LONG)
        opening = in_thread(connection.open)
        wait_until(lambda: proxy.sent, "the first request")
        with Stopwatch() as watch:
            connection.close()
            error = opening.exception(timeout=LIMIT)
        assert watch.seconds < AT_ONCE
        assert isinstance(error, MCPConnectionError)
        assert "closed" in str(error)

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
