# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Data in base64, as servers send it.
"""

import re
from typing import Final
from urllib.parse import unquote

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
