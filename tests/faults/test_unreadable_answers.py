# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Answers that cannot be read or are too large are repaired, or the call fails at once and reports that it may have run.
Arguments that are not JSON are refused before anything is sent.
"""

import json
import tracemalloc

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from tests.support.background import in_thread, text
from tests.support.kinds import LONG, every_way
from tests.support.raw import raw_server
from tests.support.waiting import LIMIT

every_raw_way = pytest.mark.parametrize("way", ["stdio", "sse", "json", "events"])


def result(content: str, request: str = "$ID") -> str:
    return f'{{"jsonrpc":"2.0","id":{request},"result":{{"content":[{{"type":"text","text":"{content}"}}]}}}}'


MENDED = {
    result(r"half \ud83d"): "half \ufffd",
    result(r"\ude00\ud83d\ud83d\ude00\\ud83d"): "\ufffd\ufffd\U0001f600\\ud83d",
    result("bytes \xff\xfe"): "bytes \ufffd\ufffd",
    result("a raw \t tab"): "a raw \t tab",
    "\xef\xbb\xbf" + result("a mark"): "a mark",
    result("an id as a string", '"$ID"'): "an id as a string",
    result("a number that is none: 5.0", "$ID.0"): "a number that is none: 5.0",
    f"[{result('a batch')}]": "a batch",
    '{"jsonrpc":"2.0","id":$ID,"result":null}': "",  # as a handler in Go that returns nil
    '{"method":null,"error":"",' + result("members that it does not have")[1:]: "members that it does not have",
}
DEEP = "[" * 300 + "]" * 300
UNREADABLE = [
    result('", "deep": ' + DEEP + ', "a": "'),
    '{"result":{"deep":' + DEEP + '},"jsonrpc":"2.0","id":$ID}',
    result('", "huge": ' + "9" * 5000 + ', "a": "'),
    result('a quote " too many'),
    result("cut")[:-5],
    '{"jsonrpc":"2.0","id":$ID}',
    '{"jsonrpc":"2.0","id":$ID,"result":[1]}',
    '{"id":$ID,"result":{"content":[]}}',
]


@every_raw_way
def test_broken_text_is_repaired_and_an_unreadable_answer_fails_only_its_call_at_once(way):
    with MCPConnection(raw_server(way, failure_pause=None), invocation_timeout=LIMIT) as connection:
        for raw, said in MENDED.items():
            assert text(connection.call_tool("say", {"raw": raw})) == said
        for raw in UNREADABLE:
            with pytest.raises(MCPOutcomeUnknownError, match=r"answer .* may have run"):
                connection.call_tool("say", {"raw": raw})
            assert text(connection.call_tool("fine")) == "fine"
        assert connection.status().sessions == 1


@pytest.mark.parametrize(
    ("way", "raws"),
    [
        (
            "json",
            [
                *(result("yours", request) for request in ("4711", "null", '"other"')),
                '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}',
            ],
        ),
        ("events", ['{"type":"heartbeat"}']),
    ],
)
def test_a_response_without_the_answer_to_its_request_fails_the_call_at_once(way, raws):
    with MCPConnection(raw_server(way), invocation_timeout=LONG) as connection:
        for raw in raws:
            with pytest.raises(MCPOutcomeUnknownError, match="may have run"):
                connection.call_tool("say", {"raw": raw})
            assert text(connection.call_tool("fine")) == "fine"


NOISE = [
    '{"type":"heartbeat"}',
    '{"error":"none"}',
    '{"jsonrpc":"2.0"}',
    '{"jsonrpc":"2.0","method":"heartbeat"}',
    '{"level":"info","id":$ID,"msg":}',
    '{"jsonrpc":"2.0","id":$ID,"method":"x","params":}',
    "ready",
    "[1]",
    "null",
]
EVENTS = "".join(f"data: {line}\n\n" for line in NOISE)
EVENTS += ": a comment\n\nevent: ping\ndata: {}\n\nevent: endpoint-of-others\ndata: x\n\nid: 7\nretry: 10\n\ndata:\n\n"


@pytest.mark.parametrize("way", ["stdio", "sse", "events"])
def test_messages_that_answer_no_request_are_ignored(way):
    fine = result("fine")
    raw = "\n".join([*NOISE, "", " ", fine]) if way == "stdio" else f"{EVENTS}data: {fine}\n\n"
    with MCPConnection(raw_server(way), invocation_timeout=LIMIT) as connection:
        for _ in range(2):
            assert text(connection.call_tool("say", {"raw": raw})) == "fine"
        assert connection.status().sessions == 1


PHP = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": [], "resources": [], "prompts": [], "experimental": []},
        "serverInfo": {"name": "php", "version": "8"},
        "_meta": [],
    },
    "tools/list": {
        "tools": [
            {"name": "fine", "inputSchema": [], "annotations": [], "_meta": [], "description": "half a \ud83d"},
        ]
    },
    "tools/call": {
        "content": [{"type": "video"}, {"type": "Text", "text": "called", "annotations": []}],
        "isError": None,
        "structuredContent": [],
        "resultType": None,
        "_meta": [],
    },
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "a", "_meta": []}]}, {"title": "odd"}]},
}
NEWEST = {
    "initialize": {"protocolVersion": "2026-07-28"},  # a revision without a handshake
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "capabilities": PHP["initialize"]["capabilities"],
        "_meta": [],
    },
}


@pytest.mark.parametrize(
    ("way", "era"), [("stdio", {}), ("events", {}), ("stdio", NEWEST)], ids=["stdio", "events", "2026"]
)
def test_empty_lists_in_place_of_objects_and_broken_text_are_read_in_every_answer(way, era, caplog):
    with MCPConnection(raw_server(way, {**PHP, **era}), connection_timeout=LIMIT) as connection:
        assert connection.capabilities == {"tools": {}, "resources": {}, "prompts": {}, "experimental": {}}
        assert [(tool.name, tool.description) for tool in connection.list_tools()] == [("fine", "half a \ufffd")]
        assert text(connection.call_tool("fine")) == '[unsupported content: {"type": "video"}]called'
        assert [prompt.name for prompt in connection.list_prompts()] == ["p"]
    assert "to prompts/list: number 2" in caplog.text


SMALL = {"max_message_size": 100_000}


@every_raw_way
def test_an_answer_that_is_too_large_fails_only_its_call(way):
    id_last = '{"result":{"content":[],"x":"$FILL"},"jsonrpc":"2.0","id":$ID}'
    with MCPConnection(raw_server(way, **SMALL), invocation_timeout=LONG) as connection:
        other = in_thread(connection.call_tool, "wait") if way != "sse" else None  # over SSE, it ends the session
        for raw in (result("$FILL"), id_last):
            with pytest.raises(MCPOutcomeUnknownError, match=r"`max_message_size` .* 100,000 bytes.* may have run"):
                connection.call_tool("say", {"raw": raw, "fill": 150_000})
        connection.call_tool("release")
        assert other is None or text(other.result(timeout=LIMIT)) == "wait"
        assert len(text(connection.call_tool("say", {"raw": result("$FILL"), "fill": 90_000}))) == 90_000
        assert way == "sse" or connection.status().sessions == 1
        if way != "sse":
            with pytest.raises(MCPOutcomeUnknownError, match=r"`max_message_size`.* may have run"):
                connection.call_tool("say", {"raw": '{"jsonrpc":"2.0","result":"', "endless": True})


@every_raw_way
def test_a_large_answer_arrives_completely(way):
    texts = [*map(str, range(3_000)), "line\n" * 20_000 + "\u6f22" * 20_000 + "\U0001f600" * 10_000]
    structured = {"rows": [{"id": number, "name": f"n{number}"} for number in range(6_000)]}
    content = [{"type": "text", "text": each} for each in texts]
    result_json = f'"result":{json.dumps({"content": content, "structuredContent": structured})}'
    with MCPConnection(raw_server(way), invocation_timeout=LIMIT) as connection:
        for members in (f'"id":$ID,{result_json}', f'{result_json},"id":$ID'):
            read = connection.call_tool("say", {"raw": f'{{"jsonrpc":"2.0",{members}}}'})
            assert [block.text for block in read.content] == texts
            assert read.structured_content == structured


def test_the_beginning_and_end_of_a_large_error_are_shown():
    lines = [{"type": "text", "text": f"block {number}"} for number in range(3_000)]
    raw = f'{{"jsonrpc":"2.0","id":$ID,"result":{json.dumps({"content": lines, "isError": True})}}}'
    with MCPConnection(raw_server("json"), invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPInvocationError, match=r"block 0\nblock 1\n(.|\n)*characters in all \.\.\.\]") as caught:
            connection.call_tool("say", {"raw": raw})
    assert str(caught.value).endswith("block 2998\nblock 2999")
    assert len(str(caught.value)) < 11_000


@pytest.mark.parametrize("way", ["json", "events"])
def test_the_size_of_a_compressed_answer_is_limited_during_decompression(way):
    with MCPConnection(raw_server(way, **SMALL), invocation_timeout=LONG) as connection:
        assert text(connection.call_tool("say", {"raw": result("fine"), "encoding": "gzip"})) == "fine"
        tracemalloc.start()
        try:
            with pytest.raises(MCPOutcomeUnknownError, match="`max_message_size`"):
                connection.call_tool("say", {"raw": result("$FILL"), "fill": 40_000_000, "encoding": "gzip"})
            # Only the server has copies of the text: two, before it compresses the text.
            assert tracemalloc.get_traced_memory()[1] < 110_000_000
        finally:
            tracemalloc.stop()
        assert text(connection.call_tool("fine")) == "fine"


SECRET = "sk-s3ntinel-4711"


@every_way
def test_the_error_names_an_argument_that_cannot_be_sent_and_other_calls_are_not_affected(proxied_peer, kind):
    server = proxied_peer(kind)
    with MCPConnection(server.reach(), invocation_timeout=60) as connection:
        for argument in (f"{SECRET}\ud83d", SECRET.encode() + b"\xff", {"deep": object()}):
            with pytest.raises(MCPInvocationError, match="argument 'text' cannot be sent as JSON") as raised:
                connection.call_tool("echo", {"text": argument})
            assert SECRET not in str(raised.value)
            assert "may have run" not in str(raised.value)
            with pytest.raises(MCPConnectionError, match="cannot be sent as JSON"):
                connection.request("some/thing", {"value": argument})
        connection.call_tool("echo", {"text": "hello"})
        assert connection.status().sessions == 1


def test_an_argument_that_can_be_read_only_once_reaches_the_server(stdio_server):
    server = stdio_server()
    with MCPConnection(server.info()) as connection:
        connection.call_tool("echo", {"text": (letter for letter in "ab")})
    assert server.log.events("echo") == [("echo", {"text": ["a", "b"]})]
