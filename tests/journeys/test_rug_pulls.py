# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Agents with a snapshot whose server changes its tools behind their backs: between sessions, and in the middle of one.
"""

from typing import Any

import pytest
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
from tests.support.executors import results_of, run
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say
from tests.support.waiting import wait_until

OURS = ["add", "note", "pull"]
# Which change, and how it is called in a report.
KINDS = {"description": "description", "schema": "input_schema", "relaxed": "annotations_relaxed"}

every_mode = pytest.mark.parametrize("on_drift", ["error", "quarantine", "warn"])
every_change = pytest.mark.parametrize("change", list(KINDS))
in_both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["run", "run_async"])


class Noticing(ScriptedChatGenerator):
    """
    Waits with its second reply until the change was noticed.
    """

    def __init__(self, replies: list[ChatMessage], toolset: MCPToolset) -> None:
        super().__init__(replies)
        self.toolset = toolset

    def _next(self, messages: list[ChatMessage], tools: Any) -> ChatMessage:
        guard = self.toolset._guard
        if len(self.turns) == 1:
            wait_until(lambda: guard is not None and guard.latest, "the drift")
        return super()._next(messages, tools)


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


def results(agent: Agent, is_async: bool) -> list[tuple[bool, str]]:
    return [(each.error, each.result) for each in results_of(run(agent, is_async=is_async))]


def seen(generator: ScriptedChatGenerator) -> list[dict[str, Any]]:
    return [{spec["name"]: spec for spec in turn.tool_specs} for turn in generator.turns]


def use(toolset: MCPToolset, is_async: bool = False) -> tuple[list[tuple[bool, str]], list[dict[str, Any]]]:
    both = calls(("add", {"a": 1, "b": 2}), ("note", {"text": "n"}))
    generator = ScriptedChatGenerator([both, say("done")])
    return results(Agent(chat_generator=generator, tools=toolset), is_async), seen(generator)


def assert_guarded(toolset, on_drift, change, before, is_async=False) -> None:
    """
    A run after the change is refused, or has only what is as it was, or has what changed.
    """
    if on_drift == "error" or change == "relaxed":
        with pytest.raises(MCPDriftError, match=KINDS[change]):
            use(toolset, is_async)
        return
    _, [shown, *_] = use(toolset, is_async)
    assert sorted(shown) == (["note", "pull"] if on_drift == "quarantine" else OURS)
    assert shown["note"] == before["note"]
    if on_drift == "warn":
        assert shown["add"] != before["add"]


def assert_answered(add, note, on_drift, change) -> None:
    is_error = on_drift == "error" or change == "relaxed"
    if is_error or on_drift == "quarantine":
        assert add[0]
        assert f"not those of the snapshot: 'add' ({KINDS[change]}" in add[1]
    elif change == "description":
        assert add == (False, "3")
    assert note == ((True, note[1]) if is_error else (False, "n"))


@every_mode
@every_change
def test_a_rug_that_is_pulled_between_two_sessions(server, pinned, on_drift, change):
    toolset = pinned(on_drift=on_drift)
    answers, before = use(toolset)
    assert answers == [(False, "3"), (False, "n")]
    toolset.close()
    pull(server, change)
    answers, shown = use(toolset)
    # The session was closed, so the model is shown what was pinned, and the calls are the first to find out.
    assert shown == before
    assert_answered(*answers, on_drift, change)
    assert_guarded(toolset, on_drift, change, before[0])


@every_mode
@every_change
@in_both_ways
def test_a_rug_that_is_pulled_in_the_middle_of_a_session(pinned, on_drift, change, is_async):
    toolset = pinned(on_drift=on_drift)
    both = calls(("add", {"a": 1, "b": 2}), ("note", {"text": "n"}))
    generator = Noticing([call("pull", change=change, tell=True), both, say("done")], toolset)
    _, *answers = results(Agent(chat_generator=generator, tools=toolset), is_async)
    assert_answered(*answers, on_drift, change)
    # What the model is shown does not change under it.
    before, *later = seen(generator)
    assert later == [before, before]
    assert_guarded(toolset, on_drift, change, before, is_async)


@in_both_ways
def test_a_tool_that_is_new_is_hidden_and_one_that_is_gone_fails(server, pinned, is_async):
    toolset = pinned(on_drift="quarantine")
    use(toolset, is_async)
    toolset.close()
    pull(server, "new")
    pull(server, "gone")
    for _ in range(2):
        answers, shown = use(toolset, is_async)
        assert [sorted(turn) for turn in shown] == [OURS, OURS]
        assert answers[0] == (False, "3")
        assert answers[1][0]
        assert "'note' (removed)" in answers[1][1]


@in_both_ways
def test_an_alias_of_a_registry_is_guarded_and_does_not_change_under_a_run(server, pinned, is_async):
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
        _, add, note = results(Agent(chat_generator=generator, tools=alias), is_async)
        assert add[0]
        assert note == (False, "n")
        assert seen(generator)[0] == seen(generator)[2]
        last = ScriptedChatGenerator([say("done")])
        run(Agent(chat_generator=last, tools=alias), is_async=is_async)
        assert last.turns[0].tool_names == ["sums_note", "sums_pull"]
