# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An MCP server over HTTP in this process that is protected by the authorization server of the MCP SDK.

Opening its page allows the access; `allow` does so without a browser.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import httpx2
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.requests import Request
from starlette.responses import Response

from haystack_integrations.tools.mcp.oauth import MCPLoginRequest
from tests.support import secrecy
from tests.support.reachable import AppThread
from tests.support.waiting import LIMIT

# Gets the path and body of a response, and returns another response in its place, or None.
Tamper = Callable[[str, bytes], "Response | None"]

# The user who opens the page of the authorization server.
_subject: ContextVar[str] = ContextVar("subject")


class OAuthProvider:
    """
    Keeps clients and tokens, which the authorization server of the SDK leaves to its user.
    """

    def __init__(self, server: "OAuthServer") -> None:
        self.server = server
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.server.count["registrations"] += 1
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.server.count["authorizations"] += 1
        code = f"code-{secrets.token_urlsafe(24)}"
        self.server.issued.add(code)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=_subject.get(),
        )
        answer = {"code": code, "state": params.state, "iss": self.server.origin}
        return construct_redirect_uri(str(params.redirect_uri), **answer)

    async def load_authorization_code(self, client: OAuthClientInformationFull, code: str) -> AuthorizationCode | None:
        return self.codes.get(code)

    def _issue(self, grant: AuthorizationCode | RefreshToken, scopes: list[str]) -> OAuthToken:
        token, refresh = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
        self.server.issued |= {token, refresh}
        self.server.count[f"tokens of {grant.subject}"] += 1
        granted = sorted(set(scopes) | {"use"})
        whose = {"client_id": grant.client_id, "scopes": granted, "resource": grant.resource, "subject": grant.subject}
        expires_at = int(time.time() + self.server.lifetime + 1)
        self.access[token] = AccessToken(token=token, expires_at=expires_at, **whose)
        self.refresh[refresh] = RefreshToken(token=refresh, **whose)
        lifetime = self.server.lifetime
        return OAuthToken(access_token=token, expires_in=lifetime, refresh_token=refresh, scope=" ".join(granted))

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[code.code]
        return self._issue(code, code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        # Refresh tokens are rotated: the second use of one is refused.
        del self.refresh[refresh_token.token]
        await asyncio.sleep(self.server.refresh_takes)
        self.server.count["refreshes"] += 1
        self.server.count[f"refreshes of {refresh_token.subject}"] += 1
        return self._issue(refresh_token, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return found if found is not None and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)


class OAuthServer(AppThread):
    """
    An MCP server. `whoami()` returns the owner of the call's token, and `write()` needs the scope `write`.

    `count` counts events; `calls` has the user and the intended name of each call; `issued` has all secrets.
    """

    def __init__(self, *, transport: str = "streamable-http", revokes: bool = False) -> None:
        super().__init__(self._serve)
        self.count: Counter[str] = Counter()
        self.calls: list[tuple[str, str]] = []
        self.issued: set[str] = set()
        secrecy.issued.append(self.issued)
        self.lifetime = 3600
        self.refresh_takes = 0.0
        self.tamper: Tamper = lambda path, body: None
        self.paths: list[str] = []
        self.url = f"{self.origin}/{'sse' if transport == 'sse' else 'mcp'}"
        self.provider = OAuthProvider(self)
        server = MCPServer(
            "protected",
            auth_server_provider=self.provider,
            auth=AuthSettings(
                issuer_url=self.origin,
                resource_server_url=self.url,
                validate_token_resource=True,
                required_scopes=["use"],
                revocation_options=RevocationOptions(enabled=revokes),
                client_registration_options=ClientRegistrationOptions(
                    enabled=True, valid_scopes=["use", "write"], default_scopes=["use", "write"]
                ),
            ),
        )
        self._add_tools(server)
        self._app: Any = server.sse_app() if transport == "sse" else server.streamable_http_app()

    def _add_tools(self, server: MCPServer) -> None:
        owner = self

        @server.tool()
        async def whoami(name: str = "", seconds: float = 0.0) -> str:
            token = get_access_token()
            assert token is not None
            await asyncio.sleep(seconds)
            owner.calls.append((token.subject or "", name))
            return token.subject or ""

        @server.tool()
        def write() -> str:
            return "written"

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        path = scope["path"]
        self.paths.append(path)
        body = await request.body()
        _subject.set(request.query_params.get("subject", ""))
        response = self.tamper(path, body)
        if response is None and b'"name":"write"' in body and not self._may_write(request):
            self.count["step-ups"] += 1
            challenge = 'Bearer error="insufficient_scope", scope="write"'
            response = Response(status_code=403, headers={"WWW-Authenticate": challenge})
        if response is not None:
            await response(scope, receive, send)
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Any:
            return next(messages, None) or await receive()

        await self._app(scope, replay, send)

    def _may_write(self, request: Request) -> bool:
        token = self.provider.access.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        return token is None or "write" in token.scopes


async def allow(login: MCPLoginRequest) -> None:
    """
    Act as a browser in which the user of the login, or Alice, allows the access.
    """
    # Twenty of them may run at the same time.
    async with httpx2.AsyncClient(follow_redirects=True, timeout=LIMIT) as browser:
        answer = await browser.get(f"{login.url}&subject={login.user or 'alice'}")
        assert answer.status_code in (200, 400), answer.text
