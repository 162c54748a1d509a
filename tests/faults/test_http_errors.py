# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Answers of HTTP instead of MCP: errors are reported with their status, unknown sessions opened anew, redirects followed.
"""

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from tests.support.background import text
from tests.support.kinds import KINDS, LONG, every_http_transport, kinds

reach = KINDS["2026"].reach


@pytest.mark.parametrize("body", ["", " empty"])
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "401 Unauthorized"),
        (403, "403 Forbidden"),
        (429, "429"),
        (500, "500"),
        (503, "503 Service Unavailable"),
    ],
)
@every_http_transport
def test_an_http_error_of_a_call_is_reported_with_its_status(shared_refusing_server, kind, status, reason, body):
    server = shared_refusing_server(kind)
    posts = len(server.log.events("@post"))
    with MCPConnection(kind.reach(server.url), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPInvocationError) as failure:
            connection.call_tool("echo", {"text": f"HTTP {status}{body}"})
        assert f"HTTP {reason}" in str(failure.value)
        may_have_run = status >= 500 or (kind.transport == "sse" and status == 429)
        assert isinstance(failure.value, MCPOutcomeUnknownError) is may_have_run
        assert ("may have run" in str(failure.value)) is may_have_run
        assert len(server.log.events("@post")) == posts + 1
        assert text(connection.call_tool("echo", {"text": "well"})) == "well"
        if kind.transport == "streamable-http":
            # Where there are sessions, it may be because of this one.
            assert connection.status().sessions == (2 if kind is KINDS["sessions"] and status in (401, 403) else 1)


@kinds("2026", "sessions")
def test_a_protocol_error_in_an_http_error_is_reported_with_its_text_and_code(shared_refusing_server, kind):
    server = shared_refusing_server(kind)
    with MCPConnection(kind.reach(server.url), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPInvocationError, match="Too many cooks") as failure:
            connection.call_tool("echo", {"text": "HTTP 503 rpc"})
        assert failure.value.code == -32000


@kinds("sessions", "sse")
def test_an_http_error_of_the_handshake_fails_the_connect_at_once(refusing_server, kind):
    # Over SSE the SDK goes on waiting for an answer.
    server = refusing_server("--transport", kind.transport, "--protocol", "legacy", "--handshakes", "403")
    with (
        pytest.raises(MCPConnectionError, match="HTTP 403 Forbidden"),
        MCPConnection(kind.reach(server.url), connection_timeout=LONG),
    ):
        pass


@every_http_transport
def test_a_401_at_connect_is_reported_with_what_to_do(shared_http_server, kind):
    server = shared_http_server(kind.transport, *kind.options, "--token", "sesame")
    connection = MCPConnection(kind.reach(server.url), connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match="401") as failure:
        connection.open()
    assert "token" in str(failure.value)
    connection.close()
    with MCPConnection(kind.reach(server.url, token="sesame")) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"


@pytest.mark.parametrize("like", ["typescript", "python-1.20", "python-1.9"])
def test_an_unknown_session_answered_with_400_is_opened_anew_and_the_call_sent_again(refusing_server, like):
    server = refusing_server("--protocol", "legacy", "--unknown-session", like)
    with MCPConnection(reach(server.url)) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        server.restart()
        assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert connection.status().sessions == 2
    assert server.calls() == ["add", "add"]


@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_session_that_stays_unknown_is_opened_anew_as_often_as_max_retries_says(refusing_server, max_retries):
    server = refusing_server("--protocol", "legacy", "--always", "404")
    with MCPConnection(reach(server.url, max_retries=max_retries)) as connection:
        with pytest.raises(MCPInvocationError, match="did not run") as failure:
            connection.call_tool("add", {"a": 1, "b": 1})
        assert "does not know the session" in str(failure.value)
    assert len(server.log.events("@post")) == 1 + max_retries
    assert server.calls() == []


@every_http_transport
def test_a_redirect_to_the_path_with_a_slash_is_followed(shared_http_server, kind):
    server = shared_http_server(kind.transport, *kind.options, "--mounted")
    before = len(server.calls())
    with MCPConnection(kind.reach(server.url)) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert server.calls()[before:] == ["add"]
