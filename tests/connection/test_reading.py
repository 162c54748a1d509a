# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a connection reads of a server beside its tools, with servers in process.
"""

from typing import Any

import pytest
from mcp import types
from mcp.server.lowlevel import Server

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPToolset,
)
from haystack_integrations.tools.mcp.protocol import mcp_client
from tests.support.rows import rows


class PagedServer:
    """
    A server with ten prompts, in pages of three; it notes the `_meta` of each request.
    """

    def __init__(self) -> None:
        self.metas: list[Any] = []
        server = Server("paged", version="1.2", instructions="Turn the pages.", on_list_prompts=self._prompts)
        self.info = InProcessServerInfo(server)

    async def _prompts(self, _context: Any, params: Any) -> types.ListPromptsResult:
        self.metas.append(dict(params.meta or {}) if params else {})
        start = int((params.cursor if params else None) or 0)
        prompts = [types.Prompt(name=str(number)) for number in range(start, min(start + 3, 10))]
        return types.ListPromptsResult(prompts=prompts, next_cursor=str(start + 3) if start + 3 < 10 else None)


def test_a_listing_in_pages_is_complete_and_all_its_requests_carry_the_meta():
    server = PagedServer()
    with MCPConnection(server.info) as connection:
        prompts = connection.list_prompts(meta={"example.org/who": "me"})
    assert [prompt.name for prompt in prompts] == [str(number) for number in range(10)]
    assert [meta["example.org/who"] for meta in server.metas] == ["me"] * 4


@pytest.mark.parametrize(
    ("name", "limit", "count", "reason"),
    [("MAX_ITEMS", 8, 9, "it has more than 8"), ("_MAX_PAGES", 2, 6, "it has more than 2 pages")],
)
def test_of_a_listing_without_an_end_what_came_is_used(monkeypatch, caplog, name, limit, count, reason):
    monkeypatch.setattr(mcp_client, name, limit)
    with MCPConnection(PagedServer().info) as connection:
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
