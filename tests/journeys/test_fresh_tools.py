# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Agents whose server changes its tools while they run: each run goes on with the tools that it began with.
"""

import asyncio
import threading
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    ToolSelection,
)
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.servers.changing_server import build_server
from tests.support.background import in_thread
from tests.support.executors import results_of, run
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say
from tests.support.waiting import LIMIT, wait_until

OWN = ["list_more", "locate", "offer", "withdraw", "write"]


# An Agent of Haystack 2 does not tell its toolsets that a run begins.
needs_spawn = pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no toolset of a run")
in_both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["run", "run_async"])


class Pausing(ScriptedChatGenerator):
    """
    Says when it is asked for a certain time, and waits then.
    """

    def __init__(self, replies: list[ChatMessage], pause_at: int) -> None:
        super().__init__(replies)
        self.pause_at = pause_at
        self.asked, self.go_on = threading.Event(), threading.Event()

    @property
    def shown(self) -> list[list[str]]:
        return [sorted(turn.tool_names) for turn in self.turns]

    def _next(self, messages: list[ChatMessage], tools: Any) -> ChatMessage:
        reply = super()._next(messages, tools)
        if len(self.turns) == self.pause_at:
            self.asked.set()
            assert self.go_on.wait(LIMIT)
        return reply


class Failing(ScriptedChatGenerator):
    """
    Looks at its tools and fails.
    """

    def _next(self, _messages: list[ChatMessage], tools: Any) -> ChatMessage:
        assert list(tools)
        raise RuntimeError("no model today")


@pytest.fixture
def server():
    return build_server()


def results(result: dict[str, Any]) -> list[str]:
    return [each.result for each in results_of(result)]


@pytest.fixture
def toolset(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        yield toolset


@needs_spawn
@in_both_ways
def test_a_run_goes_on_with_the_tools_that_it_began_with_and_the_next_one_sees_the_new_list(toolset, is_async):
    toolset["offer"].invoke(name="changed", description="Old.")
    toolset.refresh()
    held = toolset["changed"]
    first = Pausing([call("changed", text="1"), call("changed", text="2"), call("extra", text="3"), say("done")], 2)
    running = in_thread(run, Agent(chat_generator=first, tools=[toolset] if is_async else toolset), is_async=is_async)
    assert first.asked.wait(LIMIT)

    toolset["offer"].invoke(name="changed", description="New.")
    toolset["offer"].invoke(name="extra")
    wait_until(lambda: toolset.warm_up() or "extra" in toolset, "the tools are listed again")
    assert (toolset["changed"] is held, held.description) == (True, "New.")
    second = ScriptedChatGenerator([call("extra", text="hello"), say("done")])
    other = run(Agent(chat_generator=second, tools=toolset), is_async=is_async)
    assert second.turns[0].tool_names == ["changed", "extra", *OWN]
    assert results(other) == ["extra: hello"]

    first.go_on.set()
    *called, unknown = results(running.result(LIMIT))
    assert first.shown == [["changed", *OWN]] * 4
    assert {turn.tool_specs[0]["description"] for turn in first.turns} == {"Old."}
    assert called == ["changed: 1", "changed: 2"]
    # A tool that the run does not have is an error that the model sees.
    assert "extra" in unknown
    assert "extra: 3" not in unknown


@in_both_ways
def test_between_steps_if_asked_for(server, is_async):
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(update_between_steps=True)) as toolset:
        generator = Pausing([call("write", text="1"), call("extra", text="2"), say("done")], 1)
        agent = Agent(chat_generator=generator, tools=toolset)
        running = in_thread(run, agent, is_async=is_async)
        assert generator.asked.wait(LIMIT)
        toolset["offer"].invoke(name="extra")
        wait_until(lambda: "extra" in toolset, "the toolset has the new tool")
        generator.go_on.set()
        assert results(running.result(LIMIT)) == ["written", "extra: 2"]
        assert generator.shown == [OWN, ["extra", *OWN], ["extra", *OWN]]


@rows("is_async", [False, True])
def test_a_server_that_does_not_say_it_is_asked_at_the_start_of_each_run(is_async):
    server = build_server()
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(cache_tools=False)) as toolset:
        generator = ScriptedChatGenerator([say("one"), say("two")])
        agent = Agent(chat_generator=generator, tools=toolset)
        run(agent, is_async=is_async)
        server.add_tool(lambda: "quiet", name="quiet", description="Nobody said that it is there.")
        if not HAS_HOOKS:
            toolset.warm_up()
        run(agent, is_async=is_async)
        assert [turn.tool_names for turn in generator.turns] == [OWN, sorted([*OWN, "quiet"])]


@rows("is_async", [False, True])
@rows(
    "make",
    [lambda info: MCPTool("quiet", info), lambda info: MCPToolset(info, tool_names=["quiet"])],
    ids=["tool", "toolset"],
)
def test_a_tool_that_others_have_not_seen_is_asked_for_before_it_is_missing(make, is_async):
    server = build_server()
    info = InProcessServerInfo(server)
    with MCPToolset(info):  # which keeps the session open that both share, with the tools of before
        tools = make(info)
        with pytest.raises(MCPToolNotFoundError):
            tools.warm_up()
        server.add_tool(lambda: "quiet", name="quiet", description="Nobody said that it is there.")
        asyncio.run(tools.warm_up_async()) if is_async else tools.warm_up()
        tools.close()


def test_a_run_that_failed_is_over_while_its_error_is_held(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        agent = Agent(chat_generator=Failing([]), tools=toolset)
        with pytest.raises(Exception, match="no model today") as failed:
            run(agent, is_async=False)
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert [tool.name for tool in toolset] == ["extra", *OWN]
        assert failed.tb is not None
