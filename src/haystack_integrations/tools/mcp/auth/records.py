# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a stored record says of its token.
"""

from __future__ import annotations

import time
from typing import TypeGuard

from haystack_integrations.tools.mcp.auth.token_store import Record

# A token that expires within this share of its lifetime, or within this many seconds, is refreshed before it is used.
_EARLY_SHARE, _EARLY_SECONDS = 0.1, 30.0


def has_token(record: Record | None) -> TypeGuard[Record]:
    """
    Tell whether a record has a token.

    :param record: The record.
    :returns: True if it has.
    """
    return record is not None and bool(record.get("tokens", {}).get("access_token"))


def is_same(record: Record | None, other: Record | None) -> bool:
    """
    Tell whether two records are of the same time, or both without a token.

    :param record: A record.
    :param other: Another.
    :returns: True if they are.
    """
    tokens = [each["tokens"]["access_token"] if has_token(each) else None for each in (record, other)]
    if tokens[0] != tokens[1]:
        return False
    serials = {each["serial"] for each in (record, other) if each and "serial" in each}
    return len(serials) <= 1


def has_expired(record: Record | None) -> bool:
    """
    Tell whether the token of a record has expired, or will soon.

    :param record: The record.
    :returns: True if it has.
    """
    expires_at = (record or {}).get("expires_at")
    if expires_at is None:
        return False
    lifetime = (record or {}).get("tokens", {}).get("expires_in") or 0
    return bool(time.time() >= expires_at - min(_EARLY_SECONDS, lifetime * _EARLY_SHARE))
