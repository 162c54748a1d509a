# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Messages that the MCP SDK cannot read.

They are mended where that loses nothing but a broken character. Otherwise the request that they answer is failed at
once, instead of being left to its timeout. Nothing here is called for a message that the SDK can read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from mcp import MCPError, types
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json

from haystack_integrations.tools.mcp.convert.parse_json import TooManyValuesError

# How much is kept of a message that is too large, to find out which request it answers.
HEAD_SIZE = 4096
TAIL_SIZE = 256

_UNREADABLE = "the server's answer could not be read"

# An id as a string, with its quotes.
_LONGEST_ID = 102

# A message is mended in the loop of all sessions, which takes about 100 ms for so many characters, or so many values.
_MAX_MENDED = 1_000_000
_MAX_VALUES = 30_000

# How many messages of a batch are read. This client sends none, so there is one answer at most.
_MAX_BATCH = 1_000

# How much is searched of one that is not mended: any number of values, or text of any kind, takes a few milliseconds.
_SEARCHED_HEAD = 65536

# Text up to the next escape of half a surrogate pair, and that escape.
_SOUND = re.compile(
    r"""
    (?: [^\\]++ | \\[^u] | \\u(?![dD][89a-fA-F])
      | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} )*+
    """,
    re.DOTALL | re.VERBOSE,
)
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
# A text with more of them stays unreadable.
_MAX_HALF_PAIRS = 10_000

# Where the parser stopped, counted from the beginning of the piece that it was given.
_PLACE_IN_PIECE = re.compile(r" at line \d+ column \d+$")

# A string may end with the text: searched again from each of its quotes, it would take quadratic time.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_AFTER_KEY = re.compile(r"\s*:\s*")
# With what follows it: of a number that is cut off, the rest is not known.
_ID = re.compile(r'(-?\d{1,18})(?:\.0+)?\s*[,}]|"([^"\\]{0,100})"')
# The end of a message whose id comes last, as the SDKs for TypeScript and C# write it.
_ID_AT_END = re.compile(
    r'[{,]\s*"id"\s*:\s*(?:(-?\d{1,18})|"([^"\\]{0,100})")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)


@dataclass(frozen=True)
class UnusableAnswer:
    """
    Stands in the `data` of a JSON-RPC error that was made here, in place of an answer; none of a server can have it.

    :param reason: What is wrong with the answer, as a clause.
    """

    reason: str


def is_unusable_answer(error: MCPError) -> bool:
    """
    Tell whether an error was made here, in place of an answer that cannot be used.

    :param error: The error of a request.
    :returns: True if it was, False if the server or the SDK made it.
    """
    return isinstance(error.data, UnusableAnswer)


def unusable_answer(request_id: types.RequestId, reason: str) -> types.JSONRPCError:
    """
    Make the error that takes the place of an answer.

    :param request_id: Id of the request that is answered.
    :param reason: What is wrong with the answer, as a clause.
    :returns: The error. The tool may have run.
    """
    error = types.ErrorData(code=types.PARSE_ERROR, message=reason, data=UnusableAnswer(reason))
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def read_damaged(data: bytes | str, error: ValueError) -> list[types.JSONRPCMessage]:
    """
    Read what the SDK cannot: broken text is repaired, a batch is taken apart, unless the message is large.

    :param data: The message.
    :param error: Why the SDK cannot read it.
    :returns: The messages in it; for an answer that cannot be read, an error with its id. Empty if there
            are none, or if it cannot be told which request is answered.
    """
    if _is_large(data):
        fault = _fault(error) or "it is no JSON-RPC message"
        what = fault if isinstance(error, TooManyValuesError) else f"it is too large to be mended ({fault})"
        return _unreadable(data, fault, f"{_UNREADABLE}: {what}")
    text = _mended(data.decode(errors="replace") if isinstance(data, bytes) else data)
    try:
        return [jsonrpc_message_adapter.validate_json(text, by_name=False)]
    except ValidationError as remaining:
        fault = _fault(remaining)
    try:
        value = _parsed(text, fault)
    except (ValueError, RecursionError):
        return _unreadable(text, fault, f"{_UNREADABLE} as JSON ({fault})")
    if isinstance(value, list):  # a batch of the revision 2025-03-26
        return [message for item in value[:_MAX_BATCH] if (message := _read_value(item)) is not None]
    message = _read_value(value)
    return [] if message is None else [message]


def oversized_answer(head: bytes, tail: bytes, limit: int) -> types.JSONRPCError | None:
    """
    Make the error that takes the place of an answer that is too large.

    :param head: Its first bytes.
    :param tail: Its last bytes, or none if they are not known.
    :param limit: How many bytes it may have.
    :returns: The error, or None if it cannot be told which request is answered, or whether any is.
    """
    request_id = _find_id(head.decode(errors="replace"), tail.decode(errors="replace"))
    return None if request_id is None else unusable_answer(request_id, too_large(limit))


def too_large(limit: int) -> str:
    """
    Say that a message is too large, and what bounds it.

    :param limit: How many bytes it may have.
    :returns: A clause.
    """
    return f"the server's answer is larger than `max_message_size` of the server info allows, {limit:,} bytes"


def is_no_answer(head: bytes) -> bool:
    """
    Tell whether a message is certainly a request or a notification.

    :param head: Its first bytes.
    :returns: True if its method is among them.
    """
    return "method" in _top_level(head.decode(errors="replace"))


def is_certainly_answer(data: bytes | str) -> bool:
    """
    Tell whether a message is certainly an answer, without reading all of it.

    :param data: The message.
    :returns: True if it is one, or nothing at all; False if it may be a request or a notification.
    """
    head = data[:HEAD_SIZE]
    members = _top_level(head if isinstance(head, str) else head.decode(errors="replace"))
    if not members.keys().isdisjoint({"result", "error"}):
        return True
    return '"method"' not in data if isinstance(data, str) else b'"method"' not in data


def looks_like_answer(data: str) -> bool:
    """
    Tell whether a text that is no valid message is meant to be an answer.

    :param data: The text.
    :returns: True if it is; False if it is something else, such as a heartbeat.
    """
    members = _top_level(data[:HEAD_SIZE])
    return "jsonrpc" in members and not members.keys().isdisjoint({"result", "error"})


def _is_large(data: bytes | str) -> bool:
    if len(data) > _MAX_MENDED:
        return True
    separators = (b",", b"[", b"{") if isinstance(data, bytes) else (",", "[", "{")
    return sum(map(data.count, separators)) > _MAX_VALUES  # type: ignore[arg-type]


def _fault(error: ValueError) -> str:
    # Says what and where, and quotes nothing.
    if not isinstance(error, ValidationError):
        return _PLACE_IN_PIECE.sub("", str(error))
    return str(error.errors(include_input=False, include_url=False)[0].get("ctx", {}).get("error", ""))


def _unreadable(data: bytes | str, fault: str, reason: str) -> list[types.JSONRPCMessage]:
    head, tail = data[:_SEARCHED_HEAD], data[_SEARCHED_HEAD:][-TAIL_SIZE:]
    if fault.startswith("EOF"):  # a message that is cut off has no end
        tail = tail[:0]
    if isinstance(head, bytes):
        head = head.decode(errors="replace")
    if isinstance(tail, bytes):
        tail = tail.decode(errors="replace")
    request_id = _find_id(head, tail)
    return [] if request_id is None else [unusable_answer(request_id, reason)]


def _mended(text: str) -> str:
    text = text.lstrip("\ufeff")
    if "\\u" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text) and len(parts) < 2 * _MAX_HALF_PAIRS:
        sound = _SOUND.match(text, at)
        start = sound.end() if sound else at
        half = _HALF_PAIR.match(text, start)
        end = half.end() if half else start + 1
        parts += [text[at:start], "\\ufffd" if half else text[start:end]]
        at = end
    parts.append(text[at:])
    return "".join(parts)


def _parsed(text: str, fault: str) -> Any:
    if fault.startswith("control character"):  # a raw tab in a string, for example
        text = json.dumps(json.loads(text, strict=False))
    return from_json(text)


def _read_value(value: Any) -> types.JSONRPCMessage | None:
    if not isinstance(value, dict):
        return None
    request_id = value.get("id")
    if isinstance(request_id, float) and request_id.is_integer():  # of a server that knows one kind of number only
        value = {**value, "id": int(request_id)}
    # As PHP encodes an empty object.
    value |= {name: {} for name in ("result", "params") if value.get(name) == []}
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        pass
    request_id = value.get("id")
    if "method" in value or not isinstance(request_id, (int, str)) or isinstance(request_id, bool):
        return None
    error = value.get("error")
    if "jsonrpc" not in value and "result" not in value and not isinstance(error, dict):
        return None  # a line of a log in JSON may have an id, too
    if value.get("jsonrpc") != "2.0":
        reason = 'it has no "jsonrpc": "2.0"'
    elif error is not None:
        reason = "its error is no object with a code and a message"
    elif value.get("result") is not None:
        reason = "its result is no object"
    else:
        reason = "it has neither a result nor an error"
    return unusable_answer(request_id, f"{_UNREADABLE}: {reason}")


def _find_id(head: str, tail: str = "") -> types.RequestId | None:
    """
    Find the id of the request that a broken message answers.

    :param head: A message, or its beginning.
    :param tail: Its end, if `head` does not reach it and it is known.
    :returns: The id, if it is certain.
    """
    members = _top_level(head)
    is_answer = not members.keys().isdisjoint({"jsonrpc", "result"}) or members.get("error") == "{"
    if "method" in members or not head.lstrip().startswith("{"):
        return None
    if (own := members.get("id")) is not None:
        return _as_id(_ID.match(own)) if is_answer else None
    at_end = _ID_AT_END.search(tail)
    return _as_id(at_end) if is_answer or (at_end is not None and '"jsonrpc"' in at_end[0]) else None


def _as_id(match: re.Match[str] | None) -> types.RequestId | None:
    if match is None:
        return None
    return int(match[1]) if match[1] is not None else match[2]


def _top_level(text: str) -> dict[str, str]:
    """
    Find the keys of an object, even if the rest of it is broken or missing, each with the beginning of its value.
    """
    members: dict[str, str] = {}
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        elif depth == 1 and (colon := _AFTER_KEY.match(text, token.end())):
            key = token[0][1:-1]
            members.setdefault(key, text[colon.end() : colon.end() + (_LONGEST_ID if key == "id" else 1)])
    return members
