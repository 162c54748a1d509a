# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Logins in which a person allows the access, with the authorization server of the MCP SDK, and in web applications.
"""

import asyncio
import socket
import threading
import webbrowser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import OAuthProxy
from fastmcp.server.auth.providers.debug import DebugTokenVerifier
from haystack.utils import Secret
from key_value.aio.stores.memory import MemoryStore
from mcp.shared.auth import OAuthClientInformationFull
from starlette.responses import Response

from haystack_integrations.tools.mcp import (
    CallOptions,
    MCPAuthorizationError,
    MCPConnection,
    MCPConnectionError,
    OAuthConfig,
    SSEServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.auth import authorization_code
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage, MCPLoginRequest
from haystack_integrations.tools.mcp.protocol import negotiation
from tests.auth.conftest import info, said
from tests.support.oauth_server import OAuthServer, allow
from tests.support.reachable import AppThread
from tests.support.rows import rows
from tests.support.token_network import TokenNetwork, basic
from tests.support.waiting import LIMIT


@pytest.mark.parametrize(("kind", "transport"), [(StreamableHttpServerInfo, "streamable-http"), (SSEServerInfo, "sse")])
def test_a_person_allows_the_access_once_per_session(kind: Any, transport: str) -> None:
    config = OAuthConfig(redirect_handler=allow, token_storage=InMemoryTokenStorage())
    with OAuthServer(transport=transport) as server:
        with MCPConnection(kind(server.url, oauth_config=config)) as connection:
            assert said(connection, "whoami") == "alice"
            assert said(connection, "whoami") == "alice"
        assert server.count["authorizations"] == server.count["registrations"] == 1


def test_the_error_of_a_server_that_breaks_after_the_login_does_not_ask_for_a_login(server: OAuthServer) -> None:
    async def allow_and_break(login: MCPLoginRequest) -> None:
        await allow(login)
        server.tamper = lambda path, body: Response(status_code=500) if path == "/mcp" else None

    with pytest.raises(MCPConnectionError) as caught, MCPConnection(info(server, redirect_handler=allow_and_break)):
        pass
    assert "it answered with HTTP 500 Internal Server Error." in str(caught.value)
    assert "log in" not in str(caught.value).lower()


def test_a_person_logs_in_through_fastmcps_proxy_for_a_server_that_registers_no_clients(server):
    # The upstream server knows the client of the proxy.
    served, known = AppThread(), {"client_id": "proxy", "client_secret": "the proxy's secret"}
    proxy = OAuthProxy(
        upstream_authorization_endpoint=f"{server.origin}/authorize",
        upstream_token_endpoint=f"{server.origin}/token",
        upstream_client_id=known["client_id"],
        upstream_client_secret=known["client_secret"],
        token_verifier=DebugTokenVerifier(lambda token: token in server.provider.access, scopes=["use"]),
        base_url=served.origin,
        token_endpoint_auth_method="client_secret_post",
        client_storage=MemoryStore(),
        jwt_signing_key="a key for tests only",
        require_authorization_consent=False,
    )
    method = {"token_endpoint_auth_method": "client_secret_post", "scope": "use write"}
    back = [f"{served.origin}/auth/callback"]
    server.provider.clients["proxy"] = OAuthClientInformationFull(redirect_uris=back, **known, **method)
    proxied = FastMCP("proxied", auth=proxy)
    proxied.tool(lambda: "welcome", name="whoami")
    served.app = proxied.http_app()
    with served, MCPConnection(info(f"{served.origin}/mcp")) as connection:
        assert said(connection) == "welcome"
    assert (server.count["authorizations"], server.count["registrations"]) == (1, 0)


async def allow_slowly(login: MCPLoginRequest) -> None:
    await asyncio.sleep(3.5)
    await allow(login)


def test_the_time_that_a_person_takes_does_not_count_towards_timeouts_of_the_server(
    server: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiation, "_DISCOVER_TIMEOUT", 3.0)
    slow = info(server, redirect_handler=allow_slowly)
    limits = CallOptions(read_timeout=3)
    with MCPConnection(slow, connection_timeout=3, invocation_timeout=3, call_options=limits) as connection:
        assert said(connection, "whoami") == "alice"
        assert said(connection, "write") == "written"
        with pytest.raises(MCPTimeoutError, match="after 3 seconds"):
            said(connection, "whoami", seconds=30.0)
    # The tool `write` needs another scope.
    assert (server.count["registrations"], server.count["authorizations"], server.count["step-ups"]) == (2, 2, 1)


class TestWithoutAListener:
    """
    Logins in a web application, which receives the answer of the authorization server itself.
    """

    @rows(
        ("answer", "message"),
        (lambda _: 5, "`callback_handler` must return a URL or a dict, got int"),
        (lambda request: {"state": request.state}, "the answer of the authorization server has no code"),
        (
            lambda request: {"error": "access_denied", "error_description": "not today", "state": request.state},
            "the authorization server refused: access_denied: not today",
        ),
        (lambda _: {"error": "access_denied"}, "the authorization server refused: access_denied"),
        (lambda _: {"error": "forged", "state": "another"}, "does not have the `state`"),
        (
            lambda request: {"code": "c", "state": request.state, "iss": "https://honest.example.com"},
            "iss mismatch: the answer is from https://honest.example.com",
        ),
        (lambda _: 1 / 0, "`callback_handler` failed (ZeroDivisionError"),
    )
    async def test_the_error_for_an_answer_without_a_code_says_what_is_wrong(self, answer: Any, message: str) -> None:
        network = TokenNetwork()
        with pytest.raises(MCPAuthorizationError, match="while waiting for the login") as caught:
            await network.use(network.person(callback_handler=answer))
        assert message in str(caught.value)
        assert network.forms() == []

    @pytest.mark.parametrize("handler", ["redirect_handler", "callback_handler"])
    async def test_a_login_waits_no_longer_than_the_login_timeout(self, handler: str) -> None:
        async def never(request: MCPLoginRequest) -> str:
            await asyncio.Event().wait()
            return ""

        network = TokenNetwork()
        with pytest.raises(MCPAuthorizationError, match=r"nobody logged in within 0\.05 seconds \(`login_timeout`\)"):
            async with asyncio.timeout(LIMIT):
                await network.use(network.person(**{handler: never}, login_timeout=0.05))

    async def test_a_function_that_waits_for_a_person_does_not_block_others(self) -> None:
        network, is_asked, may_answer = TokenNetwork(), asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def answer(request: MCPLoginRequest) -> Any:
            loop.call_soon_threadsafe(is_asked.set)
            return {"code": "the-code", "state": request.state} if may_answer.wait(LIMIT / 2) else {}

        logging_in = asyncio.create_task(network.use(network.person(callback_handler=answer)))
        await is_asked.wait()
        may_answer.set()
        assert (await logging_in).text == "welcome"

    @rows(
        ("methods", "is_basic"),
        (None, True),
        (["client_secret_post"], False),
        (["client_secret_post", "client_secret_basic"], True),
    )
    async def test_a_client_secret_is_sent_in_the_way_that_the_server_supports(self, methods, is_basic):
        network = TokenNetwork()
        network.metadata["token_endpoint_auth_methods_supported"] = methods
        own = {"client_id": "given", "client_secret": Secret.from_token("the+secret/:")}
        assert (await network.use(network.person(grant_type="authorization_code", **own))).text == "welcome"
        [form], [request] = network.forms(), network.asked("/token")
        assert request.headers.get("authorization") == (basic("given", "the%2Bsecret%2F%3A") if is_basic else None)
        assert form.get("client_secret") == (None if is_basic else "the+secret/:")


async def test_the_login_fails_if_the_configured_port_is_taken(network: TokenNetwork) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        uri = f"http://127.0.0.1:{taken.getsockname()[1]}/callback"
        with pytest.raises(MCPAuthorizationError, match="the port of the `redirect_uri` cannot be listened on"):
            await network.use(network.auth(redirect_uri=uri, redirect_handler=allow))
    assert network.forms() == []


@rows("opens", True, False)
async def test_the_login_page_opens_in_the_browser_of_this_machine(
    opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, is_closed, opened = TokenNetwork(), threading.Event(), []

    def open_page(url: str) -> bool:
        opened.append(url)
        if opens:
            query = parse_qs(urlsplit(url).query)
            page = httpx2.get(query["redirect_uri"][0], params={"code": "the-code", "state": query["state"][0]})
            assert "You can close this page." in page.text
            is_closed.wait(LIMIT)  # like programs in `BROWSER`
        return opens

    monkeypatch.setenv("BROWSER", "a-browser")
    monkeypatch.setattr(webbrowser, "open", open_page)
    monkeypatch.setattr(authorization_code, "_OPENING_TIMEOUT", 0.5)
    if opens:
        async with asyncio.timeout(LIMIT / 2):
            assert (await network.use(network.auth())).text == "welcome"
        is_closed.set()
    else:
        with pytest.raises(MCPAuthorizationError, match="the browser does not open"):
            await network.use(network.auth())
    [url] = opened
    assert url.startswith(f"{network.origin}/authorize?")


async def test_a_refusal_without_a_state_is_reported_as_a_refusal(network: TokenNetwork) -> None:
    async def refuse(request: MCPLoginRequest) -> None:
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(request.redirect_uri, params={"error": "access_denied"})
        assert "The access was not allowed." in page.text

    with pytest.raises(MCPAuthorizationError, match="the authorization server refused: access_denied"):
        await network.use(network.auth(redirect_handler=refuse))
