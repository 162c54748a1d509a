# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a tool returned as the result of an MCP call: content for the model, structured content for programs.

* An object (a dictionary, a dataclass, a pydantic model) is structured content; anything else only with an output
  schema, which then says `x-fastmcp-wrap-result`, as FastMCP's do: the client gets it as `{"result": ...}`.
* Images, audio and files become content of their kinds, also those inside of other values.
* Structured content that does not fit the output schema is an error here: clients would throw the whole answer away.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastmcp.exceptions import ToolError
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.utilities.types import Audio, File, Image
from haystack import logging
from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent, TextContent
from jsonschema import Draft202012Validator
from mcp import types
from referencing import Registry

from haystack_integrations.tools.mcp.serving.arguments import WRAP_RESULT, PlainFields
from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.values import JsonWriter

logger: logging.PatchedLogger = logging.getLogger(__name__)

_BLOCKS = (types.TextContent, types.ImageContent, types.AudioContent, types.ResourceLink, types.EmbeddedResource)
_MEDIA = (*_BLOCKS, Image, Audio, File, ImageContent, FileContent, ByteStream, TextContent)

_SAME = object()

# A longer text is not sent in addition to structured content that has it, too: clients take events of 1 MiB at most
# from a stream. What they show a model is the beginning.
_LONGEST_REPEATED, _BEGINNING = 200_000, 20_000


@dataclass(frozen=True)
class Answer:
    """
    What a tool returned, where the model is to see something else of it than a program.

    :param value: What it returned.
    :param shown: What the model sees.
    """

    value: Any
    shown: Any


class ResultWriter:
    """
    Turns what one tool returns into results of its calls.
    """

    def __init__(self, tool_name: str, output_schema: dict[str, Any] | None, options: ServeOptions) -> None:
        """
        Initialize the ResultWriter.

        :param tool_name: The name of the tool, for messages.
        :param output_schema: The output schema, if it has one.
        :param options: What to leave out.
        """
        self._tool_name = tool_name
        self._options = options
        self._validator: Any = None
        if output_schema is not None:
            self._validator = Draft202012Validator(output_schema, registry=Registry())
            self._plain_fields = PlainFields(output_schema)
        self._whole = frozenset(_only_values(output_schema))
        self._wraps = bool(output_schema and output_schema.get(WRAP_RESULT))

    def result(self, value: Any) -> ToolResult:
        """
        Turn what the tool returned into the result of the call.

        :param value: What it returned, or an `Answer`. A `ToolResult`, a `CallToolResult` and an `InputRequiredResult`
            are sent as they are, except that long texts of a `CallToolResult` are cut.
        :returns: The result.
        :raises ToolError: If it does not fit the output schema.
        """
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, types.CallToolResult):
            return ToolResult.from_mcp_result(self._cut(value))
        if isinstance(value, types.InputRequiredResult):
            return InputRequiredToolResult(value)
        writer = JsonWriter(self._options, whole=self._whole)
        value, shown = (value.value, value.shown) if isinstance(value, Answer) else (value, _SAME)
        written = writer.write(value) if self._validator or not _only_content(value) else None
        structured = self._structured(written)
        content = _content(value, writer, written) if shown is _SAME else _content(shown, writer)
        if structured is not None:
            content = [
                part for block in content for part in _without_repetition(block, structured, is_same=shown is _SAME)
            ]
        notes = list(dict.fromkeys(writer.notes))
        content += [types.TextContent(type="text", text=note) for note in notes]
        meta: dict[str, Any] = {}
        if notes:
            meta["haystack"] = {"truncated": notes}
        if self._wraps:
            meta["fastmcp"] = {"wrap_result": True}
        return ToolResult(content=content, structured_content=structured, meta=meta or None)

    def _cut(self, result: types.CallToolResult) -> types.CallToolResult:
        """Keep to `max_characters` in the result of another server."""
        if self._options.max_characters is None:
            return result
        writer = JsonWriter(self._options, whole=self._whole)
        structured = writer.write(result.structured_content)
        if self._validator is not None and not self._validator.is_valid(structured):
            # E.g. a text of which the schema wants the end. Clients would throw the answer away.
            writer.notes, structured = [], result.structured_content

        def shortened(block: types.ContentBlock) -> types.ContentBlock:
            if not isinstance(block, types.TextContent):
                return block
            # For the model, servers write structured content as a text, too. A part of that would be no JSON.
            is_json = _is_json_of(result.structured_content, block.text)
            text = json.dumps(structured, ensure_ascii=False) if is_json else writer.text(block.text)
            return block.model_copy(update={"text": text})

        content = [shortened(block) for block in result.content]
        writer.write(None)  # what was cut in the content is noted
        notes = list(dict.fromkeys(writer.notes))
        if not notes:
            return result
        content += [types.TextContent(type="text", text=note) for note in notes]
        meta = {**(result.meta or {}), "haystack": {"truncated": notes}}
        return result.model_copy(update={"content": content, "structured_content": structured, "meta": meta})

    def _structured(self, written: Any) -> dict[str, Any] | None:
        if self._validator is None:
            return written if isinstance(written, dict) else None
        if self._wraps:
            written = {"result": written}
        if isinstance(written, dict) and self._plain_fields.fit(written):
            return written
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
    Keep the beginning of a long text that the structured content has, too.
    """
    if not isinstance(block, types.TextContent) or len(block.text) <= _LONGEST_REPEATED:
        return [block]
    if not is_same and block.text not in structured.values():
        return [block]
    note = f"This was the beginning of {len(block.text):,} characters. All of it is in the structured content."
    beginning = types.TextContent(type="text", text=block.text[:_BEGINNING])
    return [beginning, types.TextContent(type="text", text=note)]


def _is_json_of(structured: Any, text: str) -> bool:
    if structured is None:
        return False
    try:
        return bool(json.loads(text) == structured)
    except ValueError:
        return False


def _only_values(schema: Any) -> Iterator[str]:
    """Find the texts that a schema allows where it allows no others."""
    if isinstance(schema, Mapping):
        for keyword, each in schema.items():
            if keyword in ("enum", "const"):
                yield from (value for value in (each if isinstance(each, list) else [each]) if isinstance(value, str))
            yield from _only_values(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _only_values(each)


def content_blocks(value: Any, options: ServeOptions) -> list[types.ContentBlock]:
    """
    Turn a value into content for the model.

    :param value: The value, such as a part of a ChatMessage.
    :param options: What to leave out.
    :returns: Its texts, images, audio and files.
    """
    return _content(value, JsonWriter(options))


def _only_content(value: Any) -> bool:
    return value is None or isinstance(value, str | bytes) or _is_media(value)


def _is_media(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(each, _MEDIA) for each in value)
    return isinstance(value, _MEDIA)


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
        if not parts:
            return _json_text(value, writer, written)
        return [block for each in parts for block in _content(each, writer)]
    block = _block(value, writer)
    if block is not None:
        return [block]
    return [*_json_text(value, writer, written), *_media_inside(value, writer)]


def _json_text(value: Any, writer: JsonWriter, written: Any) -> list[types.ContentBlock]:
    written = writer.write(value) if written is None else written
    return [types.TextContent(type="text", text=json.dumps(written, ensure_ascii=False))]


def _block(value: Any, writer: JsonWriter) -> types.ContentBlock | None:
    if isinstance(value, _BLOCKS):
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
    # FastMCP's File has the same URI for what is no file.
    uri = f"file:///{name or 'resource'}"
    contents = types.BlobResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=data)
    return types.EmbeddedResource(type="resource", resource=contents)


def _media_inside(value: Any, writer: JsonWriter) -> Iterator[types.ContentBlock]:
    """Find what only content can show: images and files in the outputs of a pipeline, e.g. in replies."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _media_inside(each, writer)
    elif isinstance(value, ChatMessage):
        yield from _media_inside([*value.images, *value.files], writer)
    elif isinstance(value, Document):
        if writer.options.include_blobs:
            yield from _media_inside(value.blob, writer)
    else:
        block = None if isinstance(value, TextContent | types.TextContent | bytes) else _block(value, writer)
        if block is not None:
            yield block
