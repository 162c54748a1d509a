# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that gets new tools while an Agent runs (Haystack 2 and 3).

The first run calls `install`, which adds a tool to the server. That run keeps the tools that it began with; the second
run has the new tool.
"""

import threading

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset

server = MCPServer("kitchen")


@server.tool()
async def install(device: str, ctx: Context) -> str:
    """Put a device into the kitchen."""
    server.add_tool(lambda: f"The {device} is on.", name=f"start_{device}", description=f"Start the {device}.")
    await ctx.notify_tools_changed()
    return f"The {device} is there."


def ask(toolset: MCPToolset, question: str, tool_call: ToolCall) -> None:
    agent = Agent(chat_generator=chat_generator([tool_call]), tools=toolset)
    print_conversation(agent.run(messages=[ChatMessage.from_user(question)])["messages"])


def main() -> None:
    changed = threading.Event()
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        toolset.on_list_change(lambda _: changed.set(), lists="tools")
        ask(toolset, "Install an oven.", ToolCall("install", {"device": "oven"}))
        changed.wait(timeout=30)
        toolset.warm_up()
        print(f"tools: {', '.join(tool.name for tool in toolset)}")
        ask(toolset, "Start the oven.", ToolCall("start_oven", {}))


if __name__ == "__main__":
    main()
