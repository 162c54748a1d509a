# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server in this process with the tool definitions that a test wants, such as those of other SDKs.
"""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp import types
from mcp.server import MCPServer
from mcp.server.lowlevel import Server

from haystack_integrations.tools.mcp import InProcessServerInfo

# A picture of one pixel, as Base64.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class ForeignServer:
    """
    A low-level server. A test sets its tool definitions and answers, and may change them while the server runs.

    `calls` and `listings` record its requests; every call returns or raises `answer`.
    """

    def __init__(self, *tools: types.Tool) -> None:
        self.tools = list(tools)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.listings = 0
        self.answer: types.CallToolResult | Exception = text_result("fine")
        self.info = InProcessServerInfo(Server("foreign", on_list_tools=self._list_tools, on_call_tool=self._call_tool))

    async def _list_tools(self, _context: Any, _params: Any) -> types.ListToolsResult:
        self.listings += 1
        return types.ListToolsResult(tools=list(self.tools))

    async def _call_tool(self, _context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.calls.append((params.name, params.arguments or {}))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def definition(name: str, schema: dict[str, Any] | None = None, **more: Any) -> types.Tool:
    """
    Return the definition of a tool, by default of one without parameters.
    """
    return types.Tool(name=name, input_schema=schema or {"type": "object", "properties": {}}, **more)


def text_result(*texts: str, **more: Any) -> types.CallToolResult:
    """
    Return a result of text blocks.
    """
    return types.CallToolResult(content=[types.TextContent(type="text", text=text) for text in texts], **more)


@contextmanager
def ringing(kind: type[Exception]) -> Iterator[InProcessServerInfo]:
    """
    Make a server with a tool `ring`, during which a signal handler raises an error in the main thread.
    """

    def handle(*_args: object) -> None:
        raise kind

    async def ring() -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        await asyncio.Event().wait()

    server = MCPServer("ringing")
    server.add_tool(ring)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield InProcessServerInfo(server)
    finally:
        signal.signal(signal.SIGUSR1, before)
