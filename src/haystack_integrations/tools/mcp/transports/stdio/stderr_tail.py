# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server process said last on its standard error.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable

from haystack_integrations.tools.mcp.redaction import REDACTED, SHORTEST_SECRET

_LINES = 20
_LINE_LENGTH = 500

# So much of a line is kept besides a secret that the rest of it may be: room for what becomes shorter when shown.
_KEPT_LENGTH = 4 * _LINE_LENGTH


class StderrTail:
    """
    Takes the standard error of a server process and keeps its last lines for error messages.

    The values of the server's environment variables are blotted out, since they may be secrets. A line is shown up to
    its first 500 characters; a progress bar's carriage return ends a line, too.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        """
        Initialize the StderrTail.

        :param secrets: What must not show.
        """
        # A value of several lines is printed as several lines.
        values = {line.strip() for value in secrets for line in [value, *value.splitlines()]}
        self._secrets = sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)
        self._kept_length = _KEPT_LENGTH + max(map(len, self._secrets), default=0)
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._unfinished = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[str]:
        """
        Take what the process wrote.

        :param data: The bytes.
        :returns: The lines that end in them, as they may be shown.
        """
        text = self._unfinished + self._decoder.decode(data).replace("\r", "\n")
        *lines, self._unfinished = (line[: self._kept_length] for line in text.split("\n"))
        shown = [text for line in lines if (text := self._clean(line, is_whole=len(line) < self._kept_length))]
        self._lines.extend(shown)
        return shown

    def text(self) -> str:
        """
        Give what was read last.

        :returns: The last lines on one line, or the empty string.
        """
        rest = self._clean(self._unfinished, is_whole=False)
        return " | ".join([*self._lines, rest] if rest else self._lines)

    def _clean(self, line: str, *, is_whole: bool) -> str:
        if not is_whole:
            line = self._without_begun_secret(line)
        for secret in self._secrets:
            line = line.replace(secret, REDACTED)
        return " ".join(line.split())[:_LINE_LENGTH]

    def _without_begun_secret(self, line: str) -> str:
        # The first part of a secret at the end of what is known of a line is not found by its value.
        begun = max((_overlap(line, secret) for secret in self._secrets), default=0)
        return line[: len(line) - begun]


def _overlap(line: str, secret: str) -> int:
    # Of a whole secret, which is found as such, nothing is taken for the beginning of another one.
    lengths = range(min(len(secret) - 1, len(line)), SHORTEST_SECRET - 1, -1)
    return next((length for length in lengths if line.endswith(secret[:length])), 0)
