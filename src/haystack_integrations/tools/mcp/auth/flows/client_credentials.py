# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The grant of clients with credentials of their own: RFC 6749, 4.4; with a private key RFC 7523, 2.2.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider
from mcp.shared.exceptions import MCPDeprecationWarning

from haystack_integrations.tools.mcp.auth.flows.assertions import assertion
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.flows.run import Flow

# Seconds that an assertion is valid.
_LIFETIME = 300

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


async def make(flow: Flow, *, is_refresh: bool) -> Any:  # noqa: ARG001 - the makers of all grants are called alike
    """
    Make the provider of the SDK.

    :param flow: The flow.
    :param is_refresh: Whether tokens are refreshed.
    :returns: The provider.
    """
    config = flow.config
    scope = " ".join(config.scopes) if config.scopes else None
    common: dict[str, Any] = {"client_id": str(config.client_id), "scope": scope, "issuer": config.issuer}
    with warnings.catch_warnings():
        # Without `issuer` the SDK warns at each flow; the documentation of `issuer` says what it says.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        if config.token_endpoint_auth_method == "private_key_jwt":
            return PrivateKeyJWTOAuthProvider(
                flow.auth.server_url, flow.memory, assertion_provider=_assertions(flow), **common
            )
        client = flow.memory.client
        return ClientCredentialsOAuthProvider(
            flow.auth.server_url,
            flow.memory,
            client_secret=str(client.client_secret if client is not None else ""),
            token_endpoint_auth_method=config.token_endpoint_auth_method,  # type: ignore[arg-type]
            **common,
        )


def _assertions(flow: Flow) -> Callable[[str], Awaitable[str]]:
    config = flow.config

    async def provided(audience: str) -> str:
        return await assertion(flow, "assertion_provider", audience)

    async def signed(audience: str) -> str:
        pem = config.private_key.resolve_value() if config.private_key is not None else None
        if not pem:
            msg = "the `private_key` has no value"
            raise MCPAuthorizationError(msg)
        now = int(time.time())
        claims = {
            "iss": config.client_id,
            "sub": config.client_id,
            "aud": audience,
            "iat": now,
            "exp": now + _LIFETIME,
            "jti": uuid.uuid4().hex,
        }
        return sign(claims, str(pem), config.signing_algorithm, {"kid": config.key_id} if config.key_id else None)

    return signed if config.private_key is not None else provided


def sign(claims: dict[str, Any], pem: str, algorithm: str | None, headers: dict[str, Any] | None = None) -> str:
    """
    Sign a JWT.

    :param claims: Its claims.
    :param pem: The private key.
    :param algorithm: The algorithm, or None for what the key is made for.
    :param headers: More headers.
    :returns: The JWT.
    :raises MCPAuthorizationError: If the key does not allow it. The message contains nothing of it.
    """
    try:
        key: Any = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError):
        msg = "the `private_key` is no private key in PEM without a password"
        raise MCPAuthorizationError(msg) from None
    if isinstance(key, rsa.RSAPrivateKey):
        default = "RS256"
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        default = _CURVES.get(key.curve.name, "ES256")
    else:
        default = "EdDSA"
    try:
        return jwt.encode(claims, key, algorithm=algorithm or default, headers=headers)
    except (TypeError, ValueError, NotImplementedError, jwt.PyJWTError) as error:
        msg = f"the `private_key` cannot sign with {algorithm or default} ({type(error).__name__})"
        raise MCPAuthorizationError(msg) from None
