# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server says has changed.
"""

import asyncio
from typing import Any

import pytest

from haystack_integrations.tools.mcp.protocol.changes import ServerChange, WantedChanges, shortest_ttl
from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError
from tests.protocol.scripted_client import ScriptedClient
from tests.support.rows import rows

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
STAMP = {"_meta": {"io.modelcontextprotocol/subscriptionId": 0}}


@rows(
    ("method", "params", "changes"),
    [
        ("notifications/tools/list_changed", {}, [ServerChange("tools")]),
        ("notifications/prompts/list_changed", STAMP, [ServerChange("prompts")]),
        ("notifications/resources/list_changed", {}, [ServerChange("resources")]),
        ("notifications/resources/updated", {"uri": "memo://a", **STAMP}, [ServerChange("resource", "memo://a")]),
        ("notifications/resources/updated", {"uri": 7}, []),
        (ACKNOWLEDGED, {"notifications": {}}, []),
        ("notifications/message", {"level": "info", "data": "x"}, []),
    ],
)
def test_notifications_become_changes(method, params, changes):
    client = ScriptedClient(lambda *_: {})
    client._changed(method, params)
    assert client.changes == changes


@rows(
    ("honored", "expected"),
    [
        ({"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}, (["tools"], ["memo://a"])),
        ({"toolsListChanged": True, "promptsListChanged": False, "resourcesListChanged": None}, (["tools"], [])),
        ({"resourceSubscriptions": "memo://a"}, ([], [])),
        (None, ([], [])),
    ],
)
async def test_listening_begins_with_what_the_server_honours_and_lasts_until_it_ends_it(honored, expected):
    ending = asyncio.Event()

    async def stream() -> dict[str, Any]:
        await ending.wait()
        return {}

    client = ScriptedClient(lambda *_: stream())
    told: list[WantedChanges] = []
    wanted = WantedChanges(frozenset(("tools", "prompts")), frozenset(("memo://b", "memo://a")))
    listening = asyncio.create_task(client.listen(wanted, told.append))
    await asyncio.sleep(0)
    filters = {"promptsListChanged": True, "toolsListChanged": True, "resourceSubscriptions": ["memo://a", "memo://b"]}
    assert client.sent == [("subscriptions/listen", {"notifications": filters}, None)]
    for _ in range(2):
        client._changed(ACKNOWLEDGED, {"notifications": honored})
    assert told == [WantedChanges(frozenset(expected[0]), frozenset(expected[1]))]
    assert not listening.done()
    ending.set()
    await listening


async def test_a_refused_stream_is_acknowledged_by_nobody():
    def refuse(*_: Any) -> Any:
        raise ProtocolError(-32601, "no such method")

    client = ScriptedClient(refuse)
    told: list[WantedChanges] = []
    with pytest.raises(ProtocolError):
        await client.listen(WantedChanges(frozenset(["tools"])), told.append)
    client._changed(ACKNOWLEDGED, {"notifications": {"toolsListChanged": True}})
    assert told == []


@rows(
    ("pages", "expected"),
    [
        ([{"ttlMs": 2_000}, {"ttlMs": 500}, {}], 0.5),
        ([{}, {"ttlMs": 0}, {"ttlMs": -1}], None),
    ],
)
def test_the_shortest_time_of_pages_counts(pages, expected):
    assert shortest_ttl(pages) == expected
