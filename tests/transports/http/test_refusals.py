# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Each case is an HTTP error response as servers send it, and what it says about the request and the session.
"""

import json
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp.transports.http.refusals import (
    SESSION_HEADER,
    SessionFate,
    has_content_type,
    is_event_stream,
    is_tool_call,
    judge_sse,
    judge_streamable_http,
)
from tests.support.rows import rows

ALIVE, LOST, DOUBTFUL = SessionFate.ALIVE, SessionFate.LOST, SessionFate.DOUBTFUL


def post(*, session: bool = True, method: str = "tools/call", request_id: Any = 7) -> httpx2.Request:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return httpx2.Request("POST", "http://mcp.test/mcp", json=message, headers={SESSION_HEADER: "s"} if session else {})


def answer(status: int, body: Any = "") -> httpx2.Response:
    if isinstance(body, str):
        return httpx2.Response(status, text=body)
    return httpx2.Response(status, json=body)


def error(message: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "error": {"code": -32000, "message": message}, **members}


class TestSSE:
    @rows(
        ("status", "never_ran", "denied"),
        [
            (400, False, False),
            (401, True, True),
            (403, True, True),
            (404, True, False),
            (405, True, True),
            (406, False, False),
            (410, True, False),
            (429, False, False),
            (500, False, False),
            (503, False, False),
        ],
    )
    def test_every_refusal_loses_the_session_and_some_prove_that_nothing_ran(
        self, status: int, *, never_ran: bool, denied: bool
    ) -> None:
        verdict = judge_sse(answer(status))
        assert (verdict.never_ran, verdict.denied, verdict.session) == (never_ran, denied, LOST)


class TestStreamableHttp:
    @rows(
        ("status", "body", "session"),
        [
            # 404 is the protocol's sign of an unknown session, whatever the body says.
            (404, "", LOST),
            (404, "Not Found", LOST),
            (404, error("Session not found", id=None), LOST),
            (404, error("Session terminated", id="server-error"), LOST),
            (404, {"id": "8", "error": {"message": "for another request"}}, LOST),
            # Unless whoever answers has seen the request.
            (404, error("Session not found", id=7), DOUBTFUL),
            (404, error("No such resource", id="7"), DOUBTFUL),
            # 400 counts if all it says is that the session is unknown.
            (400, "Bad Request: No valid session ID provided", LOST),
            (400, "  Bad Request: Missing session ID \n", LOST),
            (400, "Session not found", LOST),
            (400, "Invalid or missing session ID", LOST),
            (400, "Unknown MCP-Session", LOST),
            (400, "session '1f0e-22' has expired", LOST),
            (400, "MCP session id 1f0e is invalid!", LOST),
            (400, "Mcp-Session-Id header is required", LOST),
            (400, error("Bad Request: No valid session ID provided", id=None), LOST),
            (400, error("Bad Request: Server not initialized", id=None), LOST),
            (400, "Server not initialized", LOST),
            (400, error("Session not found"), LOST),
            (400, {"error": "unknown session"}, LOST),
            (400, {"message": "Session expired"}, LOST),
            # A text that says more may be that of the tool.
            (400, "Session not found in the database of the tool", DOUBTFUL),
            (400, "The cookie of your session is stale", DOUBTFUL),
            (400, "No session" + "!" * 191, DOUBTFUL),
            (400, "No session" + "!" * 190, LOST),
            # In any other words, it may be about the session.
            (400, error("Session not found", id=7), DOUBTFUL),
            (400, error("Session not found", id="7"), DOUBTFUL),
            (400, error("Not ready", id=7, error={"code": -32600, "message": "Not ready"}), DOUBTFUL),
            (400, "", DOUBTFUL),
            (400, "<html>Nobody knows</html>", DOUBTFUL),
            (400, "[" * 100_000, DOUBTFUL),
            (400, ["session"], DOUBTFUL),
            (400, error({"not": "text"}, id=None), DOUBTFUL),
            (401, "Unauthorized: Session not found", DOUBTFUL),
            (403, "Forbidden", DOUBTFUL),
            (405, "", DOUBTFUL),
            (409, "Conflict", DOUBTFUL),
            (410, "Session not found", DOUBTFUL),
            (422, "Unexpected message, expect initialize request", DOUBTFUL),
            (500, "Session not found", DOUBTFUL),
            (500, error("Server was not initialised", id=7), DOUBTFUL),
            # Unless it is from whoever processed the request.
            (400, error("", id=7, error={"code": -32602, "message": "No such session"}), ALIVE),
            (404, error("", id=7, error={"code": -32601, "message": "No such method"}), DOUBTFUL),
            (422, error("", id="7", error={"code": -32603, "message": "broken"}), ALIVE),
            # Everything else is about the request only.
            (413, "Session too large", ALIVE),
            (429, "Too many sessions", ALIVE),
            (500, "oops", ALIVE),
            (502, "Session not found", ALIVE),
            (503, "", ALIVE),
        ],
    )
    def test_the_session_is_lost_only_if_the_response_says_so(
        self, status: int, body: Any, session: SessionFate
    ) -> None:
        verdict = judge_streamable_http(post(), answer(status, body))
        assert verdict.session is session
        assert verdict.never_ran is (session is LOST)
        assert verdict.denied is False

    @pytest.mark.parametrize("status", [400, 403, 500])
    @pytest.mark.parametrize("method", ["notifications/initialized", "ping", "logging/setLevel", "unknown/method"])
    def test_the_refusal_of_what_servers_need_not_know_is_not_about_the_session(self, method: str, status: int) -> None:
        response = answer(status, "the session does not want that")
        assert judge_streamable_http(post(method=method), response).session is ALIVE

    def test_a_refusal_that_asks_for_authorization_is_not_about_the_session(self) -> None:
        response = httpx2.Response(401, headers={"WWW-Authenticate": "Bearer"})
        assert judge_streamable_http(post(), response).session is ALIVE

    @rows("status", [400, 401, 404, 500])
    def test_without_a_session_id_no_response_is_about_a_session(self, status: int) -> None:
        verdict = judge_streamable_http(post(session=False), answer(status, "Session not found"))
        assert (verdict.never_ran, verdict.session) == (False, ALIVE)

    @rows(("status", "session"), [(404, LOST), (400, DOUBTFUL)])
    def test_an_event_stream_is_not_read(self, status: int, session: SessionFate) -> None:
        class Unread(httpx2.AsyncByteStream):
            async def __aiter__(self) -> Any:
                pytest.fail("it was read")
                yield b""

        response = httpx2.Response(status, headers={"Content-Type": "text/event-stream"}, stream=Unread())
        assert judge_streamable_http(post(), response).session is session

    def test_a_body_that_is_not_utf_8_is_read_all_the_same(self) -> None:
        response = httpx2.Response(400, content=b"session \xff\xfe not found")
        assert judge_streamable_http(post(), response).session is DOUBTFUL


class TestRequestsAndResponses:
    @rows(("method", "expected"), [("tools/call", True), ("tools/list", False), ("notifications/cancelled", False)])
    def test_only_tools_call_is_a_tool_call(self, method: str, *, expected: bool) -> None:
        assert is_tool_call(post(method=method)) is expected

    def test_an_answer_of_the_client_is_no_tool_call(self) -> None:
        answered = httpx2.Request("POST", "http://mcp.test/mcp", content=json.dumps({"id": 1, "result": {}}))
        assert is_tool_call(answered) is False

    @rows(
        ("content_type", "expected"),
        [
            ("text/event-stream", True),
            ("Text/Event-Stream; charset=utf-8", True),
            ("application/json", False),
            ("", False),
        ],
    )
    def test_an_event_stream_is_recognised_by_its_content_type(self, content_type: str, *, expected: bool) -> None:
        assert is_event_stream(httpx2.Response(200, headers={"Content-Type": content_type})) is expected

    def test_a_response_without_a_content_type_has_none(self) -> None:
        assert has_content_type(httpx2.Response(200), "application/json") is False
