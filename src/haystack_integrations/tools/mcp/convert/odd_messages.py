# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Reads messages, and repairs those that do not quite follow the protocol, so that one odd member loses nothing else.

An unreadable answer fails its request at once, instead of leaving it to its timeout. The models of the MCP SDK refuse a
message as a whole. This module first repairs an empty list in place of an object (as PHP encodes it) or an empty object
in place of a list (as Lua does), `null`, optional members of a wrong type, and content blocks of unknown kinds. An item
of a list that cannot be used is left out. Everything readable stays unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, get_args

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from haystack_integrations.tools.mcp.convert.tool_schemas import permissive_schema

CALL_METHOD: Final = "tools/call"
LIST_METHOD: Final = "tools/list"

_OPENING_METHODS: Final = ("initialize", "server/discover")

# Repairing a message may take several steps: once a list has replaced an object, its items are validated for the first
# time.
_MAX_STEPS: Final = 8
_MAX_SHOWN_LENGTH: Final = 1_000

_NOT_OBJECT: Final = frozenset({"dict_type", "model_type", "model_attributes_type"})
_Place = tuple[int | str, ...]

_BLOCK_MODELS: Final[dict[str, type[BaseModel]]] = {
    "text": types.TextContent,
    "image": types.ImageContent,
    "audio": types.AudioContent,
    "resource_link": types.ResourceLink,
    "resource": types.EmbeddedResource,
    "tool_use": types.ToolUseContent,
    "tool_result": types.ToolResultContent,
}
_CONTENT: Final = TypeAdapter(list[Annotated[types.ContentBlock, Field(discriminator="type")]])
# Kinds of blocks that never occur in results.
_SAMPLING_KINDS: Final = frozenset({"tool_use", "tool_result"})


# Messages as they come in

# How many bytes of an unreadable answer are searched for the id of its request.
_HEAD_SIZE = 512
_TAIL_SIZE = 256

_UNREADABLE = "the server's answer could not be read"

# The beginning of an answer, and the end of one whose id comes last, as the SDKs for TypeScript and C# write it.
_VERSION = r'"jsonrpc"\s*:\s*"2\.0"'
_ID = r'"id"\s*:\s*(?:(-?\d{1,18})|"([^"\\]{0,100})")'
_ANSWER = re.compile(rf'\s*\{{\s*(?:{_VERSION}\s*,\s*)?(?:{_ID}\s*,\s*)?(?:{_VERSION}\s*,\s*)?"(?:result|error)"\s*:')
_ID_AT_END = re.compile(rf",\s*{_ID}\s*(?:,\s*{_VERSION}\s*)?\}}\s*\Z")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """
    An answer that cannot be read.

    :param id: The id of the request that it answers.
    :param reason: What is wrong with it, as a clause.
    """

    id: int | str
    reason: str


def read_messages(data: bytes | str) -> list[dict[str, Any] | Unreadable]:
    """
    Read a message, or a batch of them (revision 2025-03-26).

    :param data: The message.
    :returns: The messages. Each has `jsonrpc` "2.0", and is a request with a `method` and an `id`, a notification with
        a `method`, or an answer with an `id` and either a `result` that is an object or an `error` with an integer
        `code` and a text as `message`. Anything else, such as a log line, is skipped.
    """
    try:
        value = from_json(data)
    except ValueError as error:
        text = data.decode(errors="replace") if isinstance(data, bytes) else data
        try:
            value = _parse_leniently(text)
        except (ValueError, RecursionError):
            tail = "" if str(error).startswith("EOF") else text[-_TAIL_SIZE:]  # a truncated message has no end
            request_id = _find_id(text[:_HEAD_SIZE], tail)
            return [] if request_id is None else [Unreadable(request_id, f"{_UNREADABLE} as JSON ({error})")]
    found: list[dict[str, Any] | Unreadable] = []
    for message in value if isinstance(value, list) else [value]:
        if not isinstance(message, dict):
            continue
        request_id = message.get("id")
        if type(request_id) is float and request_id.is_integer():  # from a language with only one type of numbers
            request_id = message["id"] = int(request_id)
        has_id = type(request_id) is int or type(request_id) is str
        is_json_rpc = message.get("jsonrpc") == "2.0"
        if message.get("method", "") is None:
            del message["method"]
        if "method" in message:
            if is_json_rpc and isinstance(message["method"], str) and (has_id or "id" not in message):
                found.append(message)
            continue
        if not has_id and not (request_id is None and "id" in message and "error" in message):
            continue
        failure = message.get("error")
        if "jsonrpc" not in message and "result" not in message and not isinstance(failure, dict):
            continue  # a log line in JSON may also have an id
        reason = None
        if not is_json_rpc:
            reason = 'it has no "jsonrpc": "2.0"'
        elif failure is not None and (failure or "result" not in message):
            message["error"] = _repaired_error(failure)
        else:
            message.pop("error", None)
            if message.get("result", "") in ([], None):  # as PHP and Go write an empty object
                message["result"] = {}
            if "result" not in message:
                reason = "it has neither a result nor an error"
            elif type(message["result"]) is not dict:
                reason = "its result is not an object"
        if type(request_id) is str:
            message["id"] = own_id(request_id)
        if reason is None:
            found.append(message)
        elif request_id is not None:
            found.append(Unreadable(message["id"], f"{_UNREADABLE}: {reason}"))
    return found


def describe_size_limit(limit: int) -> str:
    """
    Return a clause which says that a message is too large, and names the limit.

    :param limit: How many bytes it may have.
    :returns: A clause.
    """
    return f"the server's answer is larger than `max_message_size` of the server info allows, {limit:,} bytes"


def unreadable_for_its_size(message: bytes, limit: int) -> Unreadable | None:
    """
    Return an unreadable answer in place of a message that is too large.

    :param message: The message.
    :param limit: How many bytes it may have.
    :returns: The answer; None if it is not certain which request the message answers, if any.
    """
    head, tail = message[:_HEAD_SIZE].decode(errors="replace"), message[-_TAIL_SIZE:].decode(errors="replace")
    request_id = _find_id(head, tail)
    return None if request_id is None else Unreadable(request_id, describe_size_limit(limit))


def _repaired_error(error: Any) -> dict[str, Any]:
    error_object = error if isinstance(error, dict) else {"message": error}
    code, text = error_object.get("code"), error_object.get("message")
    if type(code) is int and type(text) is str:
        return error_object
    text = text if type(text) is str else json.dumps(error_object if text is None else text, ensure_ascii=False)
    return {**error_object, "code": code if type(code) is int else types.INTERNAL_ERROR, "message": text}


def _parse_leniently(text: str) -> Any:
    # `json` accepts two things that `pydantic_core` refuses: half surrogate pairs, and control characters in strings.
    text = json.dumps(json.loads(text.lstrip("\ufeff"), strict=False), ensure_ascii=False)
    return from_json(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _find_id(head: str, tail: str) -> int | str | None:
    """
    Find the id of the request that a broken message answers, if it is certain.
    """
    answer = _ANSWER.match(head)
    if answer is None:
        return None
    found = answer if answer[1] or answer[2] else _ID_AT_END.search(tail)
    return None if found is None else own_id(found[1] or found[2])


def own_id(value: Any) -> Any:
    """
    Return the id of this client's request as it was sent.

    :param value: The id as it came. Some servers turn integers into floats, some write all ids as strings.
    :returns: The id; None if the value cannot be an id.
    """
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, str | int | float) else None


# Results and parameters


@dataclass
class RepairedResult:
    """
    The repaired result of a request.

    :param result: The result.
    :param left_out: Reasons why items of its list cannot be used, by their names, or by their positions, starting at 1.
    """

    result: dict[str, Any]
    left_out: dict[str | int, str] = field(default_factory=dict)


def repair_result(method: str, version: str, result: dict[str, Any]) -> RepairedResult:
    """
    Repair a result.

    :param method: The method of the request.
    :param version: The revision of the protocol.
    :param result: The result. It is not changed.
    :returns: The repaired result. The SDK refuses what cannot be repaired.
    :raises ValueError: If the method is `tools/list` and the result has no list of tools.
    """
    if result.get("resultType") == "input_required":
        return RepairedResult(repair(types.InputRequiredResult, result) or result)
    frame = _with_defaults(method, version, result)
    if method in _RESULT_MODELS:
        return RepairedResult(repair(_RESULT_MODELS[method], frame) or result)
    if method not in _LIST_RESULTS:
        return RepairedResult(result)
    model, name, repair_one = _LIST_RESULTS[method]
    items = _as_list(frame[name]) if name in frame else None
    shell = repair(model, {**frame, name: []})
    if items is None and method == LIST_METHOD:
        problem = f"must be a list, not {type(frame[name]).__name__}" if name in frame else "is missing"
        msg = f"its answer to {LIST_METHOD} cannot be read: `tools` {problem}"
        raise ValueError(msg)
    if items is None or shell is None:
        return RepairedResult(result)
    readable: list[Any] = []
    repaired = RepairedResult({**shell, name: readable})
    for position, item in enumerate(items, 1):
        try:
            readable += repair_one(item)
        except ValueError as error:
            repaired.left_out[_label(item) or position] = str(error)
    return repaired


def repair_params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """
    Repair the parameters of a server's request or notification.

    :param method: Its method.
    :param params: The parameters. They are not changed.
    :returns: The parameters; the same object if they need no repair, or cannot be repaired.
    """
    model = REQUESTS.get(method) or NOTIFICATIONS.get(method)
    repaired = model and repair(model, {"method": method, "params": params})
    return repaired["params"] if repaired else params


def read_plain(result: dict[str, Any]) -> bool:
    """
    Validate the content of a call's result in place, if the result needs no repair.

    The SDK's own union tries the models one by one, which takes four times as long.

    :param result: The result.
    :returns: False if it may need repair. Then it is not changed.
    """
    is_plain = (
        type(result.get("structuredContent", {})) is dict
        and type(result.get("isError", False)) is bool
        and type(result.get("_meta", {})) is dict
        and result.get("resultType", "complete") == "complete"
    )
    try:
        if is_plain:
            result["content"] = _CONTENT.validate_python(result.get("content"), by_name=False)
    except ValidationError:
        return False
    return is_plain


def _with_defaults(method: str, version: str, result: dict[str, Any]) -> dict[str, Any]:
    """
    Fill in defaults for missing or odd members of a result.
    """
    frame = dict(result)
    if type(frame.get("nextCursor")) is int:
        frame["nextCursor"] = str(frame["nextCursor"])
    if method in _OPENING_METHODS:
        frame["capabilities"] = frame["capabilities"] if isinstance(frame.get("capabilities"), dict) else {}
    if method == "initialize":
        named = frame["serverInfo"] if isinstance(frame.get("serverInfo"), dict) else {}
        frame["serverInfo"] = {**named, **{key: _as_text(named.get(key)) for key in ("name", "version")}}
    if method == CALL_METHOD:
        is_error = frame.get("isError")
        frame["isError"] = (
            is_error.strip().lower() not in ("", "false", "0") if isinstance(is_error, str) else bool(is_error)
        )
        structured = frame.get("structuredContent")
        if version not in MODERN_PROTOCOL_VERSIONS:  # older revisions allow objects only
            if structured is None:
                frame.pop("structuredContent", None)
            elif structured == []:
                frame["structuredContent"] = {}
        if isinstance(frame.get("content"), str | int | float):
            frame["content"] = [_as_text(frame["content"])]
        if frame.get("content") is None:
            frame["content"] = _other_content(frame) if structured is None else []
    return frame


def _other_content(result: dict[str, Any]) -> list[Any]:
    """
    Return other content of a result without `content`, such as `toolResult` of 2024-10-07, or an odd server's `error`.
    """
    known = ("content", "structuredContent", "isError", "_meta", "resultType")
    rest = {name: value for name, value in result.items() if name not in known and value is not None}
    if not rest or "task" in rest:
        return []
    return [_as_text(next(iter(rest.values())) if len(rest) == 1 else rest)]


def _as_list(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if value is None or value == {}:
        return []
    return [value] if isinstance(value, dict) else None


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _label(item: Any) -> str | None:
    named = (item.get(key) for key in ("uri", "uriTemplate", "name")) if isinstance(item, dict) else ()
    return next((name for name in named if isinstance(name, str) and name), None)


# Items. Each function returns the readable items that replace one item, or raises ValueError if it cannot be used.


def _repair_item(model: type[BaseModel], item: Any) -> list[Any]:
    repaired = repair(model, item)
    if repaired is None:
        msg = "a required member is missing or wrong"
        raise ValueError(msg)
    return [repaired]


def _repair_tool(tool: Any) -> list[Any]:
    if not isinstance(tool, dict):
        msg = f"its definition must be a JSON object, not {type(tool).__name__}"
        raise ValueError(msg)
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(name, str) or not name:
        msg = "its name is missing or empty" if not name else f"its name must be a string, not {type(name).__name__}"
        raise ValueError(msg)
    if schema is True or schema in (None, {}, []):  # a list, as PHP encodes an empty object
        schema = permissive_schema()
    if not isinstance(schema, dict):
        msg = f"its input schema must be a JSON object, not {type(schema).__name__}"
        raise ValueError(msg)
    return _repair_item(types.Tool, {**tool, "inputSchema": schema})


def _repair_contents(contents: Any) -> list[Any]:
    contents = _as_contents(contents) if isinstance(contents, dict) else contents
    is_blob = isinstance(contents, dict) and "blob" in contents
    return _repair_item(types.BlobResourceContents if is_blob else types.TextResourceContents, contents)


def _as_contents(contents: dict[str, Any]) -> dict[str, Any]:
    """
    Keep either the text or the blob of contents: some servers send both members, one of them empty.
    """
    contents = {**contents, "uri": _as_text(contents.get("uri"))}
    text, blob = contents.get("text"), contents.get("blob")
    if "text" in contents and ("blob" not in contents or text or not blob):
        contents.pop("blob", None)
        contents["text"] = _as_text(text)
    else:
        contents.pop("text", None)
    return contents


def _repair_resource(model: type[BaseModel], address: str, resource: Any) -> list[Any]:
    if isinstance(resource, dict) and not isinstance(resource.get("name"), str):
        resource = {**resource, "name": _as_text(resource.get(address))}
    return _repair_item(model, resource)


def _repair_message(message: Any) -> list[Any]:
    if isinstance(message, str):
        message = {"content": message}
    if not isinstance(message, dict):
        msg = f"a message must be a JSON object, not {type(message).__name__}"
        raise ValueError(msg)
    role = "assistant" if str(message.get("role")).lower() == "assistant" else "user"
    content = message.get("content", message.get("text"))
    if content is None:
        msg = "it has no content"
        raise ValueError(msg)
    blocks = content if isinstance(content, list) else [content]
    return [{**message, "role": role, "content": each} for block in blocks for each in _repair_block(block)]


def _repair_block(block: Any) -> list[Any]:
    if block is None:
        return []
    if isinstance(block, str):
        return [{"type": "text", "text": block}]
    if isinstance(block, dict):
        block = dict(block)
        if isinstance(block.get("text"), str):
            block.setdefault("type", "text")
        kind = str(block.get("type"))
        if kind == "text" and "text" in block:
            block["text"] = _as_text(block["text"])
        elif kind in ("image", "audio") and not isinstance(block.get("mimeType"), str):
            block["mimeType"] = ""
        elif kind == "resource_link" and not isinstance(block.get("name"), str):
            block["name"] = _as_text(block.get("uri"))
        elif kind == "resource" and isinstance(resource := block.get("resource"), dict):
            block["resource"] = _as_contents(resource)
        if (
            kind in _BLOCK_MODELS
            and kind not in _SAMPLING_KINDS
            and (repaired := repair(_BLOCK_MODELS[kind], block)) is not None
        ):
            return [repaired]
        if isinstance(block.get("text"), str):  # such as "Text", "output_text" and "markdown"
            return [{"type": "text", "text": block["text"]}]
    shown = _as_text(block)
    shown = shown if len(shown) <= _MAX_SHOWN_LENGTH else f"{shown[:_MAX_SHOWN_LENGTH]}…"
    return [{"type": "text", "text": f"[unsupported content: {shown}]"}]


# Models by method. `mcp_types.methods` has them as well, but takes as long to import as everything else together.


def _by_method(messages: Any) -> dict[str, Any]:
    return {model.model_fields["method"].default: model for model in get_args(messages)}


# Requests and notifications that a server may send.
REQUESTS: Final = _by_method(types.ServerRequest)
NOTIFICATIONS: Final = _by_method(types.ServerNotification)

_RESULT_MODELS: Final[dict[str, type[BaseModel]]] = {
    "completion/complete": types.CompleteResult,
    "initialize": types.InitializeResult,
    "server/discover": types.DiscoverResult,
    "subscriptions/listen": types.SubscriptionsListenResult,
    "logging/setLevel": types.EmptyResult,
    "ping": types.EmptyResult,
    "resources/subscribe": types.EmptyResult,
    "resources/unsubscribe": types.EmptyResult,
}

# By method: the model of the result, the name of its list, and the function that repairs an item.
_LIST_RESULTS: Final[dict[str, tuple[type[BaseModel], str, Callable[[Any], list[Any]]]]] = {
    CALL_METHOD: (types.CallToolResult, "content", _repair_block),
    LIST_METHOD: (types.ListToolsResult, "tools", _repair_tool),
    "resources/list": (types.ListResourcesResult, "resources", partial(_repair_resource, types.Resource, "uri")),
    "resources/templates/list": (
        types.ListResourceTemplatesResult,
        "resourceTemplates",
        partial(_repair_resource, types.ResourceTemplate, "uriTemplate"),
    ),
    "resources/read": (types.ReadResourceResult, "contents", _repair_contents),
    "prompts/list": (types.ListPromptsResult, "prompts", partial(_repair_item, types.Prompt)),
    "prompts/get": (types.GetPromptResult, "messages", _repair_message),
}


# Repairs


def repair(model: type[BaseModel], value: Any) -> Any:
    """
    Remove the invalid parts of a value.

    :param model: The model of the value.
    :param value: The value. It is not changed.
    :returns: A copy without them; None if a required part is missing or invalid.
    """
    for _ in range(_MAX_STEPS):
        try:
            model.model_validate(value, by_name=False)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
        else:
            return value
        repaired = value
        # Start at the end: removing an item of a list shifts the positions of those after it.
        for place, kind in reversed({_place(value, fault): fault["type"] for fault in faults}.items()):
            repaired = repaired if place is None else _without(repaired, place, kind)
        if repaired is value:
            return None
        value = repaired
    return None


def _place(value: Any, fault: Any) -> _Place | None:
    """
    Find the place of a fault in a value; None if it belongs to an alternative that the value is not meant to be.

    Pydantic puts the name of the alternative between the keys.
    """
    place: _Place = ()
    for part in fault["loc"][: -1 if fault["type"] == "missing" else None]:
        if _has(value, part):
            value, place = value[part], (*place, part)
        elif not str(part).startswith(_alternative(value)):
            return None
    return place


def _has(value: Any, part: int | str) -> bool:
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def _alternative(value: Any) -> str:
    """
    Return the name of the alternative that a value is meant to be.
    """
    if not isinstance(value, dict):
        return "list["
    kind = str(value.get("type"))
    if kind in _BLOCK_MODELS:
        return _BLOCK_MODELS[kind].__name__
    if "blob" in value or "text" in value:
        return "BlobResourceContents" if "blob" in value else "TextResourceContents"
    return "ElicitRequestURLParams" if value.get("mode") == "url" else "ElicitRequestFormParams"


def _without(value: Any, place: _Place, kind: str) -> Any:
    """
    Return a copy of a value with one fault removed; the value itself if the fault cannot be repaired.

    Removing a required part makes it a missing one, which the next step reports.
    """
    if not place:
        if kind in _NOT_OBJECT and value == []:
            return {}
        return [] if kind == "list_type" and value in ({}, None) else value
    first, rest = place[0], place[1:]
    if not _has(value, first):  # it was removed together with its container
        return value
    inner = value[first]
    repaired = _without(inner, rest, kind)
    if repaired is inner:
        if rest:
            return value
        if isinstance(value, list):
            return [each for index, each in enumerate(value) if index != first]
        return {name: each for name, each in value.items() if name != first}
    copied = value.copy()
    copied[first] = repaired
    return copied
