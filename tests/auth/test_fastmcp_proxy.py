# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A FastMCP server whose OAuth proxy stands before an authorization server that registers no clients.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, OAuthProxy, TokenVerifier
from fastmcp.server.dependencies import get_access_token
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


async def browse(login: MCPLoginRequest) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        page = await browser.get(login.url)
        assert "Logged in" in page.text, page.text


def test_a_person_logs_in_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with AuthlibServer() as upstream, fastmcp_behind(upstream) as url:
        upstream.clients["proxy"] = Client(
            "proxy", "client_secret_post", "authorization_code", secret="the proxy's secret"
        )
        config = OAuthConfig(redirect_handler=browse, token_storage=InMemoryTokenStorage())
        with MCPConnection(StreamableHttpServerInfo(url, oauth_config=config)) as connection:
            assert connection.call_tool("whoami").content[0].text == "proxy"
        assert upstream.count["authorization_code"] == 1
