# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a connection reads besides tools, such as prompts, resources and skills, and how long it caches them: as long as
the server allows.
"""

from typing import Any

import pytest
from mcp import types
from mcp.server.lowlevel import Server

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPToolset,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.protocol import mcp_client
from tests.servers.changing_server import NOTE, build_server
from tests.support.foreign_server import definition
from tests.support.processes import SERVERS
from tests.support.rows import rows
from tests.support.skill_server import SkillServer
from tests.support.waiting import wait_until

NAMES = [str(number) for number in range(10)]


class PagedServer:
    """
    A server with ten prompts and ten tools, in pages of three. It records the `_meta` of each request for prompts.
    """

    def __init__(self) -> None:
        self.metas: list[Any] = []
        server = Server(
            "paged",
            version="1.2",
            instructions="Turn the pages.",
            on_list_prompts=self._prompts,
            on_list_tools=self._tools,
        )
        self.info = InProcessServerInfo(server)

    @staticmethod
    def _page(params: Any) -> tuple[list[str], str | None]:
        start = int((params.cursor if params else None) or 0)
        return NAMES[start : start + 3], str(start + 3) if start + 3 < len(NAMES) else None

    async def _prompts(self, _context: Any, params: Any) -> types.ListPromptsResult:
        self.metas.append(dict(params.meta or {}) if params else {})
        names, following = self._page(params)
        return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in names], next_cursor=following)

    async def _tools(self, _context: Any, params: Any) -> types.ListToolsResult:
        names, following = self._page(params)
        return types.ListToolsResult(tools=[definition(name) for name in names], next_cursor=following)


def test_all_pages_of_a_listing_are_requested_with_the_meta_and_a_raw_request_keeps_its_own():
    server = PagedServer()
    with MCPConnection(server.info) as connection:
        prompts = connection.list_prompts(meta={"example.org/who": "me"})
        raw = connection.request("prompts/list", {"cursor": "9", "_meta": {"a/b": 1}}, meta={"c/d": None})
        assert [tool.name for tool in connection.list_tools()] == NAMES
    assert [prompt.name for prompt in prompts] == NAMES
    assert [meta.get("example.org/who") for meta in server.metas] == [*["me"] * 4, None]
    assert [prompt["name"] for prompt in raw["prompts"]] == ["9"]
    assert {"a/b", "c/d"} <= server.metas[-1].keys()


@pytest.mark.parametrize(
    ("name", "limit", "count", "reason"),
    [("MAX_ITEMS", 8, 9, "it has more than 8"), ("_MAX_PAGES", 2, 6, "it has more than 2 pages")],
)
def test_the_first_pages_of_an_endless_listing_are_used(monkeypatch, caplog, name, limit, count, reason):
    monkeypatch.setattr(mcp_client, name, limit)
    with MCPConnection(PagedServer().info) as connection:
        assert [prompt.name for prompt in connection.list_prompts()] == NAMES[:count]
    assert f"does not end as it should: {reason}" in caplog.text


@rows("kind", MCPConnection, MCPToolset)
def test_the_description_of_the_server_is_none_without_a_session(kind):
    user = kind(PagedServer().info)
    with user:
        assert (user.implementation.name, user.implementation.version) == ("paged", "1.2")
        assert "prompts" in user.capabilities
        assert user.instructions == "Turn the pages."
    assert (user.implementation, user.capabilities, user.instructions) == (None, None, None)


AN_HOUR = 3_600_000


class Kept:
    """A server that records its requests."""

    def __init__(self, ttl_ms: int) -> None:
        self.events: list[str] = []
        self.server = build_server(lambda event, **_: self.events.append(event), ttl_ms=ttl_ms)
        self.info = InProcessServerInfo(self.server)

    def asked(self, method: str) -> int:
        return self.events.count(f"@{method}")


def test_cacheable_results_are_requested_once_and_callers_cannot_change_the_cache():
    kept = Kept(AN_HOUR)
    with MCPConnection(kept.info) as connection:
        for listing, method in (
            (connection.list_resources, "resources/list"),
            (connection.list_resource_templates, "resources/templates/list"),
            (connection.list_prompts, "prompts/list"),
        ):
            first = listing()
            listing().clear()
            assert listing() == first
            assert kept.asked(method) == 1
            listing(meta={})  # a request with its own metadata must be sent
            assert kept.asked(method) == 2
        connection.list_resources()[0].name = "changed"
        connection.read_resource(NOTE).contents[0].text = "changed"
        connection.open()[1][0].input_schema.clear()
        assert connection.list_resources()[0].name != "changed"
        assert connection.read_resource(NOTE).contents[0].text == "first"
        assert connection.open()[1][0].input_schema
        assert kept.asked("resources/read") == 1


def test_tools_are_listed_again_by_a_warm_up_only_after_their_time_to_live():
    kept = Kept(AN_HOUR)
    with MCPToolset(kept.info) as toolset:
        wait_until(
            lambda: kept.asked("tools/list") == 2 and not toolset._needs_listing,
            "they are listed once more when listening begins, and taken over",
        )
        for _ in range(3):
            toolset.warm_up()
    assert kept.asked("tools/list") == 2

    expiring = Kept(100)
    with MCPToolset(expiring.info) as toolset:
        expiring.server.remove_tool("withdraw")  # without announcing it
        wait_until(lambda: toolset.warm_up() or "withdraw" not in toolset, "they are listed again")


def test_another_toolset_of_the_session_does_not_get_an_outdated_list():
    kept = Kept(0)
    with MCPToolset(kept.info) as toolset:
        toolset["offer"].invoke(name="extra")
        wait_until(lambda: toolset._unpublished is not None, "the tools are listed again")
        with MCPToolset(kept.info) as other:
            assert "extra" in other
            assert other.connection.status().sessions == 1


def test_a_parameter_that_becomes_a_header_is_sent_as_one_after_a_reconnect(http_server):
    server = http_server(script=SERVERS / "changing_server.py")
    with MCPToolset(StreamableHttpServerInfo(server.url, base_delay=0.05, max_delay=0.2)) as toolset:
        locate = toolset["locate"]
        assert locate.call(region="north").text == "north None"
        server.kill()
        server.command.append("--header")
        server.start()
        assert locate.call(region="north").text == "north north"


async def test_skills_are_listed_without_reading_files_and_read_on_demand(caplog):
    server = SkillServer()
    async with MCPToolset(server.info) as toolset:
        tidy, cook = toolset.list_skills()
        assert [tidy.name, cook.name] == ["tidy", "cook"]
        assert "Left out skill 'skill://broken/SKILL.md'" in caplog.text
        assert server.requests == ["skills/list"] * 2
        assert toolset.load_skill(tidy) == "First the desk.\n"
        assert toolset.read_skill_file(tidy, "desk.md") == "Throw it all away."
        assert server.requests[2:] == ["skill://tidy/SKILL.md", "skill://tidy/desk.md"]
        assert await toolset.list_skills_async() == [tidy, cook]
        assert await toolset.get_skill_async(tidy.uri) == tidy
        assert await toolset.load_skill_async(tidy) == "First the desk.\n"
        assert await toolset.read_skill_file_async(tidy, "desk.md") == "Throw it all away."


def test_an_unknown_skill_is_an_error_and_a_server_without_the_extension_gets_no_request():
    with MCPConnection(SkillServer().info) as connection:
        with pytest.raises(MCPConnectionError, match=r"`get_skill` of .*no such skill") as failed:
            connection.get_skill("skill://nothing/SKILL.md")
        assert failed.value.code == types.INVALID_PARAMS
    server = SkillServer(has_extension=False)
    with MCPConnection(server.info) as connection:
        assert connection.list_skills() == []
        with pytest.raises(MCPConnectionError, match="does not have the extension"):
            connection.get_skill("skill://tidy/SKILL.md")
    assert server.requests == []
