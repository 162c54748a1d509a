# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is kept of results, for how long and for whom, and what a server says has changed.
"""

import asyncio
from typing import Any

import pytest

from haystack_integrations.tools.mcp.protocol import changes
from haystack_integrations.tools.mcp.protocol.changes import (
    CachedResults,
    ServerChange,
    WantedChanges,
    shortest_ttl,
    ttl_ms,
)
from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError
from haystack_integrations.tools.mcp.request_context import Identity, current_identity
from tests.protocol.scripted_client import OLDER, ScriptedClient
from tests.support.rows import rows

AN_HOUR = 3_600_000
READ = "resources/read"


class Server:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.asked = 0

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        return {"number": self.asked, **self.fields}


@rows(
    ("result", "expected"),
    [({}, 0), ({"ttlMs": 1.9}, 1), ({"ttlMs": -1}, 0), ({"ttlMs": "9"}, 0), ({"ttlMs": 10**12}, 24 * AN_HOUR)],
)
def test_the_time_is_what_makes_sense(result, expected):
    assert ttl_ms(result) == expected


@rows(
    ("fields", "is_kept"),
    [
        ({"ttlMs": AN_HOUR}, True),
        ({"ttlMs": 0}, False),
        ({}, False),
        ({"ttlMs": AN_HOUR, "resultType": "input_required"}, False),
        ({"ttlMs": AN_HOUR, "nextCursor": "2"}, False),
    ],
)
async def test_what_the_server_allows_is_kept(fields, is_kept):
    cache, server = CachedResults(), Server(**fields)
    for _ in range(2):
        await cache.fetched(READ, {"uri": "a"}, server)
    assert server.asked == (1 if is_kept else 2)
    await cache.fetched(READ, {"uri": "b"}, server)
    await cache.fetched("resources/list", {}, server)
    assert server.asked == (3 if is_kept else 4)
    cache.clear()
    await cache.fetched(READ, {"uri": "b"}, server)
    assert server.asked == (4 if is_kept else 5)


async def test_it_is_kept_until_its_time_is_over(monkeypatch):
    now = 100.0
    monkeypatch.setattr(changes, "monotonic", lambda: now)
    cache, server = CachedResults(), Server(ttlMs=1_000)
    for now, asked in ((100.0, 1), (100.9, 1), (101.0, 2)):  # noqa: B007 - the clock
        await cache.fetched(READ, {"uri": "a"}, server)
        assert server.asked == asked


@pytest.mark.parametrize(("scope", "asked"), [("private", 3), ("public", 1)])
async def test_private_results_are_for_the_identity_that_read_them(scope, asked):
    cache, server = CachedResults(), Server(ttlMs=AN_HOUR, cacheScope=scope)
    for _ in range(2):
        await cache.fetched(READ, {"uri": "a"}, server)
        for user in ("alice", "bob"):
            token = current_identity.set(Identity(key=user))
            await cache.fetched(READ, {"uri": "a"}, server)
            current_identity.reset(token)
    assert server.asked == asked


async def test_who_asks_anew_replaces_what_was_kept():
    cache, server = CachedResults(), Server(ttlMs=AN_HOUR)
    await cache.fetched(READ, {"uri": "a"}, server)
    assert (await cache.fetched(READ, {"uri": "a"}, server, is_refresh=True))["number"] == 2
    assert (await cache.fetched(READ, {"uri": "a"}, server))["number"] == 2
    server.fields["ttlMs"] = 0
    await cache.fetched(READ, {"uri": "a"}, server, is_refresh=True)
    assert (await cache.fetched(READ, {"uri": "a"}, server))["number"] == 4


async def test_what_changed_is_forgotten_also_while_it_is_fetched():
    cache, server = CachedResults(), Server(ttlMs=AN_HOUR)
    for uri in ("memo://a", "memo://b"):
        await cache.fetched(READ, {"uri": uri}, server)
    cache.drop(READ, "memo://a/part")
    assert (await cache.fetched(READ, {"uri": "memo://b"}, server))["number"] == 2
    assert (await cache.fetched(READ, {"uri": "memo://a"}, server))["number"] == 3

    may_answer = asyncio.Event()

    async def fetch() -> dict[str, Any]:
        await may_answer.wait()
        return await server()

    fetching = asyncio.create_task(cache.fetched("prompts/list", {}, fetch))
    await asyncio.sleep(0)
    cache.drop("prompts/list")
    may_answer.set()
    assert (await fetching)["number"] == 4
    assert (await cache.fetched("prompts/list", {}, server))["number"] == 5


async def test_what_is_over_or_was_not_used_for_the_longest_time_makes_room(monkeypatch):
    now = 100.0
    monkeypatch.setattr(changes, "monotonic", lambda: now)
    monkeypatch.setattr(changes, "_MOST_KEPT", 2)
    cache, server = CachedResults(), Server(ttlMs=AN_HOUR)
    for uri, number in (("a", 1), ("b", 2), ("a", 1), ("c", 3), ("a", 1), ("b", 4)):
        assert (await cache.fetched(READ, {"uri": uri}, server))["number"] == number
    now += 4_000
    await cache.fetched(READ, {"uri": "d"}, server)
    assert len(cache._kept) == 1


async def test_a_client_keeps_results_of_the_newest_revision_only_and_gives_fresh_objects():
    result = {"contents": [{"uri": "memo://a", "text": "x"}], "ttlMs": AN_HOUR}
    client, older = (ScriptedClient(lambda *_: result, version) for version in ("2026-07-28", OLDER))
    for each, requests in ((client, 1), (older, 2)):
        (await each.read_resource("memo://a")).contents.clear()
        assert len((await each.read_resource("memo://a")).contents) == 1
        assert len(each.sent) == requests
    await client.read_resource("memo://a", meta={})
    assert len(client.sent) == 2


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
