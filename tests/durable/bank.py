# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that keeps its books in a file: the begin and the end of each payment, with the key of its call.
"""

import os
import random
import socket
import sys
import time
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

KEY = "ai.deepset.haystack/idempotency-key"


def bank(books: Path, pause: float) -> MCPServer:
    server = MCPServer("bank", log_level="ERROR")

    def note(line: str) -> None:
        with books.open("ab") as file:  # a single write of a short line does not mix with others
            os.write(file.fileno(), f"{line}\n".encode())

    @server.tool()
    def pay(context: Context, invoice: str, amount: int) -> str:
        """Pay an invoice."""
        key = context.request_context.meta[KEY]
        note(f"begin {invoice} {amount} {key}")
        time.sleep(random.random() * pause)
        note(f"end {invoice} {amount} {key}")
        return f"paid {amount} for {invoice}"

    return server


if __name__ == "__main__":
    made = bank(Path(sys.argv[1]), float(sys.argv[2]))
    if sys.argv[3:] == ["http"]:
        listening = socket.create_server(("127.0.0.1", 0))  # reserves the port
        print(listening.getsockname()[1], flush=True)
        app = made.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
    else:
        made.run()
