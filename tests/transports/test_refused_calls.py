# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests that a server over HTTP refuses: which of them may be sent again, because the tool cannot have run.
"""

from contextlib import nullcontext
from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError, StreamableHttpServerInfo
from tests.support.handshake_server import Answer, HandshakeServer, calls, paid, result_of
from tests.support.waiting import LIMIT


def rpc_error(message: str, code: int = -32000, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": {"code": code, "message": message}, **members}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b"could not store the row: the database session was rolled back"),
        (404, rpc_error("Session not found", -32001, id="own")),  # with the id of the request
        (200, rpc_error("Session not found", id="own")),
        (200, rpc_error("Bad Request: Server not initialized", id=None)),
        (202, b""),
        (302, b""),
    ],
)
@pytest.mark.parametrize("recovers", [True, False])
def test_after_a_refusal_that_might_be_about_the_session_the_next_call_opens_a_new_one(
    handshake_server: Any, status: int, body: Any, *, recovers: bool
) -> None:
    def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        if server.runs == 1 or (recovers and session != "session-1"):
            return paid(message)
        own = isinstance(body, dict) and body.get("id") == "own"
        return status, {**body, "id": message["id"]} if own else body, None

    server = handshake_server(calls(answer))
    with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01), invocation_timeout=LIMIT) as connection:
        assert connection.call_tool("pay").content[0].text == "paid"
        for attempt in range(1, 4):
            before = server.runs
            if recovers and attempt > 1:
                assert connection.call_tool("pay").content[0].text == "paid"
            else:
                with pytest.raises(MCPInvocationError):
                    connection.call_tool("pay")
            assert server.runs == before + 1  # never twice
            assert server.sessions == (min(attempt, 2) if recovers else attempt)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"Internal Server Error"),
        (504, b"upstream request timeout"),
        (200, b""),
        (200, b'data: {"error": "Session not found"}\n\n'),
    ],
)
def test_after_two_failures_of_the_server_in_a_row_the_next_call_opens_a_new_session(handshake_server, status, body):
    def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        return (status, body, None) if session == "session-1" and server.runs in (1, 3, 4) else paid(message)

    server = handshake_server(calls(answer))
    if isinstance(body, bytes) and body.startswith(b"data:"):
        server.content_type = "text/event-stream"
    with MCPConnection(StreamableHttpServerInfo(server.url)) as connection:
        for fails in (True, False, True, True, False):
            assert server.sessions <= 1
            with pytest.raises(MCPInvocationError) if fails else nullcontext():
                connection.call_tool("pay")
    assert (server.sessions, server.runs) == (1 if status == 504 else 2, 5)


def test_a_listing_that_is_refused_in_its_session_is_read_in_a_new_one(handshake_server: Any) -> None:
    def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        server.runs += 1
        if server.runs > 1 and session == "session-1":
            return 400, b"Bad Request", None
        return 200, result_of(message, {"tools": []}), None

    server = handshake_server(answer)
    with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
        connection.open()
        assert connection.list_tools() == []
    assert server.sessions == 2


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, "no such session at the bank"),
        (200, "Invalid request parameters"),  # all that the Python SDK says of many faults
    ],
)
def test_an_error_of_the_tool_leaves_the_session_as_it_is(handshake_server: Any, status: int, text: str) -> None:
    server = handshake_server(calls(lambda _, message, __: (status, rpc_error(text, -32602, id=message["id"]), None)))
    with MCPConnection(StreamableHttpServerInfo(server.url)) as connection:
        for _ in range(2):
            with pytest.raises(MCPInvocationError, match=text):
                connection.call_tool("pay")
    assert server.sessions == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>not here</html>"),
        (400, rpc_error("Bad Request: Server not initialized", id=None)),
    ],
)
def test_a_call_refused_because_of_its_session_is_sent_again_in_a_new_one(handshake_server, status, body):
    def answer(_server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        return (status, body, None) if session == "session-1" else paid(message)

    server = handshake_server(calls(answer))
    with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
        assert connection.call_tool("pay").content[0].text == "paid"
    assert server.sessions == 2
