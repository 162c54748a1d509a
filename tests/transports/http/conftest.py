# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers over HTTP whose answers a test decides.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.handshake_server import Answer, HandshakeServer


@pytest.fixture
def handshake_server() -> Iterator[Callable[..., HandshakeServer]]:
    servers: list[HandshakeServer] = []

    def start(answer: Callable[[HandshakeServer, dict[str, Any], str | None], Answer]) -> HandshakeServer:
        servers.append(HandshakeServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
