# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Event streams as servers write them, in pieces of every size.
"""

import pytest

from haystack_integrations.tools.mcp.transports.http.events import Event, EventDecoder, EventTooLargeError
from tests.support.rows import rows

LIMIT = 1000


def read(*pieces: bytes) -> tuple[list[Event], EventDecoder]:
    decoder = EventDecoder(LIMIT)
    return [event for piece in pieces for event in decoder.feed(piece)], decoder


def message(data: bytes) -> Event:
    return Event("message", data)


STREAMS = [
    (b"data: a\n\n", [message(b"a")], None, None),
    (b"data:a\r\n\r\n", [message(b"a")], None, None),
    (b"data: a\r\rdata: b\r\r", [message(b"a"), message(b"b")], None, None),
    (b"\xef\xbb\xbfdata: a\n\n", [message(b"a")], None, None),
    (b"\xef\xbb\xbf\n\xef\xbb\xbfdata: a\n\n", [], None, None),
    (b"data: a\ndata:\ndata:  b\n\n", [message(b"a\n\n b")], None, None),
    (b": alive\n\n:\n\n", [], None, None),
    (b"data\n\ndata:\n\n\n\n", [], None, None),
    (b"event: endpoint\ndata: /m\n\ndata: a\n\n", [Event("endpoint", b"/m"), message(b"a")], None, None),
    (b"id: 1\ndata: a\n\n", [message(b"a")], b"1", None),
    (b"id: 1\n\ndata: a\n\n", [message(b"a")], b"1", None),
    (b"id: 1\ndata: a\n\nid: x\0y\ndata: b\n\n", [message(b"a"), message(b"b")], b"1", None),
    (b"id: 1\n\nid: 2\ndata: cut", [], b"1", None),
    (b"id: 1\n\nid\n\n", [], b"", None),
    (b"retry: 1500\n\nretry: soon\n\nretry: -5\n\n", [], None, 1.5),
    (b"other: x\ndata: a\nnonsense\n\n", [message(b"a")], None, None),
    (b"data: a", [], None, None),
    (b"data: a\n", [], None, None),
    ("data: \u6f22\u2028\x0b\x85\n\n".encode(), [message("\u6f22\u2028\x0b\x85".encode())], None, None),
]


@rows(("stream", "events", "last_id", "retry"), STREAMS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_is_read_as_the_specification_says(
    stream: bytes, events: list[Event], last_id: bytes | None, retry: float | None, size: int
) -> None:
    found, decoder = read(*(stream[at : at + size] for at in range(0, len(stream), size)))
    assert (found, decoder.last_id, decoder.retry) == (events, last_id, retry)


def test_an_event_comes_with_the_end_of_its_last_line_whatever_follows() -> None:
    assert read(b"data: a\r\n\r")[0] == [message(b"a")]
    assert read(b"data: a\r\n\r", b"\ndata: b\n\n")[0] == [message(b"a"), message(b"b")]


@rows("stream", [b"data: " + b"x" * LIMIT, b":" + b"x" * LIMIT, b"data: 1\n" * 200, b"other: 1\n" * 200])
def test_what_is_too_large_is_not_kept(stream: bytes) -> None:
    with pytest.raises(EventTooLargeError):
        read(*(stream[at : at + 10] for at in range(0, len(stream), 10)))


def test_many_small_events_and_comments_are_not_too_large() -> None:
    assert len(read(*[b"data: " + b"x" * 500 + b"\n\n" + b": still there\n" * 50] * 100)[0]) == 100


def test_a_stream_that_is_opened_again_goes_on_from_its_last_event() -> None:
    _, decoder = read(b"id: 7\nretry: 20\ndata: a\n\ndata: cut off")
    again = decoder.anew()
    assert (again.last_id, again.retry) == (b"7", 0.02)
    assert list(again.feed(b"data: b\n\n")) == [message(b"b")]
    assert again.last_id == b"7"
