# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The client backs off from servers that refuse requests, are too busy, or fail repeatedly, over every transport where
that can happen. HTTP errors are reported with their status, and unknown sessions are reopened.
"""

import asyncio
import contextvars
import time
from collections.abc import Callable
from copy import copy
from email.utils import formatdate
from time import monotonic
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPHandlers,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPServerInfo,
    SSEServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.connection.gate import Gate
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.transports.refusals import retry_after
from tests.handlers.conftest import BOTH_ERAS, server_info  # noqa: F401 - a fixture
from tests.support.background import in_thread, text
from tests.support.kinds import KINDS, LONG, every_http_transport, every_way, kinds
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until, wait_until_async


def gateway(answer: Callable[[int], Any]) -> Any:
    """
    Return an `http_transport` with a gateway that may answer calls itself, like real gateways and overloaded servers:
    `answer` gets the number of a call and returns the answer, or None to pass on the call.
    """

    class Gateway(httpx2.AsyncHTTPTransport):
        calls = 0

        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, "verify": False})  # loading certificates is slow

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if b'"tools/call"' in request.content:
                Gateway.calls += 1
                answered = answer(Gateway.calls)
                if isinstance(answered, Exception):
                    raise answered
                if answered is not None:
                    return answered
            return await super().handle_async_request(request)

    return Gateway


def busy(status: int, retry_after: str) -> httpx2.Response:
    return httpx2.Response(status, headers={"retry-after": retry_after}, text="slow down")


@every_http_transport
def test_a_busy_server_gets_its_calls_later_and_runs_each_once(shared_http_server, kind):
    server = shared_http_server(kind.transport, *kind.options)
    before = len(server.calls("echo"))
    info = kind.reach(server.url, http_transport=gateway({1: busy(429, "1"), 2: busy(503, "0")}.get))
    with MCPConnection(info, invocation_timeout=LONG) as connection:
        connection.open()
        first = in_thread(connection.call_tool, "echo", {"text": "first"})
        wait_until(lambda: connection.status().retry_in, "a server that wants to be left alone")
        assert connection.status().in_flight == 1
        assert text(connection.call_tool("echo", {"text": "second"})) == "second"
        assert text(first.result(LIMIT)) == "first"
        assert connection.status().retry_in is None
        assert (connection.status().sessions, connection.status().failed_calls) == (1, 0)
    assert sorted(details["text"] for _, details in server.log.events("echo")[before:]) == ["first", "second"]


async def test_a_reconnecting_client_waits_for_a_busy_server():
    requests = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return busy(503, "60")

    info = StreamableHttpServerInfo("http://mcp.test/mcp", http_transport=lambda **_: httpx2.MockTransport(refuse))
    client = info.create_client()
    for _ in range(2):
        with pytest.raises(MCPConnectionError, match="the server wants no requests for"):
            await client.connect()
    assert len(requests) == 1


@every_http_transport
def test_a_call_waits_for_a_busy_server_no_longer_than_its_timeout(shared_http_server, kind):
    refusing = gateway(lambda _: busy(429, formatdate(time.time() + 600, usegmt=True)))
    info = kind.reach(shared_http_server(kind.transport, *kind.options).url, http_transport=refusing)
    with MCPConnection(info, invocation_timeout=LIMIT) as connection:
        with pytest.raises(MCPInvocationError, match=r"no requests for .*429.* did not run"):
            connection.call_tool("echo", {"text": "x"})
        assert connection.status().circuit == "closed"
        with pytest.raises(MCPInvocationError, match=r"no requests for .* did not run"):
            connection.call_tool("echo", {"text": "x"})
        status = connection.status()
        assert status.retry_in is not None and not status.is_healthy
        assert status.sessions == 1
    assert refusing.calls == 1


@every_http_transport
def test_a_read_waits_for_a_busy_server_no_longer_than_its_timeout(shared_http_server, kind):
    refusing = gateway(lambda _: busy(429, "600"))
    info = kind.reach(shared_http_server(kind.transport, *kind.options).url, http_transport=refusing)
    with MCPConnection(info, invocation_timeout=LIMIT, connection_timeout=1) as connection:
        connection.open()
        for _ in range(2):
            with pytest.raises(MCPConnectionError, match="wants no requests for") as raised:
                connection.request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, may_repeat=True)
            assert not isinstance(raised.value, TimeoutError)
        with pytest.raises(MCPConnectionError, match="timed out after 1 seconds: the server wants no requests for"):
            connection.list_tools()
    assert refusing.calls == 1


@pytest.mark.parametrize("reach", [StreamableHttpServerInfo, SSEServerInfo])
def test_a_server_that_refuses_sessions_for_a_long_time_is_asked_only_once(reach):
    asked = []

    def refuse(request):
        asked.append(request)
        return busy(429, "600")

    info = reach("http://127.0.0.1:9/mcp", http_transport=lambda **_: httpx2.MockTransport(refuse), base_delay=0.05)
    connection = MCPConnection(info)
    for message in ("429 Too Many Requests", r"wants no requests for (5|6)\d\d s"):
        with pytest.raises(MCPConnectionError, match=message):
            connection.open()
    for _ in range(6):
        with pytest.raises(MCPInvocationError, match=r"wants no requests for (5|6)\d\d s.* did not run"):
            connection.call_tool("echo", {"text": "x"})
    status = connection.status()
    connection.close()
    assert len(asked) == 1
    assert (status.circuit, status.state, status.is_healthy) == ("closed", "idle", False)
    assert 500 < (status.retry_in or 0) <= 600


@kinds("2026", "sessions", "sse")
def test_http_errors_are_reported_with_their_status_and_only_failing_or_busy_servers_are_left_alone(
    shared_http_server, kind
):
    url = shared_http_server(kind.transport, *kind.options).url
    for status, reason, circuit in (
        (401, "401 Unauthorized", "closed"),
        (429, "429 Too Many Requests", "open"),
        (500, "500 Internal Server Error", "open"),
    ):
        refusing = gateway(lambda call, status=status: httpx2.Response(status, html="<html>" * (call % 2)))
        may_have_run = status >= 500 or (kind.transport == "sse" and status == 429)
        info = kind.reach(url, failure_pause=LIMIT, http_transport=refusing)
        with MCPConnection(info, invocation_timeout=LONG) as connection:
            for call in range(1, 6):
                with pytest.raises(MCPInvocationError, match=f"HTTP {reason}") as failure:
                    connection.call_tool("echo", {"text": "x"})
                assert isinstance(failure.value, MCPOutcomeUnknownError) is may_have_run
                assert ("may have run" if may_have_run else "The tool did not run") in str(failure.value)
                assert refusing.calls == call
            assert connection.status().circuit == circuit


def test_a_call_whose_repetition_is_refused_may_have_run(shared_http_server):
    breaking = gateway(lambda call: httpx2.ReadError("the connection was cut") if call == 1 else httpx2.Response(403))
    info = StreamableHttpServerInfo(shared_http_server().url, http_transport=breaking, base_delay=0.05)
    with MCPConnection(info) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match=r"HTTP 403 .*The tool may have run") as failure:
            connection.call_tool("echo", {"text": "x"}, may_repeat=True)
    assert "did not run" not in str(failure.value)


@rows(
    ("value", "seconds"),
    ("7", 7.0),
    ("0.5", 0.5),
    ("9" * 400, 86_400.0),
    ("-5", None),
    ("soon", None),
    ("inf", None),
    ("Fri, 27 Nov 2015 12:00:30 GMT", 0.0),
)
def test_retry_after_is_parsed_or_ignored(value, seconds):
    headers = {"retry-after": value}
    assert retry_after(httpx2.Response(429, headers=headers)) == seconds
    assert retry_after(httpx2.Response(500, headers=headers)) is None


@kinds("stdio", "2026", "sessions", "sse")
def test_a_server_that_fails_nine_of_ten_calls_is_left_alone_and_tried_later(
    shared_http_server, stdio_server, kind, caplog
):
    failing = gateway(lambda call: httpx2.Response(500) if call % 10 else None)
    if kind.is_http:
        info = kind.reach(shared_http_server(kind.transport, *kind.options).url, http_transport=failing)
        tool, arguments = "echo", {"text": "x"}
    else:
        server = stdio_server()
        info, tool, arguments = server.info(), "die", {}
    info.failure_pause = 20.0

    with MCPConnection(info, invocation_timeout=LONG) as connection:
        for _ in range(5):
            with pytest.raises(MCPOutcomeUnknownError):
                connection.call_tool(tool, arguments)
        status = connection.status()
        assert status.circuit == "open"
        assert 0 < (status.retry_in or 0) <= 20
        with pytest.raises(MCPInvocationError, match=r"is left alone .* did not run") as refused:
            connection.call_tool(tool, arguments)
        assert not isinstance(refused.value, MCPOutcomeUnknownError)
        assert (failing.calls if kind.is_http else len(server.calls())) == 5
        gate = connection._server_sessions.default.gate
        gate._open_until = 0.0  # the end of the pause
        with pytest.raises(MCPOutcomeUnknownError):
            connection.call_tool(tool, arguments)
        assert 20 < (connection.status().retry_in or 0) <= 40
        if kind.is_http:  # the tenth call is answered
            while failing.calls < 10:
                gate._open_until = 0.0
                in_thread(connection.call_tool, tool, arguments).exception(LIMIT)
            assert connection.status().circuit == "closed"
    assert "is left alone for 20.0 s, since 5 of the last 5 calls failed" in caplog.text


@every_way
def test_calls_over_max_in_flight_wait(peer, kind):
    server = peer(kind)
    with MCPConnection(server.reach(max_in_flight=2), invocation_timeout=LONG) as connection:
        calls = [in_thread(connection.call_tool, "sleep", {"seconds": 0.3}) for _ in range(6)]
        wait_until(lambda: connection.status().waiting, "calls that wait")
        assert connection.status().in_flight <= 2
        assert [call.exception(LIMIT) for call in calls] == [None] * 6
        assert connection.status().waiting == 0
    running = most = 0
    for event in server.calls():
        running += {"sleep": 1, "sleep-finished": -1}[event]
        most = max(most, running)
    assert most == 2


def test_a_call_that_waits_too_long_for_a_place_did_not_run(peer):
    server = peer(KINDS["stdio"])
    with MCPConnection(server.reach(max_in_flight=1), invocation_timeout=LONG) as connection:
        running = in_thread(connection.call_tool, "sleep", {"seconds": 3})
        server.wait_for("sleep")
        with pytest.raises(MCPTimeoutError, match=r"no place became free among the 1 calls .* did not run") as failure:
            connection.call_tool("add", {"a": 1, "b": 2}, invocation_timeout=0.2)
        assert not isinstance(failure.value, MCPOutcomeUnknownError)
        assert running.exception(LIMIT) is None
        assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
    assert server.calls() == ["sleep", "sleep-finished", "add"]


async def test_a_call_is_not_sent_if_it_gets_its_place_when_its_time_is_nearly_over(peer):
    server = peer(KINDS["stdio"])
    async with MCPConnection(server.reach(max_in_flight=1), invocation_timeout=LONG) as connection:
        running = asyncio.create_task(connection.call_tool_async("sleep", {"seconds": LONG}))
        await wait_until_async(server.calls, "the call runs")
        waiting = asyncio.create_task(connection.call_tool_async("add", {"a": 1, "b": 2}, invocation_timeout=2.0))
        await wait_until_async(lambda: connection.status().waiting, "a call that waits")
        await asyncio.sleep(1.8)
        running.cancel()
        with pytest.raises(MCPTimeoutError, match="did not run"):
            await waiting
    assert "add" not in server.calls()


@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_session_that_stays_unknown_is_reopened_max_retries_times(shared_http_server, max_retries):
    forgetful, kind = gateway(lambda _: httpx2.Response(404)), KINDS["sessions"]
    url = shared_http_server(kind.transport, *kind.options).url
    with MCPConnection(kind.reach(url, max_retries=max_retries, http_transport=forgetful)) as connection:
        with pytest.raises(MCPInvocationError, match=r"does not know the session.* did not run"):
            connection.call_tool("echo", {"text": "x"})
    assert forgetful.calls == 1 + max_retries


@rows(
    ("pause", "outcomes", "state"),
    (20.0, "FFFFF", "open"),
    (20.0, "FFFF......." * 20, "closed"),
    (20.0, "FFFF.F", "open"),
    (None, "F" * 50, "closed"),
    (20.0, "f" * 50, "closed"),  # concurrent failures count as one
)
async def test_a_server_that_failed_five_of_the_last_ten_calls_is_left_alone(pause, outcomes, state):
    gate, began = Gate("the server", max_in_flight=None, pause=pause), monotonic()
    for outcome in outcomes:
        if outcome == ".":
            gate.answered()
        else:
            gate.failed("it is broken", monotonic() if outcome == "F" else began)
    assert gate.state == state


async def test_places_are_passed_on_in_order_and_not_lost_to_cancelled_calls():
    gate = Gate("the server", max_in_flight=1, pause=None)
    first = await gate.enter(None)
    order: list[int] = []

    async def call(number: int) -> None:
        place = await gate.enter(None)
        order.append(number)
        gate.leave(place)

    # Each has a separate context, like calls.
    nobody = contextvars.Context()
    waiting = [asyncio.create_task(call(number), context=nobody.copy()) for number in range(3)]
    await asyncio.sleep(0)
    assert gate.waiting == 3
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.leave(first)
    waiting[1].cancel()  # at the moment at which it gets the place
    await asyncio.wait(waiting)
    assert (order, gate.waiting) == ([2], 0)


@pytest.mark.parametrize("way", [*BOTH_ERAS, "stdio"])
def test_a_handler_may_call_the_server_although_max_in_flight_is_reached(
    server_info: MCPServerInfo,  # noqa: F811
):
    def answer(_params: Any) -> dict[str, Any]:
        return {"colour": "red", "count": int(text(connection.call_tool("add", {"a": 1, "b": 2})))}

    async def answer_async(_params: Any) -> dict[str, Any]:
        inner = await connection.call_tool_async("add", {"a": 1, "b": 2})
        return {"colour": "red", "count": int(text(inner))}

    info = copy(server_info)
    info.max_in_flight = 1
    for handler in (answer, answer_async):
        handlers = MCPHandlers(elicitation=handler)
        with MCPConnection(info, handlers=handlers, invocation_timeout=LONG) as connection:
            for _ in range(2):  # the place was taken once and released once
                assert text(connection.call_tool("ask_order")) == "3 red"
            assert connection._server_sessions.default.gate._places._value == 1
