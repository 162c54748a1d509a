# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from haystack_integrations.tools.mcp.protocol.frames import HEAD_SIZE, TAIL_SIZE, is_no_answer, oversized


@dataclass(frozen=True)
class OversizedLine:
    """
    A line that is larger than the limit, of which only the ends are kept.

    :param head: Its first bytes.
    :param tail: Its last bytes; empty if it has not ended.
    :param limit: How many bytes it may have.
    """

    head: bytes
    tail: bytes
    limit: int


class LineBuffer:
    """
    Splits what a process writes into lines, and stores no line beyond a limit.

    What is too much of a line is discarded up to its end. The line is reported as soon as its first bytes tell what it
    is; otherwise when it ends, because many servers write the id last, or when it is twice as large as it may be.
    """

    def __init__(self, limit: int) -> None:
        """
        Initialize the LineBuffer.

        :param limit: How many bytes a line may have.
        """
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        # The first bytes of a line that is being discarded, and whether it was reported.
        self._head: bytes | None = None
        self._is_reported = False

    def feed(self, data: bytes) -> list[bytes | OversizedLine]:
        """
        Take the next bytes.

        :param data: The bytes.
        :returns: The lines that are complete now, without their line breaks, and reports of those that are too large.
        """
        lines: list[bytes | OversizedLine] = []
        first, *others = data.split(b"\n")
        self._add(first, lines)
        for other in others:
            self._end_line(lines)
            self._add(other, lines)
        return lines

    def _add(self, part: bytes, lines: list[bytes | OversizedLine]) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size <= self._limit:
            return
        text = b"".join(self._parts)
        if self._head is None:
            self._head = text[:HEAD_SIZE]
            if oversized(self._head, b"", self._limit) or is_no_answer(self._head):
                self._report(b"", lines)
        elif self._size > 2 * self._limit + HEAD_SIZE and not self._is_reported:
            self._report(b"", lines)
        self._parts = [text[-TAIL_SIZE:]]

    def _end_line(self, lines: list[bytes | OversizedLine]) -> None:
        line = b"".join(self._parts)
        if self._head is None:
            lines.append(line)
        elif not self._is_reported:
            self._report(line[-TAIL_SIZE:], lines)
        self._parts, self._size, self._head, self._is_reported = [], 0, None, False

    def _report(self, tail: bytes, lines: list[bytes | OversizedLine]) -> None:
        lines.append(OversizedLine(self._head or b"", tail, self._limit))
        self._is_reported = True
