# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Large messages: read in pieces, to what the SDK reads.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import MCPError, types
from mcp.types import jsonrpc_message_adapter
from pydantic_core import from_json

from haystack_integrations.tools.mcp import StdioServerInfo
from haystack_integrations.tools.mcp.client import large_messages
from haystack_integrations.tools.mcp.client.large_messages import is_large, parse, parse_large
from haystack_integrations.tools.mcp.client.large_results import check_handshake
from haystack_integrations.tools.mcp.client.messages import is_certainly_answer
from haystack_integrations.tools.mcp.convert import parse_json


def dense(items: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}", "tags": ["a", "b"]} for number in range(items)]


@pytest.mark.parametrize("as_text", [False, True], ids=["bytes", "text"])
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 5, "result": {"content": dense(40_000), "_meta": {"a": 1}}},
        {"jsonrpc": "2.0", "id": "own", "result": {"text": "a, [b]" * 500_000}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": -1, "message": "no", "data": dense(40_000)}},
        {"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {"messages": ["m" * 2_000_000]}},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": dense(40_000)}},
    ],
    ids=["result", "long text", "error", "request", "notification"],
)
async def test_a_large_message_is_what_the_sdk_reads(monkeypatch, message, as_text):
    data: Any = json.dumps(message).encode()
    expected = jsonrpc_message_adapter.validate_json(data, by_name=False)
    assert is_large(data)
    sizes: list[int] = []
    monkeypatch.setattr(parse_json, "from_json", lambda part: sizes.append(len(part)) or from_json(part))
    read = await parse_large(data.decode() if as_text else data)
    assert type(read) is type(expected)
    assert read == expected
    assert max(sizes) < 2 * parse_json._PIECE  # otherwise the others wait too long


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
    assert (await client.task_result("search", {"content": content})).content[4000].text == "5"
    content[4000] = {"type": "text", "text": "5", "_meta": {"rows": [1] * 60_000}}
    with pytest.raises(RuntimeError, match="item 4001 of the server's answer has more than 10,000 values"):
        await client.task_result("search", {"content": content})


async def test_a_request_of_a_server_with_too_many_values_comes_without_them(caplog):
    request = {"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {"messages": dense(5000)}}
    for read in (parse(json.dumps(request)), await parse_large(json.dumps(request))):
        assert read == types.JSONRPCRequest(jsonrpc="2.0", id=5, method="sampling/createMessage", params=None)
    assert caplog.text.count("Refused a request of an MCP server for sampling/createMessage") == 2
    parse(json.dumps({**request, "method": "\x1b[2Jsecret"}))
    assert "Refused a request of an MCP server for an unknown method" in caplog.text
    assert "secret" not in caplog.text


def test_a_message_of_many_small_arrays_is_large_too():
    assert is_large('{"jsonrpc":"2.0","id":5,"result":{"a":[' + "[]," * 60_000 + "[]]}}")
    assert not is_large('{"jsonrpc":"2.0","id":5,"result":{"a":[' + "1," * 60_000 + "1]}}")


def test_only_a_result_is_marked():
    data = json.dumps({"jsonrpc": "2.0", "id": 5, "result": {"content": dense(10_000)}})
    message = parse(data)
    assert isinstance(message, types.JSONRPCResponse)
    assert isinstance(message.result, large_messages.LargeResult)


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_a_handshake_with_too_many_values_is_not_given_to_the_sdk(method):
    capabilities = {"experimental": {"a": {"b": [1] * 60_000}}}

    class Dispatcher:
        async def send_raw_request(self, _method: str) -> dict[str, Any]:
            return large_messages.LargeResult({"capabilities": capabilities})

    session: Any = SimpleNamespace(_dispatcher=Dispatcher(), send_request=None)
    check_handshake(session)
    with pytest.raises(MCPError, match="`capabilities` of the server's answer has more than 10,000 values"):
        await session._dispatcher.send_raw_request(method)
    assert await session._dispatcher.send_raw_request("another") == {"capabilities": capabilities}
