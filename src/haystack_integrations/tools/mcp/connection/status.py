# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from haystack_integrations.tools.mcp.convert.tables import html_rows
from haystack_integrations.tools.mcp.parameters import short_repr, unchanged_fields

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
    :param extensions: Extensions of the protocol that were offered, by identifier: the settings that the server gave as
        "server" and those of this client as "client", None from who does not have it. What both have was negotiated.
    :param users: How many tools, toolsets and connections share it.
    :param sessions: How many sessions were opened so far.
    :param calls: How many tool calls were made so far.
    :param failed_calls: How many of them failed, a tool's own errors included.
    :param in_flight: How many calls and other requests are in flight. A task that a server made of a call is none.
    :param last_error: Text of the last error.
    :param circuit: "closed" (calls go to the server), "open" (it failed again and again, and is left alone: calls fail
        at once) or "half-open" (one call finds out whether it is back).
    :param retry_in: For how many seconds nothing is sent to the server, because it is left alone or asks for it (HTTP
        429 and 503 with `Retry-After`). None if requests go to it.
    :param waiting: How many calls wait for others to end (`max_in_flight`).
    :param last_error_at: When the last error was, in seconds since the epoch.
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

        False while the server is left alone or asks for it, and after `close`. A connection that was never used is
        healthy, and so is one whose session was lost: the next call opens another one, and nothing else would find out
        whether the server is back.
        """
        return self.state != "closed" and self.retry_in is None

    def _repr_html_(self) -> str:
        return self._html("MCPConnectionStatus")

    def _html(self, caption: str) -> str:
        usual = unchanged_fields(self) - {"state"}
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in usual}
        rows = [(name.replace("_", " "), str(value)) for name, value in facts.items()]
        return html_rows(("", ""), rows, f"{caption}: {'healthy' if self.is_healthy else 'not healthy'}")
