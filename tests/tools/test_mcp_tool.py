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
from haystack.dataclasses import ImageContent, TextContent
from haystack.tools import Tool
from haystack.tools.errors import ToolInvocationError
from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from haystack_integrations.tools.mcp import (
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
from tests.support.foreign_server import ForeignServer, definition, ringing, text_result
from tests.support.in_process import COUNTER, FASTMCP
from tests.support.rows import rows

SECRET = "s3ntinel-in-an-argument"


class TestConstruction:
    def test_a_lazy_tool_does_not_connect_and_has_no_definition(self, tmp_path):
        trace = tmp_path / "started"
        tool = MCPTool("add", StdioServerInfo(command="touch", args=[str(trace)]))
        assert (tool.name, tool.description, tool.eager_connect) == ("add", "", False)
        assert (tool.title, tool.annotations, tool.output_schema, tool.meta) == (None, None, None, None)
        assert tool.parameters == {"type": "object", "properties": {}, "additionalProperties": True}
        repr(tool), tool.to_dict(), copy.deepcopy(tool)
        tool.eager_connect = True
        assert pickle.loads(pickle.dumps(tool)).eager_connect is True  # noqa: S301
        tool.close()
        assert not trace.exists()

    def test_a_tool_that_the_server_does_not_have_is_an_error_with_the_closest_names(self):
        with pytest.raises(MCPToolNotFoundError, match=r"'ad' not found.*Did you mean 'add'\?") as raised:
            MCPTool("ad", COUNTER, eager_connect=True)
        assert raised.value.tool_name == "ad"
        assert "add" in raised.value.available_tools
        tool = MCPTool("subtract", COUNTER)
        with pytest.raises(MCPInvocationError, match=r"Failed to invoke Tool `subtract`: .*not found.*has 20 tools"):
            tool.invoke()
        tool.close()


class TestDefinition:
    def test_the_server_describes_the_tool(self):
        schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
        described = {
            "title": "Search",
            "description": "Searches.",
            "output_schema": {"type": "object", "properties": {"hits": {"type": "integer"}}},
            "annotations": types.ToolAnnotations(read_only_hint=True),
            "meta": {"vendor/kind": "index"},
        }
        server = ForeignServer(definition("search", schema, **described))
        with MCPTool("search", server.info) as tool:
            assert {name: getattr(tool, name) for name in described} == described
            assert (tool.parameters, tool.remote_name, tool.server_info) == (schema, "search", server.info)

    def test_without_a_description_the_model_sees_the_title_or_the_name(self):
        titled = definition("titled", title="A title", description=" ")
        with MCPToolset(ForeignServer(definition("plain"), titled).info, tool_name_prefix="s") as toolset:
            assert [tool.description for tool in toolset] == ["s_plain", "A title"]

    def test_the_users_name_and_description_are_shown_to_the_model_and_in_errors(self):
        with MCPTool("fail", COUNTER, exposed_name="my_fail", description="Mine.") as tool:
            assert (tool.name, tool.remote_name, tool.tool_spec["name"]) == ("my_fail", "fail", "my_fail")
            assert tool.description == "Mine."
            with pytest.raises(MCPInvocationError, match=r"Failed to invoke Tool `my_fail`: .*no luck") as raised:
                tool.invoke(message="no luck")
        assert raised.value.tool_name == "my_fail"


class TestCalls:
    @pytest.mark.parametrize("call", ["invoke", "call", "invoke_async", "call_async"])
    async def test_arguments_are_sent_as_the_schema_wants_them_and_as_text_where_the_schema_allows_it(self, call):
        schema = {
            "type": "object",
            "properties": {"limit": {"type": "integer"}, "tags": {"type": "array"}, "text": {"type": "string"}},
            "anyOf": [{"properties": {"by": {"$ref": "#/$defs/By"}}}, {"required": ["text"]}],
            "$defs": {"By": {"type": "object"}},
        }
        server = ForeignServer(definition("repo/search", schema))
        async with MCPTool("repo/search", server.info) as tool:
            assert (tool.name, tool.remote_name) == ("repo_search", "repo/search")  # a name that all providers accept
            called = getattr(tool, call)(limit=None, tags='["a"]', text="[1]", by='{"name": null}', more=None)
            if inspect.isawaitable(called):
                await called
        assert server.calls == [("repo/search", {"tags": ["a"], "text": "[1]", "by": {"name": None}, "more": None})]

    @rows("state", None, {"sum": {"source": "result"}})
    async def test_invoke_and_invoke_async_return_the_same_in_any_loop_and_thread(self, state):
        async with MCPTool("add", COUNTER, outputs_to_state=state) as tool:
            given = [
                tool.invoke(a=5, b=3),  # inside a running loop
                await tool.ainvoke(a=5, b=3),
                await tool.invoke_async(a=5, b=3),
                await asyncio.to_thread(asyncio.run, tool.ainvoke(a=5, b=3)),
            ]
        assert given == [given[0]] * 4
        if state:
            assert given[0] == {"result": 8}
            return
        assert isinstance(given[0], str)
        documented = json.loads(given[0])
        assert (documented["isError"], documented["structuredContent"]) == (False, {"result": 8})
        assert {"type": "text", "text": "8"}.items() <= documented["content"][0].items()

    @rows("name", *"self name state kwargs tool_name mcp_arguments arguments tool_args".split())
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

    @every_executor
    @rows("key", "kwargs", "state", "arguments")
    def test_streaming_callbacks_and_unmapped_state_keys_are_not_sent(self, execute, key):
        server = ForeignServer(definition("search"))
        with MCPTool("search", server.info) as tool:
            execute([tool], ("search", {"q": "x"}), state_schema={key: {"type": dict}}, state={key: {"no": 1}})
            tool.invoke(streaming_callback=print, q="x")
            asyncio.run(tool.ainvoke(streaming_callback=print, q="x"))
        assert server.calls == [("search", {"q": "x"})] * 3

    @rows("method", "ainvoke", "invoke_async")
    def test_a_call_awaited_outside_an_asyncio_loop_is_refused_before_anything_is_sent(self, method):
        server = ForeignServer(definition("add"))
        with MCPTool("add", server.info) as tool:
            call = getattr(tool, method)(a=1, b=2)
            with pytest.raises(MCPInvocationError, match=r"trio\.to_thread\.run_sync.*The tool did not run"):
                call.send(None)  # like the loop of another library
            assert tool.connection.status().calls == 0


@pytest.fixture(params=["invoke", "ainvoke"])
def failing_call(request):
    def fail(tool: MCPTool, **arguments: Any) -> MCPInvocationError:
        with pytest.raises(MCPInvocationError) as raised:
            if request.param == "invoke":
                tool.invoke(**arguments)
            else:
                asyncio.run(tool.ainvoke(**arguments))
        return raised.value

    return fail


class TestErrors:
    @rows(
        ("answer", "message", "code", "data"),
        (text_result("first", "second", is_error=True), "first\nsecond", None, None),
        (text_result(is_error=True), "the server gave no error text", None, None),
        (mcp.MCPError(-32042, "quota exceeded", {"limit": 5}), "quota exceeded", -32042, {"limit": 5}),
        (mcp.MCPError(-32602, "Invalid params", "No tool x"), "Invalid params: No tool x", -32602, "No tool x"),
        (mcp.MCPError(-32603, "Internal error", {"message": "m"}), "Internal error: m", -32603, {"message": "m"}),
    )
    def test_the_servers_own_text_is_the_message(self, failing_call, answer, message, code, data):
        server = ForeignServer(definition("search"))
        server.answer = answer
        with MCPTool("search", server.info) as tool:
            error = failing_call(tool, q="x")
        assert str(error) == f"Failed to invoke Tool `search`: {message}"
        assert isinstance(error, ToolInvocationError)
        assert not isinstance(error, MCPError)
        assert (error.tool_name, error.tool_args, error.code, error.data) == ("search", {"q": "x"}, code, data)

    @every_executor
    def test_the_model_reads_an_unnested_error_and_the_state_stays_unchanged(self, execute):
        with MCPTool("fail", FASTMCP, outputs_to_state={"said": {}}) as tool:
            outcome = execute([tool], ("fail", {"message": "no luck"}), state_schema={"said": {"type": dict}})
        assert outcome.error.count("Failed to invoke") == 1
        assert outcome.error.endswith("no luck")
        assert outcome.state["said"] is None

    @rows(
        "error",
        MCPInvocationError("no", "add", {"a": 1}, code=-32000, data={"x": 1}),
        MCPTimeoutError("late", "add"),
        MCPToolNotFoundError("where", "add", ["echo"]),
        MCPConnectionError("gone", StdioServerInfo("uvx"), "connect", code=-1),
    )
    def test_errors_can_be_sent_to_another_process(self, error):
        twin = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(twin) is type(error)
        assert str(twin) == str(error) == twin.message
        assert vars(twin) == vars(error)


class TestSecrecy:
    """The fixture that watches for secrets finds no value of an argument, above all none from State."""

    @pytest.fixture(autouse=True)
    def watched(self, secret_watch):
        secret_watch.learn(SECRET[:6])

    def test_a_failed_call_shows_no_argument(self, failing_call, stdio_server):
        class Odd:
            def __repr__(self) -> str:
                return SECRET

        with MCPTool("secret_echo", COUNTER, inputs_from_state={"api_token": "token"}) as tool:
            error = failing_call(tool, text="hi", token=SECRET, refuse=True)
            assert error.tool_args == {"text": "hi", "token": SECRET, "refuse": True}
            assert "Field required" in str(failing_call(tool, token=SECRET * 20))
            failing_call(tool, text=Odd())  # which cannot be JSON
        server = stdio_server()
        with MCPTool("die", StdioServerInfo(server.command, server.args, max_retries=0)) as tool:
            failing_call(tool, token=SECRET)
        tool = MCPTool("add", StdioServerInfo("mcp-no-such-command"))
        error = failing_call(tool, token=SECRET)
        assert str(error).startswith("Failed to invoke Tool `add`: ") and "mcp-no-such-command" in str(error)
        assert isinstance(error.__cause__, MCPConnectionError)
        tool.close()

    def test_a_call_that_times_out_shows_no_argument(self, failing_call):
        with MCPTool("sleep", COUNTER, invocation_timeout=0.2) as tool:
            error = failing_call(tool, seconds=600, token=SECRET)
        assert isinstance(error, MCPTimeoutError) and isinstance(error, TimeoutError)
        assert str(error).startswith("Failed to invoke Tool `sleep`: timed out after 0.2 seconds")

    @every_executor
    @pytest.mark.parametrize("refuse", [False, True])
    def test_only_the_server_sees_a_value_from_state(self, execute, refuse):
        tool = MCPTool("secret_echo", COUNTER, inputs_from_state={"api_token": "token"})
        with tool, recorded_traces(content=False) as traces:
            outcome = execute(
                [tool],
                ("secret_echo", {"text": "hi", "refuse": refuse}),
                state_schema={"api_token": {"type": str}},
                state={"api_token": SECRET},
            )
            assert tool.parameters["required"] == ["text"]
        seen = outcome.results[0].result
        assert seen.endswith("the token was refused") if refuse else f"of {len(SECRET)} characters" in seen
        assert SECRET not in seen
        for turn in outcome.turns:
            assert sorted(turn.tool_specs[0]["parameters"]["properties"]) == ["refuse", "text"]
        assert SECRET not in traces.text

    @pytest.mark.parametrize("who", ["tool", "server", "interceptor"])
    def test_a_quoted_value_from_state_is_redacted(self, failing_call, who, caplog):
        caplog.set_level(logging.DEBUG, logger="haystack_integrations")
        secret = {"key": SECRET, "nested": [{"number": 1234567, "line": "Zwölf\n'Boxkämpfer'"}]}
        text = f"cannot use {secret}, that is {json.dumps(secret)}, for user Ann"

        def refuse(_call: Any, _call_next: Any) -> Any:
            raise PermissionError(text)

        server = ForeignServer(definition("search", {"type": "object", "properties": {"token": {}, "user": {}}}))
        server.answer = mcp.MCPError(-32000, text) if who == "server" else text_result(text, is_error=True)
        options = {"interceptors": [refuse]} if who == "interceptor" else {}
        with MCPTool("search", server.info, inputs_from_state={"api_token": "token"}, **options) as tool:
            error = failing_call(tool, token=secret, user="Ann")
            assert error.tool_args == {"token": secret, "user": "Ann"}
        assert "for user Ann" in str(error)
        assert str(error) == error.message
        shown = f"{error!r} {error.__cause__!r} {caplog.text}"
        assert not [hidden for hidden in (SECRET, "1234567", "Boxk", "Zw") if hidden in shown]


class TestStateInputs:
    @rows(
        ("tool_name", "parameter", "message"),
        ("add", "c", "`inputs_from_state` .'key'. of tool 'add' has .* 'c'.*Valid parameters are: a, b"),
        ("pid", "c", "Valid parameters are: none"),
        # Parameters of the Python function are not parameters of the tool.
        ("add", "mcp_arguments", "unknown parameter 'mcp_arguments'"),
        ("add", "self", "unknown parameter 'self'"),
    )
    def test_a_parameter_that_the_tool_does_not_have_is_an_error_with_the_valid_ones(
        self, tool_name, parameter, message
    ):
        tool = MCPTool(tool_name, COUNTER, inputs_from_state={"key": parameter})
        with pytest.raises(ValueError, match=message):
            tool.warm_up()
        tool.close()

    @pytest.mark.parametrize(("required", "sent"), [([], {}), (["user"], {"user": None})])
    def test_an_agent_sends_no_null_for_a_state_key_without_a_value(self, required, sent):
        parameters = {"type": "object", "properties": {"user": {"type": "string"}}, "required": required}
        server = ForeignServer(definition("search", parameters))
        with MCPTool("search", server.info, inputs_from_state={"user": "user"}) as tool:
            # Pipelines pass None to an Agent for missing values.
            by_agent([tool], ("search", {}), state_schema={"user": {"type": str}}, state={"user": None})
            # A null that the user's code passes is sent.
            tool.call(user=None)
            asyncio.run(tool.call_async(user=None))
        assert server.calls == [("search", sent), *[("search", {"user": None})] * 2]

    def test_required_inputs_are_also_known_at_the_first_call_which_warms_up(self):
        parameters = {"type": "object", "properties": {"user": {}, "group": {}}, "required": ["user"]}
        server = ForeignServer(definition("search", parameters))
        for is_async in (False, True):
            tool = MCPTool("search", server.info, inputs_from_state={"user": "user", "group": "group"})
            for _ in range(2):
                given = {"user": None, "group": None}
                asyncio.run(tool.invoke_async(**given)) if is_async else tool.invoke(**given)
            tool.close()
        assert server.calls == [("search", {"user": None})] * 4


def first_letter(value: Any) -> str:
    return str(value)[0]


def shout(value: Any) -> str:
    return f"{value}!"


def keep_city(_current: Any, new: Any) -> str:
    return new["city"].upper()


class TestStateOutputs:
    @every_executor
    def test_state_gets_a_part_and_the_whole_result_and_the_model_gets_the_text(self, execute):
        outputs = {"town": {"source": "city"}, "whole": {}, "loud": {"handler": keep_city}, "none": {"source": "nope"}}
        schema = {"town": {"type": str}, "whole": {"type": dict}, "loud": {"type": str}, "none": {"type": str}}
        with MCPTool("structured", COUNTER, outputs_to_state=outputs) as tool:
            outcome = execute([tool], ("structured", {"city": "Rome"}), state_schema=schema)
        shown = {"city": "Rome", "temperature": 21.5, "conditions": ["sunny", "windy"]}
        assert outcome.state == {"town": "Rome", "whole": shown, "loud": "ROME", "none": None}
        assert json.loads(outcome.result) == shown

    @every_executor
    def test_images_are_passed_to_state_and_to_models_that_accept_them(self, execute):
        shown, parts = {}, [TextContent, ImageContent, TextContent]
        for result_format in ("text", "json", "content"):
            options, state = ToolOptions(result_format=result_format), {"parts": {"source": "result"}}
            with MCPTool("mixed", COUNTER, tool_options=options, outputs_to_state=state) as tool:
                outcome = execute([tool], ("mixed", {}), state_schema={"parts": {"type": list}})
            assert [type(part) for part in outcome.state["parts"]] == parts
            shown[result_format] = outcome.result
        assert shown["text"] == "before\n[image: image/png, 69 B]\nafter"
        assert json.loads(shown["json"])["content"][1]["type"] == "image"
        assert [type(part) for part in shown["content"]] == parts


class TestStringOutputs:
    @every_executor
    @rows(
        ("call", "config", "expected"),
        (("structured", {"city": "Rome"}), {"source": "city"}, "Rome"),
        (("structured", {"city": "Rome"}), {"source": "conditions", "handler": first_letter}, "["),
        (("add", {"a": 1, "b": 2}), {"handler": first_letter}, "{"),  # the handler gets the JSON
        (("echo", {"text": "hello"}), {"source": "diff"}, "hello"),  # there is no such part
        (("echo", {"text": "hello"}), {"source": "diff", "handler": shout}, "hello!"),
    )
    def test_the_model_sees_the_source_as_converted_by_the_handler(self, execute, call, config, expected):
        with MCPTool(call[0], COUNTER, outputs_to_string=config) as tool:
            assert execute([tool], call).result == expected

    @every_executor
    def test_several_outputs_are_shown_together_and_the_raw_result_is_the_json_string(self, execute):
        config = {"where": {"source": "city"}, "loud": {"source": "city", "handler": shout}}
        with MCPTool("structured", COUNTER, outputs_to_string=config) as tool:
            shown = execute([tool], ("structured", {"city": "Rome"})).result
        assert "Rome!" in shown
        assert "where" in shown
        with MCPTool("add", COUNTER, outputs_to_string={"raw_result": True}) as tool:
            assert json.loads(execute([tool], ("add", {"a": 1, "b": 2})).result)["isError"] is False
            assert isinstance(tool.invoke(a=1, b=2), str)

    def test_the_placeholder_of_a_source_is_not_in_the_result(self):
        with MCPTool("echo", COUNTER, outputs_to_string={"source": "diff"}, outputs_to_state={"all": {}}) as tool:
            result = tool.invoke(text="hello")
        assert result == {"result": "hello"}
        assert (result.get("diff"), result.get("other"), result.get("result")) == ("hello", None, "hello")

    def test_a_call_returns_a_dict_if_the_state_gets_any_output(self):
        with MCPTool("echo", COUNTER) as tool:
            assert isinstance(tool.invoke(text="hello"), str)
            tool.outputs_to_state = {"all": {}}
            assert tool.invoke(text="hello") == {"result": "hello"}


class JsonClient(MCPClient):
    """A minimal custom client."""

    def __init__(self, greeting: str) -> None:
        self.greeting = greeting
        self.closed = False

    async def connect(self) -> list[types.Tool]:
        if self.greeting == "unreachable":
            message = "the line is dead"
            raise OSError(message)
        return [definition("greet", {"type": "object", "properties": {"name": {"type": "string"}}})]

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        if tool_args["name"] == "nobody":
            raise MCPInvocationError("nobody is there", tool_name=tool_name, tool_args=tool_args)
        if tool_args["name"] == "plain":  # it may answer with plain text
            return f"{self.greeting} plain"
        if tool_args["name"] == SECRET:
            raise KeyError("broken")
        return text_result(f"{self.greeting} {tool_args['name']}").model_dump_json(by_alias=True)

    async def aclose(self) -> None:
        self.closed = True


class SessionOwningClient(MCPClient):
    """A client that leaves calls and closing to the base class, like clients of version 2."""

    def __init__(self, greeting: str) -> None:
        super().__init__(max_retries=1)
        self.greeting = greeting

    async def connect(self) -> list[types.Tool]:
        server = MCPServer("own")

        @server.tool()
        def greet(name: str) -> str:
            if name == "nobody":
                message = "nobody is there"
                raise ToolError(message)
            return f"{self.greeting} {name}"

        client = await self.exit_stack.enter_async_context(mcp.Client(server))
        self.session = client.session
        return (await client.list_tools()).tools


@dataclasses.dataclass
class CustomServerInfo(MCPServerInfo):
    client_class: Any
    greeting: str = "good day"

    def create_client(self) -> MCPClient:
        return self.client_class(self.greeting)


class TestCustomClients:
    @every_executor
    @rows(("client_class", "name"), (JsonClient, "Ada"), (JsonClient, "plain"), (SessionOwningClient, "Ada"))
    def test_custom_clients_provide_tools(self, execute, client_class, name):
        with MCPToolset(CustomServerInfo(client_class)) as toolset:
            assert execute(toolset, ("greet", {"name": name})).result == f"good day {name}"
            assert toolset[0].call(name=name).text == f"good day {name}"
            assert asyncio.run(toolset[0].call_async(name=name)).text == f"good day {name}"

    def test_each_tool_of_infos_without_fields_has_its_own_client_which_is_closed_with_it(self):
        class Info(MCPServerInfo):
            def create_client(self) -> MCPClient:
                made.append(JsonClient("hello"))
                return made[-1]

        made: list[JsonClient] = []
        with MCPTool("greet", Info()), MCPTool("greet", Info()):
            assert [client.closed for client in made] == [False, False]
        assert [client.closed for client in made] == [True, True]

    @rows("client_class", SessionOwningClient, JsonClient)
    def test_an_error_that_a_custom_client_reports_or_raises_is_an_invocation_error(self, failing_call, client_class):
        with MCPTool("greet", CustomServerInfo(client_class)) as tool:
            error = failing_call(tool, name="nobody")
            assert str(error).endswith("nobody is there")
            assert str(error).count("Failed to invoke") <= 1
            if client_class is JsonClient:
                assert SECRET not in str(failing_call(tool, name=SECRET))

    def test_a_custom_client_that_cannot_connect_is_a_connection_error(self):
        tool = MCPTool("greet", CustomServerInfo(JsonClient, "unreachable"))
        with pytest.raises(MCPConnectionError, match="the line is dead"):
            tool.warm_up()
        tool.close()


@rows("kind", ArithmeticError, RuntimeError, TimeoutError)
def test_the_error_of_a_signal_handler_which_a_time_limit_sets_reaches_its_caller(kind):
    with ringing(kind) as server, MCPTool("ring", server) as tool, recorded_traces(content=False) as traces:
        for call in (tool.invoke, tool.call, lambda: tool.connection.call_tool("ring")):
            with pytest.raises(kind) as raised:
                call()
            assert type(raised.value) is kind
    assert [tags["mcp.outcome"] for name, tags in traces.spans if name == "haystack.mcp.call"] == ["cancelled"] * 3


def test_an_agent_keeps_a_cold_tool_and_warms_it_up():
    tool = MCPTool("add", COUNTER)
    outcome = by_agent([tool], ("add", {"a": 1, "b": 2}))
    tool.close()
    assert outcome.turns[0].tool_specs[0]["description"] == "Add two integers."
    assert outcome.result == "3"


def test_asdict_returns_the_fields():
    with MCPTool("add", COUNTER) as warm:
        fields = dataclasses.asdict(warm)
        assert (fields["name"], fields["parameters"]) == ("add", warm.parameters)
    assert set(fields) == {field.name for field in dataclasses.fields(Tool)}
