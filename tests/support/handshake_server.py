# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over HTTP in this process, of the era before 2026-07-28, that answers as a test wants.
"""

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import LIMIT

Answer = tuple[int, dict[str, Any] | bytes, str | None]


class HandshakeServer:
    """
    An HTTP server of the 2025 era whose answers to `tools/list` and `tools/call` a test decides.
    """

    def __init__(self, answer: Callable[["HandshakeServer", dict[str, Any], str | None], Answer]) -> None:
        self.sessions = 0
        self.runs = 0
        # Headers of errors, and the type of bodies that are bytes.
        self.refusal_headers: dict[str, str] = {}
        self.content_type = "application/json"
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: Any) -> None:
                pass

            def _send(self, status: int, body: dict[str, Any] | bytes, session: str | None = None) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                content_type = owner.content_type if isinstance(body, bytes) else "application/json"
                headers = {"content-type": content_type, **(owner.refusal_headers if status >= 300 else {})}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                if session:
                    self.send_header("mcp-session-id", session)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                self._send(405, b"")

            do_DELETE = do_GET  # noqa: N815 - as they are called

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if message.get("method") == "initialize":
                    owner.sessions += 1
                    result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "edge", "version": "1"}}
                    answered = result_of(message, {**result, "capabilities": {"tools": {}}})
                    self._send(200, answered, f"session-{owner.sessions}")
                elif "id" not in message:
                    self._send(202, b"")
                elif message["method"] in ("tools/list", "tools/call"):
                    self._send(*answer(owner, message, self.headers.get("mcp-session-id")))
                else:
                    self._send(400, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def use_tls(self, context: ssl.SSLContext) -> None:
        """
        Speak TLS from the next connection on, and answer one request over each.
        """

        def get_request() -> tuple[ssl.SSLSocket, Any]:
            connection, address = self._server.socket.accept()
            return context.wrap_socket(connection, server_side=True), address

        self._server.get_request = get_request
        self._server.RequestHandlerClass.protocol_version = "HTTP/1.0"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(LIMIT)
        self._server.server_close()


def result_of(message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def calls(answer: Callable[[HandshakeServer, dict[str, Any], str | None], Answer]) -> Callable[..., Answer]:
    """
    Answer calls as a test wants, and listings with the tools `pay` and `wait`.
    """
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pay", "wait")]

    def respond(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": tools}), None
        server.runs += 1
        return answer(server, message, session)

    return respond


def paid(message: dict[str, Any]) -> Answer:
    """
    The result of a tool that did what it should.
    """
    return 200, result_of(message, {"content": [{"type": "text", "text": "paid"}]}), None
