# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Arguments that are no JSON, over every transport.
"""

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPInvocationError
from tests.support.kinds import every_way

SECRET = "sk-s3ntinel-4711"


@every_way
def test_what_cannot_be_sent_is_named_and_harms_no_other_call(proxied_peer, kind):
    server = proxied_peer(kind)
    with MCPConnection(server.reach(), invocation_timeout=60) as connection:
        for argument in (f"{SECRET}\ud83d", SECRET.encode() + b"\xff", {"deep": object()}):
            with pytest.raises(MCPInvocationError, match="argument 'text' cannot be sent as JSON") as raised:
                connection.call_tool("echo", {"text": argument})
            assert SECRET not in str(raised.value)
            assert "may have run" not in str(raised.value)
            with pytest.raises(MCPConnectionError, match="cannot be sent as JSON"):
                connection.request("some/thing", {"value": argument})
        connection.call_tool("echo", {"text": "hello"})
        assert connection.status().sessions == 1


def test_an_argument_that_can_be_read_once_only_reaches_the_server(stdio_server):
    server = stdio_server()
    with MCPConnection(server.info()) as connection:
        connection.call_tool("echo", {"text": (letter for letter in "ab")})
    assert server.log.events("echo") == [("echo", {"text": ["a", "b"]})]
