# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which arguments of clients are accepted, and how they are converted.
"""

import asyncio
import datetime as dt
import enum
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from haystack import Document, Pipeline, component
from haystack.components.converters import TextFileToDocument
from haystack.dataclasses import ByteStream, ChatMessage
from haystack.tools import ComponentTool, Tool, create_tool_from_function
from pydantic import Base64Bytes, BaseModel, Field

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


@rows(
    ("arguments", "read"),
    ({"count": " -3 ", "perhaps": "+4"}, {"count": -3, "perhaps": 4}),
    ({"count": "12345678901234567890.0"}, {"count": 12345678901234567890}),
    ({"share": "0.5", "price": ".25"}, {"share": 0.5, "price": 0.25}),
    ({"pair": ["1", "1"], "either": "3"}, {"pair": [1, "1"], "either": "3"}),
    ({"counts": '{"a": "2"}'}, {"counts": {"a": 2}}),
    ({"maybe": '["a"]'}, {"maybe": ["a"]}),
    ({"maybe": None}, {"maybe": None}),
    ({"either": "[1]"}, {"either": "[1]"}),
    ({"deep": ['{"tags": "[1]"}']}, {"deep": [{"tags": [1]}]}),
    # A whole number is an integer, even if it is written as a float.
    ({"count": 1.0, "share": 1}, {"count": 1, "share": 1}),
)
def test_texts_are_converted_to_the_declared_type_and_refused_in_strict_mode(
    arguments: dict[str, Any], read: dict[str, Any]
):
    assert json.dumps(checked(arguments)) == json.dumps(read)
    if arguments == read:
        assert json.dumps(checked(arguments, strict=True)) == json.dumps(read)
    else:
        with pytest.raises(ToolError, match="must be of type"):
            checked(arguments, strict=True)


def test_null_for_an_optional_argument_is_treated_as_omitted():
    assert checked({"share": None, "maybe": None, "count": 1}) == {"maybe": None, "count": 1}
    with pytest.raises(ToolError, match="'count' must be of type integer"):
        ArgumentCheck("tool", {**SCHEMA, "required": ["count"]}).check({"count": None}, strict=False)


@rows("strict", True, False)
@rows(
    ("arguments", "where"),
    *(({"count": text}, "count") for text in ("nan", "0x10", "1e", "", "1 0", "1e999", "9" * 5000)),
    *(({name: "-Infinity"}, name) for name in ("count", "share", "price", "perhaps")),
    *(({"counts": text}, "counts") for text in ('{"a": 1', "[1]", "null", "[" * 100_000)),
    *(({"share": number}, "share") for number in (float("nan"), float("inf"))),
    ({"counts": {"a": float("nan")}}, r"counts\.a"),
    ({"counts": {"a": None}}, r"counts\.a"),
)
def test_arguments_of_another_type_are_refused(arguments: dict[str, Any], where: str, strict: bool):
    with pytest.raises(ToolError, match=f"^Invalid arguments for tool 'tool': '{where}' must be of type "):
        checked(arguments, strict=strict)


def kind(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"const": name}, **properties}, "required": ["kind", *properties]}


@rows(
    ("value", "reason"),
    ({"kind": "dog"}, "'breed' missing in 'pet'"),
    ({"kind": "cow"}, "'pet.kind' must be 'cat' or 'dog'"),
    ([1], "'pet' must be of type object or of type string"),
    ({}, "'pet' must be one of the allowed forms"),
)
def test_the_error_for_a_union_describes_the_alternative_that_was_meant(value: Any, reason: str):
    pet = {"anyOf": [kind("cat"), kind("dog", breed={}), {"type": "string"}, {"type": "null"}]}
    with pytest.raises(ToolError, match=f"'tool': {reason}$"):
        ArgumentCheck("tool", {"type": "object", "properties": {"pet": pet}}).check({"pet": value}, strict=False)


INTEGERS = {"type": "array", "items": {"type": "integer"}}


async def test_checking_long_arguments_does_not_block_other_calls():
    schema = {"type": "object", "properties": {"values": INTEGERS}}
    server = create_mcp_server("numbers", tools=[Tool("count", "Counts.", schema, lambda values: str(len(values)))])
    longest = 0.0
    async with Client(server) as client:
        counting = asyncio.create_task(client.call_tool("count", {"values": [1] * 100_000}))
        while not counting.done():
            begin = time.monotonic()
            await asyncio.sleep(0.02)
            longest = max(longest, time.monotonic() - begin)
        assert (await counting).content[0].text == "100000"
    assert longest < 1


def test_the_error_for_a_long_list_has_the_first_reasons_and_names_only_invalid_items():
    check = ArgumentCheck("tool", {"type": "object", "properties": {"values": INTEGERS}})
    with pytest.raises(ToolError, match=r"'values\[0\]' must be of type integer; .*and 9990 more"):
        check.check({"values": ["x"] * 20_000}, strict=True)
    with pytest.raises(ToolError, match=r"tool': 'values\[10\]' must be of type integer$"):
        check.check({"values": ["5"] * 10 + ["x"] + [5.0] * 10}, strict=False)


def show(**given: Any) -> dict[str, Any]:
    return given


@rows("others", {"additionalProperties": True}, {"patternProperties": {"": {}}}, {"anyOf": [{}]})
async def test_clients_cannot_set_inputs_that_the_options_do_not_choose(others: dict[str, Any]):
    parameters = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, **others}
    tool = (Tool("show", "Shows.", parameters, show), ServeOptions(inputs=["a"]))
    async with Client(create_mcp_server("s", tools=[tool])) as client:
        [listed] = await client.list_tools()
        assert (list(listed.input_schema["properties"]), listed.input_schema["additionalProperties"]) == (["a"], False)
        with pytest.raises(ToolError, match="there is no argument 'b'"):
            await client.call_tool("show", {"a": "1", "b": "2"})


async def test_an_argument_that_another_one_needs_may_be_bound():
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}, "minProperties": 2}
    tool = (Tool("show", "Shows.", schema, show), ServeOptions(bound={"b": 2}))
    async with Client(create_mcp_server("s", tools=[tool])) as client:
        assert (await client.call_tool("show", {"a": 1})).structured_content == {"a": 1, "b": 2}


async def test_an_argument_that_another_one_needs_stays_required_although_a_third_one_is_bound():
    schema = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "dependentRequired": {"a": ["b"]}}
    tool = (Tool("show", "Shows.", schema, show), ServeOptions(bound={"c": 3}))
    async with Client(create_mcp_server("s", tools=[tool])) as client:
        with pytest.raises(ToolError, match="'b'"):
            await client.call_tool("show", {"a": 1})


COUNTED = {"properties": {"count": {"type": "integer"}}}


@rows(
    ("parameters", "refused"),
    (
        {"oneOf": [{**COUNTED, "required": ["count"]}, {"required": ["name"]}], "unevaluatedProperties": False},
        [{}, {"count": 1, "name": 1}, {"count": "many"}, {"count": 1, "other": 1}],
    ),
    ({"anyOf": [{"required": ["count"]}, {"required": ["name"]}], "properties": {"name": {}}}, [{}]),
    ({"$ref": "#/$defs/counted", "$defs": {"counted": COUNTED}}, [{"count": "many"}]),
    ({"required": ["count"], "properties": {"name": {"type": "string"}}}, [{}]),
    ({"properties": {"name": {}}, "additionalProperties": {"type": "integer"}}, [{"count": "many"}]),
    ({}, []),
)
async def test_an_argument_that_the_schema_names_elsewhere_or_leaves_open_is_accepted(parameters, refused):
    tool = Tool("show", "Shows.", {"type": "object", **parameters}, show)
    for strict in (True, False):
        server = create_mcp_server("s", tools=[tool], options={"show": ServeOptions(strict_validation=strict)})
        async with Client(server) as client:
            assert (await client.call_tool("show", {"count": 3})).structured_content == {"count": 3}
            for arguments in refused:
                with pytest.raises(ToolError, match="Invalid arguments for tool 'show'"):
                    await client.call_tool("show", arguments)


async def test_clients_cannot_set_inputs_from_the_state_of_an_agent_even_if_any_name_is_allowed():
    def seen(user: str = "nobody", **given: Any) -> dict[str, Any]:
        return {"user": user, **given}

    tool = Tool("show", "Shows.", {"type": "object"}, seen, inputs_from_state={"user": "user"})
    async with Client(create_mcp_server("s", tools=[tool])) as client:
        assert (await client.call_tool("show", {"a": 1})).structured_content == {"user": "nobody", "a": 1}
        with pytest.raises(ToolError, match="there is no argument 'user'"):
            await client.call_tool("show", {"user": "root"})


class Trip(BaseModel):
    day: dt.date
    seats: int = 1


def book(
    day: dt.date | None = None,
    count: Annotated[int, Field(ge=1)] = 1,
    trip: Trip | None = None,
    trips: list[Trip] | None = None,
) -> str:
    """Books."""
    return f"{day} {count} {trip} {trips}"


@rows("strict", True, False)
async def test_a_function_refuses_arguments_that_its_schema_forbids(strict: bool):
    server = create_mcp_server("s", tools=[book], options={"book": ServeOptions(strict_validation=strict)})
    async with Client(server) as client:
        for arguments, where in (
            ({"day": 86400}, "'day' must be of type string"),
            ({"count": True}, "'count' must be of type integer"),
            ({"count": 0}, "'count' violates 'minimum: 1'"),
            ({"trip": {"day": "2026-11-23", "seats": True}}, r"'trip\.seats' must be of type integer"),
            ({"trips": [{}]}, r"'day' missing in 'trips\[0\]'"),
        ):
            with pytest.raises(ToolError, match=f"^Invalid arguments for tool 'book': {where}"):
                await client.call_tool("book", arguments)
        assert (await client.call_tool("book", {"day": "2026-11-23"})).data == "2026-11-23 1 None None"


async def test_a_pattern_in_another_regex_dialect_is_checked_by_pydantic_only():
    def greet(name: Annotated[str, Field(pattern=r"^\p{Lu}")]) -> str:
        """Greets."""
        return name

    async with Client(create_mcp_server("s", tools=[greet])) as client:
        assert (await client.call_tool("greet", {"name": "Ann"})).data == "Ann"
        with pytest.raises(ToolError, match="Invalid arguments for tool 'greet'"):
            await client.call_tool("greet", {"name": "ann"})


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class User(BaseModel):
    name: str
    age: int


@dataclass
class Point:
    x: float
    y: float


@pytest.fixture(params=["function", "tool", "component", "pipeline"])
def serve(request):
    """
    Serve code that shows an argument of any type, as a function, a tool, the tool of a component or a pipeline.
    """

    def server(annotation, strict_validation=None, **of_server):
        def thing(value: annotation) -> str:
            """Show a value."""
            return repr(value)

        @component
        class Shower:
            @component.output_types(result=str)
            def run(self, value: annotation):
                return {"result": repr(value)}

        pipeline = Pipeline()
        pipeline.add_component("shower", Shower())
        served = {
            "function": {"tools": [thing]},
            "tool": {"tools": [create_tool_from_function(thing)]},
            "component": {"tools": [ComponentTool(Shower(), name="thing", description="Show a value.")]},
            "pipeline": {"pipelines": {"thing": pipeline}},
        }
        options = {"thing": ServeOptions(strict_validation=strict_validation)}
        return create_mcp_server("shop", **served[request.param], options=options, **of_server)

    return server


async def sent(server, value):
    async with Client(server) as client:
        return (await client.call_tool("thing", {"value": value})).structured_content["result"]


ALICE = User(name="Alice", age=30)


@rows(
    ("annotation", "value", "received", "fits"),
    (float, 3, 3.0, True),
    (float | None, None, None, True),
    (str | int, 3, 3, True),
    (Color, "red", Color.RED, True),
    (Path, "/shelf/jam", Path("/shelf/jam"), True),
    (dt.datetime, "2026-07-28T12:30:00", dt.datetime.fromisoformat("2026-07-28T12:30:00"), True),
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90), True),
    (User, {"name": "Alice", "age": 30}, ALICE, True),
    (Point, {"x": 1, "y": 2}, Point(1.0, 2.0), True),
    (float, "3.14", 3.14, False),
    (bool, "true", True, False),
    (list[int], ["1", "2"], [1, 2], False),
    # FastMCP itself refuses these, but models send them.
    (User, '{"name": "Alice", "age": "30"}', ALICE, False),
    (list[int], "[1, 2]", [1, 2], False),
    (int | None, "10", 10, False),
)
async def test_json_and_texts_are_converted_to_the_declared_type(serve, annotation, value, received, fits):
    assert await sent(serve(annotation), value) == repr(received)
    strict = serve(annotation, strict_input_validation=True)
    if fits:
        assert await sent(strict, value) == repr(received)
    else:
        with pytest.raises(ToolError, match=r"Invalid arguments.*value"):
            await sent(strict, value)


async def test_the_error_says_what_is_wrong_with_a_text_that_must_have_a_certain_form(serve):
    with pytest.raises(ToolError, match=r"^Invalid arguments for tool 'thing': 'value': Input should be a valid date"):
        await sent(serve(dt.date), "soon")
    # It is base64 already, and converted once.
    assert await sent(serve(list[Base64Bytes]), ["YUdrPQ=="]) == repr([b"aGk="])


async def test_an_option_for_one_tool_may_be_stricter_or_more_lenient_than_the_server(serve):
    assert await sent(serve(int, strict_input_validation=True, strict_validation=False), "10") == "10"
    with pytest.raises(ToolError, match="'value' must be of type integer"):
        await sent(serve(int, strict_input_validation=False, strict_validation=True), "10")


class Node(BaseModel):
    """A model that refers to another model, so that its schema has definitions."""

    first: User
    second: User


@rows("dereferenced", True, False)
async def test_references_in_schemas_are_resolved_unless_turned_off(serve, dereferenced):
    async with Client(serve(Node, dereference_schemas=dereferenced)) as client:
        [tool] = await client.list_tools()
        assert ("$ref" in str(tool.input_schema)) is not dereferenced
        given = {"first": {"name": "A", "age": 1}, "second": {"name": "B", "age": "2"}}
        assert "age=2" in (await client.call_tool("thing", {"value": given})).structured_content["result"]


async def test_the_sources_of_a_converter_are_contents_and_never_paths_on_the_server(tmp_path):
    (tmp_path / "secret").write_text("secret")
    pipeline = Pipeline()
    pipeline.add_component("convert", TextFileToDocument())
    tool = ComponentTool(TextFileToDocument(), name="tool", description="Converts.")
    async with Client(create_mcp_server("shop", tools=[tool], pipelines={"pipeline": pipeline})) as client:
        for name in ("tool", "pipeline"):
            converted = await client.call_tool(name, {"sources": [{"data": "aGk="}]})
            assert converted.structured_content["documents"][0]["content"] == "hi"
            with pytest.raises(ToolError, match=r"'sources\[0\]' must be of type object"):
                await client.call_tool(name, {"sources": [str(tmp_path / "secret")]})
            with pytest.raises(ToolError, match=r"'sources\.0\.data': Only base64 data is allowed"):
                await client.call_tool(name, {"sources": [{"data": "Plain text, sent by a model."}]})


class Thread(BaseModel):
    history: list[ChatMessage]


def send(message: ChatMessage, files: list[ByteStream], about: Document | None = None, before: Thread | None = None):
    """
    Send a message.

    :param message: What is sent.
    """
    return repr((message.text, [each.data for each in files], about and about.content, before))


@rows("of_haystack", True, False)
async def test_a_function_accepts_haystacks_types_in_the_same_form_as_components(of_haystack):
    arguments = {
        "message": {"role": "user", "content": "Hi"},
        "files": [{"data": "aGk="}],
        "about": {"content": "tea"},
        # Messages in a class of the user are in pydantic's form.
        "before": {"history": [{"_role": "user", "_content": [{"text": "one"}]}]},
    }
    server = create_mcp_server("shop", tools=[create_tool_from_function(send) if of_haystack else send])
    async with Client(server) as client:
        [tool] = await client.list_tools()
        sent = await client.call_tool("send", arguments)
        with pytest.raises(ToolError, match="'role', 'content' missing in 'message'"):
            await client.call_tool("send", {**arguments, "message": {}})
    shown = tool.input_schema["properties"]
    assert (shown["message"]["required"], shown["message"]["description"]) == (["role", "content"], "What is sent.")
    assert shown["about"]["default"] is None
    before = Thread(history=[ChatMessage.from_user("one")])
    assert sent.content[0].text == repr(("Hi", [b"hi"], "tea", before))


async def test_a_function_accepts_a_text_or_a_bytestream():
    def size(of: str | ByteStream) -> int:
        return len(of if isinstance(of, str) else of.data)

    async with Client(create_mcp_server("shop", tools=[size])) as client:
        assert (await client.call_tool("size", {"of": "four"})).data == 4
