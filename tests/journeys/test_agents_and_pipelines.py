# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import functools
import importlib
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import SearchableToolset, Tool, Toolset
from haystack.tools import utils as haystack_tool_utils
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from haystack_integrations.tools.mcp import (
    AskUser,
    InProcessServerInfo,
    MCPConnectionError,
    MCPHandlers,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
    mcp_toolset,
    warm_up_toolsets,
    warm_up_toolsets_async,
)
from tests.support.executors import (
    HAS_TOOL_INVOKER,
    Executor,
    agent_of,
    answers_of,
    by_agent,
    every_executor,
    run,
    shown_to,
)
from tests.support.foreign_server import ForeignServer
from tests.support.in_process import COUNTER
from tests.support.kinds import Gate
from tests.support.rows import rows
from tests.support.scripted_chat import call, say
from tests.support.waiting import wait_until

AGENTS_WARM_RUNTIME_TOOLS = "async_function" in Tool.__dataclass_fields__
CLOSES = hasattr(Agent, "close")


GO = [ChatMessage.from_user("go")]


@pytest.fixture
def toolset() -> Iterator[MCPToolset]:
    toolset = MCPToolset(COUNTER)
    yield toolset
    toolset.close()


@pytest.fixture
def named() -> Iterator[MCPToolset]:
    toolset = MCPToolset(COUNTER, tool_names=["add", "echo"])
    yield toolset
    toolset.close()


@pytest.fixture(params=[False, True], ids=["run", "run_async"])
def run_agent(request):
    return functools.partial(run, is_async=request.param)


class TestAgents:
    @every_executor
    @rows("in_list", False, True)
    def test_a_cold_toolset_shows_the_tools_of_its_server_and_no_placeholder(self, execute, in_list):
        with MCPToolset(COUNTER) as toolset:
            cold = [toolset] if in_list else toolset
            outcome = execute(cold, ("add", {"a": 1, "b": 2}), ("echo", {"text": "x"}))
        assert [each.result for each in outcome.results] == ["3", "x"]
        for turn in outcome.turns:
            specs = {spec["name"]: spec for spec in turn.tool_specs}
            assert not any("placeholder" in name for name in specs)
            assert specs["add"]["description"] == "Add two integers."
            assert specs["add"]["parameters"]["properties"]["a"]["type"] == "integer"
            assert specs["echo"]["parameters"]["required"] == ["text"]

    def test_tools_are_selected_by_name_for_a_run_and_a_tool_may_end_it(self, run_agent, named, toolset):
        # Haystack 2 selects tools and checks exit conditions before it warms up.
        tools = toolset if AGENTS_WARM_RUNTIME_TOOLS else named
        agent = agent_of(tools, call("add", a=1, b=2), exit_conditions=["add"])
        result = run_agent(agent, tools=["add"])
        assert answers_of(result) == ["3"]
        assert shown_to(agent) == [["add"]]
        assert result["last_message"].tool_call_result is not None

    def test_an_agent_finds_tools_with_a_searchable_toolset(self, run_agent, toolset):
        catalog = SearchableToolset(catalog=[toolset], search_threshold=2)
        replies = [call("search_tools", tool_keywords="add two integers"), call("add", a=1, b=2), say("done")]
        agent = agent_of(catalog, *replies)
        assert answers_of(run_agent(agent))[1] == "3"
        assert shown_to(agent)[0] == ["search_tools"]
        assert "add" in shown_to(agent)[1]

    @rows("is_async", False, True)
    def test_a_streaming_callback_of_the_run_gets_progress(self, is_async):
        passthrough: dict[str, Any] = {"tool_streaming_callback_passthrough": True}
        if HAS_TOOL_INVOKER:
            passthrough = {"tool_invoker_kwargs": {"enable_streaming_callback_passthrough": True}}
        server = MCPServer("steps")
        chunks: list[Any] = []

        @server.tool()
        async def work(ctx: Context[Any, Any]) -> str:
            for step in (1, 2):
                await ctx.report_progress(step, 2)
            return "worked"

        async def stream_async(chunk: Any) -> None:
            chunks.append(chunk)

        with MCPToolset(InProcessServerInfo(server)) as toolset:
            agent = agent_of(toolset, call("work"), say("done"), **passthrough)
            result = run(agent, is_async=is_async, streaming_callback=stream_async if is_async else chunks.append)
        assert answers_of(result) == ["worked"]
        # Haystack 2 calls tools synchronously there, so the callback cannot be awaited.
        expected = [] if HAS_TOOL_INVOKER and is_async else [1.0, 2.0]
        kinds = [("progress" if "mcp" in chunk.meta else "result") for chunk in chunks if not chunk.content]
        assert [chunk.meta["mcp"]["progress"] for chunk in chunks if "mcp" in chunk.meta] == expected
        assert kinds[: len(expected)] == ["progress"] * len(expected)


class TestFailures:
    @pytest.mark.parametrize("with_names", [False, True], ids=["all tools", "tool_names"])
    def test_a_run_works_without_an_optional_server_that_is_down_and_uses_it_when_it_is_back(
        self, run_agent, with_names, stdio_server, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(mcp_toolset, "_FIRST_PAUSE", 0.05)
        gate = Gate(stdio_server(), tmp_path)
        gate.close()
        info = gate.server.info(max_retries=0)
        with (
            MCPToolset(COUNTER, tool_name_prefix="good") as good,
            MCPToolset(info, tool_names=["add"] if with_names else None, required=False) as dead,
        ):
            replies = [call("good_add", a=5, b=3), say("eight"), call("add", a=6, b=3), say("nine")]
            agent = agent_of([good, dead], *replies)
            assert answers_of(run_agent(agent)) == ["8"]
            gate.open()
            wait_until(lambda: "add" in dead, "the tools")
            assert answers_of(run_agent(agent)) == ["9"]
        assert "add" not in shown_to(agent)[0]
        assert {"add", "good_add"} <= set(shown_to(agent)[2])


@pytest.mark.skipif(not CLOSES, reason="this Haystack does not close tools")
class TestClosing:
    @rows("is_async", False, True)
    def test_closing_an_agent_ends_the_server_and_the_next_run_restarts_it(self, is_async, stdio_server):
        server = stdio_server()
        agent = agent_of([MCPToolset(server.info())], *(call("add", a=1, b=2), say("done")) * 2)
        for _ in range(2):
            assert answers_of(run(agent, is_async=is_async)) == ["3"]
            assert len(server.alive()) == 1
            asyncio.run(agent.close_async()) if is_async else agent.close()
            server.wait_until_gone()


class TestWarmingUpInALoop:
    SLOW = ("--slow-list", "1")

    @pytest.mark.parametrize("by", ["toolset", "tool", "several", "haystack"])
    async def test_the_loop_keeps_running_while_a_slow_server_starts(self, by, stdio_server):
        server = stdio_server(*self.SLOW)
        toolset, tool = MCPToolset(server.info()), MCPTool("add", server.info())
        warm_up_tools_async = getattr(haystack_tool_utils, "warm_up_tools_async", None)
        if by == "haystack" and warm_up_tools_async is None:
            pytest.skip("this Haystack has no warm_up_tools_async")
        warming = asyncio.create_task(
            {
                "toolset": toolset.warm_up_async,
                "tool": tool.warm_up_async,
                "several": lambda: warm_up_toolsets_async([toolset, tool]),
                "haystack": lambda: warm_up_tools_async([toolset, tool]),
            }[by]()
        )
        await server.wait_for_async("@tools/list")
        # A blocked loop would reach this line only after the warm-up.
        assert not warming.done()
        await warming
        await toolset.close_async()
        await tool.close_async()
        assert len(server.pids()) == 1


class TestWarmingUpTogether:
    def test_servers_start_concurrently(self):
        here: set[Any] = set()
        all_here = anyio.Event()

        class Meeting(ForeignServer):
            async def _list_tools(self, context: Any, params: Any) -> Any:
                here.add(self)
                if len(here) == 3:
                    all_here.set()
                await all_here.wait()
                return await super()._list_tools(context, params)

        toolsets = [MCPToolset(Meeting().info, connection_timeout=20) for _ in range(3)]
        warm_up_toolsets(toolsets)
        for toolset in toolsets:
            toolset.close()

    def test_the_list_may_contain_all_tools_of_an_agent(self):
        own = Tool("own", "Mine.", {"type": "object", "properties": {}}, function=print)
        toolset = MCPToolset(COUNTER)
        warm_up_toolsets([own, Toolset([own]), toolset])
        assert toolset.connection.is_ready
        toolset.close()

    def test_failed_warm_ups_are_raised_as_one_error_after_the_others_are_warm(self):
        bad = [MCPToolset(COUNTER, tool_names=["subtract"]), MCPToolset(StdioServerInfo("mcp-no-such-command"))]
        good, tool = MCPToolset(COUNTER), MCPTool("add", COUNTER)
        with pytest.raises(MCPToolNotFoundError, match="subtract"):
            warm_up_toolsets([bad[0], good, tool])
        assert good.connection.is_ready
        assert tool.description == "Add two integers."
        good.close()
        with pytest.raises(MCPConnectionError, match=r"(?s)2 of 3 toolsets .*'subtract'.*mcp-no-such-command"):
            warm_up_toolsets([*bad, good])
        assert good.connection.is_ready
        for each in (*bad, good, tool):
            each.close()


# Haystack 3 has moved this module.
CONFIRMATION = importlib.import_module(f"haystack{'' if HAS_TOOL_INVOKER else '.hooks'}.human_in_the_loop.dataclasses")


class ScriptedUI:
    """A ConfirmationUI that confirms, modifies and rejects, in turn."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def get_user_confirmation(self, tool_name: str, tool_description: str, tool_params: dict[str, Any]) -> Any:
        self.shown.append(tool_params)
        action = ["confirm", "modify", "reject"][len(self.shown) - 1]
        changed = {"colour": "green", "count": 9} if action == "modify" else None
        return CONFIRMATION.ConfirmationUIResult(action=action, new_tool_params=changed)


def asking(**fields: Any) -> MCPToolset:
    info = InProcessServerInfo("tests.servers.asking_server:server")
    return MCPToolset(info, handlers=MCPHandlers(**fields), invocation_timeout=60)


@every_executor
def test_the_user_is_asked_through_haystacks_confirmation_ui_during_a_call(execute: Executor) -> None:
    ui = ScriptedUI()
    with asking(elicitation=AskUser(ui)) as toolset:
        assert execute(toolset, ("ask_order", {})).result == "2 blue"
        assert execute(toolset, ("ask_order", {})).result == "9 green"
        assert "decline" in execute(toolset, ("ask_order", {})).error
    assert ui.shown == [{"colour": "blue", "count": 2}] * 3


@every_executor
def test_a_handler_may_run_an_agent_that_uses_the_same_toolset(execute: Executor) -> None:
    def answer(_: Any) -> Any:
        return by_agent(toolset, ("add", {"a": 40, "b": 2})).result

    with asking(sampling=answer) as toolset:
        assert execute(toolset, ("ask_model", {"prompt": "x"})).result.startswith("42 (")
