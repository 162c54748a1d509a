# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serving one client over stdin and stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any, BinaryIO, cast

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport
from haystack import logging
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from haystack_integrations.tools.mcp.serving.calls import guard_of
from haystack_integrations.tools.mcp.serving.changes import announcer_of
from haystack_integrations.tools.mcp.serving.low_level import low_level_server
from haystack_integrations.tools.mcp.serving.stopping import Stop

logger: logging.PatchedLogger = logging.getLogger(__name__)

_SERVER_STOPS = -32000
# Its answer is a stream that ends with the server.
_LISTEN = "subscriptions/listen"

_UNWRITABLE_RESULT = "The result cannot be written as JSON"
_UNWRITABLE_REQUEST = "The request cannot be written as JSON, so it was not sent"

_Message = SessionMessage | Exception

# An escape in JSON: a pair of surrogates, half of one, or anything else.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def well_formed_json(text: bytes) -> bytes:
    """
    Make JSON that every parser reads of JSON that may have halves of surrogate pairs, which some clients send.

    :param text: The JSON, or anything else.
    :returns: It, as long, with U+FFFD for each half.
    """
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], text)


async def serve_stdio(server: FastMCP[Any], stop: Stop, *, max_body_size: int) -> None:
    """
    Serve a client until it closes stdin, which abandons its calls, or until the order to stop, which lets them finish.

    :param server: What is served.
    :param stop: The order to stop.
    :param max_body_size: The longest line that is read, in bytes; a longer one is answered with an error.
    """
    guard_of(server)
    low_level = low_level_server(server)
    transport = set_transport("stdio")
    try:
        with _stdin() as file:
            lines = _Lines(file, max_body_size)
            async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (read, write):
                conversation = _Conversation(stop, lines, announcer_of(server).close)
                async with conversation.between(read, write) as (requests, answers):
                    await low_level.run(requests, answers, low_level.create_initialization_options())
                lines.close()
                # The SDK's reader would wait for ever to hand over a line that it has read already.
                async for _ in read:
                    pass
    finally:
        reset_transport(transport)


@contextlib.contextmanager
def _stdin() -> Iterator[BinaryIO]:
    """
    Take stdin for the protocol: what a tool or a process that it starts reads from file descriptor 0 is empty.
    """
    own = os.dup(sys.stdin.fileno())
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    # Not closed at the end, as the reading thread may still wait on it: the number could be reused.
    yield os.fdopen(own, "rb", closefd=False)
    os.dup2(own, sys.stdin.fileno())


class _Lines:
    """
    The lines of a file, read by a daemon thread.

    A read from a pipe cannot be interrupted, and neither the order to stop nor the end of the process may wait for one.
    """

    def __init__(self, file: BinaryIO, max_length: int) -> None:
        self._file = file
        self.max_length = max_length
        self._send, self._receive = anyio.create_memory_object_stream[str](0)
        # Those that the SDK was given, until it has said what it has read in them.
        self._given: deque[str] = deque()

    def take(self) -> str:
        """
        Give the line in which the SDK has found the next message, or none.
        """
        return self._given.popleft() if self._given else ""

    async def __aiter__(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="mcp-serving-stdin", daemon=True).start()
        async with self._receive:
            async for line in self._receive:
                self._given.append(line)
                yield line

    def close(self) -> None:
        """
        End the lines, as if the file had ended.
        """
        self._send.close()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        async def hand_over(line: str) -> None:
            await self._send.send(line)

        try:
            while line := self._file.readline(self.max_length + 1):
                if len(line) > self.max_length:
                    while line and not line.endswith(b"\n"):
                        line = self._file.readline(self.max_length)
                    # No JSON, so that it is answered with a parse error.
                    line = b"too long\n"
                if line.strip():
                    text = well_formed_json(line).decode(errors="replace")
                    asyncio.run_coroutine_threadsafe(hand_over(text), loop).result()
            loop.call_soon_threadsafe(self.close)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, CancelledError, RuntimeError):
            # Nobody listens any more: the conversation is over, or the loop is closed.
            return


class _Conversation:
    """
    Follows which requests are still to be answered, and ends the conversation when it may.
    """

    def __init__(self, stop: Stop, lines: _Lines, end_streams: Callable[[], None]) -> None:
        self._stop = stop
        self._lines = lines
        self._end_streams = end_streams
        self._unanswered: set[str | int | None] = set()
        self._all_answered = anyio.Event()
        self._stopping = anyio.Event()
        self._written = anyio.Event()

    @contextlib.asynccontextmanager
    async def between(
        self, read: Any, write: Any
    ) -> AsyncIterator[tuple[MemoryObjectReceiveStream[_Message], MemoryObjectSendStream[SessionMessage]]]:
        """
        Stand between the transport and the server.

        :param read: Messages of the client.
        :param write: Takes messages for the client.
        :returns: The streams for the server.
        """
        requests_in, requests = anyio.create_memory_object_stream[_Message](0)
        answers, answers_out = anyio.create_memory_object_stream[SessionMessage](0)
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._forward_requests, read, requests_in, write)
            tasks.start_soon(self._end_when_answered, requests_in)
            tasks.start_soon(self._forward_answers, answers_out, write, requests_in, tasks)
            with self._stop.calling(lambda: loop.call_soon_threadsafe(self._stopping.set)):
                yield requests, answers
                await self._written.wait()
            # The client may go on writing; nobody reads it.
            tasks.cancel_scope.cancel()

    async def _forward_requests(self, read: Any, requests: MemoryObjectSendStream[_Message], write: Any) -> None:
        async with requests:
            async for item in read:
                message = item.message if isinstance(item, SessionMessage) else None
                line = self._lines.take()
                try:
                    if isinstance(item, Exception):
                        await write.send(_unreadable(line, self._lines.max_length))
                    elif isinstance(message, JSONRPCRequest) and self._stopping.is_set():
                        await write.send(_error(message.id, _SERVER_STOPS, "The server is stopping"))
                    else:
                        self._note_request(message)
                        await requests.send(item)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    # The server has ended the conversation.
                    return
        self._stop.request("the client closed stdin")

    def _note_request(self, message: object) -> None:
        if isinstance(message, JSONRPCRequest) and message.method != _LISTEN:
            self._unanswered.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            # Nobody answers it, and nobody waits for the answer.
            request_id = (message.params or {}).get("requestId")
            if isinstance(request_id, str | int):  # a client may send anything
                self._note_answer(request_id)

    def _note_answer(self, request_id: str | int | None) -> None:
        self._unanswered.discard(request_id)
        if self._stopping.is_set() and not self._unanswered:
            self._all_answered.set()

    async def _forward_answers(
        self,
        answers: MemoryObjectReceiveStream[SessionMessage],
        write: Any,
        requests: MemoryObjectSendStream[_Message],
        tasks: TaskGroup,
    ) -> None:
        async with answers, write:
            async for item in answers:
                message = item.message
                try:
                    await write.send(_Written.of(message))
                except _UnwritableError as error:
                    logger.error("A message cannot be sent to the client. {error}", error=str(error))
                    if isinstance(message, JSONRPCResponse | JSONRPCError):
                        await write.send(_error(message.id, INTERNAL_ERROR, _UNWRITABLE_RESULT))
                    elif isinstance(message, JSONRPCRequest):
                        # Whoever asks must not wait for ever. In a task, as the server may not read before it has
                        # sent more.
                        refusal = _error(message.id, INTERNAL_ERROR, _UNWRITABLE_REQUEST)
                        tasks.start_soon(_send_if_open, requests, refusal)
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self._note_answer(message.id)
        self._written.set()

    async def _end_when_answered(self, requests: MemoryObjectSendStream[_Message]) -> None:
        await self._stopping.wait()
        self._end_streams()
        if self._unanswered:
            with anyio.move_on_after(self._stop.time_for_calls):
                await self._all_answered.wait()
        await requests.aclose()


class _UnwritableError(Exception):
    """
    Raised for a message that JSON cannot contain, such as a text with half an emoji.
    """


class _Written:
    """
    A message as JSON, in place of the message.

    The SDK's writer ends with the first message that it cannot write, and with it all calls; and writing a large result
    twice, once to find out, would hold up the loop twice as long.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def of(cls, message: JSONRPCMessage) -> SessionMessage:
        try:
            text = message.model_dump_json(by_alias=True, exclude_unset=True)
        # Whatever a value of the result raises.
        except Exception as error:
            # Without the text of the error, which may quote the result.
            named = (
                f" of the method {message.method}" if isinstance(message, JSONRPCRequest | JSONRPCNotification) else ""
            )
            msg = f"The {type(message).__name__}{named} cannot be written as JSON: {type(error).__name__}"
            raise _UnwritableError(msg) from error
        return SessionMessage(cast("JSONRPCMessage", cls(text)))

    def model_dump_json(self, **_: Any) -> str:
        return self._text


async def _send_if_open(stream: MemoryObjectSendStream[_Message], message: SessionMessage) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stream.send(message)


def _unreadable(line: str, max_length: int) -> SessionMessage:
    """
    Answer what the SDK cannot read, with its id if it has one: otherwise whoever sent it would wait.
    """
    with contextlib.suppress(ValueError, RecursionError):
        # Not as a number that has too many digits even for Python.
        message = json.loads(line, parse_int=lambda digits: int(digits[:400]))
        is_request = isinstance(message, dict) and not {"result", "error"} & message.keys()
        request_id = message.get("id") if is_request else None
        if isinstance(request_id, str | int):
            msg = "Invalid request: it is no JSON-RPC request, or has too many digits or levels somewhere"
            return _error(request_id, INVALID_REQUEST, msg)
    return _error(None, PARSE_ERROR, f"Parse error: the line is no JSON-RPC message, or longer than {max_length} bytes")


def _error(request_id: str | int | None, code: int, message: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message)))
