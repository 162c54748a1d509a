# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import mcp
from haystack.utils import Secret
from mcp.client.stdio import StdioServerParameters, stdio_client

from haystack_integrations.tools.mcp.client.error_texts import describe_error, leaves
from haystack_integrations.tools.mcp.client.sdk_client import SDKClient
from haystack_integrations.tools.mcp.transports.allow_lists import check_command
from haystack_integrations.tools.mcp.transports.fields import DEFAULT_MAX_MESSAGE_SIZE, resolve_secrets
from haystack_integrations.tools.mcp.transports.stdio.process import ServerProcess
from haystack_integrations.tools.mcp.transports.stdio.server_info import StdioServerInfo
from haystack_integrations.tools.mcp.transports.stdio.transport import stdio_transport

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo


class StdioClient(SDKClient):
    """
    MCP client that connects to servers using stdio transport.

    A session begins with the handshake of the revisions up to 2025-11-25; a server that refuses it is asked for its
    revisions with `server/discover`. The specification recommends the other order
    (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio), but some servers exit, and some
    never answer, if the first request is not the handshake; and a call costs servers more in the newer revision.
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
        max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
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
        :param max_message_size: How many bytes one message of the server may have.
        """
        super().__init__(max_retries, base_delay, max_delay)
        self.command = command
        self.args = args or []
        self.env = env
        self.cwd = cwd
        self.max_message_size = max_message_size
        self._process: ServerProcess | None = None
        self._info = StdioServerInfo(command=command, args=args, env=env, cwd=cwd, max_message_size=max_message_size)

    def _server_info(self) -> MCPServerInfo:
        return self._info

    def _describe(self) -> str:
        return self._info.describe()

    async def _open_transport(self) -> mcp.Client:
        command = check_command(self.command, self.env)
        env = resolve_secrets(self.env)
        if sys.platform == "win32":  # ending all that a server started takes job objects there, which the SDK has
            parameters = StdioServerParameters(command=command, args=self.args, env=env, cwd=self.cwd)
            return self._client(stdio_client(parameters))
        self._process = ServerProcess(command, self.args, env, self.cwd, self.max_message_size)
        return self._client(stdio_transport(self._process))

    def kill(self) -> None:
        """
        End the server process and all it started at once.
        """
        if self._process is not None:
            self._process.end_children(at_once=True)

    def _has_died(self) -> bool:
        return self._process is not None and self._process.has_exited()

    async def _post_mortem(self) -> str | None:
        if self._process is None:
            return None
        if self._process.fault is not None:
            return self._process.fault
        code = await self._process.exit_code()
        if code is None:
            closed = "output" if self._process.has_closed_output else "input"
            return f"the server process closed its {closed}{self._last_lines()}"
        if self._process.exit_code_is_unknown:
            return f"the server process ended with an unknown exit code{self._last_lines()}"
        exited = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the server process {exited}{self._last_lines()}"

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
        return "Run its command in a terminal to see why." if self.life.loss else None

    def _last_lines(self) -> str:
        text = self._process.stderr.text() if self._process is not None else ""
        return f" (its stderr ends: {text})" if text else ""

    def progress(self) -> str:
        """
        Say how far `connect` has come, for the message of a timeout.

        :returns: A clause.
        """
        return super().progress() or f"the process was started, but did not answer{self._last_lines()}"

    def _release(self) -> None:
        if self._process is not None:
            self._process.end_children()
