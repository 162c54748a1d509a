# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers that quote the credentials that they were given: nobody is shown them, neither in errors nor in the log.
"""

import base64
import html
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from typing import Any
from urllib.parse import quote

import mcp
import pytest
from haystack.utils import Secret
from mcp import types

from haystack_integrations.tools.mcp import (
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPServerInfo,
    MCPTool,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.handshake_server import Answer, HandshakeServer, result_of
from tests.support.kinds import KINDS, LONG, kinds
from tests.support.waiting import LIMIT

SECRET = 'pa55/w"rd+of the=server'
TOKEN = "t0ken.of-the_server~42"
GITHUB_TOKEN = f"ghp_{'aB3' * 12}"

two_ways = kinds("stdio", "2026")

# The ways in which a server may quote a value.
FORMS = {
    "as it is": str,
    "in JSON": lambda value: json.dumps({"env": value}),
    "in a URL": lambda value: f"https://h/{quote(value, safe='')}?x=1",
    "in Base64": lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
}


def leaked(shown: str) -> bool:
    """Whether a text has a part of a secret, also where it is encoded."""
    parts = [SECRET[:9], SECRET[-9:], TOKEN[:8], TOKEN[-8:], GITHUB_TOKEN[:12], quote(SECRET)[:12]]
    parts += [base64.b64encode(prefix + SECRET.encode()).decode()[6:20] for prefix in (b"", b"user:", b"12")]
    return any(part in shown for part in parts)


def texts(error: BaseException) -> Iterator[str]:
    """Everything that is shown of an exception and of those that it is linked with."""
    pending, seen = [error], set()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield from (str(each), repr(each), str(getattr(each, "message", "")), str(getattr(each, "data", "")))
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        pending += [link for link in (each.__cause__, each.__context__, *members) if link is not None]


def assert_not_shown(error: BaseException, connection: MCPConnection, log: str) -> None:
    for shown in [*texts(error), repr(connection.status()), repr(connection), log]:
        assert not leaked(shown), shown
    assert "***" in str(error)


@two_ways
def test_what_a_server_quotes_in_the_error_of_a_call_is_redacted(peer, kind, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_SECRET", SECRET)
    secret = Secret.from_env_var("SOME_SECRET")
    if kind.is_http:
        # What the server does not ask for it ignores.
        info = peer(kind).reach(token=TOKEN, headers={"X-Custom": secret})
    else:
        info = peer(kind).reach(env={"SOME_NAME": secret, "API_TOKEN": TOKEN})
    with MCPConnection(info, connection_timeout=LONG) as connection:
        # In an error of the tool, and in one of the protocol.
        for tool, form in product(("fail", "refuse"), FORMS.values()):
            message = f"{form(SECRET)} {TOKEN} {GITHUB_TOKEN}"
            with pytest.raises(MCPInvocationError) as failure:
                connection.call_tool(tool, {"message": message})
            assert_not_shown(failure.value, connection, caplog.text)
            assert failure.value.tool_args == {"message": message}
            if tool == "refuse":
                assert failure.value.code == -32050


def test_what_a_server_in_this_process_quotes_is_redacted_if_it_looks_like_a_credential(caplog):
    server = ForeignServer(definition("whoami"))
    with MCPConnection(server.info) as connection:
        for answer in (
            text_result(f"no access with {GITHUB_TOKEN}", is_error=True),
            mcp.MCPError(-32000, f"no access with {GITHUB_TOKEN}", {"token": GITHUB_TOKEN}),
        ):
            server.answer = answer
            with pytest.raises(MCPInvocationError, match="no access with") as failure:
                connection.call_tool("whoami")
            assert_not_shown(failure.value, connection, caplog.text)


def test_the_result_of_a_successful_call_is_not_touched(stdio_server):
    server = stdio_server()
    info = StdioServerInfo(server.command, server.args, env={"API_TOKEN": Secret.from_token(TOKEN)})
    with MCPTool("env", info) as tool:
        assert json.loads(tool.invoke(name="API_TOKEN"))["content"][0]["text"] == TOKEN


def test_what_a_server_quotes_at_its_end_is_redacted(caplog):
    caplog.set_level(logging.DEBUG)
    quoted = "os.environ['K'] + ' ' + ' '.join(sys.argv[2:])"
    script = f"import os, sys; sys.stderr.write('no such user: ' + {quoted}); sys.exit(1)"
    args = ["-c", script, "--token", TOKEN, f"postgresql://u:{SECRET[:5]}@h/db?password={GITHUB_TOKEN}"]
    info = StdioServerInfo(sys.executable, args, env={"K": Secret.from_token(SECRET)})
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match="no such user") as failure:
        connection.open()
    assert_not_shown(failure.value, connection, caplog.text)
    connection.close()


class Quoting:
    """An HTTP server that answers everything with one status, and quotes the client's headers wherever it can."""

    def __init__(self, status: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_args: Any) -> None:
                pass

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                token = self.headers["authorization"].removeprefix("Bearer ")
                key = self.headers["x-key"]
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": f"{token} {key}"}})
                self.send_response(status, f"Refused {token}")
                if 300 <= status < 400:
                    self.send_header("location", f"/login/{quote(key, safe='')}/{token}?next={token}")
                self.send_header("www-authenticate", f'Bearer realm="{token}", error="{quote(key)}"')
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_POST = do_DELETE = answer  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(LIMIT)
        self._server.server_close()


@pytest.fixture
def quoting_server() -> Iterator[Callable[[int], Quoting]]:
    servers: list[Quoting] = []

    def start(status: int) -> Quoting:
        servers.append(Quoting(status))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@kinds("2026", "sse")
def test_what_a_server_quotes_when_it_refuses_a_connect_is_redacted(quoting_server, kind, caplog):
    caplog.set_level(logging.DEBUG)
    for status in (302, 307, 400, 401, 403, 404, 500, 503):
        url = quoting_server(status).url
        info = kind.reach(url, token=Secret.from_token(TOKEN), headers={"X-Key": SECRET}, max_retries=1)
        connection = MCPConnection(info, connection_timeout=LONG)
        with pytest.raises(MCPConnectionError) as failure:
            connection.open()
        for shown in [*texts(failure.value), repr(connection.status()), caplog.text]:
            assert not leaked(shown), shown
        connection.close()


@pytest.mark.parametrize(("status", "body"), [(400, "JSON-RPC"), (401, "HTML"), (404, "JSON-RPC"), (503, "HTML")])
def test_what_a_server_quotes_when_it_refuses_a_call_is_redacted(status, body, caplog):
    caplog.set_level(logging.DEBUG)

    def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": []}), None
        if body == "HTML":
            return status, f"<p>no access with {TOKEN} and {html.escape(SECRET)}</p>".encode(), None
        error = {"code": -32603, "message": f"no access with {TOKEN}", "data": {"headers": [SECRET]}}
        return status, {"jsonrpc": "2.0", "id": message["id"], "error": error}, None

    server = HandshakeServer(answer)
    server.refusal_headers = {"www-authenticate": f'Bearer realm="{TOKEN}"'}
    try:
        info = KINDS["sessions"].reach(server.url, token=TOKEN, headers={"X-Key": SECRET}, max_retries=0)
        with MCPConnection(info, connection_timeout=LONG) as connection:
            with pytest.raises(MCPInvocationError) as failure:
                connection.call_tool("whoami")
            assert not leaked(repr(connection.status()))
        # By now the session is closed, a request that the server refuses likewise.
        for shown in [*texts(failure.value), caplog.text]:
            assert not leaked(shown), shown
    finally:
        server.close()


class GrudgingInfo(MCPServerInfo):
    """A custom kind of server."""

    def __init__(self, credentials: Secret) -> None:
        self.credentials = credentials

    def create_client(self) -> MCPClient:
        return GrudgingClient(self.credentials)


class Unchangeable(Exception):  # noqa: N818 - as a library may call it
    """An exception whose text is not in its arguments."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    def __str__(self) -> str:
        return f"no access with {self._secret.resolve_value()}"


class GrudgingClient(MCPClient):
    def __init__(self, credentials: Secret) -> None:
        super().__init__()
        self._credentials = credentials

    async def connect(self) -> list[types.Tool]:
        return [definition("whoami")]

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        raise Unchangeable(self._credentials)


def test_what_a_custom_client_quotes_is_redacted_whatever_it_raises(caplog):
    connection = MCPConnection(GrudgingInfo(Secret.from_token(SECRET)))
    with connection, pytest.raises(MCPInvocationError, match="no access with") as failure:
        connection.call_tool("whoami")
    assert_not_shown(failure.value, connection, caplog.text)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("tool", ["fail", "refuse"], ids=["in an error of the tool", "in a protocol error"])
@kinds("stdio")
def test_what_a_server_quotes_of_a_bound_secret_is_redacted(peer, kind, tool, form, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_SECRET", form(SECRET))
    bound = {"message": Secret.from_env_var("SOME_SECRET")}
    with MCPTool(tool, peer(kind).reach(), connection_timeout=LONG, bound_arguments=bound) as failing:
        for ask in (failing.invoke, failing.call):
            with pytest.raises(MCPInvocationError) as failure:
                ask(message="of the model")
            assert_not_shown(failure.value, failing.connection, caplog.text)
            assert failure.value.tool_args == {}
        assert not leaked(repr(failing) + repr(failing.bound_arguments) + json.dumps(failing.to_dict()))


async def test_what_a_server_quotes_to_a_client_that_is_used_directly_is_redacted():
    token = "t0ken-of-a-direct-client"

    def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
        if message["method"] == "tools/list":
            return 200, result_of(message, {"tools": []}), None
        error = {"code": -32000, "message": f"no access with {token}"}
        return 200, {"jsonrpc": "2.0", "id": message["id"], "error": error}, None

    server = HandshakeServer(answer)
    client = StreamableHttpServerInfo(server.url, token=Secret.from_token(token)).create_client()
    try:
        await client.connect()
        with pytest.raises(MCPInvocationError, match="no access with") as caught:
            await client.call_tool("pay", {})
        assert token not in str(caught.value)
    finally:
        await client.aclose()
        server.close()
