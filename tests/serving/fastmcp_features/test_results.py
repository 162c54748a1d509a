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
from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent
from haystack.tools import Tool, create_tool_from_function
from haystack.utils import Secret
from mcp.types import BlobResourceContents, EmbeddedResource, TextContent
from mcp.types import ImageContent as MCPImageContent
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
    RED = "red"


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


@rows(
    ("value", "annotation", "text"),
    [(8, int, "8"), ("tea", str, "tea"), (True, bool, "true"), (["a", "b"], list[str], '["a", "b"]')],
)
async def test_anything_else_is_structured_content_only_with_a_schema(returned, value, annotation, text):
    plain = await returned(value)
    assert (plain.content[0].text, plain.structured_content) == (text, None)
    typed = await returned(value, annotation)
    assert (typed.content[0].text, typed.structured_content, typed.data) == (text, {"result": value}, value)


async def test_none_gives_an_empty_answer(returned):
    result = await returned(None)
    assert (result.content, result.structured_content) == ([], None)


async def test_bytes_are_a_blob(returned):
    [block] = (await returned(NO_UTF8)).content
    assert block == EmbeddedResource(
        resource=BlobResourceContents(
            uri="file:///resource", mime_type="application/octet-stream", blob=b64encode(NO_UTF8).decode()
        )
    )


async def test_images_audio_and_files_are_content_of_their_kinds(returned):
    values = [
        Image(data=NO_UTF8, format="png"),
        Audio(data=NO_UTF8, format="wav"),
        File(data=NO_UTF8, format="pdf", name="menu"),
        ImageContent(PIXEL, mime_type="image/png"),
        FileContent(PIXEL, mime_type="application/pdf", filename="menu.pdf"),
        ByteStream(NO_UTF8, mime_type="audio/mpeg"),
        TextContent(type="text", text="as it is"),
        "text",
    ]
    kinds = [block.type for block in (await returned(values)).content]
    assert kinds == ["image", "audio", "resource", "image", "resource", "audio", "text", "text"]
    for value, kind in zip(values, kinds, strict=True):
        assert [block.type for block in (await returned(value)).content] == [kind]


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


async def test_values_of_haystack_and_python_are_json(returned):
    an_id = uuid.uuid4()
    value = {
        "color": Color.RED,
        "path": Path("shelf"),
        "id": an_id,
        "day": dt.date(2026, 7, 28),
        "set": {1},
        "nan": float("nan"),
        "secret": Secret.from_token("hunter2"),
        "bytes": b"abc",
        "object": object(),
        Color.RED: (1, 2),
    }
    structured = (await returned(value)).structured_content
    assert structured == {
        "color": "red",
        "path": "shelf",
        "id": str(an_id),
        "day": "2026-07-28",
        "set": [1],
        "nan": None,
        "secret": None,
        "bytes": "YWJj",
        "object": "<object>",
        "red": [1, 2],
    }


async def test_documents_and_messages_come_back_from_their_json(returned):
    document = Document(content="jam", meta={"content": "not the content"}, embedding=[0.5], blob=ByteStream(NO_UTF8))
    message = ChatMessage.from_user(content_parts=["look", ImageContent(PIXEL, mime_type="image/png")])
    result = await returned({"documents": [document], "messages": [message]})
    [as_json] = result.structured_content["documents"]
    assert (as_json["content"], as_json["meta"]) == ("jam", {"content": "not the content"})
    assert not {"embedding", "sparse_embedding", "blob"} & set(as_json)
    assert PIXEL not in str(result.structured_content)
    assert [block.type for block in result.content] == ["text", "image"]
    full = await returned(
        {"documents": [document], "messages": [message]},
        None,
        ServeOptions(include_embeddings=True, include_blobs=True),
    )
    assert full.structured_content["documents"][0]["embedding"] == [0.5]
    assert full.structured_content["documents"][0]["blob"]["data"] == b64encode(NO_UTF8).decode()
    assert ChatMessage.from_dict(full.structured_content["messages"][0]) == message


async def test_an_output_schema_must_be_of_an_object_and_is_kept_to(returned):
    schema = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    options = ServeOptions(output_schema=schema)
    assert (await returned({"data": "Hello"}, None, options)).structured_content == {"data": "Hello"}
    for wrong in ({"data": 3}, {}, ["Hello"], "Hello", None):
        with pytest.raises(ToolError, match="does not conform to its output schema"):
            await returned(wrong, None, options)
    with pytest.raises(ValueError, match="must be a JSON schema of"):
        ServeOptions(output_schema={"type": "array"})


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
