# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Answers of megabytes and of tens of thousands of values: other sessions are served while they are read.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from httpx2 import _sse
from mcp import types
from pydantic import TypeAdapter

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPHandlers,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPServerInfo,
    MCPTool,
    MCPToolResult,
    MCPToolset,
)
from haystack_integrations.tools.mcp.concurrency import Turns
from haystack_integrations.tools.mcp.convert.results import model_text
from tests.faults.conftest import RawServer
from tests.support.background import in_thread, text
from tests.support.waiting import LIMIT, wait_until

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")

WAYS = ["stdio", "sse", "json", "events"]
ROWS = [{"id": number, "name": f"n{number}"} for number in range(60_000)]


def answer(result: dict[str, Any], *, id_last: bool = False) -> str:
    result_json = f'"result":{json.dumps(result)}'
    return f'{{"jsonrpc":"2.0",{result_json},"id":$ID}}' if id_last else f'{{"jsonrpc":"2.0","id":$ID,{result_json}}}'


def blocks(count: int) -> list[dict[str, Any]]:
    return [{"type": "text", "text": f"block {number}"} for number in range(count)]


@pytest.fixture
def served_meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """
    Calls a tool of another session whenever an answer is being read: in each function that gives others a turn, at its
    first turn. The names of these functions are in the set once the call has returned.
    """
    served: set[str] = set()
    with MCPConnection(COUNTER) as other:
        other.call_tool("add", {"a": 1, "b": 2})

        async def give(turns: Turns) -> None:
            place = sys._getframe(1).f_code.co_name
            if place not in served:
                call = in_thread(other.call_tool, "add", {"a": 1, "b": 2})
                deadline = monotonic() + LIMIT
                while turns._in_loop and not call.done() and monotonic() < deadline:
                    await asyncio.sleep(0.001)
                call.result(0 if turns._in_loop else LIMIT)
                served.add(place)

        monkeypatch.setattr(Turns, "give", give)
        yield served


@pytest.mark.parametrize("id_last", [False, True], ids=["id first", "id last"])
@pytest.mark.parametrize("way", WAYS)
def test_other_sessions_are_served_while_an_answer_is_read(shared_raw_server, served_meanwhile, way, id_last):
    result = {"content": blocks(30_000), "structuredContent": {"rows": ROWS}, "_meta": {"rows": ROWS[:5]}}
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        connection.call_tool("fine")
        served_meanwhile.clear()
        read = connection.call_tool("say", {"raw": answer(result, id_last=id_last)})
    assert [block.text for block in read.content] == [block["text"] for block in result["content"]]
    assert (read.structured_content, read.meta) == (result["structuredContent"], result["_meta"])
    assert served_meanwhile >= {"_find_cuts", "_build_container", "_pieces", "_complete"}


LONG_TEXT = "line\n" * 200_000 + "\u6f22" * 200_000 + "\U0001f600" * 100_000


@pytest.mark.parametrize("ascii_only", [False, True], ids=["as it is", "escaped"])
@pytest.mark.parametrize("way", WAYS)
def test_other_sessions_are_served_while_one_long_text_is_read(shared_raw_server, served_meanwhile, way, ascii_only):
    block = json.dumps({"type": "text", "text": LONG_TEXT}, ensure_ascii=ascii_only).encode().decode("latin-1")
    raw = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[' + block + "]}}"
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        connection.call_tool("fine")
        served_meanwhile.clear()
        assert text(connection.call_tool("say", {"raw": raw})) == LONG_TEXT
    assert served_meanwhile >= {"_cut_string", "_build_string"}


@pytest.mark.parametrize("way", ["sse", "events"])
def test_an_event_stream_is_not_widened_by_a_single_character(shared_raw_server, monkeypatch, way):
    lines: list[str] = []
    decode = _sse._SSEEventDecoder.decode
    monkeypatch.setattr(
        _sse._SSEEventDecoder, "decode", lambda decoder, line: lines.append(line) or decode(decoder, line)
    )
    said = 'a "\U0001f600" and \\\u6f22'
    raw = answer({"content": [{"type": "text", "text": said}]}).encode().decode("latin-1")
    wide = raw.replace("\\ud83d\\ude00", "\U0001f600".encode().decode("latin-1"))
    assert wide != raw
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        assert text(connection.call_tool("say", {"raw": wide})) == said
    assert all(character < "\U00010000" for line in lines for character in line)


def test_other_sessions_are_served_while_a_large_result_is_written_and_read(shared_raw_server, served_meanwhile):
    result = {"content": [], "structuredContent": {"rows": ROWS, "text": LONG_TEXT}}
    with MCPTool("say", server_info=shared_raw_server("stdio"), invocation_timeout=LIMIT) as tool:
        tool.warm_up()
        envelope = tool.invoke(raw=answer(result))
        assert json.loads(envelope)["structuredContent"] == result["structuredContent"]
        assert served_meanwhile >= {"_write_members", "_write_string"}
        served_meanwhile.clear()
        assert json.loads(model_text(envelope)) == result["structuredContent"]
    assert served_meanwhile >= {"_encoded", "_find_cuts", "_build_container", "_write_members", "_write_string"}


@pytest.mark.parametrize("method", ["invoke_async", "call_async"])
async def test_a_large_result_is_converted_outside_of_the_callers_loop(shared_raw_server, monkeypatch, method):
    threads: list[threading.Thread] = []

    def noted(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert_noted(result: Any) -> Any:
            threads.append(threading.current_thread())
            return convert(result)

        return convert_noted

    monkeypatch.setattr(MCPToolResult, "from_result", noted(MCPToolResult.from_result))
    with MCPTool("say", server_info=shared_raw_server("stdio"), invocation_timeout=LIMIT) as tool:
        monkeypatch.setattr(tool, "_output", noted(tool._output))
        for count, is_large in ((100, False), (30_000, True)):
            await getattr(tool, method)(raw=answer({"content": blocks(count)}))
            assert (threads[-1] is not threading.current_thread()) is is_large


async def test_a_large_result_is_kept_if_no_thread_can_be_started(shared_raw_server, monkeypatch):
    start, refused = threading.Thread.start, []

    def no_worker(thread: threading.Thread) -> None:
        if thread.name == "haystack-mcp-worker":
            refused.append(thread)
            msg = "can't start new thread"
            raise RuntimeError(msg)
        start(thread)

    with MCPTool("say", server_info=shared_raw_server("stdio"), invocation_timeout=LIMIT) as tool:
        monkeypatch.setattr(threading.Thread, "start", no_worker)
        result = await tool.call_async(raw=answer({"content": blocks(30_000)}))
    assert len(result.content) == 30_000
    assert len(refused) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("result", "refusal"),
    [
        ({"content": blocks(60_000)}, "`content` of the server's answer has more than 50,000 arrays and objects"),
        ({"content": [], "structuredContent": {"a": [[]] * 200_000}}, "it has more than 150,000 arrays"),
    ],
    ids=["blocks", "arrays"],
)
def test_too_much_for_the_garbage_collector_fails_its_call_alone(shared_raw_server, way, result, refusal):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match=refusal):
            connection.call_tool("say", {"raw": answer(result)})
        assert text(connection.call_tool("fine")) == "fine"


@pytest.mark.parametrize("way", WAYS)
def test_a_result_is_validated_a_piece_at_a_time(shared_raw_server, monkeypatch, way):
    sizes: list[int] = []
    validate = TypeAdapter.validate_python

    def spy(adapter: TypeAdapter[Any], value: Any, **options: Any) -> Any:
        sizes.append(len(json.dumps(value, default=str)))
        return validate(adapter, value, **options)

    monkeypatch.setattr(TypeAdapter, "validate_python", spy)
    result = {"content": blocks(30_000), "structuredContent": {"rows": ROWS}}
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        read = connection.call_tool("say", {"raw": answer(result)})
    assert len(read.content) == 30_000
    assert len(sizes) > 300
    assert max(sizes) < 50_000


@pytest.mark.parametrize("way", WAYS)
def test_odd_blocks_among_many_are_told_in_their_places(shared_raw_server, way):
    content = blocks(30_000)
    content[20_000] = {"type": "video", "data": "x" * 100_000}
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        read = connection.call_tool("say", {"raw": answer({"content": content})}).content
        assert [block.text for block in read[19_999:20_002:2]] == ["block 19999", "block 20001"]
        assert read[20_000].text.startswith('[unsupported content: {"type": "video", "data": "xxx')
        assert len(read[20_000].text) < 1_100
        assert len(read) == 30_000
        nothing = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[' + ",".join(["{}"] * 20_000) + "]}}"
        read = connection.call_tool("say", {"raw": nothing}).content
        assert {block.text for block in read} == {"[unsupported content: {}]"}


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


@pytest.mark.parametrize(
    ("result", "part"),
    [
        ({"content": [*blocks(3), {**blocks(1)[0], "_meta": {"a": [1] * 60_000}}]}, "item 4"),
        ({"content": blocks(1), "strange": [1] * 60_000}, "`strange`"),
    ],
    ids=["block", "member"],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_part_with_too_many_values_fails_its_call_alone(shared_raw_server, way, result, part):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match=f"{part} of the server's answer has more than 10,000 values"):
            connection.call_tool("say", {"raw": answer(result)})
        assert text(connection.call_tool("fine")) == "fine"


@pytest.mark.parametrize("way", WAYS)
def test_of_an_error_of_many_blocks_both_ends_are_told(shared_raw_server, way):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPInvocationError) as caught:
            connection.call_tool("say", {"raw": answer({"content": blocks(30_000), "isError": True})})
    said = str(caught.value)
    assert "block 0\nblock 1\n" in said
    assert "block 399\n[... 29,200 more blocks ...]\nblock 29600" in said
    assert "block 29998\nblock 29999" in said


@pytest.mark.parametrize("way", WAYS)
def test_of_an_error_with_much_structured_content_only_the_text_is_told(shared_raw_server, way):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        for content, said in ((blocks(1), "block 0"), ([], "[structured content that is too large to be shown]")):
            failed = {"content": content, "structuredContent": {"rows": ROWS}, "isError": True}
            with pytest.raises(MCPInvocationError) as caught:
                connection.call_tool("say", {"raw": answer(failed)})
            assert str(caught.value).endswith(said)


@pytest.mark.parametrize("way", ["json"])
def test_an_answer_whose_result_comes_late_is_read_in_pieces(shared_raw_server, served_meanwhile, way):
    rest = json.dumps({"content": [], "structuredContent": {"method": ROWS}})
    raw = '{"jsonrpc":"2.0","id":$ID,"padding":"' + "x" * 5000 + '","result":' + rest + "}"
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        connection.call_tool("fine")
        served_meanwhile.clear()
        read = connection.call_tool("say", {"raw": raw})
    assert read.structured_content == {"method": ROWS}
    assert "_find_cuts" in served_meanwhile


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: raw.replace("block 7", r"\ud83d", 1)], ids=["cut", "half a character"]
)
@pytest.mark.parametrize("way", WAYS)
def test_a_large_answer_that_cannot_be_read_fails_its_call_at_once(shared_raw_server, way, damage):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match="the server's answer could not be read"):
            connection.call_tool("say", {"raw": damage(answer({"content": blocks(60_000)}))})
        assert text(connection.call_tool("fine")) == "fine"


@pytest.mark.parametrize("way", ["json", "events"])
def test_a_large_message_in_place_of_an_answer_fails_the_call_at_once(shared_raw_server, way):
    # Its method comes so late that it is taken for an answer.
    raw = '{"jsonrpc":"2.0","result":1,"id":77,"params":' + json.dumps({"rows": ROWS}) + ',"method":"ping"}'
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPInvocationError):
            connection.call_tool("say", {"raw": raw})
        assert text(connection.call_tool("fine")) == "fine"


@pytest.fixture(params=WAYS)
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


@pytest.mark.parametrize("way", ["stdio", "sse", "events"])
def test_a_large_notification_before_an_answer_is_read_in_pieces(shared_raw_server, served_meanwhile, way):
    logged = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": ROWS}}
    between = "\n" if way == "stdio" else "\r\revent: message\rdata: "
    data: list[Any] = []
    handlers = MCPHandlers(logging=lambda message: data.append(message.data))
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT, handlers=handlers) as connection:
        connection.call_tool("fine")
        served_meanwhile.clear()
        raw = json.dumps(logged) + between + answer({"content": blocks(1)})
        assert text(connection.call_tool("say", {"raw": raw})) == "block 0"
        wait_until(lambda: data == [ROWS], "the notification")
    assert served_meanwhile >= {"_find_cuts", "_build_container"}


def test_a_handshake_with_too_many_values_is_refused(answering):
    capabilities = {"tools": {}, "experimental": {"a": {"b": [1] * 60_000}}}
    initialized = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "raw", "version": "1"}}
    results = {"initialize": {**initialized, "capabilities": capabilities}}
    refusal = "`capabilities` of the server's answer has more than 10,000 values"
    with pytest.raises(MCPConnectionError, match=refusal), MCPConnection(answering(results)) as connection:
        connection.list_tools()


def test_completions_of_too_many_values_are_refused(answering):
    capabilities = {"tools": {}, "prompts": {}, "completions": {}}
    initialized = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "raw", "version": "1"}}
    results = {
        "initialize": {**initialized, "capabilities": capabilities},
        "completion/complete": {"completion": {"values": ["a"] * 60_000}},
    }
    with MCPConnection(answering(results)) as connection:
        with pytest.raises(MCPConnectionError, match="`completion` of the server's answer has more than 10,000 values"):
            connection.complete(types.PromptReference(name="prompt"), {"name": "a", "value": "b"})
        assert connection.list_tools() == []


def test_what_another_method_answers_may_have_any_number_of_values(answering):
    listed = {"rows": ROWS, "_meta": {"a": [1] * 20_000}}
    with MCPConnection(answering({"example/rows": listed}), invocation_timeout=LIMIT) as connection:
        assert connection.request("example/rows") == listed


class TestListings:
    def test_too_many_tools_are_refused(self, answering):
        tools = [{**each, "inputSchema": {"type": "object"}} for each in numbered(10_001, name="t")]
        with (
            pytest.raises(MCPConnectionError, match="it has more than 10,000 tools"),
            MCPToolset(answering({"tools/list": {"tools": tools}})) as toolset,
        ):
            toolset.warm_up()

    def test_other_sessions_are_served_while_many_tools_are_read(self, answering, served_meanwhile):
        tools = [{**each, "inputSchema": {"type": "object"}} for each in numbered(3000, name="t")]
        with MCPToolset(answering({"tools/list": {"tools": tools}})) as toolset:
            assert {tool.name for tool in toolset} == {tool["name"] for tool in tools}
        assert served_meanwhile >= {"read_page", "_complete"}

    def test_other_sessions_are_served_while_many_tools_are_left_out(self, answering, served_meanwhile):
        with MCPConnection(answering({"tools/list": {"tools": [{}] * 50}})) as connection:
            assert connection.list_tools() == []
        assert "_mend_page" in served_meanwhile

    def test_a_tool_with_too_many_values_is_left_out(self, answering, caplog):
        schema = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(30_000)}}
        tools = [{"name": "huge", "inputSchema": schema}, {"name": "good", "inputSchema": {"type": "object"}}]
        with MCPToolset(answering({"tools/list": {"tools": tools}})) as toolset:
            assert [tool.name for tool in toolset] == ["good"]
        assert "Left out tool 'huge'" in caplog.text
        assert "its definition has more than 5,000 values" in caplog.text

    def test_a_tool_with_too_many_invalid_values_is_left_out(self, answering, caplog):
        good = {"name": "good", "inputSchema": {"type": "object"}}
        tools = [{**good, "name": "odd", "icons": [{}] * 1500}, {**good, "icons": [{}] * 500}]
        with MCPToolset(answering({"tools/list": {"tools": tools}})) as toolset:
            assert [tool.name for tool in toolset] == ["good"]
        assert "Left out tool 'odd'" in caplog.text
        assert "more than 1,000 values of its definition are invalid" in caplog.text

    def test_a_tool_with_a_name_of_thousands_of_characters_is_left_out(self, answering, caplog):
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("n" * 1001, "m" * 1000)]
        with MCPToolset(answering({"tools/list": {"tools": tools}})) as toolset:
            assert len(toolset) == 1
        assert "its name has more than 1,000 characters" in caplog.text

    def test_everything_else_that_is_read_comes_whole(self, answering):
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
