# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPCallBudgetHook`: runs that reach a limit of tool calls still end with an answer, on Haystack 3.
"""

import asyncio
import pickle
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool

import haystack_integrations.hooks.mcp as package
from haystack_integrations.tools.mcp import MCPRegistry, MCPToolset, ToolConfig
from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.servers import inprocess
from tests.support.executors import agent_of, recorded_traces, reloaded, results_of, run
from tests.support.in_process import COUNTER
from tests.support.rows import rows
from tests.support.scripted_chat import CallsUntilRefused, ScriptedChatGenerator, call, calls, say

needs_hooks = pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no hooks")


@pytest.fixture
def toolset():
    inprocess.calls.clear()
    with MCPToolset(COUNTER, tool_names=["add", "echo"]) as toolset:
        yield toolset


def echoes(texts: str) -> ChatMessage:
    return calls(*[("echo", {"text": text}) for text in texts])


def kinds(result: dict[str, Any]) -> str:
    # u, a and t stand for the roles, A for an assistant's message with calls, and T for an error.
    letters = []
    for message in result["messages"]:
        letter = message.role.value[0]
        is_loud = bool(message.tool_calls) or any(each.error for each in message.tool_call_results)
        letters.append(letter.upper() if is_loud else letter)
    return "".join(letters)


@pytest.mark.skipif(HAS_HOOKS, reason="Haystack 3 has hooks")
@rows("name", "MCPCallBudgetHook", "MCPConfirmationHook")
def test_the_error_on_haystack_2_names_the_alternative(name):
    with pytest.raises(ImportError, match=f"{name} needs Haystack 3.*`call_budget`"):
        getattr(package, name)
    with pytest.raises(ImportError, match="needs Haystack 3"):
        MCPRegistry({"a": COUNTER}, [ToolConfig("x", ["a"])]).hooks("x")


@needs_hooks
class TestBudget:
    @pytest.fixture
    def agent(self, toolset):
        def make(*replies: ChatMessage, others: Sequence[Tool] = (), **parameters: Any) -> Agent:
            hooks: dict[Any, Any] = {"before_tool": [package.MCPCallBudgetHook(**parameters)]}
            return agent_of([toolset, *others], *replies, hooks=hooks)

        return make

    def test_turns_over_the_limit_are_refused_and_the_model_answers(self, agent):
        limited = agent(echoes("ab"), echoes("cd"), say("well"), max_turns=1)
        with recorded_traces(content=True) as traces:
            result = run(limited)
        assert (result["last_message"].text, result["exit_reason"]) == ("well", "text")
        assert kinds(result) == "uAttATTa"
        assert inprocess.calls == ["echo", "echo"]
        assert limited.chat_generator.turns[2].tool_results[2] == (
            "The call of 'echo' was refused: the limit of 1 turn of tool calls is reached. Answer with what you have, "
            "and say what is missing."
        )
        assert traces.names.count("haystack.mcp.tool_call.refused") == 2

    def test_calls_within_the_limit_are_executed(self, agent):
        reply = ChatMessage.from_assistant("Let me see.", tool_calls=echoes("abc").tool_calls)
        result = run(agent(reply, say("well"), max_calls=2))
        assert kinds(result) == "uATAtta"
        assert sorted(inprocess.calls) == ["echo", "echo"]
        assert result["tool_call_counts"]["echo"] == 2
        assert [message.text for message in result["messages"] if message.tool_calls] == ["Let me see.", None]

    def test_a_model_that_keeps_calling_is_stopped_with_a_text(self, agent):
        result = run(agent(*[echoes("x")] * 20, max_turns=1))
        assert result["exit_reason"] == "tool_call_budget_exceeded"
        assert result["last_message"].text.startswith("The run was stopped: ")
        assert kinds(result) == "uAtATATa"
        assert inprocess.calls == ["echo"]
        result = run(agent(*[echoes("x")] * 20, max_turns=0, max_refused_turns=3, final_message=None))
        assert kinds(result) == "uATATAT"

    def test_the_run_ends_with_an_error_if_the_agent_cannot_be_stopped(self):
        # This is Haystack 3.1's behaviour.
        hook = package.MCPCallBudgetHook(max_turns=0, max_refused_turns=1)
        state = State(schema={"messages": {"type": list[ChatMessage]}}, data={"messages": [call("nope")]})
        with pytest.raises(MCPBudgetExceededError, match="after 1 refused turns") as caught:
            hook.run(state)
        assert caught.value.messages[-1].tool_call_result.error

    def test_only_mcp_tools_are_counted_unless_others_are_named(self, agent):
        mine = Tool("mine", "", {"type": "object", "properties": {}}, lambda: "fine")
        for named, answered in ({}, "fine"), ({"tools": ["mine"]}, "x"):
            reply = calls(("mine", {}), ("echo", {"text": "x"}))
            result = run(agent(reply, say("well"), others=[mine], max_calls=0, **named))
            assert results_of(result)[1].result == answered

    async def test_concurrent_runs_of_one_agent_have_separate_budgets(self, agent):
        shared = agent(max_turns=3)
        shared.chat_generator = CallsUntilRefused([call("echo", text="x"), say("final")])
        runs = [shared.run_async(messages=[ChatMessage.from_user("go")]) for _ in range(3)]
        for result in await asyncio.gather(*runs):
            assert kinds(result) == "uAtAtAtATa"
        assert len(inprocess.calls) == 9
        assert kinds(run(shared)) == "uAtAtAtATa"

    def test_calls_of_tools_that_do_not_exist_use_up_turns(self, agent):
        result = run(agent(*[call("nope")] * 20, max_turns=1))
        assert (result["exit_reason"], kinds(result)) == ("tool_call_budget_exceeded", "uATATATa")
        replies = [call("nope"), call("nope"), echoes("x"), say("well")]
        assert kinds(run(agent(*replies, max_calls=1, max_refused_turns=5))) == "uATATATa"
        assert inprocess.calls == []

    def test_the_hook_is_stored_with_the_agent(self, agent):
        parameters = {"max_turns": 2, "max_calls_per_tool": {"echo": 0}, "tools": ["echo"]}
        loaded = reloaded(agent(echoes("x"), say("well"), **parameters))
        [refusal] = results_of(run(loaded))
        assert "the limit of 0 calls of this tool is reached" in refusal.result
        loaded.close()
        hook = package.MCPCallBudgetHook(**parameters)
        assert pickle.loads(pickle.dumps(hook)).to_dict() == hook.to_dict()  # noqa: S301

    def test_the_hooks_of_an_alias_ignore_other_tools_and_run_before_those_of_the_agent(self):
        inprocess.calls.clear()
        configs = [ToolConfig("few", ["a"], ["echo"], 1), ToolConfig("many", ["a"], ["add"], 3)]
        turn = calls(("add", {"a": 1, "b": 2}), ("echo", {"text": "b"}), ("pid", {}))
        replies = [echoes("a"), *[turn] * 4, say("well")]
        seen: list[int] = []
        counting = SimpleNamespace(run=lambda state: seen.append(len(state.data["messages"][-1].tool_calls)))
        with MCPRegistry({"a": COUNTER}, configs) as registry, MCPToolset(COUNTER, tool_names=["pid"]) as other:
            tools = [registry.toolset("few"), registry.toolset("many"), other]
            hooks = [hook for alias in registry.aliases for hook in registry.hooks(alias)["before_tool"]]
            for hook in hooks:
                hook.max_refused_turns = 9
            run(reloaded(agent_of(tools, *replies, hooks={"before_tool": hooks})))
            agent = registry.agent("few", ScriptedChatGenerator([echoes("a")] * 9), hooks={"before_tool": [counting]})
            assert run(agent)["exit_reason"] == "tool_call_budget_exceeded"
        assert sorted(inprocess.calls) == ["add"] * 3 + ["echo"] * 2 + ["pid"] * 4
        assert seen == [1, 0, 0]  # the budget's hook ran first and has answered the refused calls
