# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that a server runs as tasks: they outlive timeouts, connections and processes, and nothing runs twice.
"""

import asyncio
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    CallOptions,
    InProcessServerInfo,
    MCPCallTimeoutError,
    MCPConnection,
    MCPConnectionError,
    MCPHandlers,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPToolset,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPCallPendingError
from haystack_integrations.tools.mcp.handlers import MCPProgress, answer_later
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from tests.support.background import in_thread, text
from tests.support.foreign_server import ForeignServer, definition
from tests.support.killed import in_a_process_that_is_killed
from tests.support.processes import PATIENT_SERVER
from tests.support.waiting import LIMIT, wait_until_async

# Of calls and of the requests about a task; each task below takes longer.
SHORT = 1.5


def test_a_task_that_outlives_the_process_of_its_caller_is_finished_in_another(patient, tmp_path):
    printed = in_a_process_that_is_killed(
        tmp_path,
        patient.info,
        """
        with MCPConnection(info) as connection:
            print(json.dumps(connection.begin_call("bake", {"seconds": 2}).to_dict()), flush=True)
            time.sleep(600)
        """,
    )
    call = MCPPendingCall.from_dict(printed)
    reports: list[MCPProgress] = []
    assert call.questions == []
    assert call.expires_at is not None
    with MCPConnection(patient.info, invocation_timeout=SHORT) as connection:
        assert text(connection.continue_call(call, on_progress=reports.append)) == "a plain cake"
        assert text(connection.continue_call(call)) == "a plain cake"  # it is only looked up
    assert str(reports[0].message).startswith("in the oven for")
    assert patient.log.events("bake") == [("bake", {"seconds": 2})]


def test_a_task_takes_longer_than_calls_may_and_tells_of_its_progress(patient):
    handler: list[MCPProgress] = []
    direct: list[MCPProgress] = []
    handlers = MCPHandlers(progress=handler.append)
    with MCPConnection(patient.info, invocation_timeout=SHORT, handlers=handlers) as connection:
        assert text(connection.call_tool("bake", {"seconds": 2}, on_progress=direct.append)) == "a plain cake"
        status = connection.status()
    assert (status.calls, status.failed_calls, status.in_flight) == (1, 0, 0)
    assert str(direct[0].message).startswith("in the oven for")
    assert handler == direct == sorted(direct, key=lambda report: report.progress)
    assert len(patient.log.events("bake")) == 1


async def test_who_gives_up_a_call_cancels_its_task(patient_stdio_server):
    server = patient_stdio_server()
    async with MCPConnection(server.info()) as connection:
        calling = asyncio.ensure_future(connection.call_tool_async("bake", {"seconds": 60}))
        await server.wait_for_async("@tasks/get", 2)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await server.wait_for_async("bake-cancelled")
        await wait_until_async(lambda: not connection.status().in_flight, "the answer")


def test_the_end_of_patience_does_not_end_a_task_which_can_be_taken_up_or_cancelled(patient):
    with MCPConnection(patient.info, call_options=CallOptions(task_timeout=0.3)) as connection:
        # It is asked for at the end of patience, too.
        assert text(connection.call_tool("bake", {"seconds": 0, "interval": 30_000})) == "a plain cake"
        with pytest.raises(MCPCallTimeoutError, match="The task goes on at the server") as raised:
            connection.call_tool("bake", {"seconds": 60})
        call = pickle.loads(pickle.dumps(raised.value)).pending_call  # noqa: S301
        assert patient.log.events("bake-cancelled") == []
        assert connection.cancel_call(call)
        assert len(patient.log.events("bake-cancelled")) == 1
        with pytest.raises(MCPInvocationError, match="says that its task was cancelled"):
            connection.continue_call(call)
        assert not connection.cancel_call(MCPPendingCall(tool_name="order"))


def test_a_task_goes_on_while_its_server_is_restarted_or_cannot_be_reached(http_server, cutting_proxy):
    server = http_server(script=PATIENT_SERVER)
    proxy = cutting_proxy(server.url)
    info = StreamableHttpServerInfo(proxy.url, base_delay=0.05, max_delay=0.2)
    with MCPConnection(info, invocation_timeout=SHORT) as connection:
        calling = in_thread(connection.call_tool, "bake", {"seconds": 2.5})
        server.wait_for("@tasks/get", 2)
        proxy.refuse()
        proxy.cut()
        server.kill()
        server.start()
        proxy.accept()
        assert text(calling.result(LIMIT)) == "a plain cake"
    assert len(server.log.events("bake")) == 1


def test_a_task_goes_on_in_the_next_process_of_a_server_over_stdio(patient_stdio_server):
    server = patient_stdio_server()
    with MCPConnection(server.info(), invocation_timeout=SHORT) as connection:
        calling = in_thread(connection.call_tool, "bake", {"seconds": 2.5})
        server.wait_for("@tasks/get", 2)
        server.kill()
        assert text(calling.result(LIMIT)) == "a plain cake"
    assert len(server.pids()) == 2
    assert len(server.log.events("bake")) == 1


def test_who_waits_for_a_task_is_told_at_once_that_the_connection_was_closed(patient_stdio_server):
    server = patient_stdio_server()
    connection = MCPConnection(server.info(), connection_timeout=LIMIT)
    calling = in_thread(connection.call_tool, "bake", {"seconds": 60})
    server.wait_for("@tasks/get", 2)
    connection.close()
    with pytest.raises(MCPOutcomeUnknownError, match=r"connection was closed\. The task goes on") as raised:
        calling.result(LIMIT)
    assert raised.value.pending_call is not None


def test_a_task_takes_no_place_of_a_call(patient_stdio_server):
    server = patient_stdio_server()
    with MCPConnection(server.info(max_in_flight=1), invocation_timeout=LIMIT) as connection:
        tasks = [in_thread(connection.call_tool, "bake", {"seconds": 2}) for _ in range(2)]
        server.wait_for("bake", 2)  # the second began before the first has ended
        assert not tasks[0].done() and not tasks[1].done()
        assert [text(task.result(LIMIT)) for task in tasks] == ["a plain cake"] * 2


def test_a_server_that_stays_away_does_not_hold_up_a_call_for_ever(http_server):
    server = http_server(script=PATIENT_SERVER)
    info = StreamableHttpServerInfo(server.url, base_delay=0.05, max_delay=0.2, max_retries=1)
    with MCPConnection(info), MCPConnection(info, invocation_timeout=SHORT, connection_timeout=1.0) as connection:
        calling = in_thread(connection.call_tool, "bake", {"seconds": 60})
        server.wait_for("@tasks/get")
        server.kill()
        with pytest.raises(MCPOutcomeUnknownError, match="takes it up again") as raised:
            calling.result(LIMIT)
    assert raised.value.pending_call is not None


def test_a_task_that_wants_input_gets_it_from_a_handler_or_is_left_open_and_says_why(patient_stdio_server):
    def fail(_params: Any) -> None:
        raise RuntimeError("there is no terminal")

    server = patient_stdio_server()
    kept: list[MCPPendingCall] = []
    with MCPToolset(server.info(), handlers=MCPHandlers(elicitation=lambda _: {"size": "huge"})) as toolset:
        assert toolset["bake_asking"].call(seconds=0.1).text == "a huge cake"
    for handler, reason in (
        (answer_later, ""),
        (fail, "The client's elicitation handler failed.*left open; do not repeat"),
        (None, "set `elicitation` of MCPHandlers.*left open; do not repeat"),
    ):
        handlers = MCPHandlers(elicitation=handler, pending_calls=kept.append)
        with MCPToolset(server.info(), handlers=handlers) as toolset:
            with pytest.raises(MCPCallPendingError, match=f"Which size.*{reason}") as raised:
                toolset["bake_asking"].invoke(seconds=0.1)
            # Once as a task, and once with a question.
            assert [len(call.questions) for call in kept[-2:]] == [0, 1]
            assert raised.value.pending_call == kept[-1]
            call = MCPPendingCall.from_dict(json.loads(json.dumps(kept[-1].to_dict())))
            assert toolset["bake_asking"].continue_call(call, {"size": {"size": "small"}}).text == "a small cake"
            assert toolset.connection.status().circuit == "closed"
    assert len(server.log.events("bake_asking")) == 4


async def test_what_becomes_of_tasks_that_fail(patient_stdio_server):
    info = patient_stdio_server().info(env={"OVEN_KEY": Secret.from_token("k3y-of-the-oven")})
    async with MCPConnection(info) as connection:
        with pytest.raises(MCPInvocationError, match=r"`burn`: it burnt \*\*\*") as burnt:
            await connection.call_tool_async("burn", {"seconds": 0.1})
        assert burnt.value.code == -32603
        unknown = MCPPendingCall(tool_name="bake", task_id="nobody's")
        with pytest.raises(MCPInvocationError, match="There is no such task"):
            await connection.continue_call_async(unknown)
        with pytest.raises(MCPConnectionError, match="There is no such task"):
            await connection.cancel_call_async(unknown)
        assert connection.status().circuit == "closed"


async def test_tasks_of_fastmcp():
    server = FastMCP("kitchen")
    server.add_extension(TasksExtension(url="memory://"))
    runs: list[str] = []

    @server.tool(task=True)
    async def roast(what: str) -> str:
        runs.append(what)
        await asyncio.sleep(1.5 * SHORT)
        return f"roast {what}"

    async with MCPConnection(InProcessServerInfo(server), invocation_timeout=SHORT) as connection:
        call = await connection.begin_call_async("roast", {"what": "goose"})
        assert isinstance(call, MCPPendingCall)
        assert text(await connection.continue_call_async(call)) == "roast goose"
    assert runs == ["goose"]


def test_a_tool_that_only_runs_as_a_task_of_an_earlier_revision_is_explained_and_not_called():
    server = ForeignServer(definition("long", execution={"taskSupport": "required"}))
    with MCPConnection(replace(server.info, negotiation="handshake")) as connection:
        with pytest.raises(MCPInvocationError, match=r"as a task of revision 2025-11-25 .* did not run"):
            connection.call_tool("long")
    assert server.calls == []
