# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A channel over a transport under test, with a peer that records incoming messages.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from haystack_integrations.tools.mcp.protocol.channel import Channel, Exchange, SessionLife, SessionState, Transport
from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError, RequestError


class RecordingPeer(SessionLife):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, dict[str, Any]]] = []
        # The exchanges in whose streams the notifications came.
        self.places: list[Exchange | None] = []
        self.ends: list[str | None] = []
        self.drains: list[str | None] = []
        self.heard_times = 0
        self.gaps = 0

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "of another revision":
            return None
        if method == "unknown":
            raise ProtocolError(-32601, "Method not found", {"method": method})
        return {"asked": method, **params}

    def notified(self, method: str, params: dict[str, Any], exchange: Exchange | None) -> None:
        self.notes.append((method, params))
        self.places.append(exchange)

    def missed(self) -> None:
        self.gaps += 1

    def heard(self) -> None:
        self.heard_times += 1

    def end(self, reason: str | None = None, state: SessionState = SessionState.LOST) -> None:
        (self.drains if state is SessionState.DRAINING else self.ends).append(reason)


class TestedChannel(Channel):
    """
    A channel with default options for its requests, which a test may override.
    """

    __test__ = False

    def __init__(self, transport: Transport, **usual: Any) -> None:
        self.peer = peer = RecordingPeer()
        self._usual = {"method": "do", **usual}
        super().__init__(transport, peer, answer=peer.answer, notified=peer.notified, missed=peer.missed)

    def exchange(self, method: str | None = None, params: dict[str, Any] | None = None, **options: Any) -> Exchange:
        given = {name: each for name, each in (("method", method), ("params", params)) if each is not None}
        return Exchange(self.next_id(), **{**self._usual, **options, **given})

    def start(
        self, method: str | None = None, params: dict[str, Any] | None = None
    ) -> tuple[Exchange, asyncio.Task[Any]]:
        """
        Send a request in a new task, which runs until it waits for the answer.
        """
        exchange = self.exchange(method, params)
        return exchange, asyncio.create_task(self.request(exchange))

    async def fail(self, **options: Any) -> tuple[Exchange, RequestError]:
        """
        Send a request that fails, and return it with its error.
        """
        exchange = self.exchange(**options)
        try:
            result = await self.request(exchange)
        except RequestError as error:
            return exchange, error
        raise AssertionError(result)


async def failure_of(task: "asyncio.Task[Any]") -> BaseException | None:
    """
    Return the error of a request, or None if it was given up.
    """
    await asyncio.wait([task])
    with contextlib.suppress(asyncio.CancelledError):
        return task.exception()
    return None


@asynccontextmanager
async def channel_over(transport: Transport, **usual: Any) -> AsyncIterator[TestedChannel]:
    channel = TestedChannel(transport, **usual)
    try:
        await transport.open()
        yield channel
    finally:
        await channel.close()
