# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Converts what a tool returned to the result of an MCP call: content for the model, structured content for programs.

* An object (a dictionary, a dataclass, a pydantic model) is structured content. Any other value is so only with an
  output schema that has `x-fastmcp-wrap-result`, as FastMCP's do: the client gets it as `{"result": ...}`.
* Documents and ChatMessages have the form of `Document.to_dict(flatten=False)` and `ChatMessage.to_dict()`, which
  `from_dict` can read. Embeddings and binary data are left out, unless the options include them.
* Images, audio and files become content of their kinds, even inside other values.
* Numbers that JSON lacks (NaN, infinity) become null, and so do Secrets. Half a surrogate pair, which is not valid
  text, becomes the replacement character.
* Structured content that does not fit the output schema is an error, because clients would reject the whole answer.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite
from typing import Any

import anyio.to_thread
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.utilities.types import Audio, File, Image
from haystack import logging
from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent, TextContent
from haystack.utils import Secret
from mcp import types
from pydantic import BaseModel, RootModel
from pydantic_core import to_jsonable_python
from referencing import Registry

from haystack_integrations.tools.mcp.serving.schemas import WRAP_RESULT, ResultValidator
from haystack_integrations.tools.mcp.serving.sources import ServeOptions

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Haystack's classes that are written in a special form.
HAYSTACK_TYPES = (Document, ChatMessage, ByteStream, ImageContent, FileContent)
_BLOCK_TYPES = (types.TextContent, types.ImageContent, types.AudioContent, types.ResourceLink, types.EmbeddedResource)
_MEDIA_TYPES = (*_BLOCK_TYPES, Image, Audio, File, ImageContent, FileContent, ByteStream, TextContent)

# The names of the types of missing values in data frames of pandas.
_MISSING_TYPES = frozenset({"NaTType", "NAType"})

# If structured content has the same text, only its beginning is sent as content when it is longer than this, because
# clients accept events of at most 1 MiB in a stream. Models see that beginning.
_MAX_REPEATED_LENGTH, _BEGINNING_LENGTH = 200_000, 20_000

# A result with more values than this is checked against its output schema in a thread. A list of 100,000 numbers takes
# some seconds, which would block other calls.
_MAX_CHECKED_IN_LOOP = 2_000


@dataclass
class JsonWriter:
    """
    Converts values to JSON, within the limits of the options.

    :param options: The options, with the limits.
    :param notes: Notes for the client about what a limit has cut.
    :param count: How many values were converted.
    """

    options: ServeOptions
    notes: list[str] = field(default_factory=list)
    count: int = 0

    def write(self, value: Any) -> Any:
        """
        Convert a value to JSON.

        :param value: Any value.
        :returns: A value for `json.dumps`: dictionaries, lists, texts, numbers, booleans and None.
        """
        self.count += 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Enum):
            # The value of an Enum is never cut, because the beginning of it would not be a member.
            return well_formed(value.value) if isinstance(value.value, str) else self.write(value.value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if isfinite(value) else None
        if isinstance(value, Mapping):
            return {_json_key(key): self.write(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return self._list(list(value))
        if isinstance(value, bytes | bytearray | memoryview):
            return b64encode(value).decode()
        return self._object(value)

    def text(self, text: str) -> str:
        """
        Cut a text, if it is too long.

        :param text: The text.
        :returns: The text, or its beginning.
        """
        text = well_formed(text)
        limit = self.options.max_characters
        if limit is None or len(text) <= limit:
            return text
        self._note(f"Texts are cut to {limit} characters, marked with '...'.")
        return f"{text[:limit]}..."

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _list(self, values: list[Any]) -> list[Any]:
        limit = self.options.max_documents
        if limit is not None and len(values) > limit and all(isinstance(each, Document) for each in values):
            self._note(f"{limit} of {len(values)} documents are returned.")
            values = values[:limit]
        return [self.write(each) for each in values]

    def _object(self, value: Any) -> Any:
        if isinstance(value, Secret) or type(value).__name__ in _MISSING_TYPES:
            return None
        if isinstance(value, HAYSTACK_TYPES):
            return self._haystack_object(value)
        if isinstance(value, BaseModel):
            return self._model(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if hasattr(value, "__pydantic_fields__") and not _contains_haystack(value):
                return self.write(to_jsonable_python(value, bytes_mode="base64", by_alias=False))
            return {each.name: self.write(getattr(value, each.name)) for each in dataclasses.fields(value)}
        for conversion in ("tolist", "to_dict"):  # arrays and numbers of NumPy and the like; Haystack's classes
            convert = getattr(value, conversion, None)
            if callable(convert) and not isinstance(value, type):
                return self.write(convert())
        # For example, the keys of a dictionary, a range or a deque, but not classes that define `__str__`.
        if isinstance(value, Sequence | Set | ValuesView) and type(value).__str__ is object.__str__:
            return self._list(list(value))
        written = to_jsonable_python(value, bytes_mode="base64", fallback=_fallback_text)
        return well_formed(written) if isinstance(written, str) else written

    def _haystack_object(self, value: Any) -> dict[str, Any]:
        with_data = self.options.include_blobs
        if isinstance(value, Document):
            left_out = {"embedding", "sparse_embedding"} if not self.options.include_embeddings else set()
            left_out |= set() if with_data else {"blob"}
            names = [each.name for each in dataclasses.fields(value) if each.name not in left_out]
            # The id is never cut, because documents are found by it.
            return {name: self.write(getattr(value, name)) for name in names} | {"id": well_formed(value.id)}
        if isinstance(value, ChatMessage):
            written = value.to_dict()
            for part in written["content"]:
                part.update({kind: self._media(part[kind]) for kind in ("image", "file") if kind in part})
            message: dict[str, Any] = self.write(written)
            return message
        if isinstance(value, ByteStream):
            described = {"mime_type": value.mime_type, "meta": self.write(value.meta), "size": len(value.data)}
            return {**described, "data": b64encode(value.data).decode()} if with_data else described
        return self._media(value.to_dict())

    def _media(self, fields: dict[str, Any]) -> dict[str, Any]:
        data = {name: each for name, each in fields.items() if name.startswith("base64_")}
        described = {name: self.write(each) for name, each in fields.items() if name not in data}
        return {**described, **data} if self.options.include_blobs else described

    def _model(self, model: BaseModel) -> Any:
        """Write a model as pydantic does, except for fields with Haystack's classes, which have a special form."""
        fields = type(model).model_fields
        haystack_fields = {
            name: value
            for name, value in model
            if _contains_haystack(value) and not (name in fields and fields[name].exclude)
        }
        if haystack_fields and isinstance(model, RootModel):
            return self.write(model.root)
        written = model.model_dump(mode="json", exclude=set(haystack_fields), by_alias=False, fallback=_fallback_text)
        return self.write({**written, **haystack_fields} if isinstance(written, dict) else written)


def _contains_haystack(value: Any) -> bool:
    if isinstance(value, HAYSTACK_TYPES):
        return True
    if isinstance(value, Mapping):
        return any(map(_contains_haystack, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_contains_haystack, value))
    if isinstance(value, BaseModel):
        return any(_contains_haystack(each) for _, each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_contains_haystack(getattr(value, each.name)) for each in dataclasses.fields(value))
    return False


def well_formed(text: str) -> str:
    """
    Repair halves of surrogate pairs, with which a text cannot be sent. Models write the two halves in separate chunks.

    :param text: The text.
    :returns: The text with pairs joined, and with U+FFFD for each half without the other.
    """
    text = str(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _json_key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    return well_formed(key if isinstance(key, str) else str(key))


def _fallback_text(value: Any) -> str:
    # The default form is replaced, because it has an address in memory, which is of no use to clients.
    kind: Any = type(value)
    is_default = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return f"<{kind.__name__}>" if is_default else str(value)


@dataclass(frozen=True)
class Answer:
    """
    A return value of a tool for which the model sees something else than a program.

    :param value: The return value, for structured content.
    :param shown: The value that the model sees.
    """

    value: Any
    shown: Any


class ResultWriter:
    """
    Converts the return values of one tool to results of its calls.
    """

    def __init__(self, tool_name: str, output_schema: dict[str, Any] | None, options: ServeOptions) -> None:
        """
        Initialize the ResultWriter.

        :param tool_name: The name of the tool, for messages.
        :param output_schema: The output schema, if it has one.
        :param options: The options, with the limits.
        """
        self._tool_name = tool_name
        self._options = options
        self._validator: Any = None
        if output_schema is not None:
            self._validator = ResultValidator(output_schema, registry=Registry())
        self._wraps = bool(output_schema and output_schema.get(WRAP_RESULT))

    async def result(self, value: Any) -> ToolResult:
        """
        Convert a return value of the tool to the result of the call.

        :param value: The return value, or an `Answer`. A `ToolResult`, a `CallToolResult` and an `InputRequiredResult`
            are sent unchanged.
        :returns: The result.
        :raises ToolError: If it does not fit the output schema.
        """
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, types.CallToolResult):
            return ToolResult.from_mcp_result(value)
        if isinstance(value, types.InputRequiredResult):
            return InputRequiredToolResult(value)
        writer = JsonWriter(self._options)
        is_same = not isinstance(value, Answer)
        value, shown = (value, value) if is_same else (value.value, value.shown)
        written = writer.write(value) if self._validator or not _only_content(value) else None
        if writer.count > _MAX_CHECKED_IN_LOOP:
            structured = await anyio.to_thread.run_sync(self._structured, written, abandon_on_cancel=True)
        else:
            structured = self._structured(written)
        content = _content(shown, writer, written if is_same else None)
        if structured is not None:
            content = [part for block in content for part in _without_repetition(block, structured, is_same=is_same)]
        content += [types.TextContent(type="text", text=note) for note in writer.notes]
        meta: dict[str, Any] = {}
        if writer.notes:
            meta["haystack"] = {"truncated": writer.notes}
        if self._wraps:
            meta["fastmcp"] = {"wrap_result": True}
        return ToolResult(content=content, structured_content=structured, meta=meta or None)

    def _structured(self, written: Any) -> dict[str, Any] | None:
        if self._validator is None:
            return written if isinstance(written, dict) else None
        if self._wraps:
            written = {"result": written}
        error = next(self._validator.iter_errors(written), None)
        if error is None and isinstance(written, dict):
            return written
        where = f"{error.json_path}: '{error.validator}' is violated" if error else "it is not an object"
        logger.error(
            "The result of tool '{tool}' violates its output schema: {where}", tool=self._tool_name, where=where
        )
        msg = f"The result of tool '{self._tool_name}' does not conform to its output schema ({where})."
        raise ToolError(msg)


def _without_repetition(
    block: types.ContentBlock, structured: dict[str, Any], *, is_same: bool
) -> list[types.ContentBlock]:
    """
    Keep only the beginning of a long text that the structured content also has.
    """
    if not isinstance(block, types.TextContent) or len(block.text) <= _MAX_REPEATED_LENGTH:
        return [block]
    if not is_same and block.text not in structured.values():
        return [block]
    note = f"This was the beginning of {len(block.text):,} characters. All of it is in the structured content."
    beginning = types.TextContent(type="text", text=block.text[:_BEGINNING_LENGTH])
    return [beginning, types.TextContent(type="text", text=note)]


def content_blocks(value: Any, options: ServeOptions) -> list[types.ContentBlock]:
    """
    Convert a value to content for the model.

    :param value: The value, such as a part of a ChatMessage.
    :param options: The options, with the limits.
    :returns: Its texts, images, audio and files.
    """
    return _content(value, JsonWriter(options))


def _only_content(value: Any) -> bool:
    return value is None or isinstance(value, str | bytes) or _is_media(value)


def _is_media(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(each, _MEDIA_TYPES) for each in value)
    return isinstance(value, _MEDIA_TYPES)


def _content(value: Any, writer: JsonWriter, written: Any = None) -> list[types.ContentBlock]:
    if value is None:
        return []
    if isinstance(value, list | tuple) and _is_media(value):
        return [block for each in value for block in _content(each, writer)]
    if isinstance(value, str):
        return [types.TextContent(type="text", text=writer.write(value))]
    if isinstance(value, ChatMessage):
        text = "\n".join(value.texts)
        parts = [*([text] if text else []), *value.images, *value.files]
        if parts:
            return [block for each in parts for block in _content(each, writer)]
    block = _block(value, writer)
    if block is not None:
        return [block]
    written = writer.write(value) if written is None else written
    # Dates and Enums may be written as text, which needs no quotes.
    text = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
    return [types.TextContent(type="text", text=text), *_media_inside(value, writer)]


def _block(value: Any, writer: JsonWriter) -> types.ContentBlock | None:
    if isinstance(value, _BLOCK_TYPES):
        return value
    if isinstance(value, Image):
        return value.to_image_content()
    if isinstance(value, Audio):
        return value.to_audio_content()
    if isinstance(value, File):
        return value.to_resource_content()
    if isinstance(value, TextContent):
        return types.TextContent(type="text", text=writer.write(value.text))
    if isinstance(value, ImageContent):
        return types.ImageContent(type="image", data=value.base64_image, mime_type=value.mime_type or "image/png")
    if isinstance(value, FileContent):
        return _binary(value.base64_data, value.mime_type, value.filename)
    if isinstance(value, ByteStream):
        name = value.meta.get("file_name") or value.meta.get("filename")
        return _binary(b64encode(value.data).decode(), value.mime_type, name if isinstance(name, str) else None)
    if isinstance(value, bytes):
        return _binary(b64encode(value).decode(), None, None)
    return None


def _binary(data: str, mime_type: str | None, name: str | None) -> types.ContentBlock:
    kind = (mime_type or "").partition("/")[0]
    if kind == "image" and mime_type:
        return types.ImageContent(type="image", data=data, mime_type=mime_type)
    if kind == "audio" and mime_type:
        return types.AudioContent(type="audio", data=data, mime_type=mime_type)
    # FastMCP's File uses the same URI for data without a file name.
    uri = f"file:///{name or 'resource'}"
    contents = types.BlobResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=data)
    return types.EmbeddedResource(type="resource", resource=contents)


def _media_inside(value: Any, writer: JsonWriter) -> Iterator[types.ContentBlock]:
    """Find media inside a value, such as images in the replies of a pipeline, which only content can show."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, str | int | float):
        return  # most items of long lists end here
    if isinstance(value, list | tuple):
        for each in value:
            yield from _media_inside(each, writer)
    elif isinstance(value, ChatMessage):
        yield from _media_inside([*value.images, *value.files], writer)
    elif isinstance(value, Document):
        if writer.options.include_blobs:
            yield from _media_inside(value.blob, writer)
    elif not isinstance(value, TextContent | types.TextContent | bytes):
        block = _block(value, writer)
        if block is not None:
            yield block
