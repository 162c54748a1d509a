# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The tools of several servers in one Agent (Haystack 2 and 3).

The shop and the library both have a tool named `search`; prefixes distinguish them. `warm_up_toolsets` connects to all
servers concurrently, while Haystack would connect to one after the other.
"""

import sys
import time
from pathlib import Path

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, warm_up_toolsets

SERVERS = Path(__file__).parent / "servers"


def toolset(name: str) -> MCPToolset:
    server_info = StdioServerInfo(command=sys.executable, args=[str(SERVERS / f"{name}.py")])
    return MCPToolset(server_info, tool_names=["search"], tool_name_prefix=name)


def main() -> None:
    toolsets = [toolset("shop"), toolset("library")]
    try:
        started = time.perf_counter()
        warm_up_toolsets(toolsets)
        print(f"{len(toolsets)} servers connected in {time.perf_counter() - started:.1f} s")
        for each in toolsets:
            for tool in each:
                print(f"  {tool.name}: '{tool.remote_name}' of {each.connection.status().server_name}")
        generator = chat_generator(
            [ToolCall("shop_search", {"text": "chair"}), ToolCall("library_search", {"text": "chair"})]
        )
        agent = Agent(chat_generator=generator, tools=toolsets)
        question = ChatMessage.from_user("Search the shop and the library for 'chair'.")
        print_conversation(agent.run(messages=[question])["messages"])
    finally:
        for each in toolsets:
            each.close()


if __name__ == "__main__":
    main()
