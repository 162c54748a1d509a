# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A client whose server is a function.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp import MCPHandlers
from haystack_integrations.tools.mcp.protocol.listed_tools import ListedTools
from haystack_integrations.tools.mcp.protocol.mcp_client import MCPClient
from haystack_integrations.tools.mcp.protocol.negotiation import ServerDetails
from haystack_integrations.tools.mcp.protocol.requests_of_server import ServerRequests
from haystack_integrations.tools.mcp.redaction import Redactor

OLDER, NEWEST = "2025-11-25", "2026-07-28"

T = TypeVar("T")

Answer = Callable[[str, dict[str, Any]], Any]


def server_requests(version: str = NEWEST, **fields: Any) -> ServerRequests:
    requests = ServerRequests(MCPHandlers(**fields), "a server", Redactor())
    requests.opened(version, {}, None)
    return requests


class ScriptedClient(MCPClient):
    """`answer(method, params)` returns a result, or an awaitable of one, or raises."""

    def __init__(
        self, answer: Answer, version: str = NEWEST, capabilities: Mapping[str, Any] | None = None, **handlers: Any
    ) -> None:
        super().__init__()
        offered = {"resources": {}, "prompts": {}} if capabilities is None else capabilities
        self._answer = answer
        self._details = ServerDetails(protocol_version=version, capabilities=dict(offered))
        self._is_modern = version in MODERN_PROTOCOL_VERSIONS
        self._tools = ListedTools(self._describe)
        self.handlers = MCPHandlers(**handlers)
        self._server_requests = server_requests(version, **handlers)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.changes: list[Any] = []
        self.on_change = self.changes.append

    async def connect(self) -> list[types.Tool]:
        return []

    def _describe(self) -> str:
        return "a server"

    async def _request(self, method: str, params: Mapping[str, Any] | None = None, **_: Any) -> dict[str, Any]:
        self.sent.append((method, dict(params or {})))
        answer = self._answer(method, dict(params or {}))
        return await answer if isinstance(answer, Awaitable) else answer

    async def _read(self, operation: str, read: Callable[[], Awaitable[T]]) -> T:
        return await read()
