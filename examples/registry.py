# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A registry: servers by name, the tools of two of them under one alias, a health check, an Agent (Haystack 2 and 3).

One of the three servers is down. It is not required, so the Agent runs without its tools, and the report says why.
"""

import sys
from pathlib import Path

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import MCPRegistry, MCPToolset, StdioServerInfo, ToolConfig

SERVERS = Path(__file__).parent / "servers"


def main() -> None:
    providers = {
        name: StdioServerInfo(command=sys.executable, args=[str(SERVERS / f"{name}.py")])
        for name in ("shop", "library")
    }
    archive = MCPToolset(StdioServerInfo(command="no-such-archive"), required=False)
    registry = MCPRegistry(
        providers={**providers, "archive": archive},
        tool_configs=[
            ToolConfig(
                tool_alias="search",
                providers=["shop", "library", "archive"],
                allow_tools=["search"],
                max_tool_call_turns=3,
                timeout_sec=10.0,
                prefix="on_conflict",
            )
        ],
    )
    try:
        report = registry.health_check()
        for each in report["search"].providers:
            print(f"{each.provider}: {'ok' if each.ok else each.error} ({each.seconds:.1f} s)")
        generator = chat_generator(
            [ToolCall("shop_search", {"text": "chair"}), ToolCall("library_search", {"text": "chair"})]
        )
        agent = Agent(chat_generator=generator, tools=registry.toolset("search"))
        question = ChatMessage.from_user("Search the shop and the library for 'chair'.")
        print_conversation(agent.run(messages=[question])["messages"])
    finally:
        registry.close()


if __name__ == "__main__":
    main()
