# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server whose tools and resources change when its tools are called. It announces changes in both eras of the protocol.
"""

from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resources import TextResource
from mcp.types import EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams
from pydantic import Field

from tests.servers.counter_server import (
    announce_changed_tools,
    announce_changes,
    common_options,
    is_modern,
    note_requests,
    record_to,
    run,
)

NOTE = "memo://note"


def build_server(record: Any = lambda *_, **__: None, *, ttl_ms: int = 0, header: bool = False) -> MCPServer[Any]:
    """
    Create the server.

    :param record: Called with the name and the details of each event.
    :param ttl_ms: How long clients may cache lists and resources, in milliseconds.
    :param header: Whether the tool `locate` also wants its argument as an HTTP header.
    """
    hint = CacheHint(ttl_ms=ttl_ms)
    methods: list[Any] = ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
    server: MCPServer[Any] = MCPServer("changing", log_level="WARNING", cache_hints=dict.fromkeys(methods, hint))
    note = {"text": "first"}

    @server.tool()
    async def offer(name: str, ctx: Context[Any, Any], description: str = "New.") -> str:
        """Add a tool, or change its description."""

        def offered(text: str = "") -> str:
            return f"{name}: {text}"

        if any(tool.name == name for tool in await server.list_tools()):
            server.remove_tool(name)
        server.add_tool(offered, name=name, description=description)
        await announce_changed_tools(ctx)
        return "offered"

    @server.tool()
    async def withdraw(name: str, ctx: Context[Any, Any]) -> str:
        """Remove a tool."""
        server.remove_tool(name)
        await announce_changed_tools(ctx)
        return "withdrawn"

    @server.tool()
    async def write(text: str, ctx: Context[Any, Any]) -> str:
        """Change the note."""
        note["text"] = text
        await (ctx.notify_resource_updated(NOTE) if is_modern(ctx) else ctx.session.send_resource_updated(NOTE))
        return "written"

    wanted: Any = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"} if header else None)]

    async def locate(ctx: Context[Any, Any], region: str = "") -> str:
        """Return the region in the argument, and the one in the header."""
        return f"{region} {(ctx.headers or {}).get('mcp-param-region')}"

    locate.__annotations__["region"] = wanted
    server.add_tool(locate)

    @server.tool()
    async def list_more(ctx: Context[Any, Any]) -> str:
        """Add a resource."""
        server.add_resource(TextResource(uri="memo://more", name="more", text="more"))
        await (ctx.notify_resources_changed() if is_modern(ctx) else ctx.session.send_resource_list_changed())
        return "listed"

    @server.resource(NOTE)
    def read_note() -> str:
        return note["text"]

    lowlevel = server._lowlevel_server

    async def subscribe(_ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
        record("subscribe", uri=str(params.uri))
        return EmptyResult()

    async def unsubscribe(_ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
        record("unsubscribe", uri=str(params.uri))
        return EmptyResult()

    lowlevel.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    lowlevel.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
    announce_changes(server)
    note_requests(server, record)
    return server


def main() -> None:
    parser = common_options()
    parser.add_argument("--header", action="store_true", help="the tool `locate` wants its argument as a header")
    options = parser.parse_args()
    run(build_server(record_to(options.calls_file), header=options.header), options)


if __name__ == "__main__":
    main()
