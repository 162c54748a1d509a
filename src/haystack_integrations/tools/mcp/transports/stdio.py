# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Self

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.protocol.channel import Exchange, Transport, oversized, read_messages
from haystack_integrations.tools.mcp.protocol.request_errors import describe_error, leaves
from haystack_integrations.tools.mcp.protocol.server_info import DEFAULT_MAX_MESSAGE_SIZE, resolve_secrets
from haystack_integrations.tools.mcp.protocol.wire_client import WireClient
from haystack_integrations.tools.mcp.secret_template import resolved, shown
from haystack_integrations.tools.mcp.transports.allow_lists import check_command, inherited_environment
from haystack_integrations.tools.mcp.transports.process import ServerProcess
from haystack_integrations.tools.mcp.transports.sdk_streams import Streams, StreamsTransport
from haystack_integrations.tools.mcp.transports.server_infos import StdioServerInfo

logger: logging.PatchedLogger = logging.getLogger(__name__)


class StdioTransport(Transport):
    """
    The lines that a server process reads and writes.

    Requests are written in the task of the caller, and lines are read in the callbacks of the pipe.
    """

    def __init__(self, process: ServerProcess, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE) -> None:
        """
        Initialize the StdioTransport.

        :param process: The process, not yet started.
        :param max_message_size: How many bytes a line of its output may have.
        """
        self._process = process
        self._max_message_size = max_message_size
        # What has been read of a line that is not complete.
        self._unfinished: list[bytes] = []
        self._has_warned = False

    async def open(self) -> None:
        """
        Start the process.

        :raises OSError: If it cannot be started.
        """
        self._process.on_output = self._output
        self._process.start()

    async def carry(self, content: bytes, exchange: Exchange) -> None:
        """
        Write a request, once the process has read most of the earlier ones.

        :param content: The request as JSON.
        :param exchange: The request.
        """
        try:
            await self._process.write(content + b"\n")
        except BrokenPipeError:  # nothing of it was written
            # A process that lives may still answer what it has read, but takes nothing more.
            if not self._process.output_is_over and await self._process.exit_code() is None:
                self.channel.drained("the server process closed its input")
            exchange.lose()
        else:
            exchange.mark_sent()

    async def tell(self, content: bytes) -> None:
        """
        Write a message that is not answered.

        :param content: The message as JSON.
        :raises BrokenPipeError: If the process takes no more messages.
        """
        await self._process.write(content + b"\n")

    async def close(self) -> None:
        """
        End the process: by the end of its input, then by signals. So are the children that it leaves behind.
        """
        try:
            await self._process.stop()
        finally:
            self._process.end_children()

    def _output(self, data: bytes) -> None:
        if not data:
            self.channel.ended(None)
            return
        self.channel.heard()
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = b"".join([*self._unfinished, end]) if self._unfinished else end
            self._unfinished = []
            if len(line) > self._max_message_size:
                self._take_oversized(line)
                continue
            messages = read_messages(line)
            for message in messages:
                self.channel.received(message)
            if not messages and line.strip():
                self._report()
        if rest:
            self._unfinished.append(rest)
            if sum(map(len, self._unfinished)) > 2 * self._max_message_size:  # it may never end
                line = b"".join(self._unfinished)[: self._max_message_size + 1]
                self._unfinished = [line]
                self._take_oversized(line)

    def _take_oversized(self, line: bytes) -> None:
        answer = oversized(line, self._max_message_size)
        if answer is not None:
            self.channel.received(answer)
            return
        self.channel.ended(
            f"it wrote a line that is larger than `max_message_size` of the server info allows, "
            f"{self._max_message_size:,} bytes, and that does not begin or end like an answer"
        )

    def _report(self) -> None:
        log = logger.debug if self._has_warned else logger.warning
        self._has_warned = True
        log(
            "The MCP server {server} wrote a line to its standard output that is no message; it was ignored. "
            "Logs belong on standard error. Other such lines are logged at debug level.",
            server=self._process.describe(),
        )


class StdioClient(WireClient):
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
        command: str | Secret,
        args: Sequence[str | Secret] | None = None,
        env: dict[str, str | Secret] | None = None,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 30.0,
    ) -> None:
        """
        Initialize a stdio MCP client.

        :param command: Command to run (e.g., "python", "node").
        :param args: Arguments to pass to the command.
        :param env: Environment variables for the command.
        :param max_retries: Maximum number of reconnection attempts.
        :param base_delay: Base delay for exponential backoff in seconds.
        :param max_delay: Longest delay between attempts in seconds.
        """
        super().__init__(max_retries, base_delay, max_delay)
        # With the values of their variables once `connect` is called.
        self.command: str = shown(command)
        self.args: list[str] = list(map(shown, args or []))
        self.env = env
        self.cwd: str | None = None
        # The variables from `env`, with the values that Secrets had.
        self._given: dict[str, str] = {}
        self._process: ServerProcess | None = None
        self._server_info: StdioServerInfo = StdioServerInfo(command=command, args=args, env=env)

    @classmethod
    def of(cls, server_info: StdioServerInfo) -> Self:
        """
        Make the client of a server info.

        :param server_info: The server info.
        :returns: The client.
        """
        info = server_info
        client = cls(info.command, info.args, info.env, info.max_retries, info.base_delay, info.max_delay)
        client._server_info = info
        return client

    async def _make_transport(self) -> Transport:
        info = self._server_info
        self.command = resolved(info.command)
        self.args = list(map(resolved, info.args or []))
        self.cwd = None if info.cwd is None else resolved(info.cwd)
        self._given = resolve_secrets(self.env)
        command = check_command(self.command, self.env, info.inherit_env)
        env = {**inherited_environment(info.inherit_env), **self._given}
        if sys.platform == "win32":  # ending all that a server started takes job objects there, which the SDK has
            return StreamsTransport(partial(_process_of_the_sdk, command, self.args, env, self.cwd))
        secrets, redact = self.redactor.secrets, self.redactor.text
        self._process = ServerProcess(command, self.args, env, self.cwd, secrets=secrets, redact=redact)
        return StdioTransport(self._process, info.max_message_size)

    def kill(self) -> None:
        """
        End the server process and all it started at once.
        """
        if self._process is not None:
            self._process.end_children(at_once=True)

    async def _post_mortem(self) -> str | None:
        process = self._process
        if process is None:
            return None
        code = await process.exit_code()
        if code is None:
            what = f"closed its {'output' if process.has_closed_output else 'input'}"
        else:
            what = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the server process {what}{self._last_lines()}"

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
        if not self.life.loss or (self._process is not None and self._process.stderr.text()):
            return None  # its standard error says it
        return (
            "Run its command in a terminal to see why. If it works there, it may need a variable that it does not "
            "inherit (see `inherit_env`)."
        )

    def _last_lines(self) -> str:
        if self._process is None:  # on Windows
            return ""
        text = self._process.stderr.text()
        if text:
            return f" (its stderr says: {text})"
        # All that there is to go by if a server ends without a word.
        given = f", with {', '.join(sorted(self._given))} from `env`" if self._given else ""
        return f" (it wrote nothing to stderr; it was started as `{self._server_info._command_line()}`{given})"

    def progress(self) -> str:
        """
        Describe how far `connect` has come, for the message of a timeout.

        :returns: A clause.
        """
        return super().progress() or f"the process was started, but did not answer{self._last_lines()}"


def _process_of_the_sdk(
    command: str, args: list[str], env: dict[str, str], cwd: str | None
) -> AbstractAsyncContextManager[Streams]:
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - a slow import

    return stdio_client(StdioServerParameters(command=command, args=args, env=env, cwd=cwd))
