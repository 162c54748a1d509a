# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
JSON that is parsed in pieces: the same values and the same refusals as in one go.
"""

import json
import random

import pytest
from pydantic_core import from_json

from haystack_integrations.tools.mcp.concurrency import Turns
from haystack_integrations.tools.mcp.convert import parse_json
from haystack_integrations.tools.mcp.convert.parse_json import TooManyValuesError, parse_in_pieces
from tests.support.random_json import random_value


def damaged(source: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(source.randrange(1, 3)):
        at = source.randrange(len(changed)) if changed else 0
        kind = source.randrange(3)
        if kind == 0:
            changed.insert(at, source.choice(b'[]{},:"\\ 0'))
        elif changed and kind == 1:
            changed[at] = source.choice(b'[]{},:"\\ 0')
        elif changed:
            del changed[at]
    return bytes(changed)


async def in_pieces(data: bytes) -> str:
    try:
        return json.dumps(await parse_in_pieces(data, Turns()))
    except ValueError:
        return "refused"


def at_once(data: bytes) -> str:
    try:
        return json.dumps(from_json(data))
    except ValueError:
        return "refused"


async def test_pieces_of_any_size_give_what_the_whole_gives(monkeypatch):
    source = random.Random(1)
    refused = 0
    for _ in range(40):
        monkeypatch.setattr(parse_json, "_PIECE", source.choice([1, 4, 16, 64]))
        monkeypatch.setattr(parse_json, "_WINDOW", source.choice([2, 3, 8, 50]))
        value = [random_value(source) for _ in range(source.randrange(30))]
        whole = json.dumps(value, ensure_ascii=source.random() < 0.5, indent=source.choice([None, 1])).encode()
        for data in (whole, damaged(source, whole), damaged(source, whole)):
            expected = at_once(data)
            assert await in_pieces(data) == expected, data
            refused += expected == "refused"
    assert refused > 20


async def test_a_long_text_and_a_long_key_are_read_and_a_damaged_one_is_refused():
    text = "line\n" * 100_000 + "\u6f22" * 100_000 + "\U0001f600" * 50_000
    for ensure_ascii in (True, False):
        data = json.dumps({"k" * 400_000: [1, text], "b": text}, ensure_ascii=ensure_ascii).encode()
        assert await parse_in_pieces(data, Turns()) == from_json(data)
        with pytest.raises(ValueError):
            await parse_in_pieces(data[:600_000], Turns())


async def test_too_many_arrays_are_refused():
    with pytest.raises(TooManyValuesError, match="more than 150,000 arrays"):
        await parse_in_pieces(f"[{','.join(['[]'] * 260_000)}]", Turns())
