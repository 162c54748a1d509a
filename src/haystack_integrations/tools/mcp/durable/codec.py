# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Writes what is recorded as JSON, encrypted if there is a key.
"""

from __future__ import annotations

import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from haystack_integrations.tools.mcp.errors import MCPRunError


class Codec:
    """
    Converts JSON values to bytes and back.
    """

    def __init__(self, key: str | None = None) -> None:
        """
        Initialize the Codec.

        :param key: A key of Fernet: 32 bytes in URL-safe base64. Default: nothing is encrypted.
        :raises ValueError: If it is no such key.
        """
        self._fernet = None if key is None else _fernet(key)

    @property
    def encrypts(self) -> bool:
        """
        Whether there is a key.
        """
        return self._fernet is not None

    def dumps(self, value: Any) -> bytes:
        """
        Write a value.

        :param value: JSON.
        :returns: The bytes.
        """
        # ASCII: databases refuse NUL characters and lone surrogates.
        data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode("ascii")
        return data if self._fernet is None else self._fernet.encrypt(data)

    def loads(self, data: bytes) -> Any:
        """
        Read a value.

        :param data: What `dumps` wrote.
        :returns: The value.
        :raises MCPRunError: If it was written with another key, or is damaged.
        """
        try:
            return json.loads(data if self._fernet is None else self._fernet.decrypt(bytes(data)))
        except (InvalidToken, ValueError):
            msg = (
                "The journal has something that cannot be read: it is damaged, or `encryption_key` is not the one with "
                "which it was written. Nothing was run."
            )
            raise MCPRunError(msg) from None


def _fernet(key: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        msg = (
            "RunJournal: `encryption_key` must be 32 bytes in URL-safe base64, as "
            "`cryptography.fernet.Fernet.generate_key()` makes one"
        )
        raise ValueError(msg) from None
