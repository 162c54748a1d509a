# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers and ASGI applications that serve over HTTP from a thread of the test.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import uvicorn
from fastmcp import FastMCP

from tests.support.waiting import LIMIT


@asynccontextmanager
async def reachable(server: FastMCP[Any], *, over_http: bool = True) -> AsyncIterator[Any]:
    """
    Yield the target of a client: the server itself, or a URL at which a thread serves it.
    """
    if over_http:
        with AppThread(server.http_app()) as served:
            yield f"{served.origin}/mcp"
    else:
        yield server


class AppThread:
    """
    Serves an ASGI app from a thread: `with AppThread(app) as served`; it is at `served.origin`.
    """

    def __init__(self, app: Any = None, **options: Any) -> None:
        self.app = app
        self._options = options
        # If a socket names its protocol, asyncio turns off Nagle's algorithm, with which every response in two parts
        # would wait 40 ms for an acknowledgement.
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
