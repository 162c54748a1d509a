# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
MCP servers behind authorization servers that behave like those of well-known vendors, according to reports.
"""

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2

from haystack_integrations.tools.mcp.auth.request_auth import OAuth
from haystack_integrations.tools.mcp.oauth import MCPLoginRequest
from tests.support.token_network import BACK, TokenNetwork


class DeployedServer(TokenNetwork):
    """
    An MCP server and its authorization server; `asked_for` has the parameters of all requests for codes and tokens.

    :param issuer: The issuer in the authorization server's metadata, whose path is `at`.
    :param advertised: The authorization server that the MCP server names, if not the issuer; None: no metadata.
    :param metadata: Additional members of the metadata.
    :param scopes: The scopes that the MCP server names.
    :param given: Members that replace the usual ones in token responses.
    :param refused: Parameters or scopes with which an authorization or token request is refused.
    :param registration: The members that a registration may have; None if clients cannot register themselves.
    """

    def __init__(
        self,
        issuer: str = "https://as.test",
        *,
        advertised: str | None = "",
        at: str = "/.well-known/oauth-authorization-server",
        metadata: dict[str, Any] | None = None,
        scopes: list[str] | None = None,
        given: dict[str, Any] | None = None,
        refused: frozenset[str] = frozenset(),
        registration: frozenset[str] | None = None,
    ) -> None:
        super().__init__()
        self.at, self.scopes, self.given, self.refused, self.registration = at, scopes, given, refused, registration
        self.advertised = issuer if advertised == "" else advertised
        self.asked_for: list[dict[str, str]] = []
        self.valid: set[str] = set()
        host = f"https://{urlsplit(issuer).netloc}"
        self.metadata = {
            "issuer": issuer,
            "authorization_endpoint": f"{host}/authorize?tenant=7",
            "token_endpoint": f"https://tokens.{urlsplit(issuer).netloc}/token",
            "response_types_supported": ["code"],
            "registration_endpoint": None if registration is None else f"{host}/register",
            **(metadata or {}),
        }

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        path, is_own = request.url.path, str(request.url).startswith(self.origin)
        if is_own and path == "/mcp":
            is_welcome = request.headers.get("authorization", "").removeprefix("Bearer ") in self.valid
            headers = {"WWW-Authenticate": "Bearer"}
            return httpx2.Response(200, text="welcome") if is_welcome else httpx2.Response(401, headers=headers)
        if is_own:
            if self.advertised is None or path != "/.well-known/oauth-protected-resource/mcp":
                return httpx2.Response(404)
            members = {"resource": self.url, "authorization_servers": [self.advertised]}
            return httpx2.Response(200, json={**members, "scopes_supported": self.scopes})
        if request.method == "GET":
            return httpx2.Response(200, json=self.metadata) if path == self.at else httpx2.Response(404)
        if path == "/register":
            client = json.loads(request.content)
            unknown = sorted(client.keys() - (self.registration or frozenset())) or self._refused(client)
            if unknown:
                return httpx2.Response(400, json={"error": "invalid_client_metadata", "error_description": unknown})
            return httpx2.Response(201, json={"client_id": "registered", "redirect_uris": [BACK], "contacts": None})
        return self._token(dict(parse_qsl(request.content.decode())))

    def _token(self, form: dict[str, str]) -> httpx2.Response:
        self.asked_for.append(form)
        refused = self._refused(form)
        if refused:
            return httpx2.Response(400, json={"error": "invalid_request", "error_description": refused})
        token = f"token-{len(self.asked_for)}-of-{urlsplit(self.origin).netloc[:8]}"
        self.valid = {token}
        usual = {"access_token": token, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "refresh-me"}
        answer = {**usual, **(self.given or {})}
        return httpx2.Response(200, json={name: value for name, value in answer.items() if value != "absent"})

    def _refused(self, parameters: dict[str, str]) -> str:
        scopes = parameters.get("scope", "").split()
        found = [name for name in self.refused if name in parameters or name in scopes]
        return f"{found[0]} is not supported" if found else ""

    def come_back(self, request: MCPLoginRequest) -> str:
        asked = dict(parse_qsl(urlsplit(request.url).query))
        assert (asked["tenant"], request.redirect_uri, request.server_url) == ("7", BACK, self.url)
        self.asked_for.append(asked)
        refused = self._refused(asked)
        error = "invalid_request" if self.refused & asked.keys() else "invalid_scope"
        answer = {"error": error, "error_description": refused} if refused else {"code": "the-code"}
        return f"{BACK}?{urlencode({**answer, 'state': asked['state'], 'iss': self.metadata['issuer']})}"

    def login(self, **options: Any) -> OAuth:
        """
        Return the login of a service if the options have a client secret but no grant type, and otherwise of a person.
        """
        is_service = "client_secret" in options and "grant_type" not in options
        return self.auth(**options) if is_service else self.person(**options)

    def kinds(self) -> list[str]:
        """
        Return the kinds of requests for codes and tokens, in order.
        """
        return [asked.get("grant_type", "login") for asked in self.asked_for]
