# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Whatever happens between us and a server over SSE: nothing hangs, nothing runs twice, and every error says why.
"""

from collections.abc import Iterator
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
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.calls import assert_told_the_truth, outcome
from tests.support.processes import SERVERS, CallLog, HttpServer, python_script
from tests.support.waiting import LIMIT, wait_until

# No test waits for this.
LONG = 90.0

# How long the SDK tries to tell a server that a call is cancelled; no caller waits for that.
CANCELLATION = 5.0

in_both_eras = pytest.mark.parametrize("options", [[], ["--protocol", "legacy"]], ids=["2026", "legacy"])


def reach(url: str, **retries: float) -> SSEServerInfo:
    return SSEServerInfo(url, **{"base_delay": 0.05, "max_delay": 0.2, **retries})


@pytest.fixture(scope="module")
def refusing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder: Path = tmp_path_factory.mktemp("refusing")
    log = CallLog(folder / "calls.txt")
    command = python_script(SERVERS / "refusing_server.py", "--transport", "sse", "--calls-file", str(log.path))
    server = HttpServer(command, "/sse", folder, log).start()
    yield server
    server.close()


class TestServerKilled:
    @in_both_eras
    def test_between_calls_the_next_call_reaches_the_new_one(self, http_server, options):
        server = http_server("sse", *options)
        with MCPConnection(reach(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            server.restart()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
            assert connection.status().sessions == 2
        assert server.calls() == ["add", "add"]

    def test_between_calls_is_noticed_without_a_call(self, http_server):
        server = http_server("sse")
        with MCPConnection(reach(server.url)) as connection:
            server.kill()
            wait_until(lambda: connection.status().state == "lost", lambda: str(connection.status()))
            assert connection.status().last_error

    def test_between_calls_tools_recover_and_toolsets_warm_up_again(self, http_server):
        server = http_server("sse")
        with MCPTool("add", reach(server.url)) as tool, MCPToolset(reach(server.url), tool_names=["echo"]) as toolset:
            server.restart()
            assert '"2"' in tool.invoke(a=1, b=1)
            server.restart()
            wait_until(lambda: toolset.connection.status().state == "lost", "the loss")
            toolset.warm_up()
            assert "hello" in toolset[0].invoke(text="hello")
        assert server.calls() == ["add", "echo"]

    @in_both_eras
    def test_during_a_call_fails_it_at_once_saying_that_the_tool_may_have_run(self, http_server, options):
        server = http_server("sse", *options)
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

    def test_by_the_call_itself_fails_it_at_once(self, http_server):
        server = http_server("sse")
        with MCPConnection(reach(server.url, max_retries=50), invocation_timeout=LONG) as connection:
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("die")
            assert watch.seconds < AT_ONCE
        assert server.calls() == ["die"]

    @in_both_eras
    def test_under_50_calls_no_tool_runs_twice_and_every_error_says_whether_it_may_have_run(self, http_server, options):
        server = http_server("sse", *options)
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

    def test_again_and_again_under_short_calls_no_tool_runs_twice(self, http_server):
        server = http_server("sse")
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
    @in_both_eras
    def test_during_a_call_fails_it_at_once_saying_that_the_tool_may_have_run(
        self, shared_http_server, cutting_proxy, options
    ):
        server = shared_http_server("sse", *options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url), invocation_timeout=LONG) as connection:
            trap = proxy.cut_when(b'"tools/call"')
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("echo", {"text": "once"})
            assert watch.seconds < AT_ONCE
            assert trap.sprung.is_set()
            wait_until(lambda: len(server.calls()) > before, "the execution")
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["echo", "add"]

    @in_both_eras
    def test_before_the_request_got_through_is_not_repeated_either(self, shared_http_server, cutting_proxy, options):
        # From here nobody can tell whether the server got it.
        server = shared_http_server("sse", *options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url), invocation_timeout=LONG) as connection:
            proxy.cut_when(b'"tools/call"', when="before")
            with pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("echo", {"text": "never"})
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["add"]

    def test_between_calls_is_noticed_and_the_next_call_opens_a_new_session(self, shared_http_server, cutting_proxy):
        server = shared_http_server("sse")
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url)) as connection:
            proxy.cut()
            wait_until(lambda: connection.status().state == "lost", lambda: str(connection.status()))
            assert "cut" in connection.status().last_error
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
            assert connection.status().sessions == 2
        assert server.calls()[before:] == ["add"]

    def test_under_50_calls_no_tool_runs_twice(self, http_server, cutting_proxy):
        server = http_server("sse")
        proxy = cutting_proxy(server.url)
        with MCPConnection(reach(proxy.url, max_retries=20), invocation_timeout=LONG) as connection:
            numbers = [round(0.5 + number / 1000, 3) for number in range(50)]
            calls = together(
                lambda number=number: connection.call_tool("sleep", {"seconds": number}) for number in numbers
            )
            server.wait_for("sleep", 25)
            assert proxy.cut() > 1
            outcomes = {number: outcome(call, 60) for number, call in zip(numbers, calls, strict=True)}
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert "may have run" in outcomes.values()
        assert_told_the_truth(outcomes, server.log, "sleep", "seconds")


class TestConnectionRefused:
    @in_both_eras
    def test_at_first_and_accepted_later_is_tried_again_until_it_runs_once(
        self, shared_http_server, cutting_proxy, options
    ):
        server = shared_http_server("sse", *options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url, max_retries=1000), connection_timeout=LONG) as connection:
            proxy.refuse()
            proxy.cut()
            wait_until(lambda: connection.status().state == "lost", "the loss")
            call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
            wait_until(lambda: connection.status().state == "connecting", "attempts")
            assert not call.done()
            proxy.accept()
            assert text(call.result(timeout=LIMIT)) == "2"
        assert server.calls()[before:] == ["add"]

    def test_for_messages_only_is_an_unsent_call_that_is_sent_again(self, shared_http_server, cutting_proxy):
        # The event stream is open, a new connection for the message cannot be made.
        server = shared_http_server("sse")
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(reach(proxy.url, max_retries=1000), connection_timeout=LONG) as connection:
            calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 3)
            assert [text(call.result(timeout=LIMIT)) for call in calls] == ["2"] * 3
            proxy.refuse()
            calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 50)
            wait_until(
                lambda: connection.status().state == "connecting" or all(call.done() for call in calls), "an attempt"
            )
            proxy.accept()
            outcomes = [outcome(call, LIMIT) for call in calls]
        assert "did not run" not in outcomes
        executions = len(server.calls()) - before - 3
        assert outcomes.count("ran") <= executions <= 50

    def test_for_long_fails_calls_saying_that_the_tool_did_not_run_until_the_server_is_back(self, http_server):
        server = http_server("sse")
        with MCPConnection(reach(server.url, max_retries=1), invocation_timeout=LONG) as connection:
            server.kill()
            wait_until(lambda: connection.status().state == "lost", "the loss")
            for _ in range(3):
                with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="did not run"):
                    connection.call_tool("add", {"a": 1, "b": 1})
                assert watch.seconds < AT_ONCE
            server.start()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert server.calls() == ["add"]

    def test_by_the_first_connect_is_reported_at_once(self, http_server):
        server = http_server("sse")
        server.kill()
        connection = MCPConnection(SSEServerInfo(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError) as failure:
            connection.open()
        assert watch.seconds < AT_ONCE
        assert f"Failed to connect to SSE server at {server.url}" in str(failure.value)
        connection.close()

    def test_with_max_retries_0_is_tried_once(self, http_server):
        server = http_server("sse")
        info = SSEServerInfo(server.url, max_retries=0, base_delay=1000, max_delay=1000)
        with MCPConnection(info, connection_timeout=LONG) as connection:
            server.kill()
            wait_until(lambda: connection.status().state == "lost", "the loss")
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="did not run"):
                connection.call_tool("add", {"a": 1, "b": 1})
            assert watch.seconds < AT_ONCE


class TestRedirect:
    def test_to_the_path_with_a_slash_is_followed(self, shared_http_server):
        server = shared_http_server("sse", "--mounted")
        before = len(server.calls())
        with MCPConnection(reach(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["add"]


class TestHttpError:
    @pytest.mark.parametrize(
        ("status", "reason"), [(401, "401 Unauthorized"), (403, "403"), (500, "500"), (503, "503 Service Unavailable")]
    )
    def test_of_a_call_is_reported_with_its_status(self, refusing_server, status, reason):
        posts = len(refusing_server.log.events("@post"))
        with MCPConnection(reach(refusing_server.url, max_retries=0), invocation_timeout=LONG) as connection:
            with Stopwatch() as watch, pytest.raises(MCPInvocationError) as failure:
                connection.call_tool("echo", {"text": f"HTTP {status}"})
            assert watch.seconds < AT_ONCE
            assert f"HTTP {reason}" in str(failure.value)
            assert len(refusing_server.log.events("@post")) == posts + 1
            assert text(connection.call_tool("echo", {"text": "well"})) == "well"

    def test_that_denies_a_call_is_no_reason_to_repeat_it(self, refusing_server):
        posts = len(refusing_server.log.events("@post"))
        with MCPConnection(reach(refusing_server.url, max_retries=3), invocation_timeout=LONG) as connection:
            with pytest.raises(MCPInvocationError, match=r"HTTP 401.* did not run"):
                connection.call_tool("echo", {"text": "HTTP 401"})
            assert len(refusing_server.log.events("@post")) == posts + 1

    def test_401_at_connect_is_reported_with_what_to_do(self, shared_http_server):
        server = shared_http_server("sse", "--token", "sesame")
        connection = MCPConnection(reach(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="401") as failure:
            connection.open()
        assert watch.seconds < AT_ONCE
        assert "token" in str(failure.value)
        connection.close()
        with MCPConnection(reach(server.url, token="sesame")) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"


class TestHungServer:
    @in_both_eras
    def test_a_call_that_times_out_is_cancelled_on_the_server_and_others_go_on(self, shared_http_server, options):
        server = shared_http_server("sse", *options)
        before = len(server.log.events("sleep-cancelled"))
        slept = len(server.log.events("sleep"))
        with (
            MCPConnection(reach(server.url), invocation_timeout=LONG) as patient,
            MCPConnection(reach(server.url), invocation_timeout=1) as impatient,
        ):
            other = in_thread(patient.call_tool, "sleep", {"seconds": 2})
            server.wait_for("sleep", slept + 1)
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError, match="timed out after 1 seconds") as failure:
                impatient.call_tool("sleep", {"seconds": LONG})
            assert 0.9 < watch.seconds < AT_ONCE
            assert isinstance(failure.value, MCPInvocationError)
            assert isinstance(failure.value, TimeoutError)
            server.wait_for("sleep-cancelled", before + 1)
            assert server.log.events("sleep-cancelled")[before:] == [("sleep-cancelled", {"seconds": LONG})]
            assert text(other.result(timeout=LIMIT)) == "slept 2.0 s"
            assert patient.status().sessions == 1

    @in_both_eras
    def test_behind_a_black_hole_a_call_times_out_and_the_next_works_when_it_is_gone(
        self, shared_http_server, cutting_proxy, options
    ):
        proxy = cutting_proxy(shared_http_server("sse", *options).url)
        with (
            MCPConnection(reach(proxy.url), invocation_timeout=1) as connection,
            MCPConnection(reach(proxy.url), invocation_timeout=LONG) as patient,
        ):
            proxy.hold()
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError):
                connection.call_tool("add", {"a": 1, "b": 1})
            assert 0.9 < watch.seconds < 1 + CANCELLATION
            proxy.release()
            assert text(patient.call_tool("add", {"a": 2, "b": 2})) == "4"

    def test_that_does_not_take_messages_any_more_does_not_hold_up_calls_beyond_their_timeout(
        self, shared_http_server, cutting_proxy
    ):
        # The SDK posts messages one after the other, each after the answer to the one before.
        proxy = cutting_proxy(shared_http_server("sse").url)
        with MCPConnection(reach(proxy.url), invocation_timeout=1) as connection:
            proxy.hold()
            with Stopwatch() as watch:
                calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 10)
                errors = [call.exception(timeout=LIMIT) for call in calls]
            assert watch.seconds < 1 + CANCELLATION
            assert all(isinstance(error, MCPTimeoutError) for error in errors), errors
            proxy.release()

    @in_both_eras
    def test_closing_does_not_wait_for_it_for_long(self, http_server, options):
        server = http_server("sse", *options)
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
        server = http_server("sse", "--hang-at-start")
        connection = MCPConnection(reach(server.url), connection_timeout=3)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError, match="timed out after 3 seconds"):
            connection.open()
        assert watch.seconds < 3 + AT_ONCE
        connection.close()


class TestListing:
    @in_both_eras
    def test_in_pages_is_complete(self, shared_http_server, options):
        server = shared_http_server("sse", *options, "--tools", "25", "--page-size", "4")
        with MCPToolset(reach(server.url)) as toolset:
            names = [tool.name for tool in toolset]
        assert len(names) == len(set(names))
        assert {f"tool_{number:04}" for number in range(25)} <= set(names)
        assert "add" in names

    def test_that_repeats_a_page_is_an_error_at_once(self, shared_http_server):
        server = shared_http_server("sse", "--page-size", "5", "--repeat-cursor")
        toolset = MCPToolset(reach(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="repeats a page"):
            toolset.warm_up()
        assert watch.seconds < AT_ONCE
        toolset.close()

    def test_that_is_slow_is_waited_for_and_that_is_too_slow_times_out(self, shared_http_server):
        server = shared_http_server("sse", "--slow-list", "2")
        with MCPToolset(reach(server.url), connection_timeout=LONG) as toolset:
            assert "add" in [tool.name for tool in toolset]
        toolset = MCPToolset(reach(server.url), connection_timeout=1)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError):
            toolset.warm_up()
        assert watch.seconds < AT_ONCE
        toolset.close()

    @in_both_eras
    def test_is_repeated_when_the_connection_is_cut(self, shared_http_server, cutting_proxy, options):
        proxy = cutting_proxy(shared_http_server("sse", *options).url)
        with MCPConnection(reach(proxy.url), connection_timeout=LONG) as connection:
            trap = proxy.cut_when(b'"tools/list"')
            assert "add" in [tool.name for tool in connection.list_tools()]
            assert trap.sprung.is_set()


class TestClosing:
    @in_both_eras
    def test_while_calls_are_in_flight_fails_them_promptly(self, http_server, options):
        server = http_server("sse", *options)
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
        server = http_server("sse", "--hang-at-start")
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
