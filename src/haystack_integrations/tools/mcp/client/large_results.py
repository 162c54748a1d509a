# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Results of many values, validated in pieces.

The SDK validates a result as a whole, twice, which takes more than 100 ms for ten thousand content blocks, and no
other session is served meanwhile. So it gets the result with the beginning of its list only, and without the values
that may be anything. The rest of the list is validated here in the same way, a piece at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import mcp
from mcp import MCPError, types
from mcp.types import methods
from mcp.types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from haystack_integrations.tools.mcp.client.large_messages import LargeResult
from haystack_integrations.tools.mcp.client.messages import UnusableAnswer
from haystack_integrations.tools.mcp.client.sdk_workarounds import fields_of_later_revisions
from haystack_integrations.tools.mcp.concurrency import MAX_VALUES, Turns, count_values
from haystack_integrations.tools.mcp.convert.odd_messages import mend_result
from haystack_integrations.tools.mcp.convert.tool_definitions import LIST_METHOD

# The list in the result of a method, by its name on the wire and in the SDK's model.
_LISTS: Final = {
    "tools/call": ("content", "content"),
    LIST_METHOD: ("tools", "tools"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resource_templates"),
    "resources/read": ("contents", "contents"),
    "prompts/list": ("prompts", "prompts"),
    "prompts/get": ("messages", "messages"),
}

# By which a session begins, and the revision that it belongs to.
_HANDSHAKE: Final = {"initialize": LATEST_HANDSHAKE_VERSION, "server/discover": LATEST_MODERN_VERSION}

_RESULT: Final = "result"

# What may be any JSON, by its name on the wire and in the SDK's model.
_ANYTHING: Final = {"structuredContent": "structured_content", "_meta": "meta"}

# Methods whose results are read into models. What others answer is any JSON.
_WITH_MODEL: Final = frozenset(method for method, _ in methods.SERVER_RESULTS) | {"tasks/get"}

# What of a result is read by other means, by the method.
_READ_LATER: Final = {"tasks/get": _RESULT}

# How many arrays and objects a list may have. The garbage collector looks at all of them at once, and at several for
# each: they become models.
_MAX_MODELS: Final = 50_000

# How many values are validated at once: a hundred content blocks, which take about a millisecond.
_PIECE: Final = 300


@dataclass
class _Rest:
    """
    What the SDK does not get of a result.

    :param method: The method of the request.
    :param result: What it gets.
    :param pieces: The rest of the list.
    :param anything: Values that may be anything.
    """

    method: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    pieces: list[list[Any]] = field(default_factory=list)
    anything: dict[str, Any] = field(default_factory=dict)


# Of the request that is under way in a task.
_rest: ContextVar[_Rest | None] = ContextVar("haystack_mcp_rest_of_result", default=None)


def check_handshake(session: mcp.ClientSession) -> None:
    """
    Let an SDK session mend a handshake, refuse one of too many values, and quote no value in its errors.

    :param session: A session before its handshake; its method `send_request`, and that of its dispatcher, are replaced.
    """
    dispatcher = session._dispatcher
    send, validated = dispatcher.send_raw_request, session.send_request

    async def send_raw_request(method: str, *arguments: Any) -> dict[str, Any]:
        result = await send(method, *arguments)
        if method not in _HANDSHAKE:
            return result
        if isinstance(result, LargeResult):
            _check_size(method, result)
        return (await mend_result(method, _HANDSHAKE[method], result)).result

    async def send_request(*arguments: Any, **options: Any) -> Any:
        try:
            return await validated(*arguments, **options)
        except ValidationError as error:
            fault = _restated(error)
        raise fault

    dispatcher.send_raw_request = send_raw_request  # type: ignore[method-assign, assignment]
    session.send_request = send_request  # type: ignore[method-assign]


def validate_in_pieces(session: mcp.ClientSession) -> None:
    """
    Let an SDK session validate large results in pieces.

    :param session: An open session; its method `send_request`, and that of its dispatcher, are replaced.
    """
    dispatcher = session._dispatcher
    send_raw, send = dispatcher.send_raw_request, session.send_request

    async def send_raw_request(method: str, *arguments: Any) -> dict[str, Any]:
        result = await send_raw(method, *arguments)
        rest = _rest.get()
        if rest is None or not (isinstance(result, LargeResult) or _has_long_list(method, result)):
            return result
        await _take_apart(method, result, rest)
        return rest.result

    async def send_request(request: Any, result_type: Any, *arguments: Any, **options: Any) -> Any:
        rest = _Rest()
        token = _rest.set(rest)
        try:
            result = await send(request, result_type, *arguments, **options)
        finally:
            _rest.reset(token)
        if rest.pieces or rest.anything:
            version = session.protocol_version or LATEST_HANDSHAKE_VERSION
            await _complete(result, rest, _validator(result_type), version)
        # The context of a task that the SDK started meanwhile may keep it for as long as the session lives.
        rest.result, rest.pieces, rest.anything = {}, [], {}
        return result

    dispatcher.send_raw_request = send_raw_request  # type: ignore[method-assign, assignment]
    session.send_request = send_request  # type: ignore[method-assign]


async def validated_call_result(result: dict[str, Any]) -> types.CallToolResult:
    """
    Validate the result of a call, in pieces if it is large.

    :param result: The result, as in the protocol.
    :returns: The result.
    :raises ValidationError: If it is no result of a call.
    :raises MCPError: If a part of it has too many values to be validated.
    """
    rest = _Rest()
    mended = await mend_result("tools/call", LATEST_MODERN_VERSION, result)
    await _take_apart("tools/call", mended.result, rest)
    try:
        read = types.CallToolResult.model_validate(rest.result, by_name=False)
    except ValidationError as error:
        fault = _restated(error)
    else:
        await _complete(read, rest, _validator(types.CallToolResult), None)
        return read
    raise fault


def _has_long_list(method: str, result: dict[str, Any]) -> bool:
    # Thirty kilobytes of empty objects are no content blocks, for a hundred thousand reasons.
    listed = result.get(_LISTS[method][0]) if method in _LISTS else None
    return isinstance(listed, list) and len(listed) > _PIECE


async def _take_apart(method: str, result: dict[str, Any], rest: _Rest) -> None:
    rest.method, rest.result = method, dict(result)
    if method not in _LISTS:
        if method in _WITH_MODEL:
            _check_size(method, result)
        return
    if len(result) > MAX_VALUES:
        raise _too_large(_RESULT, MAX_VALUES, "members")
    listed = _LISTS[method][0]
    turns = Turns()
    for name, value in result.items():
        if not isinstance(value, dict | list):
            continue
        if name == listed and isinstance(value, list):
            # Tools are objects of JSON for the most part, and their number is limited.
            pieces = [piece async for piece in _pieces(value, turns, None if method == LIST_METHOD else name)]
            rest.result[name], rest.pieces = pieces[0], pieces[1:]
        elif name in _ANYTHING:
            rest.anything[name] = value
            rest.result[name] = type(value)()
        else:
            _counted(value, name)


async def _pieces(listed: list[Any], turns: Turns, limited: str | None) -> AsyncIterator[list[Any]]:
    piece: list[Any] = []
    size = models = 0
    for number, item in enumerate(listed, 1):
        values, containers = _counted(item, number)
        models += containers
        if models > _MAX_MODELS and limited is not None:
            raise _too_large(limited, _MAX_MODELS, "arrays and objects")
        if piece and size + values > _PIECE:
            yield piece
            piece, size = [], 0
            await turns.give()
        piece.append(item)
        size += values
    yield piece


def _counted(part: Any, which: str | int) -> tuple[int, int]:
    counts = count_values(part)
    if counts[0] > MAX_VALUES:
        raise _too_large(which, MAX_VALUES, "values")
    return counts


def _check_size(method: str, result: dict[str, Any]) -> None:
    for name, value in result.items():
        if name != _READ_LATER.get(method):
            _counted(value, name)


def _too_large(what: str | int, limit: int, things: str) -> MCPError:
    what = f"item {what}" if isinstance(what, int) else f"`{what}`"
    reason = f"{what} of the server's answer has more than {limit:,} {things}"
    return MCPError(types.PARSE_ERROR, reason, UnusableAnswer(reason))


@cache
def _wire_format(method: str, version: str) -> TypeAdapter[Any] | None:
    model: Any = methods.SERVER_RESULTS.get((method, version))
    return None if model is None else TypeAdapter(model)


def _validator(result_type: Any) -> Callable[[Any], Any]:
    if isinstance(result_type, TypeAdapter):
        return lambda value: result_type.validate_python(value, by_name=False)
    return lambda value: result_type.model_validate(value, by_name=False)


async def _complete(result: Any, rest: _Rest, validate: Callable[[Any], Any], version: str | None) -> None:
    turns = Turns()
    wire, name = _LISTS[rest.method]
    foreign = fields_of_later_revisions(rest.method, version) if version is not None else frozenset()
    frame = {field: value for field, value in rest.result.items() if field not in foreign}
    wire_format = _wire_format(rest.method, version) if version is not None else None
    is_raw = isinstance(result, dict)  # of a request of any method
    fault = None
    # A result of another kind, such as a task in place of that of a call, has no such list.
    for piece in rest.pieces if is_raw or name in type(result).model_fields else ():
        await turns.give()
        part = {**frame, wire: piece}
        listed = result[wire] if is_raw else getattr(result, name)
        try:
            if wire_format is not None:
                wire_format.validate_python(part, by_name=False)
            listed.extend(piece if is_raw else getattr(validate(part), name))
        except ValidationError as error:
            fault = _restated(error, wire, len(listed))
        if fault is not None:
            raise fault
    if is_raw:
        result.update(rest.anything)
        return
    for wire, value in rest.anything.items():
        if _ANYTHING[wire] in type(result).model_fields:
            setattr(result, _ANYTHING[wire], value)


def _restated(error: ValidationError, wire: str = "", start: int = 0) -> ValidationError:
    """
    Make the error of a piece that of the list, without the values.

    An error writes a value, which may be a text of megabytes, as a whole before it shortens it; it does so as the
    context of another, too.
    """

    def moved(place: tuple[int | str, ...]) -> Iterator[int | str]:
        for before, each in zip((None, *place), place, strict=False):
            yield each + start if before == wire and isinstance(each, int) else each

    faults = []
    for each in error.errors(include_url=False, include_input=False):
        kind: Any = each["type"]  # pydantic wants a literal
        fault = PydanticCustomError(kind, "{reason}", {"reason": each["msg"]})
        faults.append(InitErrorDetails(type=fault, loc=tuple(moved(each["loc"])), input=None))
    return ValidationError.from_exception_data(error.title, faults, hide_input=True)
