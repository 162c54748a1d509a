# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A library as an MCP server. Its tool has the same name as a tool of the shop.
"""

from mcp.server import MCPServer

server = MCPServer("library", version="1.0.0", log_level="WARNING")

BOOKS = ("The Lamp of Learning", "Sitting: a history of the chair", "Numbers for everyone")


@server.tool()
def search(text: str) -> str:
    """Search the titles of the library."""
    return "; ".join(title for title in BOOKS if text.lower() in title.lower()) or "nothing found"


if __name__ == "__main__":
    server.run("stdio")
