# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Corners of the connection's promises: what counts as not run, who closes, what may be said.
"""

import asyncio
import itertools
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from mcp import types
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPServerInfo,
    MCPTimeoutError,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.connection.session import Session
from tests.support.background import in_thread
from tests.support.waiting import LIMIT, wait_until

SECRET = "sk-s3ntinel-4711"

Answer = tuple[int, dict[str, Any] | bytes, str | None]


class HandshakeServer:
    """
    An HTTP server of the 2025 era whose answers to `tools/list` and `tools/call` a test decides.
    """

    def __init__(self, answer: Callable[["HandshakeServer", dict[str, Any], str | None], Answer]) -> None:
        self.sessions = 0
        self.runs = 0
        # Headers of errors; and what an event stream gives, if there are any, and when each was opened.
        self.refusal_headers: dict[str, str] = {}
        self.stream: bytes | None = None
        self.streamed: list[float] = []
        # Whether calls are answered with a stream in which no answer comes.
        self.opens_streams = False
        # What happened, or is to happen: the client answered a request of the stream; the server ends.
        self.answered = threading.Event()
        self.closing = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: Any) -> None:
                pass

            def _send(self, status: int, body: dict[str, Any] | bytes, session: str | None = None) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                headers = {"content-type": "application/json", **(owner.refusal_headers if status >= 400 else {})}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                if session:
                    self.send_header("mcp-session-id", session)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                if owner.stream is None:
                    self._send(405, b"")
                    return
                owner.streamed.append(time.monotonic())
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(owner.stream)))
                self.end_headers()
                self.wfile.write(owner.stream)

            def do_DELETE(self) -> None:
                self._send(405, b"")

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if message.get("method") == "initialize":
                    owner.sessions += 1
                    result = {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "edge", "version": "1"},
                    }
                    answered = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                    self._send(200, answered, f"session-{owner.sessions}")
                elif "id" not in message:
                    self._send(202, b"")
                elif "method" not in message:  # an answer to a request in the stream
                    owner.answered.set()
                    owner.closing.wait()
                elif message["method"] == "tools/call" and owner.opens_streams:
                    self.send_response(200)
                    self.send_header("content-type", "text/event-stream")
                    self.end_headers()
                    self.wfile.write(b": there\n\n")
                    owner.closing.wait()
                elif message["method"] in ("tools/list", "tools/call"):
                    self._send(*answer(owner, message, self.headers.get("mcp-session-id")))
                else:
                    self._send(400, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def handshake_server() -> Iterator[Callable[..., HandshakeServer]]:
    servers: list[HandshakeServer] = []

    def start(answer: Callable[[HandshakeServer, dict[str, Any], str | None], Answer]) -> HandshakeServer:
        servers.append(HandshakeServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def result_of(message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


class TestWhatCountsAsNotRun:
    def test_a_refused_listing_after_the_call_does_not_make_the_call_run_again(self, handshake_server: Any) -> None:
        def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
            if message["method"] == "tools/call":
                server.runs += 1
                return 200, result_of(message, {"content": [{"type": "text", "text": "charged"}]}), None
            if server.runs and session == "session-1":
                error = {"code": -32600, "message": "Session not found"}
                return 404, {"jsonrpc": "2.0", "id": None, "error": error}, None
            return 200, result_of(message, {"tools": []}), None

        server = handshake_server(answer)
        with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
            # The SDK would list the tools, to check the result of one that it has not seen.
            assert connection.call_tool("charge_card").content[0].text == "charged"
        assert server.runs == 1

    @staticmethod
    def refusing(refusal: Callable[[dict[str, Any]], Answer]) -> Callable[..., Answer]:
        """
        Runs the tool and refuses the request all the same, in the first session.
        """

        def answer(server: HandshakeServer, message: dict[str, Any], session: str | None) -> Answer:
            if message["method"] == "tools/list":
                return 200, result_of(message, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}), None
            server.runs += 1
            if session == "session-1":
                return refusal(message)
            return 200, result_of(message, {"content": [{"type": "text", "text": "paid"}]}), None

        return answer

    @pytest.mark.parametrize(
        ("status", "body", "says"),
        [
            (400, b"could not store the row: the database session was rolled back", "HTTP 400"),
            (400, {"error": "upstream session expired after the order was placed"}, "HTTP 400"),
            (400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "no session left"}}, "session"),
            (400, {"jsonrpc": "2.0", "id": "own", "error": {"code": -32603, "message": "Session not found"}}, "found"),
            (404, {"jsonrpc": "2.0", "id": "own", "error": {"code": -32002, "message": "no such resource"}}, "such"),
        ],
    )
    def test_a_refusal_that_is_not_clearly_about_the_session_does_not(
        self, handshake_server: Any, status: int, body: Any, says: str
    ) -> None:
        def refusal(message: dict[str, Any]) -> Answer:
            own = isinstance(body, dict) and body.get("id") == "own"
            return status, {**body, "id": message["id"]} if own else body, None

        server = handshake_server(self.refusing(refusal))
        with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
            with pytest.raises(MCPInvocationError, match=says) as raised:
                connection.call_tool("pay")
            assert "did not run" not in str(raised.value)
            assert server.runs == 1
            assert connection.status().failed_calls == 1

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (400, b"could not store the row: the database session was rolled back"),
            (404, {"jsonrpc": "2.0", "id": "own", "error": {"code": -32001, "message": "Session not found"}}),
        ],
    )
    def test_one_that_might_be_about_the_session_opens_a_new_one_for_the_next_call(
        self, handshake_server: Any, status: int, body: Any
    ) -> None:
        def refusal(message: dict[str, Any]) -> Answer:
            return status, {**body, "id": message["id"]} if isinstance(body, dict) else body, None

        server = handshake_server(self.refusing(refusal))
        with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
            with pytest.raises(MCPInvocationError):
                connection.call_tool("pay")
            assert connection.call_tool("pay").content[0].text == "paid"
            assert (server.sessions, server.runs) == (2, 2)

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (404, b"<html>not here</html>"),
            (404, {"error": "Session not found"}),
            (400, b"Invalid or missing session ID"),
            (400, b"Session not found."),
            (400, {"error": "Invalid session ID"}),
            (400, {"message": "Session 0f3a-77 is unknown"}),
            (400, {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: Session expired"}}),
            (400, {"jsonrpc": "2.0", "id": "", "error": {"code": -32000, "message": "Mcp-Session-Id header required"}}),
        ],
    )
    def test_one_that_is_about_the_session_is_sent_again_in_a_new_one(
        self, handshake_server: Any, status: int, body: Any
    ) -> None:
        server = handshake_server(self.refusing(lambda _message: (status, body, None)))
        with MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection:
            assert connection.call_tool("pay").content[0].text == "paid"
        assert server.sessions == 2

    @pytest.mark.parametrize("status", [400, 404, 500])
    @pytest.mark.parametrize(
        ("headers", "body"),
        [
            ({"content-encoding": "gzip"}, b"no gzip"),
            ({"content-type": "text/plain; charset=undefined"}, b"no session"),
            ({"content-type": "application/json"}, b"[" * 200_000),
            ({"content-type": "application/json"}, b"\xff\xfe"),
        ],
        ids=["gzip", "charset", "nested", "bytes"],
    )
    def test_one_that_cannot_be_read_harms_no_other_call(
        self, handshake_server: Any, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        def answer(server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
            if message["method"] == "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pay", "wait")]
                return 200, result_of(message, {"tools": tools}), None
            server.runs += 1
            if message["params"]["name"] == "wait":
                assert refused.wait(LIMIT)
                return 200, result_of(message, {"content": [{"type": "text", "text": "waited"}]}), None
            return status, body, None

        refused = threading.Event()
        server = handshake_server(answer)
        server.refusal_headers = headers
        with MCPConnection(StreamableHttpServerInfo(server.url, max_retries=0)) as connection:
            other = in_thread(connection.call_tool, "wait")
            wait_until(lambda: server.runs == 1, "the other call")
            with pytest.raises(MCPInvocationError):
                connection.call_tool("pay")
            refused.set()
            assert other.result(timeout=LIMIT).content[0].text == "waited"


class TestStreams:
    def test_one_that_always_ends_at_once_is_not_reopened_all_the_time(self, handshake_server: Any) -> None:
        def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
            return 200, result_of(message, {"tools": []}), None

        server = handshake_server(answer)
        server.stream = b"id: 1\nretry: 0\ndata:\n\n"
        with MCPConnection(StreamableHttpServerInfo(server.url)):
            wait_until(lambda: len(server.streamed) >= 5, "five streams")
        pauses = [after - before for before, after in itertools.pairwise(server.streamed)]
        assert min(pauses) >= 0.09  # no limit above: this only shows that it is not a loop without rest

    def test_an_answer_to_the_server_that_it_does_not_take_holds_up_no_calls(self, handshake_server: Any) -> None:
        def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
            if message["method"] == "tools/list":
                return 200, result_of(message, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}), None
            return 200, result_of(message, {"content": [{"type": "text", "text": "paid"}]}), None

        server = handshake_server(answer)
        server.stream = b'data: {"jsonrpc":"2.0","id":77,"method":"ping"}\n\n'
        with MCPConnection(StreamableHttpServerInfo(server.url), invocation_timeout=LIMIT) as connection:
            assert server.answered.wait(LIMIT)
            assert connection.call_tool("pay").content[0].text == "paid"

    @pytest.mark.parametrize("opens_stream", [False, True], ids=["silent", "stream"])
    def test_a_call_that_was_given_up_leaves_no_request_behind(self, handshake_server: Any, opens_stream: bool) -> None:
        def answer(server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
            if message["method"] == "tools/list":
                return 200, result_of(message, {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}), None
            server.closing.wait()
            return 200, b"", None

        server = handshake_server(answer)
        server.opens_streams = opens_stream
        tasks = asyncio.all_tasks
        with MCPConnection(StreamableHttpServerInfo(server.url), invocation_timeout=0.2) as connection:
            loop = AsyncExecutor.get_instance().get_loop()
            before = len(tasks(loop))
            for _ in range(5):
                with pytest.raises(MCPTimeoutError):
                    connection.call_tool("pay")
            wait_until(lambda: len(tasks(loop)) <= before, lambda: f"{len(tasks(loop))} tasks instead of {before}")


class TestServersInProcess:
    @pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
    def test_one_that_exits_ends_nothing_else(self, stdio_server: Any, error: type[BaseException]) -> None:
        server = MCPServer("quitter")

        @server.tool()
        async def leave() -> str:
            raise error(2)

        other = stdio_server()
        with (
            MCPConnection(StdioServerInfo(other.command, other.args)) as connection,
            MCPTool("leave", InProcessServerInfo(server)) as tool,
        ):
            call = in_thread(connection.call_tool, "sleep", {"seconds": 1})
            other.wait_for("sleep")
            with pytest.raises(MCPInvocationError, match=f"{error.__name__}.*may have run"):
                tool.invoke()
            assert call.result(timeout=LIMIT).content[0].text == "slept 1.0 s"
            assert connection.call_tool("add", {"a": 1, "b": 2}).content[0].text == "3"

    def test_a_result_that_is_no_unicode_is_an_invocation_error(self) -> None:
        server = MCPServer("odd")

        @server.tool()
        async def odd() -> str:
            return "\ud800"

        with MCPTool("odd", InProcessServerInfo(server)) as tool, pytest.raises(MCPInvocationError):
            tool.invoke()


def test_the_lock_of_a_toolset_is_free_in_a_forked_child() -> None:
    toolset = MCPToolset(StdioServerInfo("mcp-never-started"))
    with toolset._lock(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
        pid = os.fork()
        if pid == 0:
            os._exit(0 if toolset._lock().acquire(timeout=LIMIT) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class TestWhatIsSaid:
    def test_an_answer_that_cannot_be_parsed_is_not_quoted(self, handshake_server: Any) -> None:
        def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
            if message["method"] == "tools/call":
                return 200, {"echo": message["params"]["arguments"]}, None
            tool = {"name": "pay", "inputSchema": {"type": "object"}}
            return 200, result_of(message, {"tools": [tool]}), None

        server = handshake_server(answer)
        with (
            MCPTool("pay", StreamableHttpServerInfo(server.url)) as tool,
            pytest.raises(MCPInvocationError, match="no valid JSON-RPC message") as raised,
        ):
            tool.invoke(card=SECRET)
        assert SECRET not in str(raised.value)

    @pytest.mark.parametrize("script", ["sys.exit(3)", "sys.stdin.read()"], ids=["exits", "hangs"])
    @pytest.mark.parametrize("end", ["", "\\n"], ids=["no newline", "newline"])
    def test_secrets_on_the_stderr_of_a_server_are_blotted_out(self, script: str, end: str) -> None:
        code = (
            f"import os, sys; sys.stderr.write('bad key: ' + os.environ['KEY'] + '{end}'); sys.stderr.flush(); {script}"
        )
        info = StdioServerInfo(sys.executable, ["-c", code], env={"KEY": SECRET})
        connection = MCPConnection(info, connection_timeout=3)
        with pytest.raises(MCPConnectionError, match=r"bad key: \*\*\*") as raised:
            connection.open()
        connection.close()
        assert SECRET not in str(raised.value)

    @pytest.mark.parametrize("value", [f"{SECRET}\n", f"{SECRET}é"])
    @pytest.mark.parametrize("kind", [SSEServerInfo, StreamableHttpServerInfo])
    def test_a_header_that_cannot_be_sent_is_named_and_not_shown(self, kind: Any, value: str) -> None:
        connection = MCPConnection(kind(url="http://127.0.0.1:1/mcp", token=value))
        with pytest.raises(MCPConnectionError, match="header 'Authorization'") as raised:
            connection.open()
        connection.close()
        assert SECRET not in str(raised.value)
        assert raised.value.__cause__ is None

    @pytest.mark.parametrize("transport", ["stdio", "sse", "streamable-http"])
    def test_an_argument_that_cannot_be_sent_is_named_and_harms_no_other_call(
        self, transport: str, stdio_server: Any, shared_http_server: Any
    ) -> None:
        info: MCPServerInfo
        if transport == "stdio":
            server = stdio_server()
            info = StdioServerInfo(server.command, server.args)
        else:
            kind = SSEServerInfo if transport == "sse" else StreamableHttpServerInfo
            info = kind(url=shared_http_server(transport).url)
        arguments = [f"{SECRET}\ud83d", SECRET.encode() + b"\xff", {"deep": object()}]
        with MCPConnection(info, invocation_timeout=60) as connection:
            for argument in arguments:
                with pytest.raises(MCPInvocationError, match="argument 'text' cannot be sent as JSON") as raised:
                    connection.call_tool("echo", {"text": argument})
                assert SECRET not in str(raised.value)
                assert "may have run" not in str(raised.value)
            assert "hello" in str(connection.call_tool("echo", {"text": "hello"}))
            assert connection.status().sessions == 1

    def test_an_argument_that_can_be_read_once_only_reaches_the_server(self) -> None:
        script = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("lists")
server.tool("total")(lambda numbers: str(sum(numbers)))
server.run()
"""
        with MCPConnection(StdioServerInfo(sys.executable, ["-c", script])) as connection:
            assert "'3'" in str(connection.call_tool("total", {"numbers": (n for n in (1, 2))}))

    def test_a_timeout_is_not_its_own_cause(self, stdio_server: Any) -> None:
        server = stdio_server()
        info = StdioServerInfo(server.command, server.args)
        with (
            MCPConnection(info, invocation_timeout=0.3) as connection,
            pytest.raises(MCPTimeoutError) as raised,
        ):
            connection.call_tool("sleep", {"seconds": 60})
        assert raised.value.__cause__ is not raised.value


class TestWhoCloses:
    async def test_a_session_that_is_closed_before_it_starts_is_forgotten_and_holds_nobody_up(self) -> None:
        class Owner:
            description = "a server"

            def session_lost(self, _session: Session, _reason: str) -> None:
                pass

        session = Session(InProcessServerInfo(MCPServer("never used")).create_client(), owner=Owner())
        opening, closing = asyncio.create_task(session.open()), asyncio.create_task(session.close())
        await asyncio.wait({opening, closing}, timeout=LIMIT)
        assert opening.cancelled()
        assert closing.done()
        assert session not in Session.live

    async def test_a_close_goes_on_when_its_caller_is_cancelled(self, stdio_server: Any) -> None:
        server = stdio_server()
        connection = MCPConnection(StdioServerInfo(server.command, server.args))
        await connection.open_async()
        closing = asyncio.create_task(connection.close_async())
        asyncio.get_running_loop().call_soon(closing.cancel)
        with pytest.raises(asyncio.CancelledError):
            await closing
        wait_until(lambda: not server.alive(), "the end of the server process")

    def test_a_shutdown_of_the_executor_ends_a_server_that_ignores_everything(self, stdio_server: Any) -> None:
        server = stdio_server("--stubborn")
        connection = MCPConnection(StdioServerInfo(server.command, server.args))
        connection.open()
        AsyncExecutor.get_instance().shutdown()
        wait_until(lambda: not server.alive(), "the end of the server process")
        assert connection.status().state == "lost"
        connection.close()


class DyingClient(MCPClient):
    """A client of a user's own, with just the three methods."""

    connects: ClassVar[int] = 0

    async def connect(self) -> list[types.Tool]:
        DyingClient.connects += 1
        self._calls = 0
        return [types.Tool(name="pay", input_schema={"type": "object"})]

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        self._calls += 1
        if self._calls == 2:
            msg = "connection lost after sending"
            raise MCPConnectionError(msg)
        return types.CallToolResult(content=[types.TextContent(type="text", text="paid")]).model_dump_json()

    async def aclose(self) -> None:
        pass


@dataclass
class DyingServerInfo(MCPServerInfo):
    client_retries: int = 3

    def create_client(self) -> MCPClient:
        return DyingClient(max_retries=self.client_retries, base_delay=0.01)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_client_of_the_users_own_says_how_often_to_reconnect(retries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    DyingClient.connects = 0
    with MCPTool("pay", DyingServerInfo(client_retries=retries)) as tool:
        tool.invoke()
        with pytest.raises(MCPInvocationError, match="may have run"):
            tool.invoke()

        async def refuse(_: DyingClient) -> list[types.Tool]:
            DyingClient.connects += 1
            msg = "down"
            raise MCPConnectionError(msg)

        monkeypatch.setattr(DyingClient, "connect", refuse)
        with pytest.raises(MCPInvocationError, match="did not run"):
            tool.invoke()
    assert DyingClient.connects == 1 + 1 + retries


def test_a_client_of_the_users_own_that_loses_its_connection_is_replaced_and_not_called_unrun() -> None:
    DyingClient.connects = 0
    with MCPTool("pay", DyingServerInfo()) as tool:
        tool.invoke()
        with pytest.raises(MCPInvocationError, match=r"connection lost after sending\. The tool may have run"):
            tool.invoke()
        assert "paid" in str(tool.invoke())
    assert DyingClient.connects == 2


def test_a_session_that_is_opened_just_as_the_last_one_who_waits_gives_up_is_closed() -> None:
    waiting: list[asyncio.Task[Any]] = []
    closed = threading.Event()

    class Client(DyingClient):
        async def connect(self) -> list[types.Tool]:
            tools = await super().connect()
            waiting[0].cancel()  # as the caller's timer may, in this very turn of the loop
            return tools

        async def aclose(self) -> None:
            closed.set()

    class Info(MCPServerInfo):
        def create_client(self) -> MCPClient:
            return Client()

    async def give_up() -> None:
        waiting.append(asyncio.create_task(connection.open_async()))
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]

    connection = MCPConnection(Info())
    AsyncExecutor.get_instance().run(give_up(), LIMIT)
    assert closed.wait(LIMIT)
    assert connection.status().state == "idle"
    connection.close()
