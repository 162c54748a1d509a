# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What goes on over HTTP beside the answers to calls: event streams, requests of the server, calls that were given up.
"""

import asyncio
import itertools
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPConnection,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from tests.support.handshake_server import Answer, HandshakeServer, calls, paid
from tests.support.waiting import LIMIT, wait_until

SECRET = "sk-s3ntinel-4711"


def test_an_event_stream_that_always_ends_at_once_is_not_reopened_all_the_time(handshake_server: Any) -> None:
    server = handshake_server(calls(lambda _, message, __: paid(message)))
    server.stream = b"id: 1\nretry: 0\ndata:\n\n"
    with MCPConnection(StreamableHttpServerInfo(server.url)):
        wait_until(lambda: len(server.streamed) >= 5, "five streams")
    pauses = [after - before for before, after in itertools.pairwise(server.streamed)]
    assert min(pauses) >= 0.09  # no limit above: this only shows that it is not a loop without rest


def test_an_answer_to_the_server_that_it_does_not_take_holds_up_no_calls(handshake_server: Any) -> None:
    server = handshake_server(calls(lambda _, message, __: paid(message)))
    server.stream = b'data: {"jsonrpc":"2.0","id":77,"method":"ping"}\n\n'
    with MCPConnection(StreamableHttpServerInfo(server.url), invocation_timeout=LIMIT) as connection:
        assert server.answered.wait(LIMIT)
        assert connection.call_tool("pay").content[0].text == "paid"


@pytest.mark.parametrize("opens_stream", [False, True], ids=["silent", "stream"])
def test_a_call_that_was_given_up_leaves_no_request_behind(handshake_server: Any, opens_stream: bool) -> None:
    def answer(server: HandshakeServer, _message: dict[str, Any], _session: str | None) -> Answer:
        server.closing.wait(LIMIT)
        return 200, b"", None

    server = handshake_server(calls(answer))
    server.opens_streams = opens_stream
    tasks = asyncio.all_tasks
    with MCPConnection(StreamableHttpServerInfo(server.url), invocation_timeout=0.2) as connection:
        loop = AsyncExecutor.get_instance().get_loop()
        before = len(tasks(loop))
        for _ in range(5):
            with pytest.raises(MCPTimeoutError):
                connection.call_tool("pay")
        wait_until(lambda: len(tasks(loop)) <= before, lambda: f"{len(tasks(loop))} tasks instead of {before}")
