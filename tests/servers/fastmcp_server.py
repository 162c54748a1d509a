# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server written with FastMCP 4, importable as `tests.servers.fastmcp_server:server` and runnable:

    python fastmcp_server.py --transport stdio|sse|streamable-http [--port N]

Over HTTP it prints `PORT <n>` on stdout once it listens.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.elicitation import AcceptedElicitation

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.servers.counter_server import options_of_any_server, serve_http

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
    options = options_of_any_server().parse_args()
    if options.transport == "stdio":
        server.run(transport="stdio", show_banner=False)
    else:
        serve_http(server.http_app(transport=options.transport), options.port)


if __name__ == "__main__":
    main()
