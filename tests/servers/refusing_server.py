# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The counter server behind something that answers with HTTP errors, as gateways and overloaded servers do:

    python refusing_server.py --transport sse|streamable-http [--port N] [--calls-file PATH]

A call of `echo` whose text is `HTTP <status>` is answered with this status instead of being executed.
"""

import argparse
import re
from pathlib import Path
from typing import Any

from counter_server import HandshakeEraOnly, Record, build_server, record_to, serve_http

_REFUSAL = re.compile(rb'"text": ?"HTTP (\d+)( empty)?"')


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
            if match := _REFUSAL.search(body):
                empty, page = (b"text/plain", b""), (b"text/html", b"<html>The gateway is not in the mood</html>")
                await _respond(send, int(match[1]), empty if match[2] else page)
                return
        given = False

        async def replay() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["sse", "streamable-http"], default="streamable-http")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--calls-file", type=Path)
    parser.add_argument("--protocol", choices=["legacy", "auto"], default="auto")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="answer the first calls with 429 and 503")
    parser.add_argument("--retry-after", default="1", help="what these say")
    parser.add_argument("--failing", action="store_true", help="answer nine of ten calls with 500")
    options = parser.parse_args()

    record = record_to(options.calls_file)
    server = build_server(record)
    app: Any = server.sse_app() if options.transport == "sse" else server.streamable_http_app()
    app = Refusing(app, record, options)
    if options.protocol == "legacy":
        app = HandshakeEraOnly(app)
    serve_http(app, options.port)


if __name__ == "__main__":
    main()
