# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import anyio
from haystack import logging

from haystack_integrations.tools.mcp.client.failures import describe_error
from haystack_integrations.tools.mcp.transports.stdio.process import ServerProcess
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

logger = logging.getLogger(__name__)

# After so many bytes of lines, each of which costs as much as some bytes more, everybody else in the event loop has a
# turn: about a millisecond.
_LONGEST_STREAK = 65536
_LINE_COST = 4096


class _Stream:
    """
    One direction of the transport, which the session closes when it ends.
    """

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._closed = False

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


class _Incoming(_Stream):
    """
    The messages of a server process. Read in the session's own task, without another one in between.
    """

    def __init__(self, process: ServerProcess) -> None:
        super().__init__(process)
        self._complained = False
        self._streak = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while not self._closed:
            if self._streak > _LONGEST_STREAK:
                self._streak = 0
                await asyncio.sleep(0)
            line = await self._process.read_line()
            if line is None:
                break
            self._streak += _LINE_COST + len(line)
            if line.isspace() or not line:
                continue
            try:
                return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:
                self._complain(error)
        raise StopAsyncIteration

    async def receive(self) -> SessionMessage:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _complain(self, error: ValueError) -> None:
        log = logger.debug if self._complained else logger.warning
        self._complained = True
        log(
            "Ignored a line on the standard output of the MCP server {server} that is no message ({error}). Its logs "
            "belong on standard error. Other such lines are logged at debug level.",
            server=self._process.describe(),
            error=describe_error(error),
        )


class _Outgoing(_Stream):
    """
    The messages to a server process. Written in the task of whoever sends one, without another one in between.
    """

    async def send(self, message: SessionMessage) -> None:
        """
        Write a message.

        :param message: The message.
        :raises anyio.ClosedResourceError: If the session has ended.
        :raises anyio.BrokenResourceError: If the process takes no messages. Nothing of this one was written.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        try:
            await self._process.write(data + b"\n")
        except BrokenPipeError as error:
            raise anyio.BrokenResourceError from error


class StdioTransport:
    """
    A transport of the SDK to a server process.

    The SDK's own does not tell of the process, copies the whole of what it has read of a message with every 64 KB of
    it, and hands each message through two more tasks. On Windows it is used nevertheless (see `StdioClient`).
    """

    def __init__(self, process: ServerProcess) -> None:
        """
        Initialize the StdioTransport.

        :param process: The process, not yet started.
        """
        self._process = process

    async def __aenter__(self) -> TransportStreams:
        """
        Start the process.

        :returns: The messages from it and to it.
        :raises OSError: If it cannot be started.
        """
        await self._process.start()
        return _Incoming(self._process), _Outgoing(self._process)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        End the process.

        :param exc_type: As in every context manager.
        :param exc: As in every context manager.
        :param traceback: As in every context manager.
        """
        # The SDK's client cancels its scope when a session fails, and the process must end nevertheless.
        with anyio.CancelScope(shield=True):
            await self._process.stop()
