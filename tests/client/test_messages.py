# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which request a broken message answers: only what is certain fails a call.
"""

import json
import random
import re

import pytest
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError

from haystack_integrations.tools.mcp.client.messages import is_no_answer, oversized_answer, read_damaged
from haystack_integrations.tools.mcp.transports.stdio.lines import LineBuffer, OversizedLine
from tests.support.rows import rows

DEEP = "[" * 300 + "]" * 300


def damaged(text: str) -> list:
    with pytest.raises(ValidationError) as error:
        jsonrpc_message_adapter.validate_json(text, by_name=False)
    return read_damaged(text, error.value)


@rows(
    ("text", "request_id"),
    [
        ('{"jsonrpc":"2.0","id":5,"result":' + DEEP, 5),
        ('{"jsonrpc":"2.0","id":"own","result":' + DEEP, "own"),
        ('{"result":{"id":6,"x":' + DEEP + '},"jsonrpc":"2.0","id":5}', 5),
        ('{"result":[' + "{}," * 200_000 + 'bad],"jsonrpc":"2.0","id":5}', 5),
        ('{"jsonrpc":"2.0","result":{"a":{"id":5}', None),
        ('{"jsonrpc":"2.0","result":[' + "{}," * 200_000 + '{"a":1,"id":5}', None),
        ('{"jsonrpc":"2.0","id":5', None),
        ('{"jsonrpc":"2.0","id":5,"method":"ping","params":' + DEEP + "}", None),
        ('{"level":"info","id":5,"msg":}', None),
        ('{"level":"error","id":5,"error":"x"}', None),
        ('{"id":5}', None),
        ("id: 5", None),
        ("5", None),
    ],
)
def test_an_id_is_found_only_where_it_is_certain(text, request_id):
    assert [message.id for message in damaged(text)] == ([] if request_id is None else [request_id])


@rows("first", ['"jsonrpc":"2.0","id":5,"result"', '"result"'], ids=["id-first", "id-last"])
@rows(
    "content",
    ['"' + "x" * 2_000_000 + '\\ud83d"', "[" + "[1]," * 100_000 + "1]"],
    ids=["text", "values"],
)
def test_a_large_message_is_not_mended_but_its_request_is_found(first, content):
    end = "" if "id" in first else ',"id":5,"jsonrpc":"2.0"'
    [answer] = damaged('{%s:{"a":"\t","b":%s}%s}' % (first, content, end))  # noqa: UP031
    assert answer.id == 5
    assert "too large to be mended" in answer.error.message


def test_a_text_of_quotes_alone_is_searched_in_linear_time():
    assert len(damaged('{"jsonrpc":"2.0","id":5,"result":"' + '\\"' * 500_000)) == 1


@rows(
    ("head", "tail", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":{"a":"xxx', b"", 5),
        (b'{"result":{"a":"xxx', b'xxx"},"jsonrpc":"2.0","id":5}', 5),
        (b'{"result":{"a":"xxx', b'xxx"},"id":5,"jsonrpc":"2.0"}', 5),
        (b'{"result":{"a":"xxx', b"", None),
        (b'{"result":{"a":"xxx', b'xxx"},"jsonrpc":"2.0","id":5', None),
        (b'{"jsonrpc":"2.0","method":"x","params":"xxx', b'xxx","id":5}', None),
        (b"downloading ......", b"......", None),
    ],
)
def test_an_answer_that_is_too_large_is_known_by_its_ends(head, tail, request_id):
    answer = oversized_answer(head, tail, 1000)
    assert (answer and answer.id) == request_id
    assert is_no_answer(head) is (b"method" in head)


class TestLines:
    def test_those_within_the_limit_come_whole(self):
        lines = LineBuffer(10)
        assert lines.feed(b"0123456789\n01234") == [b"0123456789"]
        assert lines.feed(b"56789") == []
        assert lines.feed(b"\n\n") == [b"0123456789", b""]

    def test_one_that_begins_like_an_answer_is_reported_at_once_and_its_rest_discarded(self):
        lines = LineBuffer(100)
        head = b'{"jsonrpc":"2.0","id":5,"result":"' + b"x" * 100
        assert lines.feed(head) == [OversizedLine(head, b"", 100)]
        assert [lines.feed(b"x" * 1000) for _ in range(20)] == [[]] * 20
        assert lines.feed(b"\nnext\n") == [b"next"]

    def test_one_that_does_not_is_reported_with_its_end(self):
        lines = LineBuffer(100)
        assert lines.feed(b"x" * 101) == []
        assert lines.feed(b"y" * 300 + b"\nnext\n") == [OversizedLine(b"x" * 101, b"y" * 256, 100), b"next"]

    def test_one_that_never_ends_is_reported_once(self):
        lines = LineBuffer(100)
        reports = [report for _ in range(200) for report in lines.feed(b"x" * 1000)]
        assert [report.tail for report in reports] == [b""]


@rows("seed", range(4))
def test_half_of_a_pair_is_replaced_wherever_it_stands(seed):
    source = random.Random(seed)
    tokens = [r"\ud83d", r"\uDE00", r"\\", r"\n", r"\u00e9", r"\"", "u", "d83d", "ude00", "x", "\U0001f600"]
    for _ in range(300):
        content = "".join(source.choices(tokens, k=source.randrange(12)))
        [message] = damaged('{"jsonrpc":"2.0","id":5,"result":{"a":"' + content + '","b":"\\ud83d"}}')
        expected = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(f'"{content}"'))
        assert message.result == {"a": expected, "b": "\ufffd"}, content


def test_a_text_of_very_many_halves_is_not_mended():
    [answer] = damaged('{"jsonrpc":"2.0","id":5,"result":{"a":"' + r"\ud83d " * 20_000 + '"}}')
    assert answer.id == 5
    assert "could not be read as JSON" in answer.error.message
