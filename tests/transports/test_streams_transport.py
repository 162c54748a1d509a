# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests over streams of the SDK's messages.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.memory import create_client_server_memory_streams

from haystack_integrations.tools.mcp.protocol.request_errors import Fate, LostError, RefusedError
from haystack_integrations.tools.mcp.transports.sdk_streams import Streams, StreamsTransport
from tests.support.exchanges import TestedChannel, channel_over, failure_of
from tests.support.processes import PLAIN_SERVER, python_script
from tests.support.waiting import wait_until_async

HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


async def test_a_process_of_the_sdk_is_served_and_ends(tmp_path):
    command, *args = python_script(PLAIN_SERVER, "--calls-file", str(tmp_path / "calls"))
    parameters = StdioServerParameters(command=command, args=args)
    async with channel_over(StreamsTransport(lambda: stdio_client(parameters))) as channel:
        result = await channel.request(channel.exchange("initialize", HANDSHAKE))
        assert result["serverInfo"]
        await channel.send_notification("notifications/initialized")
        assert (await channel.request(channel.exchange("tools/list", {})))["tools"]


async def test_requests_in_flight_are_lost_and_later_ones_refused_when_the_streams_end():
    async with channel_over(StreamsTransport(pair := Pair())) as channel:
        exchange, request = channel.start()
        await pair.taken(1)
        await pair.far[1].aclose()
        assert isinstance(await failure_of(request), LostError)
        assert exchange.fate is Fate.LOST
        assert channel.peer.ends == [None]
        assert isinstance((await channel.fail())[1], RefusedError)


async def test_a_request_that_is_not_read_did_not_run():
    async with channel_over(StreamsTransport(pair := Pair())) as channel:
        await pair.far[0].aclose()
        exchange, error = await channel.fail()
        assert (exchange.fate, type(error)) == (Fate.REFUSED, RefusedError)


async def test_messages_that_the_sdk_cannot_read_are_ignored_and_logged_once(caplog):
    async with channel_over(StreamsTransport(pair := Pair())) as channel:
        for _ in range(2):
            await pair.far[1].send(ValueError("s3same"))
        await wait_until_async(lambda: channel.peer.heard_times == 2, "both")
        assert not channel.has_ended
    assert caplog.text.count("not a message") == 1
    assert "s3same" not in caplog.text


async def test_opening_fails_if_the_streams_cannot_be_opened():
    transport = StreamsTransport(lambda: stdio_client(StdioServerParameters(command="/no/such/command")))
    TestedChannel(transport)
    with pytest.raises(OSError, match="no/such/command"):
        await transport.open()


class Pair:
    """
    Opens a pair of streams; `far` is the server's end.
    """

    far: Streams

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Streams]:
        async with create_client_server_memory_streams() as (near, self.far):
            yield near

    async def taken(self, count: int) -> None:
        for _ in range(count):
            await self.far[0].receive()
