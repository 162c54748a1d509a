# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A tool that returns an image. By default the model sees a note in the text; with `result_format="content"`, the image.

Not every chat generator accepts images in tool results: OpenAIChatGenerator does not, so this example uses
OpenAIResponsesChatGenerator when `OPENAI_API_KEY` is set.
"""

import os
from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import ScriptedChatGenerator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset, ToolOptions


def chat_generator_for_images() -> Any:
    if os.environ.get("OPENAI_API_KEY"):
        return OpenAIResponsesChatGenerator()
    return ScriptedChatGenerator([[ToolCall("draw_square", {"size": 16, "red": 255, "green": 0, "blue": 0})]])


def main() -> None:
    question = ChatMessage.from_user("Draw a red square of 16 pixels and tell me what you see in the picture.")
    for result_format in ("text", "content"):
        print(f'result_format="{result_format}":')
        with MCPToolset(
            InProcessServerInfo("servers.drawing:server"), tool_options=ToolOptions(result_format=result_format)
        ) as toolset:
            agent = Agent(chat_generator=chat_generator_for_images(), tools=toolset)
            print_conversation(agent.run(messages=[question])["messages"])
        print()


if __name__ == "__main__":
    main()
