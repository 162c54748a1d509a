# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from collections.abc import Iterator

import pytest

from haystack_integrations.tools.mcp import MCPConnection, OAuthConfig, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage
from tests.support.oauth_server import OAuthServer, allow
from tests.support.token_network import TokenNetwork


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        yield server


@pytest.fixture
def network() -> TokenNetwork:
    return TokenNetwork()


def info(server: OAuthServer | str, **options: object) -> StreamableHttpServerInfo:
    """
    Return the server info for a server at which a person allows the access at once.
    """
    transport = options.pop("http_transport", None)
    options = {"redirect_handler": allow, "token_storage": InMemoryTokenStorage(), **options}
    url = server if isinstance(server, str) else server.url
    return StreamableHttpServerInfo(url, oauth_config=OAuthConfig(**options), http_transport=transport)


def said(connection: MCPConnection, tool: str = "whoami", **arguments: object) -> str:
    return str(connection.call_tool(tool, arguments).content[0].text)
