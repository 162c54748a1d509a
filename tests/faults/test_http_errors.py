# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What happens over SSE only: a stream of events that breaks, and messages that are posted beside it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPInvocationError,
    MCPTimeoutError,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
)
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.calls import outcome
from tests.support.kinds import KINDS, LONG
from tests.support.processes import SERVERS, CallLog, HttpServer, python_script
from tests.support.waiting import LIMIT, wait_until

# How long the SDK tries to tell a server that a call is cancelled; no caller waits for that.
CANCELLATION = 5.0

reach = KINDS["sse"].reach


@pytest.fixture(scope="module")
def refusing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder: Path = tmp_path_factory.mktemp("refusing")
    log = CallLog(folder / "calls.txt")
    command = python_script(SERVERS / "refusing_server.py", "--transport", "sse", "--calls-file", str(log.path))
    server = HttpServer(command, "/sse", folder, log).start()
    yield server
    server.close()


class TestServerKilled:
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

    def test_by_the_call_itself_fails_it_at_once(self, http_server):
        server = http_server("sse")
        with MCPConnection(reach(server.url, max_retries=50), invocation_timeout=LONG) as connection:
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run"):
                connection.call_tool("die")
            assert watch.seconds < AT_ONCE
        assert server.calls() == ["die"]


class TestConnectionCut:
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


class TestConnectionRefused:
    def test_at_first_and_accepted_later_is_tried_again_until_it_runs_once(self, shared_http_server, cutting_proxy):
        server = shared_http_server("sse")
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

    def test_with_max_retries_0_is_tried_once(self, http_server):
        server = http_server("sse")
        info = SSEServerInfo(server.url, max_retries=0, base_delay=1000, max_delay=1000)
        with MCPConnection(info, connection_timeout=LONG) as connection:
            server.kill()
            wait_until(lambda: connection.status().state == "lost", "the loss")
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="did not run"):
                connection.call_tool("add", {"a": 1, "b": 1})
            assert watch.seconds < AT_ONCE


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


class TestHungServer:
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

    def test_that_acknowledges_no_message_is_given_up_for_a_new_session(self, shared_http_server, cutting_proxy):
        proxy = cutting_proxy(shared_http_server("sse").url)
        with MCPConnection(reach(proxy.url, timeout=1), invocation_timeout=LONG) as connection:
            proxy.hold()
            call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
            wait_until(lambda: connection.status().state != "ready", "the loss")
            assert "ReadTimeout" in connection.status().last_error
            proxy.release()
            # The message that was not acknowledged may be the call, or the one before it.
            assert outcome(call, LIMIT) in ("ran", "may have run")
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
            assert connection.status().sessions > 1
