# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

# Seconds between two looks whether a person is still logging in.
_POLL = 0.5


@asynccontextmanager
async def limited(limit: asyncio.Timeout, server_info: MCPServerInfo) -> AsyncIterator[asyncio.Timeout]:
    """
    Apply a timeout that measures the server: it does not end while a person logs in at the server.

    The login has a limit of its own.

    :param limit: The timeout, not yet entered. It may be rescheduled.
    :param server_info: The server.
    :returns: A context manager with the timeout.
    """
    if not server_info._longest_login:
        async with limit:
            yield limit
        return
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None
    waited_until = 0.0

    def look() -> None:
        nonlocal timer, waited_until
        end = limit.when()
        if server_info._login_seconds() is not None and end is not None and not limit.expired():
            # What was left when the login began is left when it ends.
            now = loop.time()
            limit.reschedule(end + now - waited_until)
        waited_until = loop.time()
        timer = loop.call_later(_POLL, look)

    async with limit:
        waited_until = loop.time()
        timer = loop.call_later(_POLL, look)
        try:
            yield limit
        finally:
            timer.cancel()
