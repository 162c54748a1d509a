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

from haystack_integrations.tools.mcp import (
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
from tests.support.background import text
from tests.support.killed import in_a_process_that_is_killed
from tests.support.rows import rows

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
LATER = MCPHandlers(elicitation=answer_later)


def stored(call: MCPPendingCall | types.CallToolResult) -> MCPPendingCall:
    """
    The call as it comes back from a store.
    """
    assert isinstance(call, MCPPendingCall)
    return MCPPendingCall.from_dict(json.loads(json.dumps(call.to_dict())))


def test_a_call_that_wants_input_is_finished_in_another_process_after_the_first_was_killed(patient, tmp_path):
    printed = in_a_process_that_is_killed(
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


def test_what_is_withheld_of_a_call_is_withheld_again_with_all_secrets_in_it(patient_stdio_server):
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
        assert "4711" not in str(refused.value)
        connection.continue_call(call, {"milk": True}, withheld=withheld)
    assert len(server.log.events("order_twice")) == 1


def test_questions_without_an_answer_go_to_the_handler(patient_stdio_server):
    info = patient_stdio_server().info()
    with MCPConnection(info, handlers=LATER) as connection:
        call = stored(connection.begin_call("order_twice", {"drink": "tea"}))
    with MCPConnection(info, handlers=MCPHandlers(elicitation=lambda _: {"milk": True})) as connection:
        assert text(connection.continue_call(call, {"size": {"size": "big"}})) == "a big tea with milk"


@rows(
    ("answers", "message"),
    [
        (None, r"has no \['size'\]"),
        ({"colour": True, "size": True}, r"unknown keys \['colour'\]"),
        ({"size": {"size": 5}}, "does not fit the form: size"),
        ({"size": "secret-answer"}, r"must return a dictionary((?!secret-answer).)*$"),
    ],
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
    assert "4711" not in f"{error} {error!r} {call!r} {call.to_dict()}"
    with MCPToolset(info, handlers=LATER, tool_overrides={"order": {"bound_arguments": bound}}) as toolset:
        assert toolset["order"].continue_call(call, {"size": {"size": "small"}}).text == "a small Earl-Grey-4711"
        with pytest.raises(ValueError, match="of the tool 'bare', got a call of 'order'"):
            toolset["bare"].continue_call(call, {})


def test_interceptors_see_both_parts_and_what_they_add_is_not_kept(patient_stdio_server):
    def sweeten(call: MCPToolCall, call_next: Callable[[MCPToolCall], Any]) -> Any:
        seen.append(dict(call.arguments))
        return call_next(call.override(arguments={"drink": f"sweet {call.arguments['drink']}"}))

    seen: list[Any] = []
    with MCPConnection(patient_stdio_server().info(), handlers=LATER, interceptors=[sweeten]) as connection:
        call = stored(connection.begin_call("order", {"drink": "tea"}))
        assert text(connection.continue_call(call, {"size": {"size": "big"}})) == "a big sweet tea"
    assert seen == [call.arguments] * 2 == [{"drink": "tea"}] * 2


def test_a_call_is_continued_at_its_own_server_and_nothing_begins_anew(patient_stdio_server):
    server = patient_stdio_server()
    with MCPConnection(server.info(), handlers=LATER) as connection:
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
    assert len(server.log.events("order-asked")) == 1


def test_a_function_that_keeps_calls_may_fail_and_is_not_waited_for_for_ever(patient_stdio_server, caplog, monkeypatch):
    def fail(_call: MCPPendingCall) -> None:
        raise RuntimeError("there is no room")

    async def hang(_call: MCPPendingCall) -> None:
        await asyncio.Event().wait()

    info = patient_stdio_server().info()
    monkeypatch.setattr("haystack_integrations.tools.mcp.connection.tool_call._KEEP_TIMEOUT", 0.1)
    for keep, said in ((fail, "The handler `pending_calls` for stdio server"), (hang, "failed: TimeoutError")):
        with MCPConnection(info, handlers=MCPHandlers(elicitation=answer_later, pending_calls=keep)) as connection:
            stored(connection.begin_call("order", {"drink": "tea"}))
        assert said in caplog.text


async def test_in_event_loops_an_async_function_keeps_calls_in_the_loop_of_the_caller(patient_stdio_server):
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
    [
        {},
        {**LEFT_OPEN, "version": 2},
        {**LEFT_OPEN, "request_state": None},  # nothing to go on with: the tool would run once more
        {name: value for name, value in LEFT_OPEN.items() if name != "arguments"},
        {**LEFT_OPEN, "withheld": 3},
    ],
)
def test_what_is_no_pending_call_is_refused(data: Any) -> None:
    assert MCPPendingCall.from_dict(LEFT_OPEN).to_dict() == LEFT_OPEN
    with pytest.raises(ValueError, match=r"MCPPendingCall\.from_dict"):
        MCPPendingCall.from_dict(data)
