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


@kinds("2026", "sessions", "sse")
def test_an_http_error_of_a_call_is_reported_with_its_status(refusing_server, kind):
    server = refusing_server("--transport", kind.transport, *kind.options)
    for reason in ("401 Unauthorized", "403 Forbidden", "429", "500", "503 Service Unavailable"):
        status = int(reason[:3])
        may_have_run = status >= 500 or (kind.transport == "sse" and status == 429)
        for body in ("", " empty"):
            posts = len(server.log.events("@post"))
            with MCPConnection(kind.reach(server.url), invocation_timeout=LONG) as connection:
                with pytest.raises(MCPInvocationError) as failure:
                    connection.call_tool("echo", {"text": f"HTTP {status}{body}"})
                assert f"HTTP {reason}" in str(failure.value)
                assert isinstance(failure.value, MCPOutcomeUnknownError) is may_have_run
                assert ("may have run" in str(failure.value)) is may_have_run
                assert len(server.log.events("@post")) == posts + 1
                assert text(connection.call_tool("echo", {"text": "well"})) == "well"


@kinds("sessions", "sse")
def test_an_http_error_of_the_handshake_fails_the_connect_at_once(refusing_server, kind):
    # Over SSE the SDK goes on waiting for an answer.
    server = refusing_server("--transport", kind.transport, "--protocol", "legacy", "--handshakes", "403")
    with (
        pytest.raises(MCPConnectionError, match="HTTP 403 Forbidden"),
        MCPConnection(kind.reach(server.url), connection_timeout=LONG),
    ):
        pass


@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_session_that_stays_unknown_is_opened_anew_as_often_as_max_retries_says(refusing_server, max_retries):
    server = refusing_server("--protocol", "legacy")
    with MCPConnection(reach(server.url, max_retries=max_retries)) as connection:
        with pytest.raises(MCPInvocationError, match="did not run") as failure:
            connection.call_tool("echo", {"text": "HTTP 404"})
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
