# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An MCP server that draws.
"""

import struct
import zlib

from mcp.server import MCPServer
from mcp.server.mcpserver import Image

server = MCPServer("drawing", version="1.0.0", log_level="WARNING")


def png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\x00" + bytes(colour) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@server.tool()
def draw_square(size: int, red: int, green: int, blue: int) -> list[str | Image]:
    """Draw a square of one colour; size in pixels, colours from 0 to 255."""
    return [f"A square of {size} x {size} pixels:", Image(data=png(size, size, (red, green, blue)), format="png")]


if __name__ == "__main__":
    server.run("stdio")
