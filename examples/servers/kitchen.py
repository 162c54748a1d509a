# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A kitchen as an MCP server over stdio. It reports how many dishes it cooks at a time, and may explode.
"""

import asyncio
import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("kitchen", version="1.0.0", log_level="WARNING")
at_the_stove: list[str] = []


@server.tool()
async def cook(dish: str) -> str:
    """Cook a dish."""
    at_the_stove.append(dish)
    await asyncio.sleep(0.2)
    together = len(at_the_stove)
    at_the_stove.remove(dish)
    return f"{dish}, one of {together} at the stove"


@server.tool()
async def explode() -> None:
    """End the server."""
    os._exit(1)


if __name__ == "__main__":
    server.run("stdio")
