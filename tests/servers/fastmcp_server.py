# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server written with FastMCP 4, importable as `tests.servers.fastmcp_server:server` and runnable:

    python fastmcp_server.py --transport stdio|sse|streamable-http [--port N]

Over HTTP it prints `PORT <n>` on stdout once it listens.
"""

import argparse
import asyncio
import socket
from dataclasses import dataclass

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.elicitation import AcceptedElicitation

server = FastMCP("fastmcp", version="4.5.6", instructions="Greets.")


@dataclass
class Person:
    name: str
    age: int


@server.tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
def echo(text: str) -> str:
    """Say the same text back."""
    return text


@server.tool(tags={"people"}, annotations={"readOnlyHint": True})
def person(name: str) -> Person:
    """A person of that name, with an output schema."""
    return Person(name=name, age=42)


@server.tool
def fail(message: str) -> str:
    """Fail with the message."""
    raise ToolError(message)


@server.tool
async def ask_name(ctx: Context) -> str:
    """Ask for the name of the user, in the middle of the call."""
    await ctx.report_progress(1, 2)
    answer = await ctx.elicit("What is your name?", response_type=str)
    return answer.data if isinstance(answer, AcceptedElicitation) else answer.action


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "sse", "streamable-http"], default="stdio")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.transport == "stdio":
        server.run(transport="stdio", show_banner=False)
        return

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", options.port))
    listener.listen(128)
    print(f"PORT {listener.getsockname()[1]}", flush=True)
    app = server.http_app(transport=options.transport)
    config = uvicorn.Config(app, log_level="warning", timeout_keep_alive=60, timeout_graceful_shutdown=1)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
