# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_MARK = b"\xef\xbb\xbf"


class EventTooLargeError(Exception):
    """
    Raised for an event that is larger than the limit.
    """


@dataclass(frozen=True, slots=True)
class Event:
    """
    A server-sent event.

    :param name: Its name, "message" by default.
    :param data: Its data, never empty.
    """

    name: str
    data: bytes


class EventDecoder:
    """
    Reads the events of one stream, in pieces as they come.

    As in https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
    An event that is not finished when the stream ends was not sent. The lines of a large event are copied once.
    """

    def __init__(self, limit: int) -> None:
        """
        Initialize the EventDecoder.

        :param limit: How many bytes an event may have.
        """
        # That of the last finished event that had one; from there a stream can be resumed.
        self.last_id: bytes | None = None
        # After how many seconds the server wants the stream to be opened again.
        self.retry: float | None = None
        self._limit = limit
        self._size = 0
        self._line: list[bytes] = []
        self._is_first_line = True
        # The last piece ended with a carriage return, to which a line feed may belong.
        self._after_return = False
        self._start()

    def anew(self) -> EventDecoder:
        """
        Return a decoder for the same stream when it is opened again.
        """
        decoder = EventDecoder(self._limit)
        decoder.last_id = decoder._id = self.last_id
        decoder.retry = self.retry
        return decoder

    def _start(self) -> None:
        self._size = 0
        self._name = ""
        self._data: list[bytes] = []
        self._id = self.last_id

    def feed(self, piece: bytes) -> Iterator[Event]:
        """
        Read on.

        :param piece: The next bytes.
        :returns: The events that it completes.
        :raises EventTooLargeError: If the event that is being read is too large.
        """
        if self._after_return and piece:
            self._after_return = False
            piece = piece.removeprefix(b"\n")
        lines = piece.splitlines(keepends=True)
        if lines and lines[-1].endswith(b"\r"):
            self._after_return = True
        for line in lines:
            self._line.append(line)
            self._size += len(line)
            if line.endswith((b"\n", b"\r")):
                whole = line if len(self._line) == 1 else b"".join(self._line)
                self._line = []
                event = self._take(whole, len(whole) - (2 if whole.endswith(b"\r\n") else 1))
                if event is not None:
                    yield event
            if self._size > self._limit:
                raise EventTooLargeError

    def _take(self, line: bytes, end: int) -> Event | None:
        if line.startswith(b"data:"):
            self._data.append(line[6 if line.startswith(b" ", 5) else 5 : end])
            self._is_first_line = False
            return None
        line = line[:end]
        if self._is_first_line and line.startswith(_MARK):
            self._is_first_line = False
            return self._take(line[len(_MARK) :], end - len(_MARK))
        self._is_first_line = False
        if not line:
            return self._finish()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":  # with no value
            self._data.append(b"")
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value
        elif field == b"retry" and value.isdigit():
            self.retry = int(value[:9]) / 1000
        elif not field:  # a comment
            self._size = sum(map(len, self._data))
        return None

    def _finish(self) -> Event | None:
        self.last_id = self._id
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        name = self._name or "message"
        self._start()
        return Event(name, data) if data else None
