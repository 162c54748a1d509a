# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Logging in before a service needs the tokens, and logging out.
"""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from haystack.utils import Secret
from starlette.responses import JSONResponse, Response

from haystack_integrations.tools.mcp import (
    MCPAuthorizationError,
    MCPConnection,
    MCPError,
    OAuthConfig,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.auth.token_storage import Record, TokenKey
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.oauth import (
    FileTokenStorage,
    InMemoryTokenStorage,
    MCPLoginRequest,
    login,
    login_async,
    logout,
    logout_async,
)
from haystack_integrations.tools.mcp.protocol import channel
from tests.auth.conftest import info, said
from tests.support.oauth_server import OAuthServer, allow
from tests.support.token_network import TokenNetwork, basic
from tests.support.waiting import LIMIT

NO_BROWSER = r"this process has no browser\. Log in beforehand, with `login\(server_info\)`"


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)


def test_a_server_that_wants_a_token_only_after_the_handshake_leads_to_one_login(server, monkeypatch) -> None:
    monkeypatch.setattr(channel, "_SEND_TIMEOUT", 0.3)
    opened = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "open", "version": "1"}}
    answers = {"server/discover": {"error": {"code": -32601, "message": "?"}}, "initialize": {"result": opened}}
    pages: list[str] = []

    def answer(path: str, body: bytes) -> Response | None:
        message = json.loads(body) if path == "/mcp" else {}
        said = answers.get(message.get("method"))
        return said and JSONResponse({"jsonrpc": "2.0", "id": message["id"], **said})

    async def log_in(request: MCPLoginRequest) -> None:
        pages.append(request.url)
        await asyncio.sleep(0.6)  # nobody waits that long for the answer to a notification
        await allow(request)

    server.tamper = answer
    with suppress(MCPError), MCPConnection(info(server, redirect_handler=log_in)) as connection:
        connection.list_tools()
    assert len(pages) == 1


def test_a_service_finds_the_tokens_of_a_login(server: OAuthServer, tmp_path: Path) -> None:
    storage = FileTokenStorage(str(tmp_path))
    here = info(server, token_storage=storage)
    service = StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(token_storage=storage))
    login(here)
    asyncio.run(login_async(here, user="bob"))
    with MCPConnection(service) as connection:
        assert said(connection) == "alice"
        with mcp_request_context(user="bob"):
            assert said(connection) == "bob"
        with mcp_request_context(user="carol"), pytest.raises(Exception, match=NO_BROWSER):
            said(connection)
    assert server.count["authorizations"] == 2


def test_logins_and_logouts_use_the_storage_in_the_event_loop_of_the_connections(server: OAuthServer) -> None:
    loops = set()

    class LoopStorage(InMemoryTokenStorage):
        async def load(self, key: TokenKey) -> Record | None:
            loops.add(asyncio.get_running_loop())
            return await super().load(key)

    here = info(server, token_storage=LoopStorage())
    asyncio.run(login_async(here))
    assert asyncio.run(logout_async(here)) is True
    assert loops == {AsyncExecutor.get_instance().get_loop()}


def test_tokens_without_a_storage_are_shared_in_the_process(server: OAuthServer) -> None:
    login(StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(redirect_handler=allow)))
    with MCPConnection(StreamableHttpServerInfo(server.url, auth="oauth")) as connection:
        assert said(connection) == "alice"


def test_the_error_of_a_failed_login_says_where_and_why(server: OAuthServer) -> None:
    with pytest.raises(MCPAuthorizationError, match=r"Failed to log in at streamable HTTP server at .*: authorization"):
        login(StreamableHttpServerInfo(server.url, auth="oauth"))
    for without in (StreamableHttpServerInfo(server.url), server.url):
        with pytest.raises(ValueError, match="does not use OAuth"):
            login(without)  # type: ignore[arg-type]
    with pytest.raises(MCPAuthorizationError, match=r"could not be reached.*non-printable"):
        login(StreamableHttpServerInfo(f"{server.url}\n/", auth="oauth"))
    server.__exit__()
    with pytest.raises(MCPAuthorizationError, match="could not be reached"):
        login(StreamableHttpServerInfo(server.url, auth="oauth"))


async def test_the_error_of_a_login_without_oauth_names_the_alternatives() -> None:
    network = TokenNetwork()
    auth = network.person()
    auth.clients = lambda: httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(404)))
    with pytest.raises(
        MCPAuthorizationError, match=r"Registration failed: 404.*if it has none, pass the credentials as"
    ):
        await network.use(auth)


def test_a_logout_deletes_and_revokes_the_tokens_of_one_user(tmp_path: Path) -> None:
    storage = FileTokenStorage(str(tmp_path))
    with OAuthServer(revokes=True) as server:
        here = info(server, token_storage=storage)
        login(here)
        login(here, user="bob")

        assert logout(here) is True
        assert logout(here) is False
        assert [each.subject for each in server.provider.access.values()] == ["bob"]
        with mcp_request_context(user="bob"), MCPConnection(here) as connection:
            assert said(connection) == "bob"
        assert asyncio.run(logout_async(here, user="bob")) is True
        assert server.provider.access == server.provider.refresh == {}
    assert not list(tmp_path.glob("*.json"))


def test_the_next_call_of_an_open_session_after_a_logout_asks_for_a_new_login(server: OAuthServer) -> None:
    here = info(server)
    with MCPConnection(here) as connection:
        assert said(connection) == "alice" and logout(here) is True
        assert said(connection) == "alice"
    assert server.count["authorizations"] == 2


def test_a_logout_works_without_the_authorization_server(server: OAuthServer, caplog: pytest.LogCaptureFixture) -> None:
    here = info(server)
    login(here)
    assert logout(here) is True  # the server cannot revoke tokens
    assert "revoke" not in caplog.text
    with OAuthServer(revokes=True) as other:
        there = info(other)
        login(there)
    assert logout(there) is True
    assert "did not revoke the tokens" in caplog.text
    assert not any(secret in caplog.text for secret in other.issued)
    with pytest.raises(ValueError, match="does not use OAuth"):
        logout(StreamableHttpServerInfo(server.url))


@pytest.mark.parametrize("by", ["client_secret", "assertion_provider"])
async def test_tokens_are_revoked_by_the_client_that_got_them(by: str) -> None:
    network = TokenNetwork()
    auth = network.auth(client_id="me", grant_type="client_credentials", **{by: Secret.from_token("the-secret")})
    key = auth.holder_of(None).key
    tokens = {"refresh_token": "the-refresh", "access_token": "the-access"}
    await auth.storage.save(key, {"tokens": tokens, "authorization_server": network.metadata})
    assert await auth.log_out(None) is True
    assert await auth.storage.load(key) is None
    assert [(form["token_type_hint"], form["token"]) for form in network.forms("/revoke")] == list(tokens.items())
    if by == "client_secret":
        assert {each.headers["authorization"] for each in network.asked("/revoke")} == {basic("me", "the-secret")}
    else:
        assert {form["client_assertion"] for form in network.forms("/revoke")} == {"the-secret"}


async def test_an_access_token_that_the_server_cannot_revoke_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    network = TokenNetwork()
    unsupported = httpx2.Response(400, json={"error": "unsupported_token_type"})
    network.answers["/revoke"] = [httpx2.Response(200), unsupported]
    auth = network.person()
    network.token["refresh_token"] = "the-refresh"
    await network.use(auth)
    assert await auth.log_out(None) is True
    assert len(network.asked("/revoke")) == 2 and not caplog.text


async def test_a_logout_waits_for_a_running_refresh_and_revokes_its_tokens() -> None:
    network, storage = TokenNetwork(), InMemoryTokenStorage()
    auth = network.auth(client_id="me", grant_type="authorization_code", token_storage=storage)
    key = auth.holder_of(None).key
    tokens = {"refresh_token": "the-refresh", "access_token": "the-access"}
    await storage.save(key, {"tokens": tokens, "expires_at": 1, "authorization_server": network.metadata})
    asked, go_on = network.hold_tokens(auth)
    async with asyncio.timeout(LIMIT):
        using = asyncio.create_task(network.use(auth))
        await asked.wait()
        logging_out = asyncio.create_task(auth.log_out(None))
        await asyncio.sleep(0)
        go_on.set()
        assert (await using).text == "welcome"
        assert await logging_out is True
    assert await storage.load(key) is None
    assert network.forms("/revoke")[-1]["token"] == "the-access-token"
