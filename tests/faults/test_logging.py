# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a log at INFO tells of a connection: each event once, and no calls.
"""

import logging

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError
from tests.support.kinds import LONG, every_http_transport, every_way
from tests.support.waiting import wait_until

PACKAGE = "haystack_integrations.tools.mcp"


@every_way
def test_the_life_of_a_connection_is_logged_each_event_once_and_no_call_is(peer, caplog, kind):
    caplog.set_level(logging.INFO, logger=PACKAGE)

    def events():
        records = [record for record in caplog.records if record.name.startswith(PACKAGE)]
        return [(record.getMessage().split()[0], record) for record in records]

    server = peer(kind)
    info = server.reach()
    connection = MCPConnection(info)
    connection.open()
    connection.call_tool("add", {"a": 1, "b": 1})
    [(first, opened)] = events()
    assert first == "Connected"
    assert info.describe() in opened.getMessage()
    assert opened.protocol_version in opened.getMessage()
    assert opened.transport == kind.transport
    assert opened.seconds > 0

    server.restart()
    if kind.notices_the_end:
        wait_until(lambda: not connection.is_ready, "the loss")
    connection.call_tool("add", {"a": 1, "b": 1})
    connection.close()
    said = [verb for verb, _ in events()]
    assert said.count("Lost") == said.count("Reconnected") == connection_losses(kind)
    assert said.count("Connected") == said.count("Closed") == 1
    assert len(set(caplog.messages)) == len(caplog.messages)


def connection_losses(kind) -> int:
    # The revision 2026-07-28 over HTTP has no sessions that a restart would end.
    return 0 if kind.transport == "streamable-http" and "legacy" not in kind.options else 1


@every_http_transport
def test_a_failed_connect_is_raised_and_not_logged_and_says_its_reason(http_server, caplog, kind):
    caplog.set_level(logging.INFO, logger=PACKAGE)
    server = http_server(kind.transport, *kind.options, "--token", "sesame")
    for reason in ("401 Unauthorized", "Connection refused"):
        connection = MCPConnection(kind.reach(server.url), connection_timeout=LONG)
        with pytest.raises(MCPConnectionError) as failure:
            connection.open()
        connection.close()
        message = str(failure.value)
        assert reason in message and server.url in message
        assert "\n" not in message
        assert "onnection attempts failed" not in message
        server.kill()
    assert not [record for record in caplog.records if record.name.startswith(PACKAGE)]
