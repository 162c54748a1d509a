# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers with odd tool definitions, over stdio and HTTP, in both eras of the protocol.
"""

import json
from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPTool, MCPToolset, MCPToolSnapshot

OBJECT = {"type": "object"}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GOOD = {"name": "good", "description": "The good one.", "inputSchema": PERSON}


def with_schema(schema: Any) -> dict[str, Any]:
    return {"name": "odd", "inputSchema": schema}


def with_field(field: str, value: Any) -> dict[str, Any]:
    return {"name": "odd", "inputSchema": OBJECT, field: value}


READABLE = {
    "no schema": ({"name": "odd"}, {}),
    "schema null": (with_schema(None), {}),
    "an empty list": (with_schema([]), {}),
    "type null": (with_schema({"type": None, "properties": {"a": {"type": "string"}}}), {"a": {"type": "string"}}),
    "a reference": (with_schema({"$ref": "#/$defs/P", "$defs": {"P": PERSON}}), PERSON["properties"]),
    "anyOf": (with_schema({"type": "object", "anyOf": [PERSON, OBJECT]}), PERSON["properties"]),
    "a property that may be anything": (with_schema({**OBJECT, "properties": {"a": True}}), {"a": {}}),
    "definitions of a property": (
        with_schema({**OBJECT, "properties": {"p": {"$ref": "#/$defs/P"}}, "definitions": {"P": OBJECT}}),
        {"p": {"$ref": "#/$defs/P"}},
    ),
    "required null": (with_schema({"type": "object", "properties": None, "required": None}), {}),
}


DROPPED = [
    *(("outputSchema", value) for value in (None, True, [], {}, 5)),
    *(("annotations", value) for value in (None, True, [], 5)),
    *(("title", value) for value in (None, 5, [])),
    *(("description", value) for value in (None, 5, {})),
    *(("icons", value) for value in (None, 5, {}, "x")),
    *(("_meta", value) for value in (None, 5, [])),
    *(("execution", value) for value in (None, 5, {"taskSupport": "maybe"})),
    ("unknown", 1),
]


def test_odd_input_schemas_become_object_schemas_that_mean_the_same(start, caplog):
    tools = [{**definition, "name": f"odd {index}"} for index, (definition, _) in enumerate(READABLE.values())]
    with MCPToolset(start({"tools": [*tools, GOOD]})) as toolset:
        loaded = {tool.remote_name: tool for tool in toolset}
        assert json.loads(loaded["odd 0"].invoke(anything=1))["content"][0]["text"] == "hello"
        pinned = MCPToolSnapshot.capture(toolset).tools
    assert {tool.as_tool().name for tool in pinned} == loaded.keys()
    assert loaded.keys() == {*(tool["name"] for tool in tools), "good"}
    found = {index: loaded[f"odd {index}"].parameters for index in range(len(tools))}
    assert all(schema["type"] == "object" and {"anyOf", "allOf"}.isdisjoint(schema) for schema in found.values())
    assert {index: schema["properties"] for index, schema in found.items()} == {
        index: properties for index, (_, properties) in enumerate(READABLE.values())
    }
    assert "Left out" not in caplog.text


def test_only_the_odd_optional_fields_are_dropped(start):
    tools = [{**with_field(*dropped), "name": f"odd {index}"} for index, dropped in enumerate(DROPPED)]
    partly = {
        **with_field("annotations", {"readOnlyHint": "perhaps", "idempotentHint": True, "title": 5}),
        "icons": [{"src": 5}, 7, {"src": "b"}],
        "title": "Kept",
        "_meta": {"kept": 1},
    }
    with MCPToolset(start({"tools": [*tools, partly, GOOD]})) as toolset:
        good, part, *odd = toolset
        [icon] = next(tool.icons for tool in toolset.connection.list_tools() if tool.name == "odd")
    assert len(odd) == len(tools)
    for tool in odd:
        assert (tool.title, tool.description) == (None, tool.name)
        assert not tool.meta and not tool.output_schema
        assert tool.annotations is None or not tool.annotations.model_dump(exclude_none=True)
    assert part.annotations.model_dump(exclude_none=True) == {"idempotent_hint": True}
    assert (part.title, part.meta, icon.src) == ("Kept", {"kept": 1}, "b")
    assert good.description == "The good one."


UNUSABLE = [
    ({"name": "text", "inputSchema": {"type": "string"}}, "'text'", "#/type: must be 'object'"),
    ({**with_schema({**OBJECT, "anyOf": [{"type": "string"}]}), "name": "none"}, "'none'", "#: accepts no object"),
    ({"name": "list", "inputSchema": [1]}, "'list'", "must be a JSON object, not list"),
    ({"name": "", "inputSchema": OBJECT}, "number 4", "its name is missing or empty"),
    ({"name": 5, "inputSchema": OBJECT}, "number 5", "its name must be a string, not int"),
    (5, "number 6", "its definition must be a JSON object, not int"),
]


def test_an_unusable_tool_is_omitted_with_one_warning_that_names_it(start, caplog):
    with MCPToolset(start({"tools": [*(tool for tool, *_ in UNUSABLE), GOOD]})) as toolset:
        toolset.connection.list_tools()
        assert [tool.name for tool in toolset] == ["good"]
    warnings = [text for record in caplog.records if (text := record.getMessage()).startswith(("Left out", "Skipped"))]
    assert len(warnings) == len(UNUSABLE)
    for _, label, reason in UNUSABLE:
        assert [text for text in warnings if label in text and reason in text]


def test_an_unusable_tool_is_an_error_with_the_reason_only_if_it_is_requested_by_name(start):
    info = start({"tools": [{"name": "odd", "inputSchema": [1]}, GOOD]})
    with MCPTool("good", info) as tool:
        assert "hello" in tool.invoke(name="Ada")
    for wanted in (MCPTool("odd", info), MCPToolset(info, tool_names=["good", "odd"])):
        with pytest.raises(ValueError, match=r"Tool 'odd' of .* cannot be used: its input schema .* not list"):
            wanted.warm_up()


@pytest.mark.parametrize(("page", "problem"), [({}, "`tools` is missing"), ({"tools": "none"}, "not str")])
def test_a_listing_without_a_list_is_a_clear_error(start, page, problem):
    with pytest.raises(MCPConnectionError, match=f"its answer to tools/list cannot be read: .*{problem}"):
        MCPToolset(start(page), eager_connect=True)


@pytest.mark.parametrize(
    ("page", "names"), [({"tools": None}, []), ({"tools": [GOOD], "_meta": 5, "nextCursor": None}, ["good"])]
)
def test_an_odd_page_is_still_read(start, page, names):
    with MCPConnection(start(page)) as connection:
        assert [tool.name for tool in connection.list_tools()] == names


def test_missing_definitions_are_logged_once_and_duplicate_names_do_not_hide_other_tools(start, caplog):
    missing = {"name": "missing", "inputSchema": {**OBJECT, "properties": {"a": {"$ref": "#/$defs/A"}}}}
    twins = [with_field("description", text) for text in ("first", "second")]
    foreign = [{"name": name, "inputSchema": OBJECT} for name in ("天气查询", "股票查询")]
    with MCPToolset(start({"tools": [missing, *twins, *foreign]})) as toolset:
        toolset.connection.list_tools()
        loaded = {tool.remote_name: tool for tool in toolset}
        assert json.loads(loaded["天气查询"].invoke())["content"][0]["text"] == "hello"
    assert loaded["missing"].parameters["properties"] == {"a": {}}
    assert caplog.text.count("'missing': its schema refers to definitions that it does not have") == 1
    assert caplog.text.count("'#/$defs/A'") == 1
    assert loaded["odd"].description == "first"
    assert len({tool.name for tool in loaded.values()}) == 4
