# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a log at INFO tells of a connection: each event once, and no calls.
"""

import logging

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError
from tests.support.kinds import KINDS, LONG, every_http_transport, every_way
from tests.support.waiting import wait_until

PACKAGE = "haystack_integrations.tools.mcp"


@every_way
def test_the_life_of_a_connection_is_logged_each_event_once_and_no_call_is(peer, caplog, kind):
    caplog.set_level(logging.INFO, logger=PACKAGE)
    server = peer(kind)
    info = server.reach()
    connection = MCPConnection(info)
    connection.open()
    connection.call_tool("add", {"a": 1, "b": 1})
    [opened] = [record for record in caplog.records if record.name.startswith(PACKAGE)]
    assert info.describe() in opened.getMessage()
    assert opened.protocol_version in opened.getMessage()
    assert opened.transport == kind.transport
    assert opened.seconds > 0

    server.restart()
    if kind.notices_the_end:
        wait_until(lambda: not connection.is_ready, "the loss")
    connection.call_tool("add", {"a": 1, "b": 1})
    connection.close()
    said = [record.getMessage() for record in caplog.records if record.name.startswith(PACKAGE)]
    # The revision 2026-07-28 over HTTP has no sessions that a restart would end.
    losses = 0 if kind is KINDS["2026"] else 1
    counts = {"Connected": 1, "Lost": losses, "Reconnected": losses, "Closed": 1}
    assert {verb: sum(each.startswith(verb) for each in said) for verb in counts} == counts
    assert len(set(said)) == len(said)


@every_http_transport
def test_a_failed_connect_is_raised_and_not_logged_and_says_its_reason_and_what_to_do(http_server, caplog, kind):
    caplog.set_level(logging.INFO, logger=PACKAGE)
    server = http_server(kind.transport, *kind.options, "--token", "sesame")
    name = {"sse": "SSE", "streamable-http": "streamable HTTP"}[kind.transport]
    for reason in ("401 Unauthorized.*token", "Connection refused"):
        connection = MCPConnection(kind.reach(server.url), connection_timeout=LONG)
        with pytest.raises(MCPConnectionError, match=reason) as failure:
            connection.open()
        assert f"Failed to connect to {name} server at {server.url}" in str(failure.value)
        assert "\n" not in str(failure.value)
        assert "onnection attempts failed" not in str(failure.value)
        assert connection.status().state == "idle"
        server.kill()
    assert not [record for record in caplog.records if record.name.startswith(PACKAGE)]
    server.start()
    with MCPConnection(kind.reach(server.url, token="sesame")) as connection:
        assert connection.call_tool("add", {"a": 1, "b": 1}).content[0].text == "2"
