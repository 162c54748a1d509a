# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import copy
import dataclasses
import inspect
import json
import logging
import pickle
from typing import Any

import mcp
import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.dataclasses import ChatMessage, ImageContent, TextContent
from haystack.tools import Tool
from haystack.tools.errors import ToolInvocationError
from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPClient,
    MCPConnectionError,
    MCPError,
    MCPInvocationError,
    MCPServerInfo,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
    ToolOptions,
)
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from tests.support.executors import by_agent, every_executor, recorded_traces
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

NATIVE_ASYNC = "async_function" in Tool.__dataclass_fields__
NEEDS_HOOKS = pytest.mark.skipif(not NATIVE_ASYNC, reason="this Haystack has no hooks")

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")
FASTMCP = InProcessServerInfo("tests.servers.fastmcp_server:server")

SECRET = "s3ntinel-in-an-argument"


def never_started(tmp_path) -> tuple[StdioServerInfo, Any]:
    """A server info whose command would leave a file behind."""
    trace = tmp_path / "started"
    return StdioServerInfo(command="touch", args=[str(trace)]), trace


class TestConstruction:
    @rows(
        ("parameters", "message"),
        [
            ({"name": ""}, "name"),
            ({"name": None}, "name"),
            ({"name": 5}, "name"),
            ({"server_info": "localhost"}, "`server_info` is of no known kind: 'localhost'.*StdioServerInfo"),
            ({"server_info": None}, "`server_info` is of no known kind: got NoneType"),
            ({"connection_timeout": 0}, "`connection_timeout` must be a positive number of seconds, got 0"),
            ({"connection_timeout": "30"}, "`connection_timeout`.*'30'"),
            ({"connection_timeout": True}, "`connection_timeout`.*True"),
            ({"connection_timeout": None}, "`connection_timeout`.*None"),
            ({"invocation_timeout": -1}, "`invocation_timeout`.*-1"),
            ({"invocation_timeout": float("nan")}, "`invocation_timeout`.*nan"),
            (
                {"tool_options": {"result_format": "xml"}},
                "`result_format` must be 'text', 'content' or 'json', got 'xml'",
            ),
            ({"tool_options": 5}, "`tool_options` must be of type ToolOptions, or a dict of its fields, got int"),
            ({"exposed_name": "git hub"}, "`exposed_name` must match pattern .*, got 'git hub'"),
        ],
    )
    def test_an_invalid_parameter_is_refused_by_name(self, parameters, message):
        with pytest.raises(ValueError, match=message):
            MCPTool(**{"name": "add", "server_info": COUNTER, **parameters})

    @rows("parameter", ["connection_timeout", "invocation_timeout"])
    def test_a_timeout_that_is_accepted_can_be_waited_for(self, parameter):
        try:
            tool = MCPTool("add", COUNTER, **{parameter: float("inf")})
        except ValueError as error:
            assert parameter in str(error)
        else:
            with tool:
                assert json.loads(tool.invoke(a=1, b=2))["content"][0]["text"] == "3"

    @rows(
        ("parameters", "message"),
        [
            ({"outputs_to_state": {"k": "source"}}, r"`outputs_to_state` \(k\) must be a valid dictionary"),
            ({"outputs_to_state": {"k": {"source": 1}}}, "outputs_to_state source for key 'k'"),
            ({"outputs_to_state": {"k": {"handler": "no"}}}, "outputs_to_state handler for key 'k'"),
            ({"outputs_to_string": {"handler": "no"}}, "outputs_to_string handler must be callable"),
            ({"outputs_to_string": {"source": "a", "b": {}}}, "Invalid outputs_to_string config"),
            ({"inputs_from_state": {"k": 5}}, r"`inputs_from_state` \(k\) must be a valid string"),
            ({"inputs_from_state": ["k"]}, "`inputs_from_state` must be a valid dictionary, got list"),
            ({"outputs_to_string": "source"}, "`outputs_to_string` must be a valid dictionary, got str"),
            ({"outputs_to_state": "k"}, "`outputs_to_state` must be a valid dictionary, got str"),
        ],
    )
    def test_a_malformed_state_mapping_is_refused_at_once(self, parameters, message):
        with pytest.raises((ValueError, TypeError), match=message):
            MCPTool("add", COUNTER, **parameters)

    def test_a_lazy_tool_connects_to_nothing(self, tmp_path):
        info, trace = never_started(tmp_path)
        tool = MCPTool("add", info)
        assert (tool.name, tool.description, tool.eager_connect) == ("add", "", False)
        assert tool.parameters == {"type": "object", "properties": {}, "additionalProperties": True}
        assert tool.tool_spec["name"] == "add"
        repr(tool), tool.to_dict(), copy.deepcopy(tool)
        tool.close()
        assert not trace.exists()

    def test_an_eager_tool_that_the_server_does_not_have_is_an_error_with_the_closest_names(self):
        with pytest.raises(MCPToolNotFoundError, match=r"'ad' not found.*Did you mean 'add'\?") as raised:
            MCPTool("ad", COUNTER, eager_connect=True)
        assert raised.value.tool_name == "ad"
        assert "add" in raised.value.available_tools

    def test_a_tool_of_a_server_without_tools_is_not_found(self):
        server = ForeignServer()
        tool = MCPTool("add", server.info)
        with pytest.raises(MCPToolNotFoundError, match=r"'add' not found on .*\. The server has no") as raised:
            tool.warm_up()
        tool.close()
        assert (raised.value.tool_name, raised.value.available_tools) == ("add", [])

    def test_a_server_that_never_answers_is_a_timeout(self, stdio_server):
        server = stdio_server("--hang-at-start")
        tool = MCPTool("add", StdioServerInfo(server.command, server.args), connection_timeout=0.5)
        with pytest.raises(TimeoutError) as raised:
            tool.warm_up()
        assert isinstance(raised.value, MCPConnectionError)
        assert "0.5 seconds" in str(raised.value)
        tool.close()
        server.wait_until_gone()


class TestNames:
    def test_a_name_that_providers_refuse_is_made_safe(self):
        server = ForeignServer(definition("repo/search.code"))
        with MCPTool("repo/search.code", server.info) as tool:
            assert (tool.name, tool.remote_name) == ("repo_search_code", "repo/search.code")
            tool.invoke()
        assert server.calls == [("repo/search.code", {})]

    def test_a_name_of_ones_own_is_for_the_model_and_in_errors(self):
        with MCPTool("fail", COUNTER, exposed_name="my_fail") as tool:
            assert (tool.name, tool.remote_name, tool.tool_spec["name"]) == ("my_fail", "fail", "my_fail")
            with pytest.raises(MCPInvocationError, match=r"Failed to invoke Tool `my_fail`: .*no luck") as raised:
                tool.invoke(message="no luck")
        assert raised.value.tool_name == "my_fail"


class TestArguments:
    @pytest.mark.parametrize("call", ["invoke", "call", "invoke_async", "call_async"])
    async def test_arguments_are_sent_as_the_schema_wants_them_and_as_text_where_that_may_be(self, call):
        schema = {
            "type": "object",
            "properties": {"limit": {"type": "integer"}, "tags": {"type": "array"}, "text": {"type": "string"}},
            "anyOf": [{"properties": {"by": {"$ref": "#/$defs/By"}}}, {"required": ["text"]}],
            "$defs": {"By": {"type": "object"}},
        }
        server = ForeignServer(definition("search", schema))
        async with MCPTool("search", server.info) as tool:
            called = getattr(tool, call)(limit=None, tags='["a"]', text="[1]", by='{"name": null}', more=None)
            if inspect.isawaitable(called):
                await called
        assert server.calls == [("search", {"tags": ["a"], "text": "[1]", "by": {"name": None}, "more": None})]


class TestDefinition:
    def test_the_server_describes_the_tool(self):
        schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
        output = {"type": "object", "properties": {"hits": {"type": "integer"}}}
        server = ForeignServer(
            definition(
                "search",
                schema,
                title="Search",
                description="Searches.",
                output_schema=output,
                annotations=types.ToolAnnotations(read_only_hint=True),
                _meta={"vendor/kind": "index"},
            )
        )
        with MCPTool("search", server.info) as tool:
            assert tool.description == "Searches."
            assert tool.parameters == schema
            assert tool.title == "Search"
            assert tool.output_schema == output
            assert tool.annotations is not None and tool.annotations.read_only_hint is True
            assert tool.meta == {"vendor/kind": "index"}
            assert tool.remote_name == "search"
            assert tool.server_info is server.info

    def test_before_warm_up_there_is_nothing_to_know(self):
        tool = MCPTool("search", COUNTER)
        assert (tool.title, tool.annotations, tool.output_schema, tool.meta) == (None, None, None, None)

    def test_a_description_of_the_users_own_stays(self):
        with MCPTool("add", COUNTER, description="Sums up.") as tool:
            assert tool.description == "Sums up."

    def test_a_tool_without_description_has_an_empty_one(self):
        with MCPTool("search", ForeignServer(definition("search")).info) as tool:
            assert tool.description == ""

    def test_a_schema_of_an_older_draft_is_translated(self):
        properties = {"share": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": properties}
        with MCPTool("foreign", ForeignServer(definition("foreign", schema)).info) as tool:
            assert tool.parameters["properties"] == {"share": {"type": "number", "exclusiveMinimum": 0}}
            Tool(name="t", description="", parameters=tool.parameters, function=print)

    def test_an_unusable_schema_is_an_error_that_names_the_tool(self):
        server = ForeignServer(definition("broken", {"type": "object", "properties": {"x": {"type": "strung"}}}))
        tool = MCPTool("broken", server.info)
        with pytest.raises(ValueError, match="schema of tool 'broken' is unusable"):
            tool.warm_up()
        tool.close()


class TestCalls:
    def test_the_result_is_the_documented_json_string(self):
        with MCPTool("add", COUNTER) as tool:
            result = tool.invoke(a=5, b=3)
        assert isinstance(result, str)
        parsed = json.loads(result)
        assert parsed["content"][0]["text"] == "8"
        assert parsed["content"][0]["type"] == "text"
        assert parsed["isError"] is False
        assert parsed["structuredContent"] == {"result": 8}

    @rows("method", ["ainvoke", "invoke_async"])
    @rows("state", [None, {"sum": {"source": "result"}}])
    async def test_awaiting_gives_the_same_as_invoking(self, method, state):
        tool = MCPTool("add", COUNTER, outputs_to_state=state)
        try:
            awaited = await getattr(tool, method)(a=5, b=3)
            invoked = await asyncio.to_thread(tool.invoke, a=5, b=3)
            assert type(awaited) is type(invoked)
            assert awaited == invoked
        finally:
            await tool.close_async()

    @rows("method", ["ainvoke", "invoke_async"])
    async def test_awaiting_fails_as_invoking_does(self, method):
        async with MCPTool("fail", COUNTER) as tool:
            with pytest.raises(MCPInvocationError) as awaited:
                await getattr(tool, method)(message="no luck")
            with pytest.raises(MCPInvocationError) as invoked:
                await asyncio.to_thread(tool.invoke, message="no luck")
        assert str(awaited.value) == str(invoked.value)

    async def test_several_loops_may_call_one_tool(self):
        async with MCPTool("add", COUNTER) as tool:
            here = json.loads(await tool.ainvoke(a=1, b=2))
            elsewhere = json.loads(await asyncio.to_thread(asyncio.run, tool.ainvoke(a=1, b=2)))
            assert here == elsewhere

    async def test_invoking_inside_a_running_loop_works(self):
        async with MCPTool("add", COUNTER) as tool:
            assert json.loads(tool.invoke(a=1, b=2))["content"][0]["text"] == "3"

    def test_a_server_written_with_fastmcp_serves(self):
        with MCPTool("person", FASTMCP) as tool:
            assert json.loads(tool.invoke(name="Ada"))["structuredContent"] == {"name": "Ada", "age": 42}
            assert tool.annotations is not None and tool.annotations.read_only_hint is True

    @rows("name", "self name state kwargs streaming_callback tool_name mcp_arguments arguments tool_args".split())
    @every_executor
    def test_a_parameter_may_have_any_name(self, execute, name):
        schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
        server = ForeignServer(definition("odd", schema))
        with MCPTool("odd", server.info) as tool:
            assert execute([tool], ("odd", {name: "value"})).result == "fine"
            tool.invoke(**{name: "value"})
            asyncio.run(tool.ainvoke(**{name: "value"}))
            asyncio.run(tool.invoke_async(**{name: "value"}))
        assert server.calls == [("odd", {name: "value"})] * 4

    def test_a_streaming_callback_is_not_sent_to_the_server(self):
        server = ForeignServer(definition("search"))
        with MCPTool("search", server.info) as tool:
            tool.invoke(streaming_callback=print, q="x")
            asyncio.run(tool.ainvoke(streaming_callback=print, q="x"))
        assert server.calls == [("search", {"q": "x"})] * 2

    @every_executor
    @rows("key", ["kwargs", "state", "arguments"])
    def test_a_state_key_is_never_sent_without_having_been_mapped(self, execute, key):
        server = ForeignServer(definition("search"))
        with MCPTool("search", server.info) as tool:
            execute([tool], ("search", {"q": "x"}), state_schema={key: {"type": dict}}, state={key: {"no": 1}})
        assert server.calls == [("search", {"q": "x"})]


class TestErrors:
    def test_the_servers_own_text_is_the_message(self):
        with MCPTool("fail", FASTMCP) as tool, pytest.raises(MCPInvocationError) as raised:
            tool.invoke(message="no luck")
        error = raised.value
        assert str(error) == "Failed to invoke Tool `fail`: no luck"
        assert isinstance(error, ToolInvocationError)
        assert not isinstance(error, MCPError)
        assert error.tool_name == "fail"
        assert error.tool_args == {"message": "no luck"}
        assert (error.code, error.data) == (None, None)

    @rows(("blocks", "message"), [(["first", "second"], "first\nsecond"), ([], ".*gave no error text")])
    def test_an_error_is_one_text_without_python_reprs(self, blocks, message):
        server = ForeignServer(definition("search"))
        server.answer = text_result(*blocks, is_error=True)
        with MCPTool("search", server.info) as tool:
            with pytest.raises(MCPInvocationError, match=f"^Failed to invoke Tool `search`: {message}"):
                tool.invoke()

    def test_a_protocol_error_carries_its_code_and_data(self):
        server = ForeignServer(definition("search"))
        server.answer = mcp.MCPError(-32042, "quota exceeded", {"limit": 5})
        with MCPTool("search", server.info) as tool:
            with pytest.raises(MCPInvocationError) as raised:
                tool.invoke(q="x")
            with pytest.raises(MCPInvocationError) as awaited:
                asyncio.run(tool.ainvoke(q="x"))
        for error in (raised.value, awaited.value):
            assert str(error) == "Failed to invoke Tool `search`: quota exceeded"
            assert (error.code, error.data) == (-32042, {"limit": 5})

    def test_a_call_that_takes_too_long_is_a_timeout(self):
        with MCPTool("sleep", COUNTER, invocation_timeout=0.3) as tool:
            with pytest.raises(
                TimeoutError, match=r"Failed to invoke Tool `sleep`: timed out after 0\.3 seconds"
            ) as sync:
                tool.invoke(seconds=600)
            with pytest.raises(MCPTimeoutError) as awaited:
                asyncio.run(tool.ainvoke(seconds=600))
        assert isinstance(sync.value, MCPInvocationError)
        assert str(awaited.value) == str(sync.value)

    @rows("method", ["invoke", "ainvoke"])
    def test_a_call_to_a_server_that_is_not_there_is_an_invocation_error(self, method):
        tool = MCPTool("add", StdioServerInfo("mcp-no-such-command"))
        with pytest.raises(MCPInvocationError, match=r"Failed to invoke Tool `add`: .*mcp-no-such-command") as raised:
            result = getattr(tool, method)(a=1, b=2)
            asyncio.run(result)
        assert isinstance(raised.value.__cause__, MCPConnectionError)
        tool.close()

    @rows("method", ["invoke", "ainvoke"])
    def test_a_call_of_a_tool_that_the_server_does_not_have_says_so(self, method):
        tool = MCPTool("subtract", COUNTER)
        with pytest.raises(MCPInvocationError, match=r"Failed to invoke Tool `subtract`: .*not found.*has 21 tools"):
            asyncio.run(getattr(tool, method)())
        tool.close()

    def test_an_answer_that_breaks_the_output_schema_is_an_error_without_its_values(self):
        output = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        server = ForeignServer(definition("count", output_schema=output))
        server.answer = text_result("x", structured_content={"n": SECRET})
        with MCPTool("count", server.info) as tool, pytest.raises(MCPInvocationError, match="output schema") as raised:
            tool.invoke()
        assert SECRET not in str(raised.value)

    @rows(
        "error",
        [
            MCPInvocationError("no", "add", {"a": 1}, code=-32000, data={"x": 1}),
            MCPTimeoutError("late", "add"),
            MCPToolNotFoundError("where", "add", ["echo"]),
            MCPConnectionError("gone", StdioServerInfo("uvx"), "connect", code=-1),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_errors_can_be_sent_to_another_process(self, error):
        twin = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(twin) is type(error)
        assert str(twin) == str(error) == twin.message
        assert vars(twin) == vars(error)

    @every_executor
    def test_the_model_reads_the_error_one_level_deep(self, execute):
        with MCPTool("fail", FASTMCP) as tool:
            text = execute([tool], ("fail", {"message": "no luck"})).error
        assert text.count("Failed to invoke") == 1
        assert text.endswith("no luck")


class TestSecrecy:
    """The watch over secrets sees no value of an argument, above all of those that come from State."""

    @pytest.fixture(autouse=True)
    def watched(self, secret_watch):
        secret_watch.learn(SECRET[:6])

    @pytest.fixture(params=["invoke", "ainvoke"])
    def failing_call(self, request):
        def fail(tool: MCPTool, **arguments: Any) -> MCPInvocationError:
            with pytest.raises(MCPInvocationError) as raised:
                if request.param == "invoke":
                    tool.invoke(**arguments)
                else:
                    asyncio.run(tool.ainvoke(**arguments))
            return raised.value

        return fail

    def test_not_when_the_tool_reports_an_error(self, failing_call):
        with MCPTool("secret_echo", COUNTER) as tool:
            error = failing_call(tool, text="hi", token=SECRET, refuse=True)
        assert error.tool_args == {"text": "hi", "token": SECRET, "refuse": True}

    def test_not_when_the_call_times_out(self, failing_call):
        server = MCPServer("slow")

        @server.tool()
        async def wait(token: str) -> str:
            await asyncio.Event().wait()
            return token

        with MCPTool("wait", InProcessServerInfo(server), invocation_timeout=0.2) as tool:
            failing_call(tool, token=SECRET)

    def test_not_when_the_server_dies(self, failing_call, stdio_server):
        server = stdio_server()
        info = StdioServerInfo(server.command, server.args, max_retries=0)
        with MCPTool("die", info) as tool:
            failing_call(tool, token=SECRET)

    def test_not_when_the_server_is_not_there(self, failing_call):
        tool = MCPTool("add", StdioServerInfo("mcp-no-such-command"))
        failing_call(tool, token=SECRET)
        tool.close()

    def test_not_when_the_arguments_are_no_json(self, failing_call):
        class Odd:
            def __repr__(self) -> str:
                return SECRET

        with MCPTool("echo", COUNTER) as tool:
            failing_call(tool, text=Odd())

    def test_not_when_a_clients_own_code_fails(self, failing_call):
        class Broken(MCPClient):
            async def connect(self) -> list[types.Tool]:
                return [definition("search")]

            async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
                raise KeyError("broken")

            async def aclose(self) -> None:
                pass

        with MCPTool("search", client_info_of(Broken)) as tool:
            failing_call(tool, token=SECRET)

    @every_executor
    @pytest.mark.parametrize("refuse", [False, True])
    def test_a_value_from_state_is_seen_by_the_server_only(self, execute, refuse):
        tool = MCPTool("secret_echo", COUNTER, inputs_from_state={"api_token": "token"})
        with tool, recorded_traces(content=False) as traces:
            outcome = execute(
                [tool],
                ("secret_echo", {"text": "hi", "refuse": refuse}),
                state_schema={"api_token": {"type": str}},
                state={"api_token": SECRET},
            )
        seen = outcome.results[0].result
        assert seen.endswith("the token was refused") if refuse else f"of {len(SECRET)} characters" in seen
        assert SECRET not in seen
        for turn in outcome.turns:
            assert sorted(turn.tool_specs[0]["parameters"]["properties"]) == ["refuse", "text"]
        assert SECRET not in traces.text

    @pytest.mark.parametrize("answer", ["isError", "protocol error"])
    def test_not_when_the_server_quotes_what_came_from_state(self, failing_call, answer, caplog):
        caplog.set_level(logging.DEBUG, logger="haystack_integrations")
        secret = {"key": SECRET, "nested": [{"number": 1234567, "line": "Zwölf\n'Boxkämpfer'"}]}
        text = f"cannot use {secret}, that is {json.dumps(secret)}, for user Ann"
        server = ForeignServer(definition("search", {"type": "object", "properties": {"token": {}, "user": {}}}))
        server.answer = (
            mcp.MCPError(-32000, text)
            if answer == "protocol error"
            else types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        )
        with MCPTool("search", server.info, inputs_from_state={"api_token": "token"}) as tool:
            error = failing_call(tool, token=secret, user="Ann")
            assert error.tool_args == {"token": secret, "user": "Ann"}
        assert "for user Ann" in str(error)
        assert str(error) == error.message
        shown = f"{error!r} {error.__cause__!r} {caplog.text}"
        assert not [hidden for hidden in (SECRET, "1234567", "Boxk", "Zw") if hidden in shown]

    def test_not_when_the_arguments_are_invalid_for_a_server_in_python(self, failing_call):
        with MCPTool("secret_echo", COUNTER, inputs_from_state={"api_token": "token"}) as tool:
            error = failing_call(tool, token=SECRET * 20)
        assert "text" in str(error) and "Field required" in str(error)


class TestStateInputs:
    def test_the_model_does_not_see_a_parameter_from_state(self):
        tool = MCPTool("secret_echo", COUNTER, inputs_from_state={"api_token": "token"})
        with tool:
            assert sorted(tool.parameters["properties"]) == ["refuse", "text"]
            assert tool.parameters["required"] == ["text"]
            assert tool.inputs_from_state == {"api_token": "token"}

    @rows(
        ("tool_name", "parameter", "message"),
        [
            ("add", "c", "`inputs_from_state` .'key'. of tool 'add' has .* 'c'.*Valid parameters are: a, b"),
            ("pid", "c", "Valid parameters are: none"),
            # Those of the Python function are not the tool's.
            ("add", "mcp_arguments", "unknown parameter 'mcp_arguments'"),
            ("add", "streaming_callback", "unknown parameter 'streaming_callback'"),
            ("add", "kwargs", "unknown parameter 'kwargs'"),
            ("add", "self", "unknown parameter 'self'"),
        ],
    )
    def test_a_parameter_that_the_tool_does_not_have_is_an_error_with_the_valid_ones(
        self, tool_name, parameter, message
    ):
        tool = MCPTool(tool_name, COUNTER, inputs_from_state={"key": parameter})
        with pytest.raises(ValueError, match=message):
            tool.warm_up()
        tool.close()

    @pytest.mark.parametrize(("required", "sent"), [([], {}), (["user"], {"user": None})])
    def test_an_agent_in_a_pipeline_sends_no_null_for_a_key_that_nobody_gave_a_value(self, required, sent):
        parameters = {"type": "object", "properties": {"user": {"type": "string"}}, "required": required}
        server = ForeignServer(definition("search", parameters))
        with MCPTool("search", server.info, inputs_from_state={"user": "user"}) as tool:
            generator = ScriptedChatGenerator([call("search"), say("done")])
            agent = Agent(chat_generator=generator, tools=[tool], state_schema={"user": {"type": str}})
            pipeline = Pipeline()
            pipeline.add_component("agent", agent)
            pipeline.run({"agent": {"messages": [ChatMessage.from_user("go")]}})
        assert server.calls == [("search", sent)]

    @rows("invoke", [MCPTool.invoke, lambda tool, **given: asyncio.run(tool.invoke_async(**given))])
    def test_which_ones_are_required_is_known_at_the_first_call_that_warms_up_too(self, invoke):
        parameters = {"type": "object", "properties": {"user": {}, "group": {}}, "required": ["user"]}
        server = ForeignServer(definition("search", parameters))
        tool = MCPTool("search", server.info, inputs_from_state={"user": "user", "group": "group"})
        for _ in range(2):
            invoke(tool, user=None, group=None)
        tool.close()
        assert server.calls == [("search", {"user": None})] * 2

    @rows("make", [MCPTool.call, lambda tool, **given: asyncio.run(tool.call_async(**given))])
    def test_a_null_of_the_users_own_code_is_sent(self, make):
        server = ForeignServer(definition("search", {"type": "object", "properties": {"user": {"type": "string"}}}))
        with MCPTool("search", server.info, inputs_from_state={"user": "user"}) as tool:
            make(tool, user=None)
        assert server.calls == [("search", {"user": None})]


def first_letter(value: Any) -> str:
    return str(value)[0]


def shout(value: Any) -> str:
    return f"{value}!"


def keep_city(_current: Any, new: Any) -> str:
    return new["city"].upper()


class TestStateOutputs:
    @rows(
        ("tool_name", "arguments", "expected"),
        [
            ("structured", {"city": "Rome"}, {"city": "Rome", "temperature": 21.5, "conditions": ["sunny", "windy"]}),
            ("structured_only", {}, {"answer": 42}),
            ("json_text", {}, {"answer": 42}),
            ("add", {"a": 1, "b": 2}, {"result": 3}),
            ("echo", {"text": "hi"}, {"result": "hi"}),
            ("nothing", {}, {"result": ""}),
        ],
    )
    def test_the_call_gives_a_dict(self, tool_name, arguments, expected):
        with MCPTool(tool_name, COUNTER, outputs_to_state={"whole": {}}) as tool:
            result = tool.invoke(**arguments)
        assert isinstance(result, dict)
        assert result == expected

    def test_the_keys_may_be_set_later(self):
        with MCPTool("add", COUNTER) as tool:
            tool.outputs_to_state = {"sum": {"source": "result"}}
            assert tool.invoke(a=1, b=2) == {"result": 3}

    @every_executor
    def test_a_source_and_the_whole_go_to_state_and_the_text_to_the_model(self, execute):
        outputs = {"town": {"source": "city"}, "whole": {}, "loud": {"handler": keep_city}, "none": {"source": "nope"}}
        schema = {"town": {"type": str}, "whole": {"type": dict}, "loud": {"type": str}, "none": {"type": str}}
        with MCPTool("structured", COUNTER, outputs_to_state=outputs) as tool:
            outcome = execute([tool], ("structured", {"city": "Rome"}), state_schema=schema)
        assert outcome.state["town"] == "Rome"
        assert outcome.state["whole"]["temperature"] == 21.5
        assert outcome.state["loud"] == "ROME"
        assert outcome.state["none"] is None
        assert json.loads(outcome.result) == {"city": "Rome", "temperature": 21.5, "conditions": ["sunny", "windy"]}

    @every_executor
    def test_images_go_to_state_too(self, execute):
        with MCPTool("mixed", COUNTER, outputs_to_state={"parts": {"source": "result"}}) as tool:
            outcome = execute([tool], ("mixed", {}), state_schema={"parts": {"type": list}})
        assert [type(part) for part in outcome.state["parts"]] == [TextContent, ImageContent, TextContent]
        assert outcome.result == "before\n[image: image/png, 69 B]\nafter"

    @every_executor
    def test_a_failed_call_leaves_state_alone(self, execute):
        with MCPTool("fail", COUNTER, outputs_to_state={"said": {}}) as tool:
            outcome = execute([tool], ("fail", {"message": "no"}), state_schema={"said": {"type": dict}})
        assert outcome.error
        assert outcome.state["said"] is None


class TestStringOutputs:
    @every_executor
    @rows(
        ("call", "config", "expected"),
        [
            (("structured", {"city": "Rome"}), {"source": "city"}, "Rome"),
            (("structured", {"city": "Rome"}), {"source": "city", "handler": shout}, "Rome!"),
            (("structured", {"city": "Rome"}), {"source": "conditions", "handler": first_letter}, "["),
            (("add", {"a": 1, "b": 2}), {"handler": first_letter}, "{"),  # it gets the JSON
            (("echo", {"text": "hello"}), {"source": "diff"}, "hello"),  # there is no such part
            (("echo", {"text": "hello"}), {"source": "diff", "handler": shout}, "hello!"),
        ],
    )
    def test_the_model_sees_the_source_by_the_handler(self, execute, call, config, expected):
        with MCPTool(call[0], COUNTER, outputs_to_string=config) as tool:
            assert execute([tool], call).result == expected

    @every_executor
    def test_several_outputs_are_shown_together(self, execute):
        config = {"where": {"source": "city"}, "loud": {"source": "city", "handler": shout}}
        with MCPTool("structured", COUNTER, outputs_to_string=config) as tool:
            shown = execute([tool], ("structured", {"city": "Rome"})).result
        assert "Rome!" in shown
        assert "where" in shown

    @every_executor
    def test_the_raw_result_is_the_json_string(self, execute):
        with MCPTool("add", COUNTER, outputs_to_string={"raw_result": True}) as tool:
            assert json.loads(execute([tool], ("add", {"a": 1, "b": 2})).result)["isError"] is False

    def test_what_stands_in_for_a_source_is_not_in_the_result(self):
        with MCPTool("echo", COUNTER, outputs_to_string={"source": "diff"}, outputs_to_state={"all": {}}) as tool:
            result = tool.invoke(text="hello")
        assert result == {"result": "hello"}
        assert (result.get("diff"), result.get("other"), result.get("result")) == ("hello", None, "hello")

    @rows("config", [{"handler": shout}, {"raw_result": True}, {}, None])
    def test_without_a_source_the_call_gives_the_json_string(self, config):
        with MCPTool("add", COUNTER, outputs_to_string=config) as tool:
            assert isinstance(tool.invoke(a=1, b=2), str)


class TestResultFormat:
    @every_executor
    def test_the_model_reads_clean_text_by_default(self, execute):
        with MCPTool("add", COUNTER) as add, MCPTool("image", COUNTER) as image:
            assert execute([add], ("add", {"a": 1, "b": 2})).result == "3"
            assert execute([image], ("image", {})).result == "[image: image/png, 69 B]"

    @every_executor
    def test_the_content_format_gives_images(self, execute):
        with MCPTool("mixed", COUNTER, tool_options=ToolOptions(result_format="content")) as tool:
            parts = execute([tool], ("mixed", {})).result
        assert [type(part) for part in parts] == [TextContent, ImageContent, TextContent]
        assert parts[1].mime_type == "image/png"

    @every_executor
    @rows("result_format", ["text", "content", "json"])
    def test_every_format_goes_with_state(self, execute, result_format):
        tool = MCPTool(
            "echo",
            COUNTER,
            tool_options=ToolOptions(result_format=result_format),
            outputs_to_state={"said": {"source": "result"}},
        )
        with tool:
            outcome = execute([tool], ("echo", {"text": "hi"}), state_schema={"said": {"type": str}})
        assert outcome.state["said"] == "hi"
        assert "hi" in outcome.result
        assert (outcome.result == "hi") == (result_format != "json")

    @every_executor
    @rows("tool_name", ["image", "audio", "blob", "mixed"])
    def test_base64_never_reaches_the_model_as_text(self, execute, tool_name):
        with MCPTool(tool_name, COUNTER) as tool:
            data = [block.get("data") or block.get("resource", {}).get("blob") for block in _content(tool.invoke())]
            shown = execute([tool], (tool_name, {})).result
        assert isinstance(shown, str)
        assert not any(encoded in shown for encoded in data if encoded)


def _content(result: str | dict[str, Any]) -> list[dict[str, Any]]:
    assert isinstance(result, str)
    return json.loads(result)["content"]


class TestAsAnObject:
    @pytest.fixture
    def warm(self):
        with MCPTool("add", COUNTER) as tool:
            yield tool

    def test_asdict_gives_the_fields(self, warm):
        fields = dataclasses.asdict(warm)
        assert fields["name"] == "add"
        assert fields["parameters"] == warm.parameters
        assert set(fields) == {field.name for field in dataclasses.fields(Tool)}

    def test_an_eager_tool_is_unpickled_without_connecting(self, tmp_path):
        info, trace = never_started(tmp_path)
        tool = MCPTool("add", info)
        tool.eager_connect = True
        twin = pickle.loads(pickle.dumps(tool))  # noqa: S301
        assert twin.eager_connect is True
        assert not trace.exists()

    @NEEDS_HOOKS
    @rows("way", ["run", "run_async"])
    def test_hooks_may_read_the_tools_from_state(self, way, warm):
        from haystack.hooks import hook

        seen = []

        @hook
        def look(state: State) -> None:
            seen.extend(state.get("tools"))

        generator = ScriptedChatGenerator([call("add", a=1, b=2), say("done")])
        agent = Agent(chat_generator=generator, tools=[warm], hooks={"before_run": [look]})
        messages = [ChatMessage.from_user("go")]
        agent.run(messages) if way == "run" else asyncio.run(agent.run_async(messages))
        assert generator.turns[1].tool_results == ["3"]
        assert len(seen) == 1
        assert seen[0] is warm


@dataclasses.dataclass
class OwnServerInfo(MCPServerInfo):
    greeting: str = "hello"
    client_class: Any = None

    def create_client(self) -> MCPClient:
        return self.client_class(self)


def client_info_of(client_class: type[MCPClient]) -> MCPServerInfo:
    class Info(MCPServerInfo):
        def create_client(self) -> MCPClient:
            return client_class()

    return Info()


class JsonClient(MCPClient):
    """The least a client of a user's own has."""

    def __init__(self, info: OwnServerInfo | None = None) -> None:
        self.info = info or OwnServerInfo()
        self.closed = False

    async def connect(self) -> list[types.Tool]:
        return [definition("greet", {"type": "object", "properties": {"name": {"type": "string"}}})]

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        return text_result(f"{self.info.greeting} {tool_args['name']}").model_dump_json(by_alias=True)

    async def aclose(self) -> None:
        self.closed = True


def recording_info() -> tuple[MCPServerInfo, list[JsonClient]]:
    made: list[JsonClient] = []

    class Client(JsonClient):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    return client_info_of(Client), made


class SessionOwningClient(MCPClient):
    """One that leaves calls and closing to the base class, as the clients of version 2 did."""

    def __init__(self, info: OwnServerInfo) -> None:
        super().__init__(max_retries=1)
        self.info = info

    async def connect(self) -> list[types.Tool]:
        server = MCPServer("own")
        greeting = self.info.greeting

        @server.tool()
        def greet(name: str) -> str:
            if name == "nobody":
                message = "nobody is there"
                raise ToolError(message)
            return f"{greeting} {name}"

        client = await self.exit_stack.enter_async_context(mcp.Client(server))
        self.session = client.session
        return (await client.list_tools()).tools


class TestClientsOfTheUsersOwn:
    @rows("client_class", [JsonClient, SessionOwningClient])
    @every_executor
    def test_they_serve_tools(self, execute, client_class):
        with MCPToolset(OwnServerInfo("good day", client_class)) as toolset:
            assert execute(toolset, ("greet", {"name": "Ada"})).result == "good day Ada"
            assert json.loads(toolset[0].invoke(name="Ada"))["content"][0]["text"] == "good day Ada"
            assert json.loads(asyncio.run(toolset[0].ainvoke(name="Ada")))["content"][0]["text"] == "good day Ada"

    def test_they_are_closed_with_the_tool(self):
        info, made = recording_info()
        with MCPTool("greet", info):
            assert [client.closed for client in made] == [False]
        assert [client.closed for client in made] == [True]

    def test_one_that_answers_in_plain_words_is_understood(self):
        class Plain(JsonClient):
            async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
                return "just words"

        with MCPTool("greet", client_info_of(Plain)) as tool:
            assert by_agent([tool], ("greet", {})).result == "just words"

    def test_an_error_that_one_reports_is_the_servers(self):
        with MCPTool("greet", OwnServerInfo("hi", SessionOwningClient)) as tool:
            with pytest.raises(MCPInvocationError, match=r"Failed to invoke Tool `greet`: .*nobody is there") as raised:
                tool.invoke(name="nobody")
        assert str(raised.value).count("Failed to invoke") == 1

    async def test_a_session_that_raises_is_an_invocation_error(self):
        class Broken:
            async def call_tool(self, _name: str, _arguments: dict[str, Any]) -> types.CallToolResult:
                raise ConnectionResetError("the line is dead")

        client = SessionOwningClient(OwnServerInfo())
        with pytest.raises(MCPConnectionError, match="Not connected"):
            await client.call_tool("greet", {"name": "Ada"})
        client.session = Broken()
        with pytest.raises(MCPInvocationError, match=r"Failed to invoke Tool `greet`: the line is dead") as raised:
            await client.call_tool("greet", {"name": "Ada"})
        assert raised.value.tool_args == {"name": "Ada"}

    def test_one_that_raises_is_an_invocation_error(self):
        class Raising(JsonClient):
            async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
                raise MCPInvocationError("the cat sat on it", tool_name=tool_name, tool_args=tool_args)

        with MCPTool("greet", client_info_of(Raising)) as tool:
            with pytest.raises(MCPInvocationError, match="the cat sat on it"):
                tool.invoke(name="Ada")

    def test_one_that_cannot_connect_is_a_connection_error(self):
        class Unreachable(JsonClient):
            async def connect(self) -> list[types.Tool]:
                message = "the line is dead"
                raise OSError(message)

        tool = MCPTool("greet", client_info_of(Unreachable))
        with pytest.raises(MCPConnectionError, match="the line is dead"):
            tool.warm_up()
        tool.close()

    def test_infos_without_fields_do_not_share_a_session(self):
        (one, made_of_one), (other, made_of_other) = recording_info(), recording_info()
        with MCPTool("greet", one), MCPTool("greet", other):
            assert (len(made_of_one), len(made_of_other)) == (1, 1)

    def test_their_secrets_are_not_traced(self):
        from haystack.utils import Secret

        @dataclasses.dataclass(repr=False)
        class Keyed(OwnServerInfo):
            key: Any = None

        info = Keyed(key=Secret.from_token(SECRET))
        assert SECRET not in repr(MCPTool("greet", info))
        assert SECRET not in json.dumps(info._to_trace_dict())


def test_an_agent_keeps_a_cold_tool_and_warms_it_up():
    tool = MCPTool("add", COUNTER)
    generator = ScriptedChatGenerator([call("add", a=1, b=2), say("done")])
    agent = Agent(chat_generator=generator, tools=[tool])
    result = agent.run(messages=[ChatMessage.from_user("go")])
    tool.close()
    assert result["last_message"].text == "done"
    assert generator.turns[0].tool_specs[0]["description"] == "Add two integers."
    assert generator.turns[1].tool_results == ["3"]


@rows("method", ["ainvoke", "invoke_async"])
def test_a_call_that_is_awaited_without_an_asyncio_loop_is_refused_before_anything_is_sent(method):
    server = ForeignServer(definition("add"))
    with MCPTool("add", server.info) as tool:
        call = getattr(tool, method)(a=1, b=2)
        with pytest.raises(MCPInvocationError, match=r"trio\.to_thread\.run_sync.*The tool did not run"):
            call.send(None)  # as another library's loop does
        assert tool.connection.status().calls == 0
