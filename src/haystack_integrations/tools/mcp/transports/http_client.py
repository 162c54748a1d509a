# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The clients of servers over Streamable HTTP and SSE.

Their transports are in `transports.streamable_http` and `transports.sse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import httpx2
from haystack import logging

from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.protocol.channel import SessionState
from haystack_integrations.tools.mcp.protocol.wire_client import WireClient
from haystack_integrations.tools.mcp.request_context import current_identity
from haystack_integrations.tools.mcp.secret_template import shown
from haystack_integrations.tools.mcp.transports.allow_lists import check_host
from haystack_integrations.tools.mcp.transports.diagnose import Diagnosis
from haystack_integrations.tools.mcp.transports.http_route import find_route, open_transport
from haystack_integrations.tools.mcp.transports.posting import HttpSender
from haystack_integrations.tools.mcp.transports.refusals import UNKNOWN_SESSION, says_unknown_session
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo
from haystack_integrations.tools.mcp.transports.sse import SseTransport
from haystack_integrations.tools.mcp.transports.streamable_http import StreamableHttpTransport

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.protocol.channel import Transport
    from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The statuses with which servers that speak only SSE refuse a POST.
_MAY_BE_SSE = frozenset({"400", "404", "405"})


class _HttpClient(WireClient):
    """
    Base class of the clients of the two HTTP transports.
    """

    _takes_headers = True

    # Whether its messages go over SSE.
    _over_sse: bool = False

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
        # Its variables are replaced by their values when `connect` is called.
        self.url: str = shown(server_info.url)
        self.timeout: float = server_info.timeout
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
        nothing = "nothing came from its host: it is down, a firewall or the DNS lets no request through, or it hangs"
        # The time may have gone into authorization.
        is_silent = not self.life.heard_at and not self._server_info._has_auth
        return super().progress() or (nothing if is_silent else "the server has not answered")

    async def _advice(self) -> str | None:
        of_caller = current_identity.get().headers
        has_own = "authorization" in map(str.lower, of_caller)
        if self._server_info._has_auth and not has_own and (self._connect_status or "").startswith(("401", "403")):
            parameter = next(name for name in ("oauth_config", "auth", "token") if getattr(self._server_info, name))
            return f"The credentials of `{parameter}` were not accepted."
        diagnosis = Diagnosis(
            url=self.url,
            headers={**self._headers, **of_caller},
            transport="sse" if self._server_info._transport_name == "sse" else "streamable-http",
            timeout=min(5.0, self.timeout),
            route=await find_route(self._server_info),
            has_auth=self._server_info._has_auth,
            redact=self.redactor.text,
        )
        return await diagnosis.run()

    def _note_error(self, error: ProtocolError) -> None:
        # Not every server reports an unknown session with a status.
        if self.life.state is SessionState.OPEN and says_unknown_session(error.message):
            self.life.end(UNKNOWN_SESSION, SessionState.DRAINING)

    @property
    def _is_stateless(self) -> bool:
        return not self._over_sse and self._is_modern

    async def _make_transport(self) -> Transport:
        try:
            self.url = self._server_info._resolved_url()
            check_host(self.url)
            self._headers = self._server_info._resolved_headers()
            route = await find_route(self._server_info)
        except (ValueError, ImportError) as error:  # e.g. a required secret without a value
            msg = f"Failed to connect to {self._describe()}: {error}"
            raise MCPConnectionError(msg, server_info=self._server_info, operation="connect") from error
        # Over SSE, responses only acknowledge messages; otherwise a response is the answer, and calls have a timeout.
        read = self.timeout if self._over_sse else None
        timeout = {**dict.fromkeys(("connect", "write", "pool"), self.timeout), "read": read}
        sender = HttpSender(
            open_transport(route, of_session=True),
            headers=self._headers,
            timeout=timeout,
            auth=await self._auth(),
            max_message_size=self._server_info.max_message_size,
            life=self.life,
        )
        return SseTransport(sender, self.url) if self._over_sse else StreamableHttpTransport(sender, self.url)

    async def _auth(self) -> httpx2.Auth | None:
        if not self._server_info._has_auth:
            return None
        # Most servers want no tokens, and the module that gets them is slow to import.
        from haystack_integrations.tools.mcp.transports.http_auth import authentication  # noqa: PLC0415

        return await authentication(self._server_info, self.url, self.redactor.remember)


class SSEClient(_HttpClient):
    """
    MCP client that connects to servers using SSE transport.

    It opens a session with the handshake of the revisions up to 2025-11-25, which most servers that still use this
    transport expect. Only if the server refuses it does the client ask for the server's revisions (`server/discover`).
    """

    _over_sse = True
    _handshake_first = True


class StreamableHttpClient(_HttpClient):
    """
    MCP client that connects to servers using streamable HTTP transport.

    If its server info allows it, it falls back to SSE when the server refuses the first request like a server that only
    knows SSE: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility
    """

    async def _connect(self) -> list[types.Tool]:
        self._over_sse = self._handshake_first = False
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
            # The user asked for Streamable HTTP, so its refusal is reported.
            raise refusal from error
        logger.info("{server} speaks SSE, not streamable HTTP", server=self._describe())
        return tools
