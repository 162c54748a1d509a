# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The grant of clients with credentials of their own: RFC 6749, 4.4; with a private key RFC 7523, 2.2.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from haystack_integrations.tools.mcp.auth.config import OAuthConfig
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

# Seconds that an assertion is valid.
_LIFETIME = 300

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


def client_assertion(config: OAuthConfig, audience: str) -> str:
    """
    Sign the assertion by which a client with a private key authenticates.

    :param config: The configuration.
    :param audience: The issuer of the authorization server.
    :returns: A JWT.
    :raises MCPAuthorizationError: If the key does not allow it. The message contains nothing of it.
    """
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
    try:
        key: Any = load_pem_private_key(str(pem).encode(), None)
    except (ValueError, TypeError):
        msg = "the `private_key` is no private key in PEM without a password"
        raise MCPAuthorizationError(msg) from None
    algorithm = config.signing_algorithm or _algorithm(key)
    headers = {"kid": config.key_id} if config.key_id else None
    try:
        return jwt.encode(claims, key, algorithm=algorithm, headers=headers)
    except (TypeError, ValueError, NotImplementedError, jwt.PyJWTError) as error:
        msg = f"the `private_key` cannot sign with {algorithm} ({type(error).__name__})"
        raise MCPAuthorizationError(msg) from None


def _algorithm(key: Any) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    return _CURVES.get(key.curve.name, "ES256") if isinstance(key, ec.EllipticCurvePrivateKey) else "EdDSA"
