# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which request a broken message answers: a call fails only if that is certain.
"""

from haystack_integrations.tools.mcp.convert.odd_messages import Unreadable, read_messages, unreadable_for_its_size
from tests.support.rows import rows

RESULT = {"jsonrpc": "2.0", "id": 5, "result": {}}
DEEP = "[" * 300 + "]" * 300


@rows(
    ("text", "request_id"),
    ('{"jsonrpc":"2.0","id":5,"result":' + DEEP, 5),
    ('{"result":{"id":6,"x":' + DEEP + '},"jsonrpc":"2.0","id":5}', 5),
    ('{"result":[' + "{}," * 200_000 + 'bad],"jsonrpc":"2.0","id":5}', 5),
    ('{"jsonrpc":"2.0","result":{"a":{"id":5}', None),
    ('{"jsonrpc":"2.0","result":[' + "{}," * 200_000 + '{"a":1,"id":5}', None),
    ('{"jsonrpc":"2.0","id":5', None),
    ('{"jsonrpc":"2.0","id":5,"method":"ping","params":' + DEEP + "}", None),
    ('{"level":"error","id":5,"error":"x"}', None),
    ("id: 5", None),
)
def test_an_id_is_found_only_where_it_is_certain(text, request_id):
    assert [answer.id for answer in read_messages(text) if isinstance(answer, Unreadable)] == (
        [] if request_id is None else [request_id]
    )


def test_a_text_of_only_quotes_is_searched_in_linear_time():
    assert len(read_messages('{"jsonrpc":"2.0","id":5,"result":"' + '\\"' * 500_000)) == 1


@rows(
    ("head", "tail", "request_id"),
    (b'{"jsonrpc":"2.0","id":5,"result":{"a":"xxx', b"", 5),
    (b'{"result":{"a":"xxx', b'xxx"},"jsonrpc":"2.0","id":5}', 5),
    (b'{"result":{"a":"xxx', b'xxx"},"jsonrpc":"2.0","id":5', None),
    (b'{"jsonrpc":"2.0","method":"x","params":"xxx', b'xxx","id":5}', None),
    (b"downloading ......", b"......", None),
)
def test_an_answer_that_is_too_large_is_recognized_by_its_beginning_and_end(head, tail, request_id):
    answer = unreadable_for_its_size(head + b"x" * 1000 + tail, 1000)
    assert (answer and answer.id) == request_id


@rows("text", '{"jsonrpc":"2.0","id":true,"method":"x"}', '{"jsonrpc":"2.0","id":5,"method":7}')
def test_messages_that_are_not_requests_are_skipped(text):
    assert read_messages(text) == []


@rows(
    ("error", "code", "message"),
    ('{"code":"ENOENT","message":"y"}', -32603, "y"),
    ('{"code":5}', 5, '{"code": 5}'),
    ('{"message":{"why":"y"}}', -32603, '{"why": "y"}'),
    ('"y"', -32603, "y"),
)
def test_an_error_of_an_odd_shape_is_read_as_far_as_possible(error, code, message):
    [answer] = read_messages(f'{{"jsonrpc":"2.0","id":5,"error":{error}}}')
    assert (answer["error"]["code"], answer["error"]["message"]) == (code, message)
