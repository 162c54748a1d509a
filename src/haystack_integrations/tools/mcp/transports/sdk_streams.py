# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A transport over a pair of message streams of the MCP SDK, for servers in process and for stdio on Windows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from haystack import logging
from mcp_types import jsonrpc_message_adapter

from haystack_integrations.tools.mcp.convert.odd_messages import read_messages
from haystack_integrations.tools.mcp.protocol.channel import Exchange, Transport
from haystack_integrations.tools.mcp.request_context import current_request

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How long closing the streams may take, in seconds. The functions that open them have shorter limits.
_CLOSE_TIMEOUT = 10.0

# The streams of incoming and outgoing messages of the SDK.
Streams: TypeAlias = tuple[Any, Any]


class StreamsTransport(Transport):
    """
    A transport over a pair of message streams of the SDK.

    Their context manager is entered and left in one task, because cancel scopes must not cross tasks.
    """

    def __init__(self, streams: Callable[[], AbstractAsyncContextManager[Streams]]) -> None:
        """
        Initialize the StreamsTransport.

        :param streams: Opens the streams.
        """
        self._streams = streams
        self._outgoing: Any = None
        self._session_message: type[SessionMessage]
        self._reading = anyio.CancelScope()
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """
        Open the streams.

        :raises Exception: If that fails.
        """
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - a slow import

        self._session_message = SessionMessage
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(opened))
        try:
            await opened
        except BaseException:
            self._running.cancel()
            await asyncio.wait([self._running], timeout=_CLOSE_TIMEOUT)
            raise

    async def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self._streams() as (incoming, self._outgoing):
                if not opened.done():
                    opened.set_result(None)
                with self._reading:
                    await self._read(incoming)
                self.channel.ended(None)
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)
                return
            logger.debug("The streams of a session broke: {kind}", kind=type(error).__name__)
            self.channel.ended(None)

    async def _read(self, incoming: Any) -> None:
        has_warned = False
        async for item in incoming:
            self.channel.heard()
            if isinstance(item, Exception):
                log = logger.debug if has_warned else logger.warning
                log("An MCP server wrote something that is not a message; it was ignored")
                has_warned = True
                continue
            for message in read_messages(item.message.model_dump_json(by_alias=True, exclude_unset=True)):
                self.channel.received(message)

    async def carry(self, content: bytes, exchange: Exchange) -> None:
        """
        Send a request.

        :param content: The request as JSON.
        :param exchange: The request.
        """
        message = self._message(content)
        exchange.mark_sent()
        try:
            await self._send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            exchange.unmark_sent()  # the server's end was closed
            exchange.lose()

    async def send(self, content: bytes) -> None:
        """
        Send a message that is not answered.

        :param content: The message as JSON.
        :raises Exception: If the server's end is closed.
        """
        await self._send(self._message(content))

    async def _send(self, message: SessionMessage) -> None:
        # A server in this process keeps the context of its last message. The task of a failed request keeps the error,
        # whose traceback keeps the caller's connection, which would not be closed when it is garbage-collected.
        request = current_request.set(None)
        try:
            await self._outgoing.send(message)
        finally:
            current_request.reset(request)

    async def close(self) -> None:
        """
        Close the streams.
        """
        if self._running is None:
            return
        self._reading.cancel()
        _, running = await asyncio.wait([self._running], timeout=_CLOSE_TIMEOUT)
        if running:
            self._running.cancel()

    def _message(self, content: bytes) -> SessionMessage:
        return self._session_message(jsonrpc_message_adapter.validate_json(content))
