# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import logging
from collections import UserString, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from haystack import Pipeline, component
from haystack.dataclasses import ByteStream, ChatMessage, Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, RootModel, computed_field

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.serving.results import JsonWriter
from haystack_integrations.tools.mcp.serving.schemas import object_schema, output_schema
from tests.support.rows import rows

DOCUMENT = Document(
    content="a long text", embedding=[0.25], blob=ByteStream(b"blob"), score=float("nan"), meta={"x": float("inf")}
)
NAN = float("nan")


class User(BaseModel):
    name: str = "Ann"


class Account(User):
    password: str = "SECRET"


class Found(RootModel[list[Document]]):
    pass


class Report(BaseModel):
    """Haystack's classes, and ways of pydantic to write something else than the attributes."""

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
    user: User = Account()
    users: dict[str, list[User]] = {"all": [Account()]}
    as_text: Annotated[int, PlainSerializer(str, return_type=str)] = 5
    unknown: object = None
    parent: Report | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ratio(self) -> float:
        return float("inf")


def report(**fields: Any) -> Report:
    given = {"best": DOCUMENT, "documents": [DOCUMENT] * 3, "stream": ByteStream(b"s"), "howMany": 4}
    given |= {"message": ChatMessage.from_user("hello"), "found": Found([DOCUMENT])}
    return Report(**given, unknown=DOCUMENT, extra=DOCUMENT, **fields)


@rows("included", [True, False])
def test_a_model_is_written_as_its_schema_says_and_within_the_options(included: bool):
    options = ServeOptions(include_embeddings=included, include_blobs=included, max_documents=2, max_characters=6)
    writer = JsonWriter(options)
    written = writer.write(report(parent=report()))

    as_text = json.dumps(written, allow_nan=False)
    assert ("embedding" in as_text, "0.25" in as_text) == (included, included)
    assert ("data" in written["stream"], "blob" in written["best"]) == (included, included)
    assert "SECRET" not in json.dumps({**written, "parent": None})
    assert len(written["documents"]) == 2 and written["best"]["content"] == "a long..."
    assert "2 of 3 documents are returned." in writer.notes
    assert written["found"] == [written["best"]]
    assert (written["score"], written["price"], written["ratio"]) == (None, "NaN", None)
    assert (written["count"], written["as_text"]) == (4, "5")
    assert (written["user"], written["users"]) == ({"name": "Ann"}, {"all": [{"name": "Ann"}]})
    for schema, value in (
        (object_schema(Report, include_embeddings=included), written),
        (output_schema({"report": Report}, include_embeddings=included), {"report": written}),
    ):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        Draft202012Validator(schema).validate(value)


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
    return Answer([DOCUMENT])


@component
class Measures:
    @component.output_types(measured=Measured, report=Report, root=float, nothing=str | None)
    def run(self, text: str) -> dict[str, Any]:
        return {"measured": Measured(), "report": report(), "root": NAN, "nothing": None}


async def test_what_a_client_gets_fits_the_schema_that_it_was_shown():
    pipeline = Pipeline()
    pipeline.add_component("measures", Measures())
    server = create_mcp_server("lab", tools=[root, measured, found], pipelines={"pipeline": pipeline})
    got: dict[str, Any] = {}
    async with Client(server) as client:
        for tool in await client.list_tools():
            result = await client.call_tool_mcp(tool.name, {"text": "x"} if tool.name == "pipeline" else {})
            assert not result.is_error, result.content
            Draft202012Validator(tool.output_schema).validate(result.structured_content)
            got[tool.name] = result.structured_content

    assert got["root"] == {"result": None}
    assert got["measured"] == got["pipeline"]["measured"] == {"value": None, "values": [None, 1.0]}
    assert got["pipeline"]["root"] is None
    assert "nothing" not in got["pipeline"]
    assert (got["found"]["score"], got["found"]["documents"][0]["content"]) == (None, "a long text")
    shown = got["pipeline"]["report"]
    assert (shown["count"], shown["score"]) == (4, None)
    assert "embedding" not in json.dumps(got)


def test_times_have_no_format_that_some_of_them_do_not_fit():
    # Other clients check formats, unlike this one: those in JavaScript want a time zone.
    schema = output_schema({"at": datetime, "time": time, "took": timedelta, "day": date})
    text = {"type": "string"}
    assert schema["properties"] == {"at": text, "time": text, "took": text, "day": {"type": "string", "format": "date"}}


HALF, PAIR = "\ud83d", "\ud83d\ude00"


@pytest.fixture
def no_logs() -> Iterator[None]:
    """
    No logs, whose tracebacks of broken texts pytest-xdist could not report.
    """
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_logs")
async def test_half_an_emoji_spoils_no_result_no_error_and_no_list_of_documents():
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
    # It is cut after its pairs were joined.
    assert said.structured_content == {"result": "\U0001f600..."}


class Verdict(Enum):
    GOOD = "definitely positive"


@rows(
    ("value", "text"),
    [
        (Verdict.GOOD, "definitely positive"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ({"a": 1}.keys(), '["a"]'),
        (range(2), "[0, 1]"),
        (UserString("a"), "a"),
        ({"b": deque([1])}, '{"b": [1]}'),
    ],
)
async def test_the_model_sees_one_value_as_text_and_several_as_json(value: Any, text: str):
    def show() -> Any:
        return value

    async with Client(create_mcp_server("lab", tools=[show])) as client:
        assert (await client.call_tool("show")).content[0].text == text
