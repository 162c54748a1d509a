# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Messages that are parsed in pieces: the same values and the same refusals as in one go.
"""

import json
import random
from typing import Any

import pytest
from mcp import types
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json

from haystack_integrations.tools.mcp import StdioServerInfo
from haystack_integrations.tools.mcp.client import large_messages
from haystack_integrations.tools.mcp.client.large_messages import is_large, parse, parse_large
from haystack_integrations.tools.mcp.client.messages import is_certainly_answer

TEXTS = ["", "x" * 40, 'a "quote"', "\\", "\\\\", "[,]{}", "\u00e9\U0001f600", ","]
NUMBERS = [0, -2.5, 1e300, 10**25, True, None]


def random_value(source: random.Random, depth: int = 0) -> Any:
    kind = source.random()
    if depth < 5 and kind < 0.35:
        return [random_value(source, depth + 1) for _ in range(source.randrange(6))]
    if depth < 5 and kind < 0.7:
        keys = [source.choice(TEXTS) + str(source.randrange(4)) for _ in range(source.randrange(6))]
        return {key: random_value(source, depth + 1) for key in keys}
    return source.choice(TEXTS + NUMBERS)


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
        return json.dumps(await large_messages._Parser(data).parse())
    except ValueError:
        return "refused"


def at_once(data: bytes) -> str:
    try:
        return json.dumps(from_json(data))
    except ValueError:
        return "refused"


@pytest.mark.parametrize("seed", range(8))
async def test_pieces_of_any_size_give_what_the_whole_gives(monkeypatch, seed):
    source = random.Random(seed)
    refused = 0
    for _ in range(100):
        monkeypatch.setattr(large_messages, "_PIECE", source.choice([1, 4, 16, 64]))
        monkeypatch.setattr(large_messages, "_WINDOW", source.choice([2, 3, 8, 50]))
        value = [random_value(source) for _ in range(source.randrange(30))]
        whole = json.dumps(value, ensure_ascii=source.random() < 0.5, indent=source.choice([None, 1])).encode()
        for data in (whole, damaged(source, whole), damaged(source, whole)):
            expected = at_once(data)
            assert await in_pieces(data) == expected, data
            refused += expected == "refused"
    assert refused > 50


def dense(items: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}", "tags": ["a", "b"]} for number in range(items)]


@pytest.mark.parametrize("as_text", [False, True], ids=["bytes", "text"])
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 5, "result": {"content": dense(40_000), "_meta": {"a": 1}}},
        {"jsonrpc": "2.0", "id": "own", "result": {"text": "a, [b]" * 500_000}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": -1, "message": "no", "data": dense(40_000)}},
        {"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {"messages": dense(40_000)}},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": dense(40_000)}},
    ],
    ids=["result", "long text", "error", "request", "notification"],
)
async def test_a_large_message_is_what_the_sdk_reads(monkeypatch, message, as_text):
    data: Any = json.dumps(message).encode()
    expected = jsonrpc_message_adapter.validate_json(data, by_name=False)
    assert is_large(data)
    sizes: list[int] = []
    monkeypatch.setattr(large_messages, "from_json", lambda part: sizes.append(len(part)) or from_json(part))
    read = await parse_large(data.decode() if as_text else data)
    assert type(read) is type(expected)
    assert read == expected
    if "text" not in message.get("result", {}):
        assert max(sizes) < 2 * large_messages._PIECE  # otherwise the others wait too long


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_message_that_is_not_large_is_what_the_sdk_reads(size):
    data = json.dumps({"jsonrpc": "2.0", "id": 5, "result": {"content": dense(size)}}).encode()
    assert not is_large(data)
    assert parse(data) == jsonrpc_message_adapter.validate_json(data, by_name=False)


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(dense(40_000)),
        json.dumps({"result": {"content": dense(40_000)}}),
        json.dumps({"jsonrpc": "2.0", "id": 5, "result": {"content": dense(40_000)}})[:-1],
        '{"jsonrpc":"2.0","id":5,"result":' + "[" * 300 + json.dumps(dense(40_000)) + "]" * 300 + "}",
    ],
    ids=["batch", "no version", "cut", "deep"],
)
async def test_what_is_no_message_is_refused(data):
    with pytest.raises(ValueError):
        await parse_large(data)


@pytest.mark.parametrize(
    ("text", "is_answer"),
    [
        ('{"jsonrpc":"2.0","id":5,"result":{"a":"method"}}', True),
        ('{"jsonrpc":"2.0","id":5,"result":{"method":5', True),
        ('{"a":[' + "1," * 5000 + '1],"jsonrpc":"2.0","id":5,"result":{}}', True),
        ('{"error":{"code":5},"id":5', True),
        ('{"jsonrpc":"2.0","id":5,"method":"ping","params":{}}', False),
        ('{"params":{"a":"' + "x" * 5000 + '"},"method":"ping"}', False),
    ],
)
def test_an_answer_is_told_from_a_request_by_its_beginning(text, is_answer):
    assert is_certainly_answer(text) is is_certainly_answer(text.encode()) is is_answer


async def test_the_result_of_a_task_is_validated_in_pieces_too():
    client = StdioServerInfo("python").create_client()
    content = [{"type": "text", "text": str(number)} for number in range(5000)]
    read = await client.task_result("search", {"content": content, "structuredContent": {"rows": [[1]] * 5000}})
    assert [block.text for block in read.content] == [block["text"] for block in content]
    assert len(read.structured_content["rows"]) == 5000
    content[4000] = {"type": "text", "text": 5}
    with pytest.raises(ValidationError, match=r"content\.4000\."):
        await client.task_result("search", {"content": content})
    content[4000] = {"type": "text", "text": "5", "_meta": {"rows": [1] * 60_000}}
    with pytest.raises(RuntimeError, match="item 4001 of the server's answer has more than 10,000 values"):
        await client.task_result("search", {"content": content})


def test_only_a_result_is_marked():
    data = json.dumps({"jsonrpc": "2.0", "id": 5, "result": {"content": dense(10_000)}})
    message = parse(data)
    assert isinstance(message, types.JSONRPCResponse)
    assert isinstance(message.result, large_messages.LargeResult)


async def test_what_contains_nothing_large_is_passed_by_as_a_whole(monkeypatch):
    opened: list[int] = []

    class Counted(large_messages._Container):
        def __post_init__(self) -> None:
            opened.append(self.start)

    monkeypatch.setattr(large_messages, "_Container", Counted)
    data = json.dumps([[number, {"id": "a, [b]"}] for number in range(10_000)]).encode()
    assert await large_messages._Parser(data).parse() == from_json(data)
    assert len(opened) < 11_000  # not the objects, only the arrays around them
