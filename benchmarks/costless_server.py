# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that costs as little as possible, so that a measurement shows the client: `echo`, `sleep`, `big` and `blocks`,
without the SDK.

    python costless_server.py                     # over stdio
    python costless_server.py --transport http    # prints its URL; exits when its stdin is closed

It answers one request after the other, except calls of `sleep`, which are answered when they are due. It knows only the
requests that the subjects send.
"""

import asyncio
import json
import os
import socket
import sys
import threading
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]}
_SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
_TOOLS = [
    {"name": "echo", "description": "Return the text", "inputSchema": _TEXT},
    {"name": "sleep", "description": "Return after this many seconds", "inputSchema": _SECONDS},
    {"name": "big", "description": "Return a text of this many characters", "inputSchema": _SIZE},
    {"name": "blocks", "description": "Return this many content blocks", "inputSchema": _SIZE},
]
_INFO = {"name": "costless", "version": "1"}
# The fields that revision 2026-07-28 adds to a result; earlier revisions ignore them.
_MODERN = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": _INFO},
}
_texts: dict[int, str] = {}
_blocks: dict[int, list[dict[str, Any]]] = {}


def _result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "tools/call":
        arguments = params["arguments"]
        size = arguments.get("size")
        if params["name"] == "blocks":
            content = _blocks.setdefault(size, [{"type": "text", "text": f"Block {n}"} for n in range(size)])
            return {"content": content, "isError": False, **_MODERN}
        text = (
            arguments.get("text", "done")
            if size is None
            else _texts.setdefault(size, ("All work and no play. \u00e4\n" * size)[:size])
        )
        return {"content": [{"type": "text", "text": text}], "isError": False, **_MODERN}
    if method == "tools/list":
        return {"tools": _TOOLS, **_MODERN}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": _INFO, **_MODERN}
    if method == "initialize":
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _INFO}
    return None


def answer(message: bytes) -> tuple[bytes | None, float]:
    """Return the answer to a JSON-RPC message, None for a notification, and the delay in seconds."""
    request = json.loads(message)
    if "id" not in request:
        return None, 0.0
    params = request.get("params") or {}
    result = _result(request["method"], params)
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        reply["result"] = result
    seconds = params.get("arguments", {}).get("seconds", 0.0)
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode(), seconds


def _write(reply: bytes) -> None:
    sys.stdout.buffer.write(reply + b"\n")
    sys.stdout.buffer.flush()


def serve_stdio() -> None:
    """Answer line by line until stdin is closed."""
    # All calls sleep for the same time, so the first that arrives is the first that is due.
    sleeping: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def wake() -> None:
        while True:
            due, reply = sleeping.get()
            sleep(max(0.0, due - monotonic()))
            _write(reply)

    threading.Thread(target=wake, daemon=True).start()
    for line in sys.stdin.buffer:
        reply, seconds = answer(line)
        if reply is not None and seconds:
            sleeping.put((monotonic() + seconds, reply))
        elif reply is not None:
            _write(reply)


class _HttpConnection(asyncio.Protocol):
    """An HTTP/1.1 connection that stays open."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            head, separator, rest = self._received.partition(b"\r\n\r\n")
            if not separator:
                return
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            body, self._received = rest[:length], rest[length:]
            self._respond(lines[0].partition(" ")[0], body)

    def _respond(self, method: str, body: bytes) -> None:
        reply, seconds = answer(body) if method == "POST" else (None, 0.0)
        if reply is None:
            status = "202 Accepted" if method == "POST" else "405 Method Not Allowed"
            self._transport.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
            return
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(reply)}\r\n\r\n"
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._transport.write, head.encode() + reply)
        else:
            self._transport.write(head.encode() + reply)


async def serve_http() -> None:
    """Serve HTTP on a free port and print the URL."""

    def exit_with_the_parent() -> None:
        sys.stdin.read()
        os._exit(0)

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    threading.Thread(target=exit_with_the_parent, daemon=True).start()
    server = await asyncio.get_running_loop().create_server(_HttpConnection, sock=listener)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:] == ["--transport", "http"]:
        asyncio.run(serve_http())
    else:
        serve_stdio()
