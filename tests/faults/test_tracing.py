# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The spans of a connection in OpenTelemetry: their parents, their servers, and no false errors.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from haystack.utils import Secret
from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPToolset,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from tests.support.external import unavailable
from tests.support.handshake_server import HandshakeServer, error_of
from tests.support.kinds import every_kind
from tests.support.processes import PATIENT_SERVER
from tests.support.waiting import wait_until


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """
    Collects the spans of requests; `spans.tracer` creates others.
    """
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    except ImportError:
        unavailable("opentelemetry-sdk is not installed: install the dependency group `test`")
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.tracer = provider.get_tracer("tests")
    # The provider of a process can be set only once.
    monkeypatch.setattr("haystack_integrations.tools.mcp.protocol.channel.trace.get_tracer", lambda *_: exporter.tracer)
    yield exporter
    provider.shutdown()


@every_kind
def test_spans_of_requests_have_their_callers_span_as_parent_and_no_false_errors(spans, peer, kind):
    def call():
        spans.clear()
        with spans.tracer.start_as_current_span("caller") as caller:
            connection.call_tool("add", {"a": 1, "b": 1})
        finished = {span.name: span for span in spans.get_finished_spans() if span.name != "caller"}
        for span in finished.values():
            assert span.parent.span_id == caller.get_span_context().span_id
            assert span.attributes["mcp.server"] == info.describe()
        assert finished["tools/call add"].attributes["mcp.server.name"] == connection.status().server_name
        failed = [name for name, span in finished.items() if not span.status.is_ok or span.events]
        # Over HTTP, `server/discover` is really sent, and a server of an earlier era really refuses it.
        asks_in_vain = kind.transport == "streamable-http" and "legacy" in kind.options
        assert [name for name in failed if not (asks_in_vain and name == "server/discover")] == []
        return list(finished)

    server = peer(kind)
    info = server.reach()
    connection = MCPConnection(info)
    with contextlib.closing(connection):
        requests = call()
        assert requests[-2:] == ["tools/list", "tools/call add"]
        assert kind.transport == "streamable-http" or requests[:-2] == ["initialize"]
        assert call() == ["tools/call add"]
        spans.clear()
        with pytest.raises(MCPConnectionError):
            connection.request("vendor/thing", {"name": "Alice"})  # an argument, not the name of a tool
        assert [span.name for span in spans.get_finished_spans()] == ["vendor/thing"]
        server.restart()
        if kind.notices_the_end:
            wait_until(lambda: not connection.is_ready, "the loss")
            assert call() == requests


def test_the_server_gets_the_trace_context_of_the_caller(spans, patient_stdio_server, http_server):
    stdio, http = patient_stdio_server(), http_server(script=PATIENT_SERVER)
    infos = (stdio.info(), StreamableHttpServerInfo(http.url))
    for info, log in zip(infos, (stdio.log, http.log), strict=True):
        with MCPConnection(info) as connection:
            with spans.tracer.start_as_current_span("caller") as caller:
                connection.call_tool("bake", {"seconds": 0})
        trace = f"-{caller.get_span_context().trace_id:032x}-"
        for request in ("@tools/call", "@tasks/get"):
            [(_, details), *_] = log.events(request)
            assert trace in details["traceparent"]


def test_the_span_of_a_call_names_its_tool_and_fails_with_it_even_without_a_tracer_of_haystack(spans):
    server = MCPServer("bakery")

    @server.tool()
    def bake() -> str:
        raise ToolError("no flour")

    with MCPToolset(InProcessServerInfo(server)) as toolset, pytest.raises(MCPInvocationError):
        toolset["bake"].invoke()
    [span] = [span for span in spans.get_finished_spans() if span.name == "tools/call bake"]
    assert (span.attributes["gen_ai.tool.name"], span.attributes["gen_ai.operation.name"]) == ("bake", "execute_tool")
    assert (span.attributes["error.type"], span.status.is_ok, span.status.description) == ("tool_error", False, None)


TOKEN = "t0ken.of-the_server~42"
ARGUMENT = "Arg-s3ntinel-4711"
HEADER = "header-s3ntinel-0815"


def test_the_span_of_a_refused_request_has_no_secret_that_the_server_quotes(spans):
    quoted = f"no access with {TOKEN}, {ARGUMENT} and {HEADER}"
    info = HandshakeServer(lambda _, message: error_of(message, types.INTERNAL_ERROR, quoted)).info(token=TOKEN)
    bound = {"pay": {"bound_arguments": {"key": Secret.from_token(ARGUMENT)}}}
    with MCPToolset(info, tool_overrides=bound) as toolset:
        spans.clear()
        with mcp_request_context(user="ada", headers={"x-key": HEADER}), pytest.raises(MCPInvocationError):
            toolset["pay"].invoke()
    [span] = [span for span in spans.get_finished_spans() if span.name == "tools/call pay"]
    assert span.status.description == "no access with ***, *** and ***"
    assert not any(secret in span.to_json() for secret in (TOKEN, ARGUMENT, HEADER))
