# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Corners of the connection's promises: what counts as not run, who closes, what may be said.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from mcp import types

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPServerInfo,
    MCPTimeoutError,
    MCPTool,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.support.waiting import wait_until

SECRET = "sk-s3ntinel-4711"

Answer = tuple[int, dict[str, Any] | bytes, str | None]


class HandshakeServer:
    """
    An HTTP server of the 2025 era whose answers to `tools/list` and `tools/call` a test decides.
    """

    def __init__(self, answer: Callable[["HandshakeServer", dict[str, Any], str | None], Answer]) -> None:
        self.sessions = 0
        self.runs = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: Any) -> None:
                pass

            def _send(self, status: int, body: dict[str, Any] | bytes, session: str | None = None) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                if session:
                    self.send_header("mcp-session-id", session)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                self._send(405, b"")

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
                elif message["method"] in ("tools/list", "tools/call"):
                    self._send(*answer(owner, message, self.headers.get("mcp-session-id")))
                else:
                    self._send(400, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def close(self) -> None:
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
        with (
            MCPConnection(StreamableHttpServerInfo(server.url, base_delay=0.01)) as connection,
            pytest.raises(MCPInvocationError, match="may have run"),
        ):
            connection.call_tool(
                "charge_card"
            )  # the SDK lists the tools to check the result of one that it has not seen
        assert server.runs == 1


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
