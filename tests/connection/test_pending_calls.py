# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that want input are left open, kept as JSON, and continued elsewhere; nothing runs twice.
"""

import asyncio
import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from haystack.utils import Secret
from mcp import types
from mcp.server.mcpserver import Context, MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPHandlers,
    MCPInvocationError,
    MCPTool,
    MCPToolCall,
    MCPToolset,
)
from haystack_integrations.tools.mcp.errors import MCPCallPendingError
from haystack_integrations.tools.mcp.handlers import answer_later
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from tests.handlers.conftest import BOTH_ERAS, Ask, ask, servers  # noqa: F401 - fixtures
from tests.support.background import text
from tests.support.killed import in_a_process_that_is_killed
from tests.support.rows import rows

LATER = MCPHandlers(elicitation=answer_later)


def stored(call: MCPPendingCall | types.CallToolResult) -> MCPPendingCall:
    """
    The call as it comes back from a store.
    """
    assert isinstance(call, MCPPendingCall)
    return MCPPendingCall.from_dict(json.loads(json.dumps(call.to_dict())))


def test_a_call_that_wants_input_is_finished_in_another_process_after_the_first_was_killed(patient, tmp_path):
    info, log = patient
    printed = in_a_process_that_is_killed(
        tmp_path,
        info,
        """
        connection = MCPConnection(info, handlers=MCPHandlers(elicitation=answer_later))
        print(json.dumps(connection.begin_call("order_twice", {"drink": "tea"}).to_dict()), flush=True)
        """,
    )
    call = MCPPendingCall.from_dict(printed)
    assert [(question.key, question.message) for question in call.questions] == [("size", "Which size?")]
    assert call.questions[0].schema is not None
    with MCPConnection(info, handlers=LATER) as connection:
        with pytest.raises(MCPCallPendingError, match="With milk") as raised:
            connection.continue_call(call, {"size": {"size": "big"}})
        call = stored(raised.value.pending_call)
    with MCPConnection(info, handlers=LATER) as connection:
        assert text(connection.continue_call(call, {"milk": True})) == "a big tea"
        status = connection.status()
    assert (status.calls, status.failed_calls, status.last_error) == (1, 0, None)
    assert len(log.events("order_twice-asked")) == 1
    assert log.events("order_twice") == [("order_twice", {"drink": "tea", "size": "big"})]


async def test_the_same_for_event_loops(patient: Any) -> None:
    info, log = patient
    async with MCPConnection(info, handlers=LATER) as connection:
        call = stored(await connection.begin_call_async("order", {"drink": "tea"}))
        assert text(await connection.continue_call_async(call, {"size": False})) == "no tea"
    assert log.events("order") == []


def test_what_is_withheld_of_a_call_is_withheld_again_with_all_secrets_in_it(patient: Any) -> None:
    info, log = patient
    withheld = {"drink": {"kind": "tea", "name": "s3ntinel-4711"}}
    with MCPConnection(info, handlers=LATER) as connection:
        call = stored(connection.begin_call("order_twice", {**withheld, "note": "tea"}, secrets=["s3ntinel-4711"]))
        assert (call.withheld, call.arguments) == (("drink",), {"note": "tea"})
        with pytest.raises(MCPCallPendingError) as raised:
            connection.continue_call(call, {"size": {"size": "big"}}, withheld=withheld)
        call = stored(raised.value.pending_call)
        assert (call.withheld, call.arguments) == (("drink",), {"note": "tea"})
        connection.continue_call(call, {"milk": True}, withheld=withheld)
        other = dataclasses.replace(call, request_state="s3ntinel-4711")
        with pytest.raises(MCPInvocationError) as refused:
            connection.continue_call(other, {"milk": True}, withheld=withheld)
        assert "4711" not in str(refused.value)
    assert len(log.events("order_twice")) == 1


def test_a_withheld_argument_that_is_not_bound_is_passed_to_the_connection(patient: Any) -> None:
    info, _ = patient
    with MCPTool("order", info, handlers=LATER, bound_arguments={"drink": Secret.from_token("Earl-Grey-4711")}) as tool:
        note = "Earl-Grey-4711, please"
        with pytest.raises(MCPCallPendingError) as raised:
            tool.invoke(note=note)
        call, answers = stored(raised.value.pending_call), {"size": {"size": "big"}}
        with pytest.raises(ValueError, match=r"without its arguments \['note'\].*connection\.continue_call"):
            tool.continue_call(call, answers)
        withheld = {"drink": "Earl-Grey-4711", "note": note}
        assert text(tool.connection.continue_call(call, answers, withheld=withheld)) == "a big Earl-Grey-4711"


def test_questions_without_an_answer_go_to_the_handler(patient: Any) -> None:
    info, log = patient
    with MCPConnection(info, handlers=LATER) as connection:
        call = stored(connection.begin_call("order_twice", {"drink": "tea"}))
    with MCPConnection(info, handlers=MCPHandlers(elicitation=lambda _: {"milk": True})) as connection:
        assert text(connection.continue_call(call, {"size": {"size": "big"}})) == "a big tea with milk"
    assert len(log.events("order_twice")) == 1


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (None, r"has no \['size'\]"),
        ({"colour": True, "size": True}, r"unknown keys \['colour'\]"),
        ({"size": {"size": 5}}, "does not fit the form: size"),
        ({"size": "secret-answer"}, "it must return a dictionary"),
    ],
)
def test_answers_that_do_not_fit_are_refused_before_anything_is_sent(patient_stdio_server, answers, message):
    server = patient_stdio_server()
    with MCPConnection(server.info(), handlers=LATER) as connection:
        call = connection.begin_call("order", {"drink": "tea"})
        assert isinstance(call, MCPPendingCall)
        with pytest.raises(ValueError, match=message) as raised:
            connection.continue_call(call, answers)
    assert "secret-answer" not in str(raised.value)
    assert len(server.requests("tools/call")) == 1


def test_a_tool_leaves_a_call_open_and_a_toolset_elsewhere_continues_it(patient_stdio_server: Any) -> None:
    server = patient_stdio_server()
    info = server.info()
    kept: list[MCPPendingCall] = []
    handlers = MCPHandlers(elicitation=answer_later, pending_calls=kept.append)
    secret = Secret.from_token("Earl-Grey-4711")
    bound = {"drink": secret}
    with MCPTool("order", info, handlers=handlers, bound_arguments=bound, exposed_name="get_drink") as tool:
        with pytest.raises(MCPCallPendingError, match="`get_drink`: the server wants input") as raised:
            tool.invoke()
        error = pickle.loads(pickle.dumps(raised.value))  # noqa: S301
        assert error.pending_call == raised.value.pending_call == kept[0]
        call = stored(kept[0])
        assert call.withheld == ("drink",)
        assert call.arguments == {}
        with pytest.raises(ValueError, match="`withheld` must have the arguments"):
            tool.connection.continue_call(call, {"size": True})
        assert tool.continue_call(call, {"size": {"size": "big"}}).text == "a big Earl-Grey-4711"
    for shown in (str(error), repr(error), repr(call), str(call.to_dict())):
        assert "4711" not in shown
    with MCPToolset(info, handlers=LATER, tool_overrides={"order": {"bound_arguments": bound}}) as toolset:
        assert toolset["order"].continue_call(call, {"size": {"size": "small"}}).text == "a small Earl-Grey-4711"
        with pytest.raises(ValueError, match="of the tool 'bare', got a call of 'order'"):
            toolset["bare"].continue_call(call, {})


async def test_whoever_continues_a_call_is_told_of_its_progress() -> None:
    server = MCPServer("kettle")

    @server.tool()
    async def steep(ctx: Context) -> str | types.InputRequiredResult:  # type: ignore[type-arg]
        if not ctx.input_responses:
            schema: dict[str, Any] = {"type": "object", "properties": {}}
            params = types.ElicitRequestFormParams(message="Now?", requested_schema=schema)
            question = types.ElicitRequest(params=params)
            return types.InputRequiredResult(input_requests={"now": question}, request_state="asked")
        await ctx.report_progress(1, 2, "steeping")
        return "steeped"

    reports: list[Any] = []
    with MCPToolset(InProcessServerInfo(server), handlers=LATER) as toolset:
        steep = toolset["steep"]
        call = stored(toolset.connection.begin_call("steep"))
        assert steep.continue_call(call, {"now": True}, on_progress=reports.append).text == "steeped"
        call = stored(await toolset.connection.begin_call_async("steep"))
        assert (await steep.continue_call_async(call, {"now": True}, on_progress=reports.append)).text == "steeped"
    assert [(report.progress, report.total, report.message) for report in reports] == [(1, 2, "steeping")] * 2


def test_interceptors_see_both_parts_and_what_they_add_is_not_kept(patient_stdio_server: Any) -> None:
    server, seen = patient_stdio_server(), []

    def sweeten(call: MCPToolCall, call_next: Callable[[MCPToolCall], Any]) -> Any:
        seen.append(dict(call.arguments))
        return call_next(call.override(arguments={"drink": f"sweet {call.arguments['drink']}"}))

    info = server.info()
    with MCPConnection(info, handlers=LATER, interceptors=[sweeten]) as connection:
        call = connection.begin_call("order", {"drink": "tea"})
        assert isinstance(call, MCPPendingCall)
        assert text(connection.continue_call(call, {"size": {"size": "big"}})) == "a big sweet tea"
    assert call.arguments == {"drink": "tea"}
    assert seen == [{"drink": "tea"}] * 2


def test_a_call_is_continued_at_its_own_server_and_nothing_begins_anew(patient: Any) -> None:
    info, log = patient
    with MCPConnection(info, handlers=LATER) as connection:
        call = stored(connection.begin_call("order", {"drink": "tea"}))
        other = dataclasses.replace(call, server="another server")
        with pytest.raises(ValueError, match="is one of another server, and this is a connection to"):
            connection.continue_call(other, {"size": True})
        with pytest.raises(ValueError, match="is one of another server"):
            connection.cancel_call(other)
        with pytest.raises(ValueError, match="has nothing to go on with"):
            connection.continue_call(MCPPendingCall(tool_name="order", arguments={"drink": "tea"}))
        moved = dataclasses.replace(call, server="")
        assert text(connection.continue_call(moved, {"size": {"size": "big"}})) == "a big tea"
    assert len(log.events("order-asked")) == 1


def no_room(call: MCPPendingCall) -> None:
    msg = f"no room for {call.tool_name}"
    raise RuntimeError(msg)


async def keep_for_ever(_call: MCPPendingCall) -> None:
    await asyncio.Event().wait()


@rows(
    ("keep", "said"),
    [(no_room, "The handler `pending_calls` for stdio server"), (keep_for_ever, "failed: TimeoutError")],
)
def test_a_function_that_keeps_calls_may_fail_and_is_not_waited_for_for_ever(
    patient_stdio_server: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, keep: Any, said: str
) -> None:
    monkeypatch.setattr("haystack_integrations.tools.mcp.connection.tool_call._KEEP_TIMEOUT", 0.1)
    server = patient_stdio_server()
    handlers = MCPHandlers(elicitation=answer_later, pending_calls=keep)
    with MCPConnection(server.info(), handlers=handlers) as connection:
        assert isinstance(connection.begin_call("order", {"drink": "tea"}), MCPPendingCall)
    assert said in caplog.text


def test_an_async_function_that_keeps_calls_runs_in_the_loop_of_the_caller(patient_stdio_server: Any) -> None:
    loops = []

    async def keep(_call: MCPPendingCall) -> None:
        loops.append(asyncio.get_running_loop())

    async def begin() -> None:
        await connection.begin_call_async("order", {"drink": "tea"})
        assert loops == [asyncio.get_running_loop()]

    server = patient_stdio_server()
    handlers = MCPHandlers(elicitation=answer_later, pending_calls=keep)
    with MCPConnection(server.info(), handlers=handlers) as connection:
        asyncio.run(begin())


@pytest.mark.parametrize("way", BOTH_ERAS)
def test_in_earlier_revisions_questions_that_would_be_answered_later_are_cancelled(
    ask: Ask,  # noqa: F811
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = ask(elicitation=answer_later)
    if way == "2026":
        call = connection.begin_call("ask_order", {})
        assert isinstance(call, MCPPendingCall)
        [question] = call.questions
        assert text(connection.continue_call(stored(call), {question.key: {"count": 3}})) == "3 blue"
        return
    with pytest.raises(MCPInvocationError, match="cancel"):
        connection.begin_call("ask_order", {})
    assert "has no calls that are left open" in caplog.text


LEFT_OPEN = MCPPendingCall(tool_name="order", request_state="opaque").to_dict()


@rows(
    "data",
    [
        {},
        [],
        {**LEFT_OPEN, "version": 2},
        {**LEFT_OPEN, "more": 1},
        {**LEFT_OPEN, "request_state": None},  # nothing to go on with: the tool would run once more
        {name: value for name, value in LEFT_OPEN.items() if name != "arguments"},
        {**LEFT_OPEN, "arguments": None},
        {**LEFT_OPEN, "requests": []},
        {**LEFT_OPEN, "withheld": 3},
        {**LEFT_OPEN, "task_id": 5},
    ],
)
def test_what_is_no_pending_call_is_refused(data: Any) -> None:
    assert MCPPendingCall.from_dict(LEFT_OPEN).to_dict() == LEFT_OPEN
    with pytest.raises(ValueError, match=r"MCPPendingCall\.from_dict"):
        MCPPendingCall.from_dict(data)
