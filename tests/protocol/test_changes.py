# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which results are cached, for how long and for whom, and which changes a server announces.
"""

import asyncio
from typing import Any

import pytest

from haystack_integrations.tools.mcp.protocol import changes
from haystack_integrations.tools.mcp.protocol.changes import ServerChange, WantedChanges, shortest_ttl
from haystack_integrations.tools.mcp.request_context import NO_IDENTITY, Identity, current_identity
from tests.protocol.scripted_client import OLDER, ScriptedClient
from tests.support.rows import rows

AN_HOUR = 3_600_000


def result(**fields: Any) -> dict[str, Any]:
    return {"contents": [{"uri": "memo://a", "text": "x"}], **fields}


@rows(
    ("fields", "requests"),
    ({"ttlMs": AN_HOUR}, 1),
    ({"ttlMs": 10**12}, 1),
    ({"ttlMs": 1.9, "cacheScope": 3}, 1),
    ({"ttlMs": 0}, 2),
    ({"ttlMs": -1}, 2),
    ({"ttlMs": "9"}, 2),
    ({"ttlMs": AN_HOUR, "nextCursor": "2"}, 2),
    ({}, 2),
)
async def test_results_are_cached_if_the_server_allows_it_and_returned_as_copies(fields, requests, monkeypatch):
    monkeypatch.setattr(changes, "monotonic", lambda: 100.0)
    client = ScriptedClient(lambda *_: result(**fields))
    for _ in range(2):
        (await client.read_resource("memo://a")).contents.clear()
    assert len(client.sent) == requests
    assert len((await client.read_resource("memo://a", meta={})).contents) == 1
    await client.read_resource("memo://b")
    assert len(client.sent) == requests + 2
    older = ScriptedClient(lambda *_: result(**fields), OLDER)
    for _ in range(2):
        await older.read_resource("memo://a")
    assert len(older.sent) == 2


async def test_results_are_cached_until_they_expire_and_for_a_day_at_most(monkeypatch):
    now = 100.0
    monkeypatch.setattr(changes, "monotonic", lambda: now)
    client = ScriptedClient(lambda _, params: result(ttlMs=1_000 if params["uri"] == "memo://a" else 10**12))
    for now, uri, sent in (  # noqa: B007 - the clock
        (100.0, "memo://a", 1),
        (100.9, "memo://a", 1),
        (101.0, "memo://a", 2),
        (101.0, "memo://day", 3),
        (86_500.0, "memo://day", 3),
        (86_501.0, "memo://day", 4),
    ):
        await client.read_resource(uri)
        assert len(client.sent) == sent


@pytest.mark.parametrize(("scope", "asked"), [("private", 3), ("public", 1)])
async def test_private_results_are_cached_for_the_identity_that_read_them(scope, asked):
    client = ScriptedClient(lambda *_: result(ttlMs=AN_HOUR, cacheScope=scope))
    for user in ("alice", "bob", None) * 2:
        token = current_identity.set(Identity(key=user) if user else NO_IDENTITY)
        await client.read_resource("memo://a")
        current_identity.reset(token)
    assert len(client.sent) == asked


async def test_a_new_request_replaces_the_cached_result():
    answers = [result(ttlMs=AN_HOUR), result(), result()]
    client = ScriptedClient(lambda *_: answers.pop(0))
    await client.read_resource("memo://a")
    await client.read_resource("memo://a", meta={})
    await client.read_resource("memo://a")
    assert answers == []


async def test_changed_results_are_dropped_even_while_they_are_fetched():
    may_answer = asyncio.Event()

    async def answer() -> dict[str, Any]:
        await may_answer.wait()
        return result(ttlMs=AN_HOUR)

    client = ScriptedClient(lambda *_: answer())
    reading = asyncio.create_task(client.read_resource("memo://a"))
    await asyncio.sleep(0)
    for number in (1, 2, 3):
        client._process_change("notifications/resources/updated", {"uri": "memo://a/part"})
        may_answer.set()
        await reading
        await client.read_resource("memo://b")
        await client.read_resource("memo://a")
        # One request was for the other resource, and one for this resource after each change.
        assert len(client.sent) == number + 2


async def test_the_least_recently_used_result_is_dropped_first(monkeypatch):
    monkeypatch.setattr(changes, "_MAX_CACHED_RESULTS", 2)
    client = ScriptedClient(lambda *_: result(ttlMs=AN_HOUR))
    for uri in "abacab":
        await client.read_resource(f"memo://{uri}")
    assert [params["uri"] for _, params in client.sent] == ["memo://a", "memo://b", "memo://c", "memo://b"]


@rows(
    ("method", "params", "changes"),
    ("notifications/prompts/list_changed", {}, [ServerChange("prompts")]),
    ("notifications/resources/list_changed", {}, [ServerChange("resources")]),
    ("notifications/resources/updated", {"uri": 7}, []),
    ("notifications/message", {"level": "info", "data": "x"}, []),
)
def test_notifications_become_changes(method, params, changes):
    client = ScriptedClient(lambda *_: {})
    client._process_change(method, params)
    assert client.changes == changes


@rows(
    ("honored", "expected"),
    ({"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}, (["tools"], ["memo://a"])),
    ({"toolsListChanged": True, "promptsListChanged": False, "resourcesListChanged": None}, (["tools"], [])),
    ({"resourceSubscriptions": "memo://a"}, ([], [])),
    (None, ([], [])),
)
async def test_listening_begins_with_the_accepted_subscriptions_and_lasts_until_the_server_ends_it(honored, expected):
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
    assert client.sent == [("subscriptions/listen", {"notifications": filters})]
    for _ in range(2):
        client._process_change("notifications/subscriptions/acknowledged", {"notifications": honored})
    assert told == [WantedChanges(frozenset(expected[0]), frozenset(expected[1]))]
    assert not listening.done()
    ending.set()
    await listening


@rows(("times", "seconds"), ((9_000, 2_000, 5_000), 2), ((9_000, None, 0, -1), 9), ((None, 0), None), ((), None))
def test_a_list_is_cached_for_the_shortest_time_of_its_pages(times, seconds):
    assert shortest_ttl({} if time is None else {"ttlMs": time} for time in times) == seconds
