# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Custom authentication: an `httpx2.Auth`, a token source of Haystack, or a subclass of `OAuthConfig`.
"""

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp import (
    MCPAuthorizationError,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPServerInfo,
    OAuthConfig,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from tests.support.identity_server import IdentityServer
from tests.support.oauth_server import OAuthServer
from tests.support.rows import rows


class Numbered(httpx2.Auth):
    """
    Counts requests; fails if the test sets `failure`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if self.failure is not None:
            raise self.failure
        self.count += 1
        request.headers["Authorization"] = f"Numbered {self.count}"
        yield request


the_one = Numbered()

URL = "https://mcp.example.com/mcp"


class Source:
    """
    A token source like those of the package `oauth-haystack`.
    """

    requires_subject_token = False

    def __init__(self, prefix: str = "source") -> None:
        self.prefix = prefix
        self.asked = 0
        self.failure: Exception | None = None

    def resolve(self) -> str:
        raise AssertionError("there is `resolve_async`")

    async def resolve_async(self) -> str:
        if self.failure is not None:
            raise self.failure
        self.asked += 1
        return f"{self.prefix}-token-{self.asked}"

    def to_dict(self) -> dict[str, Any]:
        return {"type": "tests.auth.test_own_auth.Source", "init_parameters": {"prefix": self.prefix}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Source":
        return cls(**data["init_parameters"])


class SyncSource:
    def __init__(self, token: Any) -> None:
        self.token = token

    def resolve(self) -> Any:
        return self.token


@pytest.fixture
def server() -> Iterator[IdentityServer]:
    with IdentityServer() as server:
        yield server


def seen(connection: MCPConnection) -> str:
    return str(connection.call_tool("whoami", {"name": ""}).structured_content["token"])


@pytest.mark.parametrize("auth", [the_one, "tests.auth.test_own_auth:the_one", "tests.auth.test_own_auth:Numbered"])
def test_any_auth_of_the_http_client_works(server: IdentityServer, auth: Any) -> None:
    with MCPConnection(StreamableHttpServerInfo(server.url, auth=auth)) as connection:
        assert seen(connection).startswith("Numbered ")
        with mcp_request_context(token="of-a-caller"):
            assert seen(connection) == "Bearer of-a-caller"


def test_an_auth_that_fails_fails_the_call_at_once(server: IdentityServer) -> None:
    auth = Numbered()
    with MCPConnection(StreamableHttpServerInfo(server.url, auth=auth)) as connection:
        seen(connection)
        auth.failure = RuntimeError("the vault is sealed")
        with pytest.raises(
            MCPInvocationError, match=r"authorization failed in Numbered: the vault is sealed"
        ) as caught:
            seen(connection)
        assert "did not run" in str(caught.value)
    assert server.anonymous == 0


@rows(
    ("auth", "message"),
    ("builtins:dict", "`auth` must give an httpx2.Auth, it gave dict"),
    ("tests.auth.test_own_auth:missing", "there is no 'missing' in the module"),
)
def test_an_invalid_auth_fails_the_connect_with_the_reason(server: IdentityServer, auth: str, message: str) -> None:
    with pytest.raises(MCPAuthorizationError) as caught:
        MCPConnection(StreamableHttpServerInfo(server.url, auth=auth)).open()
    assert message in str(caught.value)


def test_a_token_source_is_called_before_each_request(server: IdentityServer) -> None:
    source = Source()
    for token in ("a-sync-token", "Bearer a-sync-token"):
        with MCPConnection(StreamableHttpServerInfo(server.url, token=SyncSource(token))) as connection:
            assert seen(connection) == "Bearer a-sync-token"
            with pytest.raises(MCPInvocationError, match=r"no access for \*\*\*"):  # the token is redacted
                connection.call_tool("leak")
    with MCPConnection(StreamableHttpServerInfo(server.url, token=source)) as connection:
        first, second = seen(connection), seen(connection)
    assert first.startswith("Bearer source-token-")
    assert first != second
    assert server.anonymous == 0


def test_nothing_is_sent_or_quoted_if_a_token_source_fails(server: IdentityServer) -> None:
    source = Source()
    with MCPConnection(StreamableHttpServerInfo(server.url, token=source)) as connection:
        source.failure = ValueError("refresh token rt-123456 is invalid")
        with pytest.raises(MCPInvocationError, match=r"the token source Source raised ValueError\.") as caught:
            seen(connection)
    assert "rt-123456" not in str(caught.value)
    for token in ("", None, 5):
        with pytest.raises(MCPAuthorizationError, match="the token source SyncSource gave no token"):
            MCPConnection(StreamableHttpServerInfo(server.url, token=SyncSource(token))).open()
    assert server.anonymous == 0
    source.requires_subject_token = True
    with pytest.raises(ValueError, match="Use `token_provider`"):
        StreamableHttpServerInfo(server.url, token=source)


def test_a_token_source_survives_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests.*")
    info = StreamableHttpServerInfo("https://mcp.example.com/mcp", token=Source("mine"))
    loaded = MCPServerInfo.from_dict(info.to_dict())
    assert loaded.token.prefix == "mine"
    assert "source" not in repr(info)


def test_a_subclass_may_create_its_own_auth_as_in_2_1(server: IdentityServer) -> None:
    class Own(OAuthConfig):
        def create_auth(self, server_url: str) -> httpx2.Auth:
            assert server_url == server.url
            return Numbered()

    with MCPConnection(StreamableHttpServerInfo(server.url, oauth_config=Own())) as connection:
        assert seen(connection).startswith("Numbered ")


@rows(("parameter", "value"), ("auth", the_one), ("token", SyncSource("a-sync-token")))
def test_the_error_names_credentials_that_a_server_does_not_accept(parameter: str, value: Any) -> None:
    with OAuthServer() as server:
        info = StreamableHttpServerInfo(server.url, negotiation="handshake", **{parameter: value})
        with pytest.raises(MCPConnectionError) as caught:
            MCPConnection(info).list_tools()
        with mcp_request_context(token="of-a-user"), pytest.raises(MCPConnectionError) as of_user:
            MCPConnection(info).list_tools()
    expected = f"it answered with HTTP 401 Unauthorized. The credentials of `{parameter}` were not accepted."
    assert str(caught.value).endswith(expected)
    assert str(of_user.value).endswith("the credentials in `token` or in `headers` were not accepted.")
