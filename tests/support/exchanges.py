# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A channel over a transport under test, with a peer that notes what comes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from haystack_integrations.tools.mcp.protocol.channel import Channel, Transport
from haystack_integrations.tools.mcp.protocol.exchange import (
    Exchange,
    ProtocolError,
    RequestError,
    SessionLife,
    SessionState,
)


class RecordingPeer(SessionLife):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.ends: list[str | None] = []
        self.heard_times = 0

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "of another revision":
            return None
        if method != "ask":
            raise ProtocolError(-32601, "Method not found", {"method": method})
        return {"answered": params}

    def notified(self, method: str, params: dict[str, Any], _exchange: Exchange | None) -> None:
        self.notes.append((method, params))

    def heard(self) -> None:
        self.heard_times += 1

    def end(self, reason: str | None = None, state: SessionState = SessionState.LOST) -> None:
        assert state is SessionState.LOST
        self.ends.append(reason)


class TestedChannel(Channel):
    __test__ = False

    def __init__(self, transport: Transport) -> None:
        self.peer = RecordingPeer()
        super().__init__(transport, self.peer, answer=self.peer.answer, notified=self.peer.notified)

    def exchange(self, method: str = "do", params: dict[str, Any] | None = None, **options: Any) -> Exchange:
        return Exchange(self.next_id(), method, params, **options)

    def start(self, method: str = "do", params: dict[str, Any] | None = None) -> tuple[Exchange, asyncio.Task[Any]]:
        """
        Make a request in a task, which has run up to where it waits.
        """
        exchange = self.exchange(method, params)
        return exchange, asyncio.create_task(self.request(exchange))

    async def failure(self, exchange: Exchange) -> RequestError:
        """
        Make a request that fails, and return its error.
        """
        try:
            result = await self.request(exchange)
        except RequestError as error:
            return error
        raise AssertionError(result)


async def failure_of(task: "asyncio.Task[Any]") -> BaseException | None:
    """
    The error of a request, or None if it was given up.
    """
    await asyncio.wait([task])
    with contextlib.suppress(asyncio.CancelledError):
        return task.exception()
    return None


@asynccontextmanager
async def channel_over(transport: Transport) -> AsyncIterator[TestedChannel]:
    channel = TestedChannel(transport)
    await transport.open()
    try:
        yield channel
    finally:
        await channel.close()
