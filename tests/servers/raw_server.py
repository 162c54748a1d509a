# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that answers with the very bytes that it is given, over every transport and without the MCP SDK:

    python raw_server.py --transport stdio|sse|json|events [--port N] [--listing TEXT] [--results PATH]

`json` and `events` are streamable HTTP with answers as JSON bodies and as event streams. The tool `say` answers with
its argument `raw`, in which `$ID` stands for the id of the request and `$FILL` for `fill` letters; it is compressed as
`encoding` says, and never ends if it is `endless`. Before it come the lines of `noise`: of a text if they are lines, of
event streams if these are what the server writes. Characters stand for the bytes of the same number. `wait` is answered
after `release` was called; `fine` at once.

Over streamable HTTP, `--stream TEXT` is what comes in the event stream of the session, which stays open.
"""

import argparse
import gzip
import json
import queue
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMES = ("say", "wait", "release", "fine")
LISTING = json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in NAMES])
ENDLESS = b"x" * 65536

released = threading.Event()
results: dict[str, Any] = {}


def compress(data: bytes, encoding: str | None) -> bytes:
    if encoding is None:
        return data
    if encoding == "br":
        import brotli

        return brotli.compress(data, quality=1)
    if encoding == "zstd":
        try:
            from compression import zstd
        except ImportError:
            from backports import zstd
        return zstd.compress(data)
    return gzip.compress(data) if encoding == "gzip" else zlib.compress(data)


def noise_of(message: dict[str, Any]) -> bytes:
    given = (message.get("params") or {}).get("arguments") or {}
    return str(given.get("noise", "")).replace("$ID", json.dumps(message["id"])).encode("latin-1")


def answer(message: dict[str, Any], listing: str) -> tuple[bytes, str | None, bool]:
    """
    The bytes, how they are to be compressed, and whether they never end.
    """
    method, params = message["method"], message.get("params") or {}
    if method in results:
        answered = {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}
        return json.dumps(answered).encode(), None, False
    given: dict[str, Any] = {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "raw"}}
        result["serverInfo"]["version"] = "1"
    elif method == "tools/list":
        raw = '{"jsonrpc":"2.0","id":$ID,"result":{"tools":' + listing + "}}"
        return raw.replace("$ID", json.dumps(message["id"])).encode("latin-1"), None, False
    elif method == "tools/call":
        name = params["name"]
        given = params.get("arguments") or {}
        if name == "wait":
            released.wait()
        elif name == "release":
            released.set()
        result = {"content": [{"type": "text", "text": name}]}
        if name == "say":
            raw = given["raw"].replace("$ID", json.dumps(message["id"])).replace("$FILL", "x" * given.get("fill", 0))
            return raw.encode("latin-1"), given.get("encoding"), given.get("endless", False)
    else:
        error = {"code": -32601, "message": "Method not found"}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode(), None, False
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode(), None, False


def serve_stdio(listing: str) -> None:
    lock = threading.Lock()

    def respond(message: dict[str, Any]) -> None:
        data, _, endless = answer(message, listing)
        with lock:
            sys.stdout.buffer.write(noise_of(message) + data)
            while endless:
                sys.stdout.buffer.write(ENDLESS)
            sys.stdout.buffer.write(b"\n")
            sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            threading.Thread(target=respond, args=(message,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    transport = "json"
    listing = LISTING
    stream: str | None = None
    streams: "list[queue.Queue[tuple[bytes, bytes, str | None, bool]]]" = []  # noqa: RUF012

    def log_message(self, *_args: Any) -> None:
        pass

    def _head(self, status: int, **headers: str | None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _event(self, noise: bytes, data: bytes, encoding: str | None, endless: bool) -> None:
        event = noise + b"event: message\n" + b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))
        self.wfile.write(compress(event[:-1] if endless else event + b"\n", encoding))
        while endless:
            self.wfile.write(ENDLESS)

    def do_GET(self) -> None:
        if self.stream is not None:
            self._head(200, content_type="text/event-stream")
            self.wfile.write(self.stream.encode())
            threading.Event().wait()
        if self.transport != "sse":
            self._head(405, content_length="0")
            return
        self.close_connection = True
        stream: queue.Queue[tuple[bytes, bytes, str | None, bool]] = queue.Queue()
        self.streams.append(stream)
        self._head(200, content_type="text/event-stream")
        self.wfile.write(f"event: endpoint\ndata: /{self.streams.index(stream)}\n\n".encode())
        while True:
            self._event(*stream.get())

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message or self.transport == "sse":
            self._head(202, content_length="0")
            if "id" in message:
                self.streams[int(self.path[1:])].put((noise_of(message), *answer(message, self.listing)))
            return
        data, encoding, endless = answer(message, self.listing)
        self.close_connection = True
        if self.transport == "events":
            self._head(200, content_type="text/event-stream", content_encoding=encoding)
            self._event(noise_of(message), data, encoding, endless)
            return
        session = "raw" if self.stream is not None and message["method"] == "initialize" else None
        self._head(200, content_type="application/json", content_encoding=encoding, mcp_session_id=session)
        self.wfile.write(compress(data, encoding))
        while endless:
            self.wfile.write(ENDLESS)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True  # the test keeps the port

    def handle_error(self, *_: Any) -> None:
        pass  # clients leave endless answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["stdio", "sse", "json", "events"], required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--listing", default=LISTING, help="the tools, as the server writes them")
    parser.add_argument("--results", type=Path, help="a JSON file of results by method, in place of the server's own")
    parser.add_argument("--stream", help="what comes in the event stream of a session over streamable HTTP")
    options = parser.parse_args()
    if options.results is not None:
        results.update(json.loads(options.results.read_text()))
    if options.transport == "stdio":
        serve_stdio(options.listing)
        return
    Handler.transport, Handler.listing, Handler.stream = options.transport, options.listing, options.stream
    server = Server(("127.0.0.1", options.port), Handler)
    print(f"PORT {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
