# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server in the event loop of the test, in memory or over HTTP, or in a thread.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import uvicorn
from fastmcp import FastMCP

from tests.support.waiting import LIMIT


@asynccontextmanager
async def reachable(
    server: FastMCP[Any] | Callable[[str], FastMCP[Any]], *, over_http: bool = True, **options: Any
) -> AsyncIterator[Any]:
    """
    What a client connects to: the server itself, or its URL while it serves there.

    Over HTTP it may be a function that makes the server for an address. The options are those of `FastMCP.http_app`.
    """
    if not over_http:
        yield server
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        made = server if isinstance(server, FastMCP) else server(address)
        config = uvicorn.Config(
            made.http_app(**options), lifespan="on", log_level="warning", timeout_graceful_shutdown=1
        )
        running = uvicorn.Server(config)
        task = asyncio.create_task(running.serve(sockets=[listening]))
        try:
            while not running.started:
                assert not task.done(), "the server did not start"
                await asyncio.sleep(0.01)
            yield f"{address}/mcp"
        finally:
            running.should_exit = True
            await asyncio.wait_for(task, LIMIT)


class AppThread:
    """
    `with AppThread(app) as served`: serves an ASGI app from a thread, at `served.origin`.
    """

    def __init__(self, app: Any = None, **options: Any) -> None:
        self.app = app
        self._options = options
        # For sockets that name the protocol, asyncio turns off Nagle's algorithm. With it, every response that is sent
        # in two parts waits 40 ms for an acknowledgement.
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(1024)
        scheme = "https" if "ssl_certfile" in options else "http"
        self.origin = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        common = {"interface": "asgi3", "log_level": "error", "timeout_graceful_shutdown": 1}
        self._server = uvicorn.Server(uvicorn.Config(self.app, **common, **self._options))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([self._listener])), name="app")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(LIMIT)
        self._listener.close()
