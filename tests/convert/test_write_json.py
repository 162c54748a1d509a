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
from haystack_integrations.tools.mcp.convert.results import model_text
from haystack_integrations.tools.mcp.convert.write_json import write_in_pieces, write_result
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


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    source = random.Random(1)
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


def test_what_has_no_end_is_refused_as_in_one_go():
    endless: dict[str, Any] = {}
    endless["a"] = [endless] * 3
    assert model_text(endless).startswith("{'a': [")
