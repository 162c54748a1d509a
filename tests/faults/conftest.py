# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers of every kind for the stories of this folder.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPServerInfo, SSEServerInfo, StdioServerInfo, StreamableHttpServerInfo
from tests.conftest import HttpServerFactory, ProxyFactory, StdioServerFactory
from tests.support.kinds import QUICKLY, Gate, Kind, Peer, PeerFactory
from tests.support.processes import SERVERS, CallLog, HttpServer, python_script

RawServer = Callable[..., MCPServerInfo]


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


def raw_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    servers: dict[tuple[str, ...], HttpServer] = {}

    def reach(way: str, *options: str, **parameters: Any) -> MCPServerInfo:
        command = python_script(SERVERS / "raw_server.py", "--transport", way, *options)
        if way == "stdio":
            return StdioServerInfo(command[0], command[1:], **QUICKLY, **parameters)
        key = (way, *options)
        if key not in servers:
            folder = tmp_path_factory.mktemp("raw")
            servers[key] = HttpServer(command, f"/{way}", folder, CallLog(folder / "calls.txt")).start()
        kind = SSEServerInfo if way == "sse" else StreamableHttpServerInfo
        return kind(url=servers[key].url, **QUICKLY, **parameters)

    yield reach
    for server in servers.values():
        server.close()


raw_server = pytest.fixture(raw_servers, name="raw_server")
shared_raw_server = pytest.fixture(raw_servers, name="shared_raw_server", scope="module")
