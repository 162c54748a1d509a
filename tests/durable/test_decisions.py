# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Decisions of persons are recorded. No person is asked twice, because a "no" to the second question would not show
whether the call has already run.
"""

from typing import Any

import pytest
from haystack import Document
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool

from haystack_integrations.hooks.mcp import MCPConfirmationStrategy, confirmation_strategies_for
from haystack_integrations.tools.mcp import FromState, MCPToolset
from haystack_integrations.tools.mcp.durable import RunJournal
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.hooks.test_confirmation import ScriptedUI, needs_hooks
from tests.support.foreign_server import ForeignServer, definition
from tests.support.scripted_chat import ScriptedChatGenerator, calls, say

if HAS_HOOKS:
    from haystack.hooks.human_in_the_loop.dataclasses import ToolExecutionDecision

    from haystack_integrations.hooks.mcp import MCPConfirmationHook

GO = [ChatMessage.from_user("go")]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}, "card": {"type": "string"}}}
STEP = calls(("look", {"text": "a", "left": ["as it was\u200b"]}), ("wipe", {"text": "b"}), ("keep", {"text": "c"}))


@pytest.fixture
def server() -> ForeignServer:
    return ForeignServer(*(definition(name, TEXT) for name in ("look", "wipe", "keep")))


def continued(
    journal: RunJournal, tools: Any, ui: ScriptedUI, replies: list[ChatMessage], name: str = "generator"
) -> list[str]:
    """Continue a run, and return the texts of all its messages."""
    how: dict[str, Any]
    if HAS_HOOKS:
        how = {"hooks": {"before_tool": [MCPConfirmationHook(ui)]}}
    else:
        how = {"confirmation_strategies": confirmation_strategies_for(tools, ui)}
    generator = journal.generator(ScriptedChatGenerator(replies), name)
    agent = Agent(chat_generator=generator, tools=tools, state_schema={"card": {"type": str}}, **how)
    with journal.run("run"):
        messages = agent.run(messages=GO, card="card-of-ann-4929")["messages"]
    told = [result.result for message in messages for result in message.tool_call_results]
    return [*filter(None, (message.text for message in messages)), *told]


def test_a_continued_run_does_not_ask_again(server, journal, tmp_path):
    card = {name: {"bound_arguments": {"card": FromState("card")}} for name in ("look", "wipe", "keep")}
    with MCPToolset(server.info, tool_overrides=card) as tools:
        first = ScriptedUI(wipe="reject", look={"text": "edited", "left": [r"as it was\u200b"]})
        with pytest.raises(Exception, match="the script has only 1 replies"):
            continued(journal, tools, first, [STEP])
        assert sorted(first.asked) == ["keep", "look", "wipe"]
        sent = sorted((name, arguments["text"]) for name, arguments in server.calls)
        assert sent == [("keep", "c"), ("look", "edited")]
        later = ScriptedUI(keep="reject")
        said = continued(journal, tools, later, [say("done")])
        assert later.asked == []
        assert any("rejected" in text for text in said)
        assert any("user" in text and "edited" in text for text in said)
        assert continued(journal, tools, later, []) == said
    assert len(server.calls) == 2
    entries = journal.calls("run")
    kinds = [entry.place.kind for entry in entries]
    assert [kinds.count(kind) for kind in ("reply", "decision", "call")] == [2, 3, 2]
    journal.close()
    assert b"card-of-ann" not in b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))


def test_a_decision_about_the_call_of_one_agent_is_not_taken_for_that_of_another(server, journal):
    with MCPToolset(server.info) as tools:
        for name in ("one", "two"):  # in a concurrent pipeline, either may come first
            ui = ScriptedUI()
            continued(journal, tools, ui, [calls(("wipe", {"text": name})), say("done")], name)
            assert ui.asked == ["wipe"]


@pytest.mark.skipif(HAS_HOOKS, reason="Haystack 3 adds values of the State after asking")
def test_values_of_the_state_are_not_recorded_with_edited_arguments(journal, tmp_path):
    from haystack.human_in_the_loop import AlwaysAskPolicy

    paid = []
    tool = Tool(
        name="pay",
        description="",
        parameters={"type": "object", "properties": {"amount": {"type": "integer"}}},
        function=lambda amount, documents, card: f"paid {paid.append((amount, *documents, card))}",
        inputs_from_state={"documents": "documents", "card": "card"},
    )
    invoice = Document("invoice-of-ann-4929")
    state = {"documents": [invoice], "card": "card-of-ann-4929"}
    for script in ([calls(("pay", {"amount": 5})), say("done")], []):
        ui = ScriptedUI(pay={"amount": 7, **state})
        strategies = {"pay": MCPConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=ui)}
        agent = Agent(
            chat_generator=journal.generator(ScriptedChatGenerator(script)),
            tools=journal.tools([tool]),
            state_schema={"documents": {"type": list}, "card": {"type": str}},
            confirmation_strategies=strategies,
        )
        with journal.run("run"):
            agent.run(messages=GO, **state)
    assert paid == [(7, invoice, "card-of-ann-4929")]
    journal.close()
    assert b"of-ann" not in b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))


@needs_hooks
@pytest.mark.parametrize("is_async", [False, True])
async def test_decisions_of_a_custom_strategy_are_recorded(server, journal, is_async):
    class Strategy:
        def __init__(self) -> None:
            self.asked = 0

        def run(self, **question: Any) -> Any:
            self.asked += 1
            return ToolExecutionDecision(question["tool_name"], False, question["tool_call_id"], "not today")

        async def run_async(self, **question: Any) -> Any:
            return self.run(**question)

    with MCPToolset(server.info) as tools:
        for strategy in (first := Strategy(), later := Strategy()):
            generator = journal.generator(ScriptedChatGenerator([STEP, say("done")] if strategy is first else []))
            hook = MCPConfirmationHook(strategy=strategy)
            agent = Agent(chat_generator=generator, tools=tools, hooks={"before_tool": [hook]})
            async with journal.run("run"):
                result = await agent.run_async(messages=GO) if is_async else agent.run(messages=GO)
            assert str(result["messages"]).count("not today") == 3
        assert (first.asked, later.asked) == (3, 0)
    assert server.calls == []
