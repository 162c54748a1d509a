# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers that ask their client for something, one for each way to reach it and each era of the protocol.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPHandlers,
    MCPServerInfo,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.support.processes import ASKING_SERVER, CallLog, HttpServer, prepared_script, python_script

HTTP = {
    "2026": ("streamable-http", "/mcp", ()),
    "sessions": ("streamable-http", "/mcp", ("--protocol", "legacy")),
    "sse": ("sse", "/sse", ()),
}
EVERY_WAY = ["stdio", *HTTP, "in process"]
# Requests in the course of a call, and the new era's results that ask for input.
BOTH_ERAS = ["sessions", "2026"]

Ask = Callable[..., MCPConnection]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MCPServerInfo]]:
    """
    Gives the server info of a server that asks, by its key in `EVERY_WAY`.
    """
    started: dict[str, HttpServer] = {}

    def reach(way: str) -> MCPServerInfo:
        if way == "stdio":
            command, *arguments = prepared_script(ASKING_SERVER)
            return StdioServerInfo(command, arguments)
        if way == "in process":
            return InProcessServerInfo("tests.servers.asking_server:server")
        transport, path, options = HTTP[way]
        if way not in started:
            folder = tmp_path_factory.mktemp("asking")
            command = python_script(ASKING_SERVER, "--transport", transport, *options)
            started[way] = HttpServer(command, path, folder, CallLog(folder / "calls.txt")).start()
        return (SSEServerInfo if transport == "sse" else StreamableHttpServerInfo)(started[way].url)

    yield reach
    for server in started.values():
        server.close()


@pytest.fixture(params=BOTH_ERAS)
def way(request: pytest.FixtureRequest) -> str:
    key: str = request.param
    return key


@pytest.fixture
def ask(servers: Callable[[str], MCPServerInfo], way: str) -> Iterator[Ask]:
    """
    Connects to a server that asks: `ask(**fields of MCPHandlers)`. The connections are closed at the end.
    """
    connections: list[MCPConnection] = []

    def connect(invocation_timeout: float = 60.0, **fields: Any) -> MCPConnection:
        handlers = MCPHandlers(**fields)
        connections.append(MCPConnection(servers(way), handlers=handlers, invocation_timeout=invocation_timeout))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()
