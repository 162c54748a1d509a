# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Makes messages readable that are not quite as the protocol wants them, so that an odd member takes nothing else away.

The MCP SDK refuses a message as a whole. What it would refuse is mended here: an empty list in place of an object (as
PHP encodes it) or an empty object in place of a list (as Lua does), `null`, members of a wrong type that need not be
there, and content blocks of unknown kinds. What can be read stays as it is. Tools have a file of their own, see
`tool_definitions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, get_args

from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from haystack_integrations.tools.mcp.concurrency import MAX_VALUES, count_values

CALL_METHOD: Final = "tools/call"

# The list in the result of a method. Its items are mended one by one, those of `tools/list` elsewhere.
_LISTS: Final = {
    CALL_METHOD: "content",
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "resources/read": "contents",
    "prompts/list": "prompts",
    "prompts/get": "messages",
}
_OF_EVERY_RESULT: Final = ("resultType", "ttlMs", "cacheScope")
_OPENING: Final = ("initialize", "server/discover")
_INPUT_REQUIRED: Final = "input_required"

# A message may be mended in several steps: of an object in place of a list, the members come to light only then.
_MOST_STEPS: Final = 8
_MOST_SHOWN: Final = 1_000
# How many items of a list: each takes up to 0.3 ms. Those that follow are left out.
_MOST_MENDED: Final = 10_000

_NOT_OBJECT: Final = frozenset({"dict_type", "model_type", "model_attributes_type"})
_Place = tuple[int | str, ...]
_Check = Callable[[Any], list[Any]]


@dataclass
class MendedResult:
    """
    The result of a request that can be read.

    :param result: The result.
    :param left_out: Items of its list that cannot be used, by what they are called, or by their number.
    """

    result: dict[str, Any]
    left_out: list[str] = field(default_factory=list)


def mend_result(method: str, version: str, result: dict[str, Any]) -> MendedResult:
    """
    Make a result readable.

    :param method: The method of the request.
    :param version: The revision of the protocol.
    :param result: The result. It is not changed.
    :returns: The result, the same object if it can be read. What cannot be mended is left to the SDK to refuse.
    """
    if method == CALL_METHOD and _is_plain(result):
        return MendedResult(result)
    is_question = result.get("resultType") == _INPUT_REQUIRED
    models = _models(method, version, is_question=is_question)
    # Of a long list, the faults of all items at once would take gigabytes.
    if not models or (count_values(result) <= MAX_VALUES and not find_faults(models, result)):
        return MendedResult(result)
    frame = _with_defaults(method, version, result)
    check_all = partial(find_faults, models)
    name = _LISTS.get(method)
    if name is None or is_question:
        return MendedResult(repair(frame, check_all) or result)
    items = _as_list(frame[name]) if name in frame else None
    if items is None:
        return MendedResult(result)
    shell = repair({**frame, name: []}, check_all)
    if shell is None:
        return MendedResult(result)
    if method == "tools/list":
        return MendedResult({**shell, name: items})
    required = {key: shell[key] for key in _OF_EVERY_RESULT if key in shell}

    def check(item: Any) -> list[Any]:
        return find_faults(models, {**required, name: [item]}, inside=(name, 0))

    readable: list[Any] = []
    mended = MendedResult({**shell, name: readable})
    odd = 0
    for number, item in enumerate(items, 1):
        if method == CALL_METHOD and _is_plain_text(item):
            readable.append(item)
            continue
        found = _mended_item(method, item, check) if odd < _MOST_MENDED else []
        odd += found != [item]
        readable += found
        if not found and item is not None:
            mended.left_out.append(_label(item, number))
    return mended


def mend_params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """
    Make the parameters of a server's request or notification readable.

    :param method: Its method.
    :param params: The parameters. They are not changed.
    :returns: The parameters, the same object if they can be read, or if they cannot be mended.
    """
    models = _params_models(method)
    if count_values(params) > MAX_VALUES:
        return params

    def check(value: Any) -> list[Any]:
        return find_faults(models, {"jsonrpc": "2.0", "id": 0, "method": method, "params": value}, inside=("params",))

    return repair(params, check) or params


def _is_plain(result: dict[str, Any]) -> bool:
    """
    Tell whether the result of a call can be read for certain; most can, and the models take much longer for that.
    """
    content = result.get("content")
    return (
        type(content) is list
        and all(map(_is_plain_text, content))
        and type(result.get("structuredContent", {})) is dict
        and type(result.get("isError", False)) is bool
        and type(result.get("_meta", {})) is dict
        and result.get("resultType", "complete") == "complete"
    )


def _is_plain_text(block: Any) -> bool:
    return (
        type(block) is dict
        and block.keys() == {"type", "text"}
        and block["type"] == "text"
        and type(block["text"]) is str
    )


@cache
def _models(method: str, version: str, *, is_question: bool) -> tuple[TypeAdapter[Any], ...]:
    # Models of the revision, and of the SDK. Of a union, the last is for questions to the user.
    kinds: list[Any] = [methods.SERVER_RESULTS.get((method, version)), methods.MONOLITH_RESULTS.get(method)]
    options = [get_args(kind) or (kind,) for kind in kinds if kind is not None]
    return tuple(TypeAdapter(each[-1 if is_question else 0]) for each in options)


@cache
def _params_models(method: str) -> tuple[TypeAdapter[Any], ...]:
    # A server sends requests in the older revisions only.
    of_revisions: list[Any] = [
        surface[method, version]
        for surface in (methods.SERVER_REQUESTS, methods.SERVER_NOTIFICATIONS)
        for version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)
        if (method, version) in surface
    ]
    of_sdk: Any = methods.MONOLITH_REQUESTS.get(method) or methods.MONOLITH_NOTIFICATIONS.get(method)
    return tuple(TypeAdapter(model) for model in (*of_revisions[:1], of_sdk)) if of_revisions and of_sdk else ()


def find_faults(models: tuple[TypeAdapter[Any], ...], value: Any, *, inside: _Place = ()) -> list[Any]:
    """
    Find what is wrong with a value.

    :param models: Models of the value.
    :param value: The value.
    :param inside: The place of the part that is of interest.
    :returns: The faults of pydantic in this part, for the first model that has any.
    """
    for model in models:
        try:
            model.validate_python(value, by_name=False)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            return [
                {**fault, "loc": fault["loc"][len(inside) :]}
                for fault in faults
                if fault["loc"][: len(inside)] == inside
            ]
    return []


def _with_defaults(method: str, version: str, result: dict[str, Any]) -> dict[str, Any]:
    """
    Add what the specification reads where a result says nothing.
    """
    frame = dict(result)
    if version in MODERN_PROTOCOL_VERSIONS:
        frame.setdefault("resultType", "complete")
        if method in methods.CACHEABLE_METHODS:
            if not isinstance(frame.get("ttlMs"), int | float):
                frame["ttlMs"] = 0
            if frame.get("cacheScope") not in ("public", "private"):
                frame["cacheScope"] = "private"
    if method in _OPENING:
        frame["capabilities"] = frame.get("capabilities") or {}
    if method == "initialize":
        named = frame["serverInfo"] if isinstance(frame.get("serverInfo"), dict) else {}
        shown = {key: _as_text(named.get(key)) for key in ("name", "version")}
        frame["serverInfo"] = {**named, **shown}
    if method == CALL_METHOD:
        _complete_call(frame, version)
    return frame


def _complete_call(frame: dict[str, Any], version: str) -> None:
    if "isError" in frame:
        said = frame.pop("isError")
        is_error = said.strip().lower() not in ("", "false", "0") if isinstance(said, str) else bool(said)
        frame |= {"isError": True} if is_error else {}
    structured = frame.get("structuredContent")
    if structured is None:
        frame.pop("structuredContent", None)
    elif version not in MODERN_PROTOCOL_VERSIONS and not isinstance(structured, dict):
        # As servers wrap what is no object.
        frame["structuredContent"] = {"result": structured} if structured != [] else {}
    if frame.get("content") is None:
        known = {"content", "structuredContent", "isError", "_meta", "resultType"}
        rest = {name: value for name, value in frame.items() if name not in known and value is not None}
        frame["content"] = []
        if rest and structured is None and "task" not in rest:
            # Such as the `toolResult` of 2024-10-07, or the `error` of a server that knows no `content`.
            only = next(iter(rest.values())) if len(rest) == 1 else rest
            frame["content"] = [{"type": "text", "text": _as_text(only)}]


def _as_list(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if value is None or value == {}:
        return []
    return [value] if isinstance(value, dict | str) else None


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _label(item: Any, number: int) -> str:
    named = (item.get(key) for key in ("uri", "uriTemplate", "name")) if isinstance(item, dict) else ()
    return next((repr(name) for name in named if isinstance(name, str) and name), f"number {number}")


# Items


def _mended_item(method: str, item: Any, check: _Check) -> list[Any]:
    """
    Return what can be read in place of an item; nothing if it cannot be used.
    """
    if count_values(item) > MAX_VALUES or not check(item):
        return [item]
    if method == CALL_METHOD:
        return [] if item is None else [_mended_block(item, check)]
    if method == "prompts/get" and isinstance(item, dict):
        role = item.get("role") if item.get("role") in ("user", "assistant") else "user"
        message = {**item, "role": role}

        def check_block(block: Any) -> list[Any]:
            return [fault for fault in check({**message, "content": block}) if fault["loc"][:1] == ("content",)]

        blocks = _as_list(item.get("content")) or []
        return [{**message, "content": _mended_block(block, check_block, inside="content")} for block in blocks]
    if method == "resources/read" and isinstance(item, dict):
        item = {**item, "uri": _as_text(item.get("uri"))}
    repaired = repair(item, check)
    return [] if repaired is None else [repaired]


def _mended_block(block: Any, check: _Check, inside: str | None = None) -> dict[str, Any]:
    """
    Return a content block that can be read: a text about it, if it is none that this protocol has.
    """
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict):
        block = dict(block)
        kind = block.setdefault("type", "text") if isinstance(block.get("text"), str) else block.get("type")
        if kind == "text" and "text" in block:
            block["text"] = _as_text(block["text"])
        elif kind in ("image", "audio") and not isinstance(block.get("mimeType"), str):
            block["mimeType"] = ""
        elif kind == "resource_link" and not isinstance(block.get("name"), str):
            block["name"] = _as_text(block.get("uri"))
        elif kind == "resource" and isinstance(resource := block.get("resource"), dict):
            block["resource"] = {**resource, "uri": _as_text(resource.get("uri"))}
        skipped = 0 if inside is None else 1

        def check_inside(value: Any) -> list[Any]:
            return [{**fault, "loc": fault["loc"][skipped:]} for fault in check(value)]

        repaired: dict[str, Any] | None = repair(block, check_inside)
        if repaired is not None:
            return repaired
    return {
        "type": "text",
        "text": f"[unsupported content: {json.dumps(_shortened(block), ensure_ascii=False)}]",
    }


def _shortened(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…"
    if isinstance(value, dict | list) and depth > _MOST_STEPS:
        return "…"
    if isinstance(value, dict):
        return {_shortened(name): _shortened(each, depth + 1) for name, each in list(value.items())[:_MOST_SHOWN]}
    if isinstance(value, list):
        return [_shortened(each, depth + 1) for each in value[:_MOST_SHOWN]]
    return value


# Repairs


def repair(value: Any, check: _Check) -> Any:
    """
    Remove what is wrong with a value.

    :param value: The value. It is not changed.
    :param check: Finds its faults.
    :returns: A copy without them; None if something is missing or wrong that must be there.
    """
    for _ in range(_MOST_STEPS):
        faults = check(value)
        if not faults:
            return value
        repaired = value
        for place, kind in reversed(_located(value, faults)):  # from the end of a list, whose items are counted
            repaired = _without(repaired, place, kind)
        if repaired is value:
            return None
        value = repaired
    return None


def _without(value: Any, place: _Place, kind: str) -> Any:
    """
    Return a copy of a value with one fault less; the value itself if that one cannot be repaired.

    What is removed although it must be there is missing in the next step.
    """
    if not place:
        if kind in _NOT_OBJECT and value == []:
            return {}
        return [] if kind == "list_type" and value in ({}, None) else value
    first, rest = place[0], place[1:]
    inner = value.get(first) if isinstance(value, dict) else value[first]
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


def _located(value: Any, faults: list[Any]) -> list[tuple[_Place, str]]:
    """
    Find the places of faults in a value: of alternatives, those in the one that is meant.

    Pydantic puts the name of the alternative between the keys.
    """
    found: list[tuple[_Place, dict[_Place, str], str]] = []
    for fault in faults:
        place: _Place = ()
        alternatives: dict[_Place, str] = {}
        here = value
        for part in fault["loc"][: -1 if fault["type"] == "missing" else None]:
            if isinstance(here, dict) and part in here:
                here, place = here[part], (*place, part)
            elif isinstance(here, list) and isinstance(part, int) and part < len(here):
                here, place = here[part], (*place, part)
            else:
                alternatives[place] = str(part)
        found.append((place, alternatives, fault["type"]))
    for place in sorted({place for _, alternatives, _ in found for place in alternatives}, key=len):
        by_name: dict[str, list[str]] = {}
        for _, alternatives, kind in found:
            if place in alternatives:
                by_name.setdefault(alternatives[place], []).append(kind)
        meant = min(by_name, key=lambda name: ("literal_error" in by_name[name], len(by_name[name])))
        found = [each for each in found if each[1].get(place, meant) == meant]
    return [(place, kind) for place, _, kind in found]
