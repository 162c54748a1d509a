# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The handshake of the revisions up to 2025-11-25 before the question for newer ones.

The SDK's client asks for newer revisions first, with `server/discover`. Some servers end at a request before the
handshake, and others do not answer it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from haystack_integrations.tools.mcp.client.delivery import ReadStreamWrapper, StreamWrapper
from mcp import MCPError, types
from mcp.client._transport import Transport, TransportStreams
from mcp.shared.message import SessionMessage
from mcp.types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS


class _Greeting:
    """
    How far a session has come.

    States: new -> (the SDK asks, and is answered here: the server knows no newer revision) asked -> (the SDK sends the
    handshake) greeting -> (the server accepts or refuses it) over. The SDK is told of a refusal as of one by a server
    that only knows newer revisions, after which it asks again: this question reaches the server. Should the server
    not answer it well, the SDK sends the handshake again, and reports how it is refused.
    """

    def __init__(self, refused: Callable[[MCPError], None]) -> None:
        self._refused = refused
        self._asked = False
        self._handshake: Any = None
        self.is_over = False

    def sending(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method == "server/discover" and not self._asked:
            self._asked = True
            raise MCPError(types.METHOD_NOT_FOUND, "The handshake comes first")
        if method == "initialize":
            self._handshake = message.id

    def received(self, item: Any) -> Any:
        message: Any = getattr(item, "message", None)
        is_answer = isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
        if not is_answer or self._handshake is None or message.id != self._handshake:
            return item
        self.is_over = True
        if isinstance(message, types.JSONRPCError):
            error = MCPError(message.error.code, message.error.message, message.error.data)
        else:
            version = message.result.get("protocolVersion")
            if not isinstance(version, str) or version not in MODERN_PROTOCOL_VERSIONS:
                return item
            error = MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, f"it is not for the revision {version}")
        self._refused(error)
        data = {"supported": [LATEST_MODERN_VERSION], "requested": LATEST_HANDSHAKE_VERSION}
        refusal = types.ErrorData(code=types.UNSUPPORTED_PROTOCOL_VERSION, message=error.error.message, data=data)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=self._handshake, error=refusal), item.metadata)


class _ReadStream(ReadStreamWrapper):
    def __init__(self, stream: Any, greeting: _Greeting) -> None:
        super().__init__(stream)
        self._greeting = greeting

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        return item if self._greeting.is_over else self._greeting.received(item)

    async def receive(self) -> Any:
        item = await self._stream.receive()
        return item if self._greeting.is_over else self._greeting.received(item)


class _WriteStream(StreamWrapper):
    def __init__(self, stream: Any, greeting: _Greeting) -> None:
        super().__init__(stream)
        self._greeting = greeting

    async def send(self, message: Any) -> None:
        if not self._greeting.is_over:
            self._greeting.sending(message.message)
        await self._stream.send(message)


class HandshakeFirst:
    """
    A transport of the SDK over which its client begins with the handshake.
    """

    def __init__(self, transport: Transport, refused: Callable[[MCPError], None]) -> None:
        """
        Initialize the HandshakeFirst.

        :param transport: The transport.
        :param refused: Called with the server's error if it refuses the handshake.
        """
        self._transport = transport
        self._refused = refused

    async def __aenter__(self) -> TransportStreams:
        """
        Open the transport.

        :returns: Its streams.
        """
        read, write = await self._transport.__aenter__()
        greeting = _Greeting(self._refused)
        return _ReadStream(read, greeting), _WriteStream(write, greeting)

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
        return await self._transport.__aexit__(exc_type, exc, traceback)
