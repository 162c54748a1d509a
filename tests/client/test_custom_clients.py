# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Clients that users write themselves, with the three methods that version 2 asked for.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from mcp import types

from haystack_integrations.tools.mcp import (
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPHandlers,
    MCPInvocationError,
    MCPServerInfo,
    MCPTool,
)


class DyingClient(MCPClient):
    """A custom client, with just the three methods."""

    connects: ClassVar[int] = 0

    async def connect(self) -> list[types.Tool]:
        DyingClient.connects += 1
        self._calls = 0
        return [types.Tool(name="pay", input_schema={"type": "object"})]

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        self._calls += 1
        if self._calls == 2:
            msg = "connection lost after sending"
            raise MCPConnectionError(msg)
        return types.CallToolResult(content=[types.TextContent(type="text", text="paid")]).model_dump_json()

    async def aclose(self) -> None:
        pass


@dataclass
class DyingServerInfo(MCPServerInfo):
    client_retries: int = 3

    def create_client(self) -> MCPClient:
        return DyingClient(max_retries=self.client_retries, base_delay=0.01)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_custom_client_says_how_often_to_reconnect(retries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    DyingClient.connects = 0
    with MCPTool("pay", DyingServerInfo(client_retries=retries)) as tool:
        tool.invoke()
        with pytest.raises(MCPInvocationError, match="may have run"):
            tool.invoke()

        async def refuse(_: DyingClient) -> list[types.Tool]:
            DyingClient.connects += 1
            msg = "down"
            raise MCPConnectionError(msg)

        monkeypatch.setattr(DyingClient, "connect", refuse)
        with pytest.raises(MCPInvocationError, match="did not run"):
            tool.invoke()
    assert DyingClient.connects == 1 + 1 + retries


def test_a_custom_client_that_loses_its_connection_is_replaced_and_not_called_unrun() -> None:
    DyingClient.connects = 0
    with MCPTool("pay", DyingServerInfo()) as tool:
        tool.invoke()
        with pytest.raises(MCPInvocationError, match=r"connection lost after sending\. The tool may have run"):
            tool.invoke()
        assert "paid" in str(tool.invoke())
    assert DyingClient.connects == 2


def test_a_custom_client_that_uses_no_handlers_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with MCPConnection(DyingServerInfo(), handlers=MCPHandlers(roots=["/srv"])):
        assert "does not use handlers" in caplog.text
