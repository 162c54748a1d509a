# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tools that fail while an Agent runs: how often they are called, and whether that ends the run.
"""

import asyncio
import copy
from typing import Any

import pytest
import yaml
from haystack.components.agents import Agent
from haystack.core.errors import PipelineRuntimeError
from haystack.dataclasses import ChatMessage
from mcp import types

from haystack_integrations.components.tools.mcp import MCPToolCaller
from haystack_integrations.tools.mcp import (
    MCPInvocationError,
    MCPRegistry,
    MCPTool,
    MCPToolset,
    ToolConfig,
    ToolOptions,
    call_budget,
)
from haystack_integrations.tools.mcp.errors import MCPToolFailedError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.support.executors import agent_of, by_agent, in_both_ways
from tests.support.executors import run as run_agent
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

GO = [ChatMessage.from_user("go")]
BROKEN = "Failed to invoke Tool `f`: broken"
TWICE = "This tool has failed 2 times in a row. Do not call it again in this run: answer with what you have."


class FailingServer(ForeignServer):
    """
    Fails with every call whose number is not in `good`.
    """

    def __init__(self, *good: int) -> None:
        self.good = good
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        super().__init__(definition("f", schema), definition("g", schema))

    async def _call_tool(self, context: Any, params: Any) -> types.CallToolResult:
        is_good = len(self.calls) + 1 in self.good
        self.answer = text_result("fine") if is_good else text_result("broken", is_error=True)
        return await super()._call_tool(context, params)


def agent(tools: Any, *replies: ChatMessage, raises: bool = False) -> Agent:
    return agent_of(tools, *replies, say("done"), raise_on_tool_invocation_failure=raises)


def run(agent: Agent, is_async: bool = False, messages: list[ChatMessage] = GO) -> list[ChatMessage]:
    return run_agent(agent, is_async=is_async, messages=messages)["messages"]


def told(messages: list[ChatMessage]) -> list[tuple[Any, bool]]:
    return [(each.result, each.error) for message in messages for each in message.tool_call_results]


def error_of(run_of_agent: Any) -> BaseException:
    # An Agent of Haystack 2 raises its own error, whose cause is the tool's error.
    with pytest.raises(Exception, match="broken") as raised:
        run_of_agent()
    error: BaseException = raised.value
    while isinstance(error, PipelineRuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


class TestLimit:
    @in_both_ways
    @pytest.mark.parametrize(
        ("on_tool_error", "result_format"), [("agent", None), ("model", "json"), ("model", "content")]
    )
    def test_a_tool_that_fails_too_often_is_no_longer_called(self, is_async, on_tool_error, result_format):
        how = ToolOptions(max_tool_failures=2, on_tool_error=on_tool_error, result_format=result_format)
        server = FailingServer()
        with MCPToolset(server.info, tool_options=how) as toolset:
            messages = run(agent(toolset, *[call("f", n=n) for n in range(4)], call("g")), is_async)
        assert [name for name, _ in server.calls] == ["f", "f", "g"]
        said = [("broken" in text, "2 times in a row" in text) for text, _ in told(messages)]
        assert said == [(True, False), (True, True), (False, True), (False, True), (True, False)]
        if on_tool_error == "agent":
            assert told(messages)[:3] == [(BROKEN, True), (f"{BROKEN}\n{TWICE}", True), (TWICE, True)]

    @in_both_ways
    def test_a_successful_call_or_a_new_run_resets_the_count(self, is_async):
        server = FailingServer(2, 5)
        with MCPToolset(server.info, tool_options=ToolOptions(max_tool_failures=2)) as toolset:
            first = run(agent(toolset, *[call("f")] * 9), is_async)
            assert len(server.calls) == 4
            run(agent(toolset, *[call("f")] * 4), is_async, [*first, *GO])
        assert len(server.calls) == 7

    async def test_overlapping_runs_of_one_agent_are_counted_separately(self):
        server = FailingServer()
        with MCPToolset(server.info, tool_options=ToolOptions(max_tool_failures=2)) as toolset:
            one = agent_of(toolset, *[call("f")] * 6, say("done"), say("done"))
            generator = one.chat_generator
            reply = generator._next
            both_asked = asyncio.Barrier(2)

            async def in_step(messages: Any, *_: Any, tools: Any = None, **__: Any) -> dict[str, Any]:
                await asyncio.wait_for(both_asked.wait(), 30)
                return {"replies": [reply(messages, tools)]}

            generator.run_async = in_step
            ran = await asyncio.gather(*[one.run_async(messages=GO) for _ in range(2)])
        assert len(server.calls) == 4
        for each in ran:
            assert told(each["messages"])[-1] == (TWICE, True)

    def test_refused_calls_do_not_count_as_failed(self):
        server = FailingServer()
        with (
            MCPToolset(server.info, tool_options=ToolOptions(max_tool_failures=3)) as toolset,
            call_budget(max_calls_per_tool={"f": 1}),
        ):
            messages = run(agent(toolset, *[call("f")] * 5))
        assert len(server.calls) == 1
        assert all("in a row" not in text for text, _ in told(messages))

    def test_the_limit_applies_to_single_tools_with_arguments_from_the_state(self):
        server = FailingServer()
        state = {"inputs_from_state": {"f": {"messages": "n"}}} if HAS_HOOKS else {}
        with MCPToolset(server.info, tool_overrides={"f": {"max_tool_failures": 1, "name": "ff"}}, **state) as toolset:
            run(agent(toolset, *[call("ff")] * 3))
        assert len(server.calls) == 1
        tool = MCPTool("f", server.info, tool_options=ToolOptions(max_tool_failures=1))
        run(agent([tool], *[call("f")] * 3))
        tool.close()
        assert [arguments for _, arguments in server.calls[1:]] == [{}]

    @in_both_ways
    def test_the_limit_applies_in_other_event_loops(self, is_async):
        server = FailingServer()
        toolset = MCPToolset(server.info, tool_options=ToolOptions(max_tool_failures=2))
        with toolset:
            caller, messages = MCPToolCaller(toolset), [*GO]
            for _ in range(4):
                pending = {"messages": [*messages, call("f")]}
                done = asyncio.run(caller.run_async(**pending)) if is_async else caller.run(**pending)
                messages = done["messages"]
        assert len(server.calls) == 2
        generator = ScriptedChatGenerator([*[call("f")] * 4, say("done")])
        with MCPRegistry({"p": toolset}, [ToolConfig("x", ["p"])]) as registry:
            given = {"prompt": "go", "tool_alias": "x", "chat_generator": generator}
            asyncio.run(registry.generate_async(**given)) if is_async else registry.generate(**given)
        assert len(server.calls) == 4


class TestHandlingOfErrors:
    @in_both_ways
    @pytest.mark.parametrize("raises", [True, False])
    def test_toolsets_of_one_agent_may_handle_errors_differently(self, is_async, raises):
        servers = [FailingServer(), FailingServer()]
        for server in servers:
            server.tools = server.tools[:1]
        lenient = MCPToolset(servers[0].info, tool_name_prefix="a", tool_options=ToolOptions(on_tool_error="model"))
        strict = MCPToolset(servers[1].info, tool_name_prefix="b", tool_options=ToolOptions(on_tool_error="raise"))
        with lenient, strict:
            messages = run(agent([lenient, strict], call("a_f"), raises=raises), is_async)
            assert told(messages) == [("[This tool call failed] Failed to invoke Tool `a_f`: broken", False)]
            error = error_of(lambda: run(agent([lenient, strict], call("b_f"), raises=raises), is_async))
            assert isinstance(error, MCPToolFailedError)
            assert (str(error), error.tool_name) == ("Failed to invoke Tool `b_f`: broken", "b_f")
            assert type(error.__cause__) is MCPInvocationError
            assert copy.copy(error).tool_name == "b_f"
            with pytest.raises(MCPInvocationError):
                strict["b_f"].call()
            with pytest.raises(MCPToolFailedError):
                MCPToolCaller([strict]).run(messages=[call("b_f")])

    @in_both_ways
    def test_the_agent_handles_errors_by_default(self, is_async):
        with MCPToolset(FailingServer().info) as toolset:
            assert told(run(agent(toolset, call("f")), is_async)) == [(BROKEN, True)]
            assert type(error_of(lambda: run(agent(toolset, call("f"), raises=True), is_async))) is MCPInvocationError

    def test_result_handlers_and_the_state_do_not_get_failures(self):
        shown = {"source": "docs", "handler": lambda docs: ", ".join(each["title"] for each in docs)}
        how, state = ToolOptions(on_tool_error="model"), {"found": {"source": "result"}}
        for output in (shown, {"titles": shown}):
            outputs = {"outputs_to_string": output, "outputs_to_state": state}
            with MCPTool("f", FailingServer().info, tool_options=how, **outputs) as tool:
                outcome = by_agent([tool], ("f", {}), state_schema={"found": {"type": str}})
            assert "[This tool call failed] Failed to invoke Tool `f`: broken" in outcome.result
            assert not outcome.state["found"]

    @rows(
        ("outputs", "result_format", "is_text"),
        ({"raw_result": True}, None, False),
        ({"source": "docs"}, None, True),
        ({"titles": {"source": "docs"}}, None, True),
        (None, "json", False),
    )
    def test_a_message_with_a_failure_can_be_written_to_yaml_and_has_text_unless_json_is_wanted(
        self, outputs, result_format, is_text
    ):
        how = ToolOptions(on_tool_error="model", result_format=result_format)
        with MCPTool("f", FailingServer().info, tool_options=how, outputs_to_string=outputs) as tool:
            messages = run(agent([tool], call("f"), raises=True))
        written = yaml.safe_dump([message.to_dict() for message in messages], width=1000)
        assert BROKEN in written
        assert ("isError" not in written) is is_text
