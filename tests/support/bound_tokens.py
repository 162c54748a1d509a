# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What makes an `OAuthServer` one that binds tokens to keys of its clients: RFC 9449.
"""

import base64
import hashlib
import json
from typing import Any

import jwt
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response

from tests.support.oauth_server import OAuthServer

NONCE = "the-nonce"


class DPoPGate:
    """
    Stands before the application of a server: checks the proofs, and lets the application see bearer tokens.
    """

    def __init__(self, server: OAuthServer) -> None:
        self._server = server
        self._app, server._app = server._app, self
        # The key of each access token and refresh token.
        self.keys: dict[str, str] = {}
        self.proofs: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["path"] == "/token":
            await self._issue(headers, scope, receive, send)
        elif "authorization" not in headers:
            await self._app(scope, receive, send)
        else:
            refusal = self._refusal(headers, scope)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            MutableHeaders(scope=scope)["authorization"] = f"Bearer {headers['authorization'].partition(' ')[2]}"
            await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, scope: Any) -> Response | None:
        scheme, _, token = headers["authorization"].partition(" ")
        key, error = self._check(headers, scope, token)
        if not error and scheme == "DPoP" and key == self.keys.get(token):
            return None
        challenge = f'DPoP error="{error or "invalid_token"}", resource_metadata="{self._server.metadata_url}"'
        return Response(status_code=401, headers={"WWW-Authenticate": challenge, "DPoP-Nonce": NONCE})

    def _check(self, headers: Headers, scope: Any, token: str | None) -> tuple[str, str]:
        proof = headers.get("dpop")
        if proof is None:
            return "", "invalid_dpop_proof"
        header = jwt.get_unverified_header(proof)
        claims = jwt.decode(proof, jwt.PyJWK(header["jwk"]), algorithms=["ES256"])
        assert header["typ"] == "dpop+jwt"
        assert "d" not in header["jwk"]
        assert claims["jti"] not in self.proofs, "a proof was used twice"
        assert (claims["htm"], claims["htu"]) == (scope["method"], f"{self._server.origin}{scope['path']}")
        assert claims.get("ath") == (None if token is None else _digest(token))
        self.proofs.append(claims["jti"])
        key = _digest(json.dumps({name: header["jwk"][name] for name in ("crv", "kty", "x", "y")}))
        return key, "" if claims.get("nonce") == NONCE else "use_dpop_nonce"

    async def _issue(self, headers: Headers, scope: Any, receive: Any, send: Any) -> None:
        key, error = self._check(headers, scope, None)
        if error:
            await JSONResponse({"error": error}, 400, headers={"DPoP-Nonce": NONCE})(scope, receive, send)
            return
        message = await receive()
        body = message["body"].decode()
        refreshed = next((owner for token, owner in self.keys.items() if token in body), key)
        assert refreshed == key, "a refresh token came with another key"
        start: dict[str, Any] = {}

        async def bind(answer: Any) -> None:
            if answer["type"] == "http.response.start":
                start.update(answer)
                return
            issued = json.loads(answer["body"])
            if "access_token" in issued:
                issued["token_type"] = "DPoP"
                self.keys.update({issued[name]: key for name in ("access_token", "refresh_token")})
            await JSONResponse(issued, start["status"])(scope, receive, send)

        async def replay() -> Any:
            return message

        await self._app(scope, replay, bind)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
