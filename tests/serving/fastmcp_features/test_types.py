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
from haystack import Document, Pipeline, component
from haystack.components.converters import TextFileToDocument
from haystack.dataclasses import ByteStream, ChatMessage
from haystack.tools import ComponentTool, create_tool_from_function
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
    return {"pipelines": {NAME: pipeline}}


@pytest.fixture(params=[_function, _tool, _pipeline], ids=["function", "tool", "pipeline"])
def serve(request):
    def server(annotation, default=..., strict_validation=None, **of_server):
        inputs = ["value"] if request.param is _pipeline else None
        options = {NAME: ServeOptions(inputs=inputs, strict_validation=strict_validation)}
        return create_mcp_server("shop", **request.param(annotation, default), options=options, **of_server)

    return server


async def sent(server, value):
    async with Client(server) as client:
        return (await client.call_tool(NAME, {"value": value})).structured_content["result"]


AN_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@rows(
    ("annotation", "value", "received"),
    [
        (float, 3, 3.0),
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
    ],
    ids=str,
)
@rows("strict", [False, True])
async def test_json_becomes_the_type_that_was_declared(serve, annotation, value, received, strict):
    assert await sent(serve(annotation, strict_input_validation=strict), value) == repr(received)


@rows(
    ("annotation", "value", "received"),
    [
        (float, "3.14", 3.14),
        (bool, "true", True),
        (list[int], ["1", "2"], [1, 2]),
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
    async with Client(serve(int, 10)) as client:
        [tool] = await client.list_tools()
        assert (await client.call_tool(NAME)).structured_content == {"result": "10"}
    assert tool.input_schema["properties"]["value"]["default"] == 10
    assert "value" not in tool.input_schema.get("required", [])


@rows("strict", [True, False])
async def test_an_option_may_be_stricter_or_more_lenient_than_the_server(serve, strict):
    server = serve(int, strict_input_validation=not strict, strict_validation=strict)
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


async def test_sources_of_a_converter_are_contents_and_never_paths_of_the_server(tmp_path):
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


class Thread(BaseModel):
    history: list[ChatMessage]


def send(message: ChatMessage, files: list[ByteStream], about: Document | None = None, before: Thread | None = None):
    """
    Send a message.

    :param message: What is sent.
    """
    return repr((message.text, [each.data for each in files], about and about.content, before))


@rows("of_haystack", [True, False])
async def test_a_function_takes_haystacks_types_in_the_form_in_which_components_take_them(of_haystack):
    arguments = {"message": {"role": "user", "content": "Hi"}, "files": [{"data": "aGk="}], "about": {"content": "tea"}}
    # A class of the user has messages in the form of pydantic.
    before = {"history": [{"_role": "user", "_content": [{"text": "one"}]}]}
    server = create_mcp_server("shop", tools=[create_tool_from_function(send) if of_haystack else send])
    async with Client(server) as client:
        [tool] = await client.list_tools()
        sent = await client.call_tool("send", {**arguments, "before": before})
        with pytest.raises(ToolError, match="'role', 'content' missing in 'message'"):
            await client.call_tool("send", {**arguments, "message": {}})
    shown = tool.input_schema["properties"]
    assert (shown["message"]["required"], shown["message"]["description"]) == (["role", "content"], "What is sent.")
    assert shown["about"]["default"] is None
    assert sent.content[0].text == repr(("Hi", [b"hi"], "tea", Thread(history=[ChatMessage.from_user("one")])))


async def test_a_function_takes_a_text_beside_a_bytestream():
    def size(of: str | ByteStream) -> int:
        return len(of if isinstance(of, str) else of.data)

    async with Client(create_mcp_server("shop", tools=[size])) as client:
        assert (await client.call_tool("size", {"of": "four"})).data == 4
