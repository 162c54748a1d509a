# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that asks its client for something in the middle of a call (Haystack 2 and 3).

`book` asks the user for the number of nights. Here a function answers; a real application would show a form. `praise`
asks for a model's reply, within limits.
"""

from typing import Any

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPHandlers, MCPSampling, MCPToolset


@component
class Poet:
    """
    A stand-in for any Haystack chat generator.
    """

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
        return {"replies": [ChatMessage.from_assistant(f"A reply to: {messages[-1].text}")]}


def fill_in(request: Any) -> dict[str, Any]:
    """Answer for the user."""
    print("The server asks:", request.message)
    return {"nights": 3}


def main() -> None:
    handlers = MCPHandlers(sampling=MCPSampling(chat_generator=Poet(), max_requests=5), elicitation=fill_in)
    with MCPToolset(InProcessServerInfo("servers.hotel:server"), handlers=handlers) as toolset:
        hotel = {"hotel": "Sea View"}
        agent = Agent(
            chat_generator=chat_generator([ToolCall("book", hotel)], [ToolCall("praise", hotel)]), tools=toolset
        )
        question = "Book the Sea View, and tell me what is good about it."
        print_conversation(agent.run(messages=[ChatMessage.from_user(question)])["messages"])


if __name__ == "__main__":
    main()
