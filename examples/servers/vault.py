# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

# ruff: noqa: ARG002 - a protocol defines the methods' parameters

"""
An MCP server that is protected by OAuth, with an authorization server that grants every request.

`running()` starts it in a thread. Real authorization servers show a page with a login.
"""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


class AllowEverybody:
    """
    An authorization server that grants every request and keeps clients, codes and tokens in memory.
    """

    def __init__(self) -> None:
        self.clients, self.codes, self.tokens, self.refresh = {}, {}, {}, {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe()
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly"}),
            resource=params.resource,
            subject="ada",
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(authorization_code)

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue(refresh_token)

    async def load_access_token(self, token):
        return self.tokens.get(token)

    async def revoke_token(self, token) -> None:
        self.tokens.pop(token.token, None)

    def _issue(self, grant) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(), secrets.token_urlsafe()
        whose = grant.model_dump(include={"client_id", "scopes", "resource", "subject"})
        self.tokens[access] = AccessToken(token=access, **whose)
        self.refresh[refresh] = RefreshToken(token=refresh, **whose)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600)


@contextmanager
def running() -> Iterator[str]:
    """
    Run the server, and yield its URL.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = MCPServer(
        "vault",
        auth_server_provider=AllowEverybody(),
        auth=AuthSettings(
            issuer_url=origin,
            resource_server_url=f"{origin}/mcp",
            validate_token_resource=True,
            client_registration_options=ClientRegistrationOptions(enabled=True),
        ),
    )

    @server.tool()
    def open_vault() -> str:
        """Open the vault of the user who calls."""
        return f"The vault of {get_access_token().subject} is open"

    web = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=lambda: asyncio.run(web.serve(sockets=[listener])))
    thread.start()
    try:
        yield f"{origin}/mcp"
    finally:
        web.should_exit = True
        thread.join()
