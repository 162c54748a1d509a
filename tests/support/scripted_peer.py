# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An HTTP server that writes exactly the bytes of a test, and breaks connections where the test wants.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self


@dataclass
class HttpRequest:
    """A received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    def cut(self) -> None:
        """Break the connection with a reset."""
        reset(self.writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """
    Close a connection with a reset, and drop the data that was not sent yet.
    """
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    writer.transport.abort()


Answer = Callable[[HttpRequest], Awaitable[bytes | None]]


class LoopbackServer:
    """
    Serves each connection with `_serve`, which is cancelled at the end of the `async with` block. Options are those
    of `asyncio.start_server`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=512, **self._options)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class ScriptedPeer(LoopbackServer):
    """
    Answers each request with the bytes that `answer` returns, or closes the connection if it returns None: `async with
    ScriptedPeer(answer) as peer`.
    """

    def __init__(self, answer: Answer, **options: Any) -> None:
        super().__init__(**options)
        self._answer = answer
        self.requests: list[HttpRequest] = []
        self.connections = 0
        self.closed = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *fields = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
                method, target, _ = line.split(" ")
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = HttpRequest(method, target, headers, body, writer)
                self.requests.append(request)
                answer = asyncio.ensure_future(self._answer(request))
                gone = asyncio.ensure_future(reader.read(1))  # clients send nothing more before the answer
                await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    answer.cancel()
                    return
                gone.cancel()
                await asyncio.wait({gone})
                written = answer.result()
                if written is None:
                    return
                writer.write(written)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            self.closed += 1
            with suppress(OSError, RuntimeError):
                writer.close()


def response(status: str, body: bytes | Any = b"", content_type: str = "application/json", **headers: str) -> bytes:
    """
    Return a response: status such as "200 OK", a body of bytes or a JSON value, and headers with `_` for `-`.
    """
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Length": str(len(data))} | ({"Content-Type": content_type} if content_type else {})
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data


def chunked(*pieces: bytes, is_finished: bool = True) -> bytes:
    """
    Return an event stream in chunks, with or without its end.
    """
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + body + (b"0\r\n\r\n" if is_finished else b"")


def event(message: Any, event_id: str | None = None) -> bytes:
    """
    Return an event with a message.
    """
    return (f"id: {event_id}\n" if event_id else "").encode() + b"data: " + json.dumps(message).encode() + b"\n\n"


def result(request: HttpRequest, **members: Any) -> dict[str, Any]:
    """
    Return the answer to a request.
    """
    return {"jsonrpc": "2.0", "id": request.message["id"], "result": members}
