# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tools that read from the State of an Agent and write to it (Haystack 2 and 3).

The customer number comes from the application; the model does not see this parameter. The orders are stored in the State
as data, while the model sees them as text.
"""

import json

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset


def main() -> None:
    toolset = MCPToolset(
        InProcessServerInfo("servers.shop:server"),
        tool_names=["list_orders"],
        inputs_from_state={"list_orders": {"customer": "customer"}},
        outputs_to_state={"list_orders": {"orders": {"source": "orders"}, "total": {"source": "total"}}},
    )
    with toolset:
        print("Parameters that the model sees:", toolset[0].parameters["properties"])
        agent = Agent(
            chat_generator=chat_generator([ToolCall("list_orders", {})]),
            tools=toolset,
            state_schema={"customer": {"type": str}, "orders": {"type": list}, "total": {"type": float}},
        )
        result = agent.run(messages=[ChatMessage.from_user("What have I ordered so far?")], customer="C-17")
        print_conversation(result["messages"])
        print("\nIn the State, for the application:")
        print(json.dumps(result["orders"], indent=2))
        print("total:", result["total"])


if __name__ == "__main__":
    main()
