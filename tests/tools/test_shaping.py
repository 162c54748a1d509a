# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How options shape a server for the model: its tools, their names, descriptions and parameters, and the size of results.
"""

import logging
import re
from typing import Any

import pytest
from haystack.core.errors import SerializationError
from haystack.dataclasses import ImageContent, TextContent
from haystack.utils import Secret
from mcp import types

from haystack_integrations.tools.mcp import (
    FromState,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    SecretTemplate,
    ToolOptions,
    ToolOverride,
    ToolSelection,
)
from haystack_integrations.tools.mcp.connection.requests import ToolListing
from haystack_integrations.tools.mcp.convert.content import limit_result
from tests.support.executors import by_agent, every_executor, names
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.in_process import COUNTER
from tests.support.rows import rows

SECRET = "s3ntinel-of-a-binding"


def schema(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": [*names], **more}


SEARCH = schema("query", "tenant", "api_key")


def is_short(tool: types.Tool) -> bool:
    return len(tool.name) < 6


def breaks(tool: types.Tool) -> bool:
    raise KeyError(tool.name)


def shout(result: Any) -> str:
    return f"{result}!" * 1000


def hints(**values: bool) -> dict[str, Any]:
    return {"annotations": types.ToolAnnotations(**values)}


@pytest.fixture
def api_key(monkeypatch: pytest.MonkeyPatch) -> Secret:
    monkeypatch.setenv("SHAPING_KEY", SECRET)
    return Secret.from_env_var("SHAPING_KEY")


class TestToolSelection:
    @pytest.mark.parametrize(
        ("parameters", "left"),
        [
            ({"exclude_tools": ["delete_*", "drop"]}, ["list", "look", "update"]),
            ({"required_hints": {"destructive_hint": False}}, ["look", "update"]),
            ({"required_hints": {"idempotent_hint": True, "open_world_hint": True}}, ["look"]),
            ({"tool_filter": is_short, "exclude_tools": ["l*"]}, ["drop"]),
        ],
    )
    def test_tools_are_selected_and_each_omitted_tool_is_logged_once(self, parameters, left, caplog):
        caplog.set_level(logging.INFO)
        server = ForeignServer(
            *map(definition, ["list", "drop", "delete_all"]),
            definition("look", **hints(read_only_hint=True, destructive_hint=True)),
            definition("update", **hints(destructive_hint=False)),
        )
        with MCPToolset(server.info, tool_selection=parameters) as toolset:
            assert names(toolset) == left
            toolset.close()
            toolset.warm_up()
            for name in {"list", "drop", "delete_all", "look", "update"} - set(left):
                assert caplog.text.count(f"Tool '{name}' of {server.info.describe()} is left out: ") == 1
                with pytest.raises(KeyError, match=f"no tool '{name}': the server has it, but `"):
                    toolset[name]

    def test_why_a_tool_is_left_out_is_said_by_each_of_its_names(self):
        overrides = {"drop": ToolOverride(name="throw")}
        selection = ToolSelection(exclude_tools=["d*"])
        server = ForeignServer(*map(definition, ["list", "drop", "delete.all"]))
        with MCPToolset(
            server.info, tool_name_prefix="p", tool_selection=selection, tool_overrides=overrides
        ) as toolset:
            for name in ("drop", "throw", "delete.all", "p_delete_all"):
                with pytest.raises(KeyError, match=f"no tool '{name}': the server has it, but `exclude_tools`"):
                    toolset[name]

    def test_the_name_of_a_tool_cannot_forge_a_line_of_the_log(self, caplog):
        caplog.set_level(logging.DEBUG)
        name = "look\nERROR root: forged\x1b[2K"
        strange = {"type": "object", "properties": {"a": {"type": "strange"}}}
        tools = [definition(name, description="It\u200b."), definition(name), definition(f"{name}2", strange)]
        tools.append(definition(f"{name}3", meta={"ui": {"visibility": ["app"]}}))
        server = ForeignServer(*tools)
        with MCPToolset(server.info, tool_selection=ToolSelection(exclude_tools=["none"])):
            pass
        told = [record.getMessage() for record in caplog.records if "forged" in record.getMessage()]
        assert len(told) == 5
        assert all(text.isprintable() for text in told)

    def test_tools_that_are_not_for_models_are_hidden_but_user_code_may_call_them(self, caplog):
        caplog.set_level(logging.INFO)
        reason = "only an app may use it"
        server = ForeignServer(
            definition("hidden", _meta={"ui": {"visibility": ["app"]}}),
            definition("seen", _meta={"ui": {"visibility": ["model", "app"], "resourceUri": "ui://x"}}),
            definition("odd", _meta={"ui": 5}),
        )
        with MCPToolset(server.info) as toolset, MCPTool("hidden", server.info) as hidden:
            assert names(toolset) == ["odd", "seen"]
            assert "Tool 'hidden' of " in caplog.text and reason in caplog.text
            assert hidden.call().text == "fine"
        with pytest.raises(ValueError, match=f"'hidden' of .* is in `tool_names`, but cannot be loaded: .*{reason}"):
            MCPToolset(server.info, tool_names=["hidden"], eager_connect=True)

    def test_tools_that_can_only_be_called_as_tasks_are_omitted(self):
        # Only one revision of the protocol has the field, and servers in process do not speak it by default.
        long = {"name": "long", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
        listed = types.Tool.model_validate(long, by_name=False)
        assert "only be called as a task" in str(ToolSelection().reason_against(listed))
        tool = MCPTool("long", COUNTER)
        with pytest.raises(ValueError, match=r"'long' of .* cannot be used: it can only be called as a task"):
            tool._load_listing(ToolListing(tools=[listed]))

    def test_a_tool_that_is_both_named_and_excluded_is_an_error(self):
        server = ForeignServer(definition("delete"))
        selection = ToolSelection(required_hints={"read_only_hint": True})
        toolset = MCPToolset(server.info, tool_names=["delete"], tool_selection=selection)
        with pytest.raises(ValueError, match=r"'delete' .* is in `tool_names`, .*its read_only_hint is False"):
            toolset.warm_up()
        with pytest.raises(MCPInvocationError, match="read_only_hint is False"):
            toolset[0].invoke()
        assert server.calls == []

    def test_a_failing_filter_is_an_error_and_excludes_all_tools(self):
        toolset = MCPToolset(ForeignServer(definition("add")).info, tool_selection=ToolSelection(tool_filter=breaks))
        with pytest.raises(ValueError, match="`tool_filter` failed for tool 'add': KeyError"):
            toolset.warm_up()
        assert names(toolset) == []


class TestMistakes:
    def test_a_warning_for_an_unknown_tool_suggests_the_closest_name(self, caplog):
        parameters = ["tool_overrides", "inputs_from_state", "outputs_to_state", "outputs_to_string"]
        given = {name: {"serch": {}} for name in parameters}
        server = ForeignServer(definition("search"))
        with MCPToolset(server.info, tool_selection={"exclude_tools": ["serch"]}, **given) as toolset:
            toolset.close()
            toolset.warm_up()
        for parameter in ("exclude_tools", *parameters):
            [told] = [each.getMessage() for each in caplog.records if parameter in each.getMessage()]
            assert "'serch'" in told and "Did you mean 'search'?" in told

    @rows(
        ("tool", "parameter", "message"),
        ("serch", "query", r"binds arguments of 'serch', which the server does not have\. Did you mean"),
        ("search", "key", "unknown parameter 'key'.*Valid parameters are: api_key, query, tenant"),
    )
    def test_an_unknown_tool_or_parameter_is_an_error_where_the_model_would_see_its_arguments(
        self, tool, parameter, message
    ):
        overrides = {tool: {"bound_arguments": {parameter: "x"}}}
        toolset = MCPToolset(ForeignServer(definition("search", SEARCH)).info, tool_overrides=overrides)
        with pytest.raises(ValueError, match=message):
            toolset.warm_up()


class TestNamesAndDescriptions:
    def test_an_agent_sees_exactly_the_shaped_tools_and_calls_the_servers(self, api_key):
        output = {"type": "object", "properties": {"hits": {"type": "integer"}}}
        server = ForeignServer(
            definition("search", SEARCH, description="Search.", output_schema=output),
            definition("drop"),
            definition("list", description="List."),
        )
        server.answer = text_result("found", structured_content={"hits": 1})
        bound = {"api_key": api_key, "tenant": FromState("tenant")}
        override = ToolOverride(name="find_docs", description="Find documents.", bound_arguments=bound)
        toolset = MCPToolset(
            server.info,
            tool_name_prefix="kb",
            tool_selection=ToolSelection(exclude_tools=["dr*"]),
            tool_overrides={"search": override},
            tool_options=ToolOptions(include_output_schema=True),
        )
        given = {"query": "x", "api_key": "mine", "tenant": "other"}
        with toolset:
            tenant = {"state_schema": {"tenant": {"type": str}}, "state": {"tenant": "acme"}}
            outcome = by_agent(toolset, ("find_docs", given), **tenant)
        described = (
            'Find documents.\n\nThe result has this JSON schema: {"type":"object",'
            '"properties":{"hits":{"type":"integer"}}}'
        )
        assert outcome.turns[0].tool_specs == [
            {"name": "kb_list", "description": "List.", "parameters": {"type": "object", "properties": {}}},
            {"name": "find_docs", "description": described, "parameters": schema("query")},
        ]
        assert outcome.result == "found"
        assert server.calls == [("search", {"query": "x", "api_key": SECRET, "tenant": "acme"})]

    def test_argument_names_that_some_models_refuse_are_renamed_for_the_model_only(self):
        odd = {"filter[id]": {"type": "integer"}, "$top": {"type": "integer"}, "tenant@": {"type": "string"}}
        server = ForeignServer(definition("list", {"type": "object", "properties": odd, "required": ["filter[id]"]}))
        with MCPTool("list", server.info, bound_arguments={"tenant@": "acme"}) as tool:
            outcome = by_agent([tool], ("list", {"filter_id": "5", "top": "null"}))
            tool.call(**{"filter[id]": 6, "$top": "7"})
        shown = outcome.turns[0].tool_specs[0]["parameters"]
        assert shown["properties"] == {
            "filter_id": {"title": "filter[id]", "type": "integer"},
            "top": {"title": "$top", "type": "integer"},
        }
        assert shown["required"] == ["filter_id"]
        sent = [{"filter[id]": 5, "tenant@": "acme"}, {"filter[id]": 6, "$top": 7, "tenant@": "acme"}]
        assert [arguments for _, arguments in server.calls] == sent

    def test_a_schema_cannot_hide_instructions(self):
        hidden = "".join(chr(0xE0000 + ord(character)) for character in "hi")
        kind = {"enum": [f"red{hidden}", "blue"], "default": f"red{hidden}", "x-note": hidden}
        inner = {"type": "object", "properties": {f"inner{hidden}": {"const": f"one{hidden}"}}}
        kinds = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}]}}
        properties = {"kind": kind, f"of{hidden}": {"type": "string"}, "more": inner, "kinds": kinds}
        outputs = {"type": "object", "properties": {"r": {"enum": [hidden]}}}
        definitions = {"Kind": {"type": "string", "enum": [f"red{hidden}", "blue"], "pattern": f"^[a-z{hidden}]*$"}}
        schema = {"type": "object", "properties": properties, "$defs": definitions}
        server = ForeignServer(definition("paint", schema, output_schema=outputs))
        with MCPToolset(server.info, tool_options=ToolOptions(include_output_schema=True)) as toolset:
            shown = toolset["paint"].tool_spec
            assert hidden[0] not in repr(shown)
            assert shown["parameters"]["properties"]["kind"]["enum"] == ["red", "blue"]
            server.answer = text_result("fine", structured_content={})
            toolset["paint"].invoke(of="x")
        assert server.calls == [("paint", {f"of{hidden}": "x"})]

    def test_options_for_one_tool_do_not_affect_others(self):
        own = {"result_format": "json", "retry_idempotent": True, "max_result_size": 500}
        options = ToolOptions(result_format="content", max_result_size=1000)
        overrides = {"sleep": {"invocation_timeout": 0.2, **own}}
        with MCPToolset(COUNTER, tool_options=options, tool_overrides=overrides, invocation_timeout=60) as toolset:
            sleep, echo = toolset["sleep"], toolset["echo"]
            assert {name: getattr(sleep.tool_options, name) for name in own} == own
            assert echo.tool_options == options
            assert (echo.invocation_timeout, toolset.invocation_timeout) == (60, 60)
            with pytest.raises(TimeoutError, match=r"after 0.2 seconds"):
                sleep.invoke(seconds=120)


class TestBoundArguments:
    @every_executor
    @pytest.mark.parametrize("state", [{}, {"tenant": None}])  # pipelines pass None to an Agent
    def test_the_call_is_not_sent_if_a_bound_value_is_missing(self, execute, state, monkeypatch):
        monkeypatch.delenv("SHAPING_KEY", raising=False)
        server = ForeignServer(definition("search", SEARCH))
        schema_of_state = {"tenant": {"type": str}}
        for value, missing in (
            (FromState("tenant"), "'tenant' is bound to the State's 'tenant', which has no value"),
            (Secret.from_env_var("SHAPING_KEY"), "('SHAPING_KEY',). The tool did not run."),
            (Secret.from_env_var("SHAPING_KEY", strict=False), "'tenant' is bound to a Secret that has no value"),
        ):
            with MCPToolset(server.info, tool_overrides={"search": {"bound_arguments": {"tenant": value}}}) as toolset:
                made = ("search", {"query": "x", "tenant": "evil"})
                outcome = execute(toolset, made, state_schema=schema_of_state, state=state)
            assert missing in outcome.error and "did not run" in outcome.error
        assert server.calls == []

    @every_executor
    def test_a_state_key_may_be_bound_twice_and_be_an_input_that_the_model_overrides(self, execute):
        server = ForeignServer(definition("search", schema("a", "b", "c")))
        bound = {"a": FromState("tenant"), "b": FromState("tenant")}
        with MCPTool("search", server.info, inputs_from_state={"tenant": "c"}, bound_arguments=bound) as tool:
            for given, c in (({"a": "evil"}, "acme"), ({"c": "mine"}, "mine")):
                execute([tool], ("search", given), state_schema={"tenant": {"type": str}}, state={"tenant": "acme"})
                assert server.calls.pop() == ("search", {"a": "acme", "b": "acme", "c": c})

    def test_a_secret_is_resolved_at_every_call_and_the_model_cannot_set_it(self, api_key, monkeypatch):
        server = ForeignServer(definition("search", SEARCH))
        with MCPTool("search", server.info, bound_arguments={"api_key": api_key}) as tool:
            tool.invoke(query="x", tenant="y", api_key="evil")
            monkeypatch.setenv("SHAPING_KEY", "rotated")
            tool.call(query="x", tenant="y")
        assert [arguments["api_key"] for _, arguments in server.calls] == [SECRET, "rotated"]

    def test_a_template_is_resolved_also_after_it_was_stored_and_its_variables_are_redacted(self, api_key):
        server = ForeignServer(definition("search", SEARCH))
        server.answer = text_result(f"{SECRET} is unknown", is_error=True)
        overrides = {"search": ToolOverride(bound_arguments={"api_key": SecretTemplate("key ${SHAPING_KEY}")})}
        stored = MCPToolset(COUNTER, tool_overrides=overrides).to_dict()["data"]["tool_overrides"]
        with MCPToolset(server.info, tool_overrides=stored) as toolset:
            with pytest.raises(MCPInvocationError, match=r"\*\*\* is unknown"):
                toolset["search"].invoke(query="x", tenant="y")
        assert server.calls[0][1]["api_key"] == f"key {SECRET}"

    @rows("is_nested", False, True)
    def test_a_secret_is_never_sent_as_a_header(self, api_key, is_nested):
        header = {"type": "string", "x-mcp-header": "Api-Key"}
        search = schema("query")
        search["properties"]["api_key"] = {"type": "object", "properties": {"a": header}} if is_nested else header
        server = ForeignServer(definition("search", search))
        toolset = MCPToolset(server.info, tool_overrides={"search": {"bound_arguments": {"api_key": api_key}}})
        with pytest.raises(ValueError, match=r"binds 'api_key' to a Secret, but the server also wants .*x-mcp-header"):
            toolset.warm_up()
        with MCPToolset(server.info, tool_overrides={"search": {"bound_arguments": {"query": api_key}}}) as other:
            other[0].invoke(api_key="public")
        assert server.calls == [("search", {"query": SECRET, "api_key": "public"})]


class TestStoring:
    def test_a_tool_of_a_toolset_is_stored_with_its_options(self, api_key):
        bound = {"t": FromState("t"), "k": api_key}
        shape = {"name": "find", "description": "Find.", "invocation_timeout": 5, "max_result_size": 300}
        toolset = MCPToolset(
            COUNTER,
            ["search"],
            connection_timeout=7,
            inputs_from_state={"search": {"user": "u"}},
            outputs_to_state={"search": {"said": {"source": "result"}}},
            outputs_to_string={"search": {"source": "result"}},
            tool_overrides={"search": ToolOverride(bound_arguments=bound, **shape)},
            tool_options=ToolOptions(include_instructions=True),
        )
        stored = toolset["find"].to_dict()
        assert SECRET not in str(stored)
        assert stored["data"]["tool_options"] == {"max_result_size": 300}
        assert stored["data"]["inputs_from_state"] == {"user": "u"}
        assert stored["data"]["outputs_to_state"] == {"said": stored["data"]["outputs_to_string"]}
        tool = MCPTool.from_dict(stored)
        assert tool.to_dict() == stored
        assert (tool.name, tool.remote_name, tool.description) == ("find", "search", "Find.")
        assert (tool.connection_timeout, tool.invocation_timeout, tool.bound_arguments) == (7, 5, bound)

    def test_a_handwritten_secret_need_not_state_that_it_is_strict(self):
        by_hand = {"add": {"bound_arguments": {"a": {"type": "env_var", "env_vars": ["KEY"]}}}}
        toolset = MCPToolset(COUNTER, ["add"], tool_overrides=by_hand)
        assert toolset["add"].bound_arguments == {"a": Secret.from_env_var("KEY")}

    def test_values_that_cannot_be_stored_are_an_error_but_are_traced_by_name(self):
        bound = {"add": {"bound_arguments": {"a": Secret.from_token(SECRET)}}}
        toolset = MCPToolset(COUNTER, tool_selection={"tool_filter": lambda _tool: True}, tool_overrides=bound)
        traced = toolset._to_trace_dict()["data"]
        assert "lambda" in traced["tool_selection"]["tool_filter"]
        assert traced["tool_overrides"]["add"] == {"bound_arguments": ["a"]}
        for owner, reason in (
            (toolset, "lambda"),
            (MCPTool("add", COUNTER, outputs_to_string={"handler": lambda value: value}), "lambda"),
            (MCPTool("add", COUNTER, bound_arguments={"a": Secret.from_token(SECRET)}), "[Tt]oken"),
        ):
            with pytest.raises((SerializationError, ValueError), match=reason):
                owner.to_dict()


class TestTheSizeOfResults:
    def test_only_the_model_gets_a_shortened_result(self):
        server = ForeignServer(definition("read"))
        server.answer = text_result("a" * 5000 + "z" * 5000)
        options, state = ToolOptions(max_result_size=400), {"all": {"source": "result"}}
        with MCPTool("read", server.info, tool_options=options, outputs_to_state=state) as tool:
            outcome = by_agent([tool], ("read", {}), state_schema={"all": {"type": str}})
            assert len(tool.call().text) == 10_000
        assert len(outcome.result) <= 400
        left_out = re.fullmatch(r"(a+)\n\[… (\d+) of 10000 characters left out …\]\n(z+)", outcome.result)
        assert left_out and len(left_out[1]) + int(left_out[2]) + len(left_out[3]) == 10_000
        assert outcome.state["all"] == "a" * 5000 + "z" * 5000

    @rows(
        "outputs_to_string", {"source": "result", "raw_result": True}, {"one": {"source": "result", "handler": shout}}
    )
    @every_executor
    def test_results_of_user_handlers_are_also_limited(self, execute, outputs_to_string):
        server = ForeignServer(definition("read"))
        server.answer = text_result("a" * 5000)
        options = ToolOptions(max_result_size=400)
        with MCPTool("read", server.info, tool_options=options, outputs_to_string=outputs_to_string) as tool:
            outcome = execute([tool], ("read", {}))
            assert "characters left out" in outcome.result
            assert len(outcome.result) < 500
            assert tool._init_parameters()["outputs_to_string"] == outputs_to_string

    @rows("size", 200, 201, 333, 1000)
    def test_only_the_text_of_a_result_with_several_parts_is_limited(self, size):
        image = ImageContent(base64_image="aGVsbG8=", mime_type="image/png")
        parts = [TextContent("a" * 90), TextContent("b" * 5000), image, TextContent("c" * 5000), TextContent("d" * 90)]
        limited = limit_result(parts, size)
        text = "".join(part.text for part in limited if isinstance(part, TextContent))
        assert len(text) <= size
        assert text.startswith("a" * 60) and text.endswith("d" * 60) and text.count("left out") == 1
        assert image in limited
        assert limit_result(parts, 20_000) is parts
