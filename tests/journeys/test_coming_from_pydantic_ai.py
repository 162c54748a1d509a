# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What `docs/migration.md` promises to those who come from Pydantic AI.
"""

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset
from haystack_integrations.tools.mcp.server_instructions import instructions_for_model
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

GO = [ChatMessage.from_user("go")]


def test_a_model_may_try_again_as_long_as_there_are_steps() -> None:
    server = MCPServer("moody")
    attempts: list[int] = []

    @server.tool()
    def open_door() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("it is stuck")
        return "open"

    with MCPToolset(InProcessServerInfo(server)) as toolset:
        tries = [call("open_door")] * 3
        agent = Agent(chat_generator=ScriptedChatGenerator([*tries, say("done")]), tools=toolset, max_agent_steps=4)
        results = [each for message in agent.run(GO)["messages"] for each in message.tool_call_results]
        assert [each.error for each in results] == [True, True, False]
        attempts.clear()
        agent = Agent(chat_generator=ScriptedChatGenerator(tries), tools=toolset, max_agent_steps=2)
        agent.run(GO)
        assert len(attempts) == 2


def test_the_instructions_of_a_server_are_in_a_system_message_of_an_agent() -> None:
    with MCPToolset(InProcessServerInfo(MCPServer("notes", instructions="Read before you write."))) as toolset:
        generator = ScriptedChatGenerator([say("done")])
        said = instructions_for_model(toolset)
        assert said is not None
        Agent(chat_generator=generator, tools=toolset).run([ChatMessage.from_system(said), *GO])
    text = generator.turns[0].messages[0].text
    assert text.startswith('<server_instructions server="notes">')
    assert "Read before you write." in text
