# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An authorization server that shares no code with the client, Authlib's, and a FastMCP server whose OAuth proxy stands
before it because it registers no clients.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, OAuthProxy, TokenVerifier
from fastmcp.server.dependencies import get_access_token
from haystack.utils import Secret
from key_value.aio.stores.memory import MemoryStore

from haystack_integrations.tools.mcp import MCPConnection, OAuthConfig, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage, MCPLoginRequest
from tests.support.authlib_server import AuthlibServer, Client
from tests.support.reachable import AppThread


class _Upstream(TokenVerifier):
    """
    Accepts the tokens of Authlib's server.
    """

    def __init__(self, upstream: AuthlibServer) -> None:
        super().__init__(required_scopes=["use"])
        self._upstream = upstream

    async def verify_token(self, token: str) -> AccessToken | None:
        found = self._upstream.tokens.get(token)
        if found is None:
            return None
        return AccessToken(
            token=token, client_id=found.client_id, scopes=["use"], expires_at=found.expires_at, subject=found.subject
        )


@contextmanager
def fastmcp_behind(upstream: AuthlibServer) -> Iterator[str]:
    served = AppThread()
    proxy = OAuthProxy(
        upstream_authorization_endpoint=f"{upstream.issuer}/authorize",
        upstream_token_endpoint=f"{upstream.issuer}/token",
        upstream_client_id="proxy",
        upstream_client_secret="the proxy's secret",
        token_verifier=_Upstream(upstream),
        base_url=served.origin,
        token_endpoint_auth_method="client_secret_post",
        client_storage=MemoryStore(),
        jwt_signing_key="a key for tests only",
        require_authorization_consent=False,
    )
    server = FastMCP("proxied", auth=proxy)

    @server.tool
    def whoami() -> str:
        token = get_access_token()
        assert token is not None
        return str(token.client_id)

    served.app = server.http_app()
    with served:
        yield f"{served.origin}/mcp"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AuthlibServer]:
    # Authlib wants https, as it should.
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with AuthlibServer() as server:
        yield server


async def browse(login: MCPLoginRequest) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        page = await browser.get(login.url)
        assert "Logged in" in page.text, page.text


def connect(url: str, **options: object) -> MCPConnection:
    config = OAuthConfig(token_storage=InMemoryTokenStorage(), **options)
    return MCPConnection(StreamableHttpServerInfo(url, oauth_config=config))


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_service_has_a_secret(server: AuthlibServer, method: str) -> None:
    secret = "s3cret with/special?chars"
    server.clients["me"] = Client("me", method, "client_credentials", secret=secret)
    own = {"client_id": "me", "client_secret": Secret.from_token(secret), "token_endpoint_auth_method": method}
    with connect(server.url, issuer=server.issuer, **own) as connection:
        assert connection.call_tool("whoami").content[0].text == "me/None"


def test_a_person_logs_in_and_a_refresh_after_a_revocation_needs_nobody(server: AuthlibServer) -> None:
    server.clients["app"] = Client("app", "client_secret_basic", "authorization_code", secret="a-secret")
    own = {"client_id": "app", "client_secret": Secret.from_token("a-secret"), "grant_type": "authorization_code"}
    with connect(server.url, issuer=server.issuer, redirect_handler=browse, **own) as connection:
        for _ in range(2):
            assert connection.call_tool("whoami").content[0].text == "app/alice"
            server.tokens.clear()
    assert server.count["authorization_code"] == server.count["refresh_token"] == 1


def test_a_person_logs_in_through_the_proxy(server: AuthlibServer) -> None:
    server.clients["proxy"] = Client("proxy", "client_secret_post", "authorization_code", secret="the proxy's secret")
    with fastmcp_behind(server) as url, connect(url, redirect_handler=browse) as connection:
        assert connection.call_tool("whoami").content[0].text == "proxy"
    assert server.count["authorization_code"] == 1
