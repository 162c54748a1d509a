# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server in the event loop of the test, in memory or over HTTP.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

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
