# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Authentication of clients, and the keys for the state that clients carry from call to call.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from fastmcp.server.auth import AccessToken, AuthProvider, TokenVerifier
from haystack.utils import Secret
from mcp.server.request_state import RequestStateSecurity

from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.secret_template import value_of

# The environment variable with the keys. It passes them to worker processes.
_KEYS_VARIABLE = "MCP_HAYSTACK_REQUEST_STATE_KEYS"


class BearerToken(TokenVerifier):
    """
    Accepts one token that all clients share: for a few clients of your own.

    For users with different rights, use one of FastMCP's providers (`JWTVerifier`, `RemoteAuthProvider`, `OAuthProxy`
    ...).
    """

    def __init__(self, token: Secret | str, *, scopes: Sequence[str] = ()) -> None:
        """
        Initialize the verifier.

        :param token: The token, as a Secret so that it stays out of code and files.
        :param scopes: The scopes that the token grants, for tools that require some.
        :raises ValueError: If the token is empty, or the environment variable of the Secret is not set.
        """
        super().__init__()
        value = value_of(token) if isinstance(token, Secret) else token
        if not isinstance(value, str) or not value.strip():
            msg = "`token` is empty: set the environment variable it comes from, or pass another one"
            raise ValueError(msg)
        # Digests have the same length, so that comparing them reveals nothing about the token. Files with secrets often
        # end with a newline, which no header can have.
        self._digest = hashlib.sha256(value.strip().encode()).digest()
        self._scopes = texts("scopes", scopes)

    async def verify_token(self, token: str) -> AccessToken | None:
        """
        Check a token that a client sent.

        :param token: The token, without `Bearer`.
        :returns: The client's access, or None if the token is wrong.
        """
        if not hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._digest):
            return None
        return AccessToken(token=token, client_id="bearer", scopes=self._scopes)


def auth_provider(auth: AuthProvider | Secret | None) -> AuthProvider | None:
    """
    Turn the parameter `auth` into a provider of FastMCP.

    :param auth: A provider, which is returned unchanged, or a Secret: the bearer token that all clients share.
    :returns: The provider, or None for None.
    :raises TypeError: If it is anything else.
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


def origins_of_pages(auth: AuthProvider | None) -> list[str]:
    """
    Return the origins of a provider's own pages, such as the one on which a person consents to a login.

    :param auth: The provider.
    :returns: The origin of its `base_url`, if it has one.
    """
    url = urlsplit(str(auth.base_url or "") if auth is not None else "")
    return [f"{url.scheme}://{url.netloc}"] if url.netloc else []


def request_state_security(keys: Sequence[str | Secret] | None = None) -> RequestStateSecurity | None:
    """
    Protect the state that clients carry between two calls with keys that several processes share.

    :param keys: Secrets of at least 32 bytes each. The first one encrypts; all of them decrypt, so that a key can be
        replaced while the server runs. By default, the keys in the environment variable
        `MCP_HAYSTACK_REQUEST_STATE_KEYS`, separated by commas.
    :returns: The parameter for FastMCP; None without keys: FastMCP then makes a key that no other process has.
    :raises ValueError: If a key is too short, or given twice, or not in a list.
    """
    if isinstance(keys, str | Secret):
        msg = f"`request_state_keys` must be a list of keys, got {type(keys).__name__}"
        raise ValueError(msg)
    if keys is None:
        resolved = _keys_of_environment()
    else:
        resolved = [each if isinstance(each, str) else each.resolve_value() or "" for each in keys]
    resolved = [each for each in resolved if each]
    return RequestStateSecurity(keys=resolved) if resolved else None


def _keys_of_environment() -> list[str]:
    return [each for each in map(str.strip, os.environ.get(_KEYS_VARIABLE, "").split(",")) if each]


@contextmanager
def keys_for_workers() -> Iterator[None]:
    """
    Share a key with the processes that are started within the block, unless the environment already has keys.

    :returns: A context manager.
    """
    previous = os.environ.get(_KEYS_VARIABLE)
    if not _keys_of_environment():
        os.environ[_KEYS_VARIABLE] = secrets.token_hex(32)
    try:
        yield
    finally:
        os.environ.pop(_KEYS_VARIABLE)
        if previous is not None:
            os.environ[_KEYS_VARIABLE] = previous
