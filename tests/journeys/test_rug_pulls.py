# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Agents with a snapshot whose server changes its tools behind their backs: between sessions, and in the middle of one.
"""

import asyncio
from typing import Any

import pytest
from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPRegistry,
    MCPToolset,
    MCPToolSnapshot,
    SnapshotCheck,
    ToolConfig,
)
from haystack_integrations.tools.mcp.errors import MCPDriftError
from tests.servers.rug_pulling_server import build_server, pull
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say
from tests.support.waiting import wait_until

QUESTION = [ChatMessage.from_user("How much is it?")]
OURS = ["add", "note", "pull"]
# Which change, and how it is called in a report.
KINDS = {"description": "description", "schema": "input_schema", "relaxed": "annotations_relaxed"}

every_mode = pytest.mark.parametrize("on_drift", ["error", "quarantine", "warn"])
every_change = pytest.mark.parametrize("change", list(KINDS))
every_way = pytest.mark.parametrize("way", ["run", "run_async"])


@component
class Noticing:
    """
    A scripted chat generator that waits with its second reply until the change was noticed.
    """

    def __init__(self, replies: list[ChatMessage], toolset: MCPToolset) -> None:
        self.script = ScriptedChatGenerator(replies)
        self.toolset = toolset

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        guard = self.toolset._guard
        if len(self.script.turns) == 1:
            wait_until(lambda: guard is not None and guard.latest, "the drift")
        return self.script.run(messages, tools=tools)


@pytest.fixture
def server():
    return build_server()


@pytest.fixture
def pinned(server):
    info = InProcessServerInfo(server)
    with MCPToolset(info) as toolset:
        snapshot = MCPToolSnapshot.capture(toolset)
    toolsets = []

    def make(on_drift="error", **parameters):
        check = SnapshotCheck(parameters.pop("snapshot", snapshot), on_drift=on_drift)
        toolsets.append(MCPToolset(info, snapshot=check, **parameters))
        return toolsets[-1]

    yield make
    for toolset in toolsets:
        toolset.close()


def run(agent: Agent, way: str) -> dict[str, Any]:
    return agent.run(messages=QUESTION) if way == "run" else asyncio.run(agent.run_async(messages=QUESTION))


def results(result: dict[str, Any]) -> list[tuple[bool, str]]:
    return [(each.error, each.result) for message in result["messages"] for each in message.tool_call_results]


def seen(generator: ScriptedChatGenerator) -> list[dict[str, Any]]:
    return [{spec["name"]: spec for spec in turn.tool_specs} for turn in generator.turns]


def use(toolset: MCPToolset, way: str) -> tuple[list[tuple[bool, str]], list[dict[str, Any]]]:
    both = calls(("add", {"a": 1, "b": 2}), ("note", {"text": "n"}))
    generator = ScriptedChatGenerator([both, say("done")])
    return results(run(Agent(chat_generator=generator, tools=toolset), way)), seen(generator)


@every_mode
@every_change
def test_a_rug_that_is_pulled_between_two_sessions(server, pinned, on_drift, change):
    way = "run"
    toolset = pinned(on_drift=on_drift)
    answers, before = use(toolset, way)
    assert answers == [(False, "3"), (False, "n")]
    toolset.close()
    pull(server, change)

    answers, shown = use(toolset, way)
    # The session was closed, so the model is shown what was pinned, and the calls are the first to find out.
    assert shown == before
    is_error = on_drift == "error" or change == "relaxed"
    add, note = answers
    if is_error or on_drift == "quarantine":
        assert add[0]
        assert "'add' (" in add[1]
        assert KINDS[change] in add[1]
    elif change == "description":
        assert add == (False, "3")
    assert note == ((True, note[1]) if is_error else (False, "n"))

    if is_error:
        with pytest.raises(MCPDriftError, match=KINDS[change]):
            use(toolset, way)
        return
    _, [shown, *_] = use(toolset, way)
    assert sorted(shown) == (["note", "pull"] if on_drift == "quarantine" else OURS)
    if on_drift == "warn":
        assert shown["add"] != before[0]["add"]
    assert shown["note"] == before[0]["note"]


@every_mode
@every_change
@every_way
def test_a_rug_that_is_pulled_in_the_middle_of_a_session(pinned, on_drift, change, way):
    toolset = pinned(on_drift=on_drift)
    replies = [
        call("pull", change=change, tell=True),
        calls(("add", {"a": 1, "b": 2}), ("note", {"text": "n"})),
        say("done"),
    ]
    generator = Noticing(replies, toolset)
    _, add, note = results(run(Agent(chat_generator=generator, tools=toolset), way))
    is_error = on_drift == "error" or change == "relaxed"
    if is_error or on_drift == "quarantine":
        assert add[0]
        assert "not those of the snapshot: 'add' (" in add[1]
    elif change == "description":
        assert add == (False, "3")
    assert note == ((True, note[1]) if is_error else (False, "n"))
    # What the model is shown does not change under it.
    assert seen(generator.script)[0] == seen(generator.script)[1] == seen(generator.script)[2]

    if is_error:
        with pytest.raises(MCPDriftError):
            use(toolset, way)
        return
    _, [shown, *_] = use(toolset, way)
    assert sorted(shown) == (["note", "pull"] if on_drift == "quarantine" else OURS)
    assert ("ssh" in shown["add"]["description"]) if (on_drift, change) == ("warn", "description") else True


@every_way
def test_a_tool_that_is_new_is_hidden_and_one_that_is_gone_fails(server, pinned, way):
    toolset = pinned(on_drift="quarantine")
    use(toolset, way)
    toolset.close()
    pull(server, "new")
    pull(server, "gone")
    for _ in range(2):
        answers, shown = use(toolset, way)
        assert [sorted(turn) for turn in shown] == [OURS, OURS]
        assert answers[0] == (False, "3")
        assert answers[1][0]
        assert "'note' (removed)" in answers[1][1]


@every_way
def test_an_alias_of_a_registry_is_guarded_and_does_not_change_under_a_run(server, pinned, way):
    provider = pinned(on_drift="quarantine")
    with MCPRegistry({"sums": provider}, [ToolConfig("all", ["sums"], prefix="always")]) as registry:
        alias = registry.toolset("all")
        member = alias.toolsets["sums"]
        replies = [
            call("sums_pull", change="description", tell=True),
            calls(("sums_add", {"a": 1, "b": 2}), ("sums_note", {"text": "n"})),
            say("done"),
        ]
        generator = Noticing(replies, member)
        _, add, note = results(run(Agent(chat_generator=generator, tools=alias), way))
        assert add[0]
        assert note == (False, "n")
        assert seen(generator.script)[0] == seen(generator.script)[2]
        last = ScriptedChatGenerator([say("done")])
        run(Agent(chat_generator=last, tools=alias), way)
        assert last.turns[0].tool_names == ["sums_note", "sums_pull"]
