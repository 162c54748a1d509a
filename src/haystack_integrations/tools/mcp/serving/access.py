# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who may call a server, and the keys of what its clients carry from call to call, which several processes share.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fastmcp.server.auth import AccessToken, AuthProvider, TokenVerifier
from haystack.utils import Secret
from mcp.server.request_state import RequestStateSecurity

from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.secret_template import value_of

# The environment variable with the keys.
_KEYS_VARIABLE = "MCP_HAYSTACK_REQUEST_STATE_KEYS"


class BearerToken(TokenVerifier):
    """
    One token that all clients share: for a few clients of your own.

    For users with rights of their own, take one of FastMCP's providers (`JWTVerifier`, `RemoteAuthProvider`,
    `OAuthProxy` ...).
    """

    def __init__(self, token: Secret | str, *, scopes: Sequence[str] = ()) -> None:
        """
        Initialize the verifier.

        :param token: The token, as a Secret so that it stays out of code and files.
        :param scopes: The scopes that whoever has the token has, for tools that want some.
        :raises ValueError: If the token is empty, or the environment variable of the Secret is not set.
        """
        super().__init__()
        value = value_of(token) if isinstance(token, Secret) else token
        if not isinstance(value, str) or not value.strip():
            msg = "`token` is empty: set the environment variable it comes from, or pass another one"
            raise ValueError(msg)
        # Digests have one length, so that comparing them says nothing about the token. Files of secrets often end with
        # a newline, which no header can have.
        self._digest = hashlib.sha256(value.strip().encode()).digest()
        self._scopes = texts("scopes", scopes)

    async def verify_token(self, token: str) -> AccessToken | None:
        """
        Check a token that a client sent.

        :param token: The token, without `Bearer`.
        :returns: What the client may do, or None if the token is another one.
        """
        if not hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._digest):
            return None
        return AccessToken(token=token, client_id="bearer", scopes=self._scopes)


def auth_provider(auth: AuthProvider | Secret | None) -> AuthProvider | None:
    """
    Turn what users pass as `auth` into a FastMCP provider.

    :param auth: A provider, which stays as it is, or a Secret: the bearer token that all clients share.
    :returns: The provider, or None for None.
    :raises TypeError: If it is something else.
    """
    if auth is None or isinstance(auth, AuthProvider):
        return auth
    if isinstance(auth, Secret):
        return BearerToken(auth)
    msg = (
        "`auth` must be a provider of `fastmcp.server.auth` (JWTVerifier, RemoteAuthProvider, OAuthProxy ...) or a "
        f"haystack.utils.Secret with a bearer token, not {type(auth).__name__}"
    )
    raise TypeError(msg)


def request_state_security(keys: Sequence[str | Secret] | None = None) -> RequestStateSecurity | None:
    """
    Protect the state that clients carry between two calls with keys that several processes share.

    :param keys: Secrets of at least 32 bytes each. The first one encrypts; all of them decrypt, so that a key can be
        replaced while the server runs. By default those of the environment variable
        `MCP_HAYSTACK_REQUEST_STATE_KEYS`, separated by commas.
    :returns: What FastMCP takes; None without keys: then it makes a key that no other process has.
    :raises ValueError: If a key is too short, or given twice.
    """
    if keys is None:
        found = _keys_of_environment()
    else:
        found = [each if isinstance(each, str) else each.resolve_value() or "" for each in keys]
    found = [each for each in found if each]
    return RequestStateSecurity(keys=found) if found else None


def _keys_of_environment() -> list[str]:
    return [each for each in map(str.strip, os.environ.get(_KEYS_VARIABLE, "").split(",")) if each]


@contextmanager
def keys_for_workers() -> Iterator[None]:
    """
    Give the processes that are started meanwhile one key, unless the environment has some.

    :returns: A context manager.
    """
    before = os.environ.get(_KEYS_VARIABLE)
    if not _keys_of_environment():
        os.environ[_KEYS_VARIABLE] = secrets.token_hex(32)
    try:
        yield
    finally:
        os.environ.pop(_KEYS_VARIABLE)
        if before is not None:
            os.environ[_KEYS_VARIABLE] = before
