# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import mcp
from haystack_integrations.tools.mcp.client.sdk_client import SDKClient
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.transports.allow_lists import check_host
from haystack_integrations.tools.mcp.transports.http.diagnose import diagnose
from haystack_integrations.tools.mcp.transports.http.server_info import (
    SSEServerInfo,
    StreamableHttpServerInfo,
    resolve_headers,
)
from haystack_integrations.tools.mcp.transports.http.watched_http import WatchedHttpClient
from mcp import types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo

# One event is one result. The SDK's own limit, 1 MiB, is less than an image or a listing of 5,000 tools.
_LARGEST_EVENT = 64 * 1024 * 1024


class _HttpClient(SDKClient):
    """
    What the two HTTP transports have in common.
    """

    _kind: ClassVar[Literal["sse", "streamable-http"]]

    def __init__(self, info: SSEServerInfo | StreamableHttpServerInfo, *retries: Any) -> None:
        super().__init__(*retries)
        self._info = info
        self.url: str = str(info.url)
        self.timeout = info.timeout
        self._headers: dict[str, str] = {}

    def _server_info(self) -> MCPServerInfo:
        return self._info

    def _describe(self) -> str:
        return self._info.describe()

    def _prepare(self) -> None:
        check_host(self.url)
        try:
            self._headers = resolve_headers(self._info)
        except ValueError as error:  # a required secret without a value
            msg = f"Failed to connect to {self._describe()}: {error}"
            raise MCPConnectionError(msg, server_info=self._info, operation="connect") from error
        for name, value in self._headers.items():
            # The HTTP libraries quote such a value in their errors.
            if not value.isascii() or not value.isprintable() or value != value.strip():
                msg = (
                    f"Failed to connect to {self._describe()}: the value of the header '{name}' has a line break, "
                    "white space around it, or a character that is not ASCII"
                )
                raise MCPConnectionError(msg, server_info=self._info, operation="connect")

    def progress(self) -> str:
        """
        Say how far `connect` has come, for the message of a timeout.

        :returns: A clause.
        """
        return super().progress() or "the server has not answered"

    async def _advice(self) -> str | None:
        return await diagnose(self.url, self._headers, transport=self._kind, timeout=min(5.0, float(self.timeout)))

    def _http_client(self, *, one_stream: bool) -> WatchedHttpClient:
        return WatchedHttpClient(
            headers=self._headers, timeout=float(self.timeout), one_stream=one_stream, lose_session=self._lose
        )


class SSEClient(_HttpClient):
    """
    MCP client that connects to servers using SSE transport.

    Sessions are opened with the handshake of the revisions up to 2025-11-25, as most servers that still use this
    transport expect it; only a server that refuses it is asked for its revisions, with `server/discover`.
    """

    _handshake_first = True
    _kind = "sse"

    def __init__(
        self, server_info: SSEServerInfo, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0
    ) -> None:
        """
        Initialize an SSE MCP client using server configuration.

        :param server_info: Configuration object containing URL, token, timeout, etc.
        :param max_retries: Maximum number of reconnection attempts.
        :param base_delay: Base delay for exponential backoff in seconds.
        :param max_delay: Longest delay between attempts in seconds.
        """
        super().__init__(server_info, max_retries, base_delay, max_delay)

    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server using SSE transport.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """
        return await super().connect()

    async def _open_transport(self) -> mcp.Client:
        self._prepare()
        transport = sse_client(
            self.url, httpx_client_factory=lambda *_args, **_kwargs: self._http_client(one_stream=True)
        )
        return self._client(transport)


class StreamableHttpClient(_HttpClient):
    """
    MCP client that connects to servers using streamable HTTP transport.
    """

    _kind = "streamable-http"

    def __init__(
        self,
        server_info: StreamableHttpServerInfo,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 30.0,
    ) -> None:
        """
        Initialize a streamable HTTP MCP client using server configuration.

        :param server_info: Configuration object containing URL, token, timeout, etc.
        :param max_retries: Maximum number of reconnection attempts.
        :param base_delay: Base delay for exponential backoff in seconds.
        :param max_delay: Longest delay between attempts in seconds.
        """
        super().__init__(server_info, max_retries, base_delay, max_delay)
        self._http: WatchedHttpClient | None = None

    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server using streamable HTTP transport.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """
        return await super().connect()

    async def _open_transport(self) -> mcp.Client:
        self._prepare()
        http = self._http_client(one_stream=False)
        return self._client(
            _Owning(http, streamable_http_client(self.url, http_client=http, max_sse_event_size=_LARGEST_EVENT))
        )


class _Owning:
    """
    A transport together with the HTTP client made for it, which the SDK leaves to whoever made it.
    """

    def __init__(self, http: WatchedHttpClient, transport: Any) -> None:
        self._http = http
        self._transport = transport

    async def __aenter__(self) -> Any:
        await self._http.__aenter__()
        return await self._transport.__aenter__()

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        try:
            result: bool | None = await self._transport.__aexit__(*exc_info)
        finally:
            await self._http.__aexit__(None, None, None)
        return result
