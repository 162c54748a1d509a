# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Values of megabytes, written as JSON in pieces.

A serializer lets no other thread run until all is written: ten megabytes would hold up all sessions for more than
100 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_json

from haystack_integrations.tools.mcp.concurrency import Turns, run_to_end

# How much is written at once, in values; so many characters of strings count as one. About a millisecond of work.
_PIECE: Final = 2_000
_CHARACTERS: Final = 50
# How many members of an array or object are looked at together, before smaller groups are.
_CHUNK: Final = 512

_ARRAYS: Final = (list, tuple)
_LIGHT: Final = (float, bool, type(None))


def is_small(value: Any) -> bool:
    """
    Tell whether a value can be written at once without holding up others.

    :param value: The value.
    :returns: True if it takes 20 ms or less.
    """
    return _weigh(value, 20 * _PIECE) <= 20 * _PIECE


def write_result(result: BaseModel) -> str:
    """
    Write a result of the MCP SDK as JSON, in pieces if it is large. Other threads run in between.

    :param result: The result.
    :returns: What its `model_dump_json(by_alias=True)` returns.
    """
    if is_small(result):
        return result.model_dump_json(by_alias=True)
    return run_to_end(write_in_pieces(result, Turns(in_loop=False)))


async def write_in_pieces(value: Any, turns: Turns, dump: Callable[[Any], str] | None = None) -> str:
    """
    Write a value as JSON, a piece at a time.

    :param value: The value; if `dump` is not given, it may be a model of pydantic, or contain some.
    :param turns: Lets others run in between.
    :param dump: Writes a value. Default: as pydantic does.
    :returns: What `dump` would write of the whole value; of a model, what its `model_dump_json(by_alias=True)` would.
    """
    writer = _Writer(turns, dump)
    await writer.write(value)
    return "".join(writer.parts)


def _dump(value: Any) -> str:
    return to_json(value, by_alias=True, inf_nan_mode="null").decode()


def _weigh(value: Any, limit: int) -> int:
    """
    Weigh a value, up to the limit: how many values it has, and how long its strings are.
    """
    weight = 0
    to_weigh: list[Any] = [[value]]
    while to_weigh:
        each = to_weigh.pop()
        members: Any = ()
        if isinstance(each, dict):
            weight += len(each)
            members = each.values()
            if weight <= limit:
                with suppress(TypeError):  # a key that is no string, and so is short
                    weight += len("".join(each)) // _CHARACTERS
        elif isinstance(each, _ARRAYS):
            weight += len(each)
            members = each
        elif isinstance(each, BaseModel):
            members = [*each.__dict__.values(), each.__pydantic_extra__]
            weight += len(members)
        elif isinstance(each, str):
            weight += len(each) // _CHARACTERS
        if weight > limit:
            break
        for member in members:
            kind = type(member)
            if kind is str:
                weight += len(member) // _CHARACTERS
            elif kind is int:
                weight += member.bit_length() // _CHARACTERS
            elif kind not in _LIGHT:
                to_weigh.append(member)
    return weight


class _Writer:
    def __init__(self, turns: Turns, dump: Callable[[Any], str] | None) -> None:
        self._turns = turns
        self._dump = dump or _dump
        self._knows_models = dump is None
        self._comma = self._dump([0, 0])[2:-2]
        self.parts: list[str] = []

    async def write(self, value: Any) -> None:
        if isinstance(value, str):
            await self._write_string(value)
        elif isinstance(value, dict):
            await self._write_members("{}", value)
        elif isinstance(value, list | tuple):
            await self._write_members("[]", value)
        elif isinstance(value, BaseModel) and self._knows_models:
            await self.write(self._members(value))
        else:
            self.parts.append(self._dump(value))

    @staticmethod
    def _members(model: BaseModel) -> dict[str, Any]:
        """
        Give the members of a model by their names on the wire: the light ones as JSON has them, the others as they are.
        """
        fields = type(model).model_fields
        heavy = {name: value for name, value in model if _weigh(value, _PIECE) > _PIECE}
        light = model.model_copy(update=dict.fromkeys(heavy))
        members = light.model_dump(mode="json", by_alias=True, warnings=False)
        for name, value in heavy.items():
            members[(fields[name].serialization_alias or name) if name in fields else name] = value
        return members

    async def _write_string(self, text: str) -> None:
        length = _PIECE * _CHARACTERS
        pieces = (self._dump(text[at : at + length])[1:-1] for at in range(0, len(text), length))
        self.parts.append('"')
        for piece in pieces:
            self.parts.append(piece)
            await self._turns.give()
        self.parts.append('"')

    async def _write_members(self, brackets: str, value: Any) -> None:
        separator = brackets[0]
        for chunk in _chunks(value):
            to_write = [chunk]
            while to_write:
                members = to_write.pop()
                if _weigh(members, _PIECE) <= _PIECE:
                    self.parts += [separator, self._dump(members)[1:-1]]
                elif len(members) > 1:
                    to_write += reversed(_halves(members))
                    continue
                elif isinstance(members, list):
                    self.parts.append(separator)
                    await self.write(members[0])
                else:
                    ((key, member),) = members.items()
                    self.parts += [separator, self._dump({key: 0})[1:-2]]
                    await self.write(member)
                separator = self._comma
                await self._turns.give()
        self.parts.append(brackets[1] if value else brackets)


def _chunks(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        members = iter(value.items())
        while chunk := dict(islice(members, _CHUNK)):
            yield chunk
    else:
        for at in range(0, len(value), _CHUNK):
            yield list(value[at : at + _CHUNK])


def _halves(chunk: Any) -> tuple[Any, Any]:
    middle = len(chunk) // 2
    if isinstance(chunk, list):
        return chunk[:middle], chunk[middle:]
    members = list(chunk.items())
    return dict(members[:middle]), dict(members[middle:])
