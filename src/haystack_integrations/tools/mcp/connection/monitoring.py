# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The status of a connection, and the spans that it records with Haystack's tracing.

There is a span for each tool call, and one for each session that is opened. The tags have the names of
OpenTelemetry's conventions for MCP and generative AI, which are still in development:
https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp. No tag contains an argument or a part of a result.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from haystack.tracing.tracer import Span, tracer

from haystack_integrations.tools.mcp.convert.server_texts import html_rows
from haystack_integrations.tools.mcp.errors import (
    MCPCallPendingError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.executor import is_from_caller
from haystack_integrations.tools.mcp.parameters import short_repr, unchanged_fields

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.negotiation import ServerDetails
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

__all__ = ["MCPConnectionStatus"]

ConnectionState: TypeAlias = Literal["idle", "connecting", "ready", "lost", "closed"]

CircuitState: TypeAlias = Literal["closed", "open", "half-open"]


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPConnectionStatus:
    """
    A snapshot of a connection, for health checks.

    :param state: "idle" (never used), "connecting", "ready", "lost" (the next use reconnects) or "closed".
    :param protocol_version: The negotiated revision of the protocol, e.g. "2026-07-28".
    :param server_name: Name of the server, if it gave one.
    :param server_version: Version of the server, if it gave one.
    :param capabilities: Capabilities of the server, as in the protocol.
    :param extensions: Extensions of the protocol, by identifier: the server's settings as "server" and this client's as
        "client", None for the side that does not offer it. An extension that both offer is in use.
    :param users: How many tools, toolsets and connections share it.
    :param sessions: How many sessions were opened so far.
    :param calls: How many tool calls were made so far.
    :param failed_calls: How many of them failed, a tool's own errors included.
    :param in_flight: How many calls and other requests are in flight. Calls that became tasks are not counted.
    :param last_error: Text of the last error.
    :param circuit: "closed" (calls go to the server), "open" (it failed repeatedly, so calls fail at once for a while)
        or "half-open" (the pause is over, and the next answer shows that the server is back).
    :param retry_in: For how many seconds nothing is sent to the server, because the circuit is open or the server asked
        for a pause (HTTP 429 and 503 with `Retry-After`). None if requests go to it.
    :param waiting: How many calls wait for others to end (`max_in_flight`).
    :param last_error_at: When the last error occurred, in seconds since the epoch.
    """

    state: ConnectionState = "idle"
    protocol_version: str | None = None
    server_name: str | None = None
    server_version: str | None = None
    capabilities: dict[str, Any] | None = None
    extensions: dict[str, dict[str, Any]] | None = None
    users: int = 0
    sessions: int = 0
    calls: int = 0
    failed_calls: int = 0
    in_flight: int = 0
    last_error: str | None = None
    circuit: CircuitState = "closed"
    retry_in: float | None = None
    waiting: int = 0
    last_error_at: float | None = None

    @property
    def is_healthy(self) -> bool:
        """
        Whether a call that is made now would go to the server.

        False while the circuit is open or the server has asked for a pause, and after `close`. An unused connection is
        healthy, and so is one whose session was lost: the next call opens another one, and nothing else would find out
        whether the server is back.
        """
        return self.state != "closed" and self.retry_in is None

    def _repr_html_(self) -> str:
        return self._html("MCPConnectionStatus")

    def _html(self, caption: str) -> str:
        hidden = {*unchanged_fields(self), "state"}
        facts = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in hidden
        }
        rows = [(name.replace("_", " "), str(value)) for name, value in facts.items()]
        return html_rows(("", ""), rows, f"{caption}: {self.state}")


CALL_SPAN = "haystack.mcp.call"
CONNECT_SPAN = "haystack.mcp.connect"

# The network transport, by the kind of server; an in-process server has none.
_NETWORK_TRANSPORTS = {"stdio": "pipe", "streamable-http": "tcp", "sse": "tcp"}


@contextmanager
def traced_call(
    tool_name: str, info: MCPServerInfo, server: str, details: Callable[[], ServerDetails | None]
) -> Iterator[None]:
    """
    Trace a tool call, from its caller's point of view.

    :param tool_name: Name of the tool at the server.
    :param info: How the server is reached.
    :param server: Describes the server, without secrets.
    :param details: Returns the server's details, once the call is over.
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
        raise left_open  # after the span, which OpenTelemetry would otherwise mark as failed


@contextmanager
def traced_connect(info: MCPServerInfo, server: str) -> Iterator[Callable[[ServerDetails], None]]:
    """
    Trace the opening of a session.

    :param info: How the server is reached.
    :param server: Describes the server, without secrets.
    :returns: A context manager; its value is a function that takes the server's details.
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
    if transport := _NETWORK_TRANSPORTS.get(info._transport_name):
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


def outcome_of(error: BaseException) -> str:
    """
    Return what became of a call that failed.

    :param error: The error of the call.
    :returns: "answered", "refused", "did_not_run", "may_have_run", "cancelled", or "failed" for another error.
    """
    match error:
        case asyncio.CancelledError() | KeyboardInterrupt():
            return "cancelled"
        case _ if is_from_caller(error):
            return "cancelled"
        case MCPOutcomeUnknownError():
            return "may_have_run"
        case MCPInvocationError() if error.is_tool_error:
            return "answered"
        case MCPInvocationError(_outcome=str() as known):
            return known
        case MCPInvocationError():
            return "did_not_run" if error.code is None else "refused"
    return "failed"


def _tag_error(span: Span, error: BaseException) -> None:
    code = error.code if isinstance(error, (MCPInvocationError, MCPConnectionError)) else None
    kind = type(error).__name__
    outcome = outcome_of(error)
    if outcome == "answered" and isinstance(error, MCPInvocationError) and error.is_tool_error:
        kind = "tool_error"
    if isinstance(error, TimeoutError):
        kind = "timeout"
    if code is not None:
        kind = str(code)
        span.set_tag("rpc.response.status_code", kind)
    span.set_tags({"mcp.outcome": outcome, "error.type": kind})
