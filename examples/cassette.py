# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An agent is recorded once, and replayed without its server and its model, as in a test with `mcp_cassette`.
"""

import tempfile
from pathlib import Path

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from mcp.server import MCPServer
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset, StdioServerInfo
from haystack_integrations.tools.mcp.durable import Cassette, JournaledChatGenerator

server = MCPServer("bank", log_level="WARNING")


@server.tool()
def pay(invoice: int) -> str:
    """Pay an invoice."""
    print(f"The server pays invoice {invoice}")
    return "paid"


def ask(server_info, *steps):
    agent = Agent(
        chat_generator=JournaledChatGenerator(chat_generator(*steps)),
        tools=MCPToolset(server_info),
    )
    return agent.run(messages=[ChatMessage.from_user("Pay invoice 42.")])["messages"]


def main() -> None:
    file = Path(tempfile.mkdtemp()) / "case.json"
    with Cassette(file, "once"):
        ask(InProcessServerInfo(server), [ToolCall("pay", {"invoice": 42})])
    print("Recorded; now without the server, and without a model:")
    with Cassette(file) as cassette:
        print_conversation(ask(StdioServerInfo("no-such-program")))
        print(f"Played {cassette.file.name}")


if __name__ == "__main__":
    main()
