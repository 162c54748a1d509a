# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Notes as an MCP server: resources to read, a prompt, and a tool that finds notes and links to them.
"""

from mcp.server import MCPServer
from mcp.types import ResourceLink

server = MCPServer("notes", version="1.0.0", log_level="WARNING")

NOTES = {
    "garden": "# Garden\n\nThe roses need water every other day. The compost is behind the shed.",
    "kitchen": "# Kitchen\n\nThe oven is ten degrees too hot. Bread takes forty minutes.",
}


@server.resource("notes://all/garden", mime_type="text/markdown")
def garden() -> str:
    """What to know about the garden."""
    return NOTES["garden"]


@server.resource("notes://all/kitchen", mime_type="text/markdown")
def kitchen() -> str:
    """What to know about the kitchen."""
    return NOTES["kitchen"]


@server.resource("notes://days/{day}", mime_type="text/markdown")
def day(day: str) -> str:
    """The note of a day."""
    return f"# {day}\n\nNothing to do."


@server.prompt()
def summarize(topic: str, style: str = "briefly") -> str:
    """Ask for a summary."""
    return f"Summarize my notes on the {topic}, {style}."


@server.tool()
def find(word: str) -> list[ResourceLink]:
    """Find the notes that contain a word."""
    return [
        ResourceLink(type="resource_link", uri=f"notes://all/{name}", name=name, mime_type="text/markdown")
        for name, text in NOTES.items()
        if word.lower() in text.lower()
    ]


if __name__ == "__main__":
    server.run("stdio")
