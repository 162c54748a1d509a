# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A connection over HTTP that is cut while the server lives on: what was sent may have run, and is not sent again.
"""

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError
from tests.support.background import text
from tests.support.kinds import LONG, every_http_kind, every_streamable_kind
from tests.support.waiting import wait_until


@pytest.mark.parametrize("when", ["before", "forwarded"])
@every_http_kind
def test_a_cut_connection_fails_the_pending_call_at_once_and_it_is_not_repeated(proxied_peer, kind, when):
    server = proxied_peer(kind)
    before = len(server.calls())
    with MCPConnection(server.reach(), invocation_timeout=LONG) as connection:
        # If the call did not get through, nobody can tell from here.
        trap = server.proxy.cut_when(b'"tools/call"', when=when)
        with pytest.raises(MCPInvocationError, match="may have run"):
            connection.call_tool("echo", {"text": "once"})
        assert trap.sprung.is_set()
        if when == "forwarded":
            wait_until(lambda: len(server.calls()) > before, "the execution")
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert server.calls()[before:] == (["echo", "add"] if when == "forwarded" else ["add"])


@every_streamable_kind
def test_a_streamable_http_connection_cut_between_calls_is_not_missed(proxied_peer, kind):
    server = proxied_peer(kind)
    before = len(server.calls())
    with MCPConnection(server.reach()) as connection:
        connection.call_tool("add", {"a": 1, "b": 2})
        server.proxy.cut()
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert connection.status().sessions == 1
    assert server.calls()[before:] == ["add", "add"]
