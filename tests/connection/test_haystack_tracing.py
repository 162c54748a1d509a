# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What Haystack's tracing is told of calls and of sessions.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from haystack import tracing
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
from tests.support.foreign_server import ForeignServer, definition, text_result

SECRET = "s3ntinel-in-a-span"


class Tracer(tracing.Tracer):
    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Any]]] = []
        # The exceptions that left a span, which OpenTelemetry records.
        self.recorded: list[str] = []

    @contextlib.contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: tracing.Span | None = None
    ) -> Iterator[Any]:
        noted = dict(tags or {})
        self.spans.append((operation_name, noted))
        span: Any = SimpleNamespace(set_tag=noted.__setitem__, set_tags=noted.update)
        try:
            yield span
        except Exception as error:
            self.recorded.append(str(error))
            raise

    def current_span(self) -> tracing.Span | None:
        return None

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        spans, self.spans = self.spans, []
        return spans


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    recording = Tracer()
    tracing.enable_tracing(recording)
    yield recording
    tracing.disable_tracing()


async def test_each_call_and_each_session_has_a_span_with_the_server_and_the_outcome(tracer: Tracer) -> None:
    server = ForeignServer(definition("add"))
    of_server = {
        "mcp.server": "in-process server 'foreign'",
        "mcp.server.name": "foreign",
        "mcp.protocol.version": "2026-07-28",
    }
    of_call = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        **of_server,
    }
    async with MCPConnection(server.info) as connection:
        assert tracer.take() == [("haystack.mcp.connect", {**of_server, "mcp.outcome": "connected"})]
        connection.call_tool("add", {"token": SECRET})
        await connection.call_tool_async("add", {"token": SECRET})
        assert tracer.take() == [("haystack.mcp.call", {**of_call, "mcp.outcome": "answered"})] * 2
        for answer, told in (
            (text_result("no", is_error=True), {"mcp.outcome": "answered", "error.type": "tool_error"}),
            (
                ProtocolError(types.INVALID_PARAMS, "no"),
                {"mcp.outcome": "refused", "error.type": "-32602", "rpc.response.status_code": "-32602"},
            ),
        ):
            server.answer = answer
            with pytest.raises(MCPInvocationError):
                await connection.call_tool_async("add", {"token": SECRET})
            assert tracer.take() == [("haystack.mcp.call", {**of_call, **told})]


def test_what_is_left_open_lost_and_not_reached_is_told_apart(tracer: Tracer, patient_stdio_server: Any) -> None:
    def outcomes() -> list[tuple[str, Any, Any]]:
        return [(name, tags.get("mcp.outcome"), tags.get("error.type")) for name, tags in tracer.take()]

    handlers, options = MCPHandlers(elicitation=answer_later), CallOptions(task_timeout=0.1)
    with MCPConnection(patient_stdio_server().info(), handlers=handlers, call_options=options) as connection:
        [(_, tags)] = tracer.take()
        assert tags["network.transport"] == "pipe"
        connection.begin_call("order", {"drink": "tea"})
        assert outcomes() == [("haystack.mcp.call", "left_open", None)]
        with pytest.raises(MCPCallPendingError):
            connection.call_tool("order", {"drink": "tea"})
        assert tracer.recorded == []
        tracer.take()
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


async def test_a_call_that_is_given_up_ends_its_span(tracer: Tracer) -> None:
    async with MCPConnection(InProcessServerInfo("tests.servers.inprocess:server")) as connection:
        tracer.take()
        calling = asyncio.ensure_future(connection.call_tool_async("sleep", {"seconds": 60}))
        while not connection.status().in_flight:
            await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    # A session that an earlier test has left behind may be opened again meanwhile.
    [tags] = [tags for name, tags in tracer.take() if name == "haystack.mcp.call"]
    assert (tags["mcp.outcome"], tags["error.type"]) == ("cancelled", "CancelledError")


def test_an_error_that_leaves_a_span_is_redacted(tracer: Tracer) -> None:
    server = ForeignServer(definition("add"))
    server.answer = text_result(f"no {SECRET} here", is_error=True)
    with MCPConnection(server.info) as connection, pytest.raises(MCPInvocationError):
        connection.call_tool("add", {"token": SECRET}, secrets=[SECRET])
    assert tracer.recorded == ["Failed to invoke Tool `add`: no *** here"]
