# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`call_budget` limits the calls of MCP tools in a block, on both Haystack majors.
"""

import asyncio
import logging
import pickle

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.tools.errors import ToolInvocationError

from haystack_integrations.tools.mcp import MCPResourceToolset, MCPSearchableToolset, MCPToolset, call_budget
from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError, MCPCallRefusedError, MCPConfigurationError
from tests.servers import inprocess
from tests.support.executors import agent_of, recorded_traces, results_of, run
from tests.support.in_process import COUNTER
from tests.support.rows import rows
from tests.support.scripted_chat import CallsUntilRefused, call, calls, say


@pytest.fixture
def toolset():
    inprocess.calls.clear()
    with MCPToolset(COUNTER, tool_names=["add", "echo"]) as toolset:
        yield toolset


def results(result) -> list[tuple[str, bool]]:
    return [(each.result, each.error) for each in results_of(result)]


def test_calls_over_the_budget_are_not_sent_and_the_model_answers_with_text(toolset, caplog):
    caplog.set_level(logging.DEBUG)
    texts = ["s3ntinel-a", "s3ntinel-b", "s3ntinel-c"]
    agent = agent_of(toolset, calls(*[("echo", {"text": text}) for text in texts]), say("well"))
    with call_budget(max_calls=2) as budget, recorded_traces(content=False) as traces:
        result = run(agent)
    assert result["last_message"].text == "well"
    assert sorted(error for _, error in results(result)) == [False, False, True]
    [refusal] = [text for text, error in results(result) if error]
    assert refusal == (
        "The call of 'echo' was refused: the limit of 2 tool calls is reached. Answer with what you have, and say "
        "what is missing."
    )
    assert inprocess.calls == ["echo", "echo"]
    assert (budget.calls, budget.refused, budget.calls_by_tool) == (2, 1, {"echo": 2})
    assert traces.names.count("haystack.mcp.tool_call.refused") == 1
    assert "s3ntinel" not in caplog.text + traces.text


async def test_concurrent_runs_of_one_agent_have_separate_budgets(toolset):
    agent = Agent(chat_generator=CallsUntilRefused([call("echo", text="x"), say("final")]), tools=toolset)

    async def one() -> tuple[int, int, str]:
        with call_budget(max_calls=3) as budget:
            result = await agent.run_async(messages=[ChatMessage.from_user("go")])
        return budget.calls, budget.refused, result["last_message"].text

    assert await asyncio.gather(one(), one(), one()) == [(3, 1, "final")] * 3
    assert len(inprocess.calls) == 9


def test_a_tool_may_have_its_own_limit_and_other_tools_are_not_counted(toolset):
    with call_budget(max_calls_per_tool={"echo": 1}, max_calls=3) as budget:
        toolset["echo"].invoke(text="x")
        with pytest.raises(MCPCallRefusedError, match="the limit of 1 call of this tool is reached"):
            toolset["echo"].invoke(text="x")
        toolset["add"].call(a=1, b=2)
        with call_budget(max_calls=0, tools=["echo"]):
            toolset["add"].invoke(a=1, b=2)
            with pytest.raises(MCPCallRefusedError, match="limit of 3 tool calls is reached"):
                toolset["echo"].invoke(text="x")
    assert budget.calls_by_tool == {"echo": 1, "add": 2}
    toolset["echo"].invoke(text="x")  # outside the block


def test_a_call_that_a_block_within_a_block_refuses_is_not_counted_in_the_outer_one(toolset):
    with call_budget(max_calls=2) as outer:
        with call_budget(max_calls=1) as inner:
            toolset["echo"].invoke(text="x")
            with pytest.raises(MCPCallRefusedError, match="the limit of 1 tool call is reached"):
                toolset["echo"].invoke(text="x")
        assert (outer.calls, inner.calls, inner.refused) == (1, 1, 1)
        toolset["echo"].invoke(text="x")


def test_calls_of_other_tools_are_not_counted(toolset):
    mine = Tool("mine", "", {"type": "object", "properties": {}}, lambda: "fine")
    with call_budget(max_calls=0) as budget:
        assert results(run(agent_of([*toolset, mine], call("mine"), say("well")))) == [("fine", False)]
    assert budget.refused == 0
    assert repr(budget) == "<MCPCallBudget: 0 calls, 0 refused>"


@rows(
    ("tools", "name", "arguments"),
    (MCPSearchableToolset(MCPToolset(COUNTER)), "search_tools", {"tool_keywords": "add"}),
    (MCPResourceToolset(COUNTER), "list_resources", {}),
)
def test_tools_without_a_server_are_counted_if_they_are_named(tools, name, arguments):
    with tools:
        [tool] = [each for each in tools if each.name == name]
        with call_budget(max_calls=0):
            assert tool.invoke(**arguments) is not None
        with call_budget(max_calls=1, tools=[name]) as budget:
            tool.invoke(**arguments)
            with pytest.raises(ToolInvocationError, match=f"The call of '{name}' was refused"):
                tool.invoke(**arguments)
        assert (budget.calls, budget.refused) == (1, 1)


def test_a_model_that_keeps_calling_can_be_stopped(toolset):
    agent = agent_of(toolset, *[call("echo", text="x")] * 20)
    with (
        call_budget(max_calls=1, max_refused_calls=2),
        pytest.raises(Exception, match="after 2 refused calls") as raised,
    ):
        run(agent)
    error: BaseException | None = raised.value
    while not isinstance(error, MCPBudgetExceededError):  # Haystack 2 wraps the error
        assert error is not None
        error = error.__cause__ or error.__context__
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (twin.message, twin.messages) == (error.message, error.messages)
    assert len(agent.chat_generator.turns) == 4


@rows(
    ("parameters", "reason"),
    ({"max_calls": -1}, "`max_calls` must be greater than or equal to 0, got -1"),
    ({"max_calls_per_tool": {"echo": "2"}}, r"`max_calls_per_tool` \(echo\) must be a valid integer"),
    ({"tools": "echo"}, "`tools` must be a valid list"),
)
def test_a_wrong_parameter_is_refused(parameters, reason):
    with pytest.raises(MCPConfigurationError, match=reason), call_budget(**parameters):
        pytest.fail("the block is entered")
