# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a client signs.

Proofs that a token is bound to its key (DPoP, RFC 9449), and assertions that it is the client (`private_key_jwt`,
RFC 7523, 2.2).
"""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
from typing import Any

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from jwt.algorithms import ECAlgorithm

from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

_NONCE_ERROR = "use_dpop_nonce"

# Seconds that an assertion is valid.
_ASSERTION_LIFETIME = 300

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class Proofs:
    """
    The proofs of possession of one key, and the nonces that servers want in them.
    """

    def __init__(self, pem: str | None) -> None:
        """
        Initialize the Proofs.

        :param pem: The private key; None for a new one.
        """
        key: Any = ec.generate_private_key(ec.SECP256R1()) if pem is None else load_pem_private_key(pem.encode(), None)
        self._key = key
        self.pem: str = pem or key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self._jwk = {name: public[name] for name in ("kty", "crv", "x", "y")}
        self._nonces: dict[bytes, str] = {}

    def prove(self, request: httpx2.Request, token: str | None = None) -> None:
        """
        Put a new proof on a request.

        :param request: The request.
        :param token: The access token that it carries.
        """
        claims: dict[str, Any] = {
            "jti": uuid.uuid4().hex,
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
        nonce = self._nonces.get(request.url.netloc)
        if nonce is not None:
            claims["nonce"] = nonce
        headers = {"typ": "dpop+jwt", "jwk": self._jwk}
        request.headers["DPoP"] = jwt.encode(claims, self._key, algorithm="ES256", headers=headers)

    def wants_another(self, response: httpx2.Response, error: Any = None) -> bool:
        """
        Keep the nonce of a response.

        :param response: The response.
        :param error: The `error` of an authorization server.
        :returns: Whether it refuses the request for the lack of this nonce.
        """
        nonce = response.headers.get("dpop-nonce")
        if nonce is None:
            return False
        self._nonces[response.request.url.netloc] = nonce
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            return _NONCE_ERROR in response.headers.get("www-authenticate", "")
        return bool(error == _NONCE_ERROR)


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
        "exp": now + _ASSERTION_LIFETIME,
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
