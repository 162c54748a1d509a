# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
JSON that is written in pieces: the same as in one go.
"""

import json
import random
from typing import Any

import pytest
from mcp import types
from pydantic_core import to_json

from haystack_integrations.tools.mcp.concurrency import Turns
from haystack_integrations.tools.mcp.convert import write_json
from haystack_integrations.tools.mcp.convert.results import model_text, state_result
from haystack_integrations.tools.mcp.convert.write_json import is_small, write_in_pieces, write_result
from tests.support.random_json import TEXTS, random_value


def random_result(source: random.Random) -> types.CallToolResult:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "".join(source.choices(TEXTS, k=5)), "_meta": {"a": random_value(source)}},
        {"type": "image", "data": "QUJD" * source.randrange(50), "mimeType": "image/png"},
        {"type": "resource_link", "name": "n", "uri": "a:b", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "resource", "resource": {"uri": "a:b", "text": "t" * source.randrange(100)}},
    ]
    return types.CallToolResult.model_validate(
        {
            "content": source.choices(blocks, k=source.randrange(20)),
            "structuredContent": {"value": random_value(source)},
            "isError": source.random() < 0.5,
            "_meta": {"m": random_value(source)},
        },
        by_name=False,
    )


@pytest.fixture(params=range(8))
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> random.Random:
    source = random.Random(request.param)
    monkeypatch.setattr(write_json, "_PIECE", source.choice([1, 3, 10, 40]))
    monkeypatch.setattr(write_json, "_CHARACTERS", source.choice([1, 2, 50]))
    monkeypatch.setattr(write_json, "_CHUNK", source.choice([1, 2, 5, 100]))
    return source


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


async def test_pieces_of_any_size_give_what_the_whole_gives(source):
    for _ in range(100):
        value = random_value(source)
        assert await write_in_pieces(value, Turns()) == to_json(value, inf_nan_mode="null").decode()
        assert await write_in_pieces(value, Turns(), dumped) == dumped(value)


async def test_a_result_is_written_as_pydantic_writes_it(source):
    for _ in range(50):
        result = random_result(source)
        assert write_result(result) == result.model_dump_json(by_alias=True)
        assert await write_in_pieces(result, Turns()) == result.model_dump_json(by_alias=True)


ROWS = [{"id": number, "name": f"n{number}"} for number in range(30_000)]


@pytest.mark.parametrize(
    "content",
    [
        {"content": [], "structuredContent": {"rows": ROWS}},
        {"content": [{"type": "text", "text": "a\n" * 2_000_000}]},
        {"content": [{"type": "text", "text": "block"}] * 20_000},
        {"content": [{"type": "text", "text": dumped(ROWS)}, {"type": "text", "text": "b"}], "_meta": {"rows": ROWS}},
    ],
    ids=["structured", "text", "blocks", "all"],
)
def test_a_large_result_is_written_and_read_a_piece_at_a_time(monkeypatch, content):
    result = types.CallToolResult.model_validate(content, by_name=False)
    assert not is_small(result)
    written: list[int] = []

    def spy(value: Any, **options: Any) -> bytes:
        text = to_json(value, **options)
        written.append(len(text))
        return text

    monkeypatch.setattr(write_json, "to_json", spy)
    envelope = write_result(result)
    assert envelope == result.model_dump_json(by_alias=True)
    assert len(written) > 10
    assert max(written) < 500_000
    parsed = json.loads(envelope)
    texts = "\n".join(block["text"] for block in content["content"])
    assert model_text(envelope) == (texts or dumped(content["structuredContent"]))
    assert state_result(envelope).parsed == parsed


def test_what_has_no_end_is_refused_as_in_one_go():
    endless: dict[str, Any] = {}
    endless["a"] = [endless] * 3
    assert model_text(endless).startswith("{'a': [")


def test_a_large_text_that_is_no_json_is_shown_as_it_is():
    for content in ("\\ud83d", "x", "[]," * 200_000 + "1"):
        text = '{"content":[{"type":"text","text":"' + content + "x" * 2_000_000 + '"}],"isError":false}'
        assert model_text(text[:-2]) == text[:-2]


def test_a_result_may_have_more_arrays_than_an_answer():
    envelope = json.dumps({"content": [], "structuredContent": {"a": [[]] * 600_000}, "isError": False})
    assert len(state_result(envelope)["a"]) == 600_000


def test_long_facts_of_a_link_are_cut():
    link = {"type": "resource_link", "name": "a", "uri": "a:b", "description": "a " * 1_000_000}
    assert len(model_text(json.dumps({"content": [link], "isError": False}))) < 20_000


def test_only_pydantic_writes_models():
    value = [types.TextContent(type="text", text=str(number)) for number in range(20_000)]
    assert not is_small(value)
    assert model_text(value) == json.dumps([str(each) for each in value], ensure_ascii=False)
