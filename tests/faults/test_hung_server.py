# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Whatever happens between us and a server over HTTP, streamable or SSE: nothing hangs, nothing runs twice, and errors say
why.
"""

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTimeoutError,
    MCPToolset,
)
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.calls import assert_told_the_truth, outcome
from tests.support.kinds import KINDS, LONG, kinds
from tests.support.waiting import LIMIT, wait_until

each_kind = kinds(*KINDS)
# Where the way the server answers makes no difference.
each_way = kinds("2026", "sessions", "sse")


class TestServerKilled:
    @each_kind
    def test_between_calls_the_next_call_reaches_the_new_one(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        with MCPConnection(kind.reach(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
            server.restart()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert server.calls() == ["add", "add"]

    @each_kind
    def test_during_a_call_fails_it_at_once_saying_that_the_tool_may_have_run(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        with MCPConnection(kind.reach(server.url), invocation_timeout=LONG) as connection:
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

    @each_way
    def test_under_50_calls_no_tool_runs_twice_and_every_error_says_whether_it_may_have_run(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        with MCPConnection(kind.reach(server.url, max_retries=50), invocation_timeout=LONG) as connection:
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

    @each_way
    def test_again_and_again_under_short_calls_no_tool_runs_twice(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        with MCPConnection(kind.reach(server.url, max_retries=50), invocation_timeout=LONG) as connection:

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
        self, shared_http_server, cutting_proxy, kind
    ):
        server = shared_http_server(kind.transport, *kind.options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(kind.reach(proxy.url), invocation_timeout=LONG) as connection:
            trap = proxy.cut_when(b'"tools/call"')
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("echo", {"text": "once"})
            assert watch.seconds < AT_ONCE
            assert trap.sprung.is_set()
            wait_until(lambda: len(server.calls()) > before, "the execution")
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["echo", "add"]

    @each_kind
    def test_before_the_request_got_through_is_not_repeated_either(self, shared_http_server, cutting_proxy, kind):
        # From here nobody can tell whether the server got it.
        server = shared_http_server(kind.transport, *kind.options)
        proxy = cutting_proxy(server.url)
        before = len(server.calls())
        with MCPConnection(kind.reach(proxy.url), invocation_timeout=LONG) as connection:
            proxy.cut_when(b'"tools/call"', when="before")
            with pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("echo", {"text": "never"})
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["add"]

    @each_way
    def test_under_50_calls_no_tool_runs_twice(self, http_server, cutting_proxy, kind):
        server = http_server(kind.transport, *kind.options)
        proxy = cutting_proxy(server.url)
        with MCPConnection(kind.reach(proxy.url, max_retries=20), invocation_timeout=LONG) as connection:
            numbers = [round(0.5 + number / 1000, 3) for number in range(50)]
            calls = together(
                lambda number=number: connection.call_tool("sleep", {"seconds": number}) for number in numbers
            )
            server.wait_for("sleep", 25)
            assert proxy.cut() > (1 if kind.transport == "sse" else 10)
            outcomes = {number: outcome(call, 60) for number, call in zip(numbers, calls, strict=True)}
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert "may have run" in outcomes.values()
        assert_told_the_truth(outcomes, server.log, "sleep", "seconds")


class TestConnectionRefused:
    @each_kind
    def test_for_long_fails_calls_saying_that_the_tool_did_not_run_until_the_server_is_back(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        with MCPConnection(kind.reach(server.url, max_retries=1), invocation_timeout=LONG) as connection:
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

    @each_way
    def test_by_the_first_connect_is_reported_at_once(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        server.kill()
        connection = MCPConnection(kind.reach(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError) as failure:
            connection.open()
        assert watch.seconds < AT_ONCE
        name = {"sse": "SSE", "streamable-http": "streamable HTTP"}[kind.transport]
        assert f"Failed to connect to {name} server at {server.url}" in str(failure.value)
        assert connection.status().state == "idle"
        server.start()
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        connection.close()


class TestRedirect:
    @each_way
    def test_to_the_path_with_a_slash_is_followed(self, shared_http_server, kind):
        server = shared_http_server(kind.transport, *kind.options, "--mounted")
        before = len(server.calls())
        with MCPConnection(kind.reach(server.url)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls()[before:] == ["add"]


class TestHttpError:
    @each_way
    def test_401_at_connect_is_reported_with_what_to_do(self, shared_http_server, kind):
        server = shared_http_server(kind.transport, *kind.options, "--token", "sesame")
        connection = MCPConnection(kind.reach(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="401") as failure:
            connection.open()
        assert watch.seconds < AT_ONCE
        assert "token" in str(failure.value)
        connection.close()
        with MCPConnection(kind.reach(server.url, token="sesame")) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"


class TestHungServer:
    @each_kind
    def test_a_call_that_times_out_is_cancelled_on_the_server_and_others_go_on(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        with (
            MCPConnection(kind.reach(server.url), invocation_timeout=LONG) as patient,
            MCPConnection(kind.reach(server.url), invocation_timeout=1) as impatient,
        ):
            other = in_thread(patient.call_tool, "sleep", {"seconds": 2})
            server.wait_for("sleep")
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError, match="timed out after 1 seconds") as failure:
                impatient.call_tool("sleep", {"seconds": LONG})
            assert 0.9 < watch.seconds < AT_ONCE
            assert isinstance(failure.value, MCPInvocationError)
            assert isinstance(failure.value, TimeoutError)
            if kind.cancels:
                server.wait_for("sleep-cancelled")
                assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
            assert text(other.result(timeout=LIMIT)) == "slept 2.0 s"
            assert patient.status().sessions == 1

    @each_kind
    def test_behind_a_black_hole_a_call_times_out_and_the_next_works_when_it_is_gone(
        self, shared_http_server, cutting_proxy, kind
    ):
        proxy = cutting_proxy(shared_http_server(kind.transport, *kind.options).url)
        with (
            MCPConnection(kind.reach(proxy.url), invocation_timeout=1) as connection,
            MCPConnection(kind.reach(proxy.url), invocation_timeout=LONG) as patient,
        ):
            proxy.hold()
            waiting = in_thread(patient.call_tool, "add", {"a": 1, "b": 2})
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError):
                connection.call_tool("add", {"a": 1, "b": 1})
            assert 0.9 < watch.seconds < AT_ONCE
            proxy.release()
            assert text(waiting.result(timeout=LIMIT)) == "3"
            assert text(patient.call_tool("add", {"a": 2, "b": 2})) == "4"

    @each_kind
    def test_closing_does_not_wait_for_it_for_long(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        connection = MCPConnection(kind.reach(server.url), invocation_timeout=LONG)
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

    @each_way
    def test_connecting_fails_within_the_timeout(self, http_server, kind):
        server = http_server(kind.transport, *kind.options, "--hang-at-start")
        connection = MCPConnection(kind.reach(server.url), connection_timeout=3)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError, match="timed out after 3 seconds"):
            connection.open()
        assert watch.seconds < 3 + AT_ONCE
        connection.close()


class TestListing:
    @each_way
    def test_in_pages_is_complete(self, shared_http_server, kind):
        server = shared_http_server(kind.transport, *kind.options, "--tools", "25", "--page-size", "4")
        with MCPToolset(kind.reach(server.url)) as toolset:
            names = [tool.name for tool in toolset]
        assert len(names) == len(set(names))
        assert {f"tool_{number:04}" for number in range(25)} <= set(names)
        assert "add" in names

    @each_way
    def test_that_repeats_a_page_is_an_error_at_once(self, shared_http_server, kind):
        server = shared_http_server(kind.transport, *kind.options, "--page-size", "5", "--repeat-cursor")
        toolset = MCPToolset(kind.reach(server.url), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="repeats a page"):
            toolset.warm_up()
        assert watch.seconds < AT_ONCE
        toolset.close()

    @each_way
    def test_that_is_slow_is_waited_for_and_that_is_too_slow_times_out(self, shared_http_server, kind):
        server = shared_http_server(kind.transport, *kind.options, "--slow-list", "2")
        with MCPToolset(kind.reach(server.url), connection_timeout=LONG) as toolset:
            assert "add" in [tool.name for tool in toolset]
        toolset = MCPToolset(kind.reach(server.url), connection_timeout=1)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError):
            toolset.warm_up()
        assert watch.seconds < AT_ONCE
        toolset.close()

    @each_kind
    def test_is_repeated_when_the_connection_is_cut(self, shared_http_server, cutting_proxy, kind):
        proxy = cutting_proxy(shared_http_server(kind.transport, *kind.options).url)
        with MCPConnection(kind.reach(proxy.url), connection_timeout=LONG) as connection:
            trap = proxy.cut_when(b'"tools/list"')
            assert "add" in [tool.name for tool in connection.list_tools()]
            assert trap.sprung.is_set()


class TestClosing:
    @each_kind
    def test_while_calls_are_in_flight_fails_them_promptly(self, http_server, kind):
        server = http_server(kind.transport, *kind.options)
        connection = MCPConnection(kind.reach(server.url), invocation_timeout=LONG)
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

    @each_way
    def test_while_connecting_fails_it_promptly(self, http_server, cutting_proxy, kind):
        server = http_server(kind.transport, *kind.options, "--hang-at-start")
        proxy = cutting_proxy(server.url)
        connection = MCPConnection(kind.reach(proxy.url), connection_timeout=LONG)
        opening = in_thread(connection.open)
        wait_until(lambda: proxy.sent, "the first request")
        with Stopwatch() as watch:
            connection.close()
            error = opening.exception(timeout=LIMIT)
        assert watch.seconds < AT_ONCE
        assert isinstance(error, MCPConnectionError)
        assert "closed" in str(error)
