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

# How much of an answer that cannot be read is searched for the id of its request.
HEAD_SIZE = 512
TAIL_SIZE = 256

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
            tail = "" if str(error).startswith("EOF") else text[-TAIL_SIZE:]  # one that is cut off has no end
            request_id = _find_id(text[:HEAD_SIZE], tail)
            return [] if request_id is None else [Unreadable(request_id, f"{_UNREADABLE} as JSON ({error})")]
    if isinstance(value, list):
        return [frame for item in value if (frame := _checked(item)) is not None]
    frame = _checked(value)
    return [] if frame is None else [frame]


def too_large(limit: int) -> str:
    """
    Return the clause that a message is too large, and what bounds it.

    :param limit: How many bytes it may have.
    :returns: A clause.
    """
    return f"the server's answer is larger than `max_message_size` of the server info allows, {limit:,} bytes"


def oversized(head: bytes, tail: bytes, limit: int) -> Unreadable | None:
    """
    Return what takes the place of an answer that is too large.

    :param head: Its first bytes, `HEAD_SIZE` of them are enough.
    :param tail: Its last bytes, `TAIL_SIZE` of them are enough.
    :param limit: How many bytes it may have.
    :returns: The answer, or None if it cannot be told which request is answered, or whether any is.
    """
    request_id = _find_id(head.decode(errors="replace"), tail.decode(errors="replace"))
    return None if request_id is None else Unreadable(request_id, too_large(limit))


def _mended(text: str) -> Any:
    # `json` takes what `pydantic_core` refuses: halves of surrogate pairs, and control characters in a string.
    text = json.dumps(json.loads(text.lstrip("\ufeff"), strict=False), ensure_ascii=False)
    return from_json(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _checked(value: Any) -> dict[str, Any] | Unreadable | None:
    if not isinstance(value, dict):
        return None
    request_id = _as_id(value.get("id"))
    has_id = request_id is not None
    if has_id:
        value["id"] = request_id
    if "method" in value:
        is_sound = value.get("jsonrpc") == "2.0" and isinstance(value["method"], str) and (has_id or "id" not in value)
        return value if is_sound else None
    if not has_id and not ("id" in value and value["id"] is None and "error" in value):
        return None
    error = value.get("error")
    if "jsonrpc" not in value and "result" not in value and not isinstance(error, dict):
        return None  # a line of a log in JSON may have an id, too
    reason = _fault(value, error)
    if reason is None:
        return value
    return None if request_id is None else Unreadable(request_id, f"{_UNREADABLE}: {reason}")


def _fault(value: dict[str, Any], error: Any) -> str | None:
    if value.get("jsonrpc") != "2.0":
        return 'it has no "jsonrpc": "2.0"'
    if error is not None:
        is_sound = isinstance(error, dict) and type(error.get("code")) is int and isinstance(error.get("message"), str)
        return None if is_sound else "its error is no object with a code and a message"
    value.pop("error", None)
    result = value.get("result")
    if result == []:  # as PHP writes an empty object
        value["result"] = result = {}
    if isinstance(result, dict):
        return None
    return "it has neither a result nor an error" if result is None else "its result is no object"


def _find_id(head: str, tail: str) -> int | str | None:
    """
    Find the id of the request that a broken message answers, if it is certain.
    """
    answer = _ANSWER.match(head)
    if answer is None:
        return None
    found = answer if answer[1] or answer[2] else _ID_AT_END.search(tail)
    return None if found is None else int(found[1]) if found[1] else found[2]


def _as_id(value: Any) -> int | str | None:
    if type(value) is float and value.is_integer():  # of a server that knows one kind of number only
        return int(value)
    return value if type(value) is int or type(value) is str else None
