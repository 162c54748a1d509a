# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The counter server behind something that answers with HTTP errors, as gateways and overloaded servers do:

    python refusing_server.py --transport sse|streamable-http [--port N] [--calls-file PATH]

A call of `echo` whose text is `HTTP <status>` is answered with this status instead of being executed.
`--unknown-session` says how a request with a session that the server does not know is answered.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from counter_server import HandshakeEraOnly, Record, build_server, record_to, serve_http

_REFUSAL = re.compile(rb'"text": ?"HTTP (\d+)( empty| rpc)?"')

NO_SESSION = "Bad Request: No valid session ID provided"


def _json(answer: Any) -> tuple[bytes, bytes]:
    return b"application/json", json.dumps(answer).encode()


def _rpc_error(request_id: str | None, message: str) -> tuple[bytes, bytes]:
    return _json({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32000, "message": message}})


# By what the server is: the status, and the body.
UNKNOWN_SESSION = {
    "typescript": (400, _rpc_error(None, NO_SESSION)),
    "python-1.20": (400, _rpc_error("server-error", NO_SESSION)),
    "python-1.9": (400, (b"text/plain; charset=utf-8", NO_SESSION.encode())),
}


async def _respond(send: Any, status: int, body: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", body[0])]})
    await send({"type": "http.response.body", "body": body[1]})


class Refusing:
    """Answers some requests itself."""

    def __init__(self, app: Any, record: Record, options: argparse.Namespace) -> None:
        self._app = app
        self._record = record
        self._options = options
        self._calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        options, body, more = self._options, b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if b'"tools/call"' in body:
            self._record("@post")
            self._calls += 1
            if self._calls <= options.busy:
                status = 429 if self._calls % 2 else 503
                headers = [(b"retry-after", options.retry_after.encode()), (b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": b"slow down"})
                return
            if options.failing and self._calls % 10:
                await _respond(send, 500, (b"text/plain", b"overloaded"))
                return
            if options.always:
                await _respond(send, options.always, _rpc_error(None, "Session not found"))
                return
            if match := _REFUSAL.search(body):
                texts = {
                    None: (b"text/html", b"<html>The gateway is not in the mood</html>"),
                    b" empty": (b"text/plain", b""),
                    b" rpc": _rpc_error(None, "Too many cooks"),
                }
                await _respond(send, int(match[1]), texts[match[2]])
                return
        if options.handshakes and b'"initialize"' in body:
            await _respond(send, options.handshakes, (b"text/plain", b""))
            return
        if options.cancellations and b'"notifications/cancelled"' in body:
            self._record("@cancellation")
            while options.cancellations == "hang" and (await receive())["type"] != "http.disconnect":
                pass
            await _respond(send, 500, (b"text/plain", b""))
            return
        given = False

        async def replay() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


class OddAboutSessions:
    """Replaces the 404 for an unknown session by another answer."""

    def __init__(self, app: Any, status: int, body: tuple[bytes, bytes]) -> None:
        self._app = app
        self._status = status
        self._body = body

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        unknown = False

        async def replace(message: Any) -> None:
            nonlocal unknown
            if message["type"] == "http.response.start" and message["status"] == 404:
                unknown = True
                await _respond(send, self._status, self._body)
            elif not unknown:
                await send(message)

        has_session = scope["type"] == "http" and b"mcp-session-id" in dict(scope["headers"])
        await self._app(scope, receive, replace if has_session else send)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["sse", "streamable-http"], default="streamable-http")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--calls-file", type=Path)
    parser.add_argument("--protocol", choices=["legacy", "auto"], default="auto")
    parser.add_argument("--unknown-session", choices=sorted(UNKNOWN_SESSION))
    parser.add_argument("--always", type=int, metavar="STATUS", help="answer every tool call with this status")
    parser.add_argument("--handshakes", type=int, metavar="STATUS", help="answer every handshake with this status")
    parser.add_argument("--cancellations", choices=["refuse", "hang"], help="what becomes of notifications/cancelled")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="answer the first calls with 429 and 503")
    parser.add_argument("--retry-after", default="1", help="what these say")
    parser.add_argument("--failing", action="store_true", help="answer nine of ten calls with 500")
    options = parser.parse_args()

    record = record_to(options.calls_file)
    server = build_server(record)
    app: Any = server.sse_app() if options.transport == "sse" else server.streamable_http_app()
    app = Refusing(app, record, options)
    if options.unknown_session:
        app = OddAboutSessions(app, *UNKNOWN_SESSION[options.unknown_session])
    if options.protocol == "legacy":
        app = HandshakeEraOnly(app)
    serve_http(app, options.port)


if __name__ == "__main__":
    main()
