# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests that a server over HTTP refuses: which of them may be sent again, because the tool cannot have run.
"""

from contextlib import nullcontext
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError
from tests.support.handshake_server import HandshakeServer, error_of
from tests.support.rows import rows
from tests.support.waiting import LIMIT

FIRST = "session-1"


def rpc_error(message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}


@rows(
    "refusal",
    [
        httpx2.Response(400, text="could not store the row: the database session was rolled back"),
        404,  # with the id of the request
        200,
        httpx2.Response(200, json=rpc_error("Bad Request: Server not initialized")),
        httpx2.Response(202),
        httpx2.Response(302),
    ],
)
@pytest.mark.parametrize("recovers", [True, False])
def test_after_a_refusal_that_might_be_about_the_session_the_next_call_opens_a_new_one(
    refusal: Any, recovers: bool
) -> None:
    def answer(server: HandshakeServer, message: dict[str, Any]) -> httpx2.Response | None:
        if server.runs == 1 or (recovers and server.session != FIRST):
            return None
        return error_of(message, -32001, "Session not found", status=refusal) if isinstance(refusal, int) else refusal

    server = HandshakeServer(answer)
    with MCPConnection(server.info(base_delay=0.01), invocation_timeout=LIMIT) as connection:
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


@rows(
    "failure",
    [
        httpx2.Response(500, text="Internal Server Error"),
        httpx2.Response(504, text="upstream request timeout"),
        httpx2.Response(200, headers={"content-type": "application/json"}),
        httpx2.Response(200, text='data: {"error": "x"}\n\n', headers={"content-type": "text/event-stream"}),
    ],
)
def test_after_two_failures_of_the_server_in_a_row_the_next_call_opens_a_new_session(failure: httpx2.Response) -> None:
    def answer(server: HandshakeServer, _message: dict[str, Any]) -> httpx2.Response | None:
        if server.session != FIRST or server.runs not in (1, 3, 4):
            return None
        return httpx2.Response(failure.status_code, headers=failure.headers, content=failure.content)

    server = HandshakeServer(answer)
    with MCPConnection(server.info()) as connection:
        for fails in (True, False, True, True, False):
            assert server.sessions <= 1
            with pytest.raises(MCPInvocationError) if fails else nullcontext():
                connection.call_tool("pay")
    assert (server.sessions, server.runs) == (1 if failure.status_code == 504 else 2, 5)


def test_a_listing_that_is_refused_in_its_session_is_read_in_a_new_one() -> None:
    listed: list[str | None] = []

    def listing(server: HandshakeServer, _message: dict[str, Any]) -> httpx2.Response | None:
        listed.append(server.session)
        return httpx2.Response(400, text="Bad Request") if listed == [FIRST, FIRST] else None

    server = HandshakeServer(lambda *_: None, listing)
    with MCPConnection(server.info(base_delay=0.01)) as connection:
        connection.open()
        assert [tool.name for tool in connection.list_tools()] == ["pay"]
    assert server.sessions == 2


@rows(
    ("status", "text"),
    [
        (500, "no such session at the bank"),
        (200, "Invalid request parameters"),  # all that the Python SDK says of many faults
    ],
)
def test_an_error_of_the_tool_leaves_the_session_as_it_is(status: int, text: str) -> None:
    server = HandshakeServer(lambda _, message: error_of(message, -32602, text, status=status))
    with MCPConnection(server.info()) as connection:
        for _ in range(2):
            with pytest.raises(MCPInvocationError, match=text):
                connection.call_tool("pay")
    assert server.sessions == 1


@rows(
    "refusal",
    [
        httpx2.Response(404, html="<html>not here</html>"),
        httpx2.Response(400, json=rpc_error("Bad Request: Server not initialized")),
    ],
)
def test_a_call_refused_because_of_its_session_is_sent_again_in_a_new_one(refusal: httpx2.Response) -> None:
    server = HandshakeServer(lambda server, _: refusal if server.session == FIRST else None)
    with MCPConnection(server.info(base_delay=0.01)) as connection:
        assert connection.call_tool("pay").content[0].text == "paid"
    assert server.sessions == 2
