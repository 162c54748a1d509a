# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Messages of megabytes, parsed in pieces.

A JSON parser runs to the end of its input and lets no other thread run meanwhile: tens of megabytes would hold up all
sessions for more than half a second. So the places where a long message can be cut are found first, a window at a
time, and then the parser gets one piece after the other. In between, the event loop serves the other sessions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from mcp import types
from mcp.types import jsonrpc_message_adapter
from pydantic_core import from_json

from haystack_integrations.tools.mcp.concurrency import Turns

# The SDK reads a message into a model at once, which takes 5 ms for so many bytes.
_MEDIUM: Final = 131_072
# The parser alone takes four times as little: 15 ms for so many.
_LARGE: Final = 1_500_000

# How many bytes are parsed, or searched for the ends of values, without a pause: about a millisecond of work.
_PIECE: Final = 65_536
_WINDOW: Final = 16_384

# As many levels as the parser allows.
_DEEPEST: Final = 200

_STRING_BODY: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
# Up to the next character that gives a message its structure, or to a string that the window cuts off.
# Arrays and objects that contain no others, most of them in most messages, are passed by as a whole.
_NEXT: Final = re.compile(
    rb"""
    (?: [^"\[\]{},]++ | "(?:[^"\\]++|\\.)*+" | \[(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+\]
      | \{(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+\} )*+
    ([\[\]{},])?
    """,
    re.DOTALL | re.VERBOSE,
)
_CLOSING: Final = {0x5B: 0x5D, 0x7B: 0x7D}
_COMMA: Final = ord(",")

# What of a message is as large as the server likes, and not for the SDK's reader to look at.
_CONTENTS: Final = ("result", "params")


class LargeResult(dict[str, Any]):
    """
    The result in a message of more than a hundred kilobytes. The SDK must not validate it all at once.
    """


def is_large(data: bytes | str) -> bool:
    """
    Tell whether a message is so large that `parse_large` is to read it.

    :param data: The message.
    :returns: True if it is.
    """
    return len(data) > _LARGE


def parse(data: bytes | str) -> types.JSONRPCMessage:
    """
    Read a message that is not large.

    :param data: The message.
    :returns: The message.
    :raises ValueError: If it is none.
    """
    if len(data) <= _MEDIUM:
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    return _as_message(from_json(data))


async def parse_large(data: bytes | str) -> types.JSONRPCMessage:
    """
    Read a message in pieces. Other tasks of the event loop run in between.

    :param data: The message.
    :returns: The message, as `parse` would return it.
    :raises ValueError: If it is none.
    """
    return _as_message(await _Parser(data.encode() if isinstance(data, str) else data).parse())


def _as_message(value: Any) -> types.JSONRPCMessage:
    if not isinstance(value, dict):
        return jsonrpc_message_adapter.validate_python(value, by_name=False)  # refused, with the SDK's words
    shell: dict[str, Any] = dict(value)
    contents = {name: shell[name] for name in _CONTENTS if isinstance(shell.get(name), dict)}
    shell.update({name: {} for name in contents})
    data = None
    if isinstance(error := shell.get("error"), dict):
        data = error.get("data")
        shell["error"] = {**error, "data": None}
    message = jsonrpc_message_adapter.validate_python(shell, by_name=False)
    for name in contents.keys() & type(message).model_fields.keys():
        content = contents[name]
        setattr(message, name, LargeResult(content) if name == "result" else content)
    if data is not None and isinstance(message, types.JSONRPCError):
        message.error.data = data
    return message


@dataclass
class _Container:
    """
    An array or object that is larger than a piece.

    :param start: Where it begins.
    :param cuts: Where it is cut: at its opening bracket, at some of its commas, and at its closing one.
    :param inner: Where the only member between a cut and the next begins, if it is large itself; by the first of them.
    """

    start: int
    cuts: list[int]
    last_comma: int
    follows_inner: bool = False
    inner: dict[int, int] = field(default_factory=dict)


class _Parser:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._turns = Turns()
        self._large: dict[int, _Container] = {}

    async def parse(self) -> Any:
        await self._find_cuts()
        if not self._large:
            return from_json(self._data)
        root = self._large[min(self._large)]
        if self._data[: root.start].strip() or self._data[root.cuts[-1] + 1 :].strip():
            msg = "characters outside of the value"
            raise ValueError(msg)
        return await self._build(root)

    async def _find_cuts(self) -> None:
        data, at, end = self._data, 0, len(self._data)
        is_open: list[_Container] = []
        while at < end:
            window = min(at + _WINDOW, end)
            next_at = window
            for found in _NEXT.finditer(data, at, window):
                start = found.end() - 1
                if found.lastindex is None:
                    if start + 1 < window:  # a string that goes on behind the window
                        next_at = await self._skip_string(start + 1)
                    break
                kind = data[start]
                if kind == _COMMA:
                    if is_open:
                        self._note_comma(is_open[-1], start)
                elif kind in _CLOSING:
                    if len(is_open) == _DEEPEST:
                        msg = "recursion limit exceeded"
                        raise ValueError(msg)
                    is_open.append(_Container(start, [start], start))
                else:
                    if not is_open or _CLOSING[data[is_open[-1].start]] != kind:
                        msg = "brackets that do not match"
                        raise ValueError(msg)
                    self._note_end(is_open.pop(), start, is_open[-1] if is_open else None)
            at = next_at
            await self._turns.give()
        if is_open:
            msg = "EOF while parsing a value"
            raise ValueError(msg)

    async def _skip_string(self, start: int) -> int:
        at, end = start + 1, len(self._data)
        while at < end:
            match = _STRING_BODY.match(self._data, at, at + _WINDOW)
            at = match.end() if match else at
            if self._data[at : at + 1] == b'"':
                return at + 1
            if at + 1 >= end:
                break
            await self._turns.give()
        msg = "EOF while parsing a string"
        raise ValueError(msg)

    @staticmethod
    def _note_comma(container: _Container, at: int) -> None:
        if container.follows_inner or at - container.cuts[-1] > _PIECE:
            container.cuts.append(at)
            container.follows_inner = False
        container.last_comma = at

    def _note_end(self, container: _Container, at: int, parent: _Container | None) -> None:
        if at - container.start <= _PIECE:
            return
        container.cuts.append(at)
        self._large[container.start] = container
        if parent is not None:
            if parent.cuts[-1] != parent.last_comma:
                parent.cuts.append(parent.last_comma)
            parent.inner[parent.last_comma] = container.start
            parent.follows_inner = True

    async def _build(self, container: _Container) -> Any:
        data, end = self._data, container.cuts[-1]
        opening, closing = data[container.start : container.start + 1], data[end : end + 1]
        items: list[Any] = []
        members: dict[str, Any] = {}
        is_only = len(container.cuts) == 2  # noqa: PLR2004
        for left, right in pairwise(container.cuts):
            start = container.inner.get(left)
            if start is None:
                piece = data[left + 1 : right]
                if not is_only and not piece.strip():
                    msg = "expected value"
                    raise ValueError(msg)
                part = from_json(opening + piece + closing)
                items.extend(part) if isinstance(part, list) else members.update(part)
            else:
                inner = self._large[start]
                before, after = data[left + 1 : start], data[inner.cuts[-1] + 1 : right]
                # Of an array nothing stands beside the value, of an object its key.
                keys = from_json(opening + before + (b"0" if before.strip() else b"") + closing)
                if after.strip() or (len(keys) != 1 if isinstance(keys, dict) else keys):
                    msg = "expected `,` or the end of the value"
                    raise ValueError(msg)
                value = await self._build(inner)
                items.append(value) if isinstance(keys, list) else members.update(dict.fromkeys(keys, value))
            await self._turns.give()
        return items if opening == b"[" else members
