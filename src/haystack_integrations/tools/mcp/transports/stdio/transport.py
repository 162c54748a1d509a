# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
from haystack import logging
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage

from haystack_integrations.tools.mcp.client.large_messages import is_large, parse, parse_large
from haystack_integrations.tools.mcp.client.messages import is_no_answer, oversized_answer, read_damaged
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error
from haystack_integrations.tools.mcp.transports.stdio.lines import OversizedLine
from haystack_integrations.tools.mcp.transports.stdio.process import ServerProcess

logger: logging.PatchedLogger = logging.getLogger(__name__)

# After this many bytes, about a millisecond of work, other tasks of the event loop get a turn. A line costs as much as
# _LINE_COST bytes more.
_LONGEST_STREAK = 65536
_LINE_COST = 4096


class _Stream:
    """
    One direction of the transport. The session closes it when it ends.
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
    The messages from a server process, read in the session's own task.
    """

    def __init__(self, process: ServerProcess) -> None:
        super().__init__(process)
        self._has_warned = False
        self._streak = 0
        # Of a line with several.
        self._messages: deque[JSONRPCMessage] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while not self._closed:
            if self._messages:
                return SessionMessage(self._messages.popleft())
            if self._streak > _LONGEST_STREAK:
                self._streak = 0
                await asyncio.sleep(0)
            line = await self._process.read_line()
            if line is None:
                break
            if isinstance(line, OversizedLine):
                self._take_oversized(line)
                continue
            self._streak += _LINE_COST + len(line)
            if line.isspace() or not line:
                continue
            try:
                return SessionMessage(await parse_large(line) if is_large(line) else parse(line))
            except ValueError as error:
                self._messages.extend(read_damaged(line, error))
                if not self._messages:
                    self._report(error)
        raise StopAsyncIteration

    async def receive(self) -> SessionMessage:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _take_oversized(self, line: OversizedLine) -> None:
        answer = oversized_answer(line.head, line.tail, line.limit)
        if answer is not None:
            self._messages.append(answer)
        elif is_no_answer(line.head):
            logger.warning(
                "Ignored a notification or request of the MCP server {server} that is larger than `max_message_size` "
                "of its server info allows, {limit} bytes",
                server=self._process.describe(),
                limit=line.limit,
            )
        else:
            self._process.give_up(
                f"it wrote a line that is larger than `max_message_size` of the server info allows, {line.limit:,} "
                "bytes, and that does not begin or end like an answer"
            )

    def _report(self, error: ValueError) -> None:
        log = logger.debug if self._has_warned else logger.warning
        self._has_warned = True
        log(
            "The MCP server {server} wrote a line to its standard output that is no message ({error}); it was ignored. "
            "Logs belong on standard error. Other such lines are logged at debug level.",
            server=self._process.describe(),
            error=describe_error(error),
        )


class _Outgoing(_Stream):
    """
    The messages to a server process, written in the task of whoever sends one.
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


@asynccontextmanager
async def stdio_transport(process: ServerProcess) -> AsyncIterator[tuple[Any, Any]]:
    """
    Start a server process, and end it at the end of the block: a transport of the SDK.

    The SDK's own transport does not give access to the process, copies all it has read of a message with every 64 KB
    of it, and hands each message through two more tasks. On Windows it is used nevertheless (see `StdioClient`).

    :param process: The process, not yet started.
    :returns: A context manager with the messages from the process and to it.
    :raises OSError: If it cannot be started.
    """
    await process.start()
    try:
        yield _Incoming(process), _Outgoing(process)
    finally:
        # The SDK's client cancels its scope when a session fails, and the process must end nevertheless.
        with anyio.CancelScope(shield=True):
            await process.stop()
