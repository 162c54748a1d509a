# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Each test points `diagnose` at a real endpoint with one thing wrong and reads what it says about it.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from haystack_integrations.tools.mcp import StreamableHttpServerInfo
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.transports.diagnose import Transport, diagnose
from tests.support.reachable import AppThread
from tests.support.rows import rows
from tests.support.scripted_peer import HttpRequest, ScriptedPeer, response
from tests.support.served import free_port
from tests.support.waiting import wait_until_async

TOKEN = "tok-5ecret"
API_KEY = "key-5ecret"
QUERY_KEY = "query-5ecret"
PASSWORD = "pass-5ecret"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
PONG = JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})
BASIC = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()

# Long enough for a busy machine, and never waited for unless the server is silent.
TIMEOUT = 4.0
# For tests of servers that stay silent, which wait a part of it.
SHORT = 1.6


pytestmark = pytest.mark.usefixtures("no_proxies")


async def examine(
    url: str, transport: Transport, *, headers: Mapping[str, str] | None = None, timeout: float = TIMEOUT
) -> str | None:
    """
    Diagnoses `url` with secrets in its query and headers, in bounded time, and checks that none comes back.
    """
    with anyio.fail_after(timeout + 5):
        info = StreamableHttpServerInfo(f"{url}?api_key={QUERY_KEY}", headers={"X-Api-Key": API_KEY, **(headers or {})})
        redact = Redactor(info._secrets()).text
        said = await diagnose(info.url, info.headers, transport=transport, timeout=timeout, redact=redact)
    for secret in (TOKEN, API_KEY, QUERY_KEY, PASSWORD, BASIC):
        assert secret not in (said or "")
    return said


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """
    Serves an ASGI app from a thread, on a free port; yields its origin.
    """
    with AppThread(app, **options) as served:
        yield served.origin


@contextmanager
def always(answer: Response | Callable[[Request], Response]) -> Iterator[str]:
    """
    Serves one response at every path; yields the URL of an endpoint.
    """

    async def respond(request: Request) -> Response:
        return answer if isinstance(answer, Response) else answer(request)

    with serving(Starlette(routes=[Route("/{path:path}", respond, methods=["GET", "POST"])])) as origin:
        yield f"{origin}/mcp"


async def silence(_: HttpRequest) -> None:
    await asyncio.Event().wait()


async def hang_up(_: HttpRequest) -> None:
    pass


@pytest.fixture(scope="module")
def streamable_http() -> Iterator[str]:
    with serving(MCPServer("calculator").streamable_http_app()) as origin:
        yield origin


@pytest.fixture(scope="module")
def sse() -> Iterator[str]:
    with serving(MCPServer("calculator").sse_app()) as origin:
        yield origin


@rows(
    ("app", "path", "transport"),
    [
        (MCPServer("calculator").streamable_http_app(), "/mcp", "streamable-http"),
        (MCPServer("calculator").sse_app(), "/sse", "sse"),
        (FastMCP("calculator").http_app(path="/mcp", transport="streamable-http"), "/mcp", "streamable-http"),
        (FastMCP("calculator").http_app(path="/sse", transport="sse"), "/sse", "sse"),
    ],
)
async def test_an_endpoint_that_works_has_nothing_wrong(app: Any, path: str, transport: Any) -> None:
    with serving(app) as origin:
        assert await examine(f"{origin}{path}", transport) is None


async def test_looking_opens_no_session() -> None:
    server = MCPServer("calculator")
    with serving(server.streamable_http_app()) as origin:
        assert await examine(f"{origin}/mcp", "streamable-http") is None
        # the server answers before it forgets the request
        await wait_until_async(lambda: server.session_manager._server_instances == {}, "the end of all sessions")


async def test_an_endpoint_of_the_other_transport_is_named(sse: str, streamable_http: str) -> None:
    said = await examine(f"{sse}/sse", "streamable-http")
    assert said == f'{sse}/sse is an SSE endpoint: use SSEServerInfo(url="{sse}/sse").'
    url = f"{streamable_http}/mcp"
    said = await examine(url, "sse")
    assert said == f'{url} is a streamable HTTP endpoint: use StreamableHttpServerInfo(url="{url}").'
    with serving(FastMCP("calculator").http_app(stateless_http=True)) as origin:  # its GET stays silent
        said = await examine(f"{origin}/mcp", "sse", timeout=2)
    assert said is not None and "is a streamable HTTP endpoint: use StreamableHttpServerInfo" in said


class TestAnotherPath:
    async def test_a_404_names_the_endpoint(self, streamable_http: str, sse: str) -> None:
        there = f"{streamable_http}/mcp"
        for path in ("/foo", "/", "", "/mcp/extra", "/sse", "/a%3Fb"):
            assert await examine(f"{streamable_http}{path}", "streamable-http") == (
                f"{streamable_http}{path or '/'} answers 404 Not Found with text/plain{NOT_MCP} {there} is "
                f'a streamable HTTP endpoint: did you mean StreamableHttpServerInfo(url="{there}")?'
            )
        said = await examine(f"{sse}/", "sse")
        assert said is not None and f'/sse is an SSE endpoint: did you mean SSEServerInfo(url="{sse}/sse")?' in said

    @rows("transport", ["sse", "streamable-http"])
    async def test_a_404_everywhere_is_reported_after_a_few_requests(self, transport: Any) -> None:
        asked: list[str] = []

        def not_found(request: Request) -> Response:
            asked.append(request.url.path)
            return PlainTextResponse("no", 404)

        with always(not_found) as url:
            said = await examine(url, transport)
        assert said == f"{url} answers 404 Not Found with text/plain, not MCP: check the URL."
        assert len(asked) <= 6

    async def test_what_other_paths_do_takes_nothing_away(self) -> None:
        async def answer(request: HttpRequest) -> bytes | None:
            if request.target.startswith("/foo?") and request.method == "POST":
                return response("404 Not Found")
            return await silence(request) if request.method == "GET" else b"garbage\r\n\r\n"

        async with ScriptedPeer(answer) as peer:
            said = await examine(f"http://127.0.0.1:{peer.port}/foo", "streamable-http", timeout=SHORT)
        assert said is not None and "answers 404 Not Found" in said


FORBIDDEN = "pass the credentials as `token` or in `headers`."
CHALLENGE = 'Bearer realm="the vault", resource_metadata="https://as.test/.well-known/x"'
NOT_MCP = ", not MCP: check the URL."


def refusing(status: int, challenge: str) -> Response:
    return PlainTextResponse("", status, {"WWW-Authenticate": challenge})


class TestWhatTheServerAnswers:
    @rows(
        ("answer", "expected"),
        [
            (HTMLResponse("<h1>Welcome</h1>"), f"200 OK with text/html{NOT_MCP}"),
            (JSONResponse({"hello": "world"}), f"200 OK with application/json{NOT_MCP}"),
            (Response("x" * 200_000, media_type="application/json"), f"200 OK with application/json{NOT_MCP}"),
            (Response("data: tick\n\n", media_type="text/event-stream"), f"200 OK with text/event-stream{NOT_MCP}"),
            (Response(status_code=202), f"202 Accepted{NOT_MCP}"),
            (PlainTextResponse("", 418), f"418 I'm a Teapot with text/plain{NOT_MCP}"),
            (PlainTextResponse("sorry", 407), "407 Proxy Authentication Required."),
            (
                PlainTextResponse("sorry", 421),
                "421 Misdirected Request: add the host name to those that the server allows.",
            ),
            (PlainTextResponse("sorry", 429), "429 Too Many Requests."),
            (PlainTextResponse("sorry", 520), "520."),
            (
                refusing(401, CHALLENGE),
                f'401 Unauthorized ({CHALLENGE}): pass `auth="oauth"`, or the credentials as `token` or in `headers`.',
            ),
            (refusing(401, "Basic"), f"401 Unauthorized (Basic): {FORBIDDEN}"),
            # As Playwright's server and the TypeScript SDK refuse other names of this machine.
            (
                PlainTextResponse("Only allowed at localhost:80", 403),
                f"403 Forbidden (Only allowed at localhost:80): {FORBIDDEN}",
            ),
            (JSONResponse({"error": "Invalid Host"}, 403), f'403 Forbidden ({{"error":"Invalid Host"}}): {FORBIDDEN}'),
            (HTMLResponse("<h1>No</h1>", 403), f"403 Forbidden: {FORBIDDEN}"),
        ],
    )
    @rows("transport", ["sse", "streamable-http"])
    async def test_it_is_named_with_what_to_do(self, transport: Any, answer: Response, expected: str) -> None:
        with always(answer) as url:
            assert await examine(url, transport) == f"{url} answers {expected}"

    async def test_credentials_that_are_refused_are_said_to_be(self) -> None:
        with always(refusing(401, "Bearer")) as url:
            said = await examine(url, "streamable-http", headers=AUTHORIZATION)
        assert said is not None and said.endswith(
            "(Bearer): the credentials in `token` or in `headers` were not accepted."
        )

    @rows("in_body", [False, True])
    async def test_credentials_that_the_server_echoes_are_not_repeated(self, in_body: bool) -> None:
        def echo(request: Request) -> Response:
            sent = " ".join([*request.headers.values(), str(request.url.query), PASSWORD, "alice"])
            challenge = f'Bearer realm="bad: {sent}"'
            return PlainTextResponse(challenge, 401, None if in_body else {"WWW-Authenticate": challenge})

        with always(echo) as url:
            with_userinfo = url.replace("http://", f"http://alice:{PASSWORD}@")
            said = await examine(with_userinfo, "streamable-http", headers={"X-Token": f"Token {TOKEN}"})
        assert said is not None and 'realm="bad: ' in said and "***" in said
        assert said.startswith(url) and "were not accepted" in said

    @rows(
        ("head", "is_open", "expected"),
        [
            (b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{", False, "application/json"),
            (b"Content-Type: text/event-stream\r\n\r\n: hello\n\n", True, "text/event-stream"),
        ],
    )
    async def test_a_body_that_does_not_end_leaves_the_status(self, head: bytes, is_open: bool, expected: str) -> None:
        async def answer(request: HttpRequest) -> None:
            request.writer.write(b"HTTP/1.1 200 OK\r\n" + head)
            if is_open:
                await silence(request)

        async with ScriptedPeer(answer) as peer:
            said = await examine(peer.url, "sse", timeout=SHORT)
        assert said is not None and said.endswith(f"answers 200 OK with {expected}{NOT_MCP}")

    async def test_a_redirect_is_reported_and_not_followed(self) -> None:
        asked: list[str] = []

        def seen(request: Request) -> Response:
            asked.append(request.url.path)
            return PlainTextResponse("")

        with always(seen) as elsewhere:
            there = elsewhere.replace("http://", f"http://alice:{PASSWORD}@")
            with always(RedirectResponse(f"{there}?api_key={QUERY_KEY}#top")) as url:
                said = await examine(url, "streamable-http", headers=AUTHORIZATION)
        assert said == (
            f"{url} answers 307 Temporary Redirect, a redirect: use {elsewhere}, if it is the intended server."
        )
        assert asked == []


class TestNoAnswer:
    async def test_a_name_that_does_not_resolve_is_named(self) -> None:
        said = await examine("http://no-such-host.invalid/mcp", "streamable-http", timeout=20)
        assert said == (
            "The host name of no-such-host.invalid:80 does not resolve: check the URL and the DNS of this machine."
        )

    @rows("host", ["127.0.0.1", "localhost", "[::1]"])
    async def test_a_port_where_nothing_listens_is_named(self, host: str) -> None:
        port = free_port()
        said = await examine(f"http://{host}:{port}/mcp", "sse")
        # Where the machine has no IPv6, the reason is another one.
        assert said is not None and f" {host}:{port}" in said
        assert "::" in host or said.startswith(f"Connection refused: nothing listens at {host}:{port}. Is the server")

    async def test_a_host_that_takes_no_connection_is_told_from_a_silent_server(self) -> None:
        with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            # A full backlog drops further connections, as a firewall does.
            for filler in (first, second):
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            port = listener.getsockname()[1]
            said = await examine(f"http://127.0.0.1:{port}/mcp", "sse", timeout=SHORT)
        assert said is not None and said.startswith(f"No connection to 127.0.0.1:{port} in time")

    @rows("transport", ["sse", "streamable-http"])
    async def test_a_server_that_never_answers_is_not_waited_for(self, transport: Any) -> None:
        async with ScriptedPeer(silence) as peer:
            said = await examine(peer.url, transport, timeout=SHORT)
        assert said == f"127.0.0.1:{peer.port} does not answer within 0.8 s: the server hangs or is too slow."

    async def test_without_time_nothing_is_asked(self) -> None:
        said = await examine("http://127.0.0.1:9/mcp", "sse", timeout=0)
        assert said is not None and "does not answer within 0 s" in said

    @rows("written", [b"", b"220 smtp.test ESMTP\r\n\r\n"])
    async def test_a_server_without_http_is_named(self, written: bytes) -> None:
        async def answer(request: HttpRequest) -> None:
            request.writer.write(written)

        async with ScriptedPeer(answer) as peer:
            said = await examine(peer.url, "streamable-http")
        assert said is not None and said.startswith(
            f"127.0.0.1:{peer.port} closes the connection without a valid HTTP ans"
        )

    @rows("url", ["http://[::1/mcp", "http://host:port/mcp"])
    async def test_a_broken_url_is_called_invalid(self, url: str) -> None:
        assert await diagnose(url, {}, transport="sse") == "The URL is not valid."


class TestTLS:
    @contextmanager
    def mcp_over_tls(self, certificate: tuple[Path, Path]) -> Iterator[str]:
        app = MCPServer("calculator").streamable_http_app()
        with serving(app, ssl_certfile=str(certificate[0]), ssl_keyfile=str(certificate[1])) as origin:
            yield origin

    async def test_a_certificate_counts_once_it_is_trusted(self, certificate, monkeypatch):
        with self.mcp_over_tls(certificate) as origin:
            said = await examine(f"{origin}/mcp", "streamable-http")
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            assert await examine(f"{origin}/mcp", "streamable-http") is None
            elsewhere = await examine(f"{origin.replace('127.0.0.1', 'localhost')}/mcp", "streamable-http")
        place = origin.removeprefix("https://")
        assert said is not None and said.startswith(f"The TLS certificate of {place} is not trusted: self")
        assert "SSL_CERT_FILE" in said
        assert elsewhere is not None and "not valid for 'localhost'." in elsewhere

    async def test_plain_http_to_a_tls_port_leads_to_https(self, certificate: tuple[Path, Path]) -> None:
        with self.mcp_over_tls(certificate) as origin:
            said = await examine(f"{origin.replace('https', 'http')}/mcp", "streamable-http")
        assert said is not None and "speaks TLS (use https://)" in said

    async def test_https_to_a_plain_http_port_is_named(self, streamable_http: str) -> None:
        place = streamable_http.removeprefix("http://")
        said = await examine(f"https://{place}/mcp", "streamable-http")
        assert said is not None and said.startswith(f"The TLS handshake with {place} fails (")
        assert "the server speaks plain HTTP there (use http://)" in said

    async def test_a_server_that_closes_during_the_handshake_is_named(self) -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            said = await examine(f"https://127.0.0.1:{port}/mcp", "sse")
        assert said is not None and said.startswith(f"The TLS handshake with 127.0.0.1:{port} fails (")

    async def test_a_server_that_demands_a_client_certificate_is_named(self, certificate, server_context, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        server_context.load_verify_locations(certificate[0])
        server_context.verify_mode = ssl.CERT_REQUIRED
        async with ScriptedPeer(hang_up, ssl=server_context) as peer:
            said = await examine(f"https://127.0.0.1:{peer.port}/mcp", "sse")
        # TLS 1.3 has the server refuse only after the handshake, so its alert and its reset race each other.
        assert said is not None and "a client certificate" in said

    async def test_a_redirect_out_of_tls_is_not_recommended_as_it_stands(self, certificate, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        app = Starlette(routes=[Mount("/", RedirectResponse("http://mcp.test/mcp/"))])
        with serving(app, ssl_certfile=str(certificate[0]), ssl_keyfile=str(certificate[1])) as origin:
            said = await examine(f"{origin}/mcp", "streamable-http")
        assert said is not None and ": use https://mcp.test/mcp/, if it is" in said


async def test_cancellation_is_not_swallowed() -> None:
    asked = asyncio.Event()

    async def answer(request: HttpRequest) -> None:
        asked.set()
        await silence(request)

    async with ScriptedPeer(answer) as peer:
        task = asyncio.create_task(examine(peer.url, "sse", timeout=30))
        await asyncio.wait_for(asked.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
