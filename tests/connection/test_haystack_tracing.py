# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The spans of calls and sessions in Haystack's tracing.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import MCPError as ProtocolError
from mcp import types

from haystack_integrations.tools.mcp import (
    CallOptions,
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPHandlers,
    MCPInvocationError,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPCallPendingError
from haystack_integrations.tools.mcp.handlers import answer_later
from tests.support.executors import RecordingTracer, recorded_traces
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.waiting import wait_until_async

SECRET = "s3ntinel-in-a-span"


@pytest.fixture
def tracer() -> Iterator[RecordingTracer]:
    with recorded_traces(content=False) as recording:
        yield recording


async def test_each_call_and_each_session_has_a_span_with_the_server_and_the_outcome(tracer):
    server = ForeignServer(definition("add"))
    of_server = {
        "mcp.server": "in-process server 'foreign'",
        "mcp.server.name": "foreign",
        "mcp.protocol.version": "2026-07-28",
    }
    of_call = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}
    refused = {"mcp.outcome": "refused", "error.type": "-32602", "rpc.response.status_code": "-32602"}
    async with MCPConnection(server.info) as connection:
        assert tracer.take() == [("haystack.mcp.connect", {**of_server, "mcp.outcome": "connected"})]
        connection.call_tool("add", {"token": SECRET})
        for answer, outcome in (
            (text_result("yes"), {"mcp.outcome": "answered"}),
            (text_result(f"no {SECRET}", is_error=True), {"mcp.outcome": "answered", "error.type": "tool_error"}),
            (ProtocolError(types.INVALID_PARAMS, "no"), refused),
        ):
            server.answer = answer
            with contextlib.suppress(MCPInvocationError):
                await connection.call_tool_async("add", {"token": SECRET}, secrets=[SECRET])
            assert tracer.take()[-1] == ("haystack.mcp.call", {**of_call, **of_server, **outcome})
    assert tracer.errors[0] == "Failed to invoke Tool `add`: no ***"


def test_pending_lost_and_unreachable_calls_have_different_outcomes(tracer, patient_stdio_server):
    def outcomes() -> list[tuple[str, Any, Any]]:
        return [(name, tags.get("mcp.outcome"), tags.get("error.type")) for name, tags in tracer.take()]

    handlers, options = MCPHandlers(elicitation=answer_later), CallOptions(task_timeout=0.1)
    with MCPConnection(patient_stdio_server().info(), handlers=handlers, call_options=options) as connection:
        [(_, tags)] = tracer.take()
        assert tags["network.transport"] == "pipe"
        connection.begin_call("order", {"drink": "tea"})
        with pytest.raises(MCPCallPendingError):
            connection.call_tool("order", {"drink": "tea"})
        assert outcomes() == [("haystack.mcp.call", "left_open", None)] * 2
        assert tracer.errors == []
        with pytest.raises(TimeoutError):
            connection.call_tool("bake", {"seconds": 60})
        assert outcomes() == [("haystack.mcp.call", "may_have_run", "timeout")]
    with pytest.raises(MCPConnectionError):
        MCPConnection(StreamableHttpServerInfo(f"http://user:{SECRET}@127.0.0.1:9/mcp")).open()
    [(name, tags)] = tracer.take()
    assert (name, tags["mcp.outcome"], tags["error.type"]) == ("haystack.mcp.connect", "failed", "MCPConnectionError")
    assert (tags["server.address"], tags["server.port"], tags["network.transport"]) == ("127.0.0.1", 9, "tcp")
    assert SECRET not in str(tags)
    with pytest.raises(MCPInvocationError):
        MCPConnection(StdioServerInfo("no-such-command")).call_tool("add")
    assert outcomes() == [
        ("haystack.mcp.call", "did_not_run", "MCPInvocationError"),
        ("haystack.mcp.connect", "failed", "MCPConnectionError"),
    ]


async def test_the_span_of_an_abandoned_call_ends(tracer):
    async with MCPConnection(InProcessServerInfo("tests.servers.inprocess:server")) as connection:
        tracer.take()
        calling = asyncio.ensure_future(connection.call_tool_async("sleep", {"seconds": 60}))
        await wait_until_async(lambda: connection.status().in_flight, "the call")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    # The session of an earlier test may be reopened meanwhile.
    [tags] = [tags for name, tags in tracer.take() if name == "haystack.mcp.call"]
    assert (tags["mcp.outcome"], tags["error.type"]) == ("cancelled", "CancelledError")
