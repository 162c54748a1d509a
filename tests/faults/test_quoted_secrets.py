# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers that quote the credentials that they were given: nobody is shown them, neither in errors nor in the log.

The watch over all tests sees what is shown as it is; here it may be encoded, too.
"""

import base64
import html
import json
import logging
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    StdioServerInfo,
)
from tests.support.handshake_server import Answer, HandshakeServer, result_of
from tests.support.kinds import KINDS, LONG, kinds
from tests.support.waiting import wait_until

SECRET = 'pa55/w"rd+of the=server'
TOKEN = "t0ken.of-the_server~42"
GITHUB_TOKEN = f"ghp_{'aB3' * 12}"

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
    yield from (str(error), repr(error), str(getattr(error, "message", "")), str(getattr(error, "data", "")))
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for link in (error.__cause__, error.__context__, *members):
        if link is not None:
            yield from texts(link)


def assert_not_shown(error: BaseException, connection: MCPConnection, log: str) -> None:
    for shown in [*texts(error), repr(connection.status()), repr(connection), log]:
        assert not leaked(shown), shown


@kinds("stdio", "2026")
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
            with pytest.raises(MCPInvocationError, match=r"\*\*\*") as failure:
                connection.call_tool(tool, {"message": message})
            assert_not_shown(failure.value, connection, caplog.text)
            assert failure.value.tool_args == {"message": message}


def test_what_a_server_writes_to_its_log_of_the_secrets_of_a_call_is_redacted(caplog):
    caplog.set_level(logging.DEBUG)
    script = """
import json, sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("chatty")
server.tool("pay")(lambda key: print("the key is", key, "indeed", file=sys.stderr))
server.run()
"""
    with MCPConnection(StdioServerInfo(sys.executable, ["-c", script]), connection_timeout=LONG) as connection:
        connection.call_tool("pay", {"key": SECRET}, secrets=[SECRET])
        wait_until(lambda: "indeed" in caplog.text, "the line")
    assert "the key is *** indeed" in caplog.text
    assert not leaked(caplog.text)


def test_what_a_server_quotes_at_its_end_is_redacted(caplog):
    caplog.set_level(logging.DEBUG)
    quoted = "os.environ['K'] + ' ' + ' '.join(sys.argv[2:])"
    script = f"import os, sys; sys.stderr.write('no such user: ' + {quoted}); sys.exit(1)"
    args = ["-c", script, "--token", TOKEN, f"postgresql://u:{SECRET[:5]}@h/db?password={GITHUB_TOKEN}"]
    info = StdioServerInfo(sys.executable, args, env={"K": Secret.from_token(SECRET)})
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=r"no such user.*\*\*\*") as failure:
        connection.open()
    assert_not_shown(failure.value, connection, caplog.text)
    connection.close()


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
@pytest.mark.parametrize(
    ("status", "body"),
    [(302, "HTML"), (400, "JSON-RPC"), (401, "HTML"), (403, "HTML"), (404, "JSON-RPC"), (503, "HTML")],
)
def test_what_a_server_quotes_when_it_refuses_is_redacted(status, body, method, caplog):
    caplog.set_level(logging.DEBUG)

    def answer(_server: HandshakeServer, message: dict[str, Any], _session: str | None) -> Answer:
        if message["method"] != method:
            return 200, result_of(message, {"tools": []}), None
        if body == "HTML":
            return status, f"<p>no access with {TOKEN} and {html.escape(SECRET)}</p>".encode(), None
        error = {"code": -32603, "message": f"no access with {TOKEN}", "data": {"headers": [SECRET]}}
        return status, {"jsonrpc": "2.0", "id": message["id"], "error": error}, None

    server = HandshakeServer(answer)
    server.refusal_headers = {
        "www-authenticate": f'Bearer realm="{TOKEN}"',
        "location": f"/login/{quote(SECRET, safe='')}/{TOKEN}?next={TOKEN}",
    }
    info = KINDS["sessions"].reach(server.url, token=TOKEN, headers={"X-Key": SECRET}, max_retries=0)
    connection = MCPConnection(info, connection_timeout=LONG)
    try:
        with pytest.raises((MCPConnectionError, MCPInvocationError)) as failure:
            connection.open()
            connection.call_tool("whoami")
        connection.close()
        assert_not_shown(failure.value, connection, caplog.text)
    finally:
        server.close()


@pytest.mark.parametrize("tool", ["fail", "refuse"], ids=["in an error of the tool", "in a protocol error"])
@kinds("stdio")
def test_what_a_server_quotes_of_a_bound_secret_is_redacted(peer, kind, tool, caplog):
    caplog.set_level(logging.DEBUG)
    bound = {"message": Secret.from_token(SECRET)}
    with MCPTool(tool, peer(kind).reach(), connection_timeout=LONG, bound_arguments=bound) as failing:
        with pytest.raises(MCPInvocationError, match=r"\*\*\*") as failure:
            failing.invoke(message="of the model")
        assert_not_shown(failure.value, failing.connection, caplog.text)
        assert failure.value.tool_args == {}
        assert not leaked(repr(failing) + repr(failing.bound_arguments))
