# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Fixtures: servers of every kind for the tests of faults.
"""

from pathlib import Path

import pytest

from tests.conftest import HttpServerFactory, ProxyFactory, StdioServerFactory
from tests.support.kinds import Gate, Kind, Peer, PeerFactory


@pytest.fixture
def stdio_peer(
    stdio_server: StdioServerFactory, sdk_stdio_server: StdioServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> PeerFactory:
    def describe(kind: Kind, *options: str) -> Peer:
        server = (sdk_stdio_server if kind.from_sdk else stdio_server)(*kind.options, *options)
        return Peer(kind, server, gate=Gate(server, tmp_path_factory.mktemp("gate")))

    return describe


@pytest.fixture
def peer(stdio_peer: PeerFactory, http_server: HttpServerFactory) -> PeerFactory:
    """
    Starts a server of any kind for this test alone: `peer(kind, *options)`.
    """

    def start(kind: Kind, *options: str) -> Peer:
        if not kind.is_http:
            return stdio_peer(kind, *options)
        return Peer(kind, http_server(kind.transport, *kind.options, *options))

    return start


@pytest.fixture
def proxied_peer(
    stdio_peer: PeerFactory, shared_http_server: HttpServerFactory, cutting_proxy: ProxyFactory
) -> PeerFactory:
    """
    Starts a server of any kind: `proxied_peer(kind, *options)`. Over HTTP, it is shared, behind a proxy for this test.
    """

    def start(kind: Kind, *options: str) -> Peer:
        if not kind.is_http:
            return stdio_peer(kind, *options)
        server = shared_http_server(kind.transport, *kind.options, *options)
        return Peer(kind, server, proxy=cutting_proxy(server.url))

    return start


@pytest.fixture
def gate(stdio_server: StdioServerFactory, tmp_path: Path) -> Gate:
    """
    A server over stdio that a test can prevent from starting.
    """
    return Gate(stdio_server(), tmp_path)
