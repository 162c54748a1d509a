# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A conversation as a trace, and in numbers.
"""

import json

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ImageContent, TextContent, ToolCall

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPRegistry, ToolConfig, call_budget
from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.registry import MCPToolUsage, conversation_trace, tool_usage
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say

if HAS_HOOKS:
    from haystack.hooks.human_in_the_loop import (
        AlwaysAskPolicy,
        BlockingConfirmationStrategy,
        ConfirmationHook,
        ConfirmationUIResult,
    )
else:
    from haystack.human_in_the_loop import AlwaysAskPolicy, BlockingConfirmationStrategy, ConfirmationUIResult

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@pytest.fixture
def registry():
    with MCPRegistry({"a": COUNTER}, [ToolConfig("x", ["a"], ["add", "fail"], 1)]) as registry:
        yield registry


def test_a_generation_is_traced_in_the_format_of_openai(registry):
    generator = ScriptedChatGenerator([call("add", a=1, b=2), say("3")])
    generated = registry.generate(generator, "How much?", tool_alias="x")
    trace = json.loads(json.dumps(conversation_trace(generated)))
    assert [message["role"] for message in trace] == ["user", "assistant", "tool", "assistant"]
    assert trace[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    assert trace[2] == {"role": "tool", "tool_call_id": "call_0", "content": "3"}
    assert conversation_trace(generated, scope="last") == trace[-1:]


def test_an_agents_run_is_traced_as_haystack_stores_messages(registry):
    generator = ScriptedChatGenerator([call("fail", message="broken"), say("sorry")])
    result = registry.agent("x", generator).run(messages=[ChatMessage.from_user("go")])
    trace = json.loads(json.dumps(conversation_trace(result, format="haystack")))
    assert [ChatMessage.from_dict(message) for message in trace] == result["messages"]
    assert tool_usage(result) == MCPToolUsage(
        tool_calls=1, tool_call_turns=1, failed_calls=1, calls_by_tool={"fail": 1}
    )


def test_an_image_in_a_result_has_a_remark_in_its_place():
    origin = ToolCall("draw", {}, id="1")
    parts = [TextContent("A dot:"), ImageContent(PIXEL, mime_type="image/png")]
    [traced] = conversation_trace([ChatMessage.from_tool(parts, origin=origin)])
    assert traced == {"role": "tool", "tool_call_id": "1", "content": "A dot:\n[image, image/png]"}


def test_calls_turns_and_refusals_are_counted(registry):
    mcp = registry.get_mcp("x")
    first, second, third = (calls(("add", {"a": 1, "b": 2}), ("fail", {"message": "x"})) for _ in range(3))
    messages = [ChatMessage.from_user("go"), *mcp.process_completion_response(first)]
    messages += mcp.refuse_completion_response(second)
    messages += mcp.refuse_completion_response(third)
    assert tool_usage([*messages, say("well")]) == MCPToolUsage(
        tool_calls=6, tool_call_turns=3, refused_calls=4, failed_calls=1, calls_by_tool={"add": 3, "fail": 3}
    )


def test_what_a_call_budget_refused_did_not_fail(registry):
    adds = calls(*[("add", {"a": 1, "b": 2})] * 2, ("fail", {"message": "the limit of it is reached"}))
    agent = registry.agent("x", ScriptedChatGenerator([adds, say("sorry")]))
    with call_budget(max_calls_per_tool={"add": 1}):
        usage = tool_usage(agent.run(messages=[ChatMessage.from_user("go")]))
    assert (usage.tool_calls, usage.refused_calls, usage.failed_calls) == (3, 1, 1)
    # In a loop of one's own, whatever the model is told.
    with call_budget(max_calls=0, refusal_message="No."):
        usage = tool_usage(registry.get_mcp("x").process_completion_response(adds))
    assert (usage.tool_calls, usage.refused_calls, usage.failed_calls) == (3, 3, 0)


def test_what_a_user_declined_did_not_fail(registry):
    class Declines:
        def get_user_confirmation(self, *_, **__):
            return ConfirmationUIResult("reject", "not now")

    asks = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=Declines())
    strategies = {"add": asks}
    approving = (
        {"hooks": {"before_tool": [ConfirmationHook(strategies)]}}
        if HAS_HOOKS
        else {"confirmation_strategies": strategies}
    )
    replies = [calls(("add", {"a": 1, "b": 2}), ("fail", {"message": "broken"})), say("sorry")]
    agent = registry.agent("x", ScriptedChatGenerator(replies), **approving)
    usage = tool_usage(agent.run(messages=[ChatMessage.from_user("go")]))
    assert (usage.tool_calls, usage.declined_calls, usage.failed_calls) == (2, 1, 1)


@pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no hooks")
def test_a_reply_of_which_some_calls_were_refused_is_one_turn(registry):
    from haystack_integrations.hooks.mcp import MCPCallBudgetHook

    generator = ScriptedChatGenerator([calls(*[("add", {"a": 1, "b": 2})] * 3), say("well")])
    hooks = {"before_tool": [MCPCallBudgetHook(max_calls=1)]}
    agent = Agent(chat_generator=generator, tools=registry.toolset("x"), hooks=hooks)
    usage = tool_usage(agent.run(messages=[ChatMessage.from_user("go")]))
    assert (usage.tool_calls, usage.tool_call_turns, usage.refused_calls) == (3, 1, 2)


def test_what_is_no_conversation_is_refused():
    with pytest.raises(TypeError, match="A conversation must be a list of ChatMessages"):
        conversation_trace("text")  # type: ignore[arg-type]
    with pytest.raises(MCPConfigurationError, match="`format` must be one of 'openai', 'haystack', got 'xml'"):
        conversation_trace([], format="xml")  # type: ignore[arg-type]
    assert conversation_trace([]) == []
