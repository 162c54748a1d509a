# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Fixtures: servers that send requests to the client, for each transport and each era of the protocol.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPHandlers,
    MCPServerInfo,
    StdioServerInfo,
)
from tests.conftest import HttpServerFactory
from tests.support.kinds import KINDS
from tests.support.processes import ASKING_SERVER, prepared_script

EVERY_WAY = ["stdio", "2026", "sessions", "sse", "in process"]
# Requests during a call, and the newest era's results that ask for input.
BOTH_ERAS = ["sessions", "2026"]

Ask = Callable[..., MCPConnection]


@pytest.fixture
def server_info(way: str, shared_http_server: HttpServerFactory) -> MCPServerInfo:
    """
    Return the server info of an asking server, for one of `EVERY_WAY`.
    """
    if way == "stdio":
        command, *arguments = prepared_script(ASKING_SERVER)
        return StdioServerInfo(command, arguments)
    if way == "in process":
        return InProcessServerInfo("tests.servers.asking_server:server")
    kind = KINDS[way]
    return kind.reach(shared_http_server(kind.transport, *kind.options, script=ASKING_SERVER).url)


@pytest.fixture(params=BOTH_ERAS)
def way(request: pytest.FixtureRequest) -> str:
    key: str = request.param
    return key


@pytest.fixture
def ask(server_info: MCPServerInfo) -> Iterator[Ask]:
    """
    Connects to an asking server: `ask(**fields of MCPHandlers)`. Closes the connections at the end.
    """
    connections: list[MCPConnection] = []

    def connect(invocation_timeout: float = 60.0, **fields: Any) -> MCPConnection:
        handlers = MCPHandlers(**fields)
        connections.append(MCPConnection(server_info, handlers=handlers, invocation_timeout=invocation_timeout))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()
