# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The grant of persons: they allow the access in a browser (RFC 6749, 4.1, with PKCE, RFC 7636).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from haystack_integrations.tools.mcp.auth.browser import can_open, open_url
from haystack_integrations.tools.mcp.auth.config import is_loopback
from haystack_integrations.tools.mcp.auth.flows.provider import IssuerBoundProvider
from haystack_integrations.tools.mcp.auth.loopback import Listener, PortTakenError
from haystack_integrations.tools.mcp.auth.requests import MCPLoginRequest, login_under_way
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.import_paths import provide

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.flows.run import Flow

# Where a listener waits unless the configuration says otherwise: RFC 8252, 7.3.
_DEFAULT_REDIRECT_URI = "http://127.0.0.1/callback"


async def make(flow: Flow, *, is_refresh: bool) -> Any:
    """
    Make the provider, and listen for the browser.

    :param flow: The flow.
    :param is_refresh: Whether tokens are refreshed, for which nobody is asked.
    :returns: The provider.
    :raises MCPAuthorizationError: If a person is needed, and cannot be asked.
    """
    config = flow.config
    if is_refresh:
        return _provider(flow, config.redirect_uri or _DEFAULT_REDIRECT_URI, None)
    if config.redirect_handler is None and not can_open():
        msg = (
            "a person has to log in, and this process has no browser. Log in beforehand, with `login(server_info)` or "
            "`mcp-haystack login`, and a `token_storage` that this process shares, "
            "such as FileTokenStorage; or pass a `redirect_handler`"
        )
        raise MCPAuthorizationError(msg)
    if config.callback_handler is not None:
        redirect_uri = str(config.redirect_uri)
        _forget_other_registration(flow, redirect_uri)
        return _provider(flow, redirect_uri, None)
    listener = await _listen(flow)
    return _provider(flow, listener.redirect_uri, listener)


async def _listen(flow: Flow) -> Listener:
    config = flow.config
    listener = Listener(config.redirect_uri or _registered(flow) or _DEFAULT_REDIRECT_URI)
    try:
        await flow.stack.enter_async_context(listener)
    except PortTakenError as error:
        if config.redirect_uri is not None and urlsplit(config.redirect_uri).port is not None:
            msg = f"the port of the `redirect_uri` cannot be listened on ({error})"
            raise MCPAuthorizationError(msg) from None
        listener = Listener(config.redirect_uri or _DEFAULT_REDIRECT_URI)
        await flow.stack.enter_async_context(listener)
    _forget_other_registration(flow, listener.redirect_uri)
    return listener


def _registered(flow: Flow) -> str | None:
    # Many authorization servers take the port of the registration only.
    client = flow.memory.client
    uris = [str(uri) for uri in (client.redirect_uris or [])] if client is not None else []
    return next((uri for uri in uris if is_loopback(uri)), None)


def _forget_other_registration(flow: Flow, redirect_uri: str) -> None:
    client = flow.memory.client
    if flow.config.client_id is not None or client is None:
        return
    if redirect_uri not in [str(uri) for uri in client.redirect_uris or []]:
        flow.memory.client = None


def _provider(flow: Flow, redirect_uri: str, listener: Listener | None) -> _Provider:
    config = flow.config
    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect_uri)],
        client_name=config.client_name,
        grant_types=["authorization_code", "refresh_token"],
        scope=" ".join(config.scopes) if config.scopes else None,
        application_type="native" if listener is not None else "web",
    )
    login = _Login(flow, redirect_uri, listener)
    return _Provider(
        flow.auth.server_url,
        metadata,
        flow.memory,
        redirect_handler=login.redirect,
        callback_handler=login.answer,
        client_metadata_url=config.client_metadata_url,
        issuer=config.issuer,
    )


class _Provider(IssuerBoundProvider):
    async def _perform_authorization(self) -> httpx2.Request:
        metadata, client = self.context.oauth_metadata, self.context.client_info
        # RFC 8414, 2: without the member, the server takes Basic. What was registered says more than that.
        methods = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
        if client is not None and client.token_endpoint_auth_method is None and client.client_secret is not None:
            is_post_only = methods is not None and "client_secret_basic" not in methods
            client.token_endpoint_auth_method = "client_secret_post" if is_post_only else "client_secret_basic"
        return await super()._perform_authorization()


class _Login:
    """
    One login: leads a person to the authorization server, and waits for the answer.
    """

    def __init__(self, flow: Flow, redirect_uri: str, listener: Listener | None) -> None:
        self._flow = flow
        self._redirect_uri = redirect_uri
        self._listener = listener
        self._request: MCPLoginRequest | None = None

    async def redirect(self, url: str) -> None:
        """
        Lead the person to the authorization server.
        """
        flow, config = self._flow, self._flow.config
        await flow.outgoing.check(httpx2.URL(url))
        [state] = parse_qs(urlsplit(url).query)["state"]
        server = flow.auth.server_url
        self._request = MCPLoginRequest(
            url=url, redirect_uri=self._redirect_uri, state=state, server_url=server, user=flow.key.user
        )
        flow.outgoing.secrets.add(state)
        flow.outgoing.step = "opening the page of the authorization server"
        flow.stack.enter_context(login_under_way(server))
        if self._listener is not None:
            self._listener.expect(state)
        if config.redirect_handler is None:
            await open_url(url)
            return
        try:
            await provide(config.redirect_handler, self._request)
        except Exception as error:
            msg = f"`redirect_handler` failed ({type(error).__name__}: {error})"
            raise MCPAuthorizationError(msg) from error

    async def answer(self) -> AuthorizationCodeResult:
        """
        Wait for what the authorization server says.
        """
        flow, config = self._flow, self._flow.config
        flow.outgoing.step = "waiting for the login"
        try:
            async with asyncio.timeout(config.login_timeout):
                if self._listener is not None:
                    parameters: Mapping[str, str | None] = await self._listener.answer()
                else:
                    parameters = await self._provided()
        except TimeoutError:
            msg = f"nobody logged in within {config.login_timeout:g} seconds (`login_timeout`)"
            raise MCPAuthorizationError(msg) from None
        if parameters.get("code"):
            flow.outgoing.secrets.add(str(parameters["code"]))
        if parameters.get("error"):
            # Only the one who knows the state may say so.
            if self._request is not None and parameters.get("state") not in (None, self._request.state):
                msg = "the answer has another `state` than the login under way"
                raise MCPAuthorizationError(msg)
            told = ": ".join(filter(None, (parameters.get("error"), parameters.get("error_description"))))
            msg = f"the authorization server refused: {told}"
            raise MCPAuthorizationError(msg)
        if not parameters.get("code"):
            msg = "the answer of the authorization server has no code"
            raise MCPAuthorizationError(msg)
        return AuthorizationCodeResult(
            code=str(parameters["code"]), state=parameters.get("state"), iss=parameters.get("iss")
        )

    async def _provided(self) -> Mapping[str, str | None]:
        handler: Any = self._flow.config.callback_handler
        try:
            given = await provide(handler, self._request)
        except Exception as error:
            msg = f"`callback_handler` failed ({type(error).__name__}: {error})"
            raise MCPAuthorizationError(msg) from error
        if isinstance(given, str):
            return dict(parse_qsl(urlsplit(given).query))
        if not isinstance(given, Mapping):
            msg = f"`callback_handler` must give a URL or a dict, it gave {type(given).__name__}"
            raise MCPAuthorizationError(msg)
        return given
