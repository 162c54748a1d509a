# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An MCP server that requires tokens, its authorization server and an identity provider, all without sockets.
"""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import parse_qsl

import httpx2

from haystack_integrations.tools.mcp import OAuthConfig
from haystack_integrations.tools.mcp.auth.request_auth import OAuth
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage, MCPLoginRequest

BACK = "https://me.example.com/back"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


class TokenNetwork:
    """
    Answers every request. `answers` has other answers for a path, which are used in turn; the last one is repeated.
    """

    def __init__(self, origin: str = "") -> None:
        # The process caches what it learns about a server, so each network has its own address.
        self.origin = origin or f"https://{uuid.uuid4().hex}.example.com"
        self.url = f"{self.origin}/mcp"
        self.idp_url = "https://idp.example.com/token"
        self.answers: dict[str, list[httpx2.Response]] = {}
        self.requests: list[httpx2.Request] = []
        self.token: dict[str, Any] = {"access_token": "the-access-token", "token_type": "Bearer", "expires_in": 3600}
        self.metadata: dict[str, Any] = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "revocation_endpoint": f"{self.origin}/revoke",
            "registration_endpoint": f"{self.origin}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "grant_types_supported": ["urn:ietf:params:oauth:grant-type:jwt-bearer"],
            "authorization_grant_profiles_supported": ["urn:ietf:params:oauth:grant-profile:id-jag"],
        }

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        # Copied, because some requests are sent once more with other headers.
        self.requests.append(
            httpx2.Request(request.method, request.url, headers=request.headers, content=request.content)
        )
        path = request.url.path if request.url.host != "idp.example.com" else "/idp"
        waiting = self.answers.get(path)
        if waiting:
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if path == "/mcp":
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme in ("Bearer", "DPoP") and token == self.token["access_token"]:
                return httpx2.Response(200, text="welcome")
            return httpx2.Response(401, headers={"WWW-Authenticate": "Bearer"})
        if path.startswith("/.well-known/oauth-protected-resource"):
            return httpx2.Response(200, json={"resource": self.url, "authorization_servers": [self.origin]})
        if path.startswith("/.well-known/oauth-authorization-server"):
            return httpx2.Response(200, json=self.metadata)
        if path == "/register":
            return httpx2.Response(
                201, json={"client_id": "registered", "redirect_uris": ["http://127.0.0.1/callback"]}
            )
        if path == "/token":
            return httpx2.Response(200, json=self.token)
        if path == "/idp":
            given = {"access_token": "the-id-jag", "issued_token_type": ID_JAG, "token_type": "N_A"}
            return httpx2.Response(200, json=given)
        return httpx2.Response(200 if path == "/revoke" else 404)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(self), **options) as client:
            yield client

    def auth(self, **options: Any) -> OAuth:
        config = OAuthConfig(**{"token_storage": InMemoryTokenStorage(), **options})
        auth = cast("OAuth", config.create_auth(self.url))
        auth.clients = self.client
        return auth

    def person(self, **options: Any) -> OAuth:
        """
        Return the login of a person who allows the access at once, in a web app that receives the answer itself.
        """
        handlers = {
            "redirect_uri": BACK,
            "redirect_handler": lambda _: None,
            "callback_handler": self.come_back,
        }
        return self.auth(**{**handlers, **options})

    def come_back(self, request: MCPLoginRequest) -> Any:
        return {"code": "the-code", "state": request.state}

    async def use(self, auth: OAuth) -> httpx2.Response:
        """
        Send a request to the MCP server.
        """
        async with self.client(auth=auth) as client:
            return await client.post(self.url, json={})

    def hold_tokens(self, auth: OAuth) -> tuple[asyncio.Event, asyncio.Event]:
        """
        Hold back answers for tokens. Return an event that a token request sets, and an event that allows the answer.
        """
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def answer(request: httpx2.Request) -> httpx2.Response:
            response = self(request)
            if request.url.path == "/token":
                asked.set()
                await go_on.wait()
            return response

        auth.clients = lambda: httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        return asked, go_on

    def asked(self, path: str) -> list[httpx2.Request]:
        return [request for request in self.requests if request.url.path == path]

    def forms(self, path: str = "/token") -> list[dict[str, str]]:
        """
        Return the forms that were sent to a path of the MCP server's origin, or to the identity provider (`/idp`).
        """
        found = [request for request in self.requests if (request.url.host == "idp.example.com") == (path == "/idp")]
        return [dict(parse_qsl(request.content.decode())) for request in found if path in ("/idp", request.url.path)]


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
