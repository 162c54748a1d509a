# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which lines of a server's standard error say what is wrong.

These are the exceptions at the ends of tracebacks, their causes, and the errors of package managers and shells, without
stacks, banners in boxes and advice. A server that writes nothing of the kind is quoted with its last lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

# Box-drawing characters and block elements.
_BOX = "\u2500-\u259f"
_BOX_EDGE = re.compile(rf"^[{_BOX}]+|[{_BOX}]+$")
_BOX_TOP = re.compile("^[\u250c\u250f\u2552-\u2554\u256d]")
_BOX_BOTTOM = re.compile("^[\u2514\u2517\u2558-\u255a\u2570][\u2500-\u257f]*$")
_BOX_ERROR = re.compile(r"(?i)\berror\b")

# What Python puts before the lines of exceptions in a group.
_GUTTER = re.compile(r"^ *(?:[|+] ?)+")
_GUTTER_RULE = re.compile(r"^[ |]*\+[-+ \d.|]*$")

_TRACEBACK = re.compile(r"^(?:Exception Group )?Traceback \(most recent call last\):$")
_LINK = re.compile(r"^(?:The above exception was the direct cause|During handling of the above exception)\b")

_NOISE = re.compile(
    r"""
    (?!.*\*{3})\W*$                                         # no word, not even a redacted one
    | at\ \S.*(?:[:(]\d+|\(.*\)|<anonymous>|node:)          # a frame of Node, Java or .NET
    | at\ \S+$
    | File\ ".*",\ line\ \d+                                # a frame of Python
    | node:internal/ | throw\ \w+;?$ | Node\.js\ v\d | Require\ stack:$ | -\ /\S+$ | requireStack:
    | \[eval\]:\d+$ | file://\S+:\d+$ | /\S+:\d+$
    | \.\.\.\ \d+\ more$ | goroutine\ \d+\ \[ | note:\ run\ with\ .RUST_BACKTRACE | stack\ backtrace:$
    | For\ further\ information\ visit\ | For\ more\ information,\ try\ | usage:\ | Usage:\ | Try\ '.*--help
    | npm\ (?:ERR!|error)(?:\ [A-Z\d]+)?$
    | npm\ (?:ERR!|error)\ (?:A\ complete\ log|code\ |\d+\ +(?:Note\ that|tarball,)|errno\ |path\ |command\ |syscall\ )
    | npm\ (?:warn|WARN|notice)\ | npm\ (?:ERR!|error)\s+/\S+\.log$
    """,
    re.VERBOSE,
)

_TELLING = re.compile(
    r"""
    (?:Uncaught\ |Unhandled\ exception[.:]\ )?(?:\w+[.$])*[A-Z]\w*(?:Error|Exception|Group|Exit)(?:\ \[\w+\])?(?::\ |$)
    | Unhandled\ exception | \[Unhandled | Caused\ by:\ | Exception\ in\ thread\ | thread\ '.*'.*\ panicked\ at\b
    | panic:[ ]
    | npm\ (?:ERR!|error)\ | [\u00d7\u2717\u2716][ ] | [\u2570\u251c]\u2500\u25b6[ ]
    | (?:error|fatal|critical|failed)\b.{0,40}[:\]]
    | .{0,200}:\ (?:error|fatal):[ ]
    | .{0,200}(?:command\ not\ found|:\ not\ found|No\ such\ file\ or\ directory|Permission\ denied)$
    | .{0,200}(?:No\ module\ named\ |can't\ open\ file\ |cannot\ execute)
    | code:[ ]'\w+' | Segmentation\ fault | Killed$
    """,
    re.VERBOSE | re.IGNORECASE,
)

# How many lines after the first of an exception are taken as the rest of its text.
_CONTINUATION = 6

_WORD = re.compile(r"\w|\*{3}")

_SEPARATOR = " | "

# Of a line that does not fit, less than this is not worth showing.
_SHORTEST_PART = 60


class _Rank(IntEnum):
    TELLING = 0
    LAST = 1
    CONTINUATION = 2
    OTHER = 3


def telling_text(lines: Sequence[str], limit: int) -> str:
    """
    Quote the lines that say what is wrong.

    :param lines: The last lines, with their indentation.
    :param limit: The longest text, in characters.
    :returns: These lines and the very last one, in their order, joined with " | "; if they are too many, the last ones.
        Without any, the last lines of all, or an empty string if no line contains a word.
    """
    ranked = [(rank, text) for rank, text in _rank(lines) if text]
    if not ranked:
        ranked = [(_Rank.OTHER, text) for line in lines if _WORD.search(text := " ".join(line.split()))]
    others = [position for position, (rank, _) in enumerate(ranked) if rank is _Rank.OTHER]
    if others and others[-1] == len(ranked) - 1:  # a program may end with words that no pattern knows
        ranked[-1] = (_Rank.LAST, ranked[-1][1])
    if any(rank is _Rank.TELLING for rank, _ in ranked):
        ranked = [entry for entry in ranked if entry[0] is not _Rank.OTHER]
    chosen: dict[int, str] = {}
    for position in sorted(range(len(ranked)), key=lambda position: _order(ranked[position][0], position)):
        text = ranked[position][1]
        if text in chosen.values():
            continue
        left = limit - sum(len(other) + len(_SEPARATOR) for other in chosen.values())
        if len(text) > left:
            if left >= _SHORTEST_PART:
                chosen[position] = f"{text[: left - 1]}…"
            break
        chosen[position] = text
    return _SEPARATOR.join(chosen[position] for position in sorted(chosen))


def _order(rank: _Rank, position: int) -> tuple[int, int]:
    # The text of an exception is read from its beginning; of all else the last is the most important.
    return rank, position if rank is _Rank.CONTINUATION else -position


def _rank(lines: Sequence[str]) -> Iterator[tuple[_Rank, str]]:
    in_traceback = False
    continuation = 0
    box_says_error: bool | None = None  # None outside of boxes
    for raw in lines:
        line = _GUTTER.sub("", raw) if not _GUTTER_RULE.match(raw) else ""
        is_indented = line[:1].isspace()
        text = " ".join(line.split())
        if _BOX_TOP.match(text):
            box_says_error = _BOX_ERROR.search(text) is not None
            continue
        if _BOX_BOTTOM.match(text):
            box_says_error = None
            continue
        if box_says_error is not None and _BOX_EDGE.match(text):
            inside = _BOX_EDGE.sub("", text).strip()
            if box_says_error and inside:
                yield _Rank.TELLING, inside
            continue
        box_says_error = None
        if _TRACEBACK.match(text):
            in_traceback, continuation = True, 0
        elif in_traceback and is_indented:
            pass  # frames and their source
        elif _LINK.match(text):
            continuation = 0
        elif not text or _NOISE.match(text):
            in_traceback = in_traceback and not text
        elif in_traceback:
            in_traceback, continuation = False, _CONTINUATION
            yield _Rank.TELLING, text
        elif _TELLING.match(text):
            # The text of a panic stands in the next line.
            continuation = 1 if "panicked at" in text else continuation
            yield _Rank.TELLING, text
        elif continuation:
            continuation -= 1
            yield _Rank.CONTINUATION, text
        else:
            yield _Rank.OTHER, text
