# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Finds characters that people do not see and models read, in which servers can hide instructions.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Final

# Invisible, but neither control nor format characters: fillers, variation selectors and other default-ignorable code
# points of Unicode, assigned or not.
_IGNORABLE: Final = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2065, 0x3164, 0xFFA0]
    + [*range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)]
)
_VISIBLE_CONTROLS: Final = frozenset("\t\n\r")

# Most texts have nothing else.
_PLAIN: Final = re.compile("[\\t\\n\\r\\x20-\\x7e]*")
_BEYOND_ASCII: Final = re.compile("[^\\x00-\\x7f]")

# What emoji and several scripts need, one at a time, after a character beyond ASCII.
_JOINER: Final = "\u200d"
_EMOJI: Final = "\ufe0f"
_JOINERS: Final = frozenset(["\u200c", _JOINER, "\ufe0e", _EMOJI])


@lru_cache(maxsize=4096)
def is_invisible(character: str) -> bool:
    """
    Tell whether people do not see a character, or see something else than a model does.

    :param character: The character.
    :returns: True for format and control characters but tabs and ends of lines, for fillers and variation selectors,
        and for characters of private use.
    """
    if character in _VISIBLE_CONTROLS:
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs") or ord(character) in _IGNORABLE


def _is_joiner_in_place(text: str, index: int) -> bool:
    if not index or text[index] not in _JOINERS:
        return False
    if text[index] == _JOINER and text[index - 1] == _EMOJI:  # as in a heart on fire
        index -= 1
    before = text[index - 1] if index else ""
    return before > "\x7f" and not is_invisible(before)


def invisible_characters(text: str) -> Counter[str]:
    """
    Find invisible characters, except single joiners and variation selectors of emoji and scripts that need them.

    :param text: The text.
    :returns: How often it has which, as `U+200B`.
    """
    if _PLAIN.fullmatch(text):
        return Counter()
    found = (
        character
        for index, character in enumerate(text)
        if is_invisible(character) and not _is_joiner_in_place(text, index)
    )
    return Counter(f"U+{ord(character):04X}" for character in found)


def visible_text(text: str) -> str:
    """
    Take invisible characters out of a text. Whatever a server says of itself passes through it on its way to a model.

    :param text: The text.
    :returns: What is left; the same object if that is all.
    """
    if _PLAIN.fullmatch(text):
        return text
    kept = "".join(
        character
        for index, character in enumerate(text)
        if not is_invisible(character) or _is_joiner_in_place(text, index)
    )
    return kept if len(kept) < len(text) else text


def escaped_json(text: str) -> str:
    """
    Escape the invisible characters of a JSON text, so that people see them.

    :param text: The JSON text.
    :returns: The same JSON value. Other characters beyond ASCII stay as they are.
    """
    if text.isascii():
        return text

    def escape(match: re.Match[str]) -> str:
        character = match.group()
        if not is_invisible(character):
            return character
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    return _BEYOND_ASCII.sub(escape, text)
