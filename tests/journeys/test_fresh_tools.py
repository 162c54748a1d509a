# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Agents whose server changes its tools while they run: each run goes on with the tools that it began with.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolsChange, MCPToolset, ToolSelection
from haystack_integrations.tools.mcp.haystack_compat import HAS_SPAWN
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
needs_spawn = pytest.mark.skipif(not HAS_SPAWN, reason="Haystack 2 has no toolset of a run")


@component
class PausingInThreads:
    """
    The same without `run_async`, so that an asynchronous run of an Agent calls it in a thread.
    """

    def __init__(self, replies: list[ChatMessage], pause_at: int) -> None:
        self.inner = Pausing(replies, pause_at)

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        return self.inner.run(messages, tools)


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
        changed = threading.Event()
        toolset.on_change(lambda _: changed.set())
        first = Pausing([call("write", text="1"), call("write", text="2"), call("extra", text="3"), say("done")], 2)
        tools = [toolset] if as_list else toolset
        agent = Agent(chat_generator=first, tools=tools, exit_conditions=["text"])
        thread, results = _in_thread(lambda: _run(agent, way))
        assert first.asked.wait(LIMIT)

        changed.clear()
        toolset["offer"].invoke(name="extra")
        assert changed.wait(LIMIT)
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
def test_runs_of_one_agent_that_overlap_have_each_what_they_began_with(server, way):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        changed = threading.Event()
        toolset.on_change(lambda _: changed.set())
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert changed.wait(LIMIT)  # else the first change may be told in place of the second
        generator = Pausing([call("extra", text="1"), call("write", text="2"), call("extra", text="3"), say("done")], 1)
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        thread, results = _in_thread(lambda: _run(agent, way))
        assert generator.asked.wait(LIMIT)

        changed.clear()
        toolset["withdraw"].invoke(name="extra")
        assert changed.wait(LIMIT)
        other = Pausing([say("nothing to do")], 9)
        agent.chat_generator, kept = other, agent.chat_generator
        _run(agent, way)
        agent.chat_generator = kept
        assert other.shown == [OWN]

        generator.go_on.set()
        thread.join(LIMIT)
        assert generator.shown[0] == ["extra", *OWN]
        # What the server has no more fails clearly.
        assert "Unknown tool: extra" in _results(results[0])[0]


@needs_spawn
@pytest.mark.parametrize("way", ["run", "run_async"])
def test_a_tool_that_changes_is_shown_as_it_was_until_the_run_ends(server, way):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        changed = threading.Event()
        toolset.on_change(lambda _: changed.set())
        toolset["offer"].invoke(name="extra", description="Old.")
        toolset.refresh()
        assert changed.wait(LIMIT)
        held = toolset["extra"]
        generator = Pausing([call("extra", text="1"), call("extra", text="2"), say("done")], 1)
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        thread, results = _in_thread(lambda: _run(agent, way))
        assert generator.asked.wait(LIMIT)

        changed.clear()
        toolset["offer"].invoke(name="extra", description="New.")
        assert changed.wait(LIMIT)
        toolset.warm_up()
        assert toolset["extra"] is held
        assert held.description == "New."

        generator.go_on.set()
        thread.join(LIMIT)
        shown = [spec["description"] for turn in generator.script.turns for spec in turn.tool_specs]
        assert "Old." in shown
        assert "New." not in shown
        assert _results(results[0]) == ["extra: 1", "extra: 2"]


@pytest.mark.parametrize("way", ["run", "run_async"])
def test_between_steps_if_asked_for(server, way):
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(update_between_steps=True)) as toolset:
        changed = threading.Event()
        toolset.on_change(lambda _: changed.set())
        generator = Pausing([call("write", text="1"), call("extra", text="2"), say("done")], 1)
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        thread, results = _in_thread(lambda: _run(agent, way))
        assert generator.asked.wait(LIMIT)
        changed.clear()
        toolset["offer"].invoke(name="extra")
        assert changed.wait(LIMIT)
        generator.go_on.set()
        thread.join(LIMIT)
        assert generator.shown == [OWN, ["extra", *OWN], ["extra", *OWN]]
        assert _results(results[0]) == ["written", "extra: 2"]


@needs_spawn
def test_a_generator_without_run_async_is_shown_what_the_run_began_with(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        changed = threading.Event()
        toolset.on_change(lambda _: changed.set())
        generator = PausingInThreads([call("write", text="1"), call("write", text="2"), say("done")], 1)
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        thread, _ = _in_thread(lambda: _run(agent, "run_async"))
        assert generator.inner.asked.wait(LIMIT)
        changed.clear()
        toolset["offer"].invoke(name="extra")
        assert changed.wait(LIMIT)
        generator.inner.go_on.set()
        thread.join(LIMIT)
        assert generator.inner.shown == [OWN] * 3
        after = ScriptedChatGenerator([say("done")])
        _run(Agent(chat_generator=after, tools=toolset, exit_conditions=["text"]), "run")
        assert after.turns[0].tool_names == ["extra", *OWN]


@rows("way", ["run", "run_async"])
def test_a_server_that_does_not_say_it_is_asked_at_the_start_of_each_run(way):
    server = build_server()
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(cache_tools=False)) as toolset:
        generator = ScriptedChatGenerator([say("one"), say("two")])
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        _run(agent, way)
        server.add_tool(lambda: "quiet", name="quiet", description="Nobody said that it is there.")
        if not HAS_SPAWN:
            toolset.warm_up()
        _run(agent, way)
        assert [turn.tool_names for turn in generator.turns] == [OWN, sorted([*OWN, "quiet"])]


def test_by_name_a_run_has_the_tools_that_it_asked_for(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        generator = ScriptedChatGenerator([call("write", text="1"), say("done")])
        agent = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"])
        result = agent.run(messages=QUESTION, tools=["write"])
        assert [turn.tool_names for turn in generator.turns] == [["write"]] * 2
        assert _results(result) == ["written"]


def test_tools_that_are_added_to_the_toolset_are_there_at_the_next_step(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:

        def grow() -> str:
            schema = {"type": "object", "properties": {}}
            toolset.add(Tool(name="late", description="", parameters=schema, function=lambda: "it"))
            return "grown"

        schema: dict[str, Any] = {"type": "object", "properties": {}}
        toolset.add(Tool(name="grow", description="", parameters=schema, function=grow))
        generator = ScriptedChatGenerator([call("grow"), call("late"), say("done")])
        result = Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"]).run(messages=QUESTION)
        assert _results(result) == ["grown", "it"]


@pytest.mark.skipif(HAS_SPAWN, reason="this Haystack has no ToolInvoker")
def test_a_pipeline_with_a_tool_invoker_has_the_tools_of_warm_up_or_those_it_is_given(server):
    from haystack.components.tools import ToolInvoker

    with MCPToolset(InProcessServerInfo(server)) as toolset:
        changed = threading.Event()
        toolset.on_change(lambda _: changed.set())
        generator = Pausing([call("write", text="1"), call("extra", text="2")], 1)

        @component
        class WithTools:
            @component.output_types(replies=list[ChatMessage])
            def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
                return generator.run(messages, toolset if tools is None else tools)

        pipeline = Pipeline()
        pipeline.add_component("llm", WithTools())
        pipeline.add_component("invoker", ToolInvoker(tools=toolset))
        pipeline.connect("llm.replies", "invoker.messages")
        thread, results = _in_thread(lambda: pipeline.run({"llm": {"messages": QUESTION}}))
        assert generator.asked.wait(LIMIT)
        changed.clear()
        toolset["offer"].invoke(name="extra")
        assert changed.wait(LIMIT)
        assert [tool.name for tool in toolset] == OWN  # the generator and the invoker go on alike
        generator.go_on.set()
        thread.join(LIMIT)
        (message,) = results[0]["invoker"]["tool_messages"]
        assert message.tool_call_result.result == "written"

        toolset.warm_up()
        given = pipeline.run({"llm": {"messages": QUESTION, "tools": toolset}, "invoker": {"tools": toolset}})
        (message,) = given["invoker"]["tool_messages"]
        assert message.tool_call_result.result == "extra: 2"
        assert generator.shown == [OWN, ["extra", *OWN]]


def test_a_run_that_ended_is_forgotten(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        generator = ScriptedChatGenerator([call("write", text="1"), say("done")])
        Agent(chat_generator=generator, tools=toolset, exit_conditions=["text"]).run(messages=QUESTION)
        fresh = toolset._fresh
        wait_until(
            lambda: not [each for each in fresh._spawned if each() is not None],
            "nothing of the run is left",
        )


def test_a_run_that_failed_is_over_while_its_error_is_held(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        agent = Agent(chat_generator=Failing(), tools=toolset, exit_conditions=["text"])
        with pytest.raises(Exception, match="no model today") as failed:
            agent.run(messages=QUESTION)
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert [tool.name for tool in toolset] == ["extra", *OWN]
        assert failed.tb is not None


async def test_an_asynchronous_run_that_failed_is_over_while_its_error_is_held(server):
    async with MCPToolset(InProcessServerInfo(server)) as toolset:
        agent = Agent(chat_generator=Failing(), tools=toolset, exit_conditions=["text"])
        with pytest.raises(Exception, match="no model today") as failed:
            await agent.run_async(messages=QUESTION)
        await toolset["offer"].call_async(name="extra")
        await toolset.refresh_async()
        assert [tool.name for tool in toolset] == ["extra", *OWN]
        # A thread and a task have a copy of the context in which the run was.
        assert [tool.name for tool in await asyncio.to_thread(list, toolset)] == ["extra", *OWN]

        async def names() -> list[str]:
            return [tool.name for tool in toolset]

        assert await asyncio.create_task(names()) == ["extra", *OWN]
        assert failed.tb is not None


def test_on_change_tells_of_tools_that_are_added_and_of_a_failing_function_there_is_a_log_line(server, caplog):
    seen: queue.Queue[MCPToolsChange] = queue.Queue()

    def fail(change: MCPToolsChange) -> None:
        seen.put(change)
        raise LookupError("not mine")

    with MCPToolset(InProcessServerInfo(server)) as toolset:
        unsubscribe = toolset.on_change(fail)
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        for name in ("one", "two"):
            toolset.add(Tool(name=name, description="", parameters=schema, function=lambda: "it"))
            assert seen.get(timeout=LIMIT) == MCPToolsChange(added=(name,))
        unsubscribe()
        toolset.add(Tool(name="three", description="", parameters=schema, function=lambda: "it"))
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert "extra" in toolset
        assert seen.empty()
    assert "`on_change` failed: LookupError: not mine" in caplog.text


async def test_it_is_refreshed_without_blocking_the_loop(server):
    async with MCPToolset(InProcessServerInfo(server)) as toolset:
        await toolset["offer"].invoke_async(name="extra")
        await toolset.refresh_async()
        assert "extra" in toolset
