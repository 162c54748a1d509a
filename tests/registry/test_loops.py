# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An alias in a user's own loop around a chat generator, and in `generate`: the behaviours of Data Designer, one by one.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ImageContent, TextContent, ToolCall

from haystack_integrations.tools.mcp import MCPRegistry, MCPToolset, ToolConfig, ToolOptions, call_budget
from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError, MCPConfigurationError, MCPToolFailedError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.registry import MCPFacade, conversation_trace
from tests.servers import inprocess
from tests.support.executors import recorded_traces
from tests.support.foreign_server import PIXEL, ForeignServer, definition
from tests.support.in_process import COUNTER
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say
from tests.support.waiting import LIMIT, wait_until_async

MATH = ["add", "echo", "fail", "sleep"]


@pytest.fixture
def registry() -> Iterator[MCPRegistry]:
    configs = [
        ToolConfig("math", ["counter"], MATH, max_tool_call_turns=2),
        ToolConfig("hasty", ["counter"], MATH, timeout_sec=1.5),
    ]
    inprocess.calls.clear()
    with MCPRegistry({"counter": COUNTER}, configs) as registry:
        yield registry


@pytest.fixture
def mcp(registry: MCPRegistry) -> MCPFacade:
    return registry.get_mcp("math")


def results(messages: list[ChatMessage]) -> list[str]:
    return [result.result for message in messages for result in message.tool_call_results]


def errors(messages: list[ChatMessage]) -> list[bool]:
    return [result.error for message in messages for result in message.tool_call_results]


def test_a_facade_has_the_settings_of_the_configuration(registry, mcp):
    assert (mcp.tool_alias, mcp.providers, mcp.allow_tools) == ("math", ["counter"], MATH)
    assert (mcp.max_tool_call_turns, mcp.timeout_sec) == (2, None)
    assert registry.get_mcp("hasty").timeout_sec == 1.5
    assert mcp.get_tool_schemas() == registry.tool_schemas("math")
    assert [tool.name for tool in mcp.tools] == ["add", "echo", "fail", "sleep"]


def test_schemas_are_in_the_format_of_openai_even_without_a_description():
    server = ForeignServer(definition("brief", description="brief"), definition("silent"))
    with MCPRegistry({"a": server.info}, [ToolConfig("x", ["a"])]) as registry:
        brief, schema = registry.get_mcp("x").get_tool_schemas()
    assert brief["function"]["description"] == "brief"
    parameters = {"type": "object", "properties": {}}
    function = {"name": "silent", "description": "", "parameters": parameters}
    assert schema == {"type": "function", "function": function}


@rows("wrap", lambda reply: reply, lambda reply: [reply], lambda reply: {"replies": [reply]})
def test_the_calls_of_a_reply_are_counted_in_every_form_of_reply(mcp, wrap):
    assert mcp.tool_call_count(wrap(calls(("add", {}), ("echo", {})))) == 2
    assert not mcp.has_tool_calls(wrap(say("x")))
    assert mcp.process_completion_response(wrap(say("x"))) == [say("x")]
    for nothing in ([], {"replies": []}):
        with pytest.raises(TypeError, match="A reply must be a ChatMessage"):
            mcp.has_tool_calls(nothing)


def test_calls_run_at_the_same_time_and_keep_their_order(mcp):
    reply = calls(*[("sleep", {"seconds": 1.0})] * 5, ("echo", {"text": "hi"}))
    messages = mcp.process_completion_response(reply)
    slept = [event for event in inprocess.calls if event.startswith("sleep")]
    assert slept == ["sleep"] * 5 + ["sleep-finished"] * 5
    assert messages[0] is reply
    assert results(messages) == ["slept 1.0 s"] * 5 + ["hi"]
    assert [message.tool_call_results[0].origin.id for message in messages[1:]] == [f"call_{n}" for n in range(6)]


def test_the_model_gets_the_error_of_a_call_and_other_calls_are_not_affected(registry):
    add, slow = ("add", {"a": 1, "b": 2}), ("sleep", {"seconds": 30})
    reply = calls(("pid", {}), ("fail", {"message": "broken"}), slow, add, add)
    with call_budget(max_calls_per_tool={"add": 1}) as budget:
        messages = registry.get_mcp("hasty").process_completion_response(reply)
    assert sorted(errors(messages)) == [False, True, True, True, True]
    assert (budget.calls, budget.refused) == (3, 1)
    unknown, failed, late, *added = results(messages)
    assert "Tool 'pid' not found" in unknown
    assert "broken" in failed
    assert "timed out after 1.5 seconds" in late
    assert "raise `timeout_sec`" in late
    assert "3" in added


def test_calls_are_refused_with_an_answer_for_each(mcp):
    reply = calls(("add", {"a": 1, "b": 2}), ("echo", {"text": "x"}))
    with recorded_traces(content=True) as traces:
        messages = mcp.refuse_completion_response(reply)
    assert messages[0] is reply
    assert errors(messages) == [True, True]
    assert "The call of 'echo' was refused: the limit of 2 turns of tool calls is reached" in results(messages)[1]
    assert inprocess.calls == []
    assert traces.names.count("haystack.mcp.tool_call.refused") == 2


async def test_a_facade_works_asynchronously(mcp):
    assert len(await mcp.get_tool_schemas_async()) == 4
    messages = await mcp.process_completion_response_async(calls(("add", {"a": 1, "b": 2})))
    assert results(messages) == ["3"]
    assert "max_tool_call_turns=2" in repr(mcp)


@rows("is_async", False, True)
def test_other_calls_of_a_reply_end_before_a_call_ends_the_run(is_async):
    async def second(call: Any, call_next: Any) -> Any:
        if call.name == "fail":
            await wait_until_async(lambda: "sleep" in inprocess.calls, "the other call")
        return await call_next(call)

    inprocess.calls.clear()
    tools = MCPToolset(COUNTER, tool_options=ToolOptions(on_tool_error="raise"), interceptors=[second])
    with MCPRegistry({"a": tools}, [ToolConfig("x", ["a"])]) as registry:
        mcp = registry.get_mcp("x")
        reply = calls(("fail", {"message": "broken"}), ("sleep", {"seconds": 0.5}))
        with pytest.raises(MCPToolFailedError):
            if is_async:
                asyncio.run(mcp.process_completion_response_async(reply))
            else:
                mcp.process_completion_response(reply)
    assert sorted(inprocess.calls) == ["fail", "sleep", "sleep-finished"]


def test_output_and_messages_are_returned_and_traced_in_the_format_of_openai(registry):
    generator = ScriptedChatGenerator([call("add", a=1, b=2), say('{"sum": 3}')])
    generated = registry.generate(
        generator, "How much?", tool_alias="math", parser=json.loads, system_prompt="Be brief."
    )
    output, messages = generated
    assert output == {"sum": 3}
    assert generator.turns[0].tool_names == MATH
    trace = json.loads(json.dumps(conversation_trace(generated)))
    assert [message["role"] for message in trace] == ["system", "user", "assistant", "tool", "assistant"]
    assert trace[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    assert trace[3] == {"role": "tool", "tool_call_id": "call_0", "content": "3"}
    assert trace == conversation_trace(messages) == conversation_trace({"messages": messages})
    with pytest.raises(TypeError, match="A conversation must be a list of ChatMessages"):
        conversation_trace("text")


@rows("is_async", False, True)
def test_turns_over_the_limit_are_refused_and_the_model_may_answer(registry, is_async):
    inprocess.calls.clear()
    generator = ScriptedChatGenerator([*[call("echo", text=text) for text in "abc"], say("well")])
    if is_async:
        output, messages = asyncio.run(registry.generate_async(generator, "go", tool_alias="math"))
    else:
        output, messages = registry.generate(generator, "go", tool_alias="math")
    assert output == "well"
    assert errors(messages) == [False, False, True]
    assert inprocess.calls == ["echo", "echo"]


def test_a_model_that_keeps_calling_is_stopped(registry):
    generator = ScriptedChatGenerator([call("echo", text="x")] * 20)
    with pytest.raises(MCPBudgetExceededError, match=r"'math' was stopped.* after 2 turns") as raised:
        registry.generate(generator, "go", tool_alias="math")
    assert len(generator.turns) == 4
    assert inprocess.calls == ["echo", "echo"]
    assert errors(raised.value.messages) == [False, False, True]


def test_a_tool_choice_applies_to_the_first_turn_only(registry):
    kwargs = {"tool_choice": "required", "temperature": 0}
    generator = ScriptedChatGenerator([call("add", a=1, b=2), say("3")])
    registry.generate(generator, "go", tool_alias="math", generation_kwargs=kwargs)
    assert generator.generation_kwargs == [kwargs, {"temperature": 0}]


def test_errors_of_the_parser_and_the_generator_are_raised(registry):
    with pytest.raises(json.JSONDecodeError):
        registry.generate(ScriptedChatGenerator([say("no JSON")]), "go", parser=json.loads)
    with pytest.raises(MCPConfigurationError, match="no alias 'maths'"):
        registry.generate(ScriptedChatGenerator([]), "go", tool_alias="maths")


def test_the_agent_of_an_alias_respects_the_limit_of_turns(registry):
    generator = ScriptedChatGenerator([call("add", a=1, b=1)] * 9)
    agent = registry.agent("math", generator, system_prompt="Be brief.")
    agent.run(messages=[ChatMessage.from_user("go")])
    assert len(generator.turns) == (4 if HAS_HOOKS else 3)
    assert inprocess.calls == ["add"] * (2 if HAS_HOOKS else 3)
    assert agent.tools is registry.toolset("math")
    with pytest.raises(MCPConfigurationError, match="the tools come from the alias"):
        registry.agent("math", generator, tools=[])


@pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no hooks that refuse calls")
def test_the_stored_agent_of_an_alias_answers_after_its_turns(registry):
    generator = ScriptedChatGenerator([*[call("add", a=1, b=1)] * 3, say("well")])
    agent = Agent.from_dict(yaml.safe_load(yaml.safe_dump(registry.agent("math", generator).to_dict())))
    with agent.tools:
        messages = agent.run(messages=[ChatMessage.from_user("go")])["messages"]
    assert messages[-1].text == "well"
    assert errors(messages) == [False, False, True]
    assert inprocess.calls == ["add"] * 2


async def test_synchronous_generators_run_concurrently_in_other_threads(registry):
    together = threading.Barrier(2)
    threads: list[threading.Thread] = []

    class Blocking:
        def warm_up(self):
            threads.append(threading.current_thread())

        def run(self, messages, tools=None):
            threads.append(threading.current_thread())
            together.wait(LIMIT)
            return {"replies": [say(f"{len(messages)} message, {len(tools)} tools")]}

    generating = (registry.generate_async(Blocking(), "go", tool_alias="math") for _ in range(2))
    assert [output for output, _ in await asyncio.gather(*generating)] == ["1 message, 4 tools"] * 2
    assert len(threads) == 4
    assert threading.current_thread() not in threads


async def test_a_generator_is_warmed_up_in_the_loop_if_it_can_and_has_no_tools_without_an_alias(registry):
    class Warm:
        is_warm = False

        async def warm_up_async(self):
            self.is_warm = True

        async def run_async(self, messages, tools=None):
            return {"replies": [say(f"warm: {self.is_warm}, tools: {tools}")]}

    assert (await registry.generate_async(Warm(), "go"))[0] == "warm: True, tools: None"


def test_a_reply_without_content_can_be_traced():
    for reply in (ChatMessage.from_assistant(), ChatMessage.from_assistant(reasoning="Hm.")):
        assert conversation_trace([reply]) == [{"role": "assistant", "content": ""}]


def test_a_trace_has_a_remark_in_place_of_an_image_in_a_result():
    parts = [TextContent("A dot:"), ImageContent(PIXEL, mime_type="image/png")]
    [traced] = conversation_trace([ChatMessage.from_tool(parts, origin=ToolCall("draw", {}, id="1"))])
    assert traced == {"role": "tool", "tool_call_id": "1", "content": "A dot:\n[ImageContent]"}
