# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An Agent with the tools of an MCP server, in a pipeline and asynchronously (Haystack 2 and 3).
"""

import asyncio
from typing import Any

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset


def ask(generator: Any, toolset: MCPToolset, messages: list[ChatMessage]) -> list[ChatMessage]:
    """
    Run an Agent in a pipeline.

    :param generator: The chat generator.
    :param toolset: The tools.
    :param messages: The question.
    :returns: The conversation.
    """
    pipeline = Pipeline()
    pipeline.add_component("agent", Agent(chat_generator=generator, tools=toolset))
    return pipeline.run({"agent": {"messages": messages}})["agent"]["messages"]


async def ask_without_blocking(generator: Any, toolset: MCPToolset, messages: list[ChatMessage]) -> list[ChatMessage]:
    """
    Run an Agent in an event loop. On Haystack 3 its tools also run there, instead of in threads.

    :param generator: The chat generator.
    :param toolset: The tools.
    :param messages: The question.
    :returns: The conversation.
    """
    # On Haystack 2 the Agent would otherwise block the event loop while it warms up its tools.
    await toolset.warm_up_async()
    result = await Agent(chat_generator=generator, tools=toolset).run_async(messages=messages)
    return result["messages"]


def main() -> None:
    # The toolset connects when the Agent first needs it.
    toolset = MCPToolset(InProcessServerInfo("servers.calculator:server"), tool_names=["add", "divide"])
    generator = chat_generator([ToolCall("divide", {"a": 7, "b": 0})], [ToolCall("divide", {"a": 7, "b": 2})])
    question = ChatMessage.from_user("Divide 7 by 0 and tell me whether it works. If not, divide it by 2.")
    try:
        print("An Agent in a pipeline:")
        print_conversation(ask(generator, toolset, [question]))
        print("\nThe same asynchronously:")
        print_conversation(asyncio.run(ask_without_blocking(generator, toolset, [question])))
    finally:
        toolset.close()


if __name__ == "__main__":
    main()
