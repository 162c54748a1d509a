# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Agents whose server changes its tools while they run: each run goes on with the tools that it began with.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from haystack import component
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
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say
from tests.support.waiting import LIMIT, wait_until

QUESTION = [ChatMessage.from_user("Do it.")]
OWN = ["list_more", "locate", "offer", "withdraw", "write"]


@component
class Pausing:
    """
    A scripted chat generator that says when it is asked for a certain time, and waits then.
    """

    def __init__(self, replies: list[ChatMessage], pause_at: int) -> None:
        self.script = ScriptedChatGenerator(replies)
        self.pause_at = pause_at
        self.asked, self.go_on = threading.Event(), threading.Event()

    @property
    def shown(self) -> list[list[str]]:
        return [sorted(turn.tool_names) for turn in self.script.turns]

    def _reached(self) -> bool:
        return len(self.script.turns) == self.pause_at

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        replies = self.script.run(messages, tools=tools)
        if self._reached():
            self.asked.set()
            assert self.go_on.wait(LIMIT)
        return replies

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        replies = self.script.run(messages, tools=tools)
        if self._reached():
            self.asked.set()
            while not self.go_on.is_set():
                await asyncio.sleep(0.01)
        return replies


# An Agent of Haystack 2 does not tell its toolsets that a run begins.
needs_spawn = pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no toolset of a run")


@component
class Failing:
    """
    A chat generator that looks at its tools and fails.
    """

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        assert list(tools)
        raise RuntimeError("no model today")

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        return self.run(messages, tools)


@pytest.fixture
def server():
    return build_server()


def _run(agent: Agent, way: str) -> dict[str, Any]:
    return agent.run(messages=QUESTION) if way == "run" else asyncio.run(agent.run_async(messages=QUESTION))


def _results(result: dict[str, Any]) -> list[str]:
    return [each.result for message in result["messages"] for each in message.tool_call_results]


def _in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    return thread, results


@needs_spawn
@pytest.mark.parametrize("as_list", [False, True], ids=["toolset", "list"])
@pytest.mark.parametrize("way", ["run", "run_async"])
def test_a_new_list_is_seen_by_the_next_run_and_not_by_the_one_under_way(server, way, as_list):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        first = Pausing([call("write", text="1"), call("write", text="2"), call("extra", text="3"), say("done")], 2)
        tools = [toolset] if as_list else toolset
        agent = Agent(chat_generator=first, tools=tools, exit_conditions=["text"])
        thread, results = _in_thread(lambda: _run(agent, way))
        assert first.asked.wait(LIMIT)

        toolset["offer"].invoke(name="extra")
        wait_until(lambda: toolset._fetched is not None, "the tools are listed again")
        second = ScriptedChatGenerator([call("extra", text="hello"), say("done")])
        other = _run(Agent(chat_generator=second, tools=tools, exit_conditions=["text"]), way)
        assert second.turns[0].tool_names == ["extra", *OWN]
        assert _results(other) == ["extra: hello"]

        first.go_on.set()
        thread.join(LIMIT)
        assert first.shown == [OWN] * 4
        # A tool that the run does not have is an error that the model sees.
        assert _results(results[0])[:2] == ["written", "written"]
        assert "extra" in _results(results[0])[2]
        assert "extra: 3" not in _results(results[0])[2]


@needs_spawn
@pytest.mark.parametrize("way", ["run", "run_async"])
def test_a_tool_that_changes_is_shown_as_it_was_until_the_run_ends(server, way):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        toolset["offer"].invoke(name="extra", description="Old.")
        toolset.refresh()
        held = toolset["extra"]
        generator = Pausing([call("extra", text="1"), call("extra", text="2"), say("done")], 1)
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        thread, results = _in_thread(lambda: _run(agent, way))
        assert generator.asked.wait(LIMIT)

        toolset["offer"].invoke(name="extra", description="New.")
        wait_until(lambda: toolset.warm_up() or held.description == "New.", "the toolset has the new description")
        assert toolset["extra"] is held

        generator.go_on.set()
        thread.join(LIMIT)
        shown = [spec["description"] for turn in generator.script.turns for spec in turn.tool_specs]
        assert "Old." in shown
        assert "New." not in shown
        assert _results(results[0]) == ["extra: 1", "extra: 2"]


@pytest.mark.parametrize("way", ["run", "run_async"])
def test_between_steps_if_asked_for(server, way):
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(update_between_steps=True)) as toolset:
        generator = Pausing([call("write", text="1"), call("extra", text="2"), say("done")], 1)
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        thread, results = _in_thread(lambda: _run(agent, way))
        assert generator.asked.wait(LIMIT)
        toolset["offer"].invoke(name="extra")
        wait_until(lambda: "extra" in toolset, "the toolset has the new tool")
        generator.go_on.set()
        thread.join(LIMIT)
        assert generator.shown == [OWN, ["extra", *OWN], ["extra", *OWN]]
        assert _results(results[0]) == ["written", "extra: 2"]


@rows("way", ["run", "run_async"])
def test_a_server_that_does_not_say_it_is_asked_at_the_start_of_each_run(way):
    server = build_server()
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(cache_tools=False)) as toolset:
        generator = ScriptedChatGenerator([say("one"), say("two")])
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        _run(agent, way)
        server.add_tool(lambda: "quiet", name="quiet", description="Nobody said that it is there.")
        if not HAS_HOOKS:
            toolset.warm_up()
        _run(agent, way)
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
        agent = Agent(chat_generator=Failing(), tools=toolset, exit_conditions=["text"])
        with pytest.raises(Exception, match="no model today") as failed:
            agent.run(messages=QUESTION)
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert [tool.name for tool in toolset] == ["extra", *OWN]
        assert failed.tb is not None
