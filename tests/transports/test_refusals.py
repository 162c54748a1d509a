# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
HTTP error responses of real servers: what each one proves about the request and the session, and which requests may be
sent again because the tool cannot have run.
"""

import json
import logging
import re
from contextlib import nullcontext
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import Fate, ProtocolError, RefusedError
from haystack_integrations.tools.mcp.transports.refusals import UNKNOWN_SESSION, settle_refusal
from tests.support.handshake_server import HandshakeServer, error_of
from tests.support.rows import rows
from tests.support.waiting import LIMIT

ALIVE, LOST, DOUBTFUL = None, UNKNOWN_SESSION, "the server seems to have lost the session"


def judged(
    response: httpx2.Response, *, session: bool = True, method: str = "tools/call"
) -> tuple[str | None, Exchange]:
    exchange = Exchange(7, method)
    exchange.mark_sent()
    reason, _ = settle_refusal(response, response.content, exchange, has_session=session)
    return reason, exchange


def failure(exchange: Exchange) -> Any:
    return exchange.answer.exception()


def answer(status: int, body: Any = "") -> httpx2.Response:
    if isinstance(body, str):
        return httpx2.Response(status, text=body)
    return httpx2.Response(status, json=body)


def error(message: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": {"code": -32000, "message": message}, **members}


class TestFates:
    @rows(
        ("status", "headers", "body", "fate"),
        *[(status, {}, "no", Fate.REFUSED) for status in (401, 403, 404, 405, 406, 410, 413, 415, 421, 429)],
        *[(status, {}, "no", Fate.LOST) for status in (400, 408, 409, 422, 500, 502, 503, 504)],
        (503, {"Retry-After": "7"}, "no", Fate.REFUSED),
        (429, {"Retry-After": "7"}, "no", Fate.REFUSED),
        (500, {"Retry-After": "7"}, "no", Fate.LOST),
    )
    async def test_a_status_shows_whether_the_request_can_have_run(self, status, headers, body, fate):
        session, exchange = judged(httpx2.Response(status, headers=headers, text=body), session=False)
        assert (exchange.fate, session) == (fate, None)
        error = failure(exchange)
        assert error.status.startswith(str(status)) and f"HTTP {status}" in error.reason
        assert getattr(error, "is_final", True)

    @rows("status", 400, 401, 404, 500)
    @rows("request_id", 7, "7")
    async def test_an_error_with_the_id_of_the_request_is_its_answer(self, status: int, request_id: Any) -> None:
        body = {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32602, "message": "no such tool", "data": 5}}
        _, exchange = judged(answer(status, body), session=False)
        error = failure(exchange)
        assert exchange.fate is Fate.ANSWERED and isinstance(error, ProtocolError)
        assert (error.code, error.message, error.data) == (-32602, "no such tool", 5)
        assert error.status is not None and error.status.startswith(str(status))

    async def test_an_error_without_an_id_is_the_answer_unless_the_status_denies_the_request(self) -> None:
        _, exchange = judged(answer(400, error("bad", id=None)), session=False)
        assert exchange.fate is Fate.ANSWERED
        _, exchange = judged(answer(401, error("who are you?", id=None)), session=False)
        denied = failure(exchange)
        assert isinstance(denied, RefusedError) and denied.is_final
        assert (denied.reason, denied.server_text) == ("the server answered with HTTP 401 Unauthorized", "who are you?")
        _, exchange = judged(answer(401, ""))
        assert failure(exchange).server_text == "the token or the headers of this call are missing, wrong or expired"

    @rows(
        ("body", "said"),
        ({"message": "You need the scope mail.read"}, "You need the scope mail.read"),
        ({"error": {"message": "Your plan has expired", "code": 7}}, "Your plan has expired"),
        ({"detail": "Missing tenant"}, '{"detail":"Missing tenant"}'),
        ("upstream unavailable", "upstream unavailable"),
        ("Forbidden", ""),
        ("x" * 300, f"{'x' * 200}..."),
        ("", ""),
    )
    async def test_the_text_of_the_body_is_kept_apart_from_the_reason(self, body: Any, said: str) -> None:
        _, exchange = judged(answer(403, body))
        denied = failure(exchange)
        assert (denied.reason, denied.server_text) == ("the server answered with HTTP 403 Forbidden", said)
        _, exchange = judged(httpx2.Response(502, html="<html>Bad Gateway</html>"))
        assert failure(exchange).server_text == ""

    @rows(
        ("location", "reason"),
        ("https://me:s3cret@login.test/?next=s3cret#s3cret", "Redirect to https://login.test/ not followed; use that"),
        ("http://mcp.test/mcp", "Redirect to http://mcp.test/mcp not followed: it leaves TLS. "),
        ("http://[::1", "the server answered with HTTP 302 Found"),
    )
    async def test_a_redirect_to_another_origin_is_a_refusal_that_names_the_target(
        self, location: str, reason: str
    ) -> None:
        request = httpx2.Request("POST", "https://mcp.test/mcp")
        _, exchange = judged(httpx2.Response(302, headers={"Location": location}, request=request))
        error = failure(exchange)
        assert exchange.fate is Fate.REFUSED and error.is_final
        assert error.reason.startswith(reason) and "s3cret" not in error.reason


class TestStreamableHttp:
    @rows(
        ("status", "body", "session"),
        # In the protocol, 404 means an unknown session, whatever the body says.
        (404, "", LOST),
        (404, error("Session not found", id=None), LOST),
        (404, {"id": "8", "error": {"message": "for another request"}}, LOST),
        # The exception is an answer from a server that has seen the request.
        (404, error("Session not found", id=7), DOUBTFUL),
        # 400 counts if its whole text is that the session is unknown.
        (400, "Bad Request: No valid session ID provided", LOST),
        (400, "Session not found", LOST),
        (400, "Invalid or missing session ID", LOST),
        (400, "session '1f0e-22' has expired", LOST),
        (400, "Mcp-Session-Id header is required", LOST),
        (400, error("Bad Request: Server not initialized", id=None), LOST),
        (400, "Received request before initialization was complete", LOST),
        (400, {"error": "unknown session"}, LOST),
        (400, "The provided SessionId was not found or has expired, please re-initialize your connection.", LOST),
        (400, "Session 1f0e-22 has been terminated. Please reinitialize", LOST),
        # A longer text may be the tool's.
        (400, "Session not found in the database of the tool", DOUBTFUL),
        (400, "Session not found, please re-initialize the tool", DOUBTFUL),
        (400, "No session" + "!" * 191, DOUBTFUL),
        (400, "No session" + "!" * 190, LOST),
        # With any other text, it may be about the session.
        (400, error("Session not found", id=7), DOUBTFUL),
        (400, error("Not ready", id=7, error={"code": -32600, "message": "Not ready"}), DOUBTFUL),
        (400, {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "error": "Session expired"}, DOUBTFUL),
        (400, "", DOUBTFUL),
        (400, ["session"], DOUBTFUL),
        (400, error({"not": "text"}, id=None), DOUBTFUL),
        (401, "Unauthorized: Session not found", DOUBTFUL),
        (422, "Unexpected message, expect initialize request", DOUBTFUL),
        (500, "Session not found", DOUBTFUL),
        (500, error("Server was not initialised", id=7), DOUBTFUL),
        # The exception is an error of the code that processed the request.
        (400, error("", id=7, error={"code": -32602, "message": "No such session"}), ALIVE),
        (404, error("", id=7, error={"code": -32601, "message": "No such method"}), DOUBTFUL),
        (422, error("", id="7", error={"code": -32603, "message": "broken"}), ALIVE),
        # All others are only about the request.
        (413, "Session too large", ALIVE),
        (500, "oops", ALIVE),
        (503, "", ALIVE),
    )
    async def test_the_session_is_lost_only_if_the_response_says_so(self, status, body, session):
        found, exchange = judged(answer(status, body))
        assert found == session
        assert exchange.is_settled
        if session is LOST:
            assert exchange.fate is Fate.REFUSED

    @rows("status", 400, 401, 403, 404, 500)
    async def test_not_every_refusal_is_about_the_session(self, status: int) -> None:
        # Refusals of messages that servers need not support are not,
        for method in ("notifications/initialized", "ping", "logging/setLevel", "unknown/method"):
            if status != 404:
                assert judged(answer(status, "the session does not want that"), method=method)[0] is ALIVE
        # nor those without a session,
        assert judged(answer(status, "Session not found"), session=False)[0] is ALIVE
        # nor those that ask for authorization.
        challenge = httpx2.Response(401, headers={"WWW-Authenticate": "Bearer"})
        assert judged(challenge)[0] is ALIVE


FIRST = "session-1"


def rpc_error(message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}


@rows(
    "refusal",
    httpx2.Response(400, text="could not store the row: the database session was rolled back"),
    404,  # with the id of the request
    200,
    httpx2.Response(200, json=rpc_error("Bad Request: Server not initialized")),
    httpx2.Response(202),
    httpx2.Response(302),
)
@pytest.mark.parametrize("recovers", [True, False])
def test_after_a_refusal_that_may_be_about_the_session_the_next_call_opens_a_new_session(refusal, recovers):
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
    httpx2.Response(500, text="Internal Server Error"),
    httpx2.Response(504, text="upstream request timeout"),
    httpx2.Response(200, headers={"content-type": "application/json"}),
    httpx2.Response(200, text='data: {"error": "x"}\n\n', headers={"content-type": "text/event-stream"}),
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


def test_a_listing_that_is_refused_in_its_session_is_read_in_a_new_session() -> None:
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
    (500, "no such session at the bank"),
    (200, "Invalid request parameters"),  # the Python SDK's text for many faults
)
def test_an_error_of_the_tool_does_not_affect_the_session(status: int, text: str) -> None:
    server = HandshakeServer(lambda _, message: error_of(message, -32602, text, status=status))
    with MCPConnection(server.info()) as connection:
        for _ in range(2):
            with pytest.raises(MCPInvocationError, match=text):
                connection.call_tool("pay")
    assert server.sessions == 1


@pytest.mark.parametrize("status", [400, 403, 429, 500])
def test_only_the_refused_caller_sees_the_text_of_the_server(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = "the account A-4711 is blocked"
    server = HandshakeServer(lambda *_: httpx2.Response(status, json={"message": said}))
    with MCPConnection(server.info(base_delay=0.01)) as connection:
        for _ in range(5):
            with pytest.raises(MCPInvocationError, match=rf"HTTP {status} [^:]+: {said}\. The tool ") as failure:
                connection.call_tool("pay")
        if status != 403:  # after the fifth failure, no call is sent
            with pytest.raises(MCPInvocationError, match=f"The last one: .*HTTP {status}") as failure:
                connection.call_tool("pay")
            assert "A-4711" not in str(failure.value)
    assert "A-4711" not in caplog.text


@rows(
    ("refusal", "said"),
    (httpx2.Response(400, json=rpc_error("No tenant was named")), "HTTP 400 Bad Request: No tenant was named."),
    # as older releases of the TypeScript SDK refuse a second client of a transport: without a content type
    (httpx2.Response(400, content=json.dumps(rpc_error("Server already initialized"))), "HTTP 400 Bad Request: Server"),
    (httpx2.Response(404, json=rpc_error("No server foo")), "HTTP 404 Not Found: No server foo."),
    (httpx2.Response(500, json=rpc_error("The disk is full")), "HTTP 500 Internal Server Error: The disk is full."),
    (httpx2.Response(403, json={"message": "MCP is off for acme"}), "HTTP 403 Forbidden: MCP is off for acme."),
)
def test_the_error_of_a_failed_connect_quotes_the_server(refusal: httpx2.Response, said: str) -> None:
    transport = httpx2.MockTransport(lambda _: refusal)
    info = StreamableHttpServerInfo("http://edge.test/mcp", http_transport=lambda **_: transport)
    with pytest.raises(MCPConnectionError, match=re.escape(f": it answered with {said}")):
        MCPConnection(info).open()


@pytest.mark.parametrize("status", [200, 500])
def test_the_servers_text_in_a_refused_connect_is_not_shown_to_other_users(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        return error_of(json.loads(request.content), -32000, "the account A-4711 is blocked", status=status)

    transport = httpx2.MockTransport(refuse)
    info = StreamableHttpServerInfo("http://edge.test/mcp", http_transport=lambda **_: transport, max_retries=0)
    connection = MCPConnection(info)
    for _ in range(5):
        with pytest.raises(MCPInvocationError, match="A-4711"):
            connection.call_tool("pay")
    with pytest.raises(MCPInvocationError, match=r"is left alone .*it answered with ") as failure:
        connection.call_tool("pay")
    assert "A-4711" not in str(failure.value) + caplog.text


@rows(
    "refusal",
    httpx2.Response(404, html="<html>not here</html>"),
    httpx2.Response(400, json=rpc_error("Bad Request: Server not initialized")),
)
def test_a_call_refused_because_of_its_session_is_sent_again_in_a_new_one(
    refusal: httpx2.Response, caplog: pytest.LogCaptureFixture
) -> None:
    server = HandshakeServer(lambda server, _: refusal if server.session == FIRST else None)
    with caplog.at_level("INFO"), MCPConnection(server.info(base_delay=0.01)) as connection:
        assert connection.call_tool("pay").content[0].text == "paid"
    assert server.sessions == 2 and f"({UNKNOWN_SESSION}); sending it again" in caplog.text


@rows("use", lambda connection: connection.call_tool("pay"), lambda connection: connection.list_tools())
def test_a_request_whose_last_attempt_meets_a_restarted_server_is_sent_again_in_a_new_session(use: Any) -> None:
    attempts: list[httpx2.Response | Exception] = []

    def restarting(server: HandshakeServer, _message: dict[str, Any]) -> httpx2.Response | None:
        answered = attempts.pop(0) if attempts and server.session == FIRST else None
        if isinstance(answered, Exception):
            raise answered
        return answered

    server = HandshakeServer(restarting, restarting)
    with MCPConnection(server.info(max_retries=2, base_delay=0.01)) as connection:
        attempts += [httpx2.ConnectError("down"), httpx2.ConnectError("down"), httpx2.Response(404)]
        use(connection)
    assert server.sessions == 2


@pytest.mark.parametrize("at_connect", [True, False])
def test_the_error_for_sessions_that_only_one_of_several_workers_knows_names_the_cause(at_connect: bool) -> None:
    def other_worker(_server: HandshakeServer, _message: dict[str, Any]) -> httpx2.Response:
        return httpx2.Response(404, json=rpc_error("Session not found"))

    server = HandshakeServer(other_worker, other_worker) if at_connect else HandshakeServer(other_worker)
    with pytest.raises((MCPConnectionError, MCPInvocationError), match="one worker of several only; use sticky"):
        with MCPConnection(server.info(base_delay=0.01)) as connection:
            connection.call_tool("pay")
