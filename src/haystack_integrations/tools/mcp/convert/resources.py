# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Converts the contents of MCP resources to what Haystack's components take.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from haystack.dataclasses import ByteStream

if TYPE_CHECKING:
    import mcp_types as types

__all__ = ["resource_contents", "resource_streams"]


def resource_contents(result: types.ReadResourceResult) -> list[str | ByteStream]:
    """
    Give the contents of a resource: text as strings, everything else as ByteStreams.

    :param result: What `read_resource` returned.
    :returns: The contents in the server's order, usually one.
    :raises ValueError: If the server sent bytes that are not base64.
    """
    return [text if (text := _text(contents)) is not None else _stream(contents) for contents in result.contents]


def resource_streams(result: types.ReadResourceResult) -> list[ByteStream]:
    """
    Give the contents of a resource as ByteStreams, text as UTF-8, e.g. for Haystack's converters to Documents.

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
        msg = f"The contents of the resource are no valid base64: {error}"
        raise ValueError(msg) from None


_DATA_URI_HEAD: Final = re.compile(r"\s*data:(?P<type>[^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_PADDED: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_URL_ALPHABET: Final = str.maketrans("-_", "+/")


def plain_base64(data: str) -> tuple[str, str | None]:
    """
    Make base64 strict: without line breaks, in the usual alphabet, padded, and not in a data URI.

    :param data: What a server sent.
    :returns: The data, which may still be no base64, and the MIME type if a data URI has one.
    """
    mime_type = None
    head = _DATA_URI_HEAD.match(data)
    if head is not None:
        data, mime_type = unquote(data[head.end() :]), head["type"].strip().lower() or None
    if _PADDED.fullmatch(data) is None:
        data = "".join(data.split()).translate(_URL_ALPHABET).rstrip("=")
        data += "=" * (-len(data) % 4)
    return data, mime_type
