# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How results of served code are sent to clients.
"""

import asyncio
import datetime as dt
import enum
import json
import logging
import threading
import uuid
from base64 import b64encode
from collections import UserString, deque
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.types import Audio, File, Image
from haystack import Pipeline, component
from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import Tool, create_tool_from_function
from haystack.utils import Secret
from jsonschema import Draft202012Validator
from mcp.types import ImageContent as MCPImageContent
from mcp.types import TextContent
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.serving.results import ResultWriter
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


ALICE = {"name": "Alice", "age": 30}


class NaTType(dt.datetime):
    """
    Like the missing date of pandas, which serializers of dates cannot handle.
    """

    year = property(lambda _: float("nan"))  # type: ignore[assignment]


@rows(
    ("value", "annotation", "structured", "text"),
    (ALICE, dict, ALICE, json.dumps(ALICE)),
    (User(**ALICE), User, ALICE, json.dumps(ALICE)),
    (Person(**ALICE), Person, ALICE, json.dumps(ALICE)),
    (8, int, {"result": 8}, "8"),
    ("tea", str, {"result": "tea"}, "tea"),
    (True, bool, {"result": True}, "true"),
    (["a", "b"], list[str], {"result": ["a", "b"]}, '["a", "b"]'),
)
async def test_objects_are_structured_content_and_so_are_other_values_with_a_schema(
    returned, value, annotation, structured, text
):
    # FastMCP's client validates it with the schema.
    typed, plain = await returned(value, annotation), await returned(value)
    assert typed.structured_content == structured
    assert plain.structured_content == (structured if structured == ALICE else None)
    assert plain.content[0].text == typed.content[0].text == text


@rows(
    ("value", "text"),
    (Color.RED, "red like a rose"),
    (Decimal("1.50"), "1.50"),
    (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ({"a": 1}.keys(), '["a"]'),
    (range(2), "[0, 1]"),
    (UserString("a"), "a"),
    ({"b": deque([1])}, '{"b": [1]}'),
)
async def test_the_model_sees_one_value_as_text_and_several_as_json(returned, value: Any, text: str):
    assert (await returned(value)).content[0].text == text


async def test_images_audio_files_and_bytes_are_sent_as_content_of_their_kinds(returned):
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


async def test_an_image_inside_a_dictionary_has_to_be_converted_explicitly(returned):
    image = Image(data=NO_UTF8, format="png").to_image_content()
    result = await returned({"image": image})
    assert result.structured_content["image"]["type"] == "image"
    assert [block.type for block in result.content] == ["text", "image"]


async def test_a_tool_result_is_sent_unchanged(returned):
    blocks = [TextContent(type="text", text="x"), MCPImageContent(type="image", data=PIXEL, mime_type="image/png")]
    result = await returned(ToolResult(content=blocks, structured_content={"users": [1]}, meta={"took": 145}))
    assert [block.type for block in result.content] == ["text", "image"]
    assert (result.structured_content, result.meta["took"]) == ({"users": [1]}, 145)
    only_structured = await returned(ToolResult(structured_content={"a": 1}))
    assert '"a":1' in only_structured.content[0].text.replace(" ", "")
    with pytest.raises(ToolError, match="no luck"):
        await returned(ToolResult(content="no luck", is_error=True))


async def test_values_of_haystack_and_python_are_sent_as_json_and_only_texts_are_cut(returned):
    an_id = uuid.uuid4()
    values = {
        "color": (Color.RED, "red like a rose"),
        "path": (Path("shelf"), "shelf"),
        "id": (an_id, str(an_id)),
        "day": (dt.datetime(2026, 7, 28, tzinfo=dt.UTC), "2026-07-28T00:00:00Z"),
        "set": ({1}, [1]),
        "nan": (float("nan"), None),
        "no day": (NaTType(2026, 7, 28), None),
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


DOCUMENT = Document(id="a", content="jam", meta={"content": "no"}, embedding=[0.5], blob=ByteStream(NO_UTF8))
SHORT = {"id": "a", "content": "jam", "meta": {"content": "no"}, "score": None}
WISH = ChatMessage.from_assistant(tool_calls=[ToolCall("add", {"a": 1}, id="1")])
MESSAGE = ChatMessage.from_user(content_parts=["look", ImageContent(PIXEL, mime_type="image/png")])


async def test_documents_and_messages_come_back_from_their_json(returned):
    for one, annotation, shown in (
        ([DOCUMENT], list[Document], [SHORT]),
        (DOCUMENT, Document | None, SHORT),
        (WISH, ChatMessage, WISH.to_dict()),
    ):
        assert (await returned(one, annotation)).structured_content == {"result": shown}
    value = {"documents": [DOCUMENT], "messages": [MESSAGE]}
    result = await returned(value)
    assert result.structured_content["documents"] == [SHORT]
    assert PIXEL not in str(result.structured_content)
    assert [block.type for block in result.content] == ["text", "image"]
    full = (await returned(value, None, ServeOptions(include_embeddings=True, include_blobs=True))).structured_content
    assert full["documents"][0]["embedding"] == [0.5]
    assert full["documents"][0]["blob"]["data"] == b64encode(NO_UTF8).decode()
    assert ChatMessage.from_dict(full["messages"][0]) == MESSAGE


async def test_a_generator_that_waits_does_not_block_other_calls():
    started, may_go = threading.Event(), threading.Event()

    def wait() -> Iterator[str]:
        started.set()
        yield "went" if may_go.wait(LIMIT / 2) else "was held up"

    tools = [create_tool_from_function(wait, name="tool", description="Waits."), wait]
    async with Client(create_mcp_server("shop", tools=tools)) as client:
        for name in ("tool", "wait"):
            started.clear()
            may_go.clear()
            calling = asyncio.create_task(client.call_tool(name))
            await wait_until_async(started.is_set, "the generator runs")
            may_go.set()
            assert "went" in (await calling).content[0].text


async def test_checking_a_long_result_does_not_block_other_calls(monkeypatch):
    loop, begun, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    check = ResultWriter._structured

    def check_when_others_went_on(self: ResultWriter, written: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(LIMIT)
        return check(self, written)

    def measure() -> list[float]:
        return [0.5] * 3_000

    [tool] = await create_mcp_server("lab", tools=[measure]).list_tools()
    monkeypatch.setattr(ResultWriter, "_structured", check_when_others_went_on)
    measuring = asyncio.create_task(tool.run({}))
    await asyncio.wait([measuring, asyncio.create_task(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
    goes_on.set()
    assert len((await measuring).structured_content["result"]) == 3_000


LONG = Document(
    content="a long text", embedding=[0.25], blob=ByteStream(b"blob"), score=float("nan"), meta={"x": float("inf")}
)
NAN = float("nan")


class Member(BaseModel):
    name: str = "Ann"


class Account(Member):
    password: str = "SECRET"


class Found(RootModel[list[Document]]):
    pass


class Report(BaseModel):
    """A model with Haystack's classes and with pydantic's ways to serialize something other than the attributes."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    best: Document
    documents: list[Document]
    stream: ByteStream
    message: ChatMessage
    found: Found
    score: float = NAN
    price: Decimal = Decimal("NaN")
    count: int = Field(3, alias="howMany")
    hidden: str = Field("SECRET", exclude=True)
    user: Member = Account()
    unknown: object = None
    parent: "Report | None" = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ratio(self) -> float:
        return float("inf")


def made_report(**fields: Any) -> Report:
    given = {"best": LONG, "documents": [LONG] * 3, "stream": ByteStream(b"s"), "howMany": 4}
    given |= {"message": ChatMessage.from_user("hello"), "found": Found([LONG])}
    return Report(**given, unknown=LONG, extra=LONG, **fields)


@dataclass
class Answer:
    documents: list[Document]
    score: float = NAN


class Measured(BaseModel):
    value: float = Field(NAN, ge=0, alias="measuredValue")
    values: list[float] = [NAN, 1.0]


def root() -> float:
    return NAN


def measured() -> Measured:
    return Measured()


def found() -> Answer:
    return Answer([LONG])


def report() -> Report:
    return made_report(parent=made_report())


@component
class Measures:
    @component.output_types(measured=Measured, report=Report, root=float, nothing=str | None)
    def run(self, text: str) -> dict[str, Any]:
        return {"measured": Measured(), "report": made_report(), "root": NAN, "nothing": None}


@rows("included", True, False)
async def test_results_fit_the_schema_that_the_client_was_shown_and_the_options(included: bool):
    limits = ServeOptions(include_embeddings=included, include_blobs=included, max_documents=2, max_characters=6)
    pipeline = Pipeline()
    pipeline.add_component("measures", Measures())
    options = dict.fromkeys(("root", "measured", "found", "report", "pipeline"), limits)
    tools = [root, measured, found, report]
    got, notes = {}, {}
    async with Client(
        create_mcp_server("lab", tools=tools, pipelines={"pipeline": pipeline}, options=options)
    ) as client:
        for tool in await client.list_tools():
            result = await client.call_tool_mcp(tool.name, {"text": "x"} if tool.name == "pipeline" else {})
            assert not result.is_error, result.content
            Draft202012Validator(tool.output_schema).validate(result.structured_content)
            got[tool.name], notes[tool.name] = result.structured_content, str(result.meta)

    assert got["root"] == {"result": None}
    assert got["measured"] == got["pipeline"]["measured"] == {"value": None, "values": [None, 1.0]}
    assert got["pipeline"]["root"] is None
    assert "nothing" not in got["pipeline"]
    assert (got["found"]["score"], got["found"]["documents"][0]["content"]) == (None, "a long...")
    assert got["pipeline"]["report"]["count"] == 4
    written = got["report"]
    as_text = json.dumps(written, allow_nan=False)
    assert ("embedding" in as_text, "0.25" in as_text) == (included, included)
    assert ("data" in written["stream"], "blob" in written["best"]) == (included, included)
    assert "SECRET" not in json.dumps({**written, "parent": None})
    assert len(written["documents"]) == 2 and written["best"]["content"] == "a long..."
    assert "2 of 3 documents are returned." in notes["report"]
    assert written["found"] == [written["best"]]
    assert (written["score"], written["price"], written["ratio"]) == (None, "NaN", None)
    assert (written["count"], written["user"]) == (4, {"name": "Ann"})


HALF, PAIR = "\ud83d", "\ud83d\ude00"


@pytest.fixture
def no_logs() -> Iterator[None]:
    """
    Turns logs off, because pytest-xdist cannot report tracebacks with broken texts.
    """
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_logs")
async def test_half_an_emoji_does_not_break_results_errors_or_lists_of_documents():
    def chat() -> dict[str, Any]:
        """Chats."""
        return {f"key{HALF}": f"{PAIR}{HALF}a{HALF}", "document": Document(id=HALF), "x": [ChatMessage.from_user(HALF)]}

    def say() -> str:
        """Says."""
        return f"{PAIR} {HALF}"

    def fail(kind: str) -> str:
        """Fails."""
        raise {"tool": ToolError, "value": ValueError}[kind](f"No {HALF}.")

    store = InMemoryDocumentStore()
    store.write_documents([Document(id=HALF, content=HALF, meta={"title": HALF})])
    tools = [chat, (say, ServeOptions(max_characters=1)), fail]
    server = create_mcp_server("chat", tools=tools, document_stores={"kb": store}, mask_error_details=False)
    async with Client(server) as client:
        written = (await client.call_tool("chat", {})).structured_content
        said = await client.call_tool("say", {})
        for kind, told in (("tool", r"^No \ufffd\.$"), ("value", r"^Error calling tool 'fail': No \ufffd\.$")):
            with pytest.raises(ToolError, match=told):
                await client.call_tool("fail", {"kind": kind})
        [listed] = await client.list_resources()
        assert "\ufffd" in (await client.read_resource(listed.uri))[0].text

    assert written["key\ufffd"] == "\U0001f600\ufffda\ufffd"
    assert written["document"]["id"] == "\ufffd"
    assert written["x"][0]["content"] == [{"text": "\ufffd"}]
    # The text is cut after its surrogate pairs were joined.
    assert said.structured_content == {"result": "\U0001f600..."}
