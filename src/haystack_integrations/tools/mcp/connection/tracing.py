# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What Haystack's tracing records: a span for each call of a tool, and one for each session that is opened.

The tags have the names of OpenTelemetry's conventions for MCP and generative AI, which are still in development:
https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp. None of them has an argument or a part of a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from haystack.tracing.tracer import Span, tracer

from haystack_integrations.tools.mcp.errors import (
    MCPCallPendingError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.base import ServerDetails
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

CALL_SPAN = "haystack.mcp.call"
CONNECT_SPAN = "haystack.mcp.connect"

# How the bytes travel, by the kind of server; nothing travels in process.
_TRANSPORTS = {"stdio": "pipe", "streamable-http": "tcp", "sse": "tcp"}


@contextmanager
def traced_call(
    tool_name: str, info: MCPServerInfo, server: str, details: Callable[[], ServerDetails | None]
) -> Iterator[None]:
    """
    Trace a call of a tool, from its caller's point of view.

    :param tool_name: Name of the tool at the server.
    :param info: How the server is reached.
    :param server: Describes the server, without secrets.
    :param details: Returns what the server said of itself, once the call is over.
    :returns: A context manager.
    """
    tags = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool_name,
        **_server_tags(info, server),
    }
    left_open: MCPCallPendingError | None = None
    with tracer.trace(CALL_SPAN, tags=tags) as span:
        try:
            yield
        except MCPCallPendingError as pending:
            span.set_tag("mcp.outcome", "left_open")
            left_open = pending
        except BaseException as error:
            _tag_error(span, error)
            raise
        else:
            span.set_tag("mcp.outcome", "answered")
        finally:
            _tag_details(span, details())
    if left_open is not None:
        raise left_open  # not within the span, which OpenTelemetry would take for failed


@contextmanager
def traced_connect(info: MCPServerInfo, server: str) -> Iterator[Callable[[ServerDetails], None]]:
    """
    Trace the opening of a session.

    :param info: How the server is reached.
    :param server: Describes the server, without secrets.
    :returns: A context manager with a function that takes what the server said of itself.
    """
    with tracer.trace(CONNECT_SPAN, tags=_server_tags(info, server)) as span:
        try:
            yield lambda details: _tag_details(span, details)
        except BaseException as error:
            _tag_error(span, error)
            raise
        else:
            span.set_tag("mcp.outcome", "connected")


def _server_tags(info: MCPServerInfo, server: str) -> dict[str, Any]:
    tags: dict[str, Any] = {"mcp.server": server}
    if transport := _TRANSPORTS.get(info._transport_name):
        tags["network.transport"] = transport
    url = getattr(info, "url", None)
    if isinstance(url, str):
        parts = urlsplit(url)
        tags["server.address"] = parts.hostname or ""
        tags["server.port"] = parts.port or (443 if parts.scheme == "https" else 80)
    return tags


def _tag_details(span: Span, details: ServerDetails | None) -> None:
    if details is None:
        return
    tags = {
        "mcp.protocol.version": details.protocol_version,
        "mcp.server.name": details.name,
        "mcp.server.version": details.version,
    }
    span.set_tags({key: value for key, value in tags.items() if value})


def _tag_error(span: Span, error: BaseException) -> None:
    code = error.code if isinstance(error, (MCPInvocationError, MCPConnectionError)) else None
    kind = type(error).__name__
    match error:
        case asyncio.CancelledError() | KeyboardInterrupt():
            outcome = "cancelled"
        case MCPOutcomeUnknownError():
            outcome = "may_have_run"
        case MCPInvocationError() if error.is_tool_error:
            outcome, kind = "answered", "tool_error"
        case MCPInvocationError(_outcome=str() as known):
            outcome = known
        case MCPInvocationError() if code is not None:
            outcome = "refused"
        case MCPInvocationError():
            outcome = "did_not_run"
        case _:
            outcome = "failed"
    if isinstance(error, TimeoutError):
        kind = "timeout"
    if code is not None:
        kind = str(code)
        span.set_tag("rpc.response.status_code", kind)
    span.set_tags({"mcp.outcome": outcome, "error.type": kind})
