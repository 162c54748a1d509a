# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server of a library, as its users write it with FastMCP 4; it needs nothing else of this repository:

    python published_fastmcp_server.py [--check]
"""

import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

server = FastMCP("library", version="1.2.3", instructions="Borrow one book at a time.")
BOOKS = {"emma": "Jane Austen", "ulysses": "James Joyce"}


@server.tool(annotations={"readOnlyHint": True})
def find(author: str) -> list[str]:
    """Find the books of an author."""
    return [title for title, name in BOOKS.items() if author in name]


@server.tool
async def borrow(title: str, card: str, ctx: Context) -> dict[str, str]:
    """Borrow a book."""
    if title not in BOOKS:
        raise ToolError(f"there is no {title}")
    await ctx.report_progress(1, 2, "looking")
    await ctx.report_progress(2, 2, "found")
    return {"title": title, "card": card}


if __name__ == "__main__" and "--check" not in sys.argv:
    server.run(transport="stdio", show_banner=False)
