# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A served server that wants tokens, and this package's own client.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from fastmcp.dependencies import Depends
from fastmcp.server.auth import AccessToken, JWTVerifier, RemoteAuthProvider, TokenVerifier
from fastmcp.server.auth.providers.jwt import RSAKeyPair
from fastmcp.server.dependencies import get_access_token
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from pydantic import AnyHttpUrl, TypeAdapter, UrlConstraints

from haystack_integrations.tools.mcp import MCPError, MCPToolset, OAuthConfig, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.support.authlib_server import AuthlibServer, Client
from tests.support.reachable import reachable

ISSUER, AUDIENCE = "https://login.example.com", "tea"


def caller() -> str:
    token = get_access_token()
    return token.claims["sub"] if token else "nobody"


def whoami(user: str) -> str:
    """Say who calls, as the server was told and as the code of the tool finds out, in its thread."""
    return f"{user}, {caller()}"


def administer() -> str:
    """What only administrators may do."""
    return "done"


@pytest.fixture(scope="module")
def keys() -> RSAKeyPair:
    return RSAKeyPair.generate()


@pytest.fixture
async def url(keys: RSAKeyPair) -> AsyncIterator[str]:
    server = create_mcp_server(
        "tea",
        tools=[create_tool_from_function(whoami), create_tool_from_function(administer)],
        auth=JWTVerifier(public_key=keys.public_key, issuer=ISSUER, audience=AUDIENCE),
        options={"whoami": ServeOptions(bound={"user": Depends(caller)}), "administer": ServeOptions(scopes=["admin"])},
    )
    async with reachable(server, over_http=True) as address:
        yield address


def token(keys: RSAKeyPair, **claims: Any) -> str:
    return keys.create_token(**{"subject": "ada", "issuer": ISSUER, "audience": AUDIENCE, **claims})


def ask(url: str, token: str | None, tool: str = "whoami") -> tuple[list[str], str]:
    """
    The names of the tools that this client sees, and what one of them answers.
    """
    server_info = StreamableHttpServerInfo(url, token=Secret.from_token(token) if token else None)
    with MCPToolset(server_info) as toolset:
        answer = json.loads(toolset[tool].invoke())
        return sorted(each.name for each in toolset), answer["content"][0]["text"]


async def test_a_tool_sees_who_calls(keys: RSAKeyPair, url: str) -> None:
    assert await asyncio.to_thread(ask, url, token(keys)) == (["whoami"], "ada, ada")
    assert await asyncio.to_thread(ask, url, token(keys, subject="grace")) == (["whoami"], "grace, grace")


async def test_a_tool_with_scopes_is_for_tokens_that_have_them(keys: RSAKeyPair, url: str) -> None:
    scoped = token(keys, scopes=["admin"])
    assert await asyncio.to_thread(ask, url, scoped, "administer") == (["administer", "whoami"], "done")


@pytest.mark.parametrize("wrong", ["none", "key", "issuer", "audience", "expired", "text"])
async def test_a_client_without_the_right_token_is_refused(keys: RSAKeyPair, url: str, wrong: str) -> None:
    sent = {
        "none": None,
        "key": token(RSAKeyPair.generate()),
        "issuer": token(keys, issuer="https://evil.example.com"),
        "audience": token(keys, audience="coffee"),
        "expired": token(keys, expires_in_seconds=-60),
        "text": "not-a-token",
    }[wrong]
    with pytest.raises(MCPError, match="401") as refused:
        await asyncio.to_thread(ask, url, sent)
    assert sent is None or sent not in str(refused.value)


class TokensOfAuthlib(TokenVerifier):
    """
    Knows which tokens an authorization server has given out.
    """

    def __init__(self, issuer: AuthlibServer) -> None:
        super().__init__(required_scopes=["use"])
        self._issuer = issuer

    async def verify_token(self, token: str) -> AccessToken | None:
        known = await self._issuer.verify_token(token)
        return known and AccessToken(token=token, client_id=known.client_id, scopes=known.scopes)


@pytest.mark.parametrize("secret", ["right", "wrong"])
async def test_a_service_logs_in_with_its_credentials_where_the_server_says(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Authlib wants https, as it should.
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")

    def client_id() -> str:
        """Say which client calls."""
        token = get_access_token()
        return token.client_id if token else "nobody"

    with AuthlibServer() as issuer:
        issuer.clients["me"] = Client("me", "client_secret_basic", "client_credentials", secret="right")

        def make_server(address: str) -> Any:
            # `AnyHttpUrl(...)` would append a slash, and clients compare issuers as texts.
            exactly = TypeAdapter(Annotated[AnyHttpUrl, UrlConstraints(preserve_empty_path=True)])
            servers = [exactly.validate_python(issuer.issuer)]
            auth = RemoteAuthProvider(TokensOfAuthlib(issuer), authorization_servers=servers, base_url=address)
            return create_mcp_server("tea", tools=[client_id], auth=auth)

        def call(url: str) -> str:
            config = OAuthConfig(
                client_id="me",
                client_secret=Secret.from_token(secret),
                issuer=issuer.issuer,
                token_storage=InMemoryTokenStorage(),
            )
            with MCPToolset(StreamableHttpServerInfo(url, oauth_config=config)) as toolset:
                return json.loads(toolset["client_id"].invoke())["content"][0]["text"]

        async with reachable(make_server) as url:
            if secret == "right":
                assert await asyncio.to_thread(call, url) == "me"
            else:
                with pytest.raises(MCPError, match="invalid_client"):
                    await asyncio.to_thread(call, url)
