# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
from functools import partial
from typing import Any

import pytest
from fastmcp import FastMCP
from haystack.tools import create_tool_from_function
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.session import ServerSession
from mcp.shared import subscriptions

from haystack_integrations.tools.mcp.serving import HaystackProvider, changes, create_mcp_server, http_app
from haystack_integrations.tools.mcp.serving.changes import announcer_of
from tests.support.background import in_thread
from tests.support.reachable import AppThread, reachable
from tests.support.rows import rows

LIMIT = 60.0

OVER_HTTP = pytest.mark.parametrize("over_http", [False, True], ids=["in memory", "HTTP"])


def shout(text: str) -> str:
    """Shout."""
    return text.upper()


def client_of(target: Any, **options: Any) -> Client:
    return Client(target if isinstance(target, str) else target._mcp_server, **options)


async def next_of(events: Any) -> subscriptions.ServerEvent:
    return await asyncio.wait_for(anext(events), LIMIT)


@OVER_HTTP
async def test_clients_that_listen_get_the_changes_that_they_asked_for(over_http: bool) -> None:
    server = create_mcp_server("tea")
    announcer = announcer_of(server)
    async with reachable(server, over_http=over_http) as target, client_of(target) as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_capabilities.tools.list_changed
        assert client.server_capabilities.resources.subscribe
        async with client.listen(prompts_list_changed=True) as events:
            # Change it from a thread without the server's context.
            for listing in ("tools", "prompts"):
                in_thread(announcer.list_changed, listing).result(LIMIT)
            assert await next_of(events) == subscriptions.PromptsListChanged()
        wanted = {"tools_list_changed": True, "resources_list_changed": True}
        async with client.listen(**wanted, resource_subscriptions=["test://one"]) as events:
            server.tool(shout)
            assert await next_of(events) == subscriptions.ToolsListChanged()
            assert [tool.name for tool in (await client.list_tools()).tools] == ["shout"]
            announcer.list_changed("resources")
            assert await next_of(events) == subscriptions.ResourcesListChanged()
            for uri in ("test://other", "test://one"):
                announcer.resource_updated(uri)
            assert await next_of(events) == subscriptions.ResourceUpdated("test://one")


@OVER_HTTP
async def test_clients_of_the_handshake_era_get_changes_in_their_session(over_http: bool) -> None:
    server = create_mcp_server("tea")
    announcer = announcer_of(server)
    told: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        if not isinstance(message, Exception):
            uri = getattr(getattr(message, "params", None), "uri", None)
            await told.put(f"{message.method} {uri}" if uri else message.method)

    async with (
        reachable(server, over_http=over_http) as target,
        client_of(target, mode="legacy", message_handler=note) as client,
    ):
        assert client.server_capabilities.tools.list_changed
        await client.list_tools()
        for listing in ("tools", "prompts", "resources"):
            in_thread(announcer.list_changed, listing).result(LIMIT)
            assert await asyncio.wait_for(told.get(), LIMIT) == f"notifications/{listing}/list_changed"
        await client.subscribe_resource("test://one")
        await client.subscribe_resource("test://two")
        await client.unsubscribe_resource("test://two")
        for uri in ("test://two", "test://one"):
            announcer.resource_updated(uri)
        assert await asyncio.wait_for(told.get(), LIMIT) == "notifications/resources/updated test://one"


@rows("ends", True, False)
async def test_a_client_gets_changes_however_many_sessions_come_and_go(monkeypatch, ends: bool) -> None:
    monkeypatch.setattr(changes, "_MAX_SESSIONS", 3)
    server, told = create_mcp_server("tea"), asyncio.Event()

    async def note(_: Any) -> None:
        told.set()

    with AppThread(http_app(server)) as served:
        url = f"{served.origin}/mcp"
        async with client_of(url, mode="legacy", message_handler=note) as client:
            for _ in range(5):
                async with Client(streamable_http_client(url, terminate_on_close=ends), mode="legacy") as other:
                    await other.list_tools()
                if not ends:  # of the sessions that were lost, those are forgotten that were unused for longest
                    await client.list_tools()
            announcer_of(server).list_changed("tools")
            await asyncio.wait_for(told.wait(), LIMIT)


async def test_changes_do_not_pile_up_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    server, reads, sent = create_mcp_server("tea"), asyncio.Event(), []

    async def send(session: ServerSession) -> None:
        sent.append(session)
        await reads.wait()

    monkeypatch.setattr(ServerSession, "send_tool_list_changed", send)
    async with client_of(server, mode="legacy") as client:
        for _ in range(5):
            announcer_of(server).list_changed("tools")
            await client.list_tools()
        assert len(sent) == 1
        reads.set()


@rows("is_mounted", False, True)
async def test_a_fastmcp_server_announces_its_changes_and_those_of_a_provider_but_not_its_setup(
    is_mounted: bool,
) -> None:
    provider = HaystackProvider(tools=[create_tool_from_function(shout, "first")])
    server: FastMCP[Any] = FastMCP("Other")
    assert announcer_of(server) is announcer_of(server)
    server.add_provider(provider, namespace="tea")
    if is_mounted:
        inner, server = server, FastMCP("Outer")
        server.mount(inner, namespace="tea")
    server.tool(shout)
    async with client_of(server) as client, client.listen(tools_list_changed=True) as events:
        provider.add_tool(create_tool_from_function(shout, "second"))
        assert await next_of(events) == subscriptions.ToolsListChanged()

    told: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        await told.put(message.method)

    async with client_of(server, mode="legacy", message_handler=note) as client:
        await client.list_tools()
        assert told.empty()
        for remove in (partial(provider.remove_tool, "second"), partial(server.local_provider.remove_tool, "shout")):
            remove()
            assert await asyncio.wait_for(told.get(), LIMIT) == "notifications/tools/list_changed"
        server.disable(tags={"nothing"})
        lists = {await asyncio.wait_for(told.get(), LIMIT) for _ in range(3)}
        assert lists == {f"notifications/{listing}/list_changed" for listing in ("tools", "resources", "prompts")}
