# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Listings in pages, and results that do not follow the protocol.
"""

from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPConnectionError
from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError
from tests.protocol.scripted_client import NEWEST, OLDER, ScriptedClient
from tests.support.rows import rows


def page(*names: str, following: Any = None) -> dict[str, Any]:
    listed: dict[str, Any] = {"resources": [{"uri": f"memo://{name}", "name": name} for name in names]}
    return listed if following is None else {**listed, "nextCursor": following}


def paging(pages: dict[str | None, Any]) -> Any:
    def answer(_method: str, params: dict[str, Any]) -> Any:
        found = pages[params.get("cursor")]
        if isinstance(found, Exception):
            raise found
        return found

    return answer


@rows(
    ("version", "pages", "expected", "requests", "said"),
    # The empty string is a cursor in the newest revision …
    (NEWEST, {None: page("a", following=""), "": page("b")}, ["a", "b"], 2, ""),
    # … with which many servers mark the last page.
    (NEWEST, {None: page("a", following=""), "": page("b", following="")}, ["a", "b"], 2, ""),
    (NEWEST, {None: page("a", following=""), "": page("a", following="")}, ["a"], 2, ""),
    (NEWEST, {None: page("a", following=""), "": ProtocolError(-32602, "no such cursor")}, ["a"], 2, ""),
    (OLDER, {None: page("a", following="")}, ["a"], 1, ""),
    (NEWEST, {None: page("a", following="x"), "x": page("b", following="x")}, ["a", "b"], 2, "repeats a cursor"),
    (NEWEST, {None: page("a", following="x"), "x": page("a", following="y")}, ["a"], 2, "repeats a page"),
    (NEWEST, {None: ProtocolError(-32601, "unknown")}, [], 1, ""),
)
async def test_pages_are_read_to_the_end(version, pages, expected, requests, said, caplog):
    caplog.clear()
    client = ScriptedClient(paging(pages), version)
    assert [resource.name for resource in await client.list_resources()] == expected
    assert len(client.sent) == requests
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("haystack_integrations")]
    assert [said in each for each in logged] == ([True] if said else [])


async def test_a_refused_listing_is_not_requested_again():
    client = ScriptedClient(paging({None: ProtocolError(-32602, "not now")}))
    with pytest.raises(ProtocolError, match="not now"):
        await client.list_resources()
    assert len(client.sent) == 1


@rows(
    "result",
    {"contents": "s3cr3t-4711"},
    {"contents": [], "resultType": "task"},
    {"resultType": "input_required"},
)
async def test_an_unreadable_result_is_an_error_that_does_not_quote_it(result):
    says = r"`read_resource` of a server failed: .*answer is not a valid result"
    with pytest.raises(MCPConnectionError, match=says) as raised:
        await ScriptedClient(lambda *_: result).read_resource("memo://a")
    assert "s3cr3t" not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_a_server_without_the_capability_gets_no_request():
    client = ScriptedClient(lambda *_: {}, capabilities={})
    assert [] == await client.list_resources() == await client.list_resource_templates() == await client.list_prompts()
    assert await client.list_skills() == []
    assert client.sent == []
