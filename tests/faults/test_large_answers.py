# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Answers of megabytes and of tens of thousands of values arrive whole, or fail their own call alone.

How large one may be is in `test_unreadable_answers.py`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPHandlers,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPServerInfo,
    MCPTool,
    MCPToolset,
)
from haystack_integrations.tools.mcp.convert.results import model_text
from tests.faults.conftest import RawServer
from tests.support.background import text
from tests.support.waiting import LIMIT, wait_until

WAYS = ["stdio", "sse", "json", "events"]
ROWS = [{"id": number, "name": f"n{number}"} for number in range(60_000)]
LONG_TEXT = "line\n" * 200_000 + "\u6f22" * 200_000 + "\U0001f600" * 100_000

two_ways = pytest.mark.parametrize("way", ["stdio", "events"])


def answer(result: dict[str, Any], *, id_last: bool = False) -> str:
    result_json = f'"result":{json.dumps(result)}'
    return f'{{"jsonrpc":"2.0",{result_json},"id":$ID}}' if id_last else f'{{"jsonrpc":"2.0","id":$ID,{result_json}}}'


def blocks(count: int) -> list[dict[str, Any]]:
    return [{"type": "text", "text": f"block {number}"} for number in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_a_large_answer_arrives_whole(shared_raw_server, way):
    result = {"content": blocks(30_000), "structuredContent": {"rows": ROWS}, "_meta": {"rows": ROWS[:5]}}
    long_block = json.dumps({"type": "text", "text": LONG_TEXT}, ensure_ascii=False).encode().decode("latin-1")
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        for id_last in (False, True):
            read = connection.call_tool("say", {"raw": answer(result, id_last=id_last)})
            assert [block.text for block in read.content] == [block["text"] for block in result["content"]]
            assert (read.structured_content, read.meta) == (result["structuredContent"], result["_meta"])
        raw = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[' + long_block + "]}}"
        assert text(connection.call_tool("say", {"raw": raw})) == LONG_TEXT


def test_a_large_result_reaches_the_caller_and_the_model_whole(shared_raw_server):
    result = {"content": [], "structuredContent": {"rows": ROWS, "text": LONG_TEXT}}
    with MCPTool("say", server_info=shared_raw_server("stdio"), invocation_timeout=LIMIT) as tool:
        envelope = tool.invoke(raw=answer(result))
    assert json.loads(envelope)["structuredContent"] == result["structuredContent"]
    assert json.loads(model_text(envelope)) == result["structuredContent"]


@two_ways
def test_a_large_answer_that_cannot_be_read_fails_its_call_at_once(shared_raw_server, way):
    raw = answer({"content": blocks(60_000)})
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match="the server's answer could not be read"):
            connection.call_tool("say", {"raw": raw[:-1]})
        assert text(connection.call_tool("fine")) == "fine"


def test_of_a_large_error_both_ends_are_told(shared_raw_server):
    with MCPConnection(shared_raw_server("stdio"), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPInvocationError) as caught:
            connection.call_tool("say", {"raw": answer({"content": blocks(30_000), "isError": True})})
        said = str(caught.value)
        assert "block 0\nblock 1\n" in said
        assert "characters in all ...]" in said
        assert said.endswith("block 29998\nblock 29999")
        assert len(said) < 11_000


@two_ways
def test_a_large_notification_before_an_answer_arrives(shared_raw_server, way):
    logged = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": ROWS}}
    between = "\n" if way == "stdio" else "\r\revent: message\rdata: "
    data: list[Any] = []
    handlers = MCPHandlers(logging=lambda message: data.append(message.data))
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT, handlers=handlers) as connection:
        raw = json.dumps(logged) + between + answer({"content": blocks(1)})
        assert text(connection.call_tool("say", {"raw": raw})) == "block 0"
        wait_until(lambda: data == [ROWS], "the notification")


@pytest.fixture(params=["stdio", "json"])
def answering(request: pytest.FixtureRequest, raw_server: RawServer, tmp_path: Path) -> Callable[..., MCPServerInfo]:
    """
    Says how to reach a server that gives certain results: `answering({"tools/list": {...}})`.
    """

    def describe(results: dict[str, dict[str, Any]]) -> MCPServerInfo:
        initialized = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
        path = tmp_path / "results.json"
        path.write_text(json.dumps({"initialize": initialized, "tools/list": {"tools": []}, **results}))
        return raw_server(request.param, "--results", str(path))

    return describe


def numbered(count: int, **fields: str) -> list[dict[str, Any]]:
    return [{name: f"{value}{number}" for name, value in fields.items()} for number in range(count)]


def test_a_task_in_place_of_a_long_result_is_followed(answering):
    discovered = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
        "serverInfo": {"name": "raw", "version": "1"},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    listed = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}
    moment = "2026-01-01T00:00:00Z"
    task = {"taskId": "1", "createdAt": moment, "lastUpdatedAt": moment, "ttlMs": 60_000, "pollIntervalMs": 10}
    results: dict[str, Any] = {
        "initialize": {"protocolVersion": "2026-07-28"},  # which has no handshake
        "server/discover": discovered,
        "tools/list": listed,
        # No server should, but this one sends content with its task.
        "tools/call": {**task, "resultType": "task", "status": "working", "content": blocks(10_000)},
        "tasks/get": {**task, "resultType": "complete", "status": "completed", "result": {"content": blocks(1)}},
    }
    with MCPConnection(answering(results), invocation_timeout=LIMIT) as connection:
        assert text(connection.call_tool("any")) == "block 0"


def test_many_tools_and_names_of_any_length_are_listed_or_left_out(answering, caplog):
    good = {"inputSchema": {"type": "object"}}
    tools = [{**good, **each} for each in numbered(3000, name="t")]
    tools += [{**good, "name": name} for name in ("n" * 1001, "m" * 1000)]
    with MCPToolset(answering({"tools/list": {"tools": tools}})) as toolset:
        assert len(toolset) == 3001
    assert "its name has more than 1,000 characters" in caplog.text


def test_everything_else_that_is_read_comes_whole(answering):
    results: dict[str, Any] = {
        "resources/list": {
            "resources": numbered(3000, uri="x://", name="resource "),
            "ttlMs": "of a later revision",
        },
        "resources/templates/list": {"resourceTemplates": numbered(3000, uriTemplate="x://{a}/", name="template ")},
        "resources/read": {"contents": numbered(3000, uri="x://", text="text "), "_meta": {"a": 1}},
        "prompts/list": {"prompts": numbered(3000, name="prompt with a name of more than forty letters ")},
        "prompts/get": {"messages": [{"role": "user", "content": each} for each in blocks(3000)]},
    }
    with MCPConnection(answering(results), invocation_timeout=LIMIT) as connection:
        resources, templates = connection.list_resources(), connection.list_resource_templates()
        contents, prompts = connection.read_resource("x://0"), connection.list_prompts()
        prompt = connection.get_prompt("prompt")
        raw = {method: connection.request(method) for method in results}
    assert [each.name for each in resources] == [f"resource {number}" for number in range(3000)]
    assert [each.name for each in templates] == [f"template {number}" for number in range(3000)]
    assert [each.text for each in contents.contents] == [f"text {number}" for number in range(3000)]
    assert contents.meta == {"a": 1}
    assert len({each.name for each in prompts}) == 3000
    assert [each.content.text for each in prompt.messages] == [f"block {number}" for number in range(3000)]
    del results["resources/list"]["ttlMs"]
    assert raw == results
