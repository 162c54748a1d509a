# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Event streams as servers write them, in pieces of every size.
"""

from collections.abc import AsyncIterator, Iterable

import httpx2
import pytest

from haystack_integrations.tools.mcp.transports.posting import HttpSender, TooLargeError
from tests.support.rows import rows

LIMIT = 1000
URL = httpx2.URL("https://mcp.test/mcp")


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def read(*pieces: bytes, content_type: str = "text/event-stream") -> list[tuple[str, str, str, int | None]]:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": content_type}, stream=Pieces(pieces))

    sender = HttpSender(httpx2.MockTransport(answer), headers={}, timeout={}, max_message_size=LIMIT)
    response = await sender.send("GET", URL, {})
    return [(event.event, event.data, event.id, event.retry) async for event in sender.events(response)]


def message(data: str, last_id: str = "", retry: int | None = None) -> tuple[str, str, str, int | None]:
    return "message", data, last_id, retry


# httpx2 reads them as the specification says.
STREAMS = [
    (b"data: a\r\rdata:b\r\n\r\n", [message("a"), message("b")]),
    ("data: \u6f22\u2028\x0b\x85\n\n".encode(), [message("\u6f22\u2028\x0b\x85")]),
    (b"\xef\xbb\xbfdata: a\n: alive\n\n", [message("a")]),
    (b"event: endpoint\ndata: /m\n\ndata: a\ndata:  b\n\n", [("endpoint", "/m", "", None), message("a\n b")]),
    (b"id: 1\n\ndata: a\n\nid: x\0y\ndata: b\n\n", [message("", "1"), message("a", "1"), message("b", "1")]),
    (b"retry: 1500\n\nretry: soon\n\n", [message("", retry=1500)]),
    (b"id: 1\n\nid: 2\ndata: cut\n", [message("", "1")]),
]


@rows(("stream", "events"), STREAMS)
@pytest.mark.parametrize("size", [1, 2, 1000])
async def test_a_stream_is_utf_8_whatever_its_content_type_says_and_read_in_any_pieces(stream, events, size):
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert await read(*pieces, content_type="text/event-stream; charset=latin-1") == events


@rows("stream", [b"data: " + b"x" * LIMIT, b":" + b"x" * LIMIT, b"data: 1\n" * 200, b"other: 1\n" * 200])
async def test_what_is_too_large_is_not_kept(stream: bytes) -> None:
    with pytest.raises(TooLargeError):
        await read(*(stream[at : at + 10] for at in range(0, len(stream), 10)))


async def test_many_small_events_and_comments_are_not_too_large() -> None:
    assert len(await read(*[b"data: " + b"x" * 500 + b"\n\n" + b": still there\n" * 50] * 100)) == 100
