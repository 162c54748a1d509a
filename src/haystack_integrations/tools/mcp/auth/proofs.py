# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Proofs of possession: tokens that are of no use without the key that they are bound to (DPoP, RFC 9449).
"""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
from typing import Any

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from jwt.algorithms import ECAlgorithm


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
            return "use_dpop_nonce" in response.headers.get("www-authenticate", "")
        return bool(error == "use_dpop_nonce")
