# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Each test points `Diagnosis` at an endpoint with one fault, and checks its report.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from haystack_integrations.tools.mcp import StreamableHttpServerInfo
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.transports.diagnose import Diagnosis, TransportName
from haystack_integrations.tools.mcp.transports.http_route import Route
from tests.support.reachable import AppThread
from tests.support.rows import rows
from tests.support.scripted_peer import HttpRequest, ScriptedPeer
from tests.support.served import free_port
from tests.support.waiting import wait_until_async

TOKEN = "tok-5ecret"
API_KEY = "key-5ecret"
QUERY_KEY = "query-5ecret"
PASSWORD = "pass-5ecret"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
BASIC = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()

URL = "http://mcp.test/mcp"
# Seconds; long enough for a busy machine. Only tests of silent servers wait that long.
TIMEOUT = 4.0
# Seconds, for tests of silent servers, which wait for a part of it.
SHORT = 1.6

pytestmark = pytest.mark.usefixtures("no_proxies")


class Network(httpx2.MockTransport):
    """
    Returns responses like a real network: their bodies have not been read yet.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answered = await super().handle_async_request(request)
        return httpx2.Response(answered.status_code, headers=answered.headers, stream=answered.stream)


async def examine(
    url: str,
    transport: TransportName,
    *,
    answer: Callable[[httpx2.Request], Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> str:
    """
    Diagnose a URL with secrets in its query and headers, in bounded time. Check that the report contains no secret.

    `answer`, if given, answers the requests.
    """
    route = Route(transport=Network(answer) if answer else None)
    with anyio.fail_after(timeout + 5):
        info = StreamableHttpServerInfo(f"{url}?api_key={QUERY_KEY}", headers={"X-Api-Key": API_KEY, **(headers or {})})
        redact = Redactor(info._secrets()).text
        diagnosis = Diagnosis(
            url=info.url, headers=info.headers, transport=transport, timeout=timeout, redact=redact, route=route
        )
        said = await diagnosis.run()
    for secret in (TOKEN, API_KEY, QUERY_KEY, PASSWORD, BASIC):
        assert secret not in (said or "")
    return said or ""


async def silence(*_: Any) -> None:
    await asyncio.Event().wait()


@pytest.fixture(scope="module")
def endpoints() -> Iterator[tuple[str, str]]:
    """
    The origins of a server over Streamable HTTP and of a server over SSE.
    """
    server = MCPServer("calculator")
    with AppThread(server.streamable_http_app()) as streamable_http, AppThread(server.sse_app()) as sse:
        yield streamable_http.origin, sse.origin


async def test_a_working_endpoint_has_no_faults_and_the_diagnosis_opens_no_session() -> None:
    server, other = MCPServer("calculator"), FastMCP("calculator")
    apps: list[tuple[Any, str, TransportName]] = [
        (server.streamable_http_app(), "/mcp", "streamable-http"),
        (server.sse_app(), "/sse", "sse"),
        (other.http_app(path="/mcp", transport="streamable-http"), "/mcp", "streamable-http"),
        (other.http_app(path="/sse", transport="sse"), "/sse", "sse"),
    ]
    with ExitStack() as stack:
        for app, path, transport in apps:
            origin = stack.enter_context(AppThread(app)).origin
            assert await examine(f"{origin}{path}", transport) == ""
        # the server answers before it forgets the request
        await wait_until_async(lambda: server.session_manager._server_instances == {}, "the end of all sessions")


async def test_an_endpoint_of_the_other_transport_is_reported(endpoints: tuple[str, str]) -> None:
    streamable_http, sse = f"{endpoints[0]}/mcp", f"{endpoints[1]}/sse"
    said = await examine(sse, "streamable-http")
    assert said == f'{sse} is an SSE endpoint: use SSEServerInfo(url="{sse}").'
    said = await examine(streamable_http, "sse")
    named = f'{streamable_http} is a streamable HTTP endpoint: use StreamableHttpServerInfo(url="{streamable_http}").'
    assert said == named
    with AppThread(FastMCP("calculator").http_app(stateless_http=True)) as served:  # its GET stays silent
        said = await examine(f"{served.origin}/mcp", "sse", timeout=2)
    assert "is a streamable HTTP endpoint: use StreamableHttpServerInfo" in said


class TestAnotherPath:
    async def test_the_report_of_a_404_names_the_endpoint(self, endpoints: tuple[str, str]) -> None:
        streamable_http, sse = endpoints
        there = f"{streamable_http}/mcp"
        for path in ("/foo", "", "/mcp/extra", "/a%3Fb"):
            assert await examine(f"{streamable_http}{path}", "streamable-http") == (
                f"{streamable_http}{path or '/'} answers 404 Not Found with text/plain{NOT_MCP} {there} is "
                f'a streamable HTTP endpoint: did you mean StreamableHttpServerInfo(url="{there}")?'
            )
        said = await examine(f"{sse}/", "sse")
        assert f'/sse is an SSE endpoint: did you mean SSEServerInfo(url="{sse}/sse")?' in said

    async def test_the_report_names_an_endpoint_that_is_mounted_at_mcp_as_by_hayhooks(self) -> None:
        def mounted(request: httpx2.Request) -> httpx2.Response:
            statuses = {"/mcp": 307, "/mcp/": 400}
            body = {"jsonrpc": "2.0"} if request.url.path == "/mcp/" else None
            return httpx2.Response(statuses.get(request.url.path, 404), json=body, headers={"Location": "/mcp/"})

        said = await examine("http://mcp.test", "streamable-http", answer=mounted)
        assert said.endswith('did you mean StreamableHttpServerInfo(url="http://mcp.test/mcp/")?')

    @rows("transport", "sse", "streamable-http")
    async def test_a_404_everywhere_is_reported_after_a_few_requests(self, transport: Any) -> None:
        asked: list[httpx2.Request] = []

        def not_found(request: httpx2.Request) -> httpx2.Response:
            asked.append(request)
            return httpx2.Response(404, text="no")

        said = await examine(URL, transport, answer=not_found)
        assert said == f"{URL} answers 404 Not Found with text/plain, not MCP: check the URL."
        assert len(asked) <= 6

    async def test_failures_of_other_paths_do_not_change_the_report(self) -> None:
        async def answer(request: httpx2.Request) -> httpx2.Response:
            if request.method == "GET":
                await silence()
            if request.url.path != "/foo":
                raise httpx2.RemoteProtocolError("garbage")
            return httpx2.Response(404)

        said = await examine("http://mcp.test/foo", "streamable-http", answer=answer, timeout=SHORT)
        assert "answers 404 Not Found" in said


FORBIDDEN = "pass the credentials as `token` or in `headers`."
FORBIDDEN_HOST = f"{FORBIDDEN[:-1]}, or use the host name in the URL that the server allows."
CHALLENGE = 'Bearer realm="the vault", resource_metadata="https://as.test/.well-known/x"'
NOT_MCP = ", not MCP: check the URL."


def refusing(status: int, challenge: str) -> Callable[..., httpx2.Response]:
    return lambda _: httpx2.Response(status, text="", headers={"WWW-Authenticate": challenge})


class TestAnswersOfTheServer:
    @rows(
        ("status", "answer", "expected"),
        (200, {"html": "<h1>Welcome</h1>"}, f"200 OK with text/html{NOT_MCP}"),
        (200, {"json": {"hello": "world"}}, f"200 OK with application/json{NOT_MCP}"),
        (200, {"text": "x" * 200_000}, f"200 OK with text/plain{NOT_MCP}"),
        (
            200,
            {"content": b"data: tick\n\n", "headers": {"Content-Type": "text/event-stream"}},
            f"200 OK with text/event-stream{NOT_MCP}",
        ),
        (202, {}, f"202 Accepted{NOT_MCP}"),
        # The lack of a client certificate, as nginx reports it.
        (400, {"html": "<title>No cert</title>"}, f"400 Bad Request with text/html (No cert){NOT_MCP}"),
        (407, {"text": "sorry"}, "407 Proxy Authentication Required: check the credentials in the URL of the proxy."),
        (421, {}, "421 Misdirected Request: add the host name to those that the server allows."),
        (429, {}, "429 Too Many Requests."),
        (520, {}, "520."),
        (
            401,
            {"headers": {"WWW-Authenticate": CHALLENGE}},
            f'401 Unauthorized ({CHALLENGE}): pass `auth="oauth"`, or the credentials as `token` or in `headers`.',
        ),
        (401, {"headers": {"WWW-Authenticate": "Basic"}}, f"401 Unauthorized (Basic): {FORBIDDEN}"),
        (403, {"headers": {"WWW-Authenticate": "Basic"}}, f"403 Forbidden (Basic): {FORBIDDEN}"),
        # Playwright's server and the TypeScript SDK refuse other names of this machine like this.
        (403, {"text": "Only at localhost:80"}, f"403 Forbidden (Only at localhost:80): {FORBIDDEN_HOST}"),
        (403, {"json": {"error": "Bad Host"}}, f'403 Forbidden ({{"error":"Bad Host"}}): {FORBIDDEN_HOST}'),
        (403, {"html": "<h1>No</h1>"}, f"403 Forbidden: {FORBIDDEN_HOST}"),
        (403, {"html": "<title>403 Forbidden</title>"}, f"403 Forbidden: {FORBIDDEN_HOST}"),
    )
    @rows("transport", "sse", "streamable-http")
    async def test_the_report_names_the_status_and_says_what_to_do(self, transport, status, answer, expected):
        said = await examine(URL, transport, answer=lambda _: httpx2.Response(status, **answer))
        assert said == f"{URL} answers {expected}"

    async def test_refused_credentials_are_reported(self) -> None:
        said = await examine(URL, "streamable-http", answer=refusing(401, "Bearer"), headers=AUTHORIZATION)
        assert said.endswith("(Bearer): the credentials in `token` or in `headers` were not accepted.")

    @rows("in_body", False, True)
    async def test_credentials_that_the_server_echoes_are_not_repeated(self, in_body: bool) -> None:
        def echo(request: httpx2.Request) -> httpx2.Response:
            sent = " ".join([*request.headers.values(), str(request.url.query), PASSWORD, "alice"])
            challenge = f'Bearer realm="bad: {sent}"'
            return httpx2.Response(401, text=challenge, headers={} if in_body else {"WWW-Authenticate": challenge})

        with_userinfo = URL.replace("http://", f"http://alice:{PASSWORD}@")
        said = await examine(with_userinfo, "streamable-http", answer=echo, headers={"X-Token": f"Token {TOKEN}"})
        assert 'realm="bad: ' in said and "***" in said
        assert said.startswith(URL) and "were not accepted" in said

    @rows(
        ("content_type", "goes_on"),
        ("application/json", False),
        ("text/event-stream", True),
    )
    async def test_the_status_is_reported_even_if_the_body_does_not_end(self, content_type: str, goes_on: bool) -> None:
        async def body() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            if goes_on:
                await silence()
            raise httpx2.ReadError("cut")

        def answer(_: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={"Content-Type": content_type}, content=body())

        said = await examine(URL, "sse", answer=answer, timeout=SHORT)
        assert said.endswith(f"answers 200 OK with {content_type}{NOT_MCP}")

    @rows(
        ("url", "location", "there"),
        (URL, f"http://alice:{PASSWORD}@other.test/mcp?api_key={QUERY_KEY}#top", "http://other.test/mcp"),
        ("https://mcp.test/mcp", "http://mcp.test/mcp/", "https://mcp.test/mcp/"),  # never from HTTPS to HTTP
    )
    async def test_a_redirect_is_reported_and_not_followed(self, url: str, location: str, there: str) -> None:
        asked: list[httpx2.Request] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            asked.append(request)
            return httpx2.Response(307, headers={"Location": location})

        said = await examine(url, "streamable-http", answer=answer, headers=AUTHORIZATION)
        assert said == f"{url} answers 307 Temporary Redirect, a redirect: use {there}, if it is the intended server."
        assert len(asked) == 1


class TestNoAnswer:
    async def test_a_host_name_that_does_not_resolve_is_reported(self) -> None:
        said = await examine("http://no-such-host.invalid/mcp", "streamable-http", timeout=20)
        assert said == (
            "The host name of no-such-host.invalid:80 does not resolve: check the URL and the DNS of this machine."
        )

    @rows("host", "127.0.0.1", "localhost", "[::1]")
    async def test_a_port_without_a_listener_is_reported(self, host: str) -> None:
        port = free_port()
        said = await examine(f"http://{host}:{port}/mcp", "sse")
        # The reason differs on machines without IPv6.
        assert f" {host}:{port}" in said
        assert "::" in host or said.startswith(f"Connection refused: nothing listens at {host}:{port}. Is the server")

    async def test_a_host_that_accepts_no_connections_is_distinguished_from_a_silent_server(self) -> None:
        with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            # A full backlog drops further connections, as a firewall does.
            for filler in (first, second):
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            port = listener.getsockname()[1]
            said = await examine(f"http://127.0.0.1:{port}/mcp", "sse", timeout=SHORT)
        assert said.startswith(f"No connection to 127.0.0.1:{port} in time")

    @rows(("timeout", "waits"), (SHORT, "0.8"), (0, "0"))
    async def test_the_diagnosis_ends_although_the_server_never_answers(self, timeout: float, waits: str) -> None:
        said = await examine(URL, "streamable-http", answer=silence, timeout=timeout)
        assert said == f"mcp.test:80 does not answer within {waits} s: the server hangs or is too slow."

    @rows("written", b"", b"220 smtp.test ESMTP\r\n\r\n")
    async def test_a_server_that_does_not_speak_http_is_reported(self, written: bytes) -> None:
        async def answer(request: HttpRequest) -> None:
            request.writer.write(written)

        async with ScriptedPeer(answer) as peer:
            said = await examine(peer.url, "streamable-http")
        assert said.startswith(f"127.0.0.1:{peer.port} closes the connection without a valid HTTP ans")

    @rows("url", "http://[::1/mcp", "http://host:port/mcp")
    async def test_a_broken_url_is_reported_as_invalid(self, url: str) -> None:
        assert await Diagnosis(url=url, headers={}, transport="sse").run() == "The URL is not valid."


class TestTLS:
    @contextmanager
    def mcp_over_tls(self, certificate: tuple[Path, Path]) -> Iterator[str]:
        app = MCPServer("calculator").streamable_http_app()
        with AppThread(app, ssl_certfile=str(certificate[0]), ssl_keyfile=str(certificate[1])) as served:
            yield served.origin

    async def test_an_untrusted_certificate_is_reported_and_plain_http_leads_to_https(self, certificate, monkeypatch):
        with self.mcp_over_tls(certificate) as origin:
            said = await examine(f"{origin}/mcp", "streamable-http")
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            assert await examine(f"{origin}/mcp", "streamable-http") == ""
            elsewhere = await examine(f"{origin.replace('127.0.0.1', 'localhost')}/mcp", "streamable-http")
            plain = await examine(f"{origin.replace('https', 'http')}/mcp", "streamable-http")
        place = origin.removeprefix("https://")
        assert said.startswith(f"The TLS certificate of {place} is not trusted: self") and "SSL_CERT_FILE" in said
        assert "not valid for 'localhost'." in elsewhere
        assert "speaks TLS (use https://)" in plain

    async def test_https_to_a_plain_http_port_is_reported(self, endpoints: tuple[str, str]) -> None:
        place = endpoints[0].removeprefix("http://")
        said = await examine(f"https://{place}/mcp", "streamable-http")
        assert said.startswith(f"The TLS handshake with {place} fails (")
        assert "the server speaks plain HTTP there (use http://)" in said

    async def test_a_missing_client_certificate_is_reported(self, certificate, server_context, monkeypatch):
        async def hang_up(_: HttpRequest) -> None:
            pass

        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        server_context.load_verify_locations(certificate[0])
        server_context.verify_mode = ssl.CERT_REQUIRED
        async with ScriptedPeer(hang_up, ssl=server_context) as peer:
            said = await examine(f"https://127.0.0.1:{peer.port}/mcp", "sse")
        # With TLS 1.3, the server refuses only after the handshake, so its alert and its reset race each other.
        assert "a client certificate" in said


async def test_cancellation_is_not_swallowed() -> None:
    asked = asyncio.Event()

    async def answer(_: httpx2.Request) -> None:
        asked.set()
        await silence()

    task = asyncio.create_task(examine(URL, "sse", answer=answer, timeout=30))
    await asyncio.wait_for(asked.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
