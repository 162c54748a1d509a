# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The grant of persons: they allow the access in a browser (RFC 6749, 4.1, with PKCE, RFC 7636).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth import PKCEParameters

from haystack_integrations.tools.mcp.auth.browser import can_open, open_url
from haystack_integrations.tools.mcp.auth.config import OAuthConfig, is_loopback
from haystack_integrations.tools.mcp.auth.discovery import ServerMetadata
from haystack_integrations.tools.mcp.auth.loopback import Listener, PortTakenError
from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.auth.requests import MCPLoginRequest, login_under_way
from haystack_integrations.tools.mcp.auth.token_store import TokenKey
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.import_paths import provide

# Where a listener waits unless the configuration says otherwise: RFC 8252, 7.3.
_DEFAULT_REDIRECT_URI = "http://127.0.0.1/callback"

_OTHER_STATE = "the answer has another `state` than the login under way"


class Login:
    """
    One login. Within `async with`, it listens for the browser, unless the configuration has a `callback_handler`.
    """

    def __init__(self, config: OAuthConfig, key: TokenKey, outgoing: Outgoing, registered: Iterable[str]) -> None:
        """
        Initialize the Login.

        :param config: The configuration.
        :param key: Who logs in where.
        :param outgoing: Sends the requests of the flow.
        :param registered: The redirect URIs of the client's registration.
        """
        self._config = config
        self._key = key
        self._outgoing = outgoing
        # Many authorization servers take the port of the registration only.
        self._registered = next(filter(is_loopback, registered), None)
        self._listener: Listener | None = None
        self._stack = AsyncExitStack()
        self._pkce = PKCEParameters.generate()
        self._state = secrets.token_urlsafe(32)
        outgoing.secrets.update((self._pkce.code_verifier, self._state))

    @property
    def redirect_uri(self) -> str:
        """
        Where the authorization server sends the browser.
        """
        return self._listener.redirect_uri if self._listener is not None else str(self._config.redirect_uri)

    @property
    def is_native(self) -> bool:
        """
        Whether the browser comes back to this machine.
        """
        return self._listener is not None

    async def __aenter__(self) -> Self:
        config = self._config
        if config.redirect_handler is None and not can_open():
            msg = (
                "a person has to log in, and this process has no browser. Log in beforehand, with `login(server_info)` "
                "or `mcp-haystack login`, and a `token_storage` that this process shares, "
                "such as FileTokenStorage; or pass a `redirect_handler`"
            )
            raise MCPAuthorizationError(msg)
        if config.callback_handler is None:
            uri = config.redirect_uri or _DEFAULT_REDIRECT_URI
            listener = Listener(config.redirect_uri or self._registered or uri, self._state)
            try:
                self._listener = await self._stack.enter_async_context(listener)
            except PortTakenError as error:
                if urlsplit(uri).port is not None:
                    msg = f"the port of the `redirect_uri` cannot be listened on ({error})"
                    raise MCPAuthorizationError(msg) from None
                self._listener = await self._stack.enter_async_context(Listener(uri, self._state))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def grant(
        self, server: ServerMetadata, client_id: str, resource: str | None, scope: str | None
    ) -> dict[str, str]:
        """
        Lead a person to the authorization server, and wait for the code that it gives.

        :param server: The authorization server.
        :param client_id: The client.
        :param resource: The resource that the tokens are for.
        :param scope: The scopes to ask for.
        :returns: The form of the token request.
        :raises MCPAuthorizationError: If the access is not allowed, or by somebody else.
        """
        if server.authorization_endpoint is None:
            msg = f"{server.issuer} has no `authorization_endpoint`, so no person can log in there"
            raise MCPAuthorizationError(msg)
        parameters = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": self.redirect_uri,
            "state": self._state,
            "code_challenge": self._pkce.code_challenge,
            "code_challenge_method": "S256",
            **({"resource": resource} if resource else {}),
            **({"scope": scope} if scope else {}),
            # OpenID Connect Core, 11
            **({"prompt": "consent"} if "offline_access" in (scope or "").split() else {}),
        }
        url = httpx2.URL(server.authorization_endpoint).copy_merge_params(parameters)
        await self._outgoing.check(url)
        request = MCPLoginRequest(
            url=str(url),
            redirect_uri=self.redirect_uri,
            state=self._state,
            server_url=self._key.server_url,
            user=self._key.user,
        )
        with login_under_way(self._key.server_url):
            await self._redirect(request)
            answer = await self._answer(request)
        return {
            "grant_type": "authorization_code",
            "code": self._check(answer, server),
            "redirect_uri": self.redirect_uri,
            "client_id": client_id,
            "code_verifier": self._pkce.code_verifier,
        }

    async def _redirect(self, request: MCPLoginRequest) -> None:
        self._outgoing.step = "opening the page of the authorization server"
        if self._config.redirect_handler is None:
            await open_url(request.url)
            return
        try:
            await provide(self._config.redirect_handler, request)
        except Exception as error:
            msg = f"`redirect_handler` failed ({type(error).__name__}: {error})"
            raise MCPAuthorizationError(msg) from error

    async def _answer(self, request: MCPLoginRequest) -> Mapping[str, str | None]:
        self._outgoing.step = "waiting for the login"
        try:
            async with asyncio.timeout(self._config.login_timeout):
                return await (self._provided(request) if self._listener is None else self._listener.answer())
        except TimeoutError:
            msg = f"nobody logged in within {self._config.login_timeout:g} seconds (`login_timeout`)"
            raise MCPAuthorizationError(msg) from None

    async def _provided(self, request: MCPLoginRequest) -> Mapping[str, str | None]:
        handler: Any = self._config.callback_handler
        try:
            given = await provide(handler, request)
        except Exception as error:
            msg = f"`callback_handler` failed ({type(error).__name__}: {error})"
            raise MCPAuthorizationError(msg) from error
        if isinstance(given, str):
            return dict(parse_qsl(urlsplit(given).query))
        if not isinstance(given, Mapping):
            msg = f"`callback_handler` must give a URL or a dict, it gave {type(given).__name__}"
            raise MCPAuthorizationError(msg)
        return given

    def _check(self, answer: Mapping[str, str | None], server: ServerMetadata) -> str:
        code, state, iss = (answer.get(name) for name in ("code", "state", "iss"))
        if code:
            self._outgoing.secrets.add(str(code))
        is_ours = state is not None and secrets.compare_digest(str(state).encode(), self._state.encode())
        # Only the one who knows the state may say that the access was refused; some servers leave it out then.
        if not is_ours and (state is not None or (code and not answer.get("error"))):
            raise MCPAuthorizationError(_OTHER_STATE)
        if answer.get("error"):
            told = ": ".join(filter(None, (answer.get("error"), answer.get("error_description"))))
            msg = f"the authorization server refused: {told}"
            raise MCPAuthorizationError(msg)
        if not code:
            msg = "the answer of the authorization server has no code"
            raise MCPAuthorizationError(msg)
        # RFC 9207, 2.4: the characters are compared, without the tolerance of `same_issuer`.
        if iss != server.issuer and (iss is not None or server.authorization_response_iss_parameter_supported):
            msg = f"iss mismatch: the answer is of {iss or 'no issuer'}, and {server.issuer} was asked"
            raise MCPAuthorizationError(msg)
        return str(code)
