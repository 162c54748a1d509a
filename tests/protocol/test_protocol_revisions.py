# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The revision of the protocol for each kind of server, and how a session begins.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPHandlers,
    MCPInvocationError,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.protocol import negotiation
from haystack_integrations.tools.mcp.protocol.request_errors import LostError, ProtocolError, RefusedError
from tests.protocol.conftest import REVISIONS
from tests.support.background import text
from tests.support.kinds import LONG, Kind

NEWEST = "2026-07-28"
NEWEST_WITH_HANDSHAKE = "2025-11-25"


@pytest.mark.parametrize(
    ("transport", "negotiation", "revision", "never"),
    [
        ("stdio", "auto", NEWEST_WITH_HANDSHAKE, "server/discover"),
        ("sse", "auto", NEWEST_WITH_HANDSHAKE, "server/discover"),
        ("streamable-http", "auto", NEWEST, None),
        ("stdio", "discover", NEWEST, "initialize"),
        ("sse", "discover", NEWEST, None),
        ("streamable-http", "handshake", NEWEST_WITH_HANDSHAKE, "server/discover"),
    ],
)
def test_the_server_info_chooses_the_revision_for_a_server_of_both_eras(
    transport, negotiation, revision, never, sdk_stdio_server, http_server
):
    server = sdk_stdio_server() if transport == "stdio" else http_server(transport)
    info = server.info() if transport == "stdio" else Kind(transport).reach(server.url)
    with MCPConnection(replace(info, negotiation=negotiation)) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert connection.status().protocol_version == revision
    assert never not in server.requests()
    if transport == "stdio":
        assert server.requests()[0] == ("server/discover" if negotiation == "discover" else "initialize")
    if negotiation == "discover":
        assert server.requests("server/discover")


def test_no_other_request_follows_a_refused_handshake_if_only_the_handshake_is_allowed(picky_server):
    server = picky_server(refusing(-32022))
    info = replace(server.info(), negotiation="handshake", max_retries=0)
    with pytest.raises(MCPConnectionError, match="not like this"), MCPConnection(info):
        pass
    assert set(server.requests()) == {"initialize"}


@pytest.mark.parametrize("way", ["in process", "streamable-http"])
def test_a_server_that_sends_requests_only_in_handshake_revisions_is_answered_in_these(way, fastmcp_http):
    handlers = MCPHandlers(elicitation=lambda question: {"value": "Ada"})
    server = "tests.servers.fastmcp_server:server"
    info = InProcessServerInfo(server) if way == "in process" else StreamableHttpServerInfo(fastmcp_http.url)
    reports: list[float] = []
    with MCPConnection(replace(info, negotiation="handshake"), handlers=handlers) as connection:
        result = connection.call_tool("ask_name", {}, on_progress=lambda report: reports.append(report.progress))
        assert text(result) == "Ada"
        assert reports == [1.0]
        assert connection.status().protocol_version == NEWEST_WITH_HANDSHAKE
    with (
        MCPConnection(info, handlers=handlers) as connection,
        pytest.raises(MCPInvocationError, match=f"unavailable on {NEWEST}"),
    ):
        connection.call_tool("ask_name", {})


def refusing(code: int, **others: Any) -> dict[str, Any]:
    return {"initialize": {"error": {"code": code, "message": "not like this"}}, **others}


@pytest.mark.parametrize(
    ("results", "negotiation", "revision", "asked"),
    [
        ({}, "discover", "2025-06-18", ["server/discover", "initialize"]),
        # A server that knows only the handshake gets no request before it.
        ({"server/discover": "silence"}, "auto", "2025-06-18", ["initialize"]),
        # Servers refuse the handshake as specified, as an unknown method, or with any other error.
        *(
            (refusing(code, **{"server/discover": REVISIONS}), "auto", NEWEST, ["initialize", "server/discover"])
            for code in (-32022, -32601, 1)
        ),
        ({"initialize": {"protocolVersion": NEWEST}, "server/discover": REVISIONS}, "auto", NEWEST, ["initialize"]),
    ],
)
def test_a_server_that_refuses_one_way_to_begin_is_asked_in_the_other_way(
    picky_server, results, negotiation, revision, asked
):
    server = picky_server(results)
    with MCPConnection(replace(server.info(), negotiation=negotiation), connection_timeout=LONG) as connection:
        assert text(connection.call_tool("fine")) == "fine"
        assert connection.status().protocol_version == revision
    assert server.requests()[: len(asked)] == asked
    assert len(server.pids()) == 1


@pytest.mark.parametrize(
    ("results", "reason", "code"),
    [
        ({"initialize": {"protocolVersion": "1999-01-01"}}, "1999-01-01", None),
        (refusing(-32602), ": not like this", -32602),
        (refusing(-32602, **{"server/discover": "exit"}), "the server process ended with exit code 1", None),
        (refusing(-32602, **{"server/discover": "silence"}), "did not answer", None),
    ],
)
def test_a_server_without_a_common_revision_is_an_error(picky_server, results, reason, code):
    server = picky_server(results)
    timeout = 3 if "silence" in results.values() else LONG
    with pytest.raises(MCPConnectionError, match=reason) as failure:
        MCPConnection(server.info(), connection_timeout=timeout).open()
    assert failure.value.code == code
    server.wait_until_gone()


async def test_a_server_that_is_slow_to_discover_and_refuses_the_handshake_is_asked_again(monkeypatch):
    async def send(method: str, _params: Any, _version: str | None) -> dict[str, Any]:
        asked.append(method)
        if len(asked) == 1:
            await asyncio.Event().wait()
        if method == "initialize":
            raise ProtocolError(-32600, "it is not accepted")
        return {"resultType": "complete", **REVISIONS}

    asked: list[str] = []
    monkeypatch.setattr(negotiation, "_DISCOVER_TIMEOUT", 0.01)
    under_way = negotiation.Negotiation(send, client_info={}, capabilities=lambda _: {})
    assert (await under_way.discover_first()).protocol_version == NEWEST
    assert asked == ["server/discover", "initialize", "server/discover"]


@pytest.mark.parametrize(
    "refusal", [LostError("the connection was cut before the answer came"), RefusedError("no", status="403 Forbidden")]
)
async def test_a_server_that_does_not_answer_discover_gets_a_handshake(refusal):
    async def send(method: str, _params: Any, _version: str | None) -> dict[str, Any]:
        if method == "server/discover":
            raise refusal
        return {"protocolVersion": "2025-06-18", "capabilities": {}}

    under_way = negotiation.Negotiation(send, client_info={}, capabilities=lambda _: {})
    assert (await under_way.discover_first()).protocol_version == "2025-06-18"
