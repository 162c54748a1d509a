# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

from haystack_integrations.tools.mcp.protocol.frames import HEAD_SIZE, TAIL_SIZE


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """
    The first and the last bytes of a line that is larger than the limit.
    """

    head: bytes
    tail: bytes


class LineBuffer:
    """
    Splits what a process writes into lines, and stores no line beyond a limit.

    What is too much of a line is discarded up to its end. The line is reported when it ends, because many servers write
    the id last, or when it is twice as large as it may be.
    """

    def __init__(self, limit: int) -> None:
        """
        Initialize the LineBuffer.

        :param limit: How many bytes a line may have.
        """
        self.limit: int = limit
        self._parts: list[bytes] = []
        self._size = 0
        # The first bytes of a line that is being discarded, and whether it was reported.
        self._head: bytes | None = None
        self._is_reported = False

    def feed(self, data: bytes) -> list[bytes | OversizedLine]:
        """
        Take the next bytes.

        :param data: The bytes.
        :returns: The lines that are complete now, without their line breaks, and those that are too large.
        """
        lines: list[bytes | OversizedLine] = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            if not self._parts and len(end) <= self.limit:  # most come whole
                lines.append(end)
                continue
            self._add(end)
            line = b"".join(self._parts)
            if self._head is None:
                lines.append(line)
            elif not self._is_reported:
                lines.append(OversizedLine(self._head, line))
            self._parts, self._size, self._head, self._is_reported = [], 0, None, False
        if rest:
            self._add(rest)
        if self._head is not None and self._size > 2 * self.limit + HEAD_SIZE and not self._is_reported:
            self._is_reported = True
            lines.append(OversizedLine(self._head, b""))
        return lines

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self.limit:
            text = b"".join(self._parts)
            if self._head is None:
                self._head = text[:HEAD_SIZE]
            self._parts = [text[-TAIL_SIZE:]]
