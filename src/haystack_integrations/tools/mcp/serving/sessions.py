# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What becomes of sessions where several processes answer.

Clients that speak 2026-07-28 have none. The session of an older one lives in one process: another one cannot know it,
and where no process keeps any, what needs a session is refused with an error that says how to get one.
"""

from __future__ import annotations

import json
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from mcp.server.request_state import RequestStateBoundary
from mcp.shared.exceptions import NoBackChannelError
from mcp.types import INVALID_REQUEST, CallToolRequestParams
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haystack_integrations.tools.mcp.serving.approvals import request_state_security
from haystack_integrations.tools.mcp.serving.low_level import low_level_server

_SESSION_HEADER = b"mcp-session-id"

_PIN = (
    "Use a client that speaks the protocol of 2026-07-28; or run one process per port without `stateless`, and let the "
    "load balancer pin clients by the header `Mcp-Session-Id`"
)
_UNKNOWN_SESSION = (
    "Session not found: it has ended, or lives in another process. Initialize a new one. If several processes serve "
    "this address, the load balancer must pin clients by the header `Mcp-Session-Id`"
)
_NO_STREAM = f"This server keeps no sessions, so it has no stream of notifications outside of calls. {_PIN}"


class ExplainSessions:
    """
    Says what to do about a session that is not known here, or that no process would know.
    """

    def __init__(self, app: ASGIApp, path: str, *, stateless: bool) -> None:
        """
        Initialize the ExplainSessions.

        :param app: The application.
        :param path: The path of the endpoint.
        :param stateless: Whether no sessions are kept.
        """
        self._app = app
        self._path = path
        self._stateless = stateless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Answer a request.

        :param scope: What is asked.
        :param receive: Gives its body.
        :param send: Takes the answer.
        """
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        if self._stateless and scope["method"] == "GET":
            await _error(405, _NO_STREAM, {"allow": "POST, DELETE"})(scope, receive, send)
            return
        if not any(name == _SESSION_HEADER for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        is_unknown = False

        async def explain(message: Message) -> None:
            nonlocal is_unknown
            if message["type"] == "http.response.start" and message["status"] == 404:  # noqa: PLR2004
                is_unknown = True
            elif not is_unknown:
                await send(message)

        await self._app(scope, receive, explain)
        if is_unknown:
            await _error(404, _UNKNOWN_SESSION)(scope, receive, send)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": message}}
    return Response(json.dumps(body), status_code=status, media_type="application/json", headers=headers)


class RefuseQuestions(Middleware):
    """
    Says why a call failed that asked an older client something, on a server that keeps no sessions.
    """

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """
        Call a tool.

        :param context: The call.
        :param call_next: Makes it.
        :returns: Its result.
        :raises ToolError: If it asked the client something.
        """
        try:
            return await call_next(context)
        except Exception as error:
            question = _question_of(error)
            if question is None:
                raise
            msg = f"This server keeps no sessions, so it cannot ask its client anything ({question.method}). {_PIN}"
            raise ToolError(msg) from error


def _question_of(error: BaseException | None) -> NoBackChannelError | None:
    """
    Find what was asked behind an error that does not tell.
    """
    while error is not None and not isinstance(error, NoBackChannelError):
        error = error.__cause__ or error.__context__
    return error


def share_key(server: FastMCP[Any]) -> None:
    """
    Have a worker read what another one has given a client to keep, unless its server has keys of its own.

    `create_mcp_server` does that by itself; a server of FastMCP has a key that no other process knows.

    :param server: The server of this worker.
    """
    security = request_state_security()
    if security is None or getattr(server, "_request_state_security", None) is not None:
        return
    low_level = low_level_server(server)
    shared = RequestStateBoundary(security, default_audience=low_level.name)
    low_level.middleware[:] = [
        shared if isinstance(each, RequestStateBoundary) else each for each in low_level.middleware
    ]
