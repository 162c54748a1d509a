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


@pytest.mark.parametrize("is_async", [False, True], ids=["run", "run_async"])
def test_a_stored_agent_goes_through_them_and_the_model_learns_why_a_call_is_refused(is_async: bool) -> None:
    seen.clear()
    toolset = MCPToolset(
        InProcessServerInfo("tests.servers.inprocess:server"),
        tool_names=["add", "echo"],
        tool_overrides={"echo": {"bound_arguments": {"text": FromState("password")}}},
        interceptors=[note, f"{HERE}:refuse_echo"],
    )
    generator = ScriptedChatGenerator([call("add", a=1, b=2), call("echo"), say("done")])
    pipeline = Pipeline()
    agent = Agent(chat_generator=generator, tools=toolset, state_schema={"password": {"type": str}})
    pipeline.add_component("agent", agent)
    stored = pipeline.dumps()
    assert f"- {HERE}.note" in stored
    loaded = Pipeline.loads(stored)
    assert loaded.dumps() == stored
    agent = loaded.get_component("agent")
    added, refused = results_of(run(agent, is_async=is_async, password="open-sesame"))
    agent.tools.close()
    assert (added.result, added.error, refused.error) == ("3", False, True)
    # What an interceptor quotes of the state is redacted for the model.
    said = f"the interceptor '{HERE}:refuse_echo' raised PermissionError: nobody may say"
    assert (said in refused.result, "open-sesame" in refused.result) == (True, False)
    assert seen == ["add", "echo"]
