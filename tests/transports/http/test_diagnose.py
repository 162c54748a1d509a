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
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from haystack_integrations.tools.mcp import StreamableHttpServerInfo
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.transports.http.diagnose import Transport, diagnose
from tests.support.rows import rows

TOKEN = "tok-5ecret"
API_KEY = "key-5ecret"
QUERY_KEY = "query-5ecret"
PASSWORD = "pass-5ecret"
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


class ThreadedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """
    Serves an ASGI app from a thread, on a free port; yields its origin.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, ws="none", **options)
    server = ThreadedServer(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        assert server.ready.wait(10)
        yield f"{'https' if config.is_ssl else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


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


@contextmanager
def blocking_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """
    Hands each connection to `talk`, in a thread: with a blocking socket, the test decides what a handshake sends.
    """

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            connection.settimeout(5)
            with connection, suppress(OSError):
                # The connection that ends the server says nothing.
                if not connection.recv(1, socket.MSG_PEEK):
                    return
                talk(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            socket.create_connection(listener.getsockname()).close()
            thread.join(10)


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


@pytest.fixture
def trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))


class TestAnEndpointThatWorks:
    async def test_a_streamable_http_endpoint_has_nothing_wrong(self, streamable_http: str) -> None:
        assert await examine(f"{streamable_http}/mcp", "streamable-http") is None

    async def test_a_stateless_streamable_http_endpoint_has_nothing_wrong(self) -> None:
        with serving(MCPServer("calculator").streamable_http_app(stateless_http=True)) as origin:
            assert await examine(f"{origin}/mcp", "streamable-http") is None

    async def test_an_sse_endpoint_has_nothing_wrong(self, sse: str) -> None:
        assert await examine(f"{sse}/sse", "sse") is None

    @rows(("kind", "path"), [("sse", "/sse"), ("streamable-http", "/mcp")])
    async def test_a_fastmcp_server_has_nothing_wrong(self, kind: Any, path: str) -> None:
        with serving(FastMCP("calculator").http_app(path=path, transport=kind)) as origin:
            assert await examine(f"{origin}{path}", kind) is None

    async def test_looking_opens_no_session(self) -> None:
        server = MCPServer("calculator")
        app = server.streamable_http_app()
        with serving(app) as origin:
            assert await examine(f"{origin}/mcp", "streamable-http") is None
            assert server.session_manager._server_instances == {}

    async def test_without_a_query_string_and_headers_there_is_nothing_wrong_either(self, streamable_http: str) -> None:
        assert await diagnose(f"{streamable_http}/mcp", {}, transport="streamable-http") is None


class TestTheOtherTransport:
    async def test_an_sse_endpoint_configured_as_streamable_http_is_named(self, sse: str) -> None:
        said = await examine(f"{sse}/sse", "streamable-http")
        assert said == f'{sse}/sse is an SSE endpoint: use SSEServerInfo(url="{sse}/sse").'

    async def test_a_streamable_http_endpoint_configured_as_sse_is_named(self, streamable_http: str) -> None:
        url = f"{streamable_http}/mcp"
        said = await examine(url, "sse")
        assert said == f'{url} is a streamable HTTP endpoint: use StreamableHttpServerInfo(url="{url}").'

    async def test_a_stateless_endpoint_whose_get_stays_silent_is_named(self) -> None:
        with serving(MCPServer("calculator").streamable_http_app(stateless_http=True)) as origin:
            said = await examine(f"{origin}/mcp", "sse", timeout=2)
        assert said is not None and "is a streamable HTTP endpoint: use StreamableHttpServerInfo" in said

    async def test_a_fastmcp_endpoint_configured_as_sse_is_named(self) -> None:
        with serving(FastMCP("calculator").http_app(stateless_http=True)) as origin:
            said = await examine(f"{origin}/mcp", "sse", timeout=2)
        assert said is not None and "is a streamable HTTP endpoint: use StreamableHttpServerInfo" in said

    async def test_a_mismatch_counts_more_than_a_406_of_the_wrong_method(self) -> None:
        refusal = JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Accept"}}, 406)
        with always(refusal) as url:
            said = await examine(url, "sse")
        assert said is not None and "is a streamable HTTP endpoint" in said


class TestAnotherPath:
    @pytest.mark.parametrize("path", ["/foo", "/", "", "/mcp/extra", "/sse", "/a%3Fb"])
    async def test_a_404_names_the_endpoint_at_mcp(self, streamable_http: str, path: str) -> None:
        said = await examine(f"{streamable_http}{path}", "streamable-http")
        assert said == (
            f"404 Not Found at {path or '/'}; there is an MCP endpoint at /mcp: did you mean {streamable_http}/mcp?"
        )

    async def test_a_404_names_the_sse_endpoint_and_its_server_info(self, sse: str) -> None:
        said = await examine(f"{sse}/mcp", "streamable-http")
        assert said == (
            f'404 Not Found at /mcp; there is an SSE endpoint at /sse: did you mean SSEServerInfo(url="{sse}/sse")?'
        )

    async def test_a_404_of_an_sse_configuration_names_the_sse_endpoint(self, sse: str) -> None:
        said = await examine(f"{sse}/", "sse")
        assert said == f"404 Not Found at /; there is an MCP endpoint at /sse: did you mean {sse}/sse?"

    async def test_a_404_of_an_sse_configuration_names_the_streamable_http_endpoint(self, streamable_http: str) -> None:
        said = await examine(f"{streamable_http}/sse", "sse")
        assert said is not None and said.endswith(
            f'a streamable HTTP endpoint at /mcp: did you mean StreamableHttpServerInfo(url="{streamable_http}/mcp")?'
        )

    @rows(("configured", "served"), [("/tools/", "/tools"), ("/tools", "/tools/")])
    async def test_a_404_for_the_trailing_slash_names_the_other_form(self, configured: str, served: str) -> None:
        app = MCPServer("calculator").streamable_http_app(streamable_http_path=served)
        app.router.redirect_slashes = False
        with serving(app) as origin:
            said = await examine(f"{origin}{configured}", "streamable-http")
        assert said is not None and said.endswith(f"an MCP endpoint at {served}: did you mean {origin}{served}?")

    async def test_a_405_names_the_endpoint_at_mcp(self) -> None:
        pong = JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})
        with answering(("/", ["DELETE"], Response()), ("/mcp", ["POST"], pong)) as origin:
            said = await examine(f"{origin}/", "streamable-http")
        assert said is not None and said.startswith("405 Method Not Allowed at /; there is an MCP endpoint at /mcp")

    async def test_an_endpoint_behind_a_login_counts_as_an_endpoint(self) -> None:
        with answering(("/mcp", ["POST"], PlainTextResponse("who?", 401))) as origin:
            said = await examine(f"{origin}/foo", "streamable-http")
        assert said is not None and "an endpoint that asks for credentials at /mcp" in said

    async def test_a_web_page_at_the_root_leads_to_the_endpoint(self) -> None:
        pong = JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})
        page = HTMLResponse("<h1>Welcome</h1>")
        with answering(("/", ["GET", "POST"], page), ("/mcp", ["POST"], pong)) as origin:
            said = await examine(f"{origin}/", "streamable-http")
        assert said == f"A web page at /; there is an MCP endpoint at /mcp: did you mean {origin}/mcp?"

    @rows("transport", ["sse", "streamable-http"])
    async def test_a_404_everywhere_is_reported_after_a_few_requests(self, transport: Any) -> None:
        asked: list[str] = []

        def not_found(request: Request) -> Response:
            asked.append(request.url.path)
            return PlainTextResponse("no", 404)

        with always(not_found) as url:
            said = await examine(url, transport)
        assert said == f"{url} answers 404 Not Found: there is nothing at this path; check the URL."
        assert len(asked) <= 6

    async def test_a_sibling_that_breaks_the_connection_takes_nothing_away(self) -> None:
        def answer(request: bytes) -> bytes:
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            return missing if b" /foo?" in request else b"garbage\r\n\r\n"

        async with raw_server(answer) as port:
            said = await examine(f"http://127.0.0.1:{port}/foo", "streamable-http")
        assert said is not None and "answers 404 Not Found" in said

    async def test_a_sibling_that_stays_silent_takes_nothing_away(self) -> None:
        def answer(request: bytes) -> bytes:
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            return missing if request.startswith(b"POST /foo?") else b""

        async with raw_server(answer, hold=True) as port:
            said = await examine(f"http://127.0.0.1:{port}/foo", "streamable-http", timeout=SHORT)
        assert said is not None and "answers 404 Not Found" in said


class TestCredentials:
    CHALLENGE = 'Bearer realm="the vault", error="invalid_token", resource_metadata="https://as.test/.well-known/x?y=z"'

    async def test_a_401_says_what_the_server_asks_for(self) -> None:
        with always(PlainTextResponse("", 401, {"WWW-Authenticate": self.CHALLENGE})) as url:
            said = await examine(url, "streamable-http")
        assert said == (
            f"{url} answers 401 Unauthorized (asking for Bearer, realm the vault, resource_metadata "
            'https://as.test/.well-known/x): pass `auth="oauth"`, or the credentials as `token` or in `headers`.'
        )

    @rows("status", [401, 403])
    async def test_a_refused_token_is_said_to_be_refused(self, status: int) -> None:
        with always(PlainTextResponse("", status, {"WWW-Authenticate": "Bearer"})) as url:
            said = await examine(url, "sse", headers={"Authorization": f"Bearer {TOKEN}"})
        assert said is not None and f"answers {status} " in said
        assert said.endswith(
            "(asking for Bearer): the credentials that were sent were not accepted. "
            "Check `token`, or the Authorization in `headers`."
        )

    async def test_several_schemes_are_named(self) -> None:
        challenge = 'Negotiate, Basic realm="a, Digest", charset = "UTF-8", Bearer realm=b'
        with always(PlainTextResponse("", 401, {"WWW-Authenticate": challenge})) as url:
            said = await examine(url, "sse")
        assert said is not None and "(asking for Negotiate or Basic or Bearer, realm a, Digest)" in said

    async def test_a_403_without_a_challenge_asks_for_credentials(self) -> None:
        with always(PlainTextResponse("", 403)) as url:
            said = await examine(url, "streamable-http")
        assert said == f"{url} answers 403 Forbidden: pass the credentials as `token` or in `headers`."

    async def test_credentials_that_the_server_echoes_are_not_repeated(self) -> None:
        def echo(request: Request) -> Response:
            sent = " ".join([*request.headers.values(), str(request.url.query), PASSWORD, "alice"])
            return PlainTextResponse("", 401, {"WWW-Authenticate": f'Bearer realm="bad: {sent}"'})

        with always(echo) as url:
            with_userinfo = url.replace("http://", f"http://alice:{PASSWORD}@")
            said = await examine(with_userinfo, "streamable-http", headers={"X-Token": f"Token {TOKEN}"})
        assert said is not None and "realm bad: " in said and "***" in said
        assert said.startswith(url)

    async def test_a_password_in_the_url_counts_as_sent(self) -> None:
        with always(PlainTextResponse("", 401)) as url:
            said = await examine(url.replace("http://", f"http://alice:{PASSWORD}@"), "sse")
        assert said is not None and "the credentials that were sent were not accepted" in said


class TestAnswersThatAreNotMCP:
    @rows("transport", ["sse", "streamable-http"])
    async def test_a_web_page_is_called_a_web_page(self, transport: Any) -> None:
        with always(HTMLResponse("<h1>Welcome</h1>")) as url:
            said = await examine(url, transport)
        assert said == f"{url} answers with a web page (text/html), not MCP: check the URL."

    @rows(
        "response",
        [
            JSONResponse({"hello": "world"}),
            JSONResponse(["jsonrpc"]),
            Response("[" * 60_000, media_type="application/json"),
            Response("x" * 200_000, media_type="application/json"),
        ],
        ids=["an object", "a list", "deep", "long"],
    )
    async def test_other_json_is_said_not_to_be_mcp(self, response: Response) -> None:
        with always(response) as url:
            said = await examine(url, "streamable-http")
        assert said == f"{url} answers 200 OK with application/json, not MCP."

    async def test_an_event_stream_of_something_else_is_said_not_to_be_mcp(self) -> None:
        with always(Response("data: tick\n\ndata: tock\n\n", media_type="text/event-stream")) as url:
            said = await examine(url, "sse")
        assert said == f"{url} answers 200 OK with text/event-stream, not MCP."

    async def test_an_answer_without_a_type_is_given_by_its_status(self) -> None:
        with always(Response(status_code=202)) as url:
            said = await examine(url, "streamable-http")
        assert said == f"{url} answers 202 Accepted, not MCP."

    async def test_a_body_that_breaks_off_leaves_the_status(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\nConnection: close\r\n\r\n{"
        async with raw_server(lambda _: head) as port:
            said = await examine(f"http://127.0.0.1:{port}/mcp", "streamable-http")
        assert said is not None and said.endswith("answers 200 OK with application/json, not MCP.")

    async def test_an_event_stream_that_never_says_anything_is_not_waited_for(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n"
        async with raw_server(lambda _: head, hold=True) as port:
            said = await examine(f"http://127.0.0.1:{port}/sse", "sse", timeout=SHORT)
        assert said is not None and said.endswith("answers 200 OK with text/event-stream, not MCP.")


class TestStatuses:
    @rows(
        ("status", "headers", "expected"),
        [
            (400, {}, "answers 400 Bad Request: it understands neither MCP's GET nor its POST; check the URL."),
            (406, {}, "answers 406 Not Acceptable: it cannot answer with application/json or text/event-stream"),
            (407, {}, "answers 407 Proxy Authentication Required: the proxy asks for credentials"),
            (415, {}, "answers 415 Unsupported Media Type: it does not take JSON request bodies"),
            (418, {}, "answers 418 I'm a Teapot with text/plain, not MCP."),
            (421, {}, "answers 421 Misdirected Request: it does not serve this host name"),
            (429, {"Retry-After": "30"}, "it gets too many requests; try again later (Retry-After: 30)."),
            (500, {}, "answers 500 Internal Server Error: the server is overloaded or broken; try again later, and"),
            (501, {}, "answers 501 Not Implemented: it does not take MCP's requests"),
            (503, {"Retry-After": "9"}, "try again later, and look at its logs (Retry-After: 9)."),
            (520, {}, "answers 520: the server is overloaded or broken"),
        ],
    )
    @rows("transport", ["sse", "streamable-http"])
    async def test_the_status_is_named_with_what_to_do(
        self, transport: Any, status: int, headers: dict[str, str], expected: str
    ) -> None:
        with always(PlainTextResponse("sorry", status, headers)) as url:
            said = await examine(url, transport)
        assert said is not None and said.startswith(url) and expected in said

    async def test_a_host_name_that_the_sdk_server_does_not_serve_is_named(self, streamable_http: str) -> None:
        said = await examine(f"{streamable_http}/mcp", "streamable-http", headers={"Host": "elsewhere.test"})
        assert said is not None and "answers 421 Misdirected Request: it does not serve this host name" in said

    async def test_a_redirect_is_reported_and_not_followed(self) -> None:
        asked: list[str] = []

        def seen(request: Request) -> Response:
            asked.append(request.url.path)
            return PlainTextResponse("")

        with always(seen) as elsewhere:
            there = elsewhere.replace("http://", f"http://alice:{PASSWORD}@")
            with always(RedirectResponse(f"{there}?api_key={QUERY_KEY}#top")) as url:
                said = await examine(url, "streamable-http", headers={"Authorization": f"Bearer {TOKEN}"})
        assert said == (
            f"{url} answers 307 Temporary Redirect, a redirect to {elsewhere}: "
            "use that URL, if it is the intended server."
        )
        assert asked == []

    async def test_a_redirect_for_the_slash_names_the_whole_url(self) -> None:
        with answering(("/tools/", ["POST"], Response())) as origin:
            said = await examine(f"{origin}/tools", "streamable-http")
        assert said is not None and f"a redirect to {origin}/tools/: use that URL" in said

    async def test_a_redirect_to_an_invalid_url_is_named(self) -> None:
        redirect = b"HTTP/1.1 302 Found\r\nLocation: http://mcp.test:port/\r\nContent-Length: 0\r\n\r\n"
        async with raw_server(lambda _: redirect) as port:
            url = f"http://127.0.0.1:{port}/mcp"
            said = await examine(url, "sse")
        assert said == (
            f"{url} answers 302 Found, a redirect to an invalid URL: check the URL and the configuration of the server."
        )


class TestNoAnswer:
    async def test_a_name_that_does_not_resolve_is_named(self) -> None:
        said = await examine("http://no-such-host.invalid/mcp", "streamable-http", timeout=20)
        assert said == (
            "The host name no-such-host.invalid does not resolve: check the URL and the DNS of this machine."
        )

    async def test_a_port_where_nothing_listens_is_named(self) -> None:
        port = closed_port()
        said = await examine(f"http://127.0.0.1:{port}/mcp", "sse")
        assert said == (
            f"Connection refused: nothing listens at 127.0.0.1:{port}. Is the server started, and on this port?"
        )

    async def test_an_ipv6_address_is_shown_in_brackets(self) -> None:
        said = await examine("http://[::1]:9/mcp", "sse")
        # Where the machine has no IPv6, the reason is another one.
        assert said is not None and " [::1]:9" in said

    async def test_a_name_with_several_addresses_is_refused_all_the_same(self) -> None:
        port = closed_port()
        said = await examine(f"http://localhost:{port}/mcp", "sse")
        assert said is not None and said.startswith(f"Connection refused: nothing listens at localhost:{port}.")

    async def test_a_proxy_is_mentioned_where_it_may_be_the_one_that_is_down(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
        said = await examine("http://mcp.test/mcp", "sse")
        assert said is not None and "mcp.test:80 (or at the proxy that the environment names)" in said

    async def test_a_proxy_that_refuses_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with raw_server(lambda _: b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as port:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
            said = await examine("https://mcp.test/mcp", "sse")
        assert said == "The proxy that the environment names does not let the request through to mcp.test:443."

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
        assert said is not None and said.startswith(f"No connection to 127.0.0.1:{port} within 0.64 s")

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
        assert said is not None and said.startswith("Cannot connect to 255.255.255.255:9: ")

    @rows("read", [True, False])
    async def test_a_server_that_closes_at_once_is_named(self, *, read: bool) -> None:
        async with raw_server(read=read) as port:
            said = await examine(f"http://127.0.0.1:{port}/mcp", "streamable-http")
        assert said == (f"127.0.0.1:{port} closes the connection without a valid HTTP answer: is it an HTTP server?")

    async def test_an_answer_in_another_protocol_is_named(self) -> None:
        async with raw_server(lambda _: b"220 smtp.test ESMTP\r\n\r\n") as port:
            said = await examine(f"http://127.0.0.1:{port}/mcp", "sse")
        assert said is not None and "without a valid HTTP answer" in said


class TestUrlsAndHeadersThatCannotBeSent:
    @rows("url", ["http://[::1/mcp", "http://host:port/mcp"])
    async def test_a_broken_url_is_called_invalid(self, url: str) -> None:
        assert await diagnose(url, {}, transport="sse") == "The URL is not valid."

    @pytest.mark.parametrize("end", ["\n", "\r\nX: y", "\u00e9"])
    async def test_a_header_that_http_forbids_is_named_without_its_value(self, streamable_http: str, end: str) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}{end}"}
        said = await examine(f"{streamable_http}/mcp", "streamable-http", headers=headers)
        assert said == ("The request cannot be sent: a header has a line break or another character that HTTP forbids.")

    async def test_a_failure_without_a_name_is_given_by_its_type(
        self, streamable_http: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "gopher://127.0.0.1:70")
        said = await examine(f"{streamable_http}/mcp", "sse")
        assert said == f"{streamable_http.removeprefix('http://')} could not be examined (ValueError)."


class TestTLS:
    def context(self, certificate: tuple[Path, Path]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        return context

    @contextmanager
    def mcp_over_tls(self, certificate: tuple[Path, Path]) -> Iterator[str]:
        app = MCPServer("calculator").streamable_http_app()
        with serving(app, ssl_certfile=str(certificate[0]), ssl_keyfile=str(certificate[1])) as origin:
            yield origin

    @pytest.mark.usefixtures("trusted")
    async def test_an_endpoint_with_a_trusted_certificate_has_nothing_wrong(
        self, certificate: tuple[Path, Path]
    ) -> None:
        with self.mcp_over_tls(certificate) as origin:
            assert await examine(f"{origin}/mcp", "streamable-http") is None

    async def test_a_certificate_that_is_not_trusted_is_named(self, certificate: tuple[Path, Path]) -> None:
        with self.mcp_over_tls(certificate) as origin:
            said = await examine(f"{origin}/mcp", "streamable-http")
        place = origin.removeprefix("https://")
        assert said is not None and said.startswith(f"The TLS certificate of {place} is not trusted: self")
        assert "SSL_CERT_FILE" in said

    @pytest.mark.parametrize("trust", [True, False])
    async def test_plain_http_to_a_tls_port_is_named(
        self, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, *, trust: bool
    ) -> None:
        if trust:
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        with self.mcp_over_tls(certificate) as origin:
            said = await examine(f"{origin.replace('https', 'http')}/mcp", "streamable-http")
        place = origin.removeprefix("https://")
        assert said == f"{place} speaks TLS, not plain HTTP: use {origin}/mcp."

    async def test_plain_http_that_a_tls_port_answers_with_400_is_named(self, certificate: tuple[Path, Path]) -> None:
        context = self.context(certificate)

        def talk(connection: socket.socket) -> None:
            # nginx and Go answer so: the first byte tells a TLS handshake (0x16) from plain HTTP.
            if connection.recv(1, socket.MSG_PEEK) == b"\x16":
                context.wrap_socket(connection, server_side=True).close()
                return
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        with blocking_server(talk) as place:
            said = await examine(f"http://{place}/mcp", "streamable-http")
        assert said == f"{place} speaks TLS, not plain HTTP: use https://{place}/mcp."

    async def test_https_to_a_plain_http_port_is_named(self, streamable_http: str) -> None:
        place = streamable_http.removeprefix("http://")
        said = await examine(f"https://{place}/mcp", "streamable-http")
        assert said is not None and said.startswith(f"The TLS handshake with {place} fails (")
        assert said.endswith(f"if the server speaks plain HTTP there, use http://{place}/mcp.")

    @rows("read", [True, False])
    async def test_a_server_that_closes_during_the_handshake_is_named(self, *, read: bool) -> None:
        async with raw_server(read=read) as port:
            said = await examine(f"https://127.0.0.1:{port}/mcp", "sse")
        assert said is not None and said.startswith(f"The TLS handshake with 127.0.0.1:{port} fails (")

    async def test_a_server_that_refuses_the_handshake_is_named(self) -> None:
        def talk(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(bytes([0x15, 3, 3, 0, 2, 2, 40]))  # a fatal alert: handshake_failure
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)

        with blocking_server(talk) as place:
            said = await examine(f"https://{place}/mcp", "sse")
        assert said == (
            f"The TLS handshake with {place} fails (sslv3 alert handshake failure): "
            "the server refuses this client, perhaps for the lack of a client certificate (client_cert=)."
        )

    @pytest.mark.usefixtures("trusted")
    async def test_a_server_that_demands_a_client_certificate_is_named(self, certificate: tuple[Path, Path]) -> None:
        context = self.context(certificate)
        context.load_verify_locations(certificate[0])
        context.verify_mode = ssl.CERT_REQUIRED

        def talk(connection: socket.socket) -> None:
            context.wrap_socket(connection, server_side=True).close()

        with blocking_server(talk) as place:
            said = await examine(f"https://{place}/mcp", "sse")
        # TLS 1.3 has the server refuse only after the handshake, so its alert and its reset race each other.
        assert said is not None and "a client certificate" in said

    @pytest.mark.usefixtures("trusted")
    async def test_a_connection_that_breaks_after_the_handshake_is_named(self, certificate: tuple[Path, Path]) -> None:
        async with raw_server(ssl=self.context(certificate)) as port:
            said = await examine(f"https://127.0.0.1:{port}/mcp", "sse")
        assert said is not None and "without a valid HTTP answer: it is no HTTP server, or demands a" in said

    @pytest.mark.usefixtures("trusted")
    async def test_a_redirect_out_of_tls_is_not_recommended_as_it_stands(self, certificate: tuple[Path, Path]) -> None:
        app = Starlette(routes=[Mount("/", RedirectResponse("http://mcp.test/mcp/"))])
        with serving(app, ssl_certfile=str(certificate[0]), ssl_keyfile=str(certificate[1])) as origin:
            said = await examine(f"{origin}/mcp", "streamable-http")
        assert said is not None and ": use that URL with https://, as it leaves TLS, if it is" in said

    async def test_a_handshake_that_stays_silent_is_not_taken_for_tls(self) -> None:
        def answer(_: bytes) -> bytes:
            return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

        async with raw_server(answer, hold=True) as port:
            said = await examine(f"http://127.0.0.1:{port}/mcp", "streamable-http", timeout=SHORT)
        assert said is not None and "answers 400 Bad Request" in said


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
