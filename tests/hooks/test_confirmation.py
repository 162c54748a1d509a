# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Confirmation of tool calls by annotations: the hook of Haystack 3, and the strategies of Haystack 2.31.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.tools import Tool
from mcp import types
from rich.console import Console
from rich.prompt import Prompt

from haystack_integrations.hooks.mcp import MCPAnnotationPolicy, MCPConfirmationStrategy, confirmation_strategies_for
from haystack_integrations.tools.mcp import (
    FromState,
    MCPRegistry,
    MCPResourceToolset,
    MCPSearchableToolset,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    ToolConfig,
)
from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.support.executors import agent_of, in_both_ways, reloaded, results_of, run
from tests.support.foreign_server import ForeignServer, definition
from tests.support.in_process import COUNTER
from tests.support.rows import rows
from tests.support.scripted_chat import call, calls, say
from tests.support.waiting import LIMIT

if HAS_HOOKS:
    from haystack.hooks.human_in_the_loop import AlwaysAskPolicy, AskOncePolicy, RichConsoleUI
    from haystack.hooks.human_in_the_loop.dataclasses import ConfirmationUIResult

    from haystack_integrations.hooks.mcp import MCPConfirmationHook
else:
    from haystack.human_in_the_loop import AlwaysAskPolicy, AskOncePolicy, RichConsoleUI
    from haystack.human_in_the_loop.dataclasses import ConfirmationUIResult

needs_hooks = pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no hooks")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


class ScriptedUI:
    """Gives an answer for each tool, and records the questions."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.shown: list[dict[str, Any]] = []

    def get_user_confirmation(self, tool_name: str, tool_description: str, tool_params: dict[str, Any]) -> Any:
        self.asked.append(tool_name)
        self.shown.append(tool_params)
        answer = self.answers.get(tool_name, "confirm")
        if isinstance(answer, dict):
            return ConfirmationUIResult(action="modify", new_tool_params=answer)
        return ConfirmationUIResult(action=answer)

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, **self.answers)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ScriptedUI":
        return default_from_dict(cls, data)


@pytest.fixture
def server() -> ForeignServer:
    read_only = {"annotations": types.ToolAnnotations(read_only_hint=True)}
    return ForeignServer(
        definition("look", TEXT, **read_only),
        definition("silent", TEXT),
        definition("wipe", TEXT, annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=True)),
    )


@pytest.fixture
def toolset(server):
    with MCPToolset(server.info) as toolset:
        yield toolset


ALL = calls(("look", {"text": "a"}), ("silent", {"text": "b"}), ("wipe", {"text": "c"}))


def confirming(tools: Any, ui: Any, *, replies: Any = ALL, state_schema: Any = None, **parameters: Any) -> Agent:
    """Return an Agent that asks for confirmation, in the way of the installed major."""
    how: dict[str, Any]
    if HAS_HOOKS:
        how = {"hooks": {"before_tool": [MCPConfirmationHook(ui, **parameters)]}}
    else:
        how = {"confirmation_strategies": confirmation_strategies_for(tools, ui, **parameters)}
    return agent_of(tools, replies, say("done"), state_schema=state_schema, **how)


class TestTrust:
    @pytest.mark.parametrize(
        ("parameters", "asked"),
        [
            ({}, ["look", "silent", "wipe"]),
            ({"trusted": "server"}, ["silent", "wipe"]),
            ({"trusted": ["foreign"]}, ["look", "silent", "wipe"]),  # the server's own name
            ({"trusted": [StdioServerInfo("cat")]}, ["look", "silent", "wipe"]),
            ({"trusted": "server", "ask": "always"}, ["look", "silent", "wipe"]),
            ({"overrides": {"wipe": "never", "silent": "never"}}, ["look"]),
            ({"trusted": "server", "overrides": {"look": "always"}}, ["look", "silent", "wipe"]),
        ],
    )
    def test_only_annotations_of_trusted_servers_avoid_a_confirmation(self, server, toolset, parameters, asked):
        parameters = {**parameters, **({"trusted": [server.info]} if parameters.get("trusted") == "server" else {})}
        ui = ScriptedUI()
        run(confirming(toolset, ui, **parameters))
        assert sorted(ui.asked) == asked
        assert len(server.calls) == 3

    def test_a_server_is_trusted_by_the_name_that_the_user_gave_it(self, server):
        registry = MCPRegistry({"shop": server.info, "evil": COUNTER}, [ToolConfig("x", ["shop"])])
        with registry.toolset("x") as tools, MCPToolset(server.info, tool_name_prefix="shop") as prefixed:
            for each, name in ((tools, "look"), (prefixed, "shop_look")):
                assert MCPAnnotationPolicy(each).should_ask(name, "", {})
                assert not MCPAnnotationPolicy(each, trusted=["shop"]).should_ask(name, "", {})
                assert not MCPAnnotationPolicy([each], trusted=[prefixed]).should_ask(name, "", {})

    def test_unknown_tools_need_a_confirmation(self, server, toolset):
        policy = MCPAnnotationPolicy(toolset, trusted=[server.info])
        assert policy.should_ask("another", "", {})
        down = MCPToolset(StdioServerInfo("no-such-command", max_retries=0), tool_names=["look"])
        assert MCPAnnotationPolicy(down, trusted=[down]).should_ask("look", "", {})
        assert not MCPAnnotationPolicy(MCPTool("look", server.info), trusted=[server.info]).should_ask("look", "", {})

    @rows(
        ("parameters", "asks"),
        ({}, True),
        ({"trusted": [COUNTER]}, False),
        ({"trusted": ["shop"]}, False),
        ({"overrides": {"shop_list_resources": "never"}}, False),
    )
    def test_resources_of_only_trusted_servers_are_read_without_a_confirmation(self, parameters, asks):
        with MCPResourceToolset(COUNTER, tool_name_prefix="shop") as resources:
            policy = MCPAnnotationPolicy(resources, **parameters)
            assert policy.should_ask("shop_list_resources", "", {}) is asks

    @pytest.mark.parametrize(
        ("options", "known_by"), [({}, "a listing"), ({}, "an alias"), ({"update_between_steps": True}, "a refresh")]
    )
    def test_a_tool_that_is_no_longer_read_only_needs_a_confirmation_until_the_run_ends(
        self, server, options, known_by
    ):
        ui = ScriptedUI()
        registry = MCPRegistry({"shop": server.info}, [ToolConfig("x", ["shop"])])
        with registry.toolset("x") as alias, MCPToolset(server.info, tool_selection=options) as toolset:
            agent = confirming(alias if known_by == "an alias" else toolset, ui, trusted=[server.info])
            agent.chat_generator.replies = [call("look", text="a")] * 4 + [say("done")]

            def change(number: int) -> None:
                if number == 2:
                    server.tools = [definition("look", TEXT)]
                    if known_by == "a listing":
                        toolset.connection.list_tools()
                    else:
                        (alias.toolsets["shop"] if known_by == "an alias" else toolset).refresh()

            agent.chat_generator.before_reply = change
            run(agent)
        assert ui.asked == ["look"] * 3
        assert len(server.calls) == 4

    @pytest.mark.parametrize("kind", ["search", "toolset"])
    def test_a_tool_that_is_added_later_or_found_by_search_also_needs_a_confirmation(self, server, toolset, kind):
        tools = MCPSearchableToolset(toolset, search_threshold=2) if kind == "search" else toolset
        tools.warm_up()
        ui = ScriptedUI(new="reject")
        agent = confirming(tools, ui)
        server.tools = [*server.tools, definition("new", TEXT)]
        toolset.refresh()
        agent.chat_generator.replies = [call("search_tools", tool_keywords="new"), call("new"), say("done")]
        run(agent)
        assert agent.chat_generator.turns[1].tool_names[-1 if kind == "search" else 1] == "new"
        assert (ui.asked, server.calls) == (["new"], [])
        policy = MCPAnnotationPolicy(tools, trusted=[server.info])
        assert [policy.should_ask(name, "", {}) for name in ("look", "silent")] == [False, True]
        with pytest.raises(MCPConfigurationError, match="so they would run unasked"):
            confirmation_strategies_for(MCPSearchableToolset(MCPToolset(COUNTER)), ScriptedUI())

    @in_both_ways
    def test_a_tool_that_changes_during_another_question_also_needs_a_confirmation(self, server, toolset, is_async):
        class Slow(ScriptedUI):
            def get_user_confirmation(self, *question: Any) -> Any:
                server.tools = [definition(name, TEXT) for name in ("look", "silent", "wipe")]
                toolset.connection.list_tools()
                return super().get_user_confirmation(*question)

        ui = Slow(look="reject", silent="reject")
        agent = confirming(
            toolset, ui, trusted=[server.info], replies=calls(*[(n, {}) for n in ("silent", "look", "wipe")])
        )
        run(agent, is_async=is_async)
        assert sorted(ui.asked) == ["look", "silent", "wipe"]
        assert server.calls == [("wipe", {})]


class TestAnswers:
    def test_a_user_declines_edits_and_accepts(self, server, toolset):
        ui = ScriptedUI(look="reject", silent={"text": "edited"})
        agent = confirming(toolset, ui)
        result = run(agent)
        assert result["last_message"].text == "done"
        assert sorted(server.calls) == [("silent", {"text": "edited"}), ("wipe", {"text": "c"})]
        told = agent.chat_generator.turns[1].messages
        assert any("rejected" in each.result for m in told for each in m.tool_call_results if each.error)
        assert any("edited" in (message.text or "") for message in told if message.is_from("user"))

    @pytest.mark.parametrize(
        ("answers", "edited"),
        [(["y"], {}), (["m", None, None, "2"], {"n": 2}), (["m", None, '["q"]', "1"], {"more": ["q"]})],
    )
    def test_the_markup_of_a_rich_console_cannot_hide_text(self, monkeypatch, answers, edited):
        given = iter(answers)
        monkeypatch.setattr(Prompt, "ask", lambda *_, default, **__: next(given) or default)
        console = Console(file=StringIO(), width=200)
        arguments = {"text": "list[int] [/INST] [conceal]rm[/conceal]", "more": ["[conceal]x"], "n": 1}
        strategy = MCPConfirmationStrategy(
            confirmation_policy=AlwaysAskPolicy(), confirmation_ui=RichConsoleUI(console)
        )
        decision = strategy.run(tool_name="run", tool_description="Runs[x].", tool_params=arguments)
        shown = console.file.getvalue()
        assert all(text in shown for text in (arguments["text"], "['[conceal]x']", "Runs[x]."))
        assert decision.final_tool_params == {**arguments, **edited}
        assert str({**arguments, **edited} if edited else None) in str(decision.feedback)

    def test_values_of_the_state_are_shown_to_neither_the_user_nor_the_model(self, server):
        ui = ScriptedUI()
        server.tools = [definition("pay", {"type": "object", "properties": {"text": {}, "who": {}, "key": {}}})]
        inputs, bound = {"pay": {"user": "who"}}, {"pay": {"bound_arguments": {"key": FromState("key")}}}
        with MCPToolset(
            server.info, inputs_from_state=inputs, tool_overrides=bound, tool_options={"max_tool_failures": 2}
        ) as toolset:
            state = {"user": {"type": str}, "key": {"type": str}}
            agent = confirming(toolset, ui, replies=calls(("pay", {"text": "a"})), state_schema=state)
            run(agent, user="C-17", key="K-4711")
        assert ui.shown == [{"text": "a"}]
        assert server.calls == [("pay", {"text": "a", "who": "C-17", "key": "K-4711"})]
        told = agent.chat_generator.turns[1].messages
        assert [each.arguments for message in told for each in message.tool_calls] == [{"text": "a"}]
        assert "C-17" not in repr(told)

    def test_a_model_cannot_hide_arguments_by_the_names_of_hidden_ones(self, server):
        # Haystack 2.31 passes State values like arguments of the model, so only random names can be told apart.
        hidden = {"who": "b", "_mcp_conversation": "c"} if HAS_HOOKS else {}
        ui, given = ScriptedUI(), {"text": "a", f"bound_{0:032}": "d", **hidden}
        server.tools = [definition("pay", {"type": "object", "properties": {"text": {}, "who": {}}})]
        with MCPToolset(server.info, inputs_from_state={"pay": {"user": "who"}}) as toolset:
            agent = confirming(toolset, ui, replies=calls(("pay", given)), state_schema={"user": {"type": str}})
            run(agent, user="C-17")
        assert ui.shown == [given]

    @pytest.mark.skipif(HAS_HOOKS, reason="Haystack 3 asks before it adds State values")
    def test_strategies_from_yaml_with_toolsets_of_their_own_do_not_show_values_of_the_state(self, server):
        ui, bound = ScriptedUI(), {"wipe": {"bound_arguments": {"text": FromState("key")}}}
        used, stored = (MCPToolset(server.info, tool_names=["wipe"], tool_overrides=bound) for _ in range(2))
        how: Any = {"confirmation_strategies": confirmation_strategies_for(stored, ui)}
        with used, stored:
            agent = agent_of(used, calls(("wipe", {})), say("done"), state_schema={"key": {"type": str}}, **how)
            run(agent, key="K-4711")
        assert (ui.shown, server.calls) == ([{}], [("wipe", {"text": "K-4711"})])
        assert "K-4711" not in repr(agent.chat_generator.turns[1].messages)

    @in_both_ways
    def test_arguments_cannot_hide_text_from_the_user(self, server, toolset, is_async):
        text, seen = "hi\U000e0068\x1b[2K\rsafe", r"hi\udb40\udc68\u001b[2K\rsafe"
        edited = {"text": seen, "more": ["other"]}
        alike = {"\u202e": 1, r"\u202e": 2}
        asked = {"text": text, "more": [1, {"k": "x\u202e"}]}
        replies = calls(("silent", asked), ("wipe", {"text": text, "more": alike}))
        ui = ScriptedUI(silent=edited)
        agent = confirming(toolset, ui, replies=replies)
        run(agent, is_async=is_async)
        expected = [{"text": seen, "more": [1, {"k": r"x\u202e"}]}, {"text": seen, "more": str(alike)}]
        assert sorted(map(repr, ui.shown)) == sorted(map(repr, expected))
        wanted = {"text": text, "more": ["other"]}
        assert sorted(server.calls, key=str) == [("silent", wanted), ("wipe", {"text": text, "more": alike})]
        assert any(str(wanted) in (message.text or "") for message in agent.chat_generator.turns[1].messages)

    def test_a_policy_of_haystack_can_be_an_override(self, server, toolset):
        ui = ScriptedUI()
        twice = calls(("wipe", {"text": "c"}), ("wipe", {"text": "c"}))
        run(confirming(toolset, ui, replies=twice, overrides={"wipe": AskOncePolicy()}))
        assert (ui.asked, len(server.calls)) == (["wipe"], 2)


class TestConfiguration:
    def test_strategies_have_a_key_for_each_tool_and_a_cold_toolset_is_refused(self, server, toolset):
        strategies = confirmation_strategies_for(toolset, ScriptedUI(), overrides={"mine": "always"})
        assert list(strategies) == ["look", "silent", "wipe", "mine"]
        assert all(isinstance(strategy, MCPConfirmationStrategy) for strategy in strategies.values())
        with pytest.raises(KeyError):
            strategies["nobody"]
        with pytest.raises(MCPConfigurationError, match=r"Call its warm_up\(\) first, or give it `tool_names`"):
            confirmation_strategies_for([toolset, MCPToolset(COUNTER)], ScriptedUI())
        assert list(confirmation_strategies_for(MCPToolset(COUNTER, tool_names=["add"]), ScriptedUI())) == ["add"]

    def test_an_agent_that_confirms_is_stored(self):
        toolset = MCPToolset(COUNTER, tool_names=["add", "echo"])
        ui = ScriptedUI(echo="reject")
        parameters = {"trusted": ["shop", COUNTER], "overrides": {"add": "never", "echo": AskOncePolicy()}}
        replies = calls(("add", {"a": 1, "b": 2}), ("echo", {"text": "x"}))
        agent = confirming(toolset, ui, replies=replies, **parameters)
        loaded = reloaded(agent)
        results = results_of(run(loaded))
        assert sorted(each.error for each in results) == [False, True]
        assert "3" in [each.result for each in results]
        loaded.tools.close()

    @needs_hooks
    def test_the_hook_ignores_other_tools_and_accepts_other_strategies(self, server, toolset):
        mine = Tool("mine", "", {"type": "object", "properties": {}}, lambda: "fine")
        ui = ScriptedUI()
        agent = confirming([toolset, mine], ui, replies=calls(("mine", {}), ("nobody", {})))
        run(agent)
        assert ui.asked == []
        assert "fine" in agent.chat_generator.turns[1].tool_results
        strategy = confirmation_strategies_for(toolset, ui, ask="always")["look"]
        hook = MCPConfirmationHook(strategy=strategy, overrides={"silent": "never"})
        run(agent_of(toolset, ALL, say("done"), hooks={"before_tool": [hook]}))
        assert sorted(ui.asked) == ["look", "wipe"]
        for arguments in ({}, {"confirmation_ui": ui, "strategy": strategy}):
            with pytest.raises(TypeError, match="pass either a `confirmation_ui` or a `strategy`"):
                MCPConfirmationHook(**arguments)
        with pytest.raises(MCPConfigurationError, match="`strategy` must be an object with the method `run`"):
            MCPConfirmationHook(strategy="console")


async def test_waiting_for_users_does_not_block_threads_of_the_event_loop():
    may_answer, is_asked, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

    class Thinking:
        def get_user_confirmation(self, *_: Any) -> ConfirmationUIResult:
            loop.call_soon_threadsafe(is_asked.set)
            return ConfirmationUIResult("confirm" if may_answer.wait(LIMIT / 2) else "reject")

    loop.set_default_executor(ThreadPoolExecutor(1))
    strategy = MCPConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=Thinking())
    asking = asyncio.create_task(strategy.run_async(tool_name="a", tool_description="", tool_params={}))
    await is_asked.wait()
    await asyncio.to_thread(may_answer.set)
    assert (await asking).execute
