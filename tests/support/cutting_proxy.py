# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A TCP proxy between a client and an HTTP server that breaks connections when a test wants it to.

It runs in its own thread. Every method may be called from any thread, and has taken effect when it returns.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from tests.support.processes import bound_socket
from tests.support.scripted_peer import reset
from tests.support.waiting import LIMIT


@dataclass(eq=False)
class _Link:
    """A client's connection, and the connection to the server behind it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    # The client was cut off, and the server must not notice.
    hidden: bool = False


@dataclass
class Trap:
    """
    An armed cut. `sprung` is set as soon as it has cut connections.
    """

    marker: bytes
    when: Literal["forwarded", "before"]
    sprung: threading.Event = field(default_factory=threading.Event)


class CuttingProxy:
    """
    A proxy that forwards to a server; clients connect to `url`.

    ### Usage example

    ```python
    with CuttingProxy(server.url) as proxy:
        trap = proxy.cut_when(b'"tools/call"')
        ...  # a call through proxy.url
        assert trap.sprung.wait(10)
    ```

    :param url: The server's URL.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._parts = parts
        self._target = (parts.hostname, parts.port)
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._trap: Trap | None = None
        self._listener: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        # All bytes that clients have sent so far.
        self.sent = bytearray()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting-proxy", daemon=True)
        # Bound but not listening, to reserve the port while connections are refused.
        self._keeper = bound_socket(0)
        self.port: int = self._keeper.getsockname()[1]

    @property
    def url(self) -> str:
        return urlunsplit(self._parts._replace(netloc=f"127.0.0.1:{self.port}"))

    def __enter__(self) -> "CuttingProxy":
        self._thread.start()
        self._flowing.set()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(LIMIT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()
        self._keeper.close()

    def cut(self) -> None:
        """
        Break all connections on both sides with a reset.
        """
        self._do(lambda: self._cut(server_sees=True))

    def cut_when(self, marker: bytes, *, when: Literal["forwarded", "before"] = "forwarded") -> Trap:
        """
        Break the connections of all clients once, at the next request that contains the marker. The connections to the
        server stay open, so that it executes the request but its response reaches no client.

        :param marker: Bytes of the request, such as `b'"tools/call"'`.
        :param when: `"forwarded"`: the server gets the request, but the client gets no response. `"before"`: the
            server does not get the request.
        :returns: The trap, whose event `sprung` is set by the cut.
        """
        self._trap = Trap(marker, when)
        return self._trap

    def refuse(self) -> None:
        """
        Refuse new connections. Open connections stay open.
        """
        self._do(self._stop_listening)

    def accept(self) -> None:
        """
        Accept new connections again, on the same port.
        """
        starting = asyncio.start_server(self._serve, sock=bound_socket(self.port))
        self._listener = asyncio.run_coroutine_threadsafe(starting, self._loop).result(LIMIT)

    def hold(self) -> None:
        """
        Hold back all bytes without losing any. Connections stay open, and new ones are accepted.
        """
        self._do(self._flowing.clear)

    def release(self) -> None:
        """
        Forward the bytes that `hold` held back.
        """
        self._do(self._flowing.set)

    def _do(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(LIMIT)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _close(self) -> None:
        self._stop_listening()
        self._cut(server_sees=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Aborted transports close their sockets in the next iteration of the loop.
        await asyncio.sleep(0)

    def _cut(self, *, server_sees: bool) -> None:
        for link in list(self._links):
            if not link.client.transport.is_closing():
                link.hidden = not server_sees
                _abort(link.client)
            if server_sees and link.server is not None:
                _abort(link.server)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        link = _Link(writer)
        self._links.add(link)
        try:
            server_reader, link.server = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._upstream(link, reader), self._downstream(link, server_reader))
        except (OSError, asyncio.CancelledError):
            # The server cannot be reached, or the proxy closes. The client sees its connection break.
            pass
        finally:
            _abort(link.client)
            if link.server is not None:
                _abort(link.server)
            self._links.discard(link)
            self._tasks.discard(task)

    async def _upstream(self, link: _Link, reader: asyncio.StreamReader) -> None:
        """Forward from the client to the server."""
        assert link.server is not None
        try:
            while chunk := await reader.read(65536):
                self.sent += chunk
                await self._flowing.wait()
                trap = self._trap if self._trap and self._trap.marker in chunk else None
                if trap is None or trap.when == "forwarded":
                    link.server.write(chunk)
                    await link.server.drain()
                if trap is not None:
                    self._trap = None
                    self._cut(server_sees=False)
                    trap.sprung.set()
            await self._flowing.wait()
            if not link.hidden and not link.server.transport.is_closing():
                link.server.write_eof()
        except OSError:
            pass  # The server or the client has gone.

    async def _downstream(self, link: _Link, reader: asyncio.StreamReader) -> None:
        """Forward from the server to the client; after a cut, only read from the server."""
        try:
            while chunk := await reader.read(65536):
                await self._flowing.wait()
                if not link.client.transport.is_closing():
                    link.client.write(chunk)
                    await link.client.drain()
        except OSError:
            pass  # The server has gone, or the client has.
        await self._flowing.wait()
        # It closes after the remaining data was sent.
        link.client.close()


def _abort(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        reset(writer)
