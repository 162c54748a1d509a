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

from mcp_types import INTERNAL_ERROR
from pydantic_core import from_json

# How much of an answer that cannot be read is searched for the id of its request.
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
            tail = "" if str(error).startswith("EOF") else text[-_TAIL_SIZE:]  # one that is cut off has no end
            request_id = _find_id(text[:_HEAD_SIZE], tail)
            return [] if request_id is None else [Unreadable(request_id, f"{_UNREADABLE} as JSON ({error})")]
    found: list[dict[str, Any] | Unreadable] = []
    for message in value if isinstance(value, list) else [value]:
        if not isinstance(message, dict):
            continue
        request_id = message.get("id")
        if type(request_id) is float and request_id.is_integer():  # of a server that knows one kind of number only
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
            continue  # a line of a log in JSON may have an id, too
        reason = None
        if not is_json_rpc:
            reason = 'it has no "jsonrpc": "2.0"'
        elif failure is not None and (failure or "result" not in message):
            message["error"] = _mended_error(failure)
        else:
            message.pop("error", None)
            if message.get("result") == []:  # as PHP writes an empty object
                message["result"] = {}
            if message.get("result") is None:
                reason = "it has neither a result nor an error"
            elif type(message["result"]) is not dict:
                reason = "its result is no object"
        if type(request_id) is str:
            message["id"] = own_id(request_id)
        if reason is None:
            found.append(message)
        elif request_id is not None:
            found.append(Unreadable(message["id"], f"{_UNREADABLE}: {reason}"))
    return found


def too_large(limit: int) -> str:
    """
    Return the clause that a message is too large, and what bounds it.

    :param limit: How many bytes it may have.
    :returns: A clause.
    """
    return f"the server's answer is larger than `max_message_size` of the server info allows, {limit:,} bytes"


def oversized(message: bytes, limit: int) -> Unreadable | None:
    """
    Return what takes the place of an answer that is too large.

    :param message: The answer.
    :param limit: How many bytes it may have.
    :returns: The answer, or None if it cannot be told which request is answered, or whether any is.
    """
    head, tail = message[:_HEAD_SIZE].decode(errors="replace"), message[-_TAIL_SIZE:].decode(errors="replace")
    request_id = _find_id(head, tail)
    return None if request_id is None else Unreadable(request_id, too_large(limit))


def _mended_error(error: Any) -> dict[str, Any]:
    said = error if isinstance(error, dict) else {"message": error}
    code, text = said.get("code"), said.get("message")
    if type(code) is int and type(text) is str:
        return said
    text = text if type(text) is str else json.dumps(said if text is None else text, ensure_ascii=False)
    return {**said, "code": code if type(code) is int else INTERNAL_ERROR, "message": text}


def _mended(text: str) -> Any:
    # `json` takes what `pydantic_core` refuses: halves of surrogate pairs, and control characters in a string.
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
    Return the id of a request of ours as it was sent.

    :param value: The id as it came: some servers know one kind of number only, some write all ids as strings.
    :returns: The id; None for what can be none.
    """
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, str | int | float) else None
