# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp
import psutil
import pytest
import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import JWTVerifier, OAuthProxy
from fastmcp.server.auth.providers.debug import DebugTokenVerifier
from fastmcp.server.auth.providers.jwt import RSAKeyPair
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import Middleware, MiddlewareContext
from haystack.tools import Tool, create_tool_from_function
from haystack.utils import Secret
from key_value.aio.stores.memory import MemoryStore
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from haystack_integrations.tools.mcp import MCPError, MCPToolset, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.serving import (
    BearerToken,
    HaystackProvider,
    ServeOptions,
    create_mcp_server,
    http_app,
    run_server,
)
from haystack_integrations.tools.mcp.serving.call_guard import guard_of
from haystack_integrations.tools.mcp.serving.running import _bind
from tests.support.background import in_thread
from tests.support.majors import on_one_major
from tests.support.processes import is_alive
from tests.support.reachable import reachable
from tests.support.rows import rows
from tests.support.served import (
    HANDSHAKE,
    MODERN,
    SERVED,
    START_LIMIT,
    ServedOverHttp,
    ServedProcess,
    free_port,
    post,
    post_bytes,
)
from tests.support.waiting import LIMIT, wait_until

GRACE = 6.0
LOCAL = "http://127.0.0.1:8000"
NOT_ON_WINDOWS = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@pytest.fixture(scope="module")
def served() -> Iterator[ServedOverHttp]:
    with ServedOverHttp({"grace_period": GRACE}) as process:
        yield process


@pytest.fixture
def own() -> Iterator[ServedOverHttp]:
    with ServedOverHttp({"grace_period": GRACE}) as process:
        yield process


def call(
    process: ServedOverHttp, tool: str, headers: dict[str, str] | None = None, **arguments: Any
) -> httpx2.Response:
    return post(process.url, "tools/call", {"name": tool, "arguments": arguments}, **(headers or {}))


def result(response: httpx2.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return response.json()["result"]


def test_a_tool_in_a_thread_may_run_an_event_loop(served: ServedOverHttp) -> None:
    assert result(call(served, "runs"))["content"][0]["text"] == "None"


class TestStopping:
    async def test_sigterm_in_the_middle_of_calls_loses_no_answer_and_leaves_no_traceback(
        self, own: ServedOverHttp
    ) -> None:
        # This client goes away while it sends.
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{own.port}\r\nContent-Type: application/json\r\nAccept: "
            f"application/json, text/event-stream\r\nMcp-Protocol-Version: {MODERN}\r\nContent-Length: 99\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", own.port)) as client:
            client.sendall(f"{head}{{".encode())
        async with Client(own.url, mode="legacy") as with_session, Client(own.url) as without:
            # Clients check results with the list, which they would otherwise request during the stop.
            for client in (with_session, without):
                await client.list_tools()
            calls = [
                asyncio.create_task(client.call_tool(tool, {"seconds": 1.5}))
                for tool in ("wait", "block")
                for client in (with_session, without) * 3
            ]
            for tool in ("wait", "block"):
                await asyncio.to_thread(own.wait_for, f"EVENT {tool}", count=6)
            own.signal()
            answers = [(await each).data for each in calls]
            assert answers == ["waited"] * 6 + ["blocked"] * 6
            assert await asyncio.to_thread(own.wait) == 0
        assert "EVENT closed" in own.errors
        assert "EVENT returned" in own.errors
        assert "Traceback" not in own.errors

    async def test_streams_end_and_do_not_delay_the_stop(self) -> None:
        # The grace period is longer than a test may take.
        with ServedOverHttp({"grace_period": 1000.0}) as process:
            async with (
                Client(process.url, mode="legacy") as with_session,
                mcp.Client(process.url) as client,
                client.listen(tools_list_changed=True) as changes,
            ):
                await with_session.list_tools()
                process.signal()
                with pytest.raises(StopAsyncIteration):
                    await asyncio.wait_for(anext(changes), LIMIT)
                assert await asyncio.to_thread(process.wait) == 0
                assert "EVENT closed" in process.errors

    async def test_calls_that_do_not_end_within_the_grace_period_get_an_error_and_are_ended(
        self, own: ServedOverHttp
    ) -> None:
        async def never(*_: Any) -> None:
            await asyncio.sleep(600)

        blocked = in_thread(call, own, "block_forever")
        async with Client(own.url, mode="legacy", elicitation_handler=never) as client:
            asking = asyncio.create_task(client.call_tool("ask"))
            waiting = asyncio.create_task(client.call_tool("wait"))
            for tool in ("ask", "wait", "block_forever"):
                await asyncio.to_thread(own.wait_for, f"EVENT {tool}\n")
            own.signal()
            for pending in (asking, waiting):
                with pytest.raises(ToolError, match="The server is stopping, and this did not end in time"):
                    await pending
            assert await asyncio.to_thread(own.wait) == 0
        assert "EVENT cancelled" in own.errors
        # A thread cannot be ended. The client that waits for its answer gets an error, one way or the other.
        assert "The grace period is over" in own.errors
        assert blocked.exception(LIMIT) or "error" in blocked.result().text.lower(), blocked.result().text

    def test_a_call_is_cancelled_when_its_client_goes_away(self, served: ServedOverHttp) -> None:
        before = served.errors.count("EVENT cancelled")
        with pytest.raises(httpx2.ReadTimeout):
            body = {"name": "wait", "arguments": {"seconds": 600}}
            post(served.url, "tools/call", body, timeout=1.0)
        served.wait_for("EVENT cancelled", count=before + 1)


class TestWhoMayCall:
    def test_other_machines_need_a_token_and_web_pages_are_refused(self) -> None:
        with ServedOverHttp({"host": "0.0.0.0", "token": "s3cret", "max_body_size": 1000}) as process:
            token = {"authorization": "Bearer s3cret"}
            for headers, status in (
                ({}, 401),
                ({"authorization": "Bearer other"}, 401),
                (token, 200),
                ({**token, "origin": "http://evil.example"}, 403),
            ):
                assert call(process, "add", headers, a=1, b=2).status_code == status
            assert call(process, "add", token, a=1, b="x" * 1000).status_code == 413
            assert "s3cret" not in process.errors


class TestBadInput:
    def test_a_huge_body_is_refused_before_it_is_read(self, served: ServedOverHttp) -> None:
        assert post_bytes(served.url, b"x" * (4 * 1024 * 1024 + 1)).status_code == 413
        # Announce 100 MB and never send them.
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 104857600\r\n\r\n"
            )
            assert connection.recv(12) == b"HTTP/1.1 413"
        assert call(served, "add", a=1, b=2).status_code == 200


@asynccontextmanager
async def in_process(app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url=LOCAL) as client:
        yield client


async def test_every_application_over_http_checks_host_and_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[tuple[Any, str]] = []

    async def serve(self: uvicorn.Server, sockets: Any = None) -> None:
        apps.append((self.config.app, "/mcp"))

    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    server = create_mcp_server("shop")
    await server.run_async("http", show_banner=False)
    apps += [(server.http_app(), "/mcp"), (http_app(FastMCP("Embedded"), path="/tools"), "/tools")]
    client = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    assert len(apps) == 3
    for app, path in apps:
        async with in_process(app) as http:
            for headers, status in (
                ({"host": "127.0.0.1.evil.example:8000"}, 421),
                ({"origin": "https://evil.example"}, 403),
                ({"origin": "null"}, 403),
                ({"host": "localhost:8000", "origin": "http://localhost:5173"}, 200),
            ):
                accepted = {"accept": "application/json, text/event-stream", **headers}
                assert (await http.post(path, json=body, headers=accepted)).status_code == status


async def test_allowed_host_names_and_web_pages_are_accepted_with_a_token() -> None:
    page, host, evil = "https://app.example.com", "mcp.example.com", "https://evil.example"
    server = create_mcp_server("shop", auth=Secret.from_token("s3cret"))
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    token = {"authorization": "Bearer s3cret", "accept": "application/json"}
    async with in_process(http_app(server, allowed_hosts=[host], allowed_origins=[page])) as client:
        # A browser sends a preflight request before it sends the token.
        answer = await client.options("/mcp", headers={"host": host, "origin": page, **asked})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] in (page, "*")
        assert answer.headers["access-control-allow-headers"] == "authorization"
        refused = await client.options("/mcp", headers={"host": host, "origin": evil, **asked})
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers
        # This request has no body.
        answer = await client.post("/mcp", headers={"host": host, "origin": page, **token})
        assert answer.status_code == 400
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
        for headers, status in (
            ({"host": host, "origin": page}, 401),
            ({"host": host, "origin": evil, **token}, 403),
            ({"host": "evil.example", **token}, 421),
        ):
            assert (await client.post("/mcp", headers=headers)).status_code == status


@pytest.mark.parametrize("allowed_hosts", [None, ["mcp.example.com"]])
async def test_a_person_can_consent_to_a_login_on_the_page_of_the_provider(allowed_hosts: list[str] | None) -> None:
    # A proxy speaks TLS with the browser, and plain HTTP with the server.
    auth = OAuthProxy(
        upstream_authorization_endpoint="https://login.example.com/authorize",
        upstream_token_endpoint="https://login.example.com/token",
        upstream_client_id="shop",
        upstream_client_secret="not-a-real-secret",
        token_verifier=DebugTokenVerifier(),
        base_url="https://mcp.example.com",
        client_storage=MemoryStore(),
        jwt_signing_key="a key for tests only",
    )
    app = http_app(create_mcp_server("shop", auth=auth), allowed_hosts=allowed_hosts)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://mcp.example.com") as client:
        for origin, status in (("https://mcp.example.com", 400), ("https://evil.example", 403)):
            # The form of the page, with an invalid transaction.
            assert (await client.post("/consent", headers={"origin": origin}, data={})).status_code == status


@pytest.mark.parametrize(("path", "other"), [("/mcp", "/mcp/"), ("/mcp/", "/mcp"), ("/", "/")])
async def test_the_endpoint_is_also_served_with_or_without_a_slash_at_its_end(path: str, other: str) -> None:
    server = create_mcp_server("shop", auth=Secret.from_token("s3cret"))
    async with in_process(http_app(server, path=path)) as client:
        for headers, status in (({}, 401), ({"authorization": "Bearer s3cret", "accept": "application/json"}, 400)):
            assert (await client.post(other, headers=headers)).status_code == status


async def test_the_servers_own_health_route_is_used() -> None:
    server = FastMCP("own")

    @server.custom_route("/health", methods=["GET"])
    async def health(_request: Request) -> Response:
        return Response("fine")

    async with in_process(http_app(server)) as client:
        assert (await client.get("/health")).text == "fine"


async def test_load_balancers_may_ask_for_the_health_under_any_name() -> None:
    app = http_app(FastMCP("balanced"), allowed_hosts=["mcp.example.com"])
    outer = Starlette(lifespan=app.router.lifespan_context, routes=[Mount("/tools", app)])
    async with in_process(outer) as client:
        for path, status in (("/tools/health", 200), ("/tools/mcp", 421)):
            assert (await client.get(path, headers={"host": "10.1.2.3:8000"})).status_code == status


def test_no_part_of_an_answer_waits_for_a_tcp_acknowledgement() -> None:
    # asyncio turns off Nagle's algorithm for connections to such a socket.
    [listening] = _bind("127.0.0.1", 0)
    with listening:
        assert listening.proto == socket.IPPROTO_TCP


@rows(
    ("options", "error", "text"),
    ({"transport": "sse"}, ValueError, "run_server: `transport` must be 'stdio' or 'http', got 'sse'"),
    ({"transport": "stdio"}, ValueError, "Over stdio there is one client, and no `host`.*pass transport='http'"),
    ({"port": 70000}, ValueError, "`port` must be less than or equal to 65535, got 70000"),
    ({"path": "mcp"}, ValueError, "`path` must start with a slash"),
    ({"log_level": "chatty"}, ValueError, "`log_level` must be"),
    ({"allowed_origins": "https://app.example.com"}, ValueError, "`allowed_origins` must be a valid list"),
    ({"workers": 2}, ValueError, "must be a function at the top of a module that makes the server"),
    ({"workers": 2, "server": lambda: FastMCP("Refused")}, ValueError, "must be a function at the top of a module"),
    ({"workers": 2, "stateless": False}, ValueError, "Mcp-Session-Id"),
    ({"server": 5}, TypeError, "must be a FastMCP server, or a function that makes one, not int"),
    ({"server": lambda: "x"}, TypeError, "not str"),
    ({"server": "not a path"}, ValueError, "must be an import path like"),
    ({"server": "tests.servers.served:nothing"}, ImportError, "there is no 'nothing'"),
    ({"auth": "token"}, TypeError, "a bearer token, not str"),
    ({"auth": Secret.from_token(" ")}, ValueError, "is empty"),
    *(({"host": host}, ValueError, "insecure=True") for host in ("0.0.0.0", "", "::", "mcp.example.com")),
    ({"host": "no-such-host.invalid", "insecure": True}, OSError, "must be an address of this machine"),
)
def test_invalid_options_of_run_server_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    options = {"server": FastMCP("Refused"), "transport": "http", "port": 0, **options}
    with pytest.raises(error, match=text):
        run_server(options.pop("server"), **options)


def test_http_app_refuses_a_function() -> None:
    with pytest.raises(TypeError, match="http_app: `server` must be a FastMCP server, not "):
        http_app(lambda: FastMCP("Refused"))  # type: ignore[arg-type]


async def test_a_bearer_token_grants_its_scopes() -> None:
    granted = await BearerToken(Secret.from_token("right"), scopes=["admin"]).verify_token("right")
    assert granted is not None
    assert granted.scopes == ["admin"]
    # A token from a file may end with a newline, which a header cannot contain.
    assert await BearerToken(Secret.from_token("right\n")).verify_token("right") is not None


@rows("host", "127.0.0.1", "")
def test_a_port_that_is_taken_on_any_address_of_the_host_is_refused(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on {host}:{port}"):
            run_server(FastMCP("Late"), transport="http", host=host, port=port, insecure=True)


async def test_clients_are_asked_to_send_requests_again_later_until_the_server_has_stopped() -> None:
    server = FastMCP("Embedded")
    async with in_process(http_app(server)) as client:
        assert (await client.get("/health")).status_code == 200
        await guard_of(server).stop(LIMIT)  # there are no calls
        for response in (await client.get("/health"), await client.post("/mcp")):
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        # The client may still answer questions of running calls.
        assert (await client.post("/mcp", headers={"Mcp-Session-Id": "unknown"})).status_code != 503
    async with in_process(http_app(server)) as client:  # served again
        assert (await client.get("/health")).status_code == 200


@on_one_major
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=NOT_ON_WINDOWS)])
def test_workers_share_request_states_and_finish_their_calls_whatever_ends_their_supervisor(number: int) -> None:
    with ServedOverHttp({"workers": 2, "port": free_port(), "grace_period": GRACE}) as process:
        process.wait_for("EVENT opened", count=2)
        asked = result(post(process.url, "tools/call", {"name": "remember", "arguments": {}}))
        assert asked["resultType"] == "input_required"
        answer = {"action": "accept", "content": {"name": "Ada"}}
        given = {"requestState": asked["requestState"], "inputResponses": {"name": answer}}
        seen = set()

        def answered_by_both() -> bool:
            continued = post(process.url, "tools/call", {"name": "remember", "arguments": {}, **given})
            text = result(continued)["content"][0]["text"]
            assert text.startswith("Ada "), text
            seen.add(text)
            return len(seen) == 2

        wait_until(answered_by_both, lambda: f"answers of two processes, not of {seen} only")
        workers = psutil.Process(process.process.pid).children()
        calls = [in_thread(call, process, "wait", seconds=1.0) for _ in range(6)]
        process.wait_for("EVENT wait", count=6)
        process.signal(number)
        assert [result(future.result(60))["content"][0]["text"] for future in calls] == ["waited"] * 6
        wait_until(
            lambda: not any(is_alive(worker.pid) for worker in workers), "the end of the workers", limit=START_LIMIT
        )
        process.wait_for("EVENT closed", count=2)
        assert process.process.wait(LIMIT) == (0 if number == signal.SIGTERM else -number)
        socket.create_server(("127.0.0.1", process.port)).close()


TWO_MOUNTED = """
import asyncio, contextlib, json, sys
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from haystack_integrations.tools.mcp.serving import create_mcp_server, http_app

async def wait() -> str:
    print("EVENT wait", file=sys.stderr, flush=True)
    await asyncio.sleep(2)
    return "waited"

apps = [http_app(create_mcp_server(name, tools=[wait])) for name in ("busy", "idle")]

@contextlib.asynccontextmanager
async def lifespan(_):
    async with contextlib.AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.lifespan(app))
        yield

port = json.loads(sys.argv[1])["port"]
print(f"Serving over HTTP on http://127.0.0.1:{port}/busy/mcp", file=sys.stderr, flush=True)
routes = [Mount("/busy", apps[0]), Mount("/idle", apps[1])]
uvicorn.run(Starlette(lifespan=lifespan, routes=routes), port=port)
"""


@on_one_major
@NOT_ON_WINDOWS
async def test_the_calls_of_one_of_two_servers_in_a_process_finish_though_the_other_has_none(tmp_path: Path) -> None:
    script = tmp_path / "two_mounted.py"
    script.write_text(TWO_MOUNTED)
    with ServedOverHttp({"port": free_port()}, script=script) as process:
        async with Client(process.url, mode="legacy") as client:
            await client.list_tools()
            calling = asyncio.create_task(client.call_tool("wait", {}))
            await asyncio.to_thread(process.wait_for, "EVENT wait")
            process.signal()
            assert (await asyncio.wait_for(calling, LIMIT)).data == "waited"


WORKERS = """
import json, sys
from fastmcp import FastMCP
from haystack_integrations.tools.mcp.serving import run_server

def make():
    return FastMCP("workers")

if __name__ == "__main__":
    run_server(make, **json.loads(sys.argv[1]))
"""


@on_one_major
@NOT_ON_WINDOWS
def test_a_server_stops_although_a_worker_that_replaces_another_hangs(tmp_path: Path) -> None:
    script = tmp_path / "edited.py"
    script.write_text(WORKERS)
    with ServedOverHttp({"workers": 2, "port": free_port()}, script=script) as process:
        script.write_text(f"import threading\nthreading.Event().wait()\n{WORKERS}")
        process.signal(signal.SIGHUP)
        process.wait_for("Received SIGHUP")
        process.signal(signal.SIGTERM)
        assert process.wait(30) == 0  # half the time that a worker has to start


@on_one_major
def test_a_worker_that_cannot_start_does_not_end_the_others(tmp_path: Path) -> None:
    script = tmp_path / "edited.py"
    script.write_text(WORKERS)
    with ServedOverHttp({"workers": 2, "port": free_port()}, script=script) as process:
        process.wait_for("startup complete", count=2, limit=START_LIMIT)
        script.write_text(WORKERS.replace('"workers"', '"workers", lifespan=lambda _: 1 / 0'))
        psutil.Process(process.process.pid).children()[-1].kill()
        process.wait_for("startup failed", limit=START_LIMIT)
        assert httpx2.get(f"http://127.0.0.1:{process.port}/health").status_code == 200
        script.write_text(WORKERS)
        process.wait_for("startup complete", count=3, limit=START_LIMIT)


@on_one_major
def test_run_server_ends_with_an_error_if_workers_cannot_start() -> None:
    options = {"transport": "http", "port": 0, "workers": 2}
    with ServedProcess(SERVED, options, FAILS_TO_OPEN="the model is missing") as process:
        assert process.wait(START_LIMIT) == 1
        assert "the model is missing" in process.errors
        assert "a worker could not start it" in process.errors


async def test_without_sessions_calls_work_but_questions_and_notifications_are_refused() -> None:
    async def answer(*_: Any) -> dict[str, Any]:
        return {}

    with ServedOverHttp({"stateless": True}) as process:
        async with Client(process.url, mode="legacy", elicitation_handler=answer) as client:
            with pytest.raises(Exception, match="Error calling tool 'ask'"):
                await client.call_tool("ask")
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert httpx2.get(process.url, headers={"accept": "text/event-stream"}).status_code == 405


def test_a_process_without_standard_streams_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def enough(_: Any) -> AsyncIterator[None]:
        raise InterruptedError
        yield

    for name in ("stdin", "stdout", "stderr"):  # like pythonw
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(InterruptedError):
        run_server(FastMCP("Windowed", lifespan=enough), transport="http", port=0)


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
REPEATED = {**TEXT, "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}


class Listings(Middleware):
    """
    Counts the listings of tools.
    """

    count = 0

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        self.count += 1
        return await call_next(context)


@rows("is_created", True, False)
async def test_a_call_over_http_does_not_list_all_tools(is_created: bool) -> None:
    # The SDK looks up whether the tool wants its arguments repeated in headers.
    tools = [Tool("shout", "Shouts.", TEXT, lambda text: text.upper())]
    server = (
        create_mcp_server("shop", tools=tools) if is_created else FastMCP(providers=[HaystackProvider(tools=tools)])
    )
    if not is_created:
        http_app(server)
    listings = Listings()
    server.add_middleware(listings)
    async with reachable(server) as url, mcp.Client(url) as client:
        await client.list_tools()
        for _ in range(3):
            assert (await client.call_tool("shout", {"text": "hi"})).content[0].text == "HI"
        await client.list_tools(cache_mode="bypass")
    assert listings.count == 2


async def test_arguments_repeated_in_headers_are_compared_and_unknown_tools_refused() -> None:
    names = {"shout": TEXT, "hidden": TEXT, "repeat": REPEATED}
    tools = [Tool(name, "Shouts.", schema, lambda text: text.upper()) for name, schema in names.items()]
    server = create_mcp_server("shop", tools=tools)
    server.disable(names={"hidden"})

    def post_call(name: str, **headers: str) -> httpx2.Response:
        return post(url, "tools/call", {"name": name, "arguments": {"text": "hi"}}, **headers)

    async with reachable(server) as url, mcp.Client(url) as client:
        # FastMCP 4.2 knows only the schemas that it has listed.
        await client.list_tools()
        assert post_call("repeat", **{"mcp-param-text": "hi"}).status_code == 200
        other = post_call("repeat", **{"mcp-param-text": "bye"})
        assert other.status_code == 400
        assert "mcp-param-text" in other.text.lower()
        assert post_call("repeat").status_code == 400
        assert post_call("shout").status_code == 200
        for name in ("hidden", "whisper"):
            assert "Unknown tool" in post_call(name).text


def caller() -> str:
    token = get_access_token()
    return token.claims["sub"] if token else "nobody"


def whoami(user: str) -> str:
    """Return the caller's name as an argument of the tool and as its code finds it in its thread."""
    return f"{user}, {caller()}"


def administer() -> str:
    """Do something that only administrators may do."""
    return "done"


async def test_a_tool_knows_its_caller_and_scopes_limit_a_tool_to_tokens_that_have_them() -> None:
    keys, issued = RSAKeyPair.generate(), {"issuer": "https://login.example.com", "audience": "tea"}
    server = create_mcp_server(
        "tea",
        tools=[create_tool_from_function(whoami), create_tool_from_function(administer)],
        auth=JWTVerifier(public_key=keys.public_key, **issued),
        options={"whoami": ServeOptions(bound={"user": Depends(caller)}), "administer": ServeOptions(scopes=["admin"])},
    )

    def ask(tool: str = "whoami", **claims: Any) -> tuple[list[str], str]:
        """Return the names of the tools that this client sees, and the answer of one of them."""
        token = keys.create_token(**{"subject": "ada", **issued, **claims})
        with MCPToolset(StreamableHttpServerInfo(url, token=Secret.from_token(token))) as toolset:
            answer = json.loads(toolset[tool].invoke())
            return sorted(each.name for each in toolset), answer["content"][0]["text"]

    async with reachable(server) as url:
        assert ask() == (["whoami"], "ada, ada")
        assert ask(subject="grace") == (["whoami"], "grace, grace")
        assert ask("administer", scopes=["admin"]) == (["administer", "whoami"], "done")
        with pytest.raises(MCPError, match="401"):
            ask(issuer="https://evil.example.com")
