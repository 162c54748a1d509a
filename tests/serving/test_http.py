# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from haystack.utils import Secret
from mcp import MCPError
from starlette.requests import Request
from starlette.responses import Response

from haystack_integrations.tools.mcp.serving import BearerToken, http_app, run_server
from haystack_integrations.tools.mcp.serving.calls import guard_of
from haystack_integrations.tools.mcp.serving.running import _bind
from tests.support.background import in_thread
from tests.support.majors import on_one_major
from tests.support.rows import rows
from tests.support.served import HANDSHAKE, MODERN, SERVED, START_LIMIT, ServedOverHttp, ServedProcess, free_port
from tests.support.waiting import LIMIT, wait_until

GRACE = 6.0
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
    return process.post("tools/call", {"name": tool, "arguments": arguments}, **(headers or {}))


def result(response: httpx2.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("application/json"):
        return response.json()["result"]
    [*_, last] = [line for line in response.text.splitlines() if line.startswith("data: ")]
    return json.loads(last.removeprefix("data: "))["result"]


class Session:
    """
    A session of the handshake era, whose client never answers.
    """

    def __init__(self, process: ServedOverHttp) -> None:
        self.process = process
        self._headers = {"mcp-protocol-version": HANDSHAKE}
        self._ids = itertools.count()
        client = {"name": "test", "version": "1"}
        parameters = {"protocolVersion": HANDSHAKE, "capabilities": {"elicitation": {}}, "clientInfo": client}
        answer = self.ask("initialize", parameters)
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]

    def ask(self, method: str, parameters: dict[str, Any]) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": parameters}
        return self.process.post_bytes(json.dumps(message).encode(), **self._headers)

    def call(self, tool: str, **arguments: Any) -> httpx2.Response:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})


def test_a_tool_in_a_thread_may_run_an_event_loop(served: ServedOverHttp) -> None:
    assert result(call(served, "runs"))["content"][0]["text"] == "None"


class TestStopping:
    @pytest.mark.parametrize("in_session", [False, True])
    def test_sigterm_in_the_middle_of_calls_loses_no_answer(self, own: ServedOverHttp, in_session: bool) -> None:
        make = Session(own).call if in_session else partial(call, own)
        calls = [in_thread(make, tool, seconds=1.5) for tool in ("wait", "block") for _ in range(4)]
        own.wait_for("EVENT wait", count=4)
        own.wait_for("EVENT block", count=4)
        own.signal()
        answers = [future.result(60) for future in calls]
        # Those of sessions come in event streams.
        assert not in_session or {answer.headers["content-type"] for answer in answers} == {"text/event-stream"}
        assert [result(answer)["content"][0]["text"] for answer in answers] == ["waited"] * 4 + ["blocked"] * 4
        assert own.wait() == 0
        assert "EVENT closed" in own.errors
        assert "EVENT returned" in own.errors

    async def test_sessions_with_open_streams_do_not_hold_up_the_stop(self) -> None:
        # With longer to stop than a test may take.
        with ServedOverHttp({"grace_period": 1000.0}) as process:
            async with Client(process.url, mode="legacy") as client:
                await client.list_tools()
                process.signal()
                await asyncio.to_thread(process.wait)
                assert "EVENT closed" in process.errors

    def test_what_does_not_end_within_the_grace_period_is_told_so_and_ended(self, own: ServedOverHttp) -> None:
        asking, waiting = in_thread(Session(own).call, "ask"), in_thread(call, own, "wait", seconds=600)
        blocked = in_thread(call, own, "block_forever")
        for tool in ("ask", "wait", "block_forever"):
            own.wait_for(f"EVENT {tool}")
        own.signal()
        for pending in (asking, waiting):
            answer = result(pending.result(60))
            assert answer["isError"]
            assert "The server is stopping, and this did not end in time" in answer["content"][0]["text"]
        assert own.wait() == 0
        assert "EVENT cancelled" in own.errors
        # A thread cannot be ended. Whoever waits for the answer is told, one way or the other.
        assert "The grace period is over" in own.errors
        assert blocked.exception(LIMIT) or "error" in blocked.result().text.lower(), blocked.result().text

    def test_a_client_that_goes_away_ends_its_call(self, served: ServedOverHttp) -> None:
        before = served.errors.count("EVENT cancelled")
        with pytest.raises(httpx2.ReadTimeout):
            body = {"name": "wait", "arguments": {"seconds": 600}}
            served.post("tools/call", body, timeout=1.0)
        served.wait_for("EVENT cancelled", count=before + 1)


class TestWhoMayCall:
    def test_a_client_that_goes_away_while_it_sends_leaves_no_traceback(self, own: ServedOverHttp) -> None:
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{own.port}\r\nContent-Type: application/json\r\nAccept: "
            f"application/json, text/event-stream\r\nMcp-Protocol-Version: {MODERN}\r\nContent-Length: 99\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", own.port)) as client:
            client.sendall(f"{head}{{".encode())
        assert call(own, "add", a=1, b=2).status_code == 200
        own.signal()
        assert own.wait() == 0
        assert "Traceback" not in own.errors

    def test_names_and_web_pages_that_are_allowed_are_let_in_with_a_token(self) -> None:
        page, host = {"origin": "https://app.example.com"}, {"host": "mcp.example.com"}
        evil = {"origin": "https://evil.example"}
        lists = {"allowed_hosts": ["mcp.example.com"], "allowed_origins": ["https://app.example.com"]}
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        with ServedOverHttp({"token": "s3cret", "scopes": [], **lists}) as process:
            # A browser asks before it sends the token.
            answer = httpx2.options(process.url, headers={**host, **page, **asked})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] in (page["origin"], "*")
            assert answer.headers["access-control-allow-headers"] == "authorization"
            refused = httpx2.options(process.url, headers={**host, **evil, **asked})
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers
            token = {"authorization": "Bearer s3cret"}
            answer = call(process, "add", {**host, **page, **token}, a=1, b=2)
            assert answer.status_code == 200
            assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
            assert call(process, "add", {**host, **evil, **token}, a=1, b=2).status_code == 403
            assert call(process, "add", {"host": "evil.example", **token}, a=1, b=2).status_code == 421

    @rows(("scopes", "may"), [(["admin"], True), (["reader"], False)])
    def test_other_machines_want_a_token_and_tools_want_scopes_of_their_own(self, scopes: list[str], may: bool) -> None:
        with ServedOverHttp({"host": "0.0.0.0", "token": "s3cret", "scopes": scopes}) as process:
            assert call(process, "add", a=1, b=2).status_code == 401
            assert call(process, "add", {"authorization": "Bearer other"}, a=1, b=2).status_code == 401
            token = {"authorization": "Bearer s3cret"}
            assert result(call(process, "add", token, a=1, b=2))["structuredContent"] == {"result": 3}
            # Web pages of other origins are kept out there, too.
            assert call(process, "add", {**token, "origin": "http://evil.example"}, a=1, b=2).status_code == 403
            names = {tool["name"] for tool in result(process.post("tools/list", **token))["tools"]}
            assert ("administer" in names) == may
            answer = result(call(process, "administer", token))
            assert answer["content"][0]["text"] == ("done" if may else "Unknown tool: 'administer'")
            assert "s3cret" not in process.errors


class TestBadInput:
    def test_a_huge_body_is_refused_before_it_is_read(self, served: ServedOverHttp) -> None:
        assert served.post_bytes(b"x" * (4 * 1024 * 1024 + 1)).status_code == 413
        # 100 MB that are announced and never sent.
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 104857600\r\n\r\n"
            )
            assert connection.recv(12) == b"HTTP/1.1 413"
        assert call(served, "add", a=1, b=2).status_code == 200

    def test_the_limit_is_an_option_and_so_is_an_open_server(self) -> None:
        with ServedOverHttp({"max_body_size": 1000, "host": "0.0.0.0", "insecure": True}) as process:
            assert call(process, "add", a=1, b=2).status_code == 200
            assert call(process, "add", a=1, b="x" * 1000).status_code == 413

    async def test_a_result_that_cannot_be_written_fails_its_own_call_only(self, served: ServedOverHttp) -> None:
        async with Client(served.url, mode="legacy") as client:
            # FastMCP finds it itself from 4.2 on.
            with pytest.raises((MCPError, ToolError)):
                await client.call_tool("half_an_emoji")
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    @rows("tool", ["fail", "leave"])
    def test_what_fails_inside_stays_inside(self, served: ServedOverHttp, tool: str) -> None:
        response = call(served, tool)
        assert result(response)["isError"]
        assert tool in response.text
        assert "hunter2" not in response.text


async def test_a_health_route_of_the_servers_own_is_taken() -> None:
    server = FastMCP("own")

    @server.custom_route("/health", methods=["GET"])
    async def health(_request: Request) -> Response:
        return Response("fine")

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=http_app(server)), base_url="http://x") as client:
        assert (await client.get("/health")).text == "fine"


async def test_no_part_of_an_answer_waits_for_an_acknowledgement() -> None:
    [listening] = _bind("127.0.0.1", 0)
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accept, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await asyncio.wait_for(accepted, 30)
        writer.close()


@rows(
    ("options", "error", "text"),
    [
        ({"transport": "sse"}, ValueError, "run_server: `transport` must be 'stdio' or 'http', got 'sse'"),
        ({"transport": "stdio"}, ValueError, "Over stdio there is one client, and no `host`.*pass transport='http'"),
        ({"port": 70000}, ValueError, "`port` must be less than or equal to 65535, got 70000"),
        ({"path": "mcp"}, ValueError, "`path` must start with a slash"),
        ({"max_body_size": 5_000_000}, ValueError, "`max_body_size` must be less"),
        ({"log_level": "chatty"}, ValueError, "`log_level` must be"),
        ({"grace_period": 0}, ValueError, "`grace_period` must be greater"),
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
    ],
)
def test_what_cannot_be_run_is_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    options = {"server": FastMCP("Refused"), "transport": "http", "port": 0, **options}
    with pytest.raises(error, match=text):
        run_server(options.pop("server"), **options)


def test_of_what_cannot_be_run_no_application_is_made() -> None:
    with pytest.raises(TypeError, match="http_app: `server` must be a FastMCP server, not "):
        http_app(lambda: FastMCP("Refused"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="http_app: `allowed_hosts` must be a valid list, got"):
        http_app(FastMCP("Refused"), allowed_hosts="mcp.example.com")


async def test_a_bearer_token_gives_its_scopes() -> None:
    granted = await BearerToken(Secret.from_token("right"), scopes=["admin"]).verify_token("right")
    assert granted is not None
    assert granted.scopes == ["admin"]
    # As of a file, and no header can have.
    assert await BearerToken(Secret.from_token("right\n")).verify_token("right") is not None


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            run_server(FastMCP("Late"), transport="http", port=port)


async def test_requests_are_to_be_sent_again_while_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haystack_integrations.tools.mcp.serving.calls._WRITING", LIMIT)
    server = FastMCP("Embedded")
    app = http_app(server)
    transport = httpx2.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport) as client:
        assert (await client.get("http://127.0.0.1/health")).status_code == 200
        stopping = asyncio.create_task(guard_of(server).stop(LIMIT))
        await asyncio.sleep(0)
        for response in (await client.get("http://127.0.0.1/health"), await client.post("http://127.0.0.1/mcp")):
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        # It may answer what a running call asks.
        of_session = await client.post("http://127.0.0.1/mcp", headers={"Mcp-Session-Id": "unknown"})
        assert of_session.status_code != 503
        stopping.cancel()


def has_ended(process: psutil.Process) -> bool:
    # Whoever inherits an orphan need not have waited for it yet.
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@on_one_major
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=NOT_ON_WINDOWS)])
def test_workers_share_what_clients_keep_and_finish_their_calls_whatever_ends_their_supervisor(number: int) -> None:
    with ServedOverHttp({"workers": 2, "port": free_port(), "grace_period": GRACE}) as process:
        process.wait_for("EVENT opened", count=2)
        asked = result(process.post("tools/call", {"name": "remember", "arguments": {}}))
        assert asked["resultType"] == "input_required"
        answer = {"action": "accept", "content": {"name": "Ada"}}
        given = {"requestState": asked["requestState"], "inputResponses": {"name": answer}}
        seen = set()

        def answered_by_both() -> bool:
            continued = process.post("tools/call", {"name": "remember", "arguments": {}, **given})
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
        wait_until(lambda: all(map(has_ended, workers)), "the end of the workers", limit=START_LIMIT)
        process.wait_for("EVENT closed", count=2)
        assert process.process.wait(LIMIT) == (0 if number == signal.SIGTERM else -number)
        socket.create_server(("127.0.0.1", process.port)).close()


@on_one_major
def test_workers_that_cannot_start_the_server_end_it_with_an_error() -> None:
    options = {"transport": "http", "port": 0, "workers": 2}
    with ServedProcess(SERVED, options, FAILS_TO_OPEN="the model is missing") as process:
        assert process.wait(START_LIMIT) == 1
        assert "the model is missing" in process.errors
        assert "a worker could not start it" in process.errors


STARTS_FOR_EVER = """
import sys, threading

def server():
    from fastmcp import FastMCP
    return FastMCP("shop")

if __name__ == "__main__":
    from haystack_integrations.tools.mcp.serving import run_server
    run_server(server, transport="http", port=0, workers=2)
else:
    print("EVENT starts", file=sys.stderr, flush=True)
    threading.Event().wait()
"""


@on_one_major
@NOT_ON_WINDOWS
def test_a_worker_that_is_killed_while_it_starts_is_replaced_and_ctrl_c_ends_those_that_start(tmp_path: Path) -> None:
    script = tmp_path / "starts_for_ever.py"
    script.write_text(STARTS_FOR_EVER)
    with ServedProcess(script, {}) as process:
        process.wait_for("EVENT starts", count=2, limit=START_LIMIT)
        time.sleep(2)  # the supervisor asks whether they live, every half second
        for worker in psutil.Process(process.process.pid).children():
            worker.kill()
        process.wait_for("EVENT starts", count=4, limit=40.0)  # before the supervisor gives up its question
        os.killpg(process.process.pid, signal.SIGINT)
        process.wait()


def test_a_subscription_names_a_resource(served: ServedOverHttp) -> None:
    session = Session(served)
    for parameters, answer in (({"uri": "test://one"}, '"result"'), ({"uri": 5}, "-32602"), ({}, "-32602")):
        assert answer in session.ask("resources/subscribe", parameters).text


async def test_without_sessions_calls_work_and_questions_and_notifications_are_refused() -> None:
    async def answer(*_: Any) -> dict[str, Any]:
        return {}

    with ServedOverHttp({"stateless": True}) as process:
        async with Client(process.url, mode="legacy", elicitation_handler=answer) as client:
            with pytest.raises(Exception, match="Error calling tool 'ask'"):
                await client.call_tool("ask")
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        refused = httpx2.get(process.url, headers={"accept": "text/event-stream"})
        assert refused.status_code == 405


def test_a_process_without_standard_streams_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def enough(_: Any) -> AsyncIterator[None]:
        raise InterruptedError
        yield

    for name in ("stdin", "stdout", "stderr"):  # as under pythonw
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(InterruptedError):
        run_server(FastMCP("Windowed", lifespan=enough), transport="http", port=0)
