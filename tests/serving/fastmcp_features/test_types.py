# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Types of arguments, for what takes arguments of any type: functions, tools and pipelines.
"""

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from haystack import Pipeline, component
from haystack.tools import create_tool_from_function
from pydantic import BaseModel, Field

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.support.rows import rows

NAME = "thing"


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


def _function(annotation, default):
    if default is ...:

        def thing(value: annotation) -> str:
            return repr(value)
    else:

        def thing(value: annotation = default) -> str:
            return repr(value)

    return {"tools": [thing]}


def _tool(annotation, default):
    [thing] = _function(annotation, default)["tools"]
    thing.__doc__ = "Show a value."
    return {"tools": [create_tool_from_function(thing)]}


def _pipeline(annotation, default):
    @component
    class Shower:
        def __init__(self):
            component.set_input_type(self, "value", annotation, *([] if default is ... else [default]))

        @component.output_types(result=str)
        def run(self, **inputs: Any):
            return {"result": repr(inputs["value"])}

    pipeline = Pipeline()
    pipeline.add_component("shower", Shower())
    return {"pipelines": {NAME: pipeline}, "options": {NAME: ServeOptions(inputs=["value"])}}


@pytest.fixture(params=[_function, _tool, _pipeline], ids=["function", "tool", "pipeline"])
def serve(request):
    def server(annotation, default=..., **of_server):
        return create_mcp_server("shop", **request.param(annotation, default), **of_server)

    return server


async def sent(server, value):
    async with Client(server) as client:
        result = await client.call_tool(NAME, {} if value is ... else {"value": value})
        return result.structured_content["result"]


AN_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@rows(
    ("annotation", "value", "received"),
    [
        (int, 3, 3),
        (float, 3, 3.0),
        (str, "tea", "tea"),
        (bool, True, True),
        (list[str], ["a"], ["a"]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (float | None, None, None),
        (str | int, 3, 3),
        (Literal["A", "B"], "A", "A"),
        (Color, "red", Color.RED),
        (Path, "/shelf/jam", Path("/shelf/jam")),
        (uuid.UUID, str(AN_ID), AN_ID),
        (dt.date, "2026-07-28", dt.date(2026, 7, 28)),
        (dt.datetime, "2026-07-28T12:30:00", dt.datetime.fromisoformat("2026-07-28T12:30:00")),
        (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
        (User, {"name": "Alice", "age": 30}, User(name="Alice", age=30)),
        (Point, {"x": 1, "y": 2}, Point(1.0, 2.0)),
        (list[Color], ["red", "blue"], [Color.RED, Color.BLUE]),
    ],
    ids=str,
)
@rows("strict", [False, True])
async def test_json_becomes_the_type_that_was_declared(serve, annotation, value, received, strict):
    assert await sent(serve(annotation, strict_input_validation=strict), value) == repr(received)


@rows(
    ("annotation", "value", "received"),
    [
        (int, "10", 10),
        (float, "3.14", 3.14),
        (bool, "true", True),
        (list[int], ["1", "2"], [1, 2]),
        (dict[str, int], {"a": "1"}, {"a": 1}),
        (User, {"name": "Alice", "age": "30"}, User(name="Alice", age=30)),
        # FastMCP itself refuses these; models send them.
        (User, '{"name": "Alice", "age": 30}', User(name="Alice", age=30)),
        (list[int], "[1, 2]", [1, 2]),
        (int | None, "10", 10),
    ],
    ids=str,
)
async def test_texts_are_read_as_what_was_declared_and_strictly_refused(serve, annotation, value, received):
    assert await sent(serve(annotation), value) == repr(received)
    with pytest.raises(ToolError, match=r"Invalid arguments.*value"):
        await sent(serve(annotation, strict_input_validation=True), value)


@rows("strict", [False, True])
@rows(
    ("annotation", "value"),
    [
        (int, "abc"),
        (Color, "RED"),
        (uuid.UUID, "not-an-id"),
        (dt.date, "yesterday"),
        (User, '{"name": "Alice"}'),
        (User, {"name": "Alice"}),
        (list[int], "1"),
        (Literal["A", "B"], "C"),
        (Annotated[int, "How many", Field(ge=1, le=10)], 11),
    ],
    ids=str,
)
async def test_what_cannot_be_read_is_refused_without_being_quoted(serve, annotation, value, strict):
    with pytest.raises(ToolError, match="value") as refused:
        await sent(serve(annotation, strict_input_validation=strict), value)
    assert "Alice" not in str(refused.value)
    assert "not-an-id" not in str(refused.value)


async def test_an_argument_with_a_default_may_be_left_out(serve):
    server = serve(int, 10)
    async with Client(server) as client:
        [tool] = await client.list_tools()
    assert tool.input_schema["properties"]["value"]["default"] == 10
    assert "value" not in tool.input_schema.get("required", [])
    assert await sent(server, ...) == "10"


async def test_an_option_may_be_stricter_or_more_lenient_than_the_server():
    def thing(value: int) -> str:
        return repr(value)

    for strict, server_is_strict in ((True, False), (False, True)):
        options = {NAME: ServeOptions(strict_validation=strict)}
        server = create_mcp_server("shop", tools=[thing], options=options, strict_input_validation=server_is_strict)
        if strict:
            with pytest.raises(ToolError, match="'value' must be of type integer"):
                await sent(server, "10")
        else:
            assert await sent(server, "10") == "10"


class Node(BaseModel):
    """Refers to another model, so that its schema has definitions."""

    first: User
    second: User


@rows("dereferenced", [True, False])
async def test_references_in_schemas_are_resolved_unless_turned_off(serve, dereferenced):
    server = serve(Node, dereference_schemas=dereferenced)
    async with Client(server) as client:
        [tool] = await client.list_tools()
        assert ("$ref" in str(tool.input_schema)) is not dereferenced
        given = {"first": {"name": "A", "age": 1}, "second": {"name": "B", "age": "2"}}
        assert "age=2" in (await client.call_tool(NAME, {"value": given})).structured_content["result"]
