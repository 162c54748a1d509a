# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers, web pages and people on the network that try to get tokens of others, or to prevent logins.
"""

import asyncio
import ipaddress
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from haystack.utils import Secret
from starlette.responses import JSONResponse, RedirectResponse, Response

from haystack_integrations.tools.mcp import (
    MCPAuthorizationError,
    MCPConnection,
    MCPInvocationError,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.auth import outgoing
from haystack_integrations.tools.mcp.auth.authorization_servers import challenge_parameters
from haystack_integrations.tools.mcp.oauth import MCPLoginRequest
from tests.auth.conftest import info, said
from tests.support.certificates import Authority
from tests.support.deployed_servers import DeployedServer
from tests.support.kinds import LONG
from tests.support.oauth_server import OAuthServer, allow
from tests.support.rows import rows
from tests.support.token_network import TokenNetwork

METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
SERVICE = {"client_id": "me", "client_secret": Secret.from_token("s3cret-value")}


@pytest.fixture
def other() -> Iterator[OAuthServer]:
    with OAuthServer() as other:
        yield other


def failure(server_info: StreamableHttpServerInfo) -> str:
    with pytest.raises(MCPAuthorizationError) as caught, MCPConnection(server_info, connection_timeout=LONG):
        pass
    return str(caught.value)


def test_tokens_and_token_requests_do_not_follow_redirects_to_another_origin(server, other):
    with MCPConnection(info(server.url)) as connection:
        connection.list_tools()
        server.tamper = lambda path, body: RedirectResponse(other.url, 307) if path == "/mcp" else None
        with pytest.raises(MCPInvocationError, match=r"Redirect to .* not followed"):
            connection.call_tool("whoami")
    server.tamper = lambda path, body: RedirectResponse(f"{other.origin}/token", 307) if path == "/token" else None
    assert "exchanging the code for a token" in failure(info(server.url))
    assert other.paths == []


def test_credentials_are_sent_only_to_the_configured_issuer(server: OAuthServer, other: OAuthServer) -> None:
    # The MCP server was hijacked, and names another authorization server.
    moved = {"resource": server.url, "authorization_servers": [other.origin]}
    server.tamper = lambda path, body: JSONResponse(moved) if path == RESOURCE else None
    text = failure(info(server.url, client_id="me", issuer=server.origin))
    assert f"leads to {other.origin}, which is not the configured issuer {server.origin}" in text
    assert all(path.startswith("/.well-known/") for path in other.paths)
    # Its metadata may claim to be those of the issuer, which is asked itself.
    claimed = {"issuer": server.origin, "token_endpoint": f"{other.origin}/token"}
    other.tamper = lambda path, body: JSONResponse(claimed) if path.startswith("/.well-known/") else None
    with MCPConnection(info(server.url, issuer=server.origin)) as connection:
        assert said(connection) == "alice"
    assert all(path.startswith("/.well-known/") for path in other.paths)


# The metadata service of a cloud, and loopback, in all their spellings.
CLOUD = ("169.254.169.254", "169.254.169.254.", "2852039166", "0xA9FEA9FE", "169.254.43518", "[fe80::1]")
CLOUD_IN_6 = ("[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fe80::5efe:a9fe:a9fe]")
INSIDE = ("127.1", "0177.1", "2130706433", "localhost", "0.0.0.0", "10.0.0.1", "[::1]", "[::]", "[fd00::1]")
INSIDE = (*INSIDE, "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:7f00:1::]")
OUTSIDE = ("8.8.8.8", "[2001:4860:4860::8888]", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2002:808:808::]")


@rows("host", *CLOUD, *CLOUD_IN_6, *INSIDE, *OUTSIDE)
async def test_metadata_of_an_external_server_may_not_point_into_the_internal_network_in_any_spelling(
    host: str,
) -> None:
    of_cloud = host in (*CLOUD, *CLOUD_IN_6)
    for origin, is_refused in {"https://203.0.114.7": host not in OUTSIDE, "http://127.0.0.1": of_cloud}.items():
        network = TokenNetwork(origin)
        moved = {"resource": network.url, "authorization_servers": [f"https://{host}/"]}
        network.answers[RESOURCE] = [httpx2.Response(200, json=moved)]
        with pytest.raises(MCPAuthorizationError) as caught:  # allowed here, but from another issuer
            await network.use(network.auth(**SERVICE))
        assert ("is refused, because it leads into the network of this process" in str(caught.value)) is is_refused
        assert {request.url.host for request in network.requests} == {urlsplit(origin).hostname} or not is_refused


async def test_connections_are_made_to_the_checked_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    server, addresses = DeployedServer(), [ipaddress.ip_address("203.0.114.9")]

    async def known(host: str) -> list[outgoing.Address]:
        return addresses

    monkeypatch.setattr(outgoing, "_addresses", known)
    assert (await server.use(server.login(**SERVICE))).text == "welcome"
    for path in (METADATA, "/token"):
        [request] = [each for each in server.asked(path) if each.url.host.endswith("as.test")]
        assert list(map(str, request.extensions[outgoing._CHECKED])) == ["203.0.114.9"]


async def test_the_certificate_of_a_checked_address_must_match_the_host_name(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = Authority(tmp_path)
    context.load_cert_chain(*authority.sign("the address, and not the name"))
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    url = f"https://as.test:{listener.sockets[0].getsockname()[1]}/"
    request = httpx2.Request("GET", url, extensions={outgoing._CHECKED: ["127.0.0.1"]})
    transport = outgoing.PinnedTransport(verify=ssl.create_default_context(cafile=str(authority.bundle)))
    async with listener, transport:
        with pytest.raises(httpx2.ConnectError, match=r"Hostname mismatch.*'as\.test'"):
            await transport.handle_async_request(request)


def test_the_operators_list_of_hosts_applies_to_authorization_servers(server, other, monkeypatch):
    monkeypatch.setenv("HAYSTACK_MCP_ALLOWED_HOSTS", urlsplit(server.origin).netloc)
    moved = {"resource": server.url, "authorization_servers": [other.origin]}
    server.tamper = lambda path, body: JSONResponse(moved) if path == RESOURCE else None
    assert "HAYSTACK_MCP_ALLOWED_HOSTS" in failure(info(server.url))
    assert other.paths == []


def test_a_login_fails_if_the_authorization_server_never_answers(server, monkeypatch):
    monkeypatch.setattr(outgoing, "REQUEST_TIMEOUT", 2.0)
    over = threading.Event()

    class Silence(Response):
        async def __call__(self, scope: object, receive: object, send: object) -> None:
            while not over.is_set():
                await asyncio.sleep(0.05)

    server.tamper = lambda path, body: Silence() if path == "/token" else None
    try:
        assert "/token has not answered within 2 seconds" in failure(info(server.url))
    finally:
        over.set()


def test_a_login_fails_if_the_authorization_servers_answer_never_ends(server: OAuthServer) -> None:
    server.tamper = lambda path, body: Response(b"x" * 5_000_000) if path == METADATA else None
    assert "has more than 1,048,576 bytes" in failure(info(server.url))


def test_the_listener_of_a_login_accepts_only_the_answer_of_the_authorization_server(server: OAuthServer) -> None:
    spare: list[socket.socket] = []

    async def rebind(login: MCPLoginRequest) -> None:
        place = urlsplit(login.redirect_uri)
        spare.append(socket.create_connection((place.hostname, place.port)))  # browsers open spare connections
        async with httpx2.AsyncClient() as browser:
            parameters = {"code": "mallory", "state": login.state}
            page = await browser.get(login.redirect_uri, params=parameters, headers={"Host": "evil.example.com"})
            assert page.status_code == 404
        await allow(login)

    with MCPConnection(info(server.url, redirect_handler=rebind)) as connection:
        assert said(connection) == "alice"
        with spare[0], socket.socket() as probe:
            spare[0].settimeout(LONG)
            assert spare[0].recv(1) == b""
            assert probe.connect_ex(spare[0].getpeername()) != 0


def test_the_page_of_a_login_that_was_given_up_does_not_end_the_next_one(server: OAuthServer) -> None:
    async def answer_twice(login: MCPLoginRequest) -> None:
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(login.redirect_uri, params={"code": "stolen", "state": "of-an-earlier-login"})
            assert (page.status_code, "the page that was opened last" in page.text) == (400, True)
        await allow(login)

    with MCPConnection(info(server.url, redirect_handler=answer_twice)) as connection:
        assert said(connection) == "alice"

    async def omit_state(login: MCPLoginRequest) -> None:
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(login.redirect_uri, params={"code": "stolen"})
            assert (page.status_code, "This login is over" in page.text) == (400, True)

    server.provider.access.clear()
    server.provider.refresh.clear()
    server.paths.clear()
    assert "does not have the `state`" in failure(info(server.url, redirect_handler=omit_state))
    assert "/token" not in server.paths


def test_no_call_is_sent_without_a_token_once_the_server_has_asked_for_one(server: OAuthServer) -> None:
    with MCPConnection(info(server.url)) as connection:
        connection.list_tools()
        server.provider.access.clear()
        server.tamper = lambda path, body: Response(status_code=503) if path in ("/token", "/register") else None
        for _ in range(2):
            with pytest.raises(MCPInvocationError, match=r"HTTP 503.*The tool did not run"):
                connection.call_tool("whoami")
    assert server.calls == []


@pytest.mark.parametrize("path", ["/token", "/register"])
def test_secrets_that_an_authorization_server_quotes_are_redacted(server: OAuthServer, path: str) -> None:
    sent: set[str] = set()

    def quote(asked: str, body: bytes) -> Response | None:
        sent.update(value for name, value in parse_qsl(body.decode()) if name in ("code", "code_verifier"))
        quoted = body.decode() + " ".join(server.issued)
        return JSONResponse({"error": "invalid_grant", "error_description": quoted}, 400) if asked == path else None

    server.tamper = quote
    with pytest.raises(MCPAuthorizationError, match="invalid_grant") as caught:
        MCPConnection(info(server.url)).open()
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(secret in shown for secret in sent | server.issued)


def test_a_long_challenge_does_not_block_the_loop() -> None:
    began = time.process_time()
    assert challenge_parameters(httpx2.Response(401, headers={"WWW-Authenticate": "a" * 50_000})) == {}
    assert time.process_time() - began < 10  # it took more than a minute


async def test_a_request_with_its_own_token_does_not_get_another() -> None:
    network = TokenNetwork()
    auth = network.auth(**SERVICE)
    async with network.client(auth=auth) as client:
        answer = await client.post(network.url, headers={"Authorization": "Bearer of-a-caller"})
    assert answer.status_code == 401
    assert [request.headers["authorization"] for request in network.requests] == ["Bearer of-a-caller"]


async def test_a_token_endpoint_without_encryption_gets_no_secret() -> None:
    network = TokenNetwork()
    network.metadata["token_endpoint"] = "http://tokens.example.com/token"
    with pytest.raises(MCPAuthorizationError, match=r"http://tokens\.example\.com/token is refused, because it is not"):
        await network.use(network.auth(**SERVICE))
    assert network.forms() == []
