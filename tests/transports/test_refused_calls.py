# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests that a server over HTTP refuses: which of them may be sent again, because the tool cannot have run.
"""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    StreamableHttpServerInfo,
)
from tests.support.background import in_thread
from tests.support.handshake_server import Answer, HandshakeServer, result_of
from tests.support.waiting import LIMIT, wait_until

SECRET = "sk-s3ntinel-4711"


def test_a_refused_listing_after_a_call_does_not_make_the_call_run_again(handshake_server: Any) -> None:
    def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        if message["method"] == "tools/call":
            server.runs += 1
            return 200, result_of(message, {"content": [{"type": "text", "text": "charged"}]}), None
        if server.runs and session == "session-1":
            error = {"code": -32600, "message": "Session not found"}
            return 404, {"jsonrpc": "2.0", "id": None, "error": error}, None
        return 200, result_of(message, {"tools": []}), None

    server = handshake_server(answer)
    with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
        # The SDK would list the tools, to check the result of one that it has not seen.
        assert connection.call_tool("charge_card").content[0].text == "charged"
    assert server.runs == 1


def refusing(refusal: Callable[[dict[str, Any]], Answer]) -> Callable[..., Answer]:
    """
    Runs the tool and refuses the request all the same, in the first session.
    """

    def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}), None
        server.runs += 1
        if session == "session-1":
            return refusal(message)
        return 200, result_of(message, {"content": [{"type": "text", "text": "paid"}]}), None

    return answer


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (400, b"could not store the row: the database session was rolled back", "HTTP 400"),
        (400, {"error": "upstream session expired after the order was placed"}, "HTTP 400"),
        (400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "no session left"}}, "session"),
        (400, {"jsonrpc": "2.0", "id": "own", "error": {"code": -32603, "message": "Session not found"}}, "found"),
        (404, {"jsonrpc": "2.0", "id": "own", "error": {"code": -32002, "message": "no such resource"}}, "such"),
    ],
)
def test_a_refusal_that_is_not_clearly_about_the_session_does_not_make_the_call_run_again(
    handshake_server: Any, status: int, body: Any, says: str
) -> None:
    def refusal(message: dict[str, Any]) -> Answer:
        own = isinstance(body, dict) and body.get("id") == "own"
        return status, {**body, "id": message["id"]} if own else body, None

    server = handshake_server(refusing(refusal))
    with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
        with pytest.raises(MCPInvocationError, match=says) as raised:
            connection.call_tool("pay")
        assert "did not run" not in str(raised.value)
        assert server.runs == 1
        assert connection.status().failed_calls == 1


def rpc_error(message: str, code: int = -32000, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": {"code": code, "message": message}, **members}


# With the id of the request where it is "own".
DOUBTFUL = [
    (400, b"could not store the row: the database session was rolled back"),
    (400, b""),
    (400, b"<html>Bad Request</html>"),
    (400, rpc_error("The server has no idea", id=None)),
    (400, rpc_error("Not initialized yet", -32600, id="own")),
    (401, b"Unauthorized: Session not found"),
    (403, b"Forbidden"),
    (404, rpc_error("Session not found", -32001, id="own")),
    (409, b"Conflict"),
    (410, {"detail": "Gone"}),
    (422, b"Unexpected message, expect initialize request"),
    (500, {"error": "no such session"}),
    (200, rpc_error("Session not found", id="own")),
    (200, rpc_error("Bad Request: Server not initialized", id=None)),
    (202, b""),
    (302, b""),
]


@pytest.mark.parametrize(("status", "body"), DOUBTFUL)
@pytest.mark.parametrize("recovers", [True, False])
def test_after_a_refusal_that_might_be_about_the_session_the_next_call_opens_a_new_one(
    handshake_server: Any, status: int, body: Any, *, recovers: bool
) -> None:
    def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}), None
        server.runs += 1
        if server.runs == 1 or (recovers and session != "session-1"):
            return 200, result_of(message, {"content": [{"type": "text", "text": "paid"}]}), None
        own = isinstance(body, dict) and body.get("id") == "own"
        return status, {**body, "id": message["id"]} if own else body, None

    server = handshake_server(answer)
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
        (500, rpc_error("Error handling POST request", -32603, id="x")),
        (502, b"<html>Bad Gateway</html>"),
        (503, b"no healthy upstream"),
        (504, b"upstream request timeout"),
        (200, b""),
        (200, {"error": "Session not found"}),
        (200, b'data: {"error": "Session not found"}\n\n'),
    ],
)
def test_after_two_failures_of_the_server_in_a_row_the_next_call_opens_a_new_session(
    handshake_server: Any, status: int, body: Any
) -> None:
    def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": []}), None
        server.runs += 1
        if session == "session-1" and server.runs in (1, 3, 4):
            return status, body, None
        return 200, result_of(message, {"content": []}), None

    server = handshake_server(answer)
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
        (400, "no such session at the bank"),
        (500, "no such session at the bank"),
        (200, "Invalid request parameters"),  # all that the Python SDK says of many faults
    ],
)
def test_an_error_of_the_tool_leaves_the_session_as_it_is(handshake_server: Any, status: int, text: str) -> None:
    def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": []}), None
        return status, rpc_error(text, -32602, id=message["id"]), None

    server = handshake_server(answer)
    with MCPConnection(StreamableHttpServerInfo(server.url)) as connection:
        for _ in range(2):
            with pytest.raises(MCPInvocationError, match=text):
                connection.call_tool("pay")
    assert server.sessions == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>not here</html>"),
        (404, {"error": "Session not found"}),
        (400, b"Invalid or missing session ID"),
        (400, b"Session not found."),
        (400, {"error": "Invalid session ID"}),
        (400, {"message": "Session 0f3a-77 is unknown"}),
        (400, {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: Session expired"}}),
        (
            400,
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: Server not initialized"}},
        ),
        (400, {"jsonrpc": "2.0", "id": "", "error": {"code": -32000, "message": "Mcp-Session-Id header required"}}),
    ],
)
def test_a_call_refused_because_of_its_session_is_sent_again_in_a_new_one(
    handshake_server: Any, status: int, body: Any
) -> None:
    server = handshake_server(refusing(lambda _message: (status, body, None)))
    with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
        assert connection.call_tool("pay").content[0].text == "paid"
    assert server.sessions == 2


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-encoding": "gzip"}, b"no gzip"),
        ({"content-type": "text/plain; charset=undefined"}, b"no session"),
        ({"content-type": "application/json"}, b"[" * 200_000),
        ({"content-type": "application/json"}, b"\xff\xfe"),
    ],
    ids=["gzip", "charset", "nested", "bytes"],
)
def test_a_refusal_that_cannot_be_read_harms_no_other_call(
    handshake_server: Any, status: int, headers: dict[str, str], body: bytes
) -> None:
    def answer(server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
        if message["method"] == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pay", "wait")]
            return 200, result_of(message, {"tools": tools}), None
        server.runs += 1
        if message["params"]["name"] == "wait":
            assert refused.wait(LIMIT)
            return 200, result_of(message, {"content": [{"type": "text", "text": "waited"}]}), None
        return status, body, None

    refused = threading.Event()
    server = handshake_server(answer)
    server.refusal_headers = headers
    with MCPConnection(StreamableHttpServerInfo(server.url, max_retries=0)) as connection:
        other = in_thread(connection.call_tool, "wait")
        wait_until(lambda: server.runs == 1, "the other call")
        with pytest.raises(MCPInvocationError):
            connection.call_tool("pay")
        refused.set()
        assert other.result(timeout=LIMIT).content[0].text == "waited"


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (500, b"oops", "text/plain"),
        (502, b"<html>Bad Gateway</html>", "text/html"),
        (504, b"", "application/json"),
        (200, b"<html>Please log in</html>", "text/html; charset=utf-8"),
        (200, b"<html>Please log in</html>", "application/json"),
        (200, b"", "text/plain"),
        (200, b"", ""),
        (200, b'{"jsonrpc": "2.0", "id":', "application/json"),
        (200, b"", "application/json"),
        (202, b"", "application/json"),
    ],
)
def test_a_response_without_an_answer_to_a_call_says_that_the_tool_may_have_run(
    handshake_server, status, body, content_type
):
    def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}), None
        return status, body, None

    server = handshake_server(answer)
    server.content_type = content_type
    info = StreamableHttpServerInfo(server.url, max_retries=2, base_delay=0.01)
    said = (
        "content of the type 'text/html.*may have run" if status == 200 and "html" in content_type else "may have run"
    )
    with MCPConnection(info, invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match=said):
            connection.call_tool("pay")
        assert connection.status().calls == 1
