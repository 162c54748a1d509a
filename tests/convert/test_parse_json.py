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

from haystack_integrations.tools.mcp.concurrency import Turns, run_to_end
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


@pytest.mark.parametrize("seed", range(3))
async def test_pieces_of_any_size_give_what_the_whole_gives(monkeypatch, seed):
    source = random.Random(seed)
    refused = 0
    for _ in range(100):
        monkeypatch.setattr(parse_json, "_PIECE", source.choice([1, 4, 16, 64]))
        monkeypatch.setattr(parse_json, "_WINDOW", source.choice([2, 3, 8, 50]))
        value = [random_value(source) for _ in range(source.randrange(30))]
        whole = json.dumps(value, ensure_ascii=source.random() < 0.5, indent=source.choice([None, 1])).encode()
        for data in (whole, damaged(source, whole), damaged(source, whole)):
            expected = at_once(data)
            assert await in_pieces(data) == expected, data
            refused += expected == "refused"
    assert refused > 50


LONG_TEXTS = {
    "letters": '"' + "a" * 400_000 + '"',
    "line breaks": '"' + "\\n" * 200_000 + '"',
    "backslashes": '"' + "\\\\" * 200_001 + '"',
    "escaped letters": '"x' + "\\u00e9" * 70_000 + '"',
    "pairs": '"xyz' + "\\ud83d\\ude00" * 40_000 + '"',
    "Chinese": '"x' + "\u6f22" * 140_000 + '"',
    "emoji": '"xy' + "\U0001f600" * 100_000 + '"',
    "quotes": '"' + '\\"' * 200_000 + '"',
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=list(LONG_TEXTS))
async def test_a_long_text_is_cut_between_its_characters(monkeypatch, text):
    sizes: list[int] = []
    monkeypatch.setattr(parse_json, "from_json", lambda part: sizes.append(len(part)) or from_json(part))
    data = f'{{"a":[1,{text} , {text}],"b": {text} }}'.encode()
    assert await parse_in_pieces(data, Turns()) == from_json(data)
    assert len(sizes) > 50
    assert max(sizes) < 2 * parse_json._WINDOW


@pytest.mark.parametrize(
    "damage",
    [b"\\ud83d", b"\\ude00", b"\\ud83dx", b"\\u12", b"\\x", b"\x80\x80\x80\x80\x80", b"\xe6\xbc", b"\x01", b'"'],
    ids=repr,
)
async def test_a_damaged_long_text_is_refused(damage):
    whole = b'{"a":"' + b"a" * 100_000 + damage + "\u6f22".encode() * 100_000 + b'"}'
    for data in (whole, whole[:50_000], whole[:150_000]):
        with pytest.raises(ValueError):
            from_json(data)
        with pytest.raises(ValueError):
            await parse_in_pieces(data, Turns())


@pytest.mark.parametrize("place", ["before", "behind", "between"])
async def test_only_the_white_space_of_json_is_skipped(place):
    inner = json.dumps(["v" * 100_000])
    for space, is_json in ((" \t\r\n", True), ("\f", False), ("\v", False)):
        values = {"before": f"[{space}{inner},1]", "behind": f"[1,{inner}{space}]", "between": f"{space}[{inner}]"}
        if is_json:
            assert await parse_in_pieces(values[place], Turns()) == from_json(values[place])
        else:
            with pytest.raises(ValueError):
                await parse_in_pieces(values[place], Turns())


@pytest.mark.parametrize("start", ["1", "-", "1.5", "2e"])
@pytest.mark.parametrize("large", ['"' + "x" * 100_000 + '"', "[" + "1," * 50_000 + "1]"], ids=["text", "array"])
async def test_a_number_in_front_of_a_value_is_refused(start, large):
    for text in (f'{{"a":{start}{large}}}', f'{{"a":{start} {large}}}', f"[{start}{large}]"):
        with pytest.raises(ValueError):
            await parse_in_pieces(text, Turns())


async def test_a_long_key_is_read():
    data = json.dumps({"a": 1, "k" * 400_000: [1, "v" * 400_000]}).encode()
    assert await parse_in_pieces(data, Turns()) == from_json(data)


@pytest.mark.parametrize("part", ["[]", '{"a":[1]}', "[[[1]]]"], ids=str)
async def test_too_many_arrays_are_refused(part):
    with pytest.raises(TooManyValuesError, match="more than 150,000 arrays"):
        await parse_in_pieces(f"[{','.join([part] * 260_000)}]", Turns())


async def test_many_flat_objects_and_brackets_in_texts_are_not_too_many_arrays():
    value = [{"id": number, "text": "[[["} for number in range(300_000)]
    assert await parse_in_pieces(json.dumps(value), Turns()) == value


def test_without_an_event_loop_it_is_parsed_at_once():
    value = [{"id": number} for number in range(50_000)]
    assert run_to_end(parse_in_pieces(json.dumps(value), Turns(in_loop=False))) == value


async def test_what_contains_nothing_large_is_passed_by_as_a_whole(monkeypatch):
    opened: list[int] = []

    class Counted(parse_json._Container):
        def __post_init__(self) -> None:
            opened.append(self.start)

    monkeypatch.setattr(parse_json, "_Container", Counted)
    data = json.dumps([[number, {"id": "a, [b]"}] for number in range(10_000)]).encode()
    assert await parse_in_pieces(data, Turns()) == from_json(data)
    assert len(opened) < 11_000  # not the objects, only the arrays around them
