# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An authorization server of other people: Authlib's, in Flask; and an MCP server at another port that takes its tokens.
"""

import threading
import time
from collections import Counter
from typing import Any, Self

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9207.parameter import IssuerParameter
from flask import Flask, jsonify, request
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from werkzeug.serving import make_server

from tests.support.reachable import AppThread


class Client(ClientMixin):
    def __init__(self, client_id: str, method: str, grant: str, *, secret: str = "") -> None:
        self.client_id, self.method, self.grant, self.secret = client_id, method, grant, secret

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.startswith("http://127.0.0.1:") and redirect_uri.endswith("/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return bool(client_secret == self.secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == self.method

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in (self.grant, "refresh_token")


class _Code:
    def __init__(self, asked: Any, user: str, challenge: str) -> None:
        self.redirect_uri, self.scope, self.user = asked.payload.redirect_uri, asked.payload.scope or "", user
        self.code_challenge, self.code_challenge_method = challenge, "S256"

    def get_redirect_uri(self) -> str:
        return str(self.redirect_uri)

    def get_scope(self) -> str:
        return str(self.scope)


class _Refresh:
    def __init__(self, client: Client, user: str, scope: str) -> None:
        self.client, self.user, self.scope = client, user, scope

    def check_client(self, client: Client) -> bool:
        return client is self.client

    def get_scope(self) -> str:
        return self.scope


class AuthlibServer(AppThread):
    """
    `whoami()` tells client and subject of the token.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[str, Client] = {}
        self.count: Counter[str] = Counter()
        self.tokens: dict[str, AccessToken] = {}
        self.codes: dict[str, _Code] = {}
        self.refresh: dict[str, _Refresh] = {}
        self._web = make_server("127.0.0.1", 0, self._flask(), threaded=True)
        self.issuer = f"http://127.0.0.1:{self._web.server_port}"
        self._web_thread = threading.Thread(target=self._web.serve_forever, name="authlib-server")
        self.url = f"{self.origin}/mcp"
        settings = AuthSettings(
            issuer_url=self.issuer, resource_server_url=self.url, validate_token_resource=False, required_scopes=["use"]
        )
        server = MCPServer("guarded", token_verifier=self, auth=settings)

        @server.tool()
        def whoami() -> str:
            token = get_access_token()
            assert token is not None
            return f"{token.client_id}/{token.subject}"

        self.app = server.streamable_http_app()

    async def verify_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    def _save(self, token: dict[str, Any], asked: Any) -> None:
        self.count[asked.form["grant_type"]] += 1
        self.tokens[token["access_token"]] = AccessToken(
            token=token["access_token"],
            client_id=asked.client.client_id,
            scopes=(token.get("scope") or "").split(),
            expires_at=int(time.time()) + 3600,
            subject=asked.user,
        )
        if token.get("refresh_token"):
            self.refresh[token["refresh_token"]] = _Refresh(asked.client, asked.user, token.get("scope") or "")

    def _flask(self) -> Flask:
        owner = self
        app = Flask("authlib-server")
        app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
        app.config["OAUTH2_SCOPES_SUPPORTED"] = ["use"]
        server = AuthorizationServer(app, self.clients.get, self._save)

        class AuthorizationCodeGrant(grants.AuthorizationCodeGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")

            def save_authorization_code(self, code: str, asked: Any) -> None:
                owner.codes[code] = _Code(asked, asked.user, asked.payload.data["code_challenge"])

            def query_authorization_code(self, code: str, client: Client) -> _Code | None:
                return owner.codes.get(code)

            def delete_authorization_code(self, code: _Code) -> None:
                owner.codes = {key: value for key, value in owner.codes.items() if value is not code}

            def authenticate_user(self, code: _Code) -> str:
                return code.user

        class RefreshTokenGrant(grants.RefreshTokenGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")
            INCLUDE_NEW_REFRESH_TOKEN = True

            def authenticate_refresh_token(self, refresh_token: str) -> _Refresh | None:
                return owner.refresh.get(refresh_token)

            def authenticate_user(self, refresh_token: _Refresh) -> str:
                return refresh_token.user

            def revoke_old_credential(self, refresh_token: _Refresh) -> None:
                owner.refresh = {key: value for key, value in owner.refresh.items() if value is not refresh_token}

        class ClientCredentialsGrant(grants.ClientCredentialsGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

        class Issuer(IssuerParameter):
            def get_issuer(self) -> str:
                return owner.issuer

        server.register_grant(AuthorizationCodeGrant, [CodeChallenge(required=True)])
        server.register_grant(RefreshTokenGrant)
        server.register_grant(ClientCredentialsGrant)
        server.register_extension(Issuer())

        @app.get("/.well-known/oauth-authorization-server")
        def metadata() -> Any:
            return jsonify(
                issuer=self.issuer,
                authorization_endpoint=f"{self.issuer}/authorize",
                token_endpoint=f"{self.issuer}/token",
                response_types_supported=["code"],
                code_challenge_methods_supported=["S256"],
                authorization_response_iss_parameter_supported=True,
            )

        @app.get("/authorize")
        def authorize() -> Any:
            asked = server.get_consent_grant(end_user="alice")
            return server.create_authorization_response(request, "alice", asked)

        @app.post("/token")
        def token() -> Any:
            return server.create_token_response()

        return app

    def __enter__(self) -> Self:
        self._web_thread.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._web.shutdown()
        self._web_thread.join(30)
        self._web.server_close()
