# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Authentication of the requests to a server, and logging in beforehand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import httpx2

from haystack_integrations.tools.mcp.auth.outgoing import REQUEST_TIMEOUT
from haystack_integrations.tools.mcp.auth.request_auth import CustomAuth, OAuth, TokenSourceAuth, load_auth
from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError, MCPConnectionError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_url
from haystack_integrations.tools.mcp.transports.allow_lists import check_host
from haystack_integrations.tools.mcp.transports.http_route import find_route, open_client
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo


async def authentication(info: HttpServerInfo, url: str, learn: Callable[[Iterable[str]], None]) -> httpx2.Auth:
    """
    Make the authentication of a session's requests.

    :param info: The server info, which names the kind of authentication.
    :param url: Its URL, with the values of its variables.
    :param learn: Called with secrets that the server may quote.
    :returns: The authentication.
    :raises MCPAuthorizationError: If it cannot be made.
    """
    if info._token_source is not None:
        return TokenSourceAuth(info._token_source, learn)
    try:
        config = info._oauth
        if config is None:
            return CustomAuth(await start_in_thread(load_auth, info.auth))
        auth = config.create_auth(url)
    except Exception as error:
        msg = f"Failed to connect to {info.describe()}: authorization cannot begin: {error}"
        raise MCPAuthorizationError(msg, server_info=info, operation="connect") from error
    return with_route(auth, info, learn)


def with_route(auth: httpx2.Auth, info: HttpServerInfo, learn: Callable[[Iterable[str]], None]) -> httpx2.Auth:
    """
    Make token requests use the proxy, the certificates and the allow list of a server info.

    :param auth: The authentication from `OAuthConfig.create_auth`.
    :param info: The server info.
    :param learn: Called with secrets that the server may quote.
    :returns: The authentication of requests.
    """
    if not isinstance(auth, OAuth):  # made by a subclass of OAuthConfig
        return CustomAuth(auth)
    auth.clients, auth.learn, auth.check = (lambda: _client(info)), learn, check_host
    return auth


@asynccontextmanager
async def _client(info: HttpServerInfo) -> AsyncIterator[httpx2.AsyncClient]:
    async with open_client(await find_route(info), REQUEST_TIMEOUT) as client:
        yield client


# A ping opens no session, and a server that wants a token refuses it.
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def login(server_info: MCPServerInfo, *, user: str | None = None) -> None:
    """
    Log in at a server before its tokens are needed.

    With the grant `"authorization_code"`, a person allows the access in the browser of this machine. The tokens are
    kept in the `token_storage` of the server info, where all processes that share it find them. Valid tokens that exist
    already are replaced.

    ### Usage example

    ```python
    from haystack_integrations.tools.mcp import OAuthConfig, StreamableHttpServerInfo
    from haystack_integrations.tools.mcp.oauth import FileTokenStorage, login

    server_info = StreamableHttpServerInfo(
        "https://mcp.example.com/mcp",
        oauth_config=OAuthConfig(token_storage=FileTokenStorage("~/.config/my-service/tokens")),
    )
    login(server_info)
    ```

    :param server_info: The server info, with an `oauth_config` or `auth="oauth"`.
    :param user: The user of `mcp_request_context`; by default, the tokens are for the server info itself.
    :raises ValueError: If the server info does not use OAuth.
    :raises MCPAuthorizationError: If the login fails. The message names the step.
    """
    AsyncExecutor.get_instance().run(_log_in(server_info, user), timeout=None)


async def login_async(server_info: MCPServerInfo, *, user: str | None = None) -> None:
    """
    Log in at a server before its tokens are needed: `login` for an event loop.

    :param server_info: As in `login`.
    :param user: Likewise.
    :raises ValueError: If the server info does not use OAuth.
    :raises MCPAuthorizationError: If the login fails. The message names the step.
    """
    await AsyncExecutor.get_instance().run_async(_log_in(server_info, user))


# Runs in the event loop of all connections, like their requests: they share storages and renewals with it.
async def _log_in(server_info: MCPServerInfo, user: str | None) -> None:
    info, auth, url = _oauth_of(server_info)
    try:
        await auth.log_in(await _answer_to_ping(info, url), user)
    except MCPConnectionError as error:
        msg = f"Failed to log in at {server_info.describe()}: {error}"
        raise MCPAuthorizationError(msg, server_info, "login") from error.__cause__


def logout(server_info: MCPServerInfo, *, user: str | None = None) -> bool:
    """
    Delete the tokens of a login, and revoke them if the authorization server supports that.

    Open sessions that use the same `token_storage` object forget the token as well. Others, such as those of other
    processes, keep it until it is refused. The next use of the server info asks for a new login.

    :param server_info: The server info, as in `login`.
    :param user: The user whose tokens are deleted; by default those of the server info itself.
    :returns: Whether there were tokens.
    :raises ValueError: If the server info does not use OAuth.
    :raises MCPAuthorizationError: If the `token_storage` cannot delete them.
    """
    return AsyncExecutor.get_instance().run(_log_out(server_info, user), timeout=None)


async def logout_async(server_info: MCPServerInfo, *, user: str | None = None) -> bool:
    """
    Delete the tokens of a login: `logout` for an event loop.

    :param server_info: As in `logout`.
    :param user: Likewise.
    :returns: Whether there were tokens.
    :raises ValueError: If the server info does not use OAuth.
    :raises MCPAuthorizationError: If the `token_storage` cannot delete them.
    """
    return await AsyncExecutor.get_instance().run_async(_log_out(server_info, user))


async def _log_out(server_info: MCPServerInfo, user: str | None) -> bool:
    _, auth, _ = _oauth_of(server_info)
    return await auth.log_out(user)


def _oauth_of(server_info: MCPServerInfo) -> tuple[HttpServerInfo, OAuth, str]:
    if not isinstance(server_info, HttpServerInfo) or server_info._oauth is None:
        msg = (
            f"this {type(server_info).__name__} does not use OAuth: pass a server info with an `oauth_config`, or with "
            "auth='oauth', such as StreamableHttpServerInfo(url, auth='oauth')"
        )
        raise ValueError(msg)
    url = server_info._resolved_url()
    check_host(url)
    auth = server_info._oauth.create_auth(url)
    if not isinstance(auth, OAuth):
        kind = type(server_info._oauth).__name__
        msg = f"{kind} makes an {type(auth).__name__} of its own, which cannot log in beforehand"
        raise ValueError(msg)
    with_route(auth, server_info, lambda _: None)
    return server_info, auth, url


async def _answer_to_ping(info: HttpServerInfo, url: str) -> httpx2.Response:
    headers = {**info._resolved_headers(), "Accept": "application/json, text/event-stream"}
    async with _client(info) as client:
        try:
            async with client.stream("POST", url, json=_PING, headers=headers) as response:
                return response
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            msg = f"{redact_url(url)} could not be reached ({type(error).__name__}: {error})"
            raise MCPConnectionError(msg) from error
