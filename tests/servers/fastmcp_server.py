# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server written with FastMCP 4, importable as `tests.servers.fastmcp_server:server` and runnable:

    python fastmcp_server.py --transport streamable-http [--port N]

It prints `PORT <n>` on stdout once it listens.
"""

import sys
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.elicitation import AcceptedElicitation

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.servers.counter_server import common_options, serve_http

server = FastMCP("fastmcp", version="4.5.6", instructions="Greets.")


@server.tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
def echo(text: str) -> str:
    """Say the same text back."""
    return text


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
    serve_http(server.http_app(), common_options().parse_args().port)


if __name__ == "__main__":
    main()
