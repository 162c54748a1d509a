# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio.to_thread
import httpx2
from haystack import logging
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp.auth.authorization_servers import REQUEST_TIMEOUT
from haystack_integrations.tools.mcp.auth.request_auth import OAuth, OwnAuth, TokenSourceAuth, load_auth
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError, MCPConnectionError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.protocol.exchange import SessionState
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.protocol.wire_client import WireClient
from haystack_integrations.tools.mcp.redaction import redact_url
from haystack_integrations.tools.mcp.request_context import current_identity
from haystack_integrations.tools.mcp.secret_template import shown
from haystack_integrations.tools.mcp.transports.allow_lists import check_host
from haystack_integrations.tools.mcp.transports.diagnose import diagnose
from haystack_integrations.tools.mcp.transports.http_route import find_route, open_client, open_transport
from haystack_integrations.tools.mcp.transports.posting import NO_CONNECTION, HttpSender
from haystack_integrations.tools.mcp.transports.refusals import UNKNOWN_SESSION, says_unknown_session
from haystack_integrations.tools.mcp.transports.server_infos import (
    HttpServerInfo,
    phase_timeouts,
    resolve_headers,
    resolve_url,
)
from haystack_integrations.tools.mcp.transports.sse import SseTransport
from haystack_integrations.tools.mcp.transports.streamable_http import StreamableHttpTransport

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.protocol.channel import Transport
    from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How servers answer a POST where they take none.
_MAY_BE_SSE = frozenset({"400", "404", "405"})


class _HttpClient(WireClient):
    """
    What the clients of the two HTTP transports share.
    """

    _takes_headers = True

    def __init__(
        self, server_info: HttpServerInfo, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0
    ) -> None:
        """
        Initialize the client using server configuration.

        :param server_info: Configuration object containing URL, token, timeout, etc.
        :param max_retries: Maximum number of reconnection attempts.
        :param base_delay: Base delay for exponential backoff in seconds.
        :param max_delay: Longest delay between attempts in seconds.
        """
        super().__init__(max_retries, base_delay, max_delay)
        self._server_info: HttpServerInfo = server_info
        # With the values of its variables once `connect` is called.
        self.url: str = shown(server_info.url)
        self.timeout: float | dict[str, float | None] = server_info.timeout
        self._headers: dict[str, str] = {}

    @classmethod
    def of(cls, server_info: HttpServerInfo) -> Self:
        """
        Make the client of a server info.

        :param server_info: The server info.
        :returns: The client.
        """
        return cls(server_info, server_info.max_retries, server_info.base_delay, server_info.max_delay)

    def progress(self) -> str:
        """
        Describe how far `connect` has come, for the message of a timeout.

        :returns: A clause.
        """
        return super().progress() or "the server has not answered"

    async def _advice(self) -> str | None:
        if self._server_info._has_auth and (self._connect_status or "").startswith(("401", "403")):
            parameter = next(name for name in ("oauth_config", "auth", "token") if getattr(self._server_info, name))
            return f"The credentials of `{parameter}` were not accepted."
        identity = current_identity.get()
        return await diagnose(
            self.url,
            {**self._headers, **(identity.headers if identity is not None else {})},
            transport="sse" if self._server_info._transport_name == "sse" else "streamable-http",
            timeout=min(5.0, phase_timeouts(self._server_info)["connect"] or 5.0),
            route=await find_route(self._server_info),
            has_auth=self._server_info._has_auth,
            redact=self.redactor.text,
        )

    def _note_error(self, error: ProtocolError) -> None:
        # Not every server says so with a status.
        if self.life.state is SessionState.OPEN and says_unknown_session(error.message):
            self.life.end(UNKNOWN_SESSION, SessionState.DRAINING)

    def _combine(self, what: str, advice: str | None) -> str:
        # The diagnosis tried the same once more. If the same came out, it tells all of it.
        status = self._connect_status
        if advice is not None and (
            status in advice if status else what.startswith(NO_CONNECTION) and " answers " not in advice
        ):
            return re.sub(r"^https?://\S+ answers ", "it answers ", advice)
        return super()._combine(what, advice)

    async def _open_sender(self, *, over_sse: bool) -> HttpSender:
        try:
            self.url = resolve_url(self._server_info)
            check_host(self.url)
            self._headers = resolve_headers(self._server_info)
            route = await find_route(self._server_info)
        except (ValueError, ImportError) as error:  # such as a required secret without a value
            msg = f"Failed to connect to {self._describe()}: {error}"
            raise MCPConnectionError(msg, server_info=self._server_info, operation="connect") from error
        timeout = phase_timeouts(self._server_info)
        if over_sse and timeout["read"] is None:  # messages are only acknowledged
            timeout["read"] = timeout["connect"]
        return HttpSender(
            open_transport(route, of_session=True),
            headers=self._headers,
            timeout=timeout,
            auth=await self._auth(),
            rest=self.rest,
            max_message_size=self._server_info.max_message_size,
            time_left=self.time_left,
            heard=self.life.heard,
            redact=self.redactor.text,
        )

    async def _auth(self) -> httpx2.Auth | None:
        info = self._server_info
        if not info._has_auth:
            return None
        if info._token_source is not None:
            return TokenSourceAuth(info._token_source, self.redactor.remember)
        try:
            config = info._oauth
            if config is None:
                return OwnAuth(await anyio.to_thread.run_sync(load_auth, info.auth))
            auth = config.create_auth(self.url)
        except Exception as error:
            msg = f"Failed to connect to {self._describe()}: authorization cannot begin: {error}"
            raise MCPAuthorizationError(msg, server_info=info, operation="connect") from error
        return connected(auth, info, self.redactor.remember)


class SSEClient(_HttpClient):
    """
    MCP client that connects to servers using SSE transport.

    It opens a session with the handshake of the revisions up to 2025-11-25, which most servers that still use this
    transport expect. Only if the server refuses it does the client ask for the server's revisions (`server/discover`).
    """

    _handshake_first = True

    async def _make_transport(self) -> Transport:
        return SseTransport(await self._open_sender(over_sse=True), self.url)


class StreamableHttpClient(_HttpClient):
    """
    MCP client that connects to servers using streamable HTTP transport.

    If its server info allows it, it turns to SSE when the server refuses the first request as servers that know only
    that transport do: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility
    """

    _over_sse = False

    async def _connect(self) -> list[types.Tool]:
        self._over_sse = False
        self._handshake_first = False
        try:
            return await super()._connect()
        except MCPConnectionError as error:
            has_fallback = getattr(self._server_info, "sse_fallback", False)
            if not has_fallback or (self._connect_status or "")[:3] not in _MAY_BE_SSE:
                raise
            refusal = error
        self._over_sse = self._handshake_first = True
        self.life.opening()
        try:
            tools = await super()._connect()
        except MCPConnectionError as error:
            # What was asked for is Streamable HTTP.
            raise refusal from error
        logger.info("{server} speaks SSE, not streamable HTTP", server=self._describe())
        return tools

    @property
    def _is_stateless(self) -> bool:
        return not self._over_sse and self.details().protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _make_transport(self) -> Transport:
        sender = await self._open_sender(over_sse=self._over_sse)
        return SseTransport(sender, self.url) if self._over_sse else StreamableHttpTransport(sender, self.url)


def connected(auth: httpx2.Auth, info: HttpServerInfo, learn: Callable[[Iterable[str]], None]) -> httpx2.Auth:
    """
    Give what gets tokens the proxy, the certificates and the allow list of a server info.

    :param auth: What `OAuthConfig.create_auth` made.
    :param info: The server info.
    :param learn: Called with secrets that may come back in what the server says.
    :returns: What authenticates requests.
    """
    if not isinstance(auth, OAuth):  # of a subclass of OAuthConfig
        return OwnAuth(auth)
    auth.clients, auth.learn, auth.check = (lambda: _client(info)), learn, check_host
    return auth


@asynccontextmanager
async def _client(info: HttpServerInfo) -> AsyncIterator[httpx2.AsyncClient]:
    async with open_client(await find_route(info), REQUEST_TIMEOUT) as client:
        yield client


# Opens no session; and a server that wants a token refuses it.
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def login(server_info: MCPServerInfo, *, user: str | None = None) -> None:
    """
    Log in at a server, before anything else needs its tokens.

    With the grant `"authorization_code"` a person allows the access in the browser of this machine. The tokens are kept
    in the `token_storage` of the server info, where every process finds them that shares it. If there are valid
    tokens already, they are replaced.

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
    :param user: For which user of `mcp_request_context`; by default for the server info itself.
    :raises ValueError: If the server info uses no OAuth.
    :raises MCPAuthorizationError: If it fails. The message names the step.
    """
    AsyncExecutor.get_instance().run(login_async(server_info, user=user), timeout=None)


async def login_async(server_info: MCPServerInfo, *, user: str | None = None) -> None:
    """
    Log in at a server, before anything else needs its tokens: `login` for an event loop.

    :param server_info: As in `login`.
    :param user: Likewise.
    :raises ValueError: If the server info uses no OAuth.
    :raises MCPAuthorizationError: If it fails. The message names the step.
    """
    info, auth, url = _oauth_of(server_info)
    try:
        await auth.log_in(await _challenge(info, url), user)
    except MCPConnectionError as error:
        msg = f"Failed to log in at {server_info.describe()}: {error}"
        raise MCPAuthorizationError(msg, server_info, "login") from error.__cause__


def logout(server_info: MCPServerInfo, *, user: str | None = None) -> bool:
    """
    Forget the tokens of a login, and have the authorization server revoke them if it can.

    Sessions that are open keep their token until it is refused. A later use of the server info asks for a new login.

    :param server_info: The server info, as in `login`.
    :param user: Whose tokens; by default those of the server info itself.
    :returns: Whether there were tokens.
    :raises ValueError: If the server info uses no OAuth.
    :raises MCPAuthorizationError: If the `token_storage` cannot delete them.
    """
    return AsyncExecutor.get_instance().run(logout_async(server_info, user=user), timeout=None)


async def logout_async(server_info: MCPServerInfo, *, user: str | None = None) -> bool:
    """
    Forget the tokens of a login: `logout` for an event loop.

    :param server_info: As in `logout`.
    :param user: Likewise.
    :returns: Whether there were tokens.
    :raises ValueError: If the server info uses no OAuth.
    :raises MCPAuthorizationError: If the `token_storage` cannot delete them.
    """
    _, auth, _ = _oauth_of(server_info)
    return await auth.log_out(user)


def _oauth_of(server_info: MCPServerInfo) -> tuple[HttpServerInfo, OAuth, str]:
    if not isinstance(server_info, MCPServerInfo):
        msg = (
            "`server_info` must be a server info that uses OAuth, such as StreamableHttpServerInfo(url, auth='oauth'), "
            f"got {type(server_info).__name__}"
        )
        raise ValueError(msg)
    if not isinstance(server_info, HttpServerInfo) or server_info._oauth is None:
        msg = f"{server_info.describe()} uses no OAuth: give its server info an `oauth_config`, or auth='oauth'"
        raise ValueError(msg)
    url = resolve_url(server_info)
    check_host(url)
    auth = server_info._oauth.create_auth(url)
    if not isinstance(auth, OAuth):
        kind = type(server_info._oauth).__name__
        msg = f"{kind} makes an {type(auth).__name__} of its own, which cannot log in beforehand"
        raise ValueError(msg)
    connected(auth, server_info, lambda _: None)
    return server_info, auth, url


async def _challenge(info: HttpServerInfo, url: str) -> httpx2.Response:
    headers = {**resolve_headers(info), "Accept": "application/json, text/event-stream"}
    async with _client(info) as client:
        try:
            async with client.stream("POST", url, json=_PING, headers=headers) as response:
                is_refusal = response.status_code == httpx2.codes.UNAUTHORIZED
        except httpx2.RequestError as error:
            msg = f"{redact_url(url)} could not be reached ({type(error).__name__}: {error})"
            raise MCPConnectionError(msg) from error
    # A server may leave some requests open.
    challenge = response.headers.get("www-authenticate", "") if is_refusal else ""
    return httpx2.Response(httpx2.codes.UNAUTHORIZED, headers={"WWW-Authenticate": challenge} if challenge else {})
