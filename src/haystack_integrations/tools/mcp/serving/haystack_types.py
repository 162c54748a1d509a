# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Haystack's own classes as JSON: the schemas that clients see, and how what they send becomes one.

The schemas are written by hand. They describe what `to_dict` and `from_dict` exchange on both majors, without what no
client should send or read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Any

from haystack.dataclasses import (
    ByteStream,
    ChatMessage,
    Document,
    FileContent,
    ImageContent,
    SparseEmbedding,
    TextContent,
    ToolCall,
)

_Schema = dict[str, Any]


def _nullable(kind: str, description: str) -> _Schema:
    return {"type": [kind, "null"], "description": description}


_META: _Schema = {"type": "object", "description": "Anything else that is known of it"}
_NUMBERS: _Schema = {"type": "array", "items": {"type": "number"}}
_BYTE_STREAM: _Schema = {
    "title": "ByteStream",
    "type": "object",
    "properties": {
        "data": {"type": "string", "contentEncoding": "base64", "description": "The bytes, in base64"},
        "mime_type": _nullable("string", "For example application/pdf"),
        "meta": _META,
    },
    "required": ["data"],
    "additionalProperties": False,
}
_SPARSE_EMBEDDING: _Schema = {
    "title": "SparseEmbedding",
    "type": "object",
    "properties": {"indices": {"type": "array", "items": {"type": "integer"}}, "values": _NUMBERS},
    "required": ["indices", "values"],
    "additionalProperties": False,
}


def document_schema(*, include_embeddings: bool) -> _Schema:
    """
    Describe a Document as clients receive it.

    :param include_embeddings: Whether it has its embeddings.
    :returns: The JSON schema.
    """
    properties: _Schema = {
        "id": {"type": "string"},
        "content": _nullable("string", "The text"),
        "meta": _META,
        "score": _nullable("number", "How well it fits; higher is better"),
    }
    if include_embeddings:
        properties["embedding"] = {"anyOf": [_NUMBERS, {"type": "null"}]}
        properties["sparse_embedding"] = {"anyOf": [_SPARSE_EMBEDDING, {"type": "null"}]}
    return {"title": "Document", "type": "object", "properties": properties, "required": ["id"]}


def _given_document() -> _Schema:
    schema = document_schema(include_embeddings=True)
    schema["properties"]["id"] = {"type": "string", "description": "Made from the contents when it is left out"}
    schema["properties"]["blob"] = {"anyOf": [_BYTE_STREAM, {"type": "null"}]}
    del schema["required"]
    return {**schema, "additionalProperties": False}


_ROLES = ["user", "system", "assistant", "tool"]
# A ChatMessage as clients receive it.
CHAT_MESSAGE: _Schema = {
    "title": "ChatMessage",
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": _ROLES},
        "content": {
            "type": "array",
            "items": {"type": "object"},
            "description": 'The parts, each an object with one key, such as {"text": "..."} or {"tool_call": {...}}',
        },
        "name": _nullable("string", "The name of the participant"),
        "meta": _META,
    },
    "required": ["role", "content"],
}
_IMAGE_CONTENT: _Schema = {
    "title": "ImageContent",
    "type": "object",
    "properties": {
        "base64_image": {"type": "string", "contentEncoding": "base64"},
        "mime_type": _nullable("string", "For example image/png"),
        "detail": {"enum": ["auto", "high", "low", None]},
        "meta": _META,
    },
    "required": ["base64_image"],
    "additionalProperties": False,
}
_FILE_CONTENT: _Schema = {
    "title": "FileContent",
    "type": "object",
    "properties": {
        "base64_data": {"type": "string", "contentEncoding": "base64"},
        "mime_type": _nullable("string", "For example application/pdf"),
        "filename": _nullable("string", "The name of the file"),
        "extra": {"type": "object"},
    },
    "required": ["base64_data"],
    "additionalProperties": False,
}
_TOOL_CALL: _Schema = {
    "title": "ToolCall",
    "type": "object",
    "properties": {
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
        "id": _nullable("string", "What the result of the call refers to"),
        "extra": _nullable("object", "What the provider of the model adds"),
    },
    "required": ["tool_name", "arguments"],
    "additionalProperties": False,
}
_TEXT_CONTENT: _Schema = {
    "title": "TextContent",
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
_GIVEN_CHAT_MESSAGE: _Schema = {
    **CHAT_MESSAGE,
    "properties": {
        **CHAT_MESSAGE["properties"],
        "content": {
            "anyOf": [{"type": "string"}, CHAT_MESSAGE["properties"]["content"]],
            "description": "The text, or the parts",
        },
    },
    "additionalProperties": False,
}


# Pydantic turns only ValueErrors into its own errors.


def _object(value: Any, kind: type, required: Iterable[str] = ()) -> dict[str, Any]:
    if not isinstance(value, dict):
        msg = f"a {kind.__name__} is an object, not a {type(value).__name__}"
        raise ValueError(msg)
    missing = [name for name in required if name not in value]
    if missing:
        msg = f"a {kind.__name__} needs {', '.join(missing)}"
        raise ValueError(msg)
    return value


def _byte_stream(value: Any) -> Any:
    if isinstance(value, ByteStream):
        return value
    given = _object(value, ByteStream, ["data"])
    try:
        data = base64.b64decode(given["data"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        msg = "`data` of a ByteStream is not base64"
        raise ValueError(msg) from None
    return ByteStream(data=data, mime_type=given.get("mime_type"), meta=given.get("meta") or {})


def _document(value: Any) -> Any:
    if isinstance(value, Document):
        return value
    given = dict(_object(value, Document))
    blob, sparse = given.pop("blob", None), given.pop("sparse_embedding", None)
    known = {name: given.pop(name, None) for name in ("id", "content", "score", "embedding", "meta")}
    if given:
        msg = f"a Document has no {', '.join(map(repr, given))}; put it into `meta`"
        raise ValueError(msg)
    return Document(
        id=known["id"] or "",
        content=known["content"],
        score=known["score"],
        embedding=known["embedding"],
        meta=known["meta"] or {},
        blob=None if blob is None else _byte_stream(blob),
        sparse_embedding=None if sparse is None else _sparse_embedding(sparse),
    )


def _sparse_embedding(value: Any) -> Any:
    if isinstance(value, SparseEmbedding):
        return value
    given = _object(value, SparseEmbedding, ["indices", "values"])
    return SparseEmbedding(indices=given["indices"], values=given["values"])


def _by_from_dict(kind: Any, *required: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        given = _object(value, kind, required)
        try:
            return kind.from_dict(given)
        except Exception:
            # Haystack's messages contain the value.
            msg = f"this is no {kind.__name__}"
            raise ValueError(msg) from None

    return convert


# The schema of what a client sends, and what makes an object of it.
FROM_JSON: dict[Any, tuple[_Schema, Callable[[Any], Any]]] = {
    Document: (_given_document(), _document),
    ChatMessage: (_GIVEN_CHAT_MESSAGE, _by_from_dict(ChatMessage, "role", "content")),
    ByteStream: (_BYTE_STREAM, _byte_stream),
    SparseEmbedding: (_SPARSE_EMBEDDING, _sparse_embedding),
    ImageContent: (_IMAGE_CONTENT, _by_from_dict(ImageContent, "base64_image")),
    FileContent: (_FILE_CONTENT, _by_from_dict(FileContent, "base64_data")),
    TextContent: (_TEXT_CONTENT, _by_from_dict(TextContent, "text")),
    ToolCall: (_TOOL_CALL, _by_from_dict(ToolCall, "tool_name", "arguments")),
}
