# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from haystack import Document
from haystack.components.converters import TextFileToDocument
from haystack.dataclasses import ByteStream, ChatMessage, FileContent, ImageContent, ToolCall
from haystack.tools import ComponentTool, create_tool_from_function
from pydantic import BaseModel

from haystack_integrations.tools.mcp.serving import create_mcp_server
from tests.support.rows import rows


def documents() -> list[Document]:
    """Find documents."""
    return [Document(id="a", content="text", blob=ByteStream(b"x"), embedding=[1.0])]


def document() -> Document | None:
    """Find a document."""
    return Document(id="a", content="text")


def message() -> ChatMessage:
    """Answer."""
    return ChatMessage.from_assistant("Hello")


def images() -> list[ImageContent]:
    """Draw."""
    return [ImageContent("aGk=", mime_type="image/png")]


def file() -> FileContent | None:
    """Print."""
    return FileContent("aGk=", mime_type="application/pdf", filename="a.pdf")


def sound() -> ByteStream:
    """Sing."""
    return ByteStream(b"hi", mime_type="audio/wav")


def picture() -> ByteStream:
    """Paint."""
    return ByteStream(b"hi", mime_type="image/png")


def unknown() -> ByteStream:
    """Pack."""
    return ByteStream(b"hi", meta={"file_name": "a.bin"})


def wish() -> ChatMessage:
    """Wish for a call of a tool."""
    return ChatMessage.from_assistant(tool_calls=[ToolCall("add", {"a": 1}, id="1")])


@rows(
    ("function", "kind", "structured"),
    [
        (documents, "text", [{"id": "a", "content": "text", "meta": {}, "score": None}]),
        (document, "text", {"id": "a", "content": "text", "meta": {}, "score": None}),
        (message, "text", message().to_dict()),
        (images, "image", None),
        (file, "resource", None),
        (sound, "audio", None),
        (picture, "image", None),
        (unknown, "resource", None),
        (wish, "text", wish().to_dict()),
    ],
)
async def test_what_a_function_returns_fits_what_it_says(function: Any, kind: str, structured: Any) -> None:
    async with Client(create_mcp_server("Types", tools=[function])) as client:
        [tool] = await client.list_tools()
        # FastMCP's client checks structured content against the schema.
        result = await client.call_tool(tool.name)
        assert [block.type for block in result.content] == [kind]
        assert (tool.output_schema is None) == (structured is None)
        assert (result.structured_content or {}).get("result") == structured


def send(message: ChatMessage, files: list[ByteStream], about: Document | None = None) -> str:
    """
    Send a message.

    :param message: What is sent.
    """
    return repr((message.text, [each.data for each in files], about and about.content))


async def test_a_component_as_a_tool_takes_contents_and_no_path_of_the_server(tmp_path: Path) -> None:
    tool = ComponentTool(TextFileToDocument(), name="convert", description="Converts.")
    (tmp_path / "secret").write_text("secret")
    async with Client(create_mcp_server("Types", tools=[tool])) as client:
        converted = await client.call_tool("convert", {"sources": [{"data": "aGk="}]})
        with pytest.raises(ToolError, match=r"'sources\[0\]' must be of type object"):
            await client.call_tool("convert", {"sources": [str(tmp_path / "secret")]})
    assert converted.structured_content["documents"][0]["content"] == "hi"


async def test_a_function_takes_a_text_beside_a_bytestream() -> None:
    def size(of: str | ByteStream) -> int:
        return len(of if isinstance(of, str) else of.data)

    async with Client(create_mcp_server("Types", tools=[size])) as client:
        assert (await client.call_tool("size", {"of": "four"})).data == 4


@rows("of_haystack", [True, False])
async def test_a_function_takes_haystacks_types_in_the_form_in_which_components_take_them(of_haystack: bool) -> None:
    arguments = {"message": {"role": "user", "content": "Hi"}, "files": [{"data": "aGk="}], "about": {"content": "tea"}}
    server = create_mcp_server("Types", tools=[create_tool_from_function(send) if of_haystack else send])
    async with Client(server) as client:
        [tool] = await client.list_tools()
        sent = await client.call_tool("send", arguments)
        with pytest.raises(ToolError, match="'role', 'content' missing in 'message'"):
            await client.call_tool("send", {**arguments, "message": {}})
    shown = tool.input_schema["properties"]
    assert (shown["message"]["required"], shown["message"]["description"]) == (["role", "content"], "What is sent.")
    assert shown["about"]["default"] is None
    assert sent.content[0].text == repr(("Hi", [b"hi"], "tea"))


class Thread(BaseModel):
    history: list[ChatMessage]


async def test_a_class_of_the_user_has_messages_in_the_form_of_pydantic():
    def answer(message: ChatMessage, before: Thread) -> str:
        return f"{message.text} after {before.history[0].text}"

    before = {"history": [{"_role": "user", "_content": [{"text": "one"}]}]}
    async with Client(create_mcp_server("lab", tools=[answer])) as client:
        result = await client.call_tool("answer", {"message": {"role": "user", "content": "two"}, "before": before})
    assert result.data == "two after one"
