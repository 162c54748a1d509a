# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that need input are left open, kept as JSON, and continued elsewhere. Calls that a server runs as tasks outlive
timeouts, connections and processes. Nothing runs twice.
"""

import asyncio
import dataclasses
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastmcp import FastMCP
from haystack.utils import Secret
from mcp import types

from haystack_integrations.tools.mcp import (
    CallOptions,
    InProcessServerInfo,
    MCPCallTimeoutError,
    MCPConnection,
    MCPConnectionError,
    MCPHandlers,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTool,
    MCPToolCall,
    MCPToolset,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.errors import MCPCallPendingError
from haystack_integrations.tools.mcp.handlers import MCPProgress, answer_later
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from tests.servers.patient_server import VERSION, PatientServer
from tests.support.background import in_thread, text
from tests.support.foreign_server import ForeignServer, definition
from tests.support.handshake_server import HandshakeServer, error_of
from tests.support.killed import run_in_killed_process
from tests.support.processes import PATIENT_SERVER
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until_async

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
LATER = MCPHandlers(elicitation=answer_later)


def stored(call: MCPPendingCall | types.CallToolResult) -> MCPPendingCall:
    """
    Return the call after storing and loading it.
    """
    assert isinstance(call, MCPPendingCall)
    return MCPPendingCall.from_dict(json.loads(json.dumps(call.to_dict())))


def test_a_call_that_needs_input_is_finished_in_another_process_after_the_first_was_killed(patient, tmp_path):
    printed = run_in_killed_process(
        tmp_path,
        patient.info,
        """
        connection = MCPConnection(info, handlers=MCPHandlers(elicitation=answer_later))
        print(json.dumps(connection.begin_call("order_twice", {"drink": "tea"}).to_dict()), flush=True)
        """,
    )
    call = MCPPendingCall.from_dict(printed)
    assert [(question.key, question.message) for question in call.questions] == [("size", "Which size?")]
    assert call.questions[0].schema is not None
    with MCPConnection(patient.info, handlers=LATER) as connection:
        with pytest.raises(MCPCallPendingError, match="With milk") as raised:
            connection.continue_call(call, {"size": {"size": "big"}})
        call = stored(raised.value.pending_call)
    with MCPConnection(patient.info, handlers=LATER) as connection:
        assert text(connection.continue_call(call, {"milk": True})) == "a big tea"
        status = connection.status()
    assert (status.calls, status.failed_calls, status.last_error) == (1, 0, None)
    assert len(patient.log.events("order_twice-asked")) == 1
    assert patient.log.events("order_twice") == [("order_twice", {"drink": "tea", "size": "big"})]


def test_withheld_arguments_and_secrets_stay_withheld_when_a_call_is_continued(patient_stdio_server):
    server = patient_stdio_server()
    withheld = {"drink": {"kind": "tea", "name": "s3ntinel-4711"}}
    with MCPConnection(server.info(), handlers=LATER) as connection:
        call = stored(connection.begin_call("order_twice", {**withheld, "note": "tea"}, secrets=["s3ntinel-4711"]))
        assert (call.withheld, call.arguments) == (("drink",), {"note": "tea"})
        with pytest.raises(MCPCallPendingError) as raised:
            connection.continue_call(call, {"size": {"size": "big"}}, withheld=withheld)
        call = stored(raised.value.pending_call)
        assert (call.withheld, call.arguments) == (("drink",), {"note": "tea"})
        other = dataclasses.replace(call, request_state="s3ntinel-4711")
        with pytest.raises(MCPInvocationError) as refused:
            connection.continue_call(other, {"milk": True}, withheld=withheld)
        assert "s3ntinel" not in str(refused.value)
        connection.continue_call(call, {"milk": True}, withheld=withheld)
    assert len(server.log.events("order_twice")) == 1


def test_unanswered_questions_are_passed_to_the_handler(patient_stdio_server):
    info = patient_stdio_server().info()
    with MCPConnection(info, handlers=LATER) as connection:
        call = stored(connection.begin_call("order_twice", {"drink": "tea"}))
    with MCPConnection(info, handlers=MCPHandlers(elicitation=lambda _: {"milk": True})) as connection:
        assert text(connection.continue_call(call, {"size": {"size": "big"}})) == "a big tea with milk"


@rows(
    ("answers", "message"),
    (None, r"has no \['size'\]"),
    ({"colour": True, "size": True}, r"unknown keys \['colour'\]"),
    ({"size": {"size": 5}}, "does not fit the form: size"),
    ({"size": "secret-answer"}, r"must return a dictionary((?!secret-answer).)*$"),
)
def test_answers_that_do_not_fit_are_refused_before_anything_is_sent(patient_stdio_server, answers, message):
    server = patient_stdio_server()
    with MCPConnection(server.info(), handlers=LATER) as connection:
        call = stored(connection.begin_call("order", {"drink": "tea"}))
        with pytest.raises(ValueError, match=message):
            connection.continue_call(call, answers)
    assert len(server.requests("tools/call")) == 1


def test_a_tool_leaves_a_call_open_and_a_toolset_elsewhere_continues_it(patient_stdio_server):
    info = patient_stdio_server().info()
    kept: list[MCPPendingCall] = []
    handlers = MCPHandlers(elicitation=answer_later, pending_calls=kept.append)
    bound = {"drink": Secret.from_token("Earl-Grey-4711")}
    with MCPTool("order", info, handlers=handlers, bound_arguments=bound, exposed_name="get_drink") as tool:
        with pytest.raises(MCPCallPendingError, match="`get_drink`: the server wants input") as raised:
            tool.invoke()
        error = pickle.loads(pickle.dumps(raised.value))  # noqa: S301
        assert error.pending_call == kept[0]
        call = stored(kept[0])
        assert (call.withheld, call.arguments) == (("drink",), {})
        with pytest.raises(ValueError, match="`withheld` must have the arguments"):
            tool.connection.continue_call(call, {"size": True})
        assert tool.continue_call(call, {"size": {"size": "big"}}).text == "a big Earl-Grey-4711"
        unbound = dataclasses.replace(call, withheld=("drink", "note"))
        with pytest.raises(ValueError, match=r"without its arguments \['note'\].*connection\.continue_call"):
            tool.continue_call(unbound, {"size": True})
    assert "Grey-4711" not in f"{error} {error!r} {call!r} {call.to_dict()}"
    with MCPToolset(info, handlers=LATER, tool_overrides={"order": {"bound_arguments": bound}}) as toolset:
        assert toolset["order"].continue_call(call, {"size": {"size": "small"}}).text == "a small Earl-Grey-4711"
        with pytest.raises(ValueError, match="of the tool 'bare', got a call of 'order'"):
            toolset["bare"].continue_call(call, {})


def test_interceptors_see_both_parts_of_a_call_and_their_additions_are_not_stored(patient_stdio_server):
    def sweeten(call: MCPToolCall, call_next: Callable[[MCPToolCall], Any]) -> Any:
        seen.append(dict(call.arguments))
        return call_next(call.override(arguments={"drink": f"sweet {call.arguments['drink']}"}))

    seen: list[Any] = []
    with MCPConnection(patient_stdio_server().info(), handlers=LATER, interceptors=[sweeten]) as connection:
        call = stored(connection.begin_call("order", {"drink": "tea"}))
        assert text(connection.continue_call(call, {"size": {"size": "big"}})) == "a big sweet tea"
    assert seen == [call.arguments] * 2 == [{"drink": "tea"}] * 2


def test_an_interceptor_does_not_begin_a_call_again_that_became_a_task(patient_stdio_server):
    def repeating(call: MCPToolCall, call_next: Callable[[MCPToolCall], Any]) -> Any:
        try:
            return call_next(call)
        except MCPInvocationError:
            return call_next(call)

    server = patient_stdio_server()
    with MCPConnection(server.info(), interceptors=[repeating]) as connection:
        with pytest.raises(MCPOutcomeUnknownError, match="would have sent the call again"):
            connection.begin_call("bake", {"seconds": 0.01})
    assert server.requests("tools/call") == ["tools/call"]


def test_a_call_is_continued_only_at_its_own_server_and_never_started_again(patient_stdio_server):
    server = patient_stdio_server()
    with MCPConnection(server.info(), handlers=LATER) as connection:
        call = stored(connection.begin_call("order", {"drink": "tea"}))
        other = dataclasses.replace(call, server="another server")
        with pytest.raises(ValueError, match="is one of another server, and this is a connection to"):
            connection.continue_call(other, {"size": True})
        with pytest.raises(ValueError, match="is one of another server"):
            connection.cancel_call(other)
        with pytest.raises(ValueError, match=r"as of MCPPendingCall.from_dict\(stored\), got dict"):
            connection.continue_call(call.to_dict(), {"size": True})
        with pytest.raises(ValueError, match="has nothing to go on with"):
            connection.continue_call(MCPPendingCall(tool_name="order", arguments={"drink": "tea"}))
        moved = dataclasses.replace(call, server="")
        assert text(connection.continue_call(moved, {"size": {"size": "big"}})) == "a big tea"
    assert len(server.log.events("order-asked")) == 1


def test_a_function_that_stores_calls_may_fail_or_hang(patient_stdio_server, caplog, monkeypatch):
    def fail(_call: MCPPendingCall) -> None:
        raise RuntimeError("there is no room")

    async def hang(_call: MCPPendingCall) -> None:
        await asyncio.Event().wait()

    info = patient_stdio_server().info()
    monkeypatch.setattr("haystack_integrations.tools.mcp.connection.tool_call._STORE_TIMEOUT", 0.1)
    for keep, said in ((fail, "The handler `pending_calls` for stdio server"), (hang, "failed: TimeoutError")):
        with MCPConnection(info, handlers=MCPHandlers(elicitation=answer_later, pending_calls=keep)) as connection:
            stored(connection.begin_call("order", {"drink": "tea"}))
        assert said in caplog.text


async def test_an_async_function_that_stores_calls_runs_in_the_loop_of_the_caller(patient_stdio_server):
    kept: list[tuple[MCPPendingCall, Any]] = []

    async def keep(call: MCPPendingCall) -> None:
        kept.append((call, asyncio.get_running_loop()))

    handlers = MCPHandlers(elicitation=answer_later, pending_calls=keep)
    async with MCPConnection(patient_stdio_server().info(), handlers=handlers) as connection:
        call = await connection.begin_call_async("order", {"drink": "tea"})
        assert kept == [(call, asyncio.get_running_loop())]
        assert text(await connection.continue_call_async(stored(call), {"size": False})) == "no tea"


LEFT_OPEN = MCPPendingCall(tool_name="order", request_state="opaque").to_dict()


@rows(
    "data",
    {},
    {**LEFT_OPEN, "version": 2},
    {**LEFT_OPEN, "request_state": None},  # without a state, the tool would run once more
    {name: value for name, value in LEFT_OPEN.items() if name != "arguments"},
    {**LEFT_OPEN, "withheld": 3},
)
def test_invalid_data_of_a_pending_call_is_refused(data: Any) -> None:
    assert MCPPendingCall.from_dict(LEFT_OPEN).to_dict() == LEFT_OPEN
    with pytest.raises(ValueError, match=r"MCPPendingCall\.from_dict"):
        MCPPendingCall.from_dict(data)


# Timeout in seconds of calls and of the requests about a task; each task below takes longer.
SHORT = 1.5


def test_a_task_that_outlives_the_process_of_its_caller_is_finished_in_another_process(patient, tmp_path):
    printed = run_in_killed_process(
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
        assert text(connection.continue_call(call)) == "a plain cake"  # the result is only looked up
    assert str(reports[0].message).startswith("in the oven for")
    assert patient.log.events("bake") == [("bake", {"seconds": 2})]


def test_a_task_may_take_longer_than_a_call_and_reports_progress(patient):
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


async def test_giving_up_a_call_cancels_its_task(patient_stdio_server):
    server = patient_stdio_server()
    async with MCPConnection(server.info()) as connection:
        calling = asyncio.ensure_future(connection.call_tool_async("bake", {"seconds": 60}))
        await server.wait_for_async("@tasks/get", 2)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await server.wait_for_async("bake-cancelled")
        await wait_until_async(lambda: not connection.status().in_flight, "the answer")


def test_a_timeout_does_not_end_a_task_which_can_be_continued_or_cancelled(patient):
    with MCPConnection(patient.info, call_options=CallOptions(task_timeout=0.3)) as connection:
        # The task is also polled when the timeout ends.
        assert text(connection.call_tool("bake", {"seconds": 0, "interval": 30_000})) == "a plain cake"
        with pytest.raises(MCPCallTimeoutError, match="The task goes on at the server") as raised:
            connection.call_tool("bake", {"seconds": 60})
        call = pickle.loads(pickle.dumps(raised.value)).pending_call  # noqa: S301
        assert patient.log.events("bake-cancelled") == []
        assert connection.cancel_call(call)
        assert len(patient.log.events("bake-cancelled")) == 1
        with pytest.raises(MCPOutcomeUnknownError, match=r"its task was cancelled\. The tool may have run"):
            connection.continue_call(call)
        assert not connection.cancel_call(MCPPendingCall(tool_name="order"))


def test_a_task_survives_a_restart_or_an_outage_of_its_server(http_server, cutting_proxy):
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


def test_a_task_is_not_begun_again_when_an_older_version_of_its_server_takes_over(tmp_path):
    newer, older, methods = PatientServer(tmp_path / "calls"), HandshakeServer(lambda *_: None), []

    def respond(request: httpx2.Request) -> httpx2.Response:
        message = json.loads(request.content or "{}")
        methods.append(message.get("method"))
        if "tasks/get" not in methods:
            return httpx2.Response(200, json=newer.answer(message))
        if request.headers.get("mcp-protocol-version") == VERSION:
            return error_of(message, -32600, "Bad Request: Missing session ID", status=400)
        return older._respond(request)

    transport = httpx2.MockTransport(respond)
    info = StreamableHttpServerInfo("http://edge.test/mcp", http_transport=lambda **_: transport, base_delay=0.05)
    with MCPConnection(info) as connection, mcp_request_context(user="ada"):
        with pytest.raises(MCPInvocationError, match="no longer answers requests about its task"):
            connection.call_tool("bake", {"seconds": 60})
    assert older.sessions > 0
    assert older.runs == 0


def test_a_task_survives_an_internal_error_of_its_server(tmp_path):
    server, failures = PatientServer(tmp_path / "calls"), ["its database is away", "and away"]

    def respond(request: httpx2.Request) -> httpx2.Response:
        message = json.loads(request.content or "{}")
        if message.get("method") == "tasks/get" and failures:
            return error_of(message, -32603, failures.pop(), status=200)
        return httpx2.Response(200, json=server.answer(message))

    transport = httpx2.MockTransport(respond)
    with MCPConnection(StreamableHttpServerInfo("http://edge.test/mcp", http_transport=lambda **_: transport)) as edge:
        assert text(edge.call_tool("bake", {"seconds": 0})) == "a plain cake"
    assert failures == []


def test_a_task_continues_in_the_next_process_of_a_server_over_stdio(patient_stdio_server):
    server = patient_stdio_server()
    with MCPConnection(server.info(), invocation_timeout=SHORT) as connection:
        calling = in_thread(connection.call_tool, "bake", {"seconds": 2.5})
        server.wait_for("@tasks/get", 2)
        server.kill()
        assert text(calling.result(LIMIT)) == "a plain cake"
    assert len(server.pids()) == 2
    assert len(server.log.events("bake")) == 1


def test_waiting_for_a_task_ends_at_once_when_the_connection_is_closed(patient_stdio_server):
    server = patient_stdio_server()
    connection = MCPConnection(server.info(), connection_timeout=LIMIT)
    calling = in_thread(connection.call_tool, "bake", {"seconds": 60})
    server.wait_for("@tasks/get", 2)
    connection.close()
    with pytest.raises(MCPOutcomeUnknownError, match=r"connection was closed\. The task goes on") as raised:
        calling.result(LIMIT)
    assert raised.value.pending_call is not None


def test_a_task_does_not_count_towards_the_limit_of_concurrent_calls(patient_stdio_server):
    server = patient_stdio_server()
    with MCPConnection(server.info(max_in_flight=1), invocation_timeout=LIMIT) as connection:
        tasks = [in_thread(connection.call_tool, "bake", {"seconds": 2}) for _ in range(2)]
        server.wait_for("bake", 2)  # the second task began before the first had ended
        assert not tasks[0].done() and not tasks[1].done()
        assert [text(task.result(LIMIT)) for task in tasks] == ["a plain cake"] * 2


def test_a_server_that_stays_unreachable_does_not_block_a_call_forever(http_server):
    server = http_server(script=PATIENT_SERVER)
    info = StreamableHttpServerInfo(server.url, base_delay=0.05, max_delay=0.2, max_retries=1)
    with MCPConnection(info), MCPConnection(info, invocation_timeout=SHORT, connection_timeout=1.0) as connection:
        calling = in_thread(connection.call_tool, "bake", {"seconds": 60})
        server.wait_for("@tasks/get")
        server.kill()
        with pytest.raises(MCPOutcomeUnknownError, match="takes it up again") as raised:
            calling.result(LIMIT)
    assert raised.value.pending_call is not None


def test_a_task_that_needs_input_gets_it_from_a_handler_or_is_left_open_with_the_reason(patient_stdio_server):
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
            # It is stored once as a task, and once with a question.
            assert [len(call.questions) for call in kept[-2:]] == [0, 1]
            assert raised.value.pending_call == kept[-1]
            call = MCPPendingCall.from_dict(json.loads(json.dumps(kept[-1].to_dict())))
            assert toolset["bake_asking"].continue_call(call, {"size": {"size": "small"}}).text == "a small cake"
            assert toolset.connection.status().circuit == "closed"
    assert len(server.log.events("bake_asking")) == 4


async def test_failed_tasks_are_errors(patient_stdio_server):
    info = patient_stdio_server().info(env={"OVEN_KEY": Secret.from_token("k3y-of-the-oven")})
    async with MCPConnection(info) as connection:
        with pytest.raises(MCPInvocationError, match=r"`burn`: it burnt \*\*\*") as burnt:
            await connection.call_tool_async("burn", {"seconds": 0.1})
        assert burnt.value.code == -32603
        unknown = MCPPendingCall(tool_name="bake", task_id="nobody's")
        with pytest.raises(MCPOutcomeUnknownError, match=r"There is no such task\. The tool may have run"):
            await connection.continue_call_async(unknown)
        with pytest.raises(MCPConnectionError, match="There is no such task"):
            await connection.cancel_call_async(unknown)
        assert connection.status().circuit == "closed"


async def test_tasks_of_fastmcp_servers_work():
    server = FastMCP("kitchen")
    server.add_extension(pytest.importorskip("fastmcp_tasks").TasksExtension(url="memory://"))
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


def test_a_tool_that_requires_a_task_of_an_earlier_revision_is_an_error_and_not_called():
    server = ForeignServer(definition("long", execution={"taskSupport": "required"}))
    with MCPConnection(replace(server.info, negotiation="handshake")) as connection:
        with pytest.raises(MCPInvocationError, match=r"as a task of revision 2025-11-25 .* did not run"):
            connection.call_tool("long")
    assert server.calls == []
