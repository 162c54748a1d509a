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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
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
def answering(*routes: tuple[str, list[str], Response | Callable[[Request], Response]]) -> Iterator[str]:
    """
    Serves fixed responses: path, methods, response.
    """

    def endpoint(response: Response | Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            return response if isinstance(response, Response) else response(request)

        return respond

    with serving(
        Starlette(routes=[Route(path, endpoint(response), methods=methods) for path, methods, response in routes])
    ) as origin:
        yield origin


@contextmanager
def always(response: Response | Callable[[Request], Response]) -> Iterator[str]:
    """
    Serves one response at every path; yields the URL of an endpoint.
    """
    with answering(("/{path:path}", ["GET", "POST"], response)) as origin:
        yield f"{origin}/mcp"


@asynccontextmanager
async def raw_server(
    answer: Callable[[bytes], bytes] | None = None, *, hold: bool = False, read: bool = True, **options: Any
) -> AsyncIterator[int]:
    """
    Serves bytes for bytes; without `answer` it says nothing, then closes, or with `hold` keeps the connection open.
    """
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if answer is not None:
                writer.write(answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
            elif read:
                await reader.read(1)
            if hold:
                await reader.read()
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[asyncio.create_task(talk(reader, writer))] = writer

    server = await asyncio.start_server(accept, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def streamable_http() -> Iterator[str]:
    with serving(MCPServer("calculator").streamable_http_app()) as origin:
        yield origin


@pytest.fixture(scope="module")
def sse() -> Iterator[str]:
    with serving(MCPServer("calculator").sse_app()) as origin:
        yield origin


class TestAnEndpointThatWorks:
    async def test_it_has_nothing_wrong(self, streamable_http: str, sse: str) -> None:
        assert await examine(f"{streamable_http}/mcp", "streamable-http") is None
        assert await examine(f"{sse}/sse", "sse") is None
        assert await diagnose(f"{streamable_http}/mcp", {}, transport="streamable-http") is None

    @rows(("kind", "path"), [("sse", "/sse"), ("streamable-http", "/mcp")])
    async def test_a_fastmcp_server_has_nothing_wrong(self, kind: Any, path: str) -> None:
        with serving(FastMCP("calculator").http_app(path=path, transport=kind)) as origin:
            assert await examine(f"{origin}{path}", kind) is None

    async def test_looking_opens_no_session(self) -> None:
        server = MCPServer("calculator")
        with serving(server.streamable_http_app()) as origin:
            assert await examine(f"{origin}/mcp", "streamable-http") is None
            # the server answers before it forgets the request
            await wait_until_async(lambda: server.session_manager._server_instances == {}, "the end of all sessions")


class TestTheOtherTransport:
    async def test_an_sse_endpoint_configured_as_streamable_http_is_named(self, sse: str) -> None:
        said = await examine(f"{sse}/sse", "streamable-http")
        assert said == f'{sse}/sse is an SSE endpoint: use SSEServerInfo(url="{sse}/sse").'

    async def test_a_streamable_http_endpoint_configured_as_sse_is_named(self, streamable_http: str) -> None:
        url = f"{streamable_http}/mcp"
        said = await examine(url, "sse")
        assert said == f'{url} is a streamable HTTP endpoint: use StreamableHttpServerInfo(url="{url}").'

    async def test_a_stateless_endpoint_whose_get_stays_silent_is_named(self) -> None:
        for app in (
            MCPServer("calculator").streamable_http_app(stateless_http=True),
            FastMCP("calculator").http_app(stateless_http=True),
        ):
            with serving(app) as origin:
                said = await examine(f"{origin}/mcp", "sse", timeout=2)
            assert said is not None and "is a streamable HTTP endpoint: use StreamableHttpServerInfo" in said


class TestAnotherPath:
    @rows("path", ["/foo", "/", "", "/mcp/extra", "/sse", "/a%3Fb"])
    async def test_a_404_names_the_endpoint_at_mcp(self, streamable_http: str, path: str) -> None:
        said = await examine(f"{streamable_http}{path}", "streamable-http")
        there = f"{streamable_http}/mcp"
        assert said == (
            f"{streamable_http}{path or '/'} answers 404 Not Found with text/plain, not MCP: check the URL. {there} is "
            f'a streamable HTTP endpoint: did you mean StreamableHttpServerInfo(url="{there}")?'
        )

    @rows(("transport", "path"), [("streamable-http", "/mcp"), ("sse", "/")])
    async def test_a_404_names_the_sse_endpoint(self, sse: str, transport: Any, path: str) -> None:
        said = await examine(f"{sse}{path}", transport)
        assert said is not None and said.endswith(
            f'{sse}/sse is an SSE endpoint: did you mean SSEServerInfo(url="{sse}/sse")?'
        )

    @rows(
        ("here", "there", "expected"),
        [
            (PlainTextResponse("", 405), PONG, "/mcp is a streamable HTTP endpoint: did you mean"),
            (HTMLResponse("<h1>Welcome</h1>"), PONG, "/mcp is a streamable HTTP endpoint: did you mean"),
        ],
    )
    async def test_whatever_is_not_mcp_leads_to_the_endpoint(self, here, there, expected):
        with answering(("/", ["GET", "POST"], here), ("/mcp", ["POST"], there)) as origin:
            said = await examine(f"{origin}/", "streamable-http")
        assert said is not None and f"{origin}{expected}" in said

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

    @rows("elsewhere", [b"garbage\r\n\r\n", b""], ids=["broken", "silent"])
    async def test_what_other_paths_do_takes_nothing_away(self, elsewhere: bytes) -> None:
        def answer(request: bytes) -> bytes:
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            return missing if request.startswith(b"POST /foo?") else elsewhere

        async with raw_server(answer, hold=True) as port:
            said = await examine(f"http://127.0.0.1:{port}/foo", "streamable-http", timeout=SHORT)
        assert said is not None and "answers 404 Not Found" in said


class TestCredentials:
    FORBIDDEN = "pass the credentials as `token` or in `headers`."
    CHALLENGE = 'Bearer realm="the vault", resource_metadata="https://as.test/.well-known/x"'

    @rows(
        ("status", "challenge", "headers", "expected"),
        [
            (401, CHALLENGE, {}, f'({CHALLENGE}): pass `auth="oauth"`, or the credentials as `token` or in `headers`.'),
            (401, "Basic", {}, "401 Unauthorized (Basic): pass the credentials as `token` or in `headers`."),
            (403, None, {}, f"answers 403 Forbidden: {FORBIDDEN}"),
            (401, "Bearer", AUTHORIZATION, "(Bearer): the credentials in `token` or in `headers` were not accepted."),
            (403, None, AUTHORIZATION, "403 Forbidden: the credentials in `token` or in `headers` were not accepted."),
        ],
    )
    @rows("transport", ["sse", "streamable-http"])
    async def test_a_refusal_says_what_the_server_asks_for(self, transport, status, challenge, headers, expected):
        asked = {} if challenge is None else {"WWW-Authenticate": challenge}
        with always(PlainTextResponse("", status, asked)) as url:
            said = await examine(url, transport, headers=headers)
        assert said is not None and said.startswith(f"{url} answers {status}") and said.endswith(expected)

    @rows(
        ("response", "expected"),
        [
            # As Playwright's server and the TypeScript SDK refuse other names of this machine.
            (PlainTextResponse("Only allowed at localhost:80", 403), "Forbidden (Only allowed at localhost:80): "),
            (JSONResponse({"jsonrpc": "2.0", "error": {"message": "Invalid Host"}}, 403), '"Invalid Host"}}): '),
            (HTMLResponse("<h1>No</h1>", 403), "Forbidden: "),
        ],
    )
    @rows("transport", ["sse", "streamable-http"])
    async def test_a_refusal_without_a_challenge_says_what_the_server_says(self, transport, response, expected):
        with always(response) as url:
            said = await examine(url, transport)
        assert said is not None and said.endswith(expected + self.FORBIDDEN)

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


class TestAnswersThatAreNotMCP:
    @rows(
        ("response", "expected"),
        [
            (HTMLResponse("<h1>Welcome</h1>"), "200 OK with text/html"),
            (JSONResponse({"hello": "world"}), "200 OK with application/json"),
            (Response("[" * 60_000, media_type="application/json"), "200 OK with application/json"),
            (Response("x" * 200_000, media_type="application/json"), "200 OK with application/json"),
            (Response("data: tick\n\ndata: tock\n\n", media_type="text/event-stream"), "200 OK with text/event-stream"),
            (Response(status_code=202), "202 Accepted"),
            (PlainTextResponse("", 400), "400 Bad Request with text/plain"),
            (PlainTextResponse("", 418), "418 I'm a Teapot with text/plain"),
        ],
    )
    @rows("transport", ["sse", "streamable-http"])
    async def test_the_answer_is_named(self, transport: Any, response: Response, expected: str) -> None:
        with always(response) as url:
            said = await examine(url, transport)
        assert said == f"{url} answers {expected}, not MCP: check the URL."

    @rows(
        ("head", "hold", "expected"),
        [
            (b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{", False, "application/json"),
            (b"Content-Type: text/event-stream\r\n\r\n: hello\n\n", True, "text/event-stream"),
        ],
        ids=["breaks off", "stays silent"],
    )
    async def test_a_body_that_does_not_end_leaves_the_status(self, head: bytes, hold: bool, expected: str) -> None:
        async with raw_server(lambda _: b"HTTP/1.1 200 OK\r\n" + head, hold=hold) as port:
            said = await examine(f"http://127.0.0.1:{port}/mcp", "sse", timeout=SHORT)
        assert said is not None and said.endswith(f"answers 200 OK with {expected}, not MCP: check the URL.")


class TestStatuses:
    @rows(
        ("status", "expected"),
        [
            (407, "answers 407 Proxy Authentication Required."),
            (421, "answers 421 Misdirected Request: add the host name to those that the server allows."),
            (429, "answers 429 Too Many Requests."),
            (520, "answers 520."),
        ],
    )
    @rows("transport", ["sse", "streamable-http"])
    async def test_the_status_is_named(self, transport, status, expected):
        with always(PlainTextResponse("sorry", status)) as url:
            said = await examine(url, transport)
        assert said is not None and said.startswith(url) and expected in said

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

    async def test_a_redirect_for_the_slash_names_the_whole_url(self) -> None:
        with answering(("/tools/", ["POST"], Response())) as origin:
            said = await examine(f"{origin}/tools", "streamable-http")
        assert said is not None and f"a redirect: use {origin}/tools/, if" in said


class TestNoAnswer:
    async def test_a_name_that_does_not_resolve_is_named(self) -> None:
        said = await examine("http://no-such-host.invalid/mcp", "streamable-http", timeout=20)
        assert said == (
            "The host name of no-such-host.invalid:80 does not resolve: check the URL and the DNS of this machine."
        )

    @rows("host", ["127.0.0.1", "localhost", "[::1]"])
    async def test_a_port_where_nothing_listens_is_named(self, host: str) -> None:
        port = closed_port()
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
        async with raw_server(hold=True) as port:
            said = await examine(f"http://127.0.0.1:{port}/mcp", transport, timeout=SHORT)
        assert said == f"127.0.0.1:{port} does not answer within 0.8 s: the server hangs or is too slow."

    async def test_without_time_nothing_is_asked(self) -> None:
        said = await examine("http://127.0.0.1:9/mcp", "sse", timeout=0)
        assert said is not None and "does not answer within 0 s" in said

    async def test_a_host_out_of_reach_is_named_with_the_system_s_reason(self) -> None:
        said = await examine("http://255.255.255.255:9/mcp", "sse", timeout=SHORT)
        assert said == "255.255.255.255:9 cannot be reached (ConnectError)."

    @rows("answer", [None, lambda _: b"220 smtp.test ESMTP\r\n\r\n"], ids=["nothing", "another protocol"])
    async def test_a_server_without_http_is_named(self, answer: Any) -> None:
        async with raw_server(answer) as port:
            said = await examine(f"http://127.0.0.1:{port}/mcp", "streamable-http")
        assert said is not None and said.startswith(f"127.0.0.1:{port} closes the connection without a valid HTTP ans")


class TestUrlsAndHeadersThatCannotBeSent:
    @rows("url", ["http://[::1/mcp", "http://host:port/mcp"])
    async def test_a_broken_url_is_called_invalid(self, url: str) -> None:
        assert await diagnose(url, {}, transport="sse") == "The URL is not valid."

    async def test_a_failure_without_a_name_is_given_by_its_type(self, streamable_http, monkeypatch):
        monkeypatch.setenv("http_proxy", "gopher://127.0.0.1:70")
        said = await examine(f"{streamable_http}/mcp", "sse")
        assert said is not None and said.endswith("cannot be reached (ValueError).")


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

    @rows("read", [True, False])
    async def test_a_server_that_closes_during_the_handshake_is_named(self, *, read: bool) -> None:
        async with raw_server(read=read) as port:
            said = await examine(f"https://127.0.0.1:{port}/mcp", "sse")
        assert said is not None and said.startswith(f"The TLS handshake with 127.0.0.1:{port} fails (")

    async def test_a_server_that_demands_a_client_certificate_is_named(self, certificate, server_context, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        server_context.load_verify_locations(certificate[0])
        server_context.verify_mode = ssl.CERT_REQUIRED
        async with raw_server(ssl=server_context) as port:
            said = await examine(f"https://127.0.0.1:{port}/mcp", "sse")
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

    def answer(_: bytes) -> bytes:
        asked.set()
        return b""

    async with raw_server(answer, hold=True) as port:
        task = asyncio.create_task(examine(f"http://127.0.0.1:{port}/mcp", "sse", timeout=30))
        await asyncio.wait_for(asked.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
