# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over HTTP in this process that keeps sessions and costs next to nothing, for thousands of them.
"""

import asyncio
import contextlib
import json
import socket
import threading
from typing import Any, Self

_INFO = {"name": "sessions", "version": "1"}
_TOOLS = [{"name": "whoami", "inputSchema": {"type": "object"}}]


class SessionServer:
    """
    `whoami` tells the token of the message. `open_sessions` has the token that opened each session that is not ended.

    `crossed` counts messages in sessions that another token opened, or none. `ended` has the tokens of their ends.
    """

    def __init__(self) -> None:
        self.open_sessions: dict[str, str] = {}
        self.most_sessions = 0
        self.crossed = 0
        self.ended: list[str] = []
        self._count = 0
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(1024)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    async def _serve(self) -> None:
        open_now: set[asyncio.Transport] = set()
        server = await self._loop.create_server(lambda: _Messages(self, open_now), sock=self._listener)
        await self._end.wait()
        server.close()
        for transport in list(open_now):
            transport.abort()
        await server.wait_closed()

    def answer(self, method: str, headers: dict[str, str], body: bytes) -> tuple[str, dict[str, str], bytes]:
        """
        Give the status, the headers and the body for a request.
        """
        if method == "GET":
            return "405 Method Not Allowed", {}, b""
        token, session = headers.get("authorization", ""), headers.get("mcp-session-id", "")
        message = json.loads(body) if body else {}
        if message.get("method") == "initialize":
            self._count += 1
            session = f"session-{self._count}"
            self.open_sessions[session] = token
            self.most_sessions = max(self.most_sessions, len(self.open_sessions))
            version = message["params"]["protocolVersion"]
            result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _INFO}
            return "200 OK", {"mcp-session-id": session}, _reply(message, result)
        if message.get("method") == "server/discover":
            return "400 Bad Request", {}, b""
        self.crossed += self.open_sessions.get(session) != token
        if method == "DELETE":
            self.open_sessions.pop(session, None)
            self.ended.append(token)
            return "200 OK", {}, b""
        if "id" not in message:
            return "202 Accepted", {}, b""
        if message["method"] == "tools/list":
            return "200 OK", {}, _reply(message, {"tools": _TOOLS})
        return "200 OK", {}, _reply(message, {"content": [{"type": "text", "text": token}]})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        self._loop.close()
        with contextlib.suppress(OSError):
            self._listener.close()


def _reply(message: dict[str, Any], result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


class _Messages(asyncio.Protocol):
    """HTTP/1.1 with connections that stay open."""

    def __init__(self, server: SessionServer, open_now: set[asyncio.Transport]) -> None:
        self._server = server
        self._open_now = open_now
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._open_now.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_now.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, rest = self._received.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            body, self._received = rest[:length], rest[length:]
            status, more, reply = self._server.answer(first.partition(" ")[0], headers, body)
            more = {"content-type": "application/json", "content-length": str(len(reply)), **more}
            lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in more.items())]
            self._transport.write("\r\n".join([*lines, "", ""]).encode() + reply)
