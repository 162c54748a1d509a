# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`tests/servers/raw_server.py`, whose answers a test sets, over every transport.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from haystack_integrations.tools.mcp import MCPServerInfo, SSEServerInfo, StdioServerInfo, StreamableHttpServerInfo
from tests.servers.raw_server import ENDLESS, RawServer
from tests.support.processes import SERVERS, python_script


class RawTransport(httpx2.AsyncBaseTransport):
    """
    The raw server over HTTP, in this process: its answers are JSON bodies, event streams or, over SSE, events.
    """

    def __init__(self, way: str, server: RawServer) -> None:
        self._way = way
        self._server = server
        self._events: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and self._way == "sse":
            return self._response(self._stream())
        message = json.loads(request.content) if request.method == "POST" else {}
        if "id" not in message:
            return httpx2.Response(202 if message else 405)
        data, is_endless = await asyncio.to_thread(self._server.answer, message)
        if self._way != "json" and not data.startswith(b"data: "):
            data = b"data: %s\n\n" % data
        if self._way == "sse":
            self._events.put_nowait((data, is_endless))
            return httpx2.Response(202)
        is_compressed = b'"gzip"' in request.content
        return self._response(_pieces(gzip.compress(data) if is_compressed else data, is_endless), is_compressed)

    def _response(self, content: AsyncIterator[bytes], is_compressed: bool = False) -> httpx2.Response:
        headers = {"Content-Type": "application/json" if self._way == "json" else "text/event-stream"}
        headers |= {"Content-Encoding": "gzip"} if is_compressed else {}
        return httpx2.Response(200, headers=headers, content=content)

    async def _stream(self) -> AsyncIterator[bytes]:
        yield b"event: endpoint\ndata: /messages\n\n"
        while True:
            async for piece in _pieces(*await self._events.get()):
                yield piece


async def _pieces(data: bytes, is_endless: bool) -> AsyncIterator[bytes]:
    for start in range(0, len(data), len(ENDLESS)):
        yield data[start : start + len(ENDLESS)]
    while is_endless:
        yield ENDLESS


def raw_server(way: str, results: dict[str, Any] | None = None, **parameters: Any) -> MCPServerInfo:
    """
    Return the server info of a raw server that answers over stdio, SSE, or Streamable HTTP as `json` or `events`.
    """
    if way == "stdio":
        command, *args = python_script(SERVERS / "raw_server.py", json.dumps(results or {}))
        return StdioServerInfo(command, args, **parameters)
    server, kind = RawServer(results or {}), SSEServerInfo if way == "sse" else StreamableHttpServerInfo
    return kind("http://raw.test/mcp", http_transport=lambda **_: RawTransport(way, server), **parameters)
