# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Hooks of an Agent (Haystack 3): a budget of turns, and confirmation of calls that are not read-only.
"""

import sys

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from mcp.server import MCPServer
from mcp.types import ToolAnnotations
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.hooks import mcp as hooks
from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset

try:
    from haystack.hooks.human_in_the_loop import ConfirmationUIResult
except ImportError:
    print("This example needs Haystack 3: Haystack 2 has no hooks. See limits.py.")
    sys.exit()

server = MCPServer("shelf", log_level="WARNING")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def count() -> int:
    """Count the books."""
    return 3


@server.tool()
def sort(by: str) -> str:
    """Sort the books."""
    return f"sorted by {by}"


class Agrees:
    def get_user_confirmation(self, tool_name, tool_description, tool_params):  # noqa: ARG002
        print(f"Asked: may the model call {tool_name}?")
        return ConfirmationUIResult(action="confirm")


def main() -> None:
    info = InProcessServerInfo(server)
    with MCPToolset(info) as toolset:
        # The server is trusted, so `count`, which it calls read-only, needs no confirmation.
        confirmation = hooks.MCPConfirmationHook(Agrees(), trusted=[info])
        agent = Agent(
            chat_generator=chat_generator(
                [ToolCall("count", {})], [ToolCall("sort", {"by": "title"})], [ToolCall("sort", {"by": "author"})]
            ),
            tools=toolset,
            hooks={"before_tool": [hooks.MCPCallBudgetHook(max_turns=2), confirmation]},
        )
        print_conversation(agent.run(messages=[ChatMessage.from_user("Sort my books.")])["messages"])


if __name__ == "__main__":
    main()
