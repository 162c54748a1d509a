# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Compares URIs that a model made up with patterns of what it may read.

Servers and libraries read URIs in many ways: they drop tabs, decode twice, normalize Unicode, resolve dots, or cut off
the query. A URI matches only if none of these readings leads anywhere else than the pattern says.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote

from haystack_integrations.tools.mcp.convert.invisible_text import visible_text

# `%` without two digits is decoded differently, or is another encoding, such as `%u002e`.
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
# Nobody encodes a URI more often than that for a reason.
_MOST_DECODINGS: Final = 4
# Where a path, or a parameter that is one, may begin and end.
_DELIMITERS: Final = re.compile("[/?#&=;]")
# Taken for slashes and dots, but not by Unicode's compatibility normalization.
_LOOKALIKES: Final = str.maketrans(
    dict.fromkeys("\u2044\u2215\u29f8", "/") | dict.fromkeys("\u29f5\u2216", "\\") | {"\u3002": "."}
)
# Of these schemes, what follows `//` is a host.
_WITH_HOST: Final = re.compile("(?:https?|wss?|ftps?|file)://([^/?#]*)", re.IGNORECASE)


def matches_any(uri: str, patterns: Iterable[str]) -> bool:
    """
    Tell whether one of some patterns allows a URI.

    :param uri: The URI.
    :param patterns: URIs, which must be equal to it, or patterns with `*`, `?` and `[...]`.
    :returns: Whether it does, however the URI is read.
    """
    patterns = list(patterns)
    return uri in patterns or (_is_unambiguous(uri) and any(_matches(uri, pattern) for pattern in patterns))


def _is_unambiguous(uri: str) -> bool:
    if any(character.isspace() for character in uri) or _BAD_ESCAPE.search(uri):
        return False
    for _ in range(_MOST_DECODINGS):
        if not _stays_in_place(uri):
            return False
        encoded, uri = uri, unquote(uri)
        if encoded == uri:
            return True
    return False


def _stays_in_place(text: str) -> bool:
    text = _folded(text)
    # Bytes that are no UTF-8 may be dots to a lenient decoder.
    if "\\" in text or "\ufffd" in text or visible_text(text) != text or any(each in text for each in "\t\r\n"):
        return False
    # Windows takes spaces and dots from the end of names.
    if any(part and not part.strip(" .") for part in _DELIMITERS.split(text)):
        return False
    # An absolute path replaces what it is joined to.
    return re.search("[^:/]//", text.partition("?")[0]) is None


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)


def _matches(uri: str, pattern: str) -> bool:
    # A server may ignore the fragment and the query, so `secret#.md` is no `*.md`.
    forms = [uri]
    if "#" not in pattern:
        forms.append(uri.partition("#")[0])
    if "?" not in pattern:
        forms.append(forms[-1].partition("?")[0])
    return _has_host(uri, pattern) and all(fnmatchcase(form, pattern) for form in forms)


def _has_host(uri: str, pattern: str) -> bool:
    # In a host, `*` stands for a part of it, not for a path or a query that looks like one.
    found, (_, has_host, rest) = _WITH_HOST.match(uri), pattern.partition("://")
    if found is None or not has_host:
        return True
    host = found.group(1)
    read = _folded(unquote(host))
    if re.search("[/?#%]", read) or ("@" in read and "@" not in pattern):
        return False
    return any(fnmatchcase(host, re.split(end, rest)[0]) for end in ("/", "[/?]"))
