# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A call that waits for an answer until tomorrow (Haystack 2 and 3).

An Agent books a room, and the hotel asks for the number of nights, which only the guest knows. The call is left open and
stored in a file. The next day the guest answers, and the call continues, in any process. `servers/hotel.py` allows that.
"""

import json
import tempfile
from pathlib import Path

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPHandlers, MCPToolset
from haystack_integrations.tools.mcp.handlers import answer_later
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall

HOTEL = InProcessServerInfo("servers.hotel:server")


def ask_an_agent(store: Path) -> None:
    def keep(call: MCPPendingCall) -> None:
        store.write_text(json.dumps(call.to_dict()))

    handlers = MCPHandlers(elicitation=answer_later, pending_calls=keep)
    with MCPToolset(HOTEL, handlers=handlers, tool_names=["book"]) as toolset:
        agent = Agent(chat_generator=chat_generator([ToolCall("book", {"hotel": "Sea View"})]), tools=toolset)
        question = "Book the Sea View."
        print_conversation(agent.run(messages=[ChatMessage.from_user(question)])["messages"])


def answer_the_next_day(store: Path) -> None:
    call = MCPPendingCall.from_dict(json.loads(store.read_text()))
    for question in call.questions:
        print("The hotel asks:", question.message)
    answers = {question.key: {"nights": 3} for question in call.questions}
    with MCPToolset(HOTEL, handlers=MCPHandlers(elicitation=answer_later)) as toolset:
        print(toolset["book"].continue_call(call, answers).text)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "call.json"
        ask_an_agent(store)
        answer_the_next_day(store)


if __name__ == "__main__":
    main()
