# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The MCP clients: one live session with one server, over one transport.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from haystack.utils import Secret

import mcp
import mcp.server
import mcp.server.mcpserver
from haystack_integrations.tools.mcp.base_client import MCPClient, describe_error, leaves
from haystack_integrations.tools.mcp.diagnose import diagnose
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.http_client import WatchedHttpClient
from haystack_integrations.tools.mcp.operator_policy import check_command, check_host
from haystack_integrations.tools.mcp.server_info import (
    InProcessServerInfo,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    resolve_headers,
    resolve_secrets,
)
from haystack_integrations.tools.mcp.session_client import SessionClient, client_info
from haystack_integrations.tools.mcp.stdio_process import ServerProcess
from haystack_integrations.tools.mcp.stdio_transport import StdioTransport
from mcp import types
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.base_server_info import MCPServerInfo

# One event is one result. The SDK's own limit, 1 MiB, is less than an image or a listing of 5,000 tools.
_LARGEST_EVENT = 64 * 1024 * 1024

__all__ = ["InProcessClient", "MCPClient", "SSEClient", "StdioClient", "StreamableHttpClient"]


class StdioClient(SessionClient):
    """
    MCP client that connects to servers using stdio transport.

    Sessions are opened with the handshake of the revisions up to 2025-11-25; only a server that refuses it is asked for
    its revisions, with `server/discover`. The specification recommends the other order
    (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio), but there are servers that end at
    a request before the handshake, or do not answer it, and a call costs servers more in the newer revision.
    """

    _handshake_first = True

    def __init__(
        self,
        command: str,
        args: list[str] | None = None,
        env: dict[str, str | Secret] | None = None,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 30.0,
        cwd: str | None = None,
    ) -> None:
        """
        Initialize a stdio MCP client.

        :param command: Command to run (e.g., "python", "node").
        :param args: Arguments to pass to the command.
        :param env: Environment variables for the command.
        :param max_retries: Maximum number of reconnection attempts.
        :param base_delay: Base delay for exponential backoff in seconds.
        :param max_delay: Longest delay between attempts in seconds.
        :param cwd: Working directory of the command.
        """
        super().__init__(max_retries, base_delay, max_delay)
        self.command = command
        self.args = args or []
        self.env = env
        self.cwd = cwd
        self._process: ServerProcess | None = None

    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server using stdio transport.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """
        return await super().connect()

    def _server_info(self) -> MCPServerInfo:
        return StdioServerInfo(command=self.command, args=self.args, env=self.env, cwd=self.cwd)

    def _describe(self) -> str:
        return self._server_info().describe()

    async def _open_transport(self) -> mcp.Client:
        command = check_command(self.command, self.env)
        env = resolve_secrets(self.env)
        if sys.platform == "win32":  # there it takes job objects to end all that a server started, which the SDK has
            parameters = StdioServerParameters(command=command, args=self.args, env=env, cwd=self.cwd)
            return self._client(stdio_client(parameters))
        self._process = ServerProcess(command, self.args, env, self.cwd)
        return self._client(StdioTransport(self._process))

    def kill(self) -> None:
        """
        End the server process and all it started at once.
        """
        if self._process is not None:
            self._process.end_children(at_once=True)

    def _is_over(self) -> bool:
        return self._process is not None and self._process.has_ended()

    async def _post_mortem(self) -> str | None:
        if self._process is None:
            return None
        code = await self._process.exit_code()
        if code is None:
            return f"the server process closed its output{self._last_words()}"
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the server process {ended}{self._last_words()}"

    def _explain(self, error: BaseException) -> str:
        for leaf in leaves(error):
            if isinstance(leaf, (FileNotFoundError, NotADirectoryError)):
                if self.cwd is not None and not os.path.isdir(self.cwd):
                    return f"the working directory '{self.cwd}' does not exist"
                return f"the command '{self.command}' was not found. Is it installed and on the PATH?"
            if isinstance(leaf, PermissionError):
                return f"the command '{self.command}' may not be executed"
        return describe_error(error)

    async def _advice(self) -> str | None:
        has_ended = self._epitaph or self._lost_because
        return "Run its command in a terminal to see why." if has_ended else None

    def _last_words(self) -> str:
        text = self._process.stderr.text() if self._process is not None else ""
        return f" (its stderr ends: {text})" if text else ""

    def progress(self) -> str:
        """
        Say how far `connect` has come, for the message of a timeout.

        :returns: A clause.
        """
        return super().progress() or f"the process was started, but did not answer{self._last_words()}"

    def _release(self) -> None:
        if self._process is not None:
            self._process.end_children()


class _HttpClient(SessionClient):
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


class InProcessClient(SessionClient):
    """
    MCP client for a server object in this process.
    """

    def __init__(self, server: Any) -> None:
        """
        Initialize an in-process MCP client.

        :param server: The server object, or its import path `"package.module:attribute"`.
        """
        super().__init__()
        self.server = server

    def _server_info(self) -> MCPServerInfo:
        return InProcessServerInfo(self.server)

    def _describe(self) -> str:
        return self._server_info().describe()

    async def _open_transport(self) -> mcp.Client:
        server = await asyncio.to_thread(_import, self.server) if isinstance(self.server, str) else self.server
        server = getattr(server, "_mcp_server", server)  # FastMCP's name for the SDK server inside
        if not isinstance(server, (mcp.server.Server, mcp.server.mcpserver.MCPServer)):
            msg = f"Failed to connect to {self._describe()}: it is a {type(server).__name__}, not an MCP server object"
            raise MCPConnectionError(msg, server_info=self._server_info(), operation="connect")
        return mcp.Client(server, client_info=client_info())

    def _counts_calls(self) -> bool:
        return False  # there is no transport to tap


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found
