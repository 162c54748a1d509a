# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An Agent that searches for tools instead of seeing all of them (Haystack 2 and 3).

The server has many tools, and gets another one while the Agent runs: the next search finds it.
"""

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPSearchableToolset, MCPToolset

server = MCPServer("house")


def add_switch(device: str, room: str) -> None:
    server.add_tool(
        lambda: f"The {device} in the {room} is on.",
        name=f"switch_on_{room}_{device}",
        description=f"Switch the {device} in the {room} on.",
    )


for room in ("kitchen", "hall", "bedroom", "study", "cellar"):
    for device in ("lamp", "radio", "heating", "fan"):
        add_switch(device, room)


@server.tool()
async def install(device: str, room: str, ctx: Context) -> str:
    """Install a new device in a room."""
    add_switch(device, room)
    await ctx.notify_tools_changed()
    return f"The {device} is in the {room} now."


def main() -> None:
    generator = chat_generator(
        [ToolCall("search_tools", {"tool_keywords": "install device", "k": 1})],
        [ToolCall("install", {"device": "projector", "room": "study"})],
        [ToolCall("search_tools", {"tool_keywords": "projector", "k": 1})],
        [ToolCall("switch_on_study_projector", {})],
    )
    with MCPSearchableToolset(MCPToolset(InProcessServerInfo(server))) as toolset:
        print(f"{len(toolset.get_selectable_tools())} tools, of which the model sees {[tool.name for tool in toolset]}")
        agent = Agent(chat_generator=generator, tools=toolset)
        question = ChatMessage.from_user("Install a projector in the study, and switch it on.")
        print_conversation(agent.run(messages=[question])["messages"])


if __name__ == "__main__":
    main()
