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
BOTH = calls(("add", {"a": 1, "b": 2}), ("note", {"text": "n"}))

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

    def make(on_drift):
        toolsets.append(MCPToolset(info, snapshot=SnapshotCheck(snapshot, on_drift=on_drift)))
        return toolsets[-1]

    yield make
    for toolset in toolsets:
        toolset.close()


def use(
    toolset: Any, is_async: bool, generator: ScriptedChatGenerator | None = None
) -> tuple[list[tuple[bool, str]], list[dict[str, Any]]]:
    """Whether each call failed and what its result is, and the tools that the model saw in each turn."""
    generator = generator or ScriptedChatGenerator([BOTH, say("done")])
    result = run(Agent(chat_generator=generator, tools=toolset), is_async=is_async)
    seen = [{spec["name"]: spec for spec in turn.tool_specs} for turn in generator.turns]
    return [(each.error, each.result) for each in results_of(result)], seen


@in_both_ways
@pytest.mark.parametrize("on_drift", ["error", "quarantine", "warn"])
def test_a_rug_that_is_pulled_in_the_middle_of_a_session(pinned, on_drift, is_async):
    toolset = pinned(on_drift)
    generator = Noticing([call("pull", change="description", tell=True), BOTH, say("done")], toolset)
    (_, add, note), (before, *later) = use(toolset, is_async, generator)
    if on_drift == "warn":
        assert add == (False, "3")
    else:
        assert add[0]
        assert "not those of the snapshot: 'add' (description" in add[1]
    assert note == ((True, note[1]) if on_drift == "error" else (False, "n"))
    # What the model is shown does not change under it.
    assert later == [before, before]
    # The next run is refused, or has only what is as it was, or has what changed.
    if on_drift == "error":
        with pytest.raises(MCPDriftError, match="description"):
            use(toolset, is_async)
        return
    _, [shown, *_] = use(toolset, is_async)
    assert sorted(shown) == (["note", "pull"] if on_drift == "quarantine" else OURS)
    assert shown["note"] == before["note"]
    if on_drift == "warn":
        assert shown["add"] != before["add"]


@in_both_ways
def test_between_sessions_a_tool_that_is_new_is_hidden_and_one_that_is_gone_fails(server, pinned, is_async):
    toolset = pinned("quarantine")
    use(toolset, is_async)
    toolset.close()
    pull(server, "new")
    pull(server, "gone")
    for _ in range(2):
        answers, shown = use(toolset, is_async)
        # The model is shown what was pinned, and the calls are the first to find out.
        assert [sorted(turn) for turn in shown] == [OURS, OURS]
        assert answers[0] == (False, "3")
        assert answers[1][0]
        assert "'note' (removed)" in answers[1][1]


@in_both_ways
def test_an_alias_of_a_registry_is_guarded_and_does_not_change_under_a_run(pinned, is_async):
    with MCPRegistry({"sums": pinned("quarantine")}, [ToolConfig("all", ["sums"], prefix="always")]) as registry:
        alias = registry.toolset("all")
        replies = [
            call("sums_pull", change="description", tell=True),
            calls(("sums_add", {"a": 1, "b": 2}), ("sums_note", {"text": "n"})),
            say("done"),
        ]
        (_, add, note), shown = use(alias, is_async, Noticing(replies, alias.toolsets["sums"]))
        assert add[0]
        assert note == (False, "n")
        assert shown[0] == shown[2]
        _, [shown] = use(alias, is_async, ScriptedChatGenerator([say("done")]))
        assert [*shown] == ["sums_note", "sums_pull"]
