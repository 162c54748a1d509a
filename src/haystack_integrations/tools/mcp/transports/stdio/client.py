# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from haystack.utils import Secret

import mcp
from haystack_integrations.tools.mcp.client.failures import describe_error, leaves
from haystack_integrations.tools.mcp.client.sdk_client import SDKClient
from haystack_integrations.tools.mcp.transports.allow_lists import check_command
from haystack_integrations.tools.mcp.transports.fields import resolve_secrets
from haystack_integrations.tools.mcp.transports.stdio.process import ServerProcess
from haystack_integrations.tools.mcp.transports.stdio.server_info import StdioServerInfo
from haystack_integrations.tools.mcp.transports.stdio.transport import StdioTransport
from mcp import types
from mcp.client.stdio import StdioServerParameters, stdio_client

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo


class StdioClient(SDKClient):
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

    def _has_died(self) -> bool:
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
        has_ended = self.life.loss
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
