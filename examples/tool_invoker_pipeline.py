# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A pipeline with a ToolInvoker (Haystack 2 only; on Haystack 3 use an Agent, see agent.py).

The first chat generator chooses the tool calls, the ToolInvoker makes them, and the second chat generator answers.
"""

import sys
from typing import Any

from haystack import Pipeline
from haystack.components.joiners import ListJoiner
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset

try:
    from haystack.components.tools import ToolInvoker
except ModuleNotFoundError:
    print("This example needs Haystack 2.31: Haystack 3 has no ToolInvoker. See agent.py.")
    sys.exit(0)


def ask(generator: Any, toolset: MCPToolset, messages: list[ChatMessage]) -> list[ChatMessage]:
    """
    Run the pipeline.

    :param generator: The chat generator for the choice of the calls; a copy of it writes the answer.
    :param toolset: The tools.
    :param messages: The question.
    :returns: The conversation.
    """
    pipeline = Pipeline()
    pipeline.add_component("llm", generator)
    pipeline.add_component("tool_invoker", ToolInvoker(tools=toolset))
    pipeline.add_component("conversation", ListJoiner(list[ChatMessage]))
    pipeline.add_component("response_llm", type(generator).from_dict(generator.to_dict()))
    pipeline.connect("llm.replies", "tool_invoker.messages")
    pipeline.connect("llm.replies", "conversation.values")
    pipeline.connect("tool_invoker.tool_messages", "conversation.values")
    pipeline.connect("conversation.values", "response_llm.messages")
    result = pipeline.run(
        {"llm": {"messages": messages, "tools": toolset}, "conversation": {"values": messages}},
        include_outputs_from={"conversation"},
    )
    return [*result["conversation"]["values"], *result["response_llm"]["replies"]]


def main() -> None:
    toolset = MCPToolset(InProcessServerInfo("servers.calculator:server"), tool_names=["add", "multiply"])
    generator = chat_generator([ToolCall("multiply", {"a": 6, "b": 7}), ToolCall("add", {"a": 5, "b": 3})])
    try:
        print_conversation(ask(generator, toolset, [ChatMessage.from_user("How much are 6 x 7 and 5 + 3?")]))
    finally:
        toolset.close()


if __name__ == "__main__":
    main()
