# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from typing import Annotated, Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from haystack.tools import Tool
from pydantic import BaseModel, Field

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.serving.schemas import ArgumentCheck
from tests.support.rows import rows

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "share": {"type": "number", "maximum": 1},
        "price": {"type": "number", "multipleOf": 0.01},
        "perhaps": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "maybe": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "deep": {"type": "array", "items": {"type": "object", "properties": {"tags": {"type": "array"}}}},
    },
    "additionalProperties": False,
}


def checked(arguments: dict[str, Any], *, strict: bool = False) -> Any:
    return ArgumentCheck("tool", SCHEMA).check(arguments, strict=strict)


@rows("text", ["nan", "-Infinity", "0x10", "1e", "", "1 0", "1e999", "9" * 5000])
@rows("name", ["count", "share", "price", "perhaps"])
def test_only_numbers_of_json_are_numbers(name: str, text: str):
    with pytest.raises(ToolError, match=rf"^Invalid arguments for tool 'tool': '{name}' must be of type "):
        checked({name: text})


@rows(
    ("arguments", "read"),
    [
        ({"count": " -3 ", "perhaps": "+4"}, {"count": -3, "perhaps": 4}),
        ({"count": "1.0"}, {"count": 1}),
        ({"count": "12345678901234567890.0"}, {"count": 12345678901234567890}),
        ({"share": "0.5", "price": ".25"}, {"share": 0.5, "price": 0.25}),
        ({"pair": ["1", "1"], "either": "3"}, {"pair": [1, "1"], "either": "3"}),
        ({"counts": '{"a": "2"}'}, {"counts": {"a": 2}}),
        ({"maybe": '["a"]'}, {"maybe": ["a"]}),
        ({"maybe": None}, {"maybe": None}),
        ({"either": "[1]"}, {"either": "[1]"}),
        ({"deep": ['{"tags": "[1]"}']}, {"deep": [{"tags": [1]}]}),
    ],
)
def test_texts_are_read_as_what_is_wanted_and_refused_strictly(arguments: dict[str, Any], read: dict[str, Any]):
    assert json.dumps(checked(arguments)) == json.dumps(read)
    if arguments != read:
        with pytest.raises(ToolError, match="must be of type"):
            checked(arguments, strict=True)


def test_null_for_what_is_optional_is_as_if_it_were_left_out():
    assert checked({"share": None, "maybe": None, "count": 1}) == {"maybe": None, "count": 1}
    with pytest.raises(ToolError, match="'count' must be of type integer"):
        ArgumentCheck("tool", {**SCHEMA, "required": ["count"]}).check({"count": None}, strict=False)


@rows("strict", [True, False])
@rows(
    ("arguments", "where"),
    [
        *(({"counts": text}, "counts") for text in ('{"a": 1', "[1]", "null", "[" * 100_000)),
        *(({"share": number}, "share") for number in (float("nan"), float("inf"))),
        ({"counts": {"a": float("nan")}}, r"counts\.a"),
        ({"counts": {"a": None}}, r"counts\.a"),
    ],
)
def test_what_is_of_another_type_is_refused(arguments: dict[str, Any], where: str, strict: bool):
    with pytest.raises(ToolError, match=f"'{where}' must be of type"):
        checked(arguments, strict=strict)


@rows("strict", [True, False])
def test_a_whole_number_is_an_integer_however_it_was_written(strict: bool):
    assert repr(checked({"count": 1.0, "share": 1}, strict=strict)) == "{'count': 1, 'share': 1}"


INTEGERS = {"type": "array", "items": {"type": "integer"}}


async def test_checking_long_arguments_holds_up_nobody():
    schema = {"type": "object", "properties": {"values": INTEGERS}}
    server = create_mcp_server("numbers", tools=[Tool("count", "Counts.", schema, lambda values: str(len(values)))])
    longest = 0.0
    async with Client(server) as client:
        counting = asyncio.create_task(client.call_tool("count", {"values": [1] * 150_000}))
        while not counting.done():
            begin = time.monotonic()
            await asyncio.sleep(0.02)
            longest = max(longest, time.monotonic() - begin)
        assert (await counting).content[0].text == "150000"
    assert longest < 1


def test_of_a_long_list_the_first_reasons_are_told_and_only_what_cannot_be_read_is_named():
    check = ArgumentCheck("tool", {"type": "object", "properties": {"values": INTEGERS}})
    with pytest.raises(ToolError, match=r"'values\[0\]' must be of type integer; .*and 9990 more"):
        check.check({"values": ["x"] * 20_000}, strict=True)
    with pytest.raises(ToolError, match=r"tool': 'values\[10\]' must be of type integer$"):
        check.check({"values": ["5"] * 10 + ["x"] + [5.0] * 10}, strict=False)


@rows("others", [{"additionalProperties": True}, {"patternProperties": {"": {}}}, {"anyOf": [{}]}])
async def test_where_inputs_are_chosen_others_cannot_be_set(others: dict[str, Any]):
    parameters = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, **others}
    tool = (Tool("show", "Shows.", parameters, lambda **given: given), ServeOptions(inputs=["a"]))
    async with Client(create_mcp_server("s", tools=[tool])) as client:
        [listed] = await client.list_tools()
        assert (list(listed.input_schema["properties"]), listed.input_schema["additionalProperties"]) == (["a"], False)
        with pytest.raises(ToolError, match="there is no argument 'b'"):
            await client.call_tool("show", {"a": "1", "b": "2"})


@rows(
    "parameters",
    [
        {"oneOf": [{"properties": {"count": {"type": "integer"}}, "required": ["count"]}, {"required": ["name"]}]},
        {"anyOf": [{"required": ["count"]}, {"required": ["name"]}], "properties": {"name": {"type": "string"}}},
        {"$ref": "#/$defs/counted", "$defs": {"counted": {"properties": {"count": {"type": "integer"}}}}},
        {"required": ["count"], "properties": {"name": {"type": "string"}}},
        {"properties": {"name": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
        {},
    ],
)
@rows("strict", [True, False])
async def test_an_argument_that_the_schema_names_somewhere_else_or_leaves_open_is_taken(
    parameters: dict[str, Any], strict: bool
):
    tool = Tool("show", "Shows.", {"type": "object", **parameters}, lambda **given: given)
    options = {"show": ServeOptions(strict_validation=strict)}
    async with Client(create_mcp_server("s", tools=[tool], options=options)) as client:
        assert (await client.call_tool("show", {"count": 3})).structured_content == {"count": 3}


async def test_the_schema_decides_where_it_names_arguments_in_alternatives():
    named = [{"properties": {name: {"type": "integer"}}, "required": [name]} for name in ("count", "size")]
    parameters = {"type": "object", "oneOf": named, "unevaluatedProperties": False}
    server = create_mcp_server("s", tools=[Tool("show", "Shows.", parameters, lambda **given: given)])
    async with Client(server) as client:
        assert (await client.call_tool("show", {"size": "3"})).structured_content == {"size": 3}
        for refused in ({}, {"count": 1, "size": 1}, {"count": "many"}, {"count": 1, "other": 1}):
            with pytest.raises(ToolError, match="Invalid arguments for tool 'show'"):
                await client.call_tool("show", refused)


async def test_where_any_name_is_allowed_clients_do_not_set_what_comes_from_the_state_of_an_agent():
    def show(user: str = "nobody", **given: Any) -> dict[str, Any]:
        return {"user": user, **given}

    tool = Tool("show", "Shows.", {"type": "object"}, show, inputs_from_state={"user": "user"})
    async with Client(create_mcp_server("s", tools=[tool])) as client:
        assert (await client.call_tool("show", {"a": 1})).structured_content == {"user": "nobody", "a": 1}
        with pytest.raises(ToolError, match="there is no argument 'user'"):
            await client.call_tool("show", {"user": "root"})


class Trip(BaseModel):
    day: dt.date
    seats: int = 1


@rows("strict", [True, False])
@rows(
    ("arguments", "where"),
    [
        ({"day": 86400}, "'day' must be of type string"),
        ({"count": True}, "'count' must be of type integer"),
        ({"count": 0}, "'count' violates 'minimum: 1'"),
        ({"trip": {"day": "2026-11-23", "seats": True}}, r"'trip\.seats' must be of type integer"),
        ({"trips": [{}]}, r"'day' missing in 'trips\[0\]'"),
    ],
)
async def test_a_function_does_not_take_what_its_schema_forbids(arguments: dict[str, Any], where: str, strict: bool):
    def book(
        day: dt.date | None = None,
        count: Annotated[int, Field(ge=1)] = 1,
        trip: Trip | None = None,
        trips: list[Trip] | None = None,
    ) -> str:
        """Books."""
        return f"{day} {count} {trip} {trips}"

    server = create_mcp_server("s", tools=[book], options={"book": ServeOptions(strict_validation=strict)})
    async with Client(server) as client:
        with pytest.raises(ToolError, match=f"^Invalid arguments for tool 'book': {where}"):
            await client.call_tool("book", arguments)
        assert (await client.call_tool("book", {"day": "2026-11-23"})).data == "2026-11-23 1 None None"


async def test_a_pattern_of_another_dialect_is_left_to_whoever_wrote_it():
    def greet(name: Annotated[str, Field(pattern=r"^\p{Lu}")]) -> str:
        """Greets."""
        return name

    async with Client(create_mcp_server("s", tools=[greet])) as client:
        assert (await client.call_tool("greet", {"name": "Ann"})).data == "Ann"
        with pytest.raises(ToolError, match="Invalid arguments for tool 'greet'"):
            await client.call_tool("greet", {"name": "ann"})
