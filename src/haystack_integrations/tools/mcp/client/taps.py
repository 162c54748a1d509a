# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Taps on the streams between the MCP SDK and a transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
from mcp import types
from mcp.client import Transport
from pydantic_core import to_json

from haystack_integrations.tools.mcp.client.handshake import HandshakeFirst
from haystack_integrations.tools.mcp.client.request_outcome import CALL_METHOD, CANCEL_METHOD, current_outcome
from haystack_integrations.tools.mcp.client.sdk_workarounds import shown_error
from haystack_integrations.tools.mcp.client.unread_messages import IgnoredMessage, UnreadAnswer, UnreadMessage
from haystack_integrations.tools.mcp.convert.odd_messages import mend_params
from haystack_integrations.tools.mcp.redaction import Redactor

# How long a server may take to accept a cancellation, in seconds; as long as the SDK allows.
_CANCELLATION_TIMEOUT = 5.0


@asynccontextmanager
async def tapped(
    transport: Transport,
    *,
    on_end: Callable[[], None],
    before_close: Callable[[], Awaitable[None]],
    on_request: Callable[[], None],
    on_message: Callable[[], None],
    redactor: Callable[[], Redactor],
    handshake: HandshakeFirst | None = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """
    Open a transport of the SDK with taps on its streams.

    :param transport: The transport.
    :param on_end: Called when no more messages can come in or go out.
    :param before_close: Awaited before the transport is closed, whatever the reason.
    :param on_request: Called when a request goes out, in the context of its caller.
    :param on_message: Called when a message came in.
    :param redactor: Gives what redacts errors that come in, because the SDK shows them to OpenTelemetry.
    :param handshake: Negotiates the revision of the protocol in place of the SDK, or None.
    :returns: A context manager with the incoming and the outgoing stream.
    """
    async with transport as (read, write):
        try:
            incoming = _Incoming(read, on_end, on_message, redactor, handshake)
            yield incoming, _Outgoing(write, on_end, on_request, handshake)
        finally:
            await before_close()


class _Tap:
    def __init__(self, stream: Any, on_end: Callable[[], None], handshake: HandshakeFirst | None) -> None:
        self._stream = stream
        self._on_end = on_end
        self._handshake = handshake

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        result: bool | None = await self._stream.__aexit__(*exc_info)
        return result


class _Incoming(_Tap):
    # The context in which the last message was sent, where the transport knows it; the SDK asks for it.
    last_context: Any = None

    def __init__(
        self,
        stream: Any,
        on_end: Callable[[], None],
        on_message: Callable[[], None],
        redactor: Callable[[], Redactor],
        handshake: HandshakeFirst | None,
    ) -> None:
        super().__init__(stream, on_end, handshake)
        self._on_message = on_message
        self._redactor = redactor

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
            while _is_ignored(item):
                item = await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._on_end()
            raise
        return self._received(await _read(item))

    async def receive(self) -> Any:
        item = await self._stream.receive()
        while _is_ignored(item):
            item = await self._stream.receive()
        return self._received(await _read(item))

    def _received(self, item: Any) -> Any:
        self._on_message()
        self.last_context = getattr(self._stream, "last_context", None)
        message = getattr(item, "message", None)
        if isinstance(message, types.JSONRPCError):
            shown = shown_error(message.error, self._redactor())
            if shown is not message.error:
                item = dataclasses.replace(item, message=message.model_copy(update={"error": shown}))
        elif isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification) and message.params is not None:
            params = mend_params(message.method, message.params)
            if params is not message.params:
                item = dataclasses.replace(item, message=message.model_copy(update={"params": params}))
        return item if self._handshake is None else self._shake_hands(self._handshake, item)

    def _shake_hands(self, handshake: HandshakeFirst, item: Any) -> Any:
        item = handshake.received(item)
        if handshake.is_over:
            self._handshake = None
        return item


def _is_ignored(item: Any) -> bool:
    return isinstance(getattr(item, "message", None), IgnoredMessage)


async def _read(item: Any) -> Any:
    message = getattr(item, "message", None)
    if not isinstance(message, UnreadAnswer | UnreadMessage):
        return item
    try:
        return dataclasses.replace(item, message=await message.read())
    except ValueError as error:  # the SDK takes it from here, as it does with what its transport cannot read
        return error


class _Outgoing(_Tap):
    def __init__(
        self,
        stream: Any,
        on_end: Callable[[], None],
        on_request: Callable[[], None],
        handshake: HandshakeFirst | None,
    ) -> None:
        super().__init__(stream, on_end, handshake)
        self._on_request = on_request
        self._cancellations: set[asyncio.Task[None]] = set()

    async def send(self, message: Any) -> None:
        method = getattr(message.message, "method", None)
        call = None
        if method == CALL_METHOD:
            call = current_outcome.get()
        elif method == CANCEL_METHOD:
            # In the background: a server that takes no messages would hold up a caller that has given up already.
            task = asyncio.create_task(self._send_cancellation(message))
            self._cancellations.add(task)
            task.add_done_callback(self._cancellations.discard)
            return
        elif self._handshake is not None:
            self._handshake.sending(message.message)
        if isinstance(message.message, types.JSONRPCRequest):
            self._on_request()
            # A model's answer may contain half of a surrogate pair. A message that a transport of the SDK cannot write
            # ends the session, so it is refused here.
            to_json(message.message.params)
        if call is not None:
            call.sent += 1
        try:
            await self._stream.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if call is not None:
                # The streams of the transports have no buffer, so nobody took over what they refuse.
                call.refused += 1
            self._on_end()
            raise

    async def _send_cancellation(self, message: Any) -> None:
        # There may be no server left to tell.
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
            async with asyncio.timeout(_CANCELLATION_TIMEOUT):
                await self._stream.send(message)
