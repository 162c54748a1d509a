# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tokens that are bound to a key of the client: RFC 9449.
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
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm

from haystack_integrations.tools.mcp.auth.records import json_object

_ALGORITHM = "ES256"
_NONCE_ERROR = "use_dpop_nonce"


class Proofs:
    """
    The proofs of possession of one key, and the nonces that servers want in them.
    """

    def __init__(self, pem: str) -> None:
        """
        Initialize the Proofs.

        :param pem: The private key.
        """
        self.pem = pem
        self._key: Any = load_pem_private_key(pem.encode(), None)
        public = ECAlgorithm.to_jwk(self._public(), as_dict=True)
        self._jwk = {name: public[name] for name in ("kty", "crv", "x", "y")}
        self._nonces: dict[str, str] = {}

    def _public(self) -> Any:
        return self._key.public_key()

    @classmethod
    def of(cls, record: dict[str, Any]) -> Proofs:
        """
        Use the key of a record, or make one.

        :param record: The record.
        :returns: The proofs.
        """
        pem = record.get("dpop_key")
        if pem is None:
            key = ec.generate_private_key(ec.SECP256R1())
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return cls(pem)

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
        nonce = self._nonces.get(_origin(request.url))
        if nonce is not None:
            claims["nonce"] = nonce
        headers = {"typ": "dpop+jwt", "jwk": self._jwk}
        request.headers["DPoP"] = jwt.encode(claims, self._key, algorithm=_ALGORITHM, headers=headers)

    def wants_another(self, response: httpx2.Response) -> bool:
        """
        Take the nonce of a response.

        :param response: The response.
        :returns: Whether it refuses the request for the lack of this nonce.
        """
        nonce = response.headers.get("dpop-nonce")
        if nonce is None:
            return False
        self._nonces[_origin(response.request.url)] = nonce
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            return _NONCE_ERROR in response.headers.get("www-authenticate", "")
        return response.status_code == httpx2.codes.BAD_REQUEST and json_object(response).get("error") == _NONCE_ERROR


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}"
