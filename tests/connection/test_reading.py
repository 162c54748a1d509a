# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a connection reads of a server beside its tools, with servers in process.
"""

from typing import Any

import pytest
from mcp import types
from mcp.server import MCPServer
from mcp.server.lowlevel import Server

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPServerInfo,
    MCPToolset,
)
from haystack_integrations.tools.mcp.protocol import mcp_client
from tests.support.rows import rows


class PagedServer:
    """
    A server with ten of everything, in pages of three; it notes the `_meta` of each request.
    """

    def __init__(self, *, repeats: str = "none") -> None:
        self.repeats = repeats
        self.metas: list[Any] = []
        server = Server(
            "paged",
            version="1.2",
            instructions="Turn the pages.",
            on_list_resources=self._resources,
            on_list_resource_templates=self._templates,
            on_list_prompts=self._prompts,
        )
        self.info = InProcessServerInfo(server)

    def _page(self, params: Any) -> tuple[range, str | None]:
        self.metas.append(dict(params.meta or {}) if params else {})
        start = int((params.cursor if params else None) or 0)
        if self.repeats == "new cursors":
            return range(3), str(start + 3)
        end = start if self.repeats == "cursor" else start + 3
        following = str(end) if end < 10 else "3" if self.repeats == "circle" else None
        return range(start, min(start + 3, 10)), following

    async def _resources(self, _context: Any, params: Any) -> types.ListResourcesResult:
        page, following = self._page(params)
        resources = [types.Resource(uri=f"memo://{number}", name=str(number)) for number in page]
        return types.ListResourcesResult(resources=resources, next_cursor=following)

    async def _templates(self, _context: Any, params: Any) -> types.ListResourceTemplatesResult:
        page, following = self._page(params)
        templates = [types.ResourceTemplate(uri_template=f"memo://{number}/{{x}}", name=str(number)) for number in page]
        return types.ListResourceTemplatesResult(resource_templates=templates, next_cursor=following)

    async def _prompts(self, _context: Any, params: Any) -> types.ListPromptsResult:
        page, following = self._page(params)
        prompts = [types.Prompt(name=str(number)) for number in page]
        return types.ListPromptsResult(prompts=prompts, next_cursor=following)


every_listing = pytest.mark.parametrize("listing", ["list_resources", "list_resource_templates", "list_prompts"])


@every_listing
def test_a_listing_in_pages_is_complete_and_all_its_requests_carry_the_meta(listing):
    server = PagedServer()
    with MCPConnection(server.info) as connection:
        things = getattr(connection, listing)(meta={"example.org/who": "me"})
    assert [thing.name for thing in things] == [str(number) for number in range(10)]
    assert [meta["example.org/who"] for meta in server.metas] == ["me"] * 4


@pytest.mark.parametrize(
    ("way", "limits", "count", "reason"),
    [
        ("cursor", {}, 3, "it repeats a page"),
        ("new cursors", {}, 3, "it repeats a page"),
        ("circle", {}, 10, "it repeats a cursor"),
        ("none", {"MAX_ITEMS": 8}, 9, "it has more than 8"),
        ("none", {"_MAX_PAGES": 2}, 6, "it has more than 2 pages"),
    ],
)
def test_of_a_listing_without_an_end_what_came_is_used(monkeypatch, caplog, way, limits, count, reason):
    for name, limit in limits.items():
        monkeypatch.setattr(mcp_client, name, limit)
    with MCPConnection(PagedServer(repeats=way).info) as connection:
        assert [prompt.name for prompt in connection.list_prompts()] == [str(number) for number in range(count)]
    assert f"does not end as it should: {reason}" in caplog.text


@rows("kind", [MCPConnection, MCPToolset])
def test_what_the_server_says_of_itself_is_none_while_there_is_no_session(kind):
    user = kind(PagedServer().info)
    assert (user.implementation, user.capabilities, user.instructions) == (None, None, None)
    with user:
        assert (user.implementation.name, user.implementation.version) == ("paged", "1.2")
        assert "prompts" in user.capabilities
        assert user.instructions == "Turn the pages."
    assert (user.implementation, user.capabilities, user.instructions) == (None, None, None)


def test_the_meta_of_a_raw_request_joins_what_its_parameters_have():
    server = PagedServer()
    with MCPConnection(server.info) as connection:
        raw = connection.request("prompts/list", {"cursor": "9", "_meta": {"a/b": 1}}, meta={"c/d": None})
    assert [prompt["name"] for prompt in raw["prompts"]] == ["9"]
    assert server.metas[0]["a/b"] == 1
    assert "c/d" in server.metas[0]


def test_a_tool_reads_from_its_own_server_while_it_is_called():
    server = MCPServer("mirror")

    @server.resource("memo://hello")
    def hello() -> str:
        return "hello"

    @server.tool()
    def reflect() -> str:
        return connection.read_resource("memo://hello").contents[0].text

    with MCPConnection(InProcessServerInfo(server), invocation_timeout=60) as connection:
        assert connection.call_tool("reflect").content[0].text == "hello"


@rows(
    ("method", "arguments", "message"),
    [
        ("read_resource", (5,), "`resource` must be a URI or a Resource, got int"),
        ("get_prompt", ("greet", {"times": 5}), "`arguments` must be a dictionary of strings"),
        ("complete", ("greet", {"name": "name", "value": "A"}), "`ref` must be a Prompt, a ResourceTemplate"),
    ],
)
def test_parameters_of_a_wrong_type_are_refused_before_anything_is_sent(method, arguments, message):
    connection = MCPConnection(PagedServer().info)
    with pytest.raises(ValueError, match=message):
        getattr(connection, method)(*arguments)
    assert connection.status().state == "idle"


class ToolsOnlyClient(MCPClient):
    async def connect(self) -> list[types.Tool]:
        return []


class ToolsOnlyServerInfo(MCPServerInfo):
    def create_client(self) -> MCPClient:
        return ToolsOnlyClient()


@rows(
    "read",
    [
        lambda connection: connection.list_resources(),
        lambda connection: connection.list_resource_templates(),
        lambda connection: connection.read_resource("a://b"),
        lambda connection: connection.list_prompts(),
        lambda connection: connection.get_prompt("a"),
        lambda connection: connection.complete(types.Prompt(name="a"), {"name": "b", "value": "c"}),
        lambda connection: connection.request("a/b"),
        lambda connection: connection.list_skills(),
        lambda connection: connection.get_skill("a://b/SKILL.md"),
    ],
)
def test_a_custom_client_that_cannot_read_is_named_in_the_error(read):
    with (
        MCPConnection(ToolsOnlyServerInfo()) as connection,
        pytest.raises(MCPConnectionError, match="its custom client, ToolsOnlyClient, has no `"),
    ):
        read(connection)
