# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the SDK looks up before a call over HTTP: whether the tool wants arguments repeated in headers.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware, MiddlewareContext
from haystack.tools import Tool
from mcp import Client

from haystack_integrations.tools.mcp.serving import HaystackProvider, create_mcp_server, http_app
from tests.support.reachable import reachable
from tests.support.rows import rows
from tests.support.served import MODERN, envelope

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
REPEATED = {**TEXT, "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}


def shout(text: str) -> str:
    return text.upper()


class Listings(Middleware):
    """
    Counts the listings of tools.
    """

    def __init__(self) -> None:
        self.count = 0

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        self.count += 1
        return await call_next(context)


async def post_call(url: str, name: str, **headers: str) -> httpx2.Response:
    parameters = {"_meta": envelope(), "name": name, "arguments": {"text": "hi"}}
    content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters})
    known = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": name,
    }
    async with httpx2.AsyncClient() as client:
        return await client.post(url, content=content, headers={**known, **headers}, timeout=60)


@rows("is_created", [True, False])
async def test_a_call_over_http_does_not_list_all_tools(is_created: bool):
    tools = [Tool("shout", "Shouts.", TEXT, shout)]
    if is_created:
        server = create_mcp_server("shop", tools=tools)
    else:
        server = FastMCP("shop", providers=[HaystackProvider(tools=tools)])
        http_app(server)
    listings = Listings()
    server.add_middleware(listings)
    async with reachable(server, over_http=True) as url, Client(url) as client:
        assert client.protocol_version == MODERN
        await client.list_tools()
        for _ in range(3):
            assert (await client.call_tool("shout", {"text": "hi"})).content[0].text == "HI"
        await client.list_tools(cache_mode="bypass")
    assert listings.count == 2


async def test_arguments_that_a_tool_wants_in_headers_are_compared_with_them_and_unknown_tools_refused():
    names = {"shout": TEXT, "hidden": TEXT, "repeat": REPEATED}
    server = create_mcp_server("shop", tools=[Tool(name, "Shouts.", schema, shout) for name, schema in names.items()])
    server.disable(names={"hidden"})
    async with reachable(server, over_http=True) as url, Client(url) as client:
        # FastMCP 4.2 knows the schemas that it has listed.
        await client.list_tools()
        assert (await post_call(url, "repeat", **{"mcp-param-text": "hi"})).status_code == 200
        other = await post_call(url, "repeat", **{"mcp-param-text": "bye"})
        assert other.status_code == 400
        assert "mcp-param-text" in other.text.lower()
        assert (await post_call(url, "repeat")).status_code == 400
        assert (await post_call(url, "shout")).status_code == 200
        for name in ("hidden", "whisper"):
            assert "Unknown tool" in (await post_call(url, name)).text
