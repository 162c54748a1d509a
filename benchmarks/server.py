# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The MCP server for the benchmarks: the tools `echo`, `sleep` and `big`, and any number of tools that are never called.

    python server.py --tools 1000                 # over stdio
    python server.py --transport http             # prints its URL; exits when its stdin is closed
"""

import argparse
import asyncio
import os
import socket
import sys
import threading
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server


def generated_schema(salt: str) -> dict[str, Any]:
    """Return a schema of realistic size. `salt` makes each schema different, so that caching by content has no effect."""
    return {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": f"What to look for in collection {salt}", "minLength": 1},
            "limit": {"type": "integer", "description": "How many entries to return", "minimum": 1, "maximum": 100},
            "language": {"type": "string", "enum": ["de", "en", "fr"], "default": "en"},
            "tags": {"type": "array", "items": {"type": "string"}, "description": f"Only entries of {salt} with these"},
            "filters": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def tool_list(generated: int, seed: int) -> list[types.Tool]:
    """Return the three tools that are called, and `generated` others."""
    called = [
        types.Tool(
            name="echo",
            description="Return the text",
            input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        ),
        types.Tool(
            name="sleep",
            description="Return after some seconds",
            input_schema={"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]},
        ),
        types.Tool(
            name="big",
            description="Return a text of this many bytes",
            input_schema={"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]},
        ),
    ]
    return called + [
        types.Tool(
            name=f"search_collection_{seed}_{index}",
            description=f"Search collection {index} of archive {seed} and return the entries that match best.",
            input_schema=generated_schema(f"{seed}-{index}"),
        )
        for index in range(generated)
    ]


def build_server(generated: int, seed: int) -> Server[Any]:
    """Return a low-level server, so that the server takes as little as possible of a call's time."""
    listing = types.ListToolsResult(tools=tool_list(generated, seed))
    line = "All work and no play makes a benchmark a dull boy; \u00e4 is not ASCII.\n"
    texts: dict[int, str] = {}

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listing

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == "echo":
            text = arguments["text"]
        elif params.name == "sleep":
            await asyncio.sleep(arguments["seconds"])
            text = "done"
        elif params.name == "big":
            size = arguments["size"]
            text = texts.setdefault(size, (line * (size // len(line) + 1))[:size])
        else:
            return types.CallToolResult(content=[types.TextContent(text=f"no tool {params.name}")], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=text)])

    return Server("benchmark", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve this process's stdin and stdout."""
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def serve_http(server: Server[Any]) -> None:
    """Serve Streamable HTTP on a free port and print the URL."""

    def exit_with_the_parent() -> None:
        sys.stdin.read()
        os._exit(0)

    # asyncio disables Nagle's algorithm only for sockets created with IPPROTO_TCP, which create_server() does not do. Every
    # response of two packets would then wait 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    threading.Thread(target=exit_with_the_parent, daemon=True).start()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    # uvicorn would use uvloop if it is installed, but the server must be the same in every environment.
    config = uvicorn.Config(server.streamable_http_app(), loop="asyncio", log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "http"], default="stdio")
    parser.add_argument("--tools", type=int, default=0, help="generated tools besides echo, sleep and big")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other generated tools")
    options = parser.parse_args()
    server = build_server(options.tools, options.seed)
    if options.transport == "stdio":
        asyncio.run(serve_stdio(server))
    else:
        serve_http(server)


if __name__ == "__main__":
    main()
