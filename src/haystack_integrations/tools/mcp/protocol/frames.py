# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
JSON-RPC messages as bytes and back.

A message with a broken character, or of an odd shape, is mended where that loses nothing else. An answer that cannot be
read fails the request that it answers at once, instead of leaving it to its timeout.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

MAX_BATCH = 1_000

# How much of a message that cannot be read is searched for the id that it answers.
HEAD_SIZE = 65_536
TAIL_SIZE = 256

_UNREADABLE = "the server's answer could not be read"

# A string may end with the text: searched again from each of its quotes, it would take quadratic time.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_AFTER_KEY = re.compile(r"\s*:\s*")
# An id as a string, with its quotes.
_LONGEST_ID = 102
# With what follows it: of a number that is cut off, the rest is not known.
_ID = re.compile(r'(-?\d{1,18})(?:\.0+)?\s*[,}]|"([^"\\]{0,100})"')
# The end of a message whose id comes last, as the SDKs for TypeScript and C# write it.
_ID_AT_END = re.compile(
    r'[{,]\s*"id"\s*:\s*(?:(-?\d{1,18})|"([^"\\]{0,100})")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """
    An answer that cannot be read.

    :param id: The id of the request that it answers.
    :param reason: What is wrong with it, as a clause.
    """

    id: int | str
    reason: str


def write(message: dict[str, Any]) -> bytes:
    """
    Write a message in one line, without its end.

    :param message: The message.
    :returns: The bytes.
    :raises ValueError: If a value in it is no JSON, such as half of a surrogate pair in a text. The text of the error
        may quote it.
    """
    return to_json(message)


def read(data: bytes | str) -> list[dict[str, Any] | Unreadable]:
    """
    Read a message, or a batch of them (revision 2025-03-26).

    :param data: The message.
    :returns: The messages. Of each, `jsonrpc` is "2.0", and it is a request with a `method` and an `id`, a notification
        with a `method`, or an answer with an `id` and a `result` that is an object or an `error` with an integer `code`
        and a text as `message`. Nothing of what is no message, such as a line of a log.
    """
    try:
        value = from_json(data)
    except ValueError as error:
        text = data.decode(errors="replace") if isinstance(data, bytes) else data
        try:
            value = _mended(text)
        except (ValueError, RecursionError):
            return _unreadable(text, str(error))
    if isinstance(value, list):
        return [frame for item in value[:MAX_BATCH] if (frame := _checked(item)) is not None]
    frame = _checked(value)
    return [] if frame is None else [frame]


def too_large(limit: int) -> str:
    """
    Say that a message is too large, and what bounds it.

    :param limit: How many bytes it may have.
    :returns: A clause.
    """
    return f"the server's answer is larger than `max_message_size` of the server info allows, {limit:,} bytes"


def oversized(head: bytes, tail: bytes, limit: int) -> Unreadable | None:
    """
    Return what takes the place of an answer that is too large.

    :param head: Its first bytes, `HEAD_SIZE` of them are enough.
    :param tail: Its last bytes, or none if they are not known.
    :param limit: How many bytes it may have.
    :returns: The answer, or None if it cannot be told which request is answered, or whether any is.
    """
    request_id = _find_id(head.decode(errors="replace"), tail.decode(errors="replace"))
    return None if request_id is None else Unreadable(request_id, too_large(limit))


def is_no_answer(head: bytes) -> bool:
    """
    Tell whether a message is certainly a request or a notification.

    :param head: Its first bytes.
    :returns: True if its method is among them.
    """
    return "method" in _top_level(head.decode(errors="replace"))


def _mended(text: str) -> Any:
    # `json` takes what `pydantic_core` refuses: halves of surrogate pairs, and control characters in a string.
    text = json.dumps(json.loads(text.lstrip("\ufeff"), strict=False), ensure_ascii=False)
    return from_json(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _checked(value: Any) -> dict[str, Any] | Unreadable | None:
    if not isinstance(value, dict):
        return None
    request_id: Any = value.get("id")
    if type(request_id) is float and request_id.is_integer():  # of a server that knows one kind of number only
        request_id = value["id"] = int(request_id)
    has_id = type(request_id) is int or type(request_id) is str
    if "method" in value:
        is_sound = value.get("jsonrpc") == "2.0" and isinstance(value["method"], str) and (has_id or "id" not in value)
        return value if is_sound else None
    if not has_id and not (request_id is None and "id" in value and "error" in value):
        return None
    error = value.get("error")
    if "jsonrpc" not in value and "result" not in value and not isinstance(error, dict):
        return None  # a line of a log in JSON may have an id, too
    reason = _fault(value, error)
    if reason is None:
        return value
    return None if request_id is None else Unreadable(value["id"], f"{_UNREADABLE}: {reason}")


def _fault(value: dict[str, Any], error: Any) -> str | None:
    if value.get("jsonrpc") != "2.0":
        return 'it has no "jsonrpc": "2.0"'
    if error is not None:
        if not isinstance(error, dict) or type(error.get("code")) is not int:
            return "its error is no object with a code and a message"
        if not isinstance(error.get("message"), str):
            return "its error is no object with a code and a message"
        return None
    value.pop("error", None)
    result = value.get("result")
    if result == []:  # as PHP writes an empty object
        value["result"] = result = {}
    if isinstance(result, dict):
        return None
    return "it has neither a result nor an error" if result is None else "its result is no object"


def _unreadable(text: str, fault: str) -> list[dict[str, Any] | Unreadable]:
    # A message that is cut off has no end.
    tail = "" if fault.startswith("EOF") else text[HEAD_SIZE:][-TAIL_SIZE:]
    request_id = _find_id(text[:HEAD_SIZE], tail)
    return [] if request_id is None else [Unreadable(request_id, f"{_UNREADABLE} as JSON ({fault})")]


def _find_id(head: str, tail: str = "") -> int | str | None:
    """
    Find the id of the request that a broken message answers, if it is certain.
    """
    members = _top_level(head)
    is_answer = not members.keys().isdisjoint({"jsonrpc", "result"}) or members.get("error") == "{"
    if "method" in members or not head.lstrip().startswith("{"):
        return None
    if (own := members.get("id")) is not None:
        return _as_id(_ID.match(own)) if is_answer else None
    at_end = _ID_AT_END.search(tail)
    return _as_id(at_end) if is_answer or (at_end is not None and '"jsonrpc"' in at_end[0]) else None


def _as_id(match: re.Match[str] | None) -> int | str | None:
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
