# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from fastmcp import FastMCP
from haystack.tools import Toolset, create_tool_from_function
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.session import ServerSession
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from haystack_integrations.tools.mcp.serving import HaystackProvider, create_mcp_server
from haystack_integrations.tools.mcp.serving.changes import announcer_of
from tests.support.prepared import prepared_python
from tests.support.rows import rows
from tests.support.served import ROOT, SERVED, ServedOverHttp

LIMIT = 60.0

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="module")
def over_http() -> Iterator[ServedOverHttp]:
    with ServedOverHttp() as process:
        yield process


@pytest.fixture(params=["stdio", "http", "in process"])
def connect(request: pytest.FixtureRequest) -> Connect:
    if request.param == "http":
        url = request.getfixturevalue("over_http").url
        return lambda **options: Client(url, **options)

    @asynccontextmanager
    async def over_stdio(**options: Any) -> AsyncIterator[Client]:
        environment = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        parameters = StdioServerParameters(command=prepared_python(), args=[str(SERVED)], env=environment)
        async with Client(stdio_client(parameters), **options) as client:
            yield client

    @asynccontextmanager
    async def in_process(**options: Any) -> AsyncIterator[Client]:
        from tests.servers.served import make_server

        server = make_server()
        announcer_of(server)
        async with Client(server._mcp_server, **options) as client:
            yield client

    return over_stdio if request.param == "stdio" else in_process


def shout(text: str) -> str:
    """Shout."""
    return text.upper()


async def next_of(events: Any) -> ServerEvent:
    return await asyncio.wait_for(anext(events), LIMIT)


class TestStreamsOfChanges:
    """
    What clients of 2026-07-28 ask for with `subscriptions/listen`.
    """

    async def test_what_changes_is_told(self, connect: Connect) -> None:
        async with connect(mode="auto") as client:
            assert client.protocol_version == "2026-07-28"
            assert client.server_capabilities.tools.list_changed
            assert client.server_capabilities.resources.subscribe
            wanted = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
            async with client.listen(**wanted, resource_subscriptions=["test://one"]) as events:
                await client.call_tool("grow", {"name": "grown"})
                assert await next_of(events) == ToolsListChanged()
                assert "grown" in [tool.name for tool in (await client.list_tools()).tools]
                for listing, event in (
                    ("tools", ToolsListChanged()),
                    ("resources", ResourcesListChanged()),
                    ("prompts", PromptsListChanged()),
                ):
                    await client.call_tool("change_elsewhere", {"listing": listing})
                    assert await next_of(events) == event
                await client.call_tool("update", {"uri": "test://other"})
                await client.call_tool("update", {"uri": "test://one"})
                assert await next_of(events) == ResourceUpdated("test://one")

    async def test_only_what_was_asked_for_is_told(self, connect: Connect) -> None:
        async with connect(mode="auto") as client, client.listen(prompts_list_changed=True) as events:
            await client.call_tool("change_elsewhere", {"listing": "tools"})
            await client.call_tool("change_elsewhere", {"listing": "prompts"})
            assert await next_of(events) == PromptsListChanged()

    async def test_a_server_that_stops_ends_the_streams(self) -> None:
        with ServedOverHttp({"grace_period": 20}) as process:
            async with Client(process.url) as client, client.listen(tools_list_changed=True) as events:
                process.signal()
                with pytest.raises(StopAsyncIteration):
                    await next_of(events)
            assert process.wait() == 0
            assert "grace period is over" not in process.errors


class TestNotifications:
    """
    What clients that shake hands get in their session.
    """

    async def test_what_changes_is_told(self, connect: Connect) -> None:
        told: asyncio.Queue[str] = asyncio.Queue()

        async def note(message: Any) -> None:
            if not isinstance(message, Exception):
                uri = getattr(getattr(message, "params", None), "uri", None)
                await told.put(f"{message.method} {uri}" if uri else message.method)

        async with connect(mode="legacy", message_handler=note) as client:
            assert client.server_capabilities.tools.list_changed
            await client.call_tool("grow", {"name": "grown_too"})
            assert await asyncio.wait_for(told.get(), LIMIT) == "notifications/tools/list_changed"
            for listing in ("prompts", "resources"):
                await client.call_tool("change_elsewhere", {"listing": listing})
                assert await asyncio.wait_for(told.get(), LIMIT) == f"notifications/{listing}/list_changed"
            await client.subscribe_resource("test://one")
            await client.subscribe_resource("test://two")
            await client.unsubscribe_resource("test://two")
            await client.call_tool("update", {"uri": "test://two"})
            await client.call_tool("update", {"uri": "test://one"})
            assert await asyncio.wait_for(told.get(), LIMIT) == "notifications/resources/updated test://one"


async def test_nothing_is_piled_up_for_a_client_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server: FastMCP[Any] = FastMCP("One")
    announcer = announcer_of(server)
    reads, sent = asyncio.Event(), []

    async def send(session: ServerSession) -> None:
        sent.append(session)
        await reads.wait()

    monkeypatch.setattr(ServerSession, "send_tool_list_changed", send)
    async with Client(server._mcp_server, mode="legacy") as client:
        for _ in range(50):
            announcer.list_changed("tools")
            await client.list_tools()
        assert len(sent) == 1
        reads.set()
        await client.list_tools()
        announcer.list_changed("tools")
        await client.list_tools()
        assert len(sent) == 2


async def test_a_server_has_one_announcer_and_building_it_tells_nobody() -> None:
    server: FastMCP[Any] = FastMCP("One")
    assert announcer_of(server) is announcer_of(server)

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    told: list[Any] = []

    async def note(message: Any) -> None:
        told.append(message)

    async with Client(server._mcp_server, mode="legacy", message_handler=note) as client:
        await client.list_tools()
        assert told == []
        server.local_provider.remove_tool("add")
        await client.list_tools()
        assert [message.method for message in told] == ["notifications/tools/list_changed"]
        told.clear()
        server.disable(tags={"nothing"})
        await client.list_tools()
        assert {message.method for message in told} == {
            f"notifications/{listing}/list_changed" for listing in ("tools", "resources", "prompts")
        }


async def test_the_provider_of_a_created_server_is_heard_in_a_thread() -> None:
    toolset = Toolset([create_tool_from_function(shout)])
    server = create_mcp_server("Live", tools=[toolset])
    async with Client(server._mcp_server) as client, client.listen(tools_list_changed=True) as events:
        [provider] = [each for each in server.providers if isinstance(each, HaystackProvider)]
        await asyncio.to_thread(provider.sources[0].changed, "tools")
        assert await next_of(events) == ToolsListChanged()


def _with_a_provider(provider: HaystackProvider) -> FastMCP[Any]:
    return FastMCP("Other", providers=[provider])


def _with_a_namespace(provider: HaystackProvider) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("Other")
    server.add_provider(provider, namespace="tea")
    return server


def _with_a_mounted_server(provider: HaystackProvider) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("Other")
    server.mount(_with_a_provider(provider), namespace="tea")
    return server


@rows("serve", [_with_a_provider, _with_a_namespace, _with_a_mounted_server])
async def test_a_server_of_fastmcp_tells_of_changes_of_what_a_provider_gives_it(
    serve: Callable[[HaystackProvider], FastMCP[Any]],
) -> None:
    provider = HaystackProvider(tools=[create_tool_from_function(shout, "first")])
    server = serve(provider)
    async with Client(server._mcp_server) as client, client.listen(tools_list_changed=True) as events:
        provider.add_tool(create_tool_from_function(shout, "second"))
        assert await next_of(events) == ToolsListChanged()

    told: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        await told.put(message.method)

    async with Client(server._mcp_server, mode="legacy", message_handler=note) as client:
        await client.list_tools()
        provider.remove_tool("second")
        assert await asyncio.wait_for(told.get(), LIMIT) == "notifications/tools/list_changed"
