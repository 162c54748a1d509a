# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers of every kind for the stories of this folder.
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
    A server of any kind for this test alone: `peer(kind, *options)`.
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
    A server of any kind, over HTTP a shared one behind a proxy of this test's own: `proxied_peer(kind, *options)`.
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
    A server over stdio that can be made to end at its start.
    """
    return Gate(stdio_server(), tmp_path)
