# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Many clients on one server of a pipeline. Time is counted in turns of a gate, not in seconds.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

from fastmcp import Client
from haystack import component

from haystack_integrations.tools.mcp.serving import create_mcp_server
from tests.serving.components import LIMIT, chain
from tests.support.reachable import reachable

CLIENTS, CALLS_EACH, PLACES = 24, 3, 8


@component
class Turns:
    """
    Lets calls go only when all places of the pool are taken, or all calls that are left are there.

    If the pool ever left a place empty while calls wait, nothing would go on.
    """

    def __init__(self, calls: int, places: int) -> None:
        self.left = calls
        self.places = places
        self.inside = 0
        self.turns = 0
        self._changed = threading.Condition()

    @component.output_types(text=str)
    def run(self, text: str) -> dict[str, Any]:
        with self._changed:
            self.inside += 1
            turn = self.turns
            if self.inside == min(self.places, self.left):
                self.left -= self.inside
                self.inside = 0
                self.turns += 1
                self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.turns > turn, LIMIT), "a place of the pool was left empty"
        return {"text": text}


async def test_many_clients_over_http_keep_every_place_of_the_pool_busy_and_lose_no_call():
    turns = Turns(CLIENTS * CALLS_EACH, PLACES)
    server = create_mcp_server("load", pipelines={"ask": chain(turns)}, max_concurrency=PLACES)

    async def work(client: Client[Any], number: int) -> list[str]:
        # At once: who would wait for the answer before the next call might be the last one, with no company.
        calls = (client.call_tool("ask", {"text": f"{number}.{n}"}) for n in range(CALLS_EACH))
        return [(each.structured_content or {})["text"] for each in await asyncio.gather(*calls)]

    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(reachable(server, over_http=True))
        clients = [await stack.enter_async_context(Client(url)) for _ in range(CLIENTS)]
        answers = await asyncio.gather(*(work(client, number) for number, client in enumerate(clients)))

    assert answers == [[f"{number}.{n}" for n in range(CALLS_EACH)] for number in range(CLIENTS)]
    # No turn had an empty place: the throughput is the limit of the pool.
    assert turns.turns == CLIENTS * CALLS_EACH // PLACES
