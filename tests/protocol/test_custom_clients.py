# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Custom clients of users, with the three methods that version 2 required.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import anyio
import pytest
from mcp import MCPError as ProtocolError
from mcp import types

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPClient,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPServerInfo,
    MCPTool,
    StdioClient,
)
from haystack_integrations.tools.mcp.protocol.channel import SessionLife
from haystack_integrations.tools.mcp.redaction import Redactor
from tests.support.foreign_server import text_result
from tests.support.rows import rows


class DyingClient(MCPClient):
    """A custom client with only the three methods."""

    connects: ClassVar[int] = 0

    async def connect(self) -> list[types.Tool]:
        DyingClient.connects += 1
        self._calls = 0
        return [types.Tool(name="pay", input_schema={"type": "object"})]

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        self._calls += 1
        if self._calls == 2:
            raise MCPConnectionError("connection lost after sending")
        return text_result("paid").model_dump_json()

    async def aclose(self) -> None:
        pass


@dataclass
class DyingServerInfo(MCPServerInfo):
    client_retries: int = 3

    def create_client(self) -> MCPClient:
        return DyingClient(max_retries=self.client_retries, base_delay=0.01)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_lost_custom_client_is_replaced_with_the_configured_number_of_retries(retries, monkeypatch):
    async def refuse(_: DyingClient) -> list[types.Tool]:
        DyingClient.connects += 1
        raise MCPConnectionError("down")

    async def forget(_: DyingClient) -> None:
        pass

    DyingClient.connects = 0
    with MCPTool("pay", DyingServerInfo(client_retries=retries)) as tool:
        for _ in range(2):
            assert "paid" in str(tool.invoke())
            with pytest.raises(MCPInvocationError, match=r"connection lost after sending\. The tool may have run"):
                tool.invoke()
        monkeypatch.setattr(DyingClient, "connect", refuse)
        with pytest.raises(MCPInvocationError, match="did not run"):
            tool.invoke()
        assert DyingClient.connects == 2 + 1 + retries
        monkeypatch.setattr(DyingClient, "connect", forget)
        with pytest.raises(MCPConnectionError, match="`connect` of DyingClient must return the server's tools"):
            tool.warm_up()


class Session:
    """An object that a custom client may have in place of the SDK's session."""

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    async def call_tool(self, _name: str, _arguments: dict[str, Any], **_more: Any) -> Any:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class SessionClient(MCPClient):
    """A custom client with a session, but without `call_tool`."""

    def __init__(self, outcome: Any = None) -> None:
        super().__init__()
        self.life = SessionLife()
        self.life.opening()
        self.life.opened()
        self.redactor = Redactor(["s3cret-key"])
        self._outcome = outcome

    async def connect(self) -> list[types.Tool]:
        self.session = Session(self._outcome)
        return []


class SpeakingClient(SessionClient):
    """A custom client that answers calls itself."""

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        return await Session(self._outcome).call_tool(tool_name, tool_args)


REFUSED = text_result("not with s3cret-key", is_error=True)


async def test_a_custom_client_reports_what_is_missing_and_shows_no_secret():
    client = SessionClient(RuntimeError("no room for s3cret-key"))
    with pytest.raises(MCPConnectionError, match=r"Not connected to an MCP server: call connect\(\) first"):
        await client.call_tool("pay", {})
    await client.connect()
    with pytest.raises(MCPInvocationError, match=r"^Failed to invoke Tool `pay`: no room for \*\*\*$"):
        await client.call_tool("pay", {"amount": 5})


async def test_a_client_says_that_it_is_not_connected():
    client = StdioClient("python")
    for use in (client.call_tool("pay", {}), client.list_tools()):
        with pytest.raises(MCPConnectionError, match=r"^Not connected to an MCP server: call connect\(\) first"):
            await use


async def test_an_error_of_the_tool_is_redacted_for_every_custom_client():
    client, speaking = SessionClient(REFUSED), SpeakingClient(REFUSED.model_dump_json(by_alias=True))
    await client.connect()
    for each in (client, speaking):
        result = await each.request_tool("pay", {})
        assert (result.is_error, result.content[0].text) == (True, "not with ***")


@rows(
    ("extra", "message"),
    ({"meta": {"a": 1}}, "SpeakingClient cannot send `meta`"),
    ({"continuation": object()}, r"SpeakingClient cannot continue calls\. The tool did not run\."),
)
async def test_features_that_a_custom_client_lacks_are_refused_before_anything_is_sent(extra, message):
    client = SpeakingClient(AssertionError("it was called"))
    with pytest.raises(MCPInvocationError, match=message):
        await client.request_tool("pay", {}, **extra)


@rows(
    ("error", "raised", "is_open"),
    # A broken connection ends the session, and the outcome is unknown.
    (ConnectionResetError("peer is gone"), MCPOutcomeUnknownError, False),
    (anyio.BrokenResourceError(), MCPOutcomeUnknownError, False),
    (ProtocolError(types.CONNECTION_CLOSED, "closed"), MCPOutcomeUnknownError, False),
    # Other errors are passed to the caller.
    (TimeoutError("slow"), TimeoutError, True),
    (ProtocolError(types.INVALID_PARAMS, "wrong"), ProtocolError, True),
)
async def test_an_error_of_a_custom_client_ends_its_session_only_if_its_connection_breaks(error, raised, is_open):
    client = SpeakingClient(error)
    with pytest.raises(raised, match=None if is_open else "The tool may have run"):
        await client.request_tool("pay", {})
    assert client.life.is_open is is_open
    assert is_open or await client.find_reason() == client.life.reason


@rows(
    ("operation", "arguments"),
    ("list_resources", ()),
    ("cancel_task", ("1",)),
    ("listen", (None, None)),
    ("subscribe_resource", ("a://b",)),
)
async def test_the_error_names_the_method_that_a_custom_client_lacks(operation, arguments):
    says = f"`{operation}` of the server failed: its custom client, SessionClient, has no `{operation}`"
    with pytest.raises(MCPConnectionError, match=says):
        await getattr(SessionClient(), operation)(*arguments)


async def test_optional_methods_of_a_custom_client_have_defaults() -> None:
    client = SessionClient()
    assert await client.ping() is False
    assert await client.notify_roots_changed() is False
    assert await client.list_tools() is None
    assert client.listens is False
    assert client.unusable_tools() == {}


async def test_an_error_of_closing_is_logged_without_secrets(caplog):
    def fail() -> None:
        raise OSError("cannot close with s3cret-key")

    client = SessionClient()
    client.exit_stack.callback(fail)
    await client.aclose()
    assert "Error during MCP client cleanup" in caplog.text
    assert "cannot close with ***" in caplog.text
    await client.aclose()  # there is nothing left to close


async def test_a_client_can_be_used_without_a_connection_and_each_connect_opens_a_session():
    client = InProcessServerInfo("tests.servers.inprocess:server").create_client()
    for _ in range(2):
        assert "add" in [tool.name for tool in await client.connect()]
        assert "8" in await client.call_tool("add", {"a": 5, "b": 3})
    await client.aclose()
