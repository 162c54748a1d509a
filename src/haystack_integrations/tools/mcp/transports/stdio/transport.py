# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from haystack import logging

from haystack_integrations.tools.mcp.protocol import frames
from haystack_integrations.tools.mcp.protocol.channel import Transport
from haystack_integrations.tools.mcp.protocol.exchange import Exchange
from haystack_integrations.tools.mcp.protocol.server_info import DEFAULT_MAX_MESSAGE_SIZE
from haystack_integrations.tools.mcp.transports.stdio.lines import LineBuffer, OversizedLine
from haystack_integrations.tools.mcp.transports.stdio.process import ServerProcess

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
        self._lines = LineBuffer(max_message_size)
        self._has_warned = False

    async def open(self) -> None:
        """
        Start the process.

        :raises OSError: If it cannot be started.
        """
        self._process.on_output = self._output
        self._process.start()

    async def carry(self, exchange: Exchange) -> None:
        """
        Write a request, once the process has read most of the earlier ones.

        :param exchange: The request.
        :raises ValueError: If it cannot be written as JSON.
        """
        data = frames.write(exchange.message()) + b"\n"
        try:
            await self._process.write(data, exchange.mark_sent)
        except BrokenPipeError:
            exchange.unmark_sent()  # nothing of it was written
            exchange.lose()

    async def tell(self, message: dict[str, Any], exchange: Exchange | None = None) -> None:  # noqa: ARG002
        """
        Write a message that is not answered.

        :param message: The message.
        :param exchange: Of no importance here.
        :raises BrokenPipeError: If the process takes no more messages.
        :raises ValueError: If it cannot be written as JSON.
        """
        await self._process.write(frames.write(message) + b"\n")

    async def close(self) -> None:
        """
        End the process: by the end of its input, then by signals.
        """
        await self._process.stop()

    def _output(self, data: bytes) -> None:
        if not data:
            self.channel.ended(None)
            return
        self.channel.heard()
        for line in self._lines.feed(data):
            if isinstance(line, OversizedLine):
                self._take_oversized(line)
                continue
            messages = frames.read(line)
            for message in messages:
                self.channel.received(message)
            if not messages and line and not line.isspace():
                self._report()

    def _take_oversized(self, line: OversizedLine) -> None:
        answer = frames.oversized(line.head, line.tail, self._lines.limit)
        if answer is not None:
            self.channel.received(answer)
        elif frames.is_no_answer(line.head):
            logger.warning(
                "Ignored a notification or request of the MCP server {server} that is larger than `max_message_size` "
                "of its server info allows, {limit} bytes",
                server=self._process.describe(),
                limit=self._lines.limit,
            )
        else:
            self.channel.ended(
                "it wrote a line that is larger than `max_message_size` of the server info allows, "
                f"{self._lines.limit:,} bytes, and that does not begin or end like an answer"
            )

    def _report(self) -> None:
        log = logger.debug if self._has_warned else logger.warning
        self._has_warned = True
        log(
            "The MCP server {server} wrote a line to its standard output that is no message; it was ignored. "
            "Logs belong on standard error. Other such lines are logged at debug level.",
            server=self._process.describe(),
        )
