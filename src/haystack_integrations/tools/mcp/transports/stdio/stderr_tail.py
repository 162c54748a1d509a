# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The last lines that a server process wrote to its standard error.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterable

from haystack_integrations.tools.mcp.redaction import SHORTEST_SECRET, Redactor

_LINES = 50
_LINE_LENGTH = 500

# What an error message quotes, in characters: as much as has the error of Node before its stack.
_TEXT_LENGTH = 1000

# How much of a line is kept, besides the length of the longest secret. More than is shown, because redaction and the
# removal of white space make lines shorter.
_KEPT_LENGTH = 4 * _LINE_LENGTH

# Sequences of ECMA-48 that set colours, titles and links or move the cursor, also where the line cuts one off.
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*(?:[0-~]|$)"
)
# A word, even a redacted one, as opposed to the frames of banners.
_WORD = re.compile(r"\w|\*{3}")
_CONTROL_CHARACTERS = dict.fromkeys(
    number for number in (*range(0x20), *range(0x7F, 0xA0)) if not chr(number).isspace()
)


class StderrTail:
    """
    Keeps the last lines of a server's standard error, which error messages quote.

    The secrets of the server, and well-known tokens, are redacted. Lines are cut after 500
    characters. A carriage return, as in a progress bar, ends a line, too. Escape sequences and control characters are
    removed: they would reach a terminal through messages and logs.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        """
        Initialize the StderrTail.

        :param secrets: Values to redact.
        """
        # As they show: a value of several lines is printed as several lines.
        self._redactor = Redactor(_printable(line) for value in secrets for line in [value, *value.splitlines()])
        self._kept_length = _KEPT_LENGTH + max(map(len, self._redactor.forms), default=0)
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._unfinished = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[str]:
        """
        Process the next output.

        :param data: The bytes that the process wrote.
        :returns: The lines that are now complete, redacted.
        """
        text = self._unfinished + self._decoder.decode(data).replace("\r", "\n")
        *lines, self._unfinished = (line[: self._kept_length] for line in text.split("\n"))
        cleaned = [text for line in lines if (text := self._clean(line, is_whole=len(line) < self._kept_length))]
        self._lines.extend(cleaned)
        return cleaned

    def text(self) -> str:
        """
        Quote the last lines.

        :returns: At most 1000 characters, redacted, the lines joined with " | "; or an empty string.
        """
        lines = [*self._lines, self._clean(self._unfinished, is_whole=False)]
        text = " | ".join(" ".join(line.split()) for line in lines if _WORD.search(line))
        return text if len(text) <= _TEXT_LENGTH else f"…{text[1 - _TEXT_LENGTH :]}"

    def _clean(self, line: str, *, is_whole: bool) -> str:
        # First, because a sequence within a secret would hide it.
        line = _printable(line)
        if not is_whole:
            line = self._without_partial_secret(line)
        return self._redactor.text(line).rstrip()[:_LINE_LENGTH]

    def _without_partial_secret(self, line: str) -> str:
        # A cut or unfinished line may end in the first part of a secret, which a search for the whole does not find.
        partial = max((_overlap(line, secret) for secret in self._redactor.forms), default=0)
        return line[: len(line) - partial]


def _printable(text: str) -> str:
    return _ESCAPE_SEQUENCE.sub("", text).translate(_CONTROL_CHARACTERS)


def _overlap(line: str, secret: str) -> int:
    # Only proper prefixes count: the search finds a whole secret.
    lengths = range(min(len(secret) - 1, len(line)), SHORTEST_SECRET - 1, -1)
    return next((length for length in lengths if line.endswith(secret[:length])), 0)
