# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Every grant against an authorization server that shares no code with the client: Authlib's.
"""

import os
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    MCPAuthorizationError,
    MCPConnection,
    OAuthConfig,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage, MCPAssertionRequest, MCPLoginRequest
from tests.support.authlib_server import JWT_BEARER, AuthlibServer, Client, IdentityProvider


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


def test_a_wrong_secret_is_told_in_the_words_of_the_server_and_not_repeated(server: AuthlibServer) -> None:
    server.clients["me"] = Client("me", "client_secret_basic", "client_credentials", secret="right")
    with pytest.raises(MCPAuthorizationError) as caught:
        whose(server, client_id="me", client_secret=Secret.from_token("wrong-secret"), issuer=server.issuer)
    host = server.issuer.removeprefix("http://")
    assert f"while asking for a token with the client's credentials at {host}" in str(caught.value)
    assert "invalid_client" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)


def vouched_for(server: AuthlibServer, provider: IdentityProvider, **options: Any) -> StreamableHttpServerInfo:
    server.clients["app"] = Client(
        "app", "client_secret_basic", JWT_BEARER, secret="the-app-s3cret", public_key=provider.public_key
    )
    server.trusted_workloads[provider.issuer] = "app"
    config = OAuthConfig(
        grant_type="id_jag",
        client_id="app",
        client_secret=Secret.from_token("the-app-s3cret"),
        issuer=server.issuer,
        idp_token_endpoint=f"{provider.issuer}/token",
        idp_client_id="app-there",
        scopes=["use"],
        token_storage=InMemoryTokenStorage(),
        **options,
    )
    return StreamableHttpServerInfo(server.url, oauth_config=config)


def test_an_identity_provider_vouches_for_each_user_and_again_once_a_token_is_over(server: AuthlibServer) -> None:
    def id_token(request: MCPAssertionRequest) -> str:
        return f"id of {request.user or 'the service'}"

    with (
        IdentityProvider() as provider,
        MCPConnection(vouched_for(server, provider, id_token=id_token)) as connection,
    ):
        for _ in range(2):
            for user in ("ann", "ben"):
                with mcp_request_context(user=user):
                    assert connection.call_tool("whoami").content[0].text == f"app/{user}"
        assert [form["subject_token"] for form in provider.asked] == ["id of the service", "id of ann", "id of ben"]
        assert {(form["audience"], form["resource"], form["client_id"]) for form in provider.asked} == {
            (server.issuer, server.url, "app-there")
        }
        server.tokens.clear()
        with mcp_request_context(user="ann"):
            assert connection.call_tool("whoami").content[0].text == "app/ann"
        assert len(provider.asked) == 4


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
