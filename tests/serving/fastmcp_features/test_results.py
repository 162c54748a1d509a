# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What becomes of what a tool returns, for functions and for tools of Haystack.
"""

import asyncio
import datetime as dt
import enum
import threading
import uuid
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.types import Audio, File, Image
from haystack import Pipeline, component
from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent, ToolCall
from haystack.tools import Tool, create_tool_from_function
from haystack.utils import Secret
from mcp.types import ImageContent as MCPImageContent
from mcp.types import TextContent
from pydantic import BaseModel

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until_async

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NO_UTF8 = b"\xff\xd8\xff"


@pytest.fixture(params=["function", "tool"])
def returned(request):
    async def returned(value: Any, annotation: Any = None, options: ServeOptions | None = None):
        def thing():
            return value

        if annotation is not None:
            thing.__annotations__["return"] = annotation
        parameters = {"type": "object", "properties": {}}
        tools = [thing if request.param == "function" else Tool("thing", "Gives.", parameters, thing)]
        async with Client(create_mcp_server("shop", tools=tools, options={"thing": options})) as client:
            return await client.call_tool("thing", {})

    return returned


class Color(enum.Enum):
    RED = "red like a rose"


class User(BaseModel):
    name: str
    age: int


@dataclass
class Person:
    name: str
    age: int


@rows("value", [{"name": "Alice", "age": 30}, User(name="Alice", age=30), Person("Alice", 30)])
@rows("annotated", [True, False])
async def test_objects_are_structured_content_with_and_without_a_schema(returned, value, annotated):
    result = await returned(value, type(value) if annotated else None)
    assert result.structured_content == {"name": "Alice", "age": 30}
    assert result.content[0].text == '{"name": "Alice", "age": 30}'


DOCUMENT = Document(id="a", content="jam", meta={"content": "no"}, embedding=[0.5], blob=ByteStream(NO_UTF8))
SHORT = {"id": "a", "content": "jam", "meta": {"content": "no"}, "score": None}
MESSAGE = ChatMessage.from_user(content_parts=["look", ImageContent(PIXEL, mime_type="image/png")])
WISH = ChatMessage.from_assistant(tool_calls=[ToolCall("add", {"a": 1}, id="1")])


@rows(
    ("value", "annotation", "shown", "text"),
    [
        (8, int, 8, "8"),
        ("tea", str, "tea", "tea"),
        (True, bool, True, "true"),
        (["a", "b"], list[str], ["a", "b"], '["a", "b"]'),
        ([DOCUMENT], list[Document], [SHORT], None),
        (DOCUMENT, Document | None, SHORT, None),
        (WISH, ChatMessage, WISH.to_dict(), None),
    ],
)
async def test_anything_else_is_structured_content_only_with_a_schema(returned, value, annotation, shown, text):
    # FastMCP's client checks it against the schema.
    typed = await returned(value, annotation)
    assert typed.structured_content == {"result": shown}
    if text is not None:
        plain = await returned(value)
        assert (plain.content[0].text, plain.structured_content, typed.content[0].text) == (text, None, text)


async def test_images_audio_files_and_bytes_are_content_of_their_kinds(returned):
    contents = [
        (Image(data=NO_UTF8, format="png"), Image, "image"),
        (Audio(data=NO_UTF8, format="wav"), Audio, "audio"),
        (File(data=NO_UTF8, format="pdf", name="menu"), File, "resource"),
        (ImageContent(PIXEL, mime_type="image/png"), ImageContent, "image"),
        (FileContent(PIXEL, mime_type="application/pdf", filename="menu.pdf"), FileContent | None, "resource"),
        (ByteStream(NO_UTF8, mime_type="audio/mpeg"), ByteStream, "audio"),
        (ByteStream(NO_UTF8, meta={"file_name": "a.bin"}), ByteStream, "resource"),
        (TextContent(type="text", text="as it is"), TextContent, "text"),
    ]
    for value, annotation, kind in contents:
        for result in (await returned(value), await returned(value, annotation)):
            assert ([block.type for block in result.content], result.structured_content) == ([kind], None)
    together = await returned([*(value for value, _, _ in contents), "text"])
    assert [block.type for block in together.content] == [*(kind for _, _, kind in contents), "text"]

    [blob] = (await returned(NO_UTF8)).content
    assert (blob.resource.blob, blob.resource.mime_type) == (b64encode(NO_UTF8).decode(), "application/octet-stream")
    nothing = await returned(None)
    assert (nothing.content, nothing.structured_content) == ([], None)


async def test_an_image_inside_of_a_dictionary_is_converted_by_hand(returned):
    image = Image(data=NO_UTF8, format="png").to_image_content()
    result = await returned({"image": image})
    assert result.structured_content["image"]["type"] == "image"
    assert [block.type for block in result.content] == ["text", "image"]


async def test_a_tool_result_is_sent_as_it_is(returned):
    result = await returned(
        ToolResult(content="Found 3 users", structured_content={"users": [1, 2, 3]}, meta={"execution_time_ms": 145})
    )
    assert result.content[0].text == "Found 3 users"
    assert result.structured_content == {"users": [1, 2, 3]}
    assert result.meta["execution_time_ms"] == 145
    only_structured = await returned(ToolResult(structured_content={"a": 1}))
    assert '"a":1' in only_structured.content[0].text.replace(" ", "")
    blocks = [TextContent(type="text", text="x"), MCPImageContent(type="image", data=PIXEL, mime_type="image/png")]
    assert [block.type for block in (await returned(ToolResult(content=blocks))).content] == ["text", "image"]
    with pytest.raises(ToolError, match="no luck"):
        await returned(ToolResult(content="no luck", is_error=True))


async def test_values_of_haystack_and_python_are_json_and_only_texts_are_cut(returned):
    an_id = uuid.uuid4()
    values = {
        "color": (Color.RED, "red like a rose"),
        "path": (Path("shelf"), "shelf"),
        "id": (an_id, str(an_id)),
        "day": (dt.datetime(2026, 7, 28, tzinfo=dt.UTC), "2026-07-28T00:00:00Z"),
        "set": ({1}, [1]),
        "nan": (float("nan"), None),
        "secret": (Secret.from_token("hunter2"), None),
        "bytes": (b"abc", "YWJj"),
        "object": (object(), "<object>"),
        "text": ("well" * 100, "wellwellwell..."),
    }
    value = {name: given for name, (given, _) in values.items()}
    result = await returned({**value, Color.RED: (1, 2)}, None, ServeOptions(max_characters=12))
    written = {name: shown for name, (_, shown) in values.items()}
    assert result.structured_content == {**written, "red like a rose": [1, 2]}
    assert result.meta["haystack"] == {"truncated": ["Texts are cut to 12 characters, marked with '...'."]}


async def test_documents_and_messages_come_back_from_their_json(returned):
    value = {"documents": [DOCUMENT], "messages": [MESSAGE]}
    result = await returned(value)
    assert result.structured_content["documents"] == [SHORT]
    assert PIXEL not in str(result.structured_content)
    assert [block.type for block in result.content] == ["text", "image"]
    full = (await returned(value, None, ServeOptions(include_embeddings=True, include_blobs=True))).structured_content
    assert full["documents"][0]["embedding"] == [0.5]
    assert full["documents"][0]["blob"]["data"] == b64encode(NO_UTF8).decode()
    assert ChatMessage.from_dict(full["messages"][0]) == MESSAGE


async def test_what_does_not_fit_an_output_schema_is_an_error(returned):
    schema = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    options = ServeOptions(output_schema=schema)
    assert (await returned({"data": "Hello"}, None, options)).structured_content == {"data": "Hello"}
    for wrong in ({"data": 3}, {}, ["Hello"], "Hello", None):
        with pytest.raises(ToolError, match="does not conform to its output schema"):
            await returned(wrong, None, options)


async def test_a_generator_that_waits_holds_up_nobody():
    started, may_go = threading.Event(), threading.Event()

    def wait() -> Iterator[str]:
        started.set()
        yield "went" if may_go.wait(LIMIT / 2) else "was held up"

    @component
    class Waiter:
        @component.output_types(said=Iterator[str])
        def run(self, name: str) -> dict[str, Any]:
            return {"said": wait()}

    pipeline = Pipeline()
    pipeline.add_component("waiter", Waiter())
    tools = [create_tool_from_function(wait, name="tool", description="Waits."), wait]
    async with Client(create_mcp_server("shop", tools=tools, pipelines={"pipeline": pipeline})) as client:
        for name, arguments in (("tool", {}), ("wait", {}), ("pipeline", {"name": "x"})):
            started.clear()
            may_go.clear()
            calling = asyncio.create_task(client.call_tool(name, arguments))
            await wait_until_async(started.is_set, "the generator runs")
            may_go.set()
            assert "went" in (await calling).content[0].text
