# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Closing in the middle of things, over every transport: whoever waits is told so, and no process is left.
"""

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPInvocationError
from tests.support.background import in_thread, together
from tests.support.kinds import LONG, every_kind, every_way
from tests.support.waiting import LIMIT, wait_until


@every_kind
def test_closing_fails_the_calls_in_flight_promptly(peer, kind):
    server = peer(kind)
    connection = MCPConnection(server.reach(), invocation_timeout=LONG)
    connection.open()
    calls = together([lambda: connection.call_tool("sleep", {"seconds": LONG})] * 5)
    server.wait_for("sleep", 5)
    connection.close()
    errors = [call.exception(timeout=LIMIT) for call in calls]
    for error in errors:
        assert isinstance(error, MCPInvocationError)
        assert "closed" in str(error)
        assert "may have run" in str(error)
    server.wait_until_gone()


@every_way
def test_closing_while_connecting_fails_the_connect_promptly_and_leaves_no_process(proxied_peer, kind):
    server = proxied_peer(kind, "--hang-at-start")
    connection = MCPConnection(server.reach(), connection_timeout=LONG)
    opening = in_thread(connection.open)
    if kind.is_http:
        wait_until(lambda: server.proxy.sent, "the first request")
    else:
        server.wait_for("@start")
    connection.close()
    error = opening.exception(timeout=LIMIT)
    assert isinstance(error, MCPConnectionError)
    assert "closed" in str(error)
    server.wait_until_gone()
