# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Converts the content of tool results and prompts to the forms that Haystack, the model and programs need.

The *envelope* is an MCP `CallToolResult` as a JSON string. `MCPTool.invoke()` returns it unchanged, or as a
`StateResult` where Haystack needs a dict; one of `RESULT_HANDLERS` turns it into what the model sees. The tool has
already run, so these functions never raise, whatever content the server sends.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent

from haystack_integrations.tools.mcp.convert.resources import plain_base64
from haystack_integrations.tools.mcp.haystack_compat import TOOL_MESSAGES_TAKE_FILES

if TYPE_CHECKING:
    import mcp_types as types

__all__ = ["prompt_messages"]

ContentPart: TypeAlias = TextContent | ImageContent | FileContent

_NO_CONTENT: Final = "[no content]"
_NO_ERROR_TEXT: Final = "the server gave no error text"
# Replaces data URIs in notes, because they contain the very bytes that a note leaves out.
_DATA_URI: Final = "data:…"
# The maximum length of a description or a name in a note, and of the end of a URI that is searched for a file name, in
# characters.
_MAX_FACT_LENGTH: Final = 10_000

# An envelope has at least two of these keys. One is not enough: `content` is a common key in a tool's own JSON.
_ENVELOPE_KEYS: Final = frozenset({"content", "structuredContent", "isError"})


class StateResult(dict[str, Any]):
    """
    A tool result as a dict, for Haystack's `outputs_to_state` and the `source` of `outputs_to_string`.

    It keeps its envelope, so that a handler that receives the dict can still show the model the server's own text.
    Otherwise it is a plain dict.

    :param values: The items of the dict.
    :param envelope: The JSON string of the MCP `CallToolResult`.
    :param visible: Keys whose values go to the model. For such a key that is missing, `get` returns the text of the
        result; otherwise Haystack would show the model `None`.
    """

    def __init__(self, values: dict[str, Any], *, envelope: str, visible: Collection[str] = ()) -> None:
        super().__init__(values)
        self.envelope = envelope
        self.visible = visible

    def get(self, key: str, default: Any = None) -> Any:
        """
        Return the value of a key.

        :param key: The key.
        :param default: Value for a missing key that is not visible to the model.
        :returns: The value; the text of the result for a missing key that is visible to the model.
        """
        if key in self.visible and key not in self:
            return model_text(self)
        return super().get(key, default)


def state_result(envelope: str, visible: Collection[str] = ()) -> StateResult:
    """
    Convert a result to the dict from which Haystack updates its State.

    The dict is the structured content if that is an object, else the JSON object in the text, else `{"result": ...}`
    with the text, or with all content blocks if some are not text. If a tool returns a string, servers made with the
    Python SDK or FastMCP send the structured content `{"result": "..."}`; if that string is a JSON object, its items
    are added. Blocks for the user only are included, because the State belongs to the application, not to the model.

    :param envelope: The JSON string of the MCP `CallToolResult`.
    :param visible: Keys whose values go to the model; see StateResult.
    :returns: The dict with its envelope.
    """
    values = _state_values(_parse_envelope(envelope) or {"content": [{"type": "text", "text": envelope}]})
    return StateResult(values, envelope=envelope, visible=visible)


def model_text(result: Any) -> str:
    """
    Convert a result to plain text. This is the default handler.

    Text is kept unchanged; other content is replaced with a one-line note. Structured content is used only if there is
    no other content, because servers repeat it as text. Blocks that the server marks as for the user only are omitted,
    unless there is nothing else.

    :param result: An envelope or a `StateResult`. Any other string is returned unchanged, any other value as JSON.
    :returns: The text for the model.
    """
    envelope = _parse_envelope(result)
    if envelope is None:
        return _plain_text(result)
    return _envelope_text(envelope) or _NO_CONTENT


def model_content(result: Any) -> str | list[ContentPart]:
    """
    Convert a result to Haystack content blocks, in the server's order.

    A text note replaces content that cannot become a block: files if this Haystack version does not support them in
    tool messages, data that is not base64, and data whose MIME type is neither declared nor recognized.

    :param result: As in `model_text`.
    :returns: A plain string, which every chat generator accepts, if everything is text; else a list of content blocks.
    """
    envelope = _parse_envelope(result)
    if envelope is None:
        return list(result) if _are_content_parts(result) else _plain_text(result)
    parts = _content_parts(_blocks_for_model(envelope))
    if all(isinstance(part, TextContent) for part in parts):
        return _envelope_text(envelope) or _NO_CONTENT
    # Some providers refuse an empty text part.
    return [part for part in parts if not (isinstance(part, TextContent) and _is_empty(part.text))]


def model_json(result: Any) -> str:
    """
    Convert a result to the JSON of the whole MCP result.

    :param result: As in `model_text`.
    :returns: The envelope; a value without one as JSON.
    """
    if isinstance(result, StateResult):
        return result.envelope
    return result if isinstance(result, str) else _as_json(result)


def limit_result(result: Any, size: int) -> Any:
    """
    Shorten the text of a result for the model.

    :param result: Text, or Haystack content blocks. Anything else is returned unchanged.
    :param size: The maximum number of characters, including the marker in place of the omitted text.
    :returns: The beginning and the end, with a marker between them that says how much is left out. In content blocks,
        one block with the shortened text takes the place of the first text block.
    """
    if isinstance(result, str):
        return _shortened(result, size)
    texts = [part for part in result if isinstance(part, TextContent)] if isinstance(result, list) else []
    text = "".join(part.text for part in texts)
    if len(text) <= size:
        return result
    limited = TextContent(_shortened(text, size))
    return [limited if part is texts[0] else part for part in result if part is texts[0] or part not in texts]


def _shortened(text: str, size: int) -> str:
    total = len(text)
    if total <= size:
        return text
    # The marker needs room as well, so a little more is left out.
    room = size - len(f"\n[… {total} of {total} characters left out …]\n")
    head = (room + 1) // 2
    return f"{text[:head]}\n[… {total - room} of {total} characters left out …]\n{text[total - room + head :]}"


def error_text(envelope: str | dict[str, Any]) -> str:
    """
    Return the error text of a failed call.

    :param envelope: The envelope of a result with `isError`, as a JSON string or parsed.
    :returns: The server's text, or a note that it sent none.
    """
    parsed = _parse_envelope(envelope)
    text = _plain_text(envelope) if parsed is None else _envelope_text(parsed)
    return _NO_ERROR_TEXT if _is_empty(text) else text


# Handlers by `result_format`. Haystack serializes each by its import path.
RESULT_HANDLERS: Final[dict[str, Callable[[Any], Any]]] = {
    "text": model_text,
    "content": model_content,
    "json": model_json,
}


# The envelope


def _parse_envelope(result: Any) -> dict[str, Any] | None:
    if isinstance(result, StateResult):
        result = result.envelope
    parsed = _json_object(result) if isinstance(result, str) else result
    return parsed if isinstance(parsed, dict) and len(_ENVELOPE_KEYS & parsed.keys()) > 1 else None


def _json_object(text: str) -> dict[str, Any] | None:
    # Most texts are prose; looking at the first character is cheaper than parsing.
    if not text.lstrip().startswith("{"):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _blocks(envelope: dict[str, Any]) -> list[Any]:
    content = envelope.get("content")
    if content is None:
        return []
    return content if isinstance(content, list) else [content]


def _blocks_for_model(envelope: dict[str, Any]) -> list[Any]:
    """Return the content blocks to show; empty if there is no content, or structured content to show instead."""
    blocks = _blocks(envelope)
    for_model = [block for block in blocks if not _is_for_user_only(block)]
    if not _are_empty(for_model):
        return for_model
    if envelope.get("structuredContent") is not None or _are_empty(blocks):
        return []
    return blocks


def _is_for_user_only(block: Any) -> bool:
    # https://modelcontextprotocol.io/specification/2025-06-18/server/resources#annotations
    match block:
        case {"annotations": {"audience": ["user"]}}:
            return True
    return False


def _are_empty(blocks: Iterable[Any]) -> bool:
    return all((text := _text(block)) is not None and _is_empty(text) for block in blocks)


def _is_empty(text: str) -> bool:
    return not text or text.isspace()


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _envelope_text(envelope: dict[str, Any]) -> str:
    blocks = _blocks_for_model(envelope)
    if blocks:
        return "\n".join(map(_block_text, blocks))
    structured = envelope.get("structuredContent")
    return "" if structured is None else _as_json(structured)


def _state_values(envelope: dict[str, Any]) -> dict[str, Any]:
    structured = envelope.get("structuredContent")
    if isinstance(structured, dict):
        wrapped = structured.get("result") if len(structured) == 1 else None
        return {**((isinstance(wrapped, str) and _json_object(wrapped)) or {}), **structured}
    blocks = _blocks(envelope)
    # Before protocol revision 2026-07-28 structured content was always an object; now it may be any JSON value.
    if structured is not None and _are_empty(blocks):
        return {"result": structured}
    texts = [text for block in blocks if (text := _text(block)) is not None]
    joined = "\n".join(texts)
    for text in dict.fromkeys((joined, *texts)):
        parsed = _json_object(text)
        if parsed is not None:
            return parsed
    return {"result": joined if len(texts) == len(blocks) else _content_parts(blocks)}


# A block as text


def _block_text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _note(kind, _mime_type(block) or "unknown type", _decoded_size(data))
        case {"type": "resource", "resource": {"text": str(text)} as resource}:
            return f"{_note('resource', _uri(resource), _mime_type(resource))}\n{text}"
        case {"type": "resource", "resource": {"blob": str(data)} as resource}:
            return _note("resource", _uri(resource), _mime_type(resource) or "unknown type", _decoded_size(data))
        case {"type": "resource_link"}:
            name = block.get("title") or block.get("name")
            size = _size(block.get("size"))
            return _note("resource link", name, _uri(block), _mime_type(block), size, block.get("description"))
    return f"[unsupported content: {reprlib.repr(block)}]"


def _note(kind: str, *facts: Any) -> str:
    # A note is one line, even if a description contains line breaks.
    given = ", ".join(" ".join(fact[:_MAX_FACT_LENGTH].split()) for fact in facts if fact and isinstance(fact, str))
    return f"[{kind}: {given}]" if given else f"[{kind}]"


def _mime_type(fields: dict[str, Any]) -> str | None:
    named = str(fields.get("mimeType") or "").partition(";")[0].strip().lower()
    if named == "image/jpg":  # not a valid MIME type; model providers refuse it
        return "image/jpeg"
    return named if "/" in named else None


def _uri(fields: dict[str, Any]) -> str:
    uri = str(fields.get("uri") or "")
    return _DATA_URI if uri.lstrip()[:5].lower() == "data:" else uri


def _decoded_size(data: str) -> str | None:
    data, _ = plain_base64(data)
    return _size(len(data) * 3 // 4 - data[-2:].count("="))


def _size(size: Any) -> str | None:
    return f"{size:,} B" if isinstance(size, int) else None


# A block as a Haystack content block

# The image types that all model providers accept, and how their base64 begins.
_IMAGES: Final = {
    "image/png": re.compile("iVBORw0KGgo"),
    "image/jpeg": re.compile("/9j/"),
    "image/gif": re.compile("R0lGOD"),
    "image/webp": re.compile("UklGR.{7}RUJQ"),
}


def _content_parts(blocks: Iterable[Any]) -> list[ContentPart]:
    return [_media_part(block) or TextContent(_block_text(block)) for block in blocks]


def _media_part(block: Any, *, in_user_message: bool = False) -> ImageContent | FileContent | None:
    match block:
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            fields, filename = block, None
        case {"type": "resource" as kind, "resource": {"blob": str(data)} as fields}:
            filename = _filename(fields)
        case _:
            return None
    data, given = plain_base64(data)
    if not data:
        return None
    mime_type = _mime_type(fields) or given
    if kind == "image" or mime_type in (None, "application/octet-stream") or mime_type.startswith("image/"):
        mime_type = image_type(data, mime_type)
    is_image = mime_type.startswith("image/") if mime_type else kind == "image"
    # Haystack's classes validate the base64 and guess a missing MIME type. No provider accepts a block without one.
    if is_image:
        with suppress(ValueError):
            image = ImageContent(base64_image=data, mime_type=mime_type)
            # The guess may be PDF, which Haystack accepts as an image type.
            if image.mime_type and image.mime_type.startswith("image/"):
                return image
    if TOOL_MESSAGES_TAKE_FILES or in_user_message:  # Haystack 2 accepts files in user messages only
        with suppress(ValueError):
            file = FileContent(base64_data=data, mime_type=mime_type, filename=filename)
            return file if file.mime_type else None
    return None


def image_type(data: str, declared: str | None) -> str | None:
    """
    Find the MIME type of an image. Some servers declare a wrong one, and model providers then refuse the whole request.

    :param data: The image in base64.
    :param declared: The MIME type that the server declares.
    :returns: The type recognized from the first bytes, else the declared one.
    """
    return next((mime_type for mime_type, begin in _IMAGES.items() if begin.match(data)), declared)


def _filename(resource: dict[str, Any]) -> str | None:
    path = _uri(resource).partition("?")[0].partition("#")[0]
    return None if path == _DATA_URI else unquote(path[-_MAX_FACT_LENGTH:]).rstrip("/").rpartition("/")[2] or None


# Values without an envelope, e.g. one that the `source` of an `outputs_to_string` took from a StateResult


def _plain_text(value: Any) -> str:
    if isinstance(value, StateResult):
        return value.envelope
    if isinstance(value, str):
        return value
    return "\n".join(map(_part_text, value)) if _are_content_parts(value) else _as_json(value)


def _are_content_parts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, ContentPart) for part in value)


def _part_text(part: Any) -> str:
    if isinstance(part, TextContent):
        return part.text
    if isinstance(part, ImageContent):
        return _note("image", part.mime_type or "unknown type", _decoded_size(part.base64_image))
    if isinstance(part, FileContent):
        return _note("file", part.filename, part.mime_type or "unknown type", _decoded_size(part.base64_data))
    return str(part)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_part_text)
    except (TypeError, ValueError, RecursionError):
        # The value has keys that JSON does not allow, a reference cycle, or too many levels.
        return reprlib.repr(value)


def json_value(value: Any) -> Any:
    """
    Convert a value to JSON types.

    :param value: The value: a JSON value, a collection, a Haystack object such as a Document, a dataclass, bytes, which
        become base64, or any other object, which is converted with `str`.
    :returns: The converted value.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(each) for each in value]
    for method in ("to_dict", "tolist"):  # Haystack's objects; arrays of numbers
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return json_value(convert())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json_value({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return str(value)


def json_text(value: Any) -> str:
    """
    Convert a value to text for a model.

    :param value: The value.
    :returns: A string unchanged, any other value as JSON.
    """
    return value if isinstance(value, str) else json.dumps(json_value(value), ensure_ascii=False)


# Results for programs

# The maximum length of a text that is displayed in full, in characters: in a `repr`, and in a notebook.
_MAX_REPR_LENGTH: Final = 2000
_MAX_NOTEBOOK_LENGTH: Final = 20_000
_IMAGE: Final = re.compile(r"image/[\w.+-]+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=_-]+")


@dataclass(frozen=True)
class MCPToolResult:
    """
    The result of a tool call, for a program. `MCPTool.call` returns it.

    :param text: The text of all text blocks, joined by line breaks; empty if there are none.
    :param structured: The structured content, parsed; None if the tool returned none.
    :param content: All content blocks as Haystack objects: `TextContent`, `ImageContent`, and `FileContent` where the
        installed Haystack supports it in tool messages. A short text note replaces content that cannot be converted.
    :param meta: The metadata of the result (`_meta`), for programs only; None if the server sent none.
    :param raw: The result as an object of the MCP SDK.
    """

    text: str
    structured: Any
    content: list[ContentPart]
    meta: dict[str, Any] | None
    raw: types.CallToolResult

    @property
    def value(self) -> Any:
        """
        The result as one value: the structured content if there is any, else the text.

        A server whose tool returns a number, a text or a list has to wrap it, as in `{"result": 8}`. This property
        then returns the bare value, 8. It does so for every object whose only member is called `result`.
        """
        if self.structured is None:
            return self.text
        if isinstance(self.structured, dict) and self.structured.keys() == {"result"}:
            return self.structured["result"]
        return self.structured

    @classmethod
    def from_result(cls, result: types.CallToolResult) -> MCPToolResult:
        """
        Convert a result of the MCP SDK.

        :param result: The result.
        :returns: The converted result.
        """
        # Dump one block at a time, so that other threads can run in between.
        blocks = [block.model_dump(mode="json", by_alias=True) for block in result.content]
        return cls(
            text="\n".join(text for block in blocks if (text := _text(block)) is not None),
            structured=result.structured_content,
            content=_content_parts(blocks),
            meta=result.meta,
            raw=result,
        )

    def __repr__(self) -> str:
        """
        Show the content once, shortened, as it is in `text`, in `structured` or in `content`.
        """
        shown = {}
        if any(not isinstance(part, TextContent) for part in self.content):
            shown["content"] = f"[{', '.join(map(_describe_part, self.content))}]"
        elif self.text:
            shown["text"] = _short(repr(self.text))
        if self.structured is not None and not self._repeats_structured:
            shown["structured"] = _short(repr(self.structured))
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in shown.items())})"

    def _repr_html_(self) -> str:
        # Show the blocks in the server's order, images as images.
        blocks = [_html(part) for part in self.content]
        if self.structured is not None and not self._repeats_structured:
            blocks.append(_html_text(json.dumps(self.structured, indent=2, ensure_ascii=False)))
        return "".join(blocks) or "<em>no content</em>"

    @property
    def _repeats_structured(self) -> bool:
        # Servers repeat structured content as text: as JSON, or just the value that it wraps.
        try:
            return self.text == self.value or json.loads(self.text) in (self.structured, self.value)
        except (ValueError, RecursionError):
            return False


def _short(text: str, most: int = _MAX_REPR_LENGTH) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more characters)"


def _describe_part(part: ContentPart) -> str:
    if isinstance(part, TextContent):
        return _short(repr(part.text))
    data = part.base64_image if isinstance(part, ImageContent) else part.base64_data
    return f"<{part.mime_type or type(part).__name__}, {len(data) * 3 // 4} bytes>"


def _html(part: ContentPart) -> str:
    if isinstance(part, TextContent):
        return _html_text(part.text)
    data, kind = getattr(part, "base64_image", ""), part.mime_type or ""
    if isinstance(part, ImageContent) and _IMAGE.fullmatch(kind) and _BASE64.fullmatch(data):
        return f'<img src="data:{kind};base64,{data}">'
    return _html_text(_describe_part(part))


def _html_text(text: str) -> str:
    return f"<pre>{escape(_short(text, _MAX_NOTEBOOK_LENGTH))}</pre>"


# Prompts


def prompt_messages(result: types.GetPromptResult) -> list[ChatMessage]:
    """
    Return the messages of a prompt as ChatMessages, one for each of the server's messages.

    Images and files of a user message become content blocks. Assistant messages in Haystack are text, so a text note
    replaces them there. The same goes for content that Haystack has no block for.

    :param result: What `get_prompt` returned.
    :returns: The messages in the server's order.
    """
    return [_chat_message(message) for message in result.messages]


def _chat_message(message: types.PromptMessage) -> ChatMessage:
    block = message.content.model_dump(by_alias=True, mode="json", exclude_none=True)
    if message.role == "assistant":
        return ChatMessage.from_assistant(_block_text(block))
    return ChatMessage.from_user(
        content_parts=[_media_part(block, in_user_message=True) or TextContent(_block_text(block))]
    )
