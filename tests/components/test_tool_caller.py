# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import threading
import time
from contextvars import ContextVar
from typing import Annotated, Any

import pytest
from haystack.components.agents import State
from haystack.dataclasses import ChatMessage, StreamingChunk, ToolCall
from haystack.tools import Tool, Toolset
from haystack.tools.errors import ToolInvocationError

from haystack_integrations.components.tools.mcp import MCPToolCaller
from haystack_integrations.tools.mcp import MCPInvocationError, MCPTool, MCPToolNotFoundError, MCPToolset, call_budget
from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError
from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from tests.components.conftest import Use
from tests.support.in_process import COUNTER
from tests.support.rows import rows
from tests.support.scripted_chat import call, calls, say
from tests.support.waiting import LIMIT, wait_until_async


@pytest.fixture
def make(use: Use) -> Use:
    """
    Runs a tool caller with messages, in both ways.
    """
    return lambda caller, *messages, **inputs: use(caller, messages=list(messages), **inputs)


def results(outputs: dict[str, Any]) -> list[tuple[Any, bool]]:
    found = [result for message in outputs["tool_messages"] for result in message.tool_call_results]
    return [(result.result, result.error) for result in found]


def noted(made: list[str], text: str) -> str:
    made.append(text)
    return "noted"


def tool(name: str, function: Any, **parameters: Any) -> Tool:
    schema = {"type": "object", "properties": {}}
    return Tool(name=name, description=name, parameters=schema, function=function, **parameters)


def test_the_calls_of_a_reply_are_executed_and_answered_in_order(make):
    caller = MCPToolCaller(MCPToolset(COUNTER))
    reply = calls(("add", {"a": 5, "b": 3}), ("echo", {"text": "hello"}), ("add", {"a": 1, "b": 1}))
    outputs = make(caller, reply, history=[ChatMessage.from_user("go")])
    assert results(outputs) == [("8", False), ("hello", False), ("2", False)]
    assert [message.text for message in outputs["messages"][:1]] == ["go"]
    assert outputs["messages"][1:] == [reply, *outputs["tool_messages"]]
    assert "replies" not in outputs
    assert outputs["tool_call_counts"] == {"add": 2, "echo": 1}
    outputs = make(caller, say("done"))
    assert (outputs["tool_messages"], outputs["replies"], outputs["tool_call_counts"]) == ([], [say("done")], {})
    assert "messages" not in outputs


def test_calls_that_have_a_result_are_not_repeated(make):
    made: list[str] = []
    caller = MCPToolCaller([tool("note", lambda text: noted(made, text))])
    first, second = calls(("note", {"text": "a"}), ("note", {"text": "b"})), calls(("note", {"text": "c"}))
    answered = ChatMessage.from_tool("done", origin=first.tool_calls[0])
    make(caller, first, answered, second)
    assert sorted(made) == ["b", "c"]
    # Calls without an id are recognized by tool and arguments.
    same = [ToolCall("note", {"text": "a"}), ToolCall("note", {"text": "a"}), ToolCall("note", {"text": "d"})]
    make(caller, ChatMessage.from_assistant(tool_calls=same), ChatMessage.from_tool("done", origin=same[0]))
    assert sorted(made) == ["a", "b", "c", "d"]


def test_the_model_gets_errors_in_the_order_of_the_calls(make):
    caller = MCPToolCaller(MCPToolset(COUNTER, tool_names=["add", "fail"]))
    listed = ChatMessage.from_assistant(tool_calls=[ToolCall("add", [1, 2])])  # type: ignore[arg-type]
    reply = calls(
        ("ad", {"a": 1}), ("add", {"a": 5, "b": 3}), ("fail", {"message": "on purpose"}), ("add", {"a": "five"})
    )
    outputs = make(caller, reply, listed)
    (unknown, good, failed, bad, wrong) = results(outputs)
    assert unknown == ("Tool 'ad' not found. Did you mean 'add'? Available tools: add, fail", True)
    assert good == ("8", False)
    assert failed[1]
    assert "on purpose" in failed[0]
    assert bad[1]
    assert "Failed to invoke Tool `add`" in bad[0]
    assert wrong == ("Failed to invoke Tool `add`: its arguments must be a JSON object, got list", True)
    assert outputs["tool_call_counts"] == {"ad": 1, "add": 3, "fail": 1}
    caller.raise_on_failure = True
    for reply, error in ((call("ad"), MCPToolNotFoundError), (call("fail", message="on purpose"), MCPInvocationError)):
        with pytest.raises(error):
            make(caller, reply)


def test_a_tool_of_any_kind_may_raise_anything(make):
    class Odd(Tool):
        def invoke(self, **_arguments: Any) -> Any:
            raise LookupError("odd")

        async def invoke_async(self, **_arguments: Any) -> Any:
            raise LookupError("odd")

    odd = Odd(name="odd", description="", parameters={"type": "object", "properties": {}}, function=print)
    reply = calls(("odd", {}), ("odd", {"self": 1}))
    first, second = results(make(MCPToolCaller([odd]), reply))
    assert first == ("Failed to invoke Tool `odd`: odd", True)
    assert second[1]


def test_exactly_the_allowed_number_of_calls_runs_at_a_time(make):
    pair, under_way, seen = threading.Barrier(2), [], []

    def work() -> str:
        under_way.append(1)
        pair.wait(LIMIT)
        seen.append(len(under_way))
        time.sleep(0.005)
        under_way.pop()
        return "done"

    caller = MCPToolCaller([tool("work", work)], max_concurrency=2)
    assert results(make(caller, calls(*[("work", {})] * 6))) == [("done", False)] * 6
    assert max(seen) == 2


def test_tools_read_and_write_the_state_and_readers_wait_for_writers(make):
    caller = MCPToolCaller(
        [
            MCPToolset(
                COUNTER,
                tool_names=["add", "echo"],
                inputs_from_state={"echo": {"sum": "text"}},
                outputs_to_state={"add": {"sum": {"source": "result", "handler": text_of}}},
            )
        ],
        state_schema={"sum": {"type": str}, "unset": {"type": list[str]}},
    )
    outputs = make(caller, calls(("echo", {}), ("add", {"a": 5, "b": 3})))
    assert [error for _, error in results(outputs)] == [False, False]
    assert results(outputs)[0][0] == "sum: 8"
    assert outputs["sum"] == "sum: 8"
    assert "unset" not in outputs
    assert outputs["state"].get("sum") == "sum: 8"
    given = make(caller, calls(("echo", {})), sum="given")
    assert results(given) == [("given", False)]
    assert set(caller.__haystack_output__._sockets_dict) >= {"sum", "unset", "state", "messages"}


def text_of(_current: Any, new: Any) -> str:
    return f"sum: {new}"


def test_a_given_state_is_changed_in_place(make):
    state = State(schema={"seen": {"type": list[str]}, "found": {"type": str}}, data={"found": "before"})

    def look(state: State) -> dict[str, Any]:
        return {"seen": ["me"], "before": state.get("seen")}

    looking = tool("look", look, outputs_to_state={"seen": {"source": "seen"}, "found": {"source": "absent"}})
    outputs = make(MCPToolCaller([looking]), calls(("look", {}), ("look", {})), state=state)
    assert outputs["state"] is state
    assert (state.get("seen"), state.get("found")) == (["me", "me"], "before")
    # The second call ran after the first, because both write what both read.
    assert results(outputs) == [
        ('{"seen": ["me"], "before": null}', False),
        ('{"seen": ["me"], "before": ["me"]}', False),
    ]


def test_the_state_of_one_tool_caller_gets_the_keys_of_the_next(make):
    first = MCPToolCaller([tool("look", lambda: "red")], state_schema={"seen": {"type": str}})
    noting = tool("note", lambda: {"what": "a"}, outputs_to_state={"noted": {"source": "what"}, "all": {}})
    second = MCPToolCaller([noting], state_schema={"noted": {"type": str}, "marks": {"type": list[str]}})
    state = make(first, call("look"), seen="red")["state"]
    outputs = make(second, call("note"), state=state, marks=["x"])
    assert [error for _, error in results(outputs)] == [False]
    assert (outputs["noted"], outputs["marks"], outputs["state"] is state) == ("a", ["x"], True)
    assert (state.get("seen"), state.get("all")) == ("red", {"what": "a"})


@rows(
    ("annotation", "seen"),
    *((each, "all of it") for each in (State, "State", State | None, Annotated[State, "the run's"])),
    # Annotations for type checkers or readers only.
    ("what there is", "nothing"),
)
def test_a_tool_gets_the_state_whatever_the_form_of_its_annotation(make, annotation, seen):
    def look(looked_at=None) -> str:
        return looked_at.get("seen") if looked_at else "nothing"

    look.__annotations__["looked_at"] = annotation
    state = State(schema={"seen": {"type": str}}, data={"seen": "all of it"})
    assert results(make(MCPToolCaller([tool("look", look)]), call("look"), state=state)) == [(seen, False)]


def test_inputs_of_the_run_are_written_to_a_given_state(make):
    state = State(schema={"city": {"type": str}}, data={"city": "Oslo"})
    caller = MCPToolCaller(
        [tool("name", lambda city: city, inputs_from_state={"city": "city"})], state_schema={"city": {"type": str}}
    )
    assert results(make(caller, call("name"), state=state, city="Rome")) == [("Rome", False)]
    assert state.get("city") == "Rome"


def test_the_model_gets_an_error_for_an_unusable_result(make):
    def refuse(_value: Any) -> str:
        raise ValueError("no text for this")

    odd = tool("odd", lambda: "x", outputs_to_string={"handler": refuse})
    assert results(make(MCPToolCaller([odd]), calls(("odd", {})))) == [
        ("Tool `odd` was called, but its result cannot be used: no text for this", True)
    ]
    with pytest.raises(ToolInvocationError, match="no text for this"):
        make(MCPToolCaller([odd], raise_on_failure=True), calls(("odd", {})))


def test_a_budget_that_ends_the_run_is_raised_and_not_a_message_for_the_model(make):
    caller = MCPToolCaller(MCPToolset(COUNTER))
    with call_budget(max_calls=0, max_refused_calls=0), pytest.raises(MCPBudgetExceededError):
        make(caller, calls(("add", {"a": 1, "b": 2})))


@pytest.mark.skipif(not HAS_ASYNC_FUNCTION, reason="Haystack 2 has no tools with only an async function")
async def test_a_tool_with_only_an_async_function_needs_an_asynchronous_run():
    async def look() -> str:
        await asyncio.sleep(0)
        return "seen"

    caller = MCPToolCaller([tool("look", None, async_function=look)])
    assert results(await caller.run_async(messages=[calls(("look", {}))])) == [("seen", False)]
    [(text, is_error)] = results(caller.run(messages=[calls(("look", {}))]))
    assert is_error and "can only be invoked via `invoke_async`" in text


def test_tools_of_a_run_replace_those_of_the_component(make):
    outputs = make(
        MCPToolCaller([tool("mine", lambda: "mine")]),
        calls(("yours", {}), ("mine", {})),
        tools=[tool("yours", lambda: {"a": [1, "é"]})],
    )
    assert results(outputs)[0] == ('{"a": [1, "é"]}', False)
    assert results(outputs)[1][1]


def test_results_are_streamed_in_order_and_tools_get_the_callback_on_request(make):
    chunks: list[StreamingChunk] = []

    def talk(streaming_callback: Any = None) -> str:
        return "heard" if streaming_callback else "alone"

    for passed, told in ((False, "alone"), (True, "heard")):
        chunks.clear()
        caller = MCPToolCaller([tool("talk", talk)], tool_streaming_callback_passthrough=passed)
        make(caller, calls(("talk", {}), ("nothing", {})), streaming_callback=chunks.append)
        assert [chunk.tool_call_result and chunk.tool_call_result.error for chunk in chunks] == [False, True, None]
        assert chunks[0].tool_call_result.result == told
        assert chunks[-1].finish_reason == "tool_call_results"


async def test_an_asynchronous_callback_is_awaited():
    chunks: list[StreamingChunk] = []

    async def send(chunk: StreamingChunk) -> None:
        await asyncio.sleep(0)
        chunks.append(chunk)

    caller = MCPToolCaller([tool("talk", lambda: "x")])
    await caller.run_async([calls(("talk", {}))], streaming_callback=send)
    assert len(chunks) == 2


async def test_calls_of_servers_are_cancelled_with_the_run():
    toolset = MCPToolset(COUNTER, tool_names=["sleep"])
    caller = MCPToolCaller(toolset)
    running = asyncio.create_task(caller.run_async([calls(("sleep", {"seconds": 600}), ("sleep", {"seconds": 600}))]))
    await wait_until_async(lambda: toolset.connection.status().in_flight == 2, "both calls")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until_async(lambda: toolset.connection.status().in_flight == 0, "the calls to be given up")
    await caller.close_async()
    assert not toolset.connection.is_ready


def test_each_call_has_the_identity_of_the_user_of_the_run(make):
    user: ContextVar[str] = ContextVar("user", default="nobody")
    user.set("ada")
    caller = MCPToolCaller([tool("who", lambda: user.get() or "")])
    assert results(make(caller, calls(("who", {}), ("who", {})))) == [("ada", False)] * 2


async def test_a_tool_caller_warms_up_and_closes_all_its_tools():
    toolset, single = MCPToolset(COUNTER), MCPTool("add", COUNTER, exposed_name="plus", share=False)
    caller = MCPToolCaller([toolset, Toolset([single]), tool("mine", lambda: "mine")])
    for warm_up, close in ((caller.warm_up, caller.close), (caller.warm_up_async, caller.close_async)):
        for method, is_ready in ((warm_up, True), (close, False)):
            if (awaitable := method()) is not None:
                await awaitable
            assert toolset.connection.is_ready is single.connection.is_ready is is_ready


def test_two_tools_with_the_same_name_are_refused(make):
    with pytest.raises(ValueError, match="Two tools are called 'a'"):
        MCPToolCaller([tool("a", print), tool("a", print)])
    with pytest.raises(ValueError, match="Two tools are called 'add'"):
        make(MCPToolCaller([MCPToolset(COUNTER), MCPToolset(COUNTER)]), calls(("add", {})))
