# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An authorization server that shares no code with the client: Authlib's.
"""

import os
from collections.abc import Iterator

import httpx2
import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    MCPConnection,
    OAuthConfig,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage, MCPLoginRequest
from tests.support.authlib_server import AuthlibServer, Client


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AuthlibServer]:
    # Authlib wants https, as it should.
    monkeypatch.setitem(os.environ, "AUTHLIB_INSECURE_TRANSPORT", "1")
    with AuthlibServer() as server:
        yield server


def whose(server: AuthlibServer, **options: object) -> str:
    config = OAuthConfig(token_storage=InMemoryTokenStorage(), **options)
    with MCPConnection(StreamableHttpServerInfo(server.url, oauth_config=config)) as connection:
        return str(connection.call_tool("whoami").content[0].text)


async def browse(login: MCPLoginRequest) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(login.url)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_service_has_a_secret(server: AuthlibServer, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret with/special?chars")
    server.clients["me"] = Client("me", method, "client_credentials", secret="s3cret with/special?chars")
    secret = Secret.from_env_var("SECRET")
    said = whose(server, client_id="me", client_secret=secret, issuer=server.issuer, token_endpoint_auth_method=method)
    assert said == "me/None"


def test_a_refresh_after_a_revocation_needs_no_person(server: AuthlibServer) -> None:
    server.clients["app"] = Client("app", "client_secret_post", "authorization_code", secret="a-secret")
    config = OAuthConfig(
        grant_type="authorization_code",
        client_id="app",
        client_secret=Secret.from_token("a-secret"),
        token_endpoint_auth_method="client_secret_post",
        issuer=server.issuer,
        redirect_handler=browse,
        token_storage=InMemoryTokenStorage(),
    )
    with MCPConnection(StreamableHttpServerInfo(server.url, oauth_config=config)) as connection:
        for _ in range(2):
            assert connection.call_tool("whoami").content[0].text == "app/alice"
            server.tokens.clear()
    assert server.count["authorization_code"] == server.count["refresh_token"] == 1


async def test_the_auth_of_a_configuration_works_in_any_http_client(server: AuthlibServer) -> None:
    server.clients["me"] = Client("me", "client_secret_basic", "client_credentials", secret="a-secret")
    config = OAuthConfig("me", Secret.from_token("a-secret"), server.issuer, token_storage=InMemoryTokenStorage())
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(auth=config.create_auth(server.url)) as client:
        answers = [await client.post(server.url, json=ping, headers=headers) for _ in range(2)]
    assert all(answer.status_code != 401 for answer in answers)
    assert server.count["client_credentials"] == 1
