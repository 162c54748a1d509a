# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What NeMo Data Designer does with MCP, one behaviour a test, with our answer where it differs.
"""

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, ToolCall
from mcp import types

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    LocalStdioMCPProvider,
    MCPBudgetExceededError,
    MCPConfigurationError,
    MCPConnectionError,
    MCPError,
    MCPInvocationError,
    MCPProvider,
    MCPRegistry,
    MCPToolNotFoundError,
    MCPToolUsage,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    ToolConfig,
    conversation_trace,
    tool_usage,
)
from tests.support.foreign_server import ForeignServer, definition
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")
DOWN = StdioServerInfo("no-such-command", max_retries=0)


@pytest.fixture
def server() -> ForeignServer:
    return ForeignServer(definition("look"), definition("wipe"))


@pytest.fixture
def registry(server: ForeignServer) -> Iterator[MCPRegistry]:
    configs = [
        ToolConfig("all", ["foreign"], max_tool_call_turns=1),
        ToolConfig("looking", ["foreign"], ["look"]),
        ToolConfig("nothing", ["foreign"], []),
        ToolConfig("math", ["counter"], ["add", "sleep", "fail"], timeout_sec=1.0),
    ]
    with MCPRegistry({"foreign": server.info, "counter": COUNTER}, configs) as registry:
        yield registry


def told(messages: list[ChatMessage]) -> list[tuple[str, bool]]:
    return [(each.result, each.error) for message in messages for each in message.tool_call_results]


class TestConfiguration:
    def test_providers_are_told_apart_by_their_type(self):
        remote = {"name": "remote", "endpoint": "http://localhost:8080/sse", "api_key": "k"}
        local = {"name": "local", "command": "python", "args": ["-m", "demo"], "env": {"PYTHONPATH": "/p"}}
        assert MCPProvider(**remote).provider_type == "sse"
        assert LocalStdioMCPProvider(**local).provider_type == "stdio"
        stored = [
            {**remote, "provider_type": "sse"},
            {**remote, "name": "http", "provider_type": "streamable_http"},
            {**local, "provider_type": "stdio"},
        ]
        kinds = [type(each) for each in MCPRegistry(stored).providers.values()]
        assert kinds == [SSEServerInfo, StreamableHttpServerInfo, StdioServerInfo]

    def test_a_tool_config_has_the_same_fields_and_defaults(self):
        config = ToolConfig(tool_alias="search-tools", providers=["docs", "web"])
        assert dataclasses.asdict(config) == {
            "tool_alias": "search-tools",
            "providers": ["docs", "web"],
            "allow_tools": None,
            "max_tool_call_turns": 5,
            "timeout_sec": None,
            "prefix": "never",  # is not there
        }

    def test_an_empty_list_allows_nothing_and_not_everything(self, registry):
        assert registry.tool_schemas("nothing") == []

    def test_a_mistake_is_said_at_construction_and_not_at_the_first_use(self):
        twice = [ToolConfig("x", ["a"]), ToolConfig("x", ["a"])]
        for configs, reason in (
            (twice, "two tool configs with the alias 'x'"),  # there, the later one counts
            ([ToolConfig("x", ["b"])], "unknown provider 'b'. Known providers: a"),
        ):
            with pytest.raises(MCPConfigurationError, match=reason):
                MCPRegistry({"a": COUNTER}, configs)
        with pytest.raises(MCPConfigurationError, match="two providers"):
            MCPRegistry([MCPProvider("a", "http://h/sse"), MCPProvider("a", "http://h/sse")])

    def test_schemas_are_in_the_format_of_openai_also_of_tools_that_say_nothing(self, registry):
        [schema] = registry.get_mcp("looking").get_tool_schemas()
        parameters = {"type": "object", "properties": {}}
        function = {"name": "look", "description": "", "parameters": parameters}
        assert schema == {"type": "function", "function": function}

    def test_a_name_that_two_providers_share_is_an_error_only_if_both_are_allowed(self, server):
        other = ForeignServer(definition("look"))
        configs = [ToolConfig("both", ["a", "b"]), ToolConfig("one", ["a", "b"], ["wipe"])]
        with MCPRegistry({"a": server.info, "b": other.info}, configs) as registry:
            with pytest.raises(MCPConfigurationError, match="the providers 'a' and 'b' both have a tool named 'look'"):
                registry.tool_schemas("both")
            assert [each["function"]["name"] for each in registry.tool_schemas("one")] == ["wipe"]

    def test_an_allowed_tool_that_is_missing_is_an_error_with_the_closest_name(self, server):
        with (
            MCPRegistry({"a": server.info}, [ToolConfig("x", ["a"], ["lok"])]) as registry,
            pytest.raises(MCPToolNotFoundError, match=r"`allow_tools` has 'lok'.* Did you mean 'look'"),
        ):
            registry.tool_schemas("x")


class TestGeneration:
    def test_the_turn_after_the_last_is_refused_with_an_answer_for_each_call(self, registry, server):
        replies = [call("look"), calls(("look", {}), ("wipe", {})), say("well")]
        output, messages = registry.generate(ScriptedChatGenerator(replies), "go", tool_alias="all")
        assert (output, server.calls) == ("well", [("look", {})])
        assert messages[3] is replies[1]
        assert [error for _, error in told(messages)] == [False, True, True]
        assert told(messages)[1][0].startswith("The call of 'look' was refused: the limit of 1 turn")

    def test_a_model_that_insists_is_stopped_and_not_asked_for_ever(self, registry):
        generator = ScriptedChatGenerator([call("look")] * 300)
        with pytest.raises(MCPBudgetExceededError):
            registry.generate(generator, "go", tool_alias="all")
        assert len(generator.turns) == 3

    def test_a_tool_choice_is_dropped_after_the_first_turn_of_tools(self, registry):
        seen: list[Any] = []

        class Demanding:
            def run(self, messages: Any, tools: Any, generation_kwargs: Any) -> Any:
                seen.append(generation_kwargs)
                return generator.run(messages, tools=tools)

        generator = ScriptedChatGenerator([call("look"), say("done")])
        kwargs = {"tool_choice": "required"}
        registry.generate(Demanding(), "go", tool_alias="all", generation_kwargs=kwargs)
        assert seen == [kwargs, {}]

    def test_what_a_model_does_wrong_is_told_to_it_and_ends_nothing(self, registry, server):
        wrong = ChatMessage.from_assistant(
            tool_calls=[ToolCall("wipe", {}), ToolCall("lok", {}), ToolCall("look", ["a"])]  # type: ignore[arg-type]
        )
        generator = ScriptedChatGenerator([wrong, say("sorry")])
        output, messages = registry.generate(generator, "go", tool_alias="looking")
        assert output == "sorry"
        (forbidden, unknown, no_object) = told(messages)
        assert forbidden[0].startswith("Tool 'wipe' not found")
        assert "Did you mean 'look'?" in unknown[0]
        assert "must be a JSON object, got list" in no_object[0]  # there, a list is no arguments at all
        assert server.calls == []

    def test_a_model_learns_that_a_call_failed(self, registry, server):
        server.answer = types.CallToolResult(content=[types.TextContent(type="text", text="no")], is_error=True)
        messages = registry.get_mcp("all").process_completion_response(call("look"))
        [(text, error)] = told(messages)
        assert (error, "no" in text) == (True, True)

    def test_a_timeout_bounds_each_call_and_takes_no_other_with_it(self, registry):
        reply = calls(("sleep", {"seconds": 20}), ("add", {"a": 1, "b": 2}), ("fail", {"message": "broken"}))
        slept, added, failed = told(registry.get_mcp("math").process_completion_response(reply))
        assert (slept[1], "timed out" in slept[0]) == (True, True)
        assert added == ("3", False)
        assert (failed[1], "broken" in failed[0]) == (True, True)

    def test_a_trace_has_all_messages_the_last_one_or_is_left_out(self, registry):
        generated = registry.generate(ScriptedChatGenerator([call("look"), say("done")]), "go", tool_alias="all")
        assert [each["role"] for each in conversation_trace(generated)] == ["user", "assistant", "tool", "assistant"]
        assert conversation_trace(generated, scope="last") == [{"role": "assistant", "content": "done"}]

    def test_the_usage_of_tools_is_counted(self, registry):
        replies = [calls(("look", {}), ("wipe", {})), call("look"), say("well")]
        generated = registry.generate(ScriptedChatGenerator(replies), "go", tool_alias="all")
        assert tool_usage(generated) == MCPToolUsage(
            tool_calls=3, tool_call_turns=2, refused_calls=1, calls_by_tool={"look": 2, "wipe": 1}
        )


class TestServers:
    def test_a_health_check_reports_on_every_alias_and_raises_if_it_is_told_to(self, server):
        configs = [ToolConfig("good", ["a"]), ToolConfig("bad", ["down"]), ToolConfig("worse", ["a", "down"])]
        with MCPRegistry({"a": server.info, "down": DOWN}, configs) as registry:
            report = registry.health_check()
            assert [report[alias].ok for alias in report] == [True, False, False]
            with pytest.raises(MCPConnectionError, match="no-such-command"):
                registry.health_check(raise_on_failure=True)
            assert registry.health_check(["good"], raise_on_failure=True).ok

    async def test_many_who_ask_at_once_cause_one_listing(self, registry, server):
        await asyncio.gather(*(registry.tool_schemas_async(alias) for alias in ("all", "looking") * 5))
        assert server.listings == 1

    def test_what_is_cached_can_be_asked_for_again(self, registry, server):
        assert len(registry.tool_schemas("all")) == 2
        server.tools.append(definition("find"))
        assert len(registry.tool_schemas("all")) == 2  # the server said nothing
        registry.toolset("all").toolsets["foreign"].refresh()
        assert len(registry.tool_schemas("all")) == 3

    def test_errors_say_what_they_are(self, registry, server):
        for error in (MCPConfigurationError, MCPToolNotFoundError, MCPConnectionError, MCPBudgetExceededError):
            assert issubclass(error, MCPError)
        look = registry.toolset("all")
        look.warm_up()
        server.answer = types.CallToolResult(content=[types.TextContent(type="text", text="no")], is_error=True)
        with pytest.raises(MCPInvocationError, match="no"):
            look["look"].invoke()
        with pytest.raises(MCPConnectionError, match="no-such-command"):
            MCPRegistry({"down": DOWN}, [ToolConfig("x", ["down"])]).tool_schemas("x")
