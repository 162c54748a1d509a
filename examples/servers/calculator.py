# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A calculator as an MCP server.

    python calculator.py                                    stdio, for a client that starts it
    python calculator.py --transport http --port 8000       http://127.0.0.1:8000/mcp
    python calculator.py --transport sse --port 8000        http://127.0.0.1:8000/sse

Port 0 chooses a free port. Over HTTP and SSE, the first line on stdout is the URL, printed once the port is open. The
import path for an in-process server is `servers.calculator:server`.
"""

import argparse
import socket

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("calculator", version="1.0.0", log_level="WARNING")


@server.tool()
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool()
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@server.tool()
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    if b == 0:
        msg = "b must not be 0"
        raise ToolError(msg)
    return a / b


def serve_http(transport: str, port: int) -> None:
    app, path = (server.sse_app(), "/sse") if transport == "sse" else (server.streamable_http_app(), "/mcp")
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run(sockets=[listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A calculator as an MCP server.")
    parser.add_argument("--transport", choices=["stdio", "http", "sse"], default="stdio")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    if options.transport == "stdio":
        server.run("stdio")
    else:
        serve_http(options.transport, options.port)
