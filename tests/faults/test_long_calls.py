# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Long calls, over every transport and in both eras: reports of their progress, and their time limits.
"""

import asyncio
import threading

import pytest

from haystack_integrations.tools.mcp import (
    CallOptions,
    MCPCallTimeoutError,
    MCPConnection,
    MCPHandlers,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.executor import THREAD_NAME
from haystack_integrations.tools.mcp.handlers import MCPProgress
from tests.support.background import in_thread, text
from tests.support.kinds import LONG, kinds
from tests.support.waiting import LIMIT

STEPS = [(float(step), 20.0, f"step {step}") for step in range(1, 21)]


# The kinds that can report progress; a server that answers with JSON cannot.
@kinds("stdio of the SDK", "2026", "sessions", "stateless", "sse")
def test_every_report_arrives_in_order_before_a_call_returns(peer, kind):
    server = peer(kind)
    of_handler, direct = [], []
    awaited: list[asyncio.AbstractEventLoop] = []

    def collect(report):
        of_handler.append(((report.progress, report.total, report.message), threading.current_thread().name))

    async def asynchronous(_report):
        awaited.append(asyncio.get_running_loop())
        await asyncio.sleep(0)

    with MCPConnection(server.reach(), handlers=MCPHandlers(progress=collect), invocation_timeout=LONG) as connection:
        result = connection.call_tool(
            "progress", {"steps": 20}, on_progress=lambda report: direct.append((report, threading.current_thread()))
        )
        assert text(result) == "done"
        assert [step for step, _ in of_handler] == STEPS
        assert not {thread for _, thread in of_handler} & {THREAD_NAME, threading.current_thread().name}
        names = {"server": server.reach().describe(), "tool_name": "progress"}
        reports = [MCPProgress(progress=at, total=total, message=said, **names) for at, total, said in STEPS]
        assert direct == [(report, threading.current_thread()) for report in reports]

        async def call():
            assert text(await connection.call_tool_async("progress", {"steps": 20}, on_progress=asynchronous)) == "done"
            assert awaited == [asyncio.get_running_loop()] * 20

        asyncio.run(call())
    with MCPConnection(server.reach()) as connection:  # without a progress handler
        connection.call_tool("echo", {"text": "x"})
    asked = ["progress_token" in details for _, details in server.log.events("@tools/call")]
    assert asked == [True, True, False]


@kinds("stdio of the SDK", "2026", "sessions")
def test_progress_extends_the_deadline_up_to_the_total_if_that_is_enabled(peer, kind):
    server = peer(kind)
    # All run at once, because each report may be late by almost the timeout of a call.
    info = server.reach()
    steadily = CallOptions(reset_timeout_on_progress=True)
    bounds = CallOptions(reset_timeout_on_progress=True, max_total_timeout=3.2)
    with (
        MCPConnection(info, invocation_timeout=3, call_options=steadily) as connection,
        MCPConnection(info, invocation_timeout=3, call_options=bounds) as bounded,
        MCPConnection(info, invocation_timeout=1) as strict,
    ):
        steady = in_thread(connection.call_tool, "progress", {"steps": 14, "pause": 0.25})
        halting = in_thread(connection.call_tool, "progress", {"steps": 2, "pause": LONG})
        endless = in_thread(strict.call_tool, "progress", {"steps": 1000, "pause": 0.1}, on_progress=print)
        with pytest.raises(MCPCallTimeoutError, match=r"3\.2 seconds.*`max_total_timeout`"):
            bounded.call_tool("progress", {"steps": 1000, "pause": 0.1})
        with pytest.raises(MCPCallTimeoutError, match=r"3 seconds.*`invocation_timeout`"):
            halting.result(timeout=LIMIT)
        with pytest.raises(MCPCallTimeoutError, match=r" 1 seconds\..*raise `invocation_timeout`, or set `reset"):
            endless.result(timeout=LIMIT)
        assert text(steady.result(timeout=LIMIT)) == "done"


@kinds("stdio", "2026", "sessions", "sse")
def test_a_connection_that_is_silent_during_a_call_is_closed_and_the_next_call_opens_another(
    proxied_peer, kind, caplog
):
    server = proxied_peer(kind)
    # Over SSE, a call is not sent if the message before it is not acknowledged; it waits for another session.
    limits = {"connection_timeout": 2} if kind.transport == "sse" else {}
    options = CallOptions(read_timeout=1)
    with (
        MCPConnection(server.reach(), invocation_timeout=LONG, call_options=CallOptions(read_timeout=None)) as patient,
        MCPConnection(server.reach(), invocation_timeout=None, call_options=options, **limits) as connection,
    ):
        patient.call_tool("add", {"a": 1, "b": 1})
        server.freeze()
        with pytest.raises(MCPInvocationError) as failure:
            connection.call_tool("add", {"a": 1, "b": 2})
        assert "sent nothing for 1 seconds" in caplog.text
        if kind.transport != "sse":
            assert isinstance(failure.value, MCPOutcomeUnknownError)
            assert "sent nothing for 1 seconds" in str(failure.value) and "raise `read_timeout`" in str(failure.value)
        server.thaw()
        assert text(patient.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert connection.status().sessions == 2


@kinds("stdio", "sessions", "sse")
def test_an_answered_ping_keeps_the_connection_to_a_silent_server(peer, kind):
    server = peer(kind)
    options = CallOptions(read_timeout=2.5, ping_interval=0.3)
    with MCPConnection(server.reach(), invocation_timeout=LONG, call_options=options) as connection:
        assert text(connection.call_tool("sleep", {"seconds": 3})) == "slept 3.0 s"
        assert len(server.log.events("@ping")) > 1
        assert connection.status().sessions == 1


@kinds("stdio of the SDK", "2026")
def test_a_revision_without_pings_is_reported_once(peer, kind, caplog):
    info = peer(kind).reach(negotiation="discover")
    with MCPConnection(info, call_options=CallOptions(ping_interval=0.2)) as connection:
        for _ in range(2):
            assert text(connection.call_tool("sleep", {"seconds": 1})) == "slept 1.0 s"
        assert connection.status().protocol_version == "2026-07-28"
    assert caplog.text.count("`ping_interval` has no effect") == 1


@kinds("stdio", "2026")
def test_a_call_that_reaches_its_own_limit_raises_a_timeout_whatever_the_other_limits(peer, kind):
    info = peer(kind).reach()
    for timeout, options in ((1, CallOptions(read_timeout=1)), (None, CallOptions(max_total_timeout=1))):
        with MCPConnection(info, invocation_timeout=timeout, call_options=options) as connection:
            for _ in range(2):
                with pytest.raises(MCPCallTimeoutError, match="timed out after 1 seconds"):
                    connection.call_tool("sleep", {"seconds": 20})


@kinds("stdio", "2026")
def test_the_call_with_the_longest_limit_decides_when_a_session_is_closed(peer, kind):
    server = peer(kind)
    with (
        MCPConnection(server.reach(), call_options=CallOptions(read_timeout=None), invocation_timeout=LONG) as patient,
        MCPConnection(server.reach(), call_options=CallOptions(read_timeout=0.4), invocation_timeout=LONG) as impatient,
    ):
        other = in_thread(patient.call_tool, "sleep", {"seconds": LONG})
        server.wait_for("sleep")
        assert text(impatient.call_tool("sleep", {"seconds": 0.8})) == "slept 0.8 s"
        assert not other.done()
        assert patient.status().sessions == 1
        patient.close()


@kinds("stdio", "2026")
def test_silence_adds_up_over_calls_that_time_out(proxied_peer, kind):
    server = proxied_peer(kind)
    info, options = server.reach(failure_pause=None), CallOptions(read_timeout=1)
    with MCPConnection(info, invocation_timeout=0.4, call_options=options) as connection:
        connection.call_tool("add", {"a": 1, "b": 1}, invocation_timeout=LONG)
        server.freeze()
        errors = []
        # The third call reaches the limit. On a stalled machine, its deadline may come first, and a fourth is needed.
        while connection.status().state == "ready" and len(errors) < 20:
            with pytest.raises(MCPOutcomeUnknownError) as failure:
                connection.call_tool("add", {"a": 1, "b": 2})
            errors.append(str(failure.value))
        assert "timed out after 0.4 seconds" in errors[0]
        assert len(errors) < 20
        server.thaw()
        assert text(connection.call_tool("add", {"a": 2, "b": 2}, invocation_timeout=LONG)) == "4"
        assert connection.status().sessions == 2
