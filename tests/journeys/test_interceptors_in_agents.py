# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Interceptors around the calls of an Agent, from code and from a stored pipeline.
"""

from typing import Any

import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import FromState, InProcessServerInfo, MCPToolCall, MCPToolset
from tests.support.executors import results_of, run
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

HERE = "tests.journeys.test_interceptors_in_agents"

seen: list[str] = []


def note(wrapped: MCPToolCall, call_next: Any) -> Any:
    seen.append(wrapped.name)
    return call_next(wrapped)


async def refuse_echo(wrapped: MCPToolCall, call_next: Any) -> Any:
    if wrapped.name == "echo":
        msg = f"nobody may say {wrapped.arguments['text']}"
        raise PermissionError(msg)
    return await call_next(wrapped)


@pytest.fixture(params=[False, True], ids=["run", "run_async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    seen.clear()
    return bool(request.param)


def toolset_with(*interceptors: Any, **parameters: Any) -> MCPToolset:
    info = InProcessServerInfo("tests.servers.inprocess:server")
    return MCPToolset(info, tool_names=["add", "echo"], interceptors=list(interceptors), **parameters)


def agent_of(tools: MCPToolset, *replies: ChatMessage, **parameters: Any) -> Agent:
    return Agent(chat_generator=ScriptedChatGenerator(list(replies)), tools=tools, **parameters)


def run_of(agent: Agent, **given: Any) -> list[Any]:
    return [(each.result, each.error) for each in results_of(run(agent, **given))]


def test_a_stored_agent_goes_through_them_and_the_model_learns_why_a_call_is_refused(is_async: bool) -> None:
    pipeline = Pipeline()
    toolset = toolset_with(note, f"{HERE}:refuse_echo")
    pipeline.add_component("agent", agent_of(toolset, call("add", a=1, b=2), call("echo", text="x"), say("done")))
    stored = pipeline.dumps()
    assert f"- {HERE}.note" in stored
    loaded = Pipeline.loads(stored)
    assert loaded.dumps() == stored
    agent = loaded.get_component("agent")
    added, (refused, is_error) = run_of(agent, is_async=is_async)
    agent.tools.close()
    assert added == ("3", False)
    assert is_error
    assert f"the interceptor '{HERE}:refuse_echo' raised PermissionError: nobody may say x" in refused
    assert seen == ["add", "echo"]


def test_what_they_quote_of_the_state_is_redacted_for_the_model(is_async: bool) -> None:
    toolset = toolset_with(
        note, refuse_echo, tool_overrides={"echo": {"bound_arguments": {"text": FromState("password")}}}
    )
    agent = agent_of(toolset, call("echo"), say("done"), state_schema={"password": {"type": str}})
    [(refused, is_error)] = run_of(agent, is_async=is_async, password="open-sesame")
    toolset.close()
    assert is_error
    assert "nobody may say" in refused
    assert "open-sesame" not in refused
