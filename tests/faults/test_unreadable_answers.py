# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Answers that nobody can read, or that are too large: mended, or the call fails at once and says that it may have run.
"""

import json
import tracemalloc

import httpx2
import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPOutcomeUnknownError,
)
from tests.support.background import in_thread, text
from tests.support.kinds import LONG
from tests.support.rows import rows
from tests.support.waiting import LIMIT

WAYS = ["stdio", "sse", "json", "events"]


def result(content: str, request: str = "$ID") -> str:
    return f'{{"jsonrpc":"2.0","id":{request},"result":{{"content":[{{"type":"text","text":"{content}"}}]}}}}'


@rows(
    ("raw", "said"),
    [
        (result(r"half \ud83d"), "half \ufffd"),
        (result(r"\ude00\ud83d\ud83d\ude00\\ud83d"), "\ufffd\ufffd\U0001f600\\ud83d"),
        (result("bytes \xff\xfe"), "bytes \ufffd\ufffd"),
        (result("a raw \t tab"), "a raw \t tab"),
        ("\xef\xbb\xbf" + result("a mark"), "a mark"),
        (result("a number that is none: 5.0", "$ID.0"), "a number that is none: 5.0"),
        (f"[{result('a batch')}]", "a batch"),
    ],
    ids=["half", "halves", "bytes", "tab", "mark", "float", "batch"],
)
@pytest.mark.parametrize("way", WAYS)
def test_broken_text_is_mended(shared_raw_server, way, raw, said):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        assert text(connection.call_tool("say", {"raw": raw})) == said


DEEP = "[" * 300 + "]" * 300


@rows(
    "raw",
    [
        result('", "deep": ' + DEEP + ', "a": "'),
        '{"result":{"deep":' + DEEP + '},"jsonrpc":"2.0","id":$ID}',
        result('", "huge": ' + "9" * 5000 + ', "a": "'),
        result('a quote " too many'),
        result("cut")[:-5],
        '{"jsonrpc":"2.0","id":$ID}',
        '{"jsonrpc":"2.0","id":$ID,"result":[]}',
        '{"jsonrpc":"2.0","id":$ID,"error":"broken"}',
        '{"id":$ID,"result":{"content":[]}}',
    ],
    ids=["deep", "id last", "huge", "quote", "cut", "neither", "list", "error", "no version"],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_call_whose_answer_cannot_be_read_fails_alone_and_at_once(shared_raw_server, way, raw):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match=r"answer .* may have run"):
            connection.call_tool("say", {"raw": raw})
        assert text(connection.call_tool("fine")) == "fine"
        assert connection.status().sessions == 1


@rows("request_id", ["4711", "null", '"other"'])
def test_a_json_body_with_another_id_than_its_request_fails_the_call_at_once(shared_raw_server, request_id):
    with MCPConnection(shared_raw_server("json"), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match="may have run"):
            connection.call_tool("say", {"raw": result("yours", request_id)})


def test_a_body_without_an_answer_fails_the_call_at_once(shared_raw_server):
    raw = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
    with (
        MCPConnection(shared_raw_server("json"), invocation_timeout=LONG) as connection,
        pytest.raises(MCPOutcomeUnknownError, match="may have run"),
    ):
        connection.call_tool("say", {"raw": raw})


@pytest.mark.parametrize("way", WAYS)
def test_an_id_as_a_string_is_the_same_id(shared_raw_server, way):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        assert text(connection.call_tool("say", {"raw": result("fine", '"$ID"')})) == "fine"


@pytest.mark.parametrize("way", WAYS)
def test_broken_text_in_a_definition_does_not_cost_the_connection(raw_server, way):
    tools = json.dumps([{"name": "fine", "description": "HALF and BYTE", "inputSchema": {"type": "object"}}])
    listing = tools.replace("HALF", r"\ud83d").replace("BYTE", "\xe9")
    with MCPConnection(raw_server(way, "--listing", listing), connection_timeout=LIMIT) as connection:
        assert connection.list_tools()[0].description == "\ufffd and \ufffd"


def test_lines_that_are_no_answers_fail_no_call(shared_raw_server):
    noise = ['{"level":"info","id":$ID,"msg":}', '{"jsonrpc":"2.0","id":$ID,"method":"x","params":}', "ready", "[1]"]
    with MCPConnection(shared_raw_server("stdio"), invocation_timeout=LIMIT) as connection:
        assert text(connection.call_tool("say", {"raw": "\n".join([*noise, result("fine")])})) == "fine"


LIMIT_SIZE = 100_000
# Where the id comes first and where it comes last.
LARGE = {"id first": result("$FILL"), "id last": '{"result":{"content":[],"x":"$FILL"},"jsonrpc":"2.0","id":$ID}'}
TOO_LARGE = r"larger than `max_message_size` .* 100,000 bytes.* may have run"


@pytest.mark.parametrize("raw", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("way", ["stdio", "json", "events"])
def test_an_answer_that_is_too_large_fails_its_call_alone(raw_server, way, raw):
    info = raw_server(way, max_message_size=LIMIT_SIZE)
    with MCPConnection(info, invocation_timeout=LONG) as connection:
        other = in_thread(connection.call_tool, "wait")
        with pytest.raises(MCPOutcomeUnknownError, match=TOO_LARGE):
            connection.call_tool("say", {"raw": raw, "fill": 150_000})
        connection.call_tool("release")
        assert text(other.result(timeout=LIMIT)) == "wait"
        assert len(text(connection.call_tool("say", {"raw": result("$FILL"), "fill": 90_000}))) == 90_000
        assert connection.status().sessions == 1


def test_an_event_of_sse_that_is_too_large_ends_the_session(shared_raw_server):
    with MCPConnection(shared_raw_server("sse", max_message_size=LIMIT_SIZE), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match=TOO_LARGE):
            connection.call_tool("say", {"raw": result("$FILL"), "fill": 150_000})
        assert text(connection.call_tool("fine")) == "fine"


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_never_ends_fails_its_call(raw_server, way):
    with MCPConnection(raw_server(way, max_message_size=LIMIT_SIZE), invocation_timeout=LONG) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match=r"`max_message_size`.* may have run"):
            connection.call_tool("say", {"raw": '{"jsonrpc":"2.0","result":"', "endless": True})
        if way != "stdio":
            assert text(connection.call_tool("fine")) == "fine"


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_of_several_megabytes_fits_by_default(shared_raw_server, way):
    with MCPConnection(shared_raw_server(way), invocation_timeout=LIMIT) as connection:
        assert len(text(connection.call_tool("say", {"raw": result("$FILL"), "fill": 5_000_000}))) == 5_000_000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("way", ["json", "events"])
def test_a_compressed_answer_is_measured_as_it_is_decompressed(shared_raw_server, way, encoding):
    if encoding not in httpx2.Client().headers["accept-encoding"]:
        pytest.skip("the client has no library for this encoding here")
    info = shared_raw_server(way, max_message_size=2_000_000)
    with MCPConnection(info, invocation_timeout=LONG) as connection:
        assert text(connection.call_tool("say", {"raw": result("fine"), "encoding": encoding})) == "fine"
        tracemalloc.start()
        try:
            with pytest.raises(MCPOutcomeUnknownError, match="`max_message_size`"):
                connection.call_tool("say", {"raw": result("$FILL"), "fill": 200_000_000, "encoding": encoding})
            assert tracemalloc.get_traced_memory()[1] < 50_000_000
        finally:
            tracemalloc.stop()
        assert text(connection.call_tool("fine")) == "fine"


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("http://other.invalid:1/messages", r"another origin, http://other\.invalid:1,"),
        ("https://127.0.0.1/messages", "another origin"),
        ("none", "ended before the server named an endpoint"),
    ],
)
def test_an_sse_server_without_a_valid_endpoint_fails_the_connect_at_once(raw_server, endpoint, says):
    info = raw_server("sse", "--endpoint", endpoint)
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=says):
        connection.open()
    connection.close()
