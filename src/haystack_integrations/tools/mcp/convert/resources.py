# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Converts the contents of MCP resources for Haystack's components, and matches their URIs against patterns.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from haystack.dataclasses import ByteStream

from haystack_integrations.tools.mcp.convert.server_texts import visible_text

if TYPE_CHECKING:
    import mcp_types as types

__all__ = ["resource_contents", "resource_streams"]


def resource_contents(result: types.ReadResourceResult) -> list[str | ByteStream]:
    """
    Return the contents of a resource: text as strings, everything else as ByteStreams.

    :param result: What `read_resource` returned.
    :returns: The contents in the server's order, usually one.
    :raises ValueError: If the server sent bytes that are not base64.
    """
    return [text if (text := _text(contents)) is not None else _stream(contents) for contents in result.contents]


def resource_streams(result: types.ReadResourceResult) -> list[ByteStream]:
    """
    Return the contents of a resource as ByteStreams, text as UTF-8, e.g. for Haystack's converters to Documents.

    :param result: What `read_resource` returned.
    :returns: The contents in the server's order, with their MIME types and, in `meta`, their `uri`.
    :raises ValueError: If the server sent bytes that are not base64.
    """
    return [_stream(contents) for contents in result.contents]


def _text(contents: types.TextResourceContents | types.BlobResourceContents) -> str | None:
    text: str | None = getattr(contents, "text", None)
    return text


def _stream(contents: types.TextResourceContents | types.BlobResourceContents) -> ByteStream:
    text = _text(contents)
    if text is not None:
        data = text.encode("utf-8", "surrogatepass")
        return ByteStream(data, meta={"uri": contents.uri}, mime_type=contents.mime_type or "text/plain")
    blob, mime_type = plain_base64(getattr(contents, "blob", ""))
    return ByteStream(_decoded(blob), meta={"uri": contents.uri}, mime_type=contents.mime_type or mime_type)


def _decoded(blob: str) -> bytes:
    try:
        return base64.b64decode(blob, validate=True)
    except binascii.Error as error:
        msg = f"The contents of the resource are not valid base64: {error}"
        raise ValueError(msg) from None


_DATA_URI_HEAD: Final = re.compile(r"\s*data:(?P<type>[^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_PADDED: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_URL_ALPHABET: Final = str.maketrans("-_", "+/")


def plain_base64(data: str) -> tuple[str, str | None]:
    """
    Make base64 strict: without line breaks, in the usual alphabet, padded, and not in a data URI.

    :param data: The data that a server sent.
    :returns: The data, which may still not be valid base64, and the MIME type if a data URI declares one.
    """
    mime_type = None
    head = _DATA_URI_HEAD.match(data)
    if head is not None:
        data, mime_type = unquote(data[head.end() :]), head["type"].strip().lower() or None
    if _PADDED.fullmatch(data) is None:
        data = "".join(data.split()).translate(_URL_ALPHABET).rstrip("=")
        data += "=" * (-len(data) % 4)
    return data, mime_type


# URIs

# Servers and libraries read URIs in many ways: they drop tabs, decode twice, normalize Unicode, resolve dots, or cut
# off the query. A URI matches only if none of these readings leads to a place outside the pattern.

# Decoders treat `%` without two hex digits differently. It may also be another encoding, such as `%u002e`.
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
# There is no good reason to encode a URI more often than this.
_MAX_DECODINGS: Final = 4
# Characters at which a path, or a parameter that contains one, may begin or end.
_DELIMITERS: Final = re.compile("[/?#&=;]")
# Characters that are mistaken for slashes and dots, and that Unicode's compatibility normalization keeps.
_LOOKALIKES: Final = str.maketrans(
    dict.fromkeys("\u2044\u2215\u29f8", "/") | dict.fromkeys("\u29f5\u2216", "\\") | {"\u3002": "."}
)
# A host that all parsers read alike. Some take everything after a colon for a port.
_HOST: Final = re.compile(r"(?:[\w.-]*|\[[0-9A-Fa-f:.]+\])(?::\d*)?")
# In these schemes, a host follows `//`.
_WITH_HOST: Final = re.compile("(?:https?|wss?|ftps?|file)://([^/?#]*)", re.IGNORECASE)


def matches_any(uri: str, patterns: Iterable[str]) -> bool:
    """
    Return whether at least one pattern matches a URI.

    :param uri: The URI.
    :param patterns: URIs, which must be equal to it, or patterns with `*`, `?` and `[...]`.
    :returns: True only if it matches in every way in which the URI can be read.
    """
    patterns = list(patterns)
    return uri in patterns or (_is_unambiguous(uri) and any(_matches(uri, pattern) for pattern in patterns))


def _is_unambiguous(uri: str) -> bool:
    if any(character.isspace() for character in uri) or _BAD_ESCAPE.search(uri):
        return False
    for _ in range(_MAX_DECODINGS):
        if not _stays_in_place(uri):
            return False
        encoded, uri = uri, unquote(uri)
        if encoded == uri:
            return True
    return False


def _stays_in_place(text: str) -> bool:
    text = unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)
    # A lenient decoder may read bytes that are not UTF-8 as dots.
    if "\\" in text or "\ufffd" in text or visible_text(text) != text or any(each in text for each in "\t\r\n"):
        return False
    # Windows strips spaces and dots from the end of names.
    if any(part and not part.strip(" .") for part in _DELIMITERS.split(text)):
        return False
    # An absolute path replaces the path that it is joined to.
    return re.search("[^:/]//", text.partition("?")[0]) is None


def _matches(uri: str, pattern: str) -> bool:
    # A server may ignore the fragment and the query, so `secret#.md` does not match `*.md`.
    forms = [uri]
    if "#" not in pattern:
        forms.append(uri.partition("#")[0])
    if "?" not in pattern:
        forms.append(forms[-1].partition("?")[0])
    return _has_host(uri, pattern) and all(fnmatchcase(form, pattern) for form in forms)


def _has_host(uri: str, pattern: str) -> bool:
    # In the host of a pattern, `*` matches part of a host, not a path or a query that looks like a host.
    found, (_, has_host, rest) = _WITH_HOST.match(uri), pattern.partition("://")
    if found is None or not has_host:
        return True
    host = found.group(1)
    return _HOST.fullmatch(host) is not None and any(fnmatchcase(host, re.split(end, rest)[0]) for end in ("/", "[/?]"))
