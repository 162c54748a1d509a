# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, List, Union  # noqa: UP035

import pytest
from haystack.dataclasses import (
    ByteStream,
    ChatMessage,
    Document,
    FileContent,
    GeneratedAnswer,
    ImageContent,
    SparseEmbedding,
    ToolCall,
)
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import Tool, Toolset
from haystack.utils import Secret
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from haystack_integrations.tools.mcp.serving.schemas import (
    InputSchema,
    ServedInput,
    UnservableTypeError,
    is_servable,
    output_schema,
    reasons_of,
)
from tests.support.rows import rows

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


# The annotation of Haystack's converters.
SOURCES = Union[str, Path, ByteStream]  # noqa: UP007


class Policy(Enum):
    SKIP = "skip"
    OVERWRITE = "overwrite"


@dataclass
class Source:
    document: Document
    weight: float = 1.0
    tags: list[str] = field(default_factory=list)


@rows(
    ("declared", "value", "expected"),
    (Any, {"a": [1]}, {"a": [1]}),
    (inspect.Parameter.empty, [1, 2], [1, 2]),
    (List, [1, 2], [1, 2]),  # noqa: UP006
    (tuple[int, ...], [1, 2], (1, 2)),
    (frozenset[int], [1, 2], frozenset({1, 2})),
    (str | Secret | None, "text", "text"),
    (list[SOURCES], [{"data": "aGk="}], [ByteStream(b"hi")]),
    (
        Document,
        {"blob": {"data": "aGk=", "mime_type": "a/b"}, "sparse_embedding": {"indices": [1], "values": [0.5]}},
        Document(blob=ByteStream(b"hi", mime_type="a/b"), sparse_embedding=SparseEmbedding([1], [0.5])),
    ),
    (ChatMessage, {"role": "assistant", "content": [{"text": "hi"}]}, ChatMessage.from_assistant("hi")),
    (ImageContent, {"base64_image": PIXEL, "mime_type": "image/png"}, ImageContent(PIXEL, "image/png")),
    (FileContent, {"base64_data": "aGk=", "mime_type": "a/b"}, FileContent("aGk=", mime_type="a/b")),
    (ToolCall, {"tool_name": "add", "arguments": {"a": 1}}, ToolCall("add", {"a": 1})),
    (
        GeneratedAnswer,
        {"data": "a", "query": "q", "documents": [{"content": "b"}], "id": "1"},
        GeneratedAnswer("a", "q", [Document(content="b")]),
    ),
    (Source, {"document": {"content": "a"}}, Source(Document(content="a"))),
)
def test_json_is_converted_to_the_types_of_a_component(declared: Any, value: Any, expected: Any) -> None:
    # Clients see this schema.
    schema = InputSchema({"value": ServedInput(declared)})
    Draft202012Validator.check_schema(schema.json_schema)
    Draft202012Validator(schema.json_schema).validate({"value": value})
    assert schema.convert({"value": value}) == {"value": expected}


@rows("declared", Secret, list[Tool] | Toolset, Callable | None, InMemoryDocumentStore, "NotDefined")
def test_types_that_cannot_be_json_are_not_served(declared: Any) -> None:
    assert not is_servable(declared)
    with pytest.raises(UnservableTypeError, match="The input `x` is of type"):
        InputSchema({"x": ServedInput(declared)})


@rows(
    ("declared", "value"),
    (Document, '{"content": "a"}'),
    (ChatMessage, {"role": "user"}),
    (ChatMessage, {"role": "SECRET", "content": "a"}),
    (ToolCall, {"tool_name": "a", "arguments": {}, "unknown": "SECRET"}),
    (list[SOURCES], ["SECRET"]),
)
def test_values_that_do_not_fit_are_refused_with_the_name_of_the_input(declared: Any, value: Any) -> None:
    schema = InputSchema({"given": ServedInput(declared)})

    with pytest.raises(ValidationError) as caught:
        schema.convert({"given": value})
    told = "; ".join(reasons_of(caught.value))
    assert told.startswith("'given")
    assert "SECRET" not in told


def test_a_schema_shows_what_is_required_and_the_defaults() -> None:
    described = ServedInput(str, description="What to look for")
    optional = {"policy": (Policy, Policy.SKIP), "top_k": (int | None, None), "not json": (Any, object())}
    given = {name: ServedInput(kind, required=False, default=default) for name, (kind, default) in optional.items()}
    schema = InputSchema({"query": described, **given}).json_schema

    assert (schema["required"], schema["additionalProperties"]) == (["query"], False)
    assert schema["properties"]["query"] == {"type": "string", "description": "What to look for"}
    defaults = {name: each["default"] for name, each in schema["properties"].items() if "default" in each}
    assert defaults == {"policy": "skip", "top_k": None}
    assert InputSchema({}).json_schema == {"type": "object", "properties": {}, "additionalProperties": False}


MESSAGES = [
    ChatMessage.from_user(content_parts=["a", ImageContent(PIXEL, "image/png")]),
    ChatMessage.from_assistant("a", tool_calls=[ToolCall("add", {"a": 1}, id="1")]),
    ChatMessage.from_tool("2", origin=ToolCall("add", {"a": 1}, id="1")),
]


@rows("include_embeddings", False, True)
def test_haystacks_json_of_an_output_fits_its_schema(include_embeddings: bool) -> None:
    written = {
        "named": {"a": [Document(content="a", score=0.5, meta={"k": 1}).to_dict(flatten=False)]},
        "messages": [message.to_dict() for message in MESSAGES],
        "last": MESSAGES[0].to_dict(),
    }
    declared = {"named": dict[str, list[Document]], "messages": list[ChatMessage], "last": ChatMessage | None}
    schema = output_schema(declared, include_embeddings=include_embeddings)

    for value in (written, {}):
        Draft202012Validator(schema).validate(value)
    assert ("embedding" in json.dumps(schema)) == include_embeddings


@rows(
    ("declared", "value"),
    (object, 1),
    (InMemoryDocumentStore, "whatever it becomes"),
    ("NotDefined", 1),
    (dict[Path, int], {"a": 1}),
    (list[GeneratedAnswer], [{"data": "a", "query": "q", "documents": []}]),
)
def test_any_output_has_a_schema(declared: Any, value: Any) -> None:
    schema = output_schema({"value": declared})

    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate({"value": value})


def test_times_have_no_format_if_some_values_do_not_fit_it():
    # Other clients check formats, unlike this one. Those in JavaScript require a time zone.
    schema = output_schema({"at": datetime, "time": time, "took": timedelta, "day": date})
    text = {"type": "string"}
    assert schema["properties"] == {"at": text, "time": text, "took": text, "day": {"type": "string", "format": "date"}}
