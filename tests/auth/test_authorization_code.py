# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
People who allow the access, against the authorization server of the MCP SDK.
"""

import asyncio
from collections.abc import Iterator

import pytest

from haystack_integrations.tools.mcp import (
    InMemoryTokenStorage,
    MCPAuthorizationError,
    MCPConnection,
    MCPInvocationError,
    MCPLoginRequest,
    MCPTimeoutError,
    MCPToolset,
    OAuthConfig,
    SSEServerInfo,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from tests.support.oauth_server import OAuthServer, allow


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        yield server


def info(server: OAuthServer, **options: object) -> StreamableHttpServerInfo:
    options = {"redirect_handler": allow, "token_storage": InMemoryTokenStorage(), **options}
    return StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(**options))


@pytest.mark.parametrize("handshake", [False, True], ids=["stateless", "sessions"])
def test_a_person_allows_the_access_once_for_a_whole_session(handshake: bool) -> None:
    with OAuthServer(handshake=handshake) as server, MCPConnection(info(server)) as connection:
        assert said(connection, "whoami") == "alice"
        assert said(connection, "whoami") == "alice"
        assert server.count["authorizations"] == server.count["registrations"] == 1


def said(connection: MCPConnection, tool: str, **arguments: object) -> str:
    return str(connection.call_tool(tool, arguments).content[0].text)


def test_a_person_allows_the_access_over_sse() -> None:
    with OAuthServer(transport="sse") as server:
        config = OAuthConfig(redirect_handler=allow, token_storage=InMemoryTokenStorage())
        with MCPConnection(SSEServerInfo(server.url, oauth_config=config)) as connection:
            assert said(connection, "whoami") == "alice"


def test_what_is_said_of_a_token_is_redacted(server: OAuthServer) -> None:
    with MCPConnection(info(server)) as connection, pytest.raises(MCPInvocationError) as caught:
        said(connection, "leak")
    assert "no access for ***" in str(caught.value)


def test_a_request_for_more_scope_asks_the_person_again(server: OAuthServer) -> None:
    with MCPConnection(info(server)) as connection:
        assert said(connection, "whoami") == "alice"
        assert said(connection, "write") == "written"
        assert said(connection, "write") == "written"
    assert server.count["authorizations"] == 2
    assert server.count["step-ups"] == 1


def test_each_user_has_tokens_of_their_own(server: OAuthServer) -> None:
    with MCPConnection(info(server)) as connection:
        for user in ("bob", "carol", "bob"):
            with mcp_request_context(user=user):
                assert said(connection, "whoami", name=user) == user
    assert server.calls == [("bob", "bob"), ("carol", "carol"), ("bob", "bob")]
    assert server.count["tokens of bob"] == server.count["tokens of carol"] == 1


def test_without_a_browser_the_error_says_how_to_log_in(server: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(MCPAuthorizationError, match=r"has no browser\. Log in beforehand, with `login\(server_info\)`"):
        MCPToolset(info(server, redirect_handler=None)).warm_up()
    assert not server.count


async def allow_slowly(login: MCPLoginRequest) -> None:
    await asyncio.sleep(3)
    await allow(login)


def test_the_time_that_a_person_takes_counts_for_no_timeout_of_the_server(server: OAuthServer) -> None:
    slow = info(server, redirect_handler=allow_slowly)
    with MCPConnection(slow, connection_timeout=1.5, invocation_timeout=1.5) as connection:
        assert said(connection, "whoami") == "alice"
        assert said(connection, "write") == "written"
        with pytest.raises(MCPTimeoutError, match=r"1\.5 seconds"):
            said(connection, "whoami", seconds=30.0)
