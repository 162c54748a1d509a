# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers, pages and people on the network that want tokens which are not theirs, or hinder who wants them.
"""

import asyncio
import ipaddress
import socket
import ssl
import threading
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
from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.oauth import MCPLoginRequest
from tests.auth.conftest import info, said
from tests.support.certificates import Authority
from tests.support.kinds import LONG
from tests.support.oauth_server import OAuthServer, allow
from tests.support.rows import rows
from tests.support.token_network import TokenNetwork

METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"


@pytest.fixture
def other() -> Iterator[OAuthServer]:
    with OAuthServer() as other:
        yield other


def failure(server_info: StreamableHttpServerInfo) -> str:
    with pytest.raises(MCPAuthorizationError) as caught, MCPConnection(server_info, connection_timeout=LONG):
        pass
    return str(caught.value)


def test_a_token_does_not_follow_a_redirect_to_another_origin(server: OAuthServer, other: OAuthServer) -> None:
    with MCPConnection(info(server.url)) as connection:
        connection.list_tools()
        server.tamper = lambda path, body: RedirectResponse(other.url, 307) if path == "/mcp" else None
        with pytest.raises(MCPInvocationError, match=r"Redirect to .* not followed"):
            connection.call_tool("whoami")
    assert other.paths == []


def test_a_token_request_does_not_follow_a_redirect_to_another_origin(server: OAuthServer, other: OAuthServer) -> None:
    server.tamper = lambda path, body: RedirectResponse(f"{other.origin}/token", 307) if path == "/token" else None
    assert "exchanging the code for a token" in failure(info(server.url))
    assert other.paths == []


def test_a_mixed_up_issuer_gets_no_code(server: OAuthServer) -> None:
    server.answer = {"iss": "https://honest.example.com"}
    assert "iss mismatch" in failure(info(server.url))
    assert "/token" not in server.paths


def test_metadata_of_another_issuer_are_not_used(server: OAuthServer) -> None:
    good = httpx2.get(f"{server.origin}{METADATA}").json()
    bad = {**good, "issuer": "https://honest.example.com"}
    server.tamper = lambda path, body: JSONResponse(bad) if path == METADATA else None
    assert "issuer mismatch" in failure(info(server.url))
    assert "/register" not in server.paths


def test_credentials_go_to_the_configured_issuer_only(server: OAuthServer, other: OAuthServer) -> None:
    # The MCP server was taken over, and names another authorization server.
    moved = {"resource": server.url, "authorization_servers": [other.origin]}
    server.tamper = lambda path, body: JSONResponse(moved) if path == RESOURCE else None
    text = failure(info(server.url, client_id="me", issuer=server.origin))
    assert f"leads to {other.origin}, which is not the configured issuer {server.origin}" in text
    assert other.paths == []


def test_an_answer_with_another_state_is_refused(server: OAuthServer) -> None:
    async def replay(login: MCPLoginRequest) -> None:
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(login.redirect_uri, params={"code": "stolen", "state": "of-an-earlier-login"})
            assert page.status_code == 400

    assert "another `state`" in failure(info(server.url, redirect_handler=replay))
    assert "/token" not in server.paths


def test_an_injected_code_fails_at_the_token_endpoint(server: OAuthServer) -> None:
    # The attacker's own code, with the right state: PKCE binds a code to the login that it is for.
    async def inject(login: MCPLoginRequest) -> None:
        assert "code_challenge_method=S256" in login.url
        other_login = login.url.replace("code_challenge=", "code_challenge=x")
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(other_login, follow_redirects=True)
            answer = await browser.post(page.url, data={"subject": "mallory"})
            await browser.get(answer.headers["location"])

    assert "exchanging the code for a token" in failure(info(server.url, redirect_handler=inject))


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/", "http://[fe80::1]/", "http://127.0.0.1:{port}/", "https://10.0.0.1/"]
)
def test_metadata_of_a_server_outside_may_not_point_inside_the_network(server: OAuthServer, place: str) -> None:
    class Outside(httpx2.AsyncHTTPTransport):
        """
        The internet: it has the server under a public address.
        """

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            assert request.url.host == "203.0.114.7", f"{request.url} was requested"
            request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=urlsplit(server.url).port)
            request.headers["host"] = request.url.netloc.decode()
            return await super().handle_async_request(request)

    inside = place.format(port=urlsplit(server.url).port)
    moved = {"resource": "https://203.0.114.7/mcp", "authorization_servers": [inside]}
    server.tamper = lambda path, body: JSONResponse(moved) if path == RESOURCE else None
    text = failure(info("https://203.0.114.7/mcp", http_transport=lambda **_: Outside()))
    assert "is refused, because it" in text
    assert METADATA not in server.paths


# The metadata service of a cloud, and loopback, in the ways in which they can be written.
CLOUD = ("169.254.169.254", "169.254.169.254.", "2852039166", "0xA9FEA9FE", "169.254.43518", "[fe80::1]")
CLOUD_IN_6 = ("[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fe80::5efe:a9fe:a9fe]")
INSIDE = ("127.1", "0177.1", "2130706433", "localhost", "0.0.0.0", "10.0.0.1", "[::1]", "[::]", "[fd00::1]")
INSIDE = (*INSIDE, "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:7f00:1::]")
OUTSIDE = ("8.8.8.8", "[2001:4860:4860::8888]", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2002:808:808::]")


@pytest.mark.parametrize("host", [*CLOUD, *CLOUD_IN_6, *INSIDE, *OUTSIDE])
async def test_addresses_are_recognized_however_they_are_written(host: str) -> None:
    async def is_refused(server_url: str) -> bool:
        async with outgoing.plain_client() as client:
            try:
                await Outgoing(client, server_url, [server_url], None).check(httpx2.URL(f"https://{host}/"))
            except MCPAuthorizationError as error:
                assert "is refused, because it leads into the network of this process" in str(error)
                return True
        return False

    assert await is_refused("https://203.0.114.7/mcp") is (host not in OUTSIDE)
    assert await is_refused("http://127.0.0.1/mcp") is (host in (*CLOUD, *CLOUD_IN_6))


def test_a_connection_goes_to_the_address_that_was_checked(server, monkeypatch):
    # Nobody else knows the name, so a second look for it fails.
    asked: list[str] = []
    look_up, port = outgoing._addresses, urlsplit(server.origin).port

    async def known(host: str) -> list[outgoing.Address]:
        asked.append(host)
        return [ipaddress.ip_address("127.0.0.1")] if host == "authorization.test" else await look_up(host)

    monkeypatch.setattr(outgoing, "_addresses", known)
    issuer = f"http://authorization.test:{port}"
    metadata = httpx2.get(f"{server.origin}{METADATA}").json()
    members = {name: f"{issuer}{path}" for name, path in (("token_endpoint", "/token"), ("issuer", ""))}
    moved = {"resource": server.url, "authorization_servers": [issuer]}
    answers = {RESOURCE: moved, METADATA: {**metadata, **members}}
    server.tamper = lambda path, body: JSONResponse(answers[path]) if path in answers else None
    server.answer = {"iss": issuer}
    with MCPConnection(info(server.url)) as connection:
        assert said(connection) == "alice"
    assert "/token" in server.paths
    assert asked.count("authorization.test") == 2  # for its metadata, and for a token


async def test_the_certificate_of_a_checked_address_must_be_that_of_the_name(tmp_path: Path) -> None:
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


async def test_a_proxy_looks_up_names_itself() -> None:
    lines: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.close()

    listener = await asyncio.start_server(proxy, "127.0.0.1", 0)
    place = httpx2.Proxy(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    request = httpx2.Request("GET", "http://as.test/x", extensions={outgoing._CHECKED: ["203.0.114.7"]})
    async with listener, outgoing.PinnedTransport(proxy=place) as transport:
        with pytest.raises(httpx2.RemoteProtocolError):
            await transport.handle_async_request(request)
    assert lines == [b"GET http://as.test/x HTTP/1.1\r\n"]


def test_the_operators_list_of_hosts_holds_for_authorization_servers(server, other, monkeypatch):
    monkeypatch.setenv("HAYSTACK_MCP_ALLOWED_HOSTS", urlsplit(server.origin).netloc)
    moved = {"resource": server.url, "authorization_servers": [other.origin]}
    server.tamper = lambda path, body: JSONResponse(moved) if path == RESOURCE else None
    assert "HAYSTACK_MCP_ALLOWED_HOSTS" in failure(info(server.url))
    assert other.paths == []


@pytest.mark.parametrize("path", [METADATA, "/token"])
def test_an_authorization_server_that_never_answers_is_given_up(server, path, monkeypatch):
    monkeypatch.setattr(outgoing, "REQUEST_TIMEOUT", 3.0)
    over = threading.Event()

    class Silence(Response):
        async def __call__(self, scope: object, receive: object, send: object) -> None:
            while not over.is_set():
                await asyncio.sleep(0.05)

    server.tamper = lambda asked, body: Silence() if asked == path else None
    try:
        assert f"{path} has not answered within 3 seconds" in failure(info(server.url))
    finally:
        over.set()


def test_an_authorization_server_that_answers_without_end_is_given_up(server: OAuthServer) -> None:
    server.tamper = lambda path, body: Response(b"x" * 5_000_000) if path == METADATA else None
    assert "has more than 1,048,576 bytes" in failure(info(server.url))


def test_a_page_of_another_host_name_cannot_reach_the_listener(server: OAuthServer) -> None:
    async def rebind(login: MCPLoginRequest) -> None:
        async with httpx2.AsyncClient() as browser:
            parameters = {"code": "mallory", "state": login.state}
            page = await browser.get(login.redirect_uri, params=parameters, headers={"Host": "evil.example.com"})
            assert page.status_code == 404
        await allow(login)

    with MCPConnection(info(server.url, redirect_handler=rebind)) as connection:
        assert said(connection) == "alice"


def test_nobody_listens_after_a_login(server: OAuthServer) -> None:
    uris: list[str] = []

    async def note(login: MCPLoginRequest) -> None:
        uris.append(login.redirect_uri)
        await allow(login)

    with MCPConnection(info(server.url, redirect_handler=note)) as connection:
        connection.list_tools()
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", urlsplit(uris[0]).port)) != 0


def test_no_call_goes_without_a_token_once_the_server_has_asked_for_one(server: OAuthServer) -> None:
    with MCPConnection(info(server.url)) as connection:
        connection.list_tools()
        server.refuses_refresh = True
        server.provider.access.clear()
        server.tamper = lambda path, body: Response(status_code=503) if path in ("/token", "/register") else None
        sent: list[bytes] = []
        before = server.tamper
        server.tamper = lambda path, body: sent.append(body) if path == "/mcp" else before(path, body)
        for _ in range(2):
            with pytest.raises(Exception, match=r"HTTP 503.*The tool did not run"):
                connection.call_tool("whoami")
    assert server.calls == []


@pytest.mark.parametrize("path", ["/token", "/register"])
def test_what_an_authorization_server_quotes_is_redacted(server: OAuthServer, path: str) -> None:
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


async def test_a_request_with_a_token_of_its_own_gets_no_other() -> None:
    network = TokenNetwork()
    auth = network.auth(client_id="me", client_secret=Secret.from_token("s"))
    async with network.client(auth=auth) as client:
        answer = await client.post(network.url, headers={"Authorization": "Bearer of-a-caller"})
    assert answer.status_code == 401
    assert [request.headers["authorization"] for request in network.requests] == ["Bearer of-a-caller"]


async def test_a_token_endpoint_without_encryption_gets_no_secret() -> None:
    network = TokenNetwork()
    network.metadata["token_endpoint"] = "http://tokens.example.com/token"
    with pytest.raises(MCPAuthorizationError, match=r"http://tokens\.example\.com/token is refused, because it is not"):
        await network.use(network.auth(client_id="me", client_secret=Secret.from_token("s")))
    assert network.forms() == []


@rows("body", [b"<html>", b"[1]", b"[" * 100_000], ids=["html", "list", "deep"])
async def test_an_answer_that_is_no_token_is_told(body: bytes) -> None:
    network = TokenNetwork()
    network.answers["/token"] = [httpx2.Response(200, content=body)]
    with pytest.raises(MCPAuthorizationError, match="asking for a token with the client's credentials at"):
        await network.use(network.auth(client_id="me", client_secret=Secret.from_token("s")))
