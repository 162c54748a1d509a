# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers that ask for something while an Agent, or whatever else executes tool calls, waits for them.
"""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import AskUser, InProcessServerInfo, MCPHandlers, MCPSampling, MCPToolset
from tests.support.executors import HAS_TOOL_INVOKER, Executor, every_executor
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

SERVER = InProcessServerInfo("tests.servers.asking_server:server")
# Haystack 3 moved it.
CONFIRMATION = importlib.import_module(f"haystack{'' if HAS_TOOL_INVOKER else '.hooks'}.human_in_the_loop.dataclasses")


class ScriptedUI:
    """A ConfirmationUI that confirms, changes and refuses, in turns."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def get_user_confirmation(self, tool_name: str, tool_description: str, tool_params: dict[str, Any]) -> Any:
        self.shown.append(tool_params)
        action = ["confirm", "modify", "reject"][len(self.shown) - 1]
        changed = {"colour": "green", "count": 9} if action == "modify" else None
        return CONFIRMATION.ConfirmationUIResult(action=action, new_tool_params=changed)


@pytest.fixture
def opened() -> Iterator[Any]:
    toolsets: list[MCPToolset] = []

    def open_with(**fields: Any) -> MCPToolset:
        toolsets.append(MCPToolset(SERVER, handlers=MCPHandlers(**fields), invocation_timeout=60))
        return toolsets[-1]

    yield open_with
    for toolset in toolsets:
        toolset.close()


@every_executor
def test_a_chat_generator_answers_the_server_during_a_call(execute: Executor, opened: Any) -> None:
    generator = ScriptedChatGenerator([say("Emma.")])
    outcome = execute(opened(sampling=MCPSampling(chat_generator=generator)), ("ask_model", {"prompt": "A book?"}))
    assert outcome.result.startswith("Emma. (")
    [turn] = generator.turns
    assert [message.role.value for message in turn.messages] == ["system", "user", "assistant", "user"]
    assert turn.messages[1].text == "A book?"
    assert turn.tool_names == []


@every_executor
def test_the_user_is_asked_through_haystacks_confirmation_ui_during_a_call(execute: Executor, opened: Any) -> None:
    ui = ScriptedUI()
    toolset = opened(elicitation=AskUser(ui))
    assert execute(toolset, ("ask_order", {})).result == "2 blue"
    assert execute(toolset, ("ask_order", {})).result == "9 green"
    assert "decline" in execute(toolset, ("ask_order", {})).error
    assert ui.shown == [{"colour": "blue", "count": 2}] * 3


@every_executor
def test_a_handler_may_run_a_pipeline_with_an_agent_that_uses_the_same_toolset(execute: Executor, opened: Any) -> None:
    @component
    class Assistant:
        @component.output_types(reply=str)
        def run(self, question: str) -> dict[str, str]:
            agent = Agent(chat_generator=ScriptedChatGenerator([call("add", a=40, b=2), say("done")]), tools=toolset)
            messages = agent.run([ChatMessage.from_user(question)])["messages"]
            return {"reply": str(messages[-2].tool_call_result.result)}

    pipeline = Pipeline()
    pipeline.add_component("assistant", Assistant())

    def answer(_: Any) -> str:
        reply: str = pipeline.run({"assistant": {"question": "40 + 2?"}})["assistant"]["reply"]
        return reply

    toolset = opened(sampling=answer)
    assert execute(toolset, ("ask_model", {"prompt": "x"})).result.startswith("42 (")
