# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over HTTP in this process, of the era before 2026-07-28, whose answers a test sets.
"""

import json
from collections.abc import Callable
from typing import Any

import httpx2

from haystack_integrations.tools.mcp import StreamableHttpServerInfo

RESULTS: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": [{"name": "pay", "inputSchema": {"type": "object", "properties": {"key": {}}}}]},
    "tools/call": {"content": [{"type": "text", "text": "paid"}]},
}
Answer = Callable[["HandshakeServer", dict[str, Any]], httpx2.Response | None]


class HandshakeServer:
    """
    An HTTP server of the handshake era with the tool `pay`. A test may set its answers to calls and listings; without
    them, `pay` succeeds.

    `sessions` and `runs` count its sessions and its calls; `session` is the id of the request's session.
    """

    def __init__(self, answer: Answer, listing: Answer = lambda *_: None) -> None:
        self._answers = {"tools/call": answer, "tools/list": listing}
        self.sessions = 0
        self.runs = 0
        self.session: str | None = None

    def info(self, **parameters: Any) -> StreamableHttpServerInfo:
        """
        Return its server info.
        """
        transport = httpx2.MockTransport(self._respond)
        return StreamableHttpServerInfo("http://edge.test/mcp", http_transport=lambda **_: transport, **parameters)

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return httpx2.Response(405)
        message = json.loads(request.content)
        if "id" not in message:
            return httpx2.Response(202)
        if message["method"] == "initialize":
            self.sessions += 1
            result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "edge", "version": "1"}}
            answered = result_of(message, {**result, "capabilities": {"tools": {}}})
            answered.headers["mcp-session-id"] = f"session-{self.sessions}"
            return answered
        if message["method"] not in RESULTS:
            return error_of(message, -32601, "no", status=400)
        self.session = request.headers.get("mcp-session-id")
        self.runs += message["method"] == "tools/call"
        answered = self._answers[message["method"]](self, message)
        return result_of(message, RESULTS[message["method"]]) if answered is None else answered


def result_of(message: dict[str, Any], result: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": result})


def error_of(message: dict[str, Any], code: int, text: str, *, status: int = 200, data: Any = None) -> httpx2.Response:
    error = {"code": code, "message": text, "data": data}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": message["id"], "error": error})
