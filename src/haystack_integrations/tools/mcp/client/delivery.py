# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is known about the fate of a request: was it sent, may the tool have run?

The MCP SDK reports every broken connection alike, but whether a tool call may be sent again depends on where it broke.
So the taps of this module sit where requests leave: on the streams of every transport and, for the HTTP transports, in
the HTTP client. They write down what they see in the `Delivery` of the request, which they find in a context variable,
because the SDK writes and posts each request in the context of its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
from pydantic_core import to_json

from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPInvocationError
from mcp import types
from mcp.client._transport import Transport, TransportStreams

CALL_METHOD = "tools/call"

CANCEL_METHOD = "notifications/cancelled"

# How long a server has to take a cancellation, in seconds; as long as the SDK gives it.
_CANCELLATION_TIMEOUT = 5.0


@dataclass(slots=True)
class Delivery:
    """
    The fate of one operation's requests.

    :param sent: How many `tools/call` requests were handed to the transport.
    :param refused: How many of these provably did not run.
    :param fault: What broke the connection, in words.
    :param stream_fault: What ended the stream of an answer too early, unless the SDK could resume it.
    :param status: HTTP status of a refusal, with its reason, e.g. "401 Unauthorized".
    :param denied: Whether the refusal would be repeated if the request were.
    """

    sent: int = 0
    refused: int = 0
    fault: str | None = None
    stream_fault: str | None = None
    status: str | None = None
    denied: bool = False
    _given_up: bool = field(default=False, init=False)
    _waits: set[anyio.CancelScope] = field(default_factory=set, init=False)

    @contextlib.contextmanager
    def until_given_up(self) -> Iterator[anyio.CancelScope]:
        """
        Bound a wait for the server: it ends when the caller gives up.

        Before the revision 2026-07-28 the SDK leaves the request open, and a server may never answer one that was
        cancelled.

        :returns: A context manager with the scope of the wait.
        """
        with anyio.CancelScope() as scope:
            if self._given_up:
                scope.cancel()
            self._waits.add(scope)
            try:
                yield scope
            finally:
                self._waits.discard(scope)

    def give_up(self) -> None:
        """
        Wait for the server no longer.
        """
        self._given_up = True
        for wait in list(self._waits):
            wait.cancel()

    def broken_by(self, error_code: int) -> str | None:
        """
        Say what broke the connection.

        :param error_code: Code of the error that the SDK raised.
        :returns: What broke it, or None if the server answered with an error.
        """
        return self.fault or (self.stream_fault if error_code == types.CONNECTION_CLOSED else None)

    @property
    def never_ran(self) -> bool:
        """
        Whether no tool can have run because of these requests.
        """
        return self.sent == self.refused


current_delivery: ContextVar[Delivery | None] = ContextVar("haystack_mcp_delivery", default=None)


class CallNotDeliveredError(MCPConnectionError):
    """
    Raised when a tool call provably did not run, so that it may be sent again.
    """

    def __init__(self, message: str, *, session_lost: bool, denied: bool = False) -> None:
        """
        Initialize the CallNotDeliveredError.

        :param message: What went wrong.
        :param session_lost: Whether a new session is needed.
        :param denied: Whether sending it again would end the same.
        """
        super().__init__(message, operation="call_tool")
        self.session_lost = session_lost
        self.denied = denied


class ReadInterruptedError(MCPConnectionError):
    """
    Raised when the connection broke while something was read, so that it may be read again.
    """


class OutcomeUnknownError(MCPInvocationError):
    """
    Raised when a tool call was sent and never answered: the tool may have run.
    """


class StreamWrapper:
    """
    A stream of the SDK, closed with what is wrapped around it.
    """

    def __init__(self, stream: Any) -> None:
        """
        Initialize the StreamWrapper.

        :param stream: The stream.
        """
        self._stream = stream

    async def aclose(self) -> None:
        """
        Close the stream.
        """
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        result: bool | None = await self._stream.__aexit__(*exc_info)
        return result


class ReadStreamWrapper(StreamWrapper):
    """
    The stream of a session's incoming messages.
    """

    @property
    def last_context(self) -> Any:
        """
        The context in which the last message was sent, where the stream knows it.
        """
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        """
        Iterate over the messages.

        :returns: The stream.
        """
        return self


class _TappedReadStream(ReadStreamWrapper):
    """
    The stream of a session's incoming messages, which tells when it ends.
    """

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        super().__init__(stream)
        self._ended = ended

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._ended()
            raise

    async def receive(self) -> Any:
        return await self._stream.receive()


class _TappedWriteStream(StreamWrapper):
    """
    The stream of a session's outgoing messages, which counts tool calls and tells when none is taken any more.
    """

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        super().__init__(stream)
        self._ended = ended
        self._cancellations: set[asyncio.Task[None]] = set()

    async def send(self, message: Any) -> None:
        delivery = current_delivery.get()
        method = getattr(message.message, "method", None)
        if method == CANCEL_METHOD:
            # Nobody waits for it: a server that takes no messages would hold up a caller that has given up already.
            task = asyncio.create_task(self._send_cancellation(message))
            self._cancellations.add(task)
            task.add_done_callback(self._cancellations.discard)
            return
        call = delivery if method == CALL_METHOD else None
        if call is not None:
            # A model's answer may hold half of a surrogate pair. What the transports of the SDK cannot write ends the
            # session of everybody.
            to_json(message.message.params)
            call.sent += 1
        try:
            await self._stream.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if call is not None:
                # The streams of the transports have no buffer: what they refuse was not taken over by anybody.
                call.refused += 1
            self._ended()
            raise

    async def _send_cancellation(self, message: Any) -> None:
        # There may be nobody left to tell.
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
            async with asyncio.timeout(_CANCELLATION_TIMEOUT):
                await self._stream.send(message)


class TappedTransport:
    """
    A transport of the SDK with taps on its streams.
    """

    def __init__(
        self, transport: Transport, ended: Callable[[], None], before_close: Callable[[], Awaitable[None]]
    ) -> None:
        """
        Initialize the TappedTransport.

        :param transport: The transport.
        :param ended: Called when no more message can come in or go out.
        :param before_close: Awaited before the transport is closed, whatever the reason.
        """
        self._transport = transport
        self._ended = ended
        self._before_close = before_close

    async def __aenter__(self) -> TransportStreams:
        """
        Open the transport.

        :returns: Its streams, tapped.
        """
        read, write = await self._transport.__aenter__()
        return _TappedReadStream(read, self._ended), _TappedWriteStream(write, self._ended)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """
        Close the transport.

        :param exc_type: As in every context manager.
        :param exc: As in every context manager.
        :param traceback: As in every context manager.
        :returns: As the transport.
        """
        try:
            await self._before_close()
        finally:
            result = await self._transport.__aexit__(exc_type, exc, traceback)
        return result


async def settled(event: asyncio.Event, timeout: float) -> bool:
    """
    Wait for an event for a while.

    :param event: The event.
    :param timeout: How long, in seconds.
    :returns: Whether it happened.
    """
    try:
        await asyncio.wait_for(event.wait(), timeout)
    except TimeoutError:
        return False
    return True
