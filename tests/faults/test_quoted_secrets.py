# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers that quote the credentials that they got: these are shown neither in errors nor in the log.

The fixture that watches all tests finds only plain secrets; these tests also find encoded ones.
"""

import base64
import html
import json
import logging
import traceback
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    StdioServerInfo,
)
from tests.support.handshake_server import HandshakeServer, error_of
from tests.support.kinds import KINDS, LONG, kinds
from tests.support.waiting import wait_until

SECRET = 'pa55/w"rd+of the=server'
TOKEN = "t0ken.of-the_server~42"
GITHUB_TOKEN = f"ghp_{'aB3' * 12}"


def leaked(shown: str) -> bool:
    """Return whether a text has a part of a secret, plain or encoded."""
    parts = [SECRET[:9], SECRET[-9:], TOKEN[:8], TOKEN[-8:], GITHUB_TOKEN[:12], quote(SECRET)[:12]]
    return any(part in shown for part in [*parts, base64.b64encode(f"user:{SECRET}".encode()).decode()[6:20]])


def assert_not_shown(error: Any, connection: MCPConnection, log: str) -> None:
    chained = "".join(traceback.format_exception(error))
    for shown in (chained, repr(error), str(vars(error)), repr(connection.status()), repr(connection), log):
        assert not leaked(shown), shown


@kinds("stdio", "2026")
def test_secrets_that_a_server_quotes_in_the_error_of_a_call_are_redacted(peer, kind, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_SECRET", SECRET)
    secret = Secret.from_env_var("SOME_SECRET")
    if kind.is_http:
        # The server ignores credentials that it does not require.
        info = peer(kind).reach(token=TOKEN, headers={"X-Custom": secret})
    else:
        info = peer(kind).reach(env={"SOME_NAME": secret, "API_TOKEN": TOKEN})
    in_url, in_base64 = quote(SECRET, safe=""), base64.b64encode(f"user:{SECRET}".encode()).decode()
    with MCPConnection(info, connection_timeout=LONG) as connection:
        # One is an error of the tool, the other of the protocol.
        for tool in ("fail", "refuse"):
            for quoted in (SECRET, json.dumps({"env": SECRET}), f"https://h/{in_url}?x=1", in_base64):
                message = f"{quoted} {TOKEN} {GITHUB_TOKEN}"
                with pytest.raises(MCPInvocationError, match=r"\*\*\*") as failure:
                    connection.call_tool(tool, {"message": message})
                assert failure.value.tool_args == {"message": message}
                failure.value.tool_args = {}
                assert_not_shown(failure.value, connection, caplog.text)


@pytest.mark.parametrize("at_connect", [True, False])
def test_secrets_that_a_server_quotes_in_a_refusal_are_redacted(at_connect, caplog):
    caplog.set_level(logging.DEBUG)
    headers = {
        "www-authenticate": f'Bearer realm="{TOKEN}"',
        "location": f"/login/{quote(SECRET, safe='')}/{TOKEN}?next={TOKEN}",
    }

    def refuse(_server: HandshakeServer, message: dict[str, Any]) -> httpx2.Response:
        if status in (400, 404):
            answered = error_of(message, -32603, f"no access with {TOKEN}", status=status, data={"headers": [SECRET]})
            answered.headers.update(headers)
            return answered
        return httpx2.Response(status, html=f"<p>no access with {TOKEN} and {html.escape(SECRET)}</p>", headers=headers)

    server = HandshakeServer(*([lambda *_: None, refuse] if at_connect else [refuse]))
    info = server.info(token=TOKEN, headers={"X-Key": SECRET}, max_retries=0)
    for status in (302, 400, 401, 403, 404, 503):  # noqa: B007 - `refuse` uses it
        connection = MCPConnection(info, connection_timeout=LONG)
        with pytest.raises((MCPConnectionError, MCPInvocationError)) as failure:
            connection.open()
            connection.call_tool("pay")
        connection.close()
        assert_not_shown(failure.value, connection, caplog.text)


def test_bound_secrets_that_a_server_quotes_are_redacted(peer, caplog):
    caplog.set_level(logging.DEBUG)
    bound, info = {"message": Secret.from_token(SECRET)}, peer(KINDS["stdio"]).reach()
    for name in ("fail", "refuse"):  # an error of the tool, and one of the protocol
        with MCPTool(name, info, connection_timeout=LONG, bound_arguments=bound) as tool:
            with pytest.raises(MCPInvocationError, match=r"\*\*\*") as failure:
                tool.invoke(message="of the model")
            assert_not_shown(failure.value, tool.connection, caplog.text)
            assert failure.value.tool_args == {}
            assert not leaked(repr(tool) + repr(tool.bound_arguments))


def test_secrets_of_a_call_that_a_server_writes_to_stderr_are_redacted(stdio_server, caplog):
    caplog.set_level(logging.DEBUG)
    server = stdio_server()
    # It also writes all its input to its log.
    args = ["-c", 'tee /dev/stderr | "$@"', "sh", server.command, *server.args]
    with MCPConnection(StdioServerInfo("/bin/sh", args), connection_timeout=LONG) as connection:
        connection.call_tool("echo", {"text": TOKEN}, secrets=[TOKEN])
        wait_until(lambda: '"text":"***"' in caplog.text, "the line")
    assert not leaked(caplog.text)
