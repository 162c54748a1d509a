# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
JSON of megabytes, parsed in pieces.

A parser lets no other thread run until it has read all: ten megabytes would hold up all sessions for more than 100 ms.
So the places where a long text can be cut are found first, a window at a time, and then the parser gets one piece after
the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from pydantic_core import from_json

from haystack_integrations.tools.mcp.concurrency import Turns

# How many bytes are parsed, or searched for the ends of values, without a pause: about a millisecond of work.
_PIECE: Final = 65_536
_WINDOW: Final = 16_384

# As many levels as the parser allows.
_DEEPEST: Final = 200

# How many arrays a message may have. An array or object that contains others counts as two; other objects do not count.
# The garbage collector looks at all of them at once.
_MAX_CONTAINERS: Final = 150_000

# Characters of a string, as many as are whole. A pair of surrogates is one character.
_CHARACTERS: Final = re.compile(
    rb"""
    (?: [^"\\]++ | \\[^u] | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
      | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} )*+
    """,
    re.DOTALL | re.VERBOSE,
)
_LONGEST_CHARACTER: Final = 12
# Up to the next bracket, or to a string that the window cuts off; the first group goes to the last comma before that.
# Arrays and objects that contain no others, most of them in most messages, are passed by as a whole.
_FLAT: Final = (
    rb'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+"|\[(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+\]'
    rb'|\{(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+\})*+'
)
_NEXT: Final = re.compile(b"((?:" + _FLAT + b",)*+)" + _FLAT + rb"([\[\]{}])?", re.DOTALL)
# The rest of an object's key.
_KEY: Final = re.compile(rb'"\s*:')
_CLOSING: Final = {0x5B: 0x5D, 0x7B: 0x7D}
_WHITESPACE: Final = b" \t\r\n"


class TooManyValuesError(ValueError):
    """
    Raised for a message with too many arrays and objects to be read.
    """

    def __init__(self) -> None:
        """
        Initialize the TooManyValuesError.
        """
        nested = f"{_MAX_CONTAINERS // 2:,} arrays and objects that contain others"
        super().__init__(f"it has more than {_MAX_CONTAINERS:,} arrays, or more than {nested}")


async def parse_in_pieces(data: bytes | str, turns: Turns, *, limited: bool = True) -> Any:
    """
    Parse JSON, a piece at a time.

    :param data: The JSON.
    :param turns: Lets others run in between.
    :param limited: Whether there may be too many arrays and objects.
    :returns: The value, as `pydantic_core.from_json` returns it.
    :raises ValueError: If it is no JSON, or has too many arrays and objects.
    """
    return await _Parser(data if isinstance(data, bytes) else await _encoded(data, turns), turns, limited).parse()


async def _encoded(text: str, turns: Turns) -> bytes:
    parts: list[bytes] = []
    for at in range(0, len(text), _PIECE):
        parts.append(text[at : at + _PIECE].encode())
        await turns.give()
    return b"".join(parts)


def count_brackets(data: bytes | str) -> int:
    """
    Count what may begin an array or an object.

    :param data: JSON.
    :returns: How many brackets and braces are opened in it, in its strings, too.
    """
    brackets = (b"[", b"{") if isinstance(data, bytes) else ("[", "{")
    return sum(map(data.count, brackets))  # type: ignore[arg-type]


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

    @property
    def end(self) -> int:
        """
        Where its closing bracket is.
        """
        return self.cuts[-1]


@dataclass
class _String:
    """
    A string that is larger than a piece.

    :param cuts: Where it is cut: behind its first quote, between some of its characters, and at its last quote.
    """

    cuts: list[int]

    @property
    def end(self) -> int:
        """
        Where its last quote is.
        """
        return self.cuts[-1]


class _Parser:
    def __init__(self, data: bytes, turns: Turns, limited: bool) -> None:
        self._data = data
        self._turns = turns
        # As _MAX_CONTAINERS says; not counted if there cannot be too many.
        self._count = 0
        self._counts = limited and count_brackets(data) > _MAX_CONTAINERS
        # Counting takes ten times as long as parsing.
        self._piece = _PIECE // 8 if self._counts else _PIECE
        # By where they begin.
        self._large: dict[int, _Container | _String] = {}

    async def parse(self) -> Any:
        await self._find_cuts()
        if not self._large:
            return from_json(self._data)
        start = min(self._large)
        root = self._large[start]
        if self._data[:start].strip(_WHITESPACE) or self._data[root.end + 1 :].strip(_WHITESPACE):
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
                if is_open and found[1]:
                    self._note_commas(is_open[-1], found.start(), found.end(1) - 1)
                if found[2] is None:
                    if start + 1 < window:  # a string that goes on behind the window
                        next_at = await self._cut_string(start + 1, is_open[-1] if is_open else None)
                    break
                kind = data[start]
                if kind in _CLOSING:
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

    async def _cut_string(self, start: int, parent: _Container | None) -> int:
        data, at, end = self._data, start + 1, len(self._data)
        cuts = [at]
        while (last := data[at : at + 1]) != b'"':
            match = _CHARACTERS.match(data, at, at + _WINDOW + _LONGEST_CHARACTER)
            at = match.end() if match else at
            while cuts[-1] < at < end and data[at] & 0xC0 == 0x80:  # noqa: PLR2004 - in the middle of a character
                at -= 1
            if at == cuts[-1]:
                msg = "invalid character in a string" if last else "EOF while parsing a string"
                raise ValueError(msg)
            cuts.append(at)
            await self._turns.give()
        if parent is not None and at - start > self._piece and _KEY.match(data, at) is None:
            self._large[start] = _String(cuts)
            self._note_inner(parent, start)
        return at + 1

    def _note_commas(self, container: _Container, start: int, last: int) -> None:
        if container.follows_inner:
            container.cuts.append(self._data.index(b",", start))
            container.follows_inner = False
        if last - container.cuts[-1] > self._piece:
            container.cuts.append(last)
        container.last_comma = last

    def _note_end(self, container: _Container, at: int, parent: _Container | None) -> None:
        if at - container.start <= self._piece:
            return
        container.cuts.append(at)
        self._large[container.start] = container
        if parent is not None:
            self._note_inner(parent, container.start)

    @staticmethod
    def _note_inner(parent: _Container, start: int) -> None:
        if parent.cuts[-1] != parent.last_comma:
            parent.cuts.append(parent.last_comma)
        parent.inner[parent.last_comma] = start
        parent.follows_inner = True

    async def _build(self, value: _Container | _String) -> Any:
        return await (self._build_string(value) if isinstance(value, _String) else self._build_container(value))

    async def _build_string(self, string: _String) -> str:
        parts: list[str] = []
        for left, right in pairwise(string.cuts):
            parts.append(from_json(b'"' + self._data[left:right] + b'"'))
            await self._turns.give()
        return "".join(parts)

    async def _build_container(self, container: _Container) -> Any:
        data, end = self._data, container.end
        opening, closing = data[container.start : container.start + 1], data[end : end + 1]
        items: list[Any] = []
        members: dict[str, Any] = {}
        is_only = len(container.cuts) == 2  # noqa: PLR2004
        for left, right in pairwise(container.cuts):
            start = container.inner.get(left)
            if start is None:
                piece = data[left + 1 : right]
                if not is_only and not piece.strip(_WHITESPACE):
                    msg = "expected value"
                    raise ValueError(msg)
                part = from_json(opening + piece + closing)
                if self._counts:
                    self._count_containers(part)
                items.extend(part) if isinstance(part, list) else members.update(part)
            else:
                inner = self._large[start]
                before, after = data[left + 1 : start], data[inner.end + 1 : right]
                # Of an array nothing stands beside the value, of an object its key.
                keys = from_json(opening + before + (b" 0" if before.strip(_WHITESPACE) else b"") + closing)
                if after.strip(_WHITESPACE) or (len(keys) != 1 if isinstance(keys, dict) else keys):
                    msg = "expected `,` or the end of the value"
                    raise ValueError(msg)
                value = await self._build(inner)
                items.append(value) if isinstance(keys, list) else members.update(dict.fromkeys(keys, value))
            await self._turns.give()
        return items if opening == b"[" else members

    def _count_containers(self, part: Any) -> None:
        to_count = [part]
        while to_count:
            container = to_count.pop()
            members = container.values() if isinstance(container, dict) else container
            inner = [each for each in members if isinstance(each, dict | list)]
            if inner:
                self._count += 2
            elif isinstance(container, list):
                self._count += 1
            to_count += inner
        if self._count > _MAX_CONTAINERS:
            raise TooManyValuesError
