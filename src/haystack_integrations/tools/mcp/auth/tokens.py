# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tokens as authorization servers issue them, and as records keep them.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any, TypeGuard

import httpx2

from haystack_integrations.tools.mcp.auth.token_storage import Record
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

# A token that expires within this share of its lifetime, or within this many seconds, is refreshed before it is used.
_EARLY_SHARE, _EARLY_SECONDS = 0.1, 30.0

# Longer lifetimes, in seconds, are not worth watching.
_LONGEST_LIFETIME = 100 * 365 * 86_400

# Types of tokens that cannot be sent as bearer tokens. Whatever else servers write ("BearerToken", "bot", "", nothing)
# is one: they differ in the word, and not in what they expect.
_OTHER_TYPES = frozenset({"dpop", "mac", "pop", "n_a"})


def has_token(record: Record | None) -> TypeGuard[Record]:
    """
    Return whether a record has a token.

    :param record: The record.
    :returns: True if it has.
    """
    return record is not None and bool(record.get("tokens", {}).get("access_token"))


def is_same(record: Record | None, other: Record | None) -> bool:
    """
    Return whether two records come from the same answer of an authorization server.

    :param record: A record.
    :param other: Another.
    :returns: True if they do. Servers may issue the same token twice, so the serial numbers decide, if both have one.
    """
    one, two = record or {}, other or {}
    if "serial" in one and "serial" in two:
        return bool(one["serial"] == two["serial"])
    return bool(one.get("tokens", {}).get("access_token") == two.get("tokens", {}).get("access_token"))


def has_expired(record: Record | None) -> bool:
    """
    Return whether the token of a record has expired, or will soon.

    :param record: The record.
    :returns: True if it has.
    """
    expires_at = (record or {}).get("expires_at")
    lifetime = (record or {}).get("tokens", {}).get("expires_in") or 0
    return expires_at is not None and time.time() >= expires_at - min(_EARLY_SECONDS, lifetime * _EARLY_SHARE)


def json_object(response: httpx2.Response) -> dict[str, Any]:
    """
    Read the body of a response.

    :param response: The response.
    :returns: The object, empty if the body is something else.
    """
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def read_tokens(response: httpx2.Response, *, dpop: bool) -> dict[str, Any]:
    """
    Read the answer to a token request (RFC 6749, 5.1), and what servers make of it.

    :param response: The response.
    :param dpop: Whether the token must be bound to the client's key.
    :returns: The `tokens` of a record.
    :raises MCPAuthorizationError: If there is no token in it, or one that cannot be used.
    """
    body = json_object(response)
    token = body.get("access_token")
    if not response.is_success or "error" in body or not isinstance(token, str) or not token:
        text = f": {response.text}" if response.text else ""
        msg = f"the authorization server answered with HTTP {response.status_code}, without a token{text}"
        raise MCPAuthorizationError(msg)
    kind = str(body.get("token_type") or "").lower()
    if dpop and kind != "dpop":
        msg = "the authorization server gave a token that is not bound to the client's key, although `dpop` is set"
        raise MCPAuthorizationError(msg)
    if not dpop and kind in _OTHER_TYPES:
        advice = "; set `dpop`" if kind == "dpop" else ""
        msg = f"the authorization server gave a token of the type '{kind}', which is no bearer token{advice}"
        raise MCPAuthorizationError(msg)
    scope = body.get("scope")
    tokens = {
        "access_token": token,
        "token_type": "Bearer",  # which the storages of the SDK expect
        "expires_in": _lifetime(body.get("expires_in")),
        "scope": " ".join(map(str, scope)) if isinstance(scope, list) else scope,
        "refresh_token": body.get("refresh_token"),
    }
    return {name: value for name, value in tokens.items() if value and isinstance(value, (str, int))}


def _lifetime(value: Any) -> int | None:
    # A number, also as text. Of a token that is said to live for no time at all, only the server knows when it ends:
    # some mean for ever.
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return math.ceil(seconds) if 0 < seconds < _LONGEST_LIFETIME and not isinstance(value, bool) else None
