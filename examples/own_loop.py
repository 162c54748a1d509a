# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Your own loop around a chat generator, with the tools and limits of a registry (Haystack 2 and 3).

`registry.generate` is such a loop. `MCPToolRunner` runs one tool as a component, without a model.
"""

from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.components.tools.mcp import MCPToolRunner
from haystack_integrations.tools.mcp import InProcessServerInfo, MCPRegistry, MCPTool

CONFIGURATION = {
    "mcpServers": {"shop": {"command": "python", "args": ["servers/shop.py"]}},
    "toolConfigs": {"prices": {"providers": ["shop"], "allow_tools": ["search"], "max_tool_call_turns": 1}},
}


def main() -> None:
    # To load it from a file, use MCPRegistry.from_config("mcp.json").
    configured = MCPRegistry.from_config(CONFIGURATION)
    # The server runs in this process, so that the example need not start one.
    registry = MCPRegistry({"shop": InProcessServerInfo("servers.shop:server")}, [configured.tool_config("prices")])
    mcp = registry.get_mcp("prices")
    generator = chat_generator([ToolCall("search", {"text": "chair"})], [ToolCall("search", {"text": "desk"})])
    messages = [ChatMessage.from_user("What do a chair and a desk cost?")]
    turns = 0
    while True:
        reply = generator.run(messages=messages, tools=mcp.tools)["replies"][0]
        if not mcp.has_tool_calls(reply):
            break
        turns += 1
        within = turns <= mcp.max_tool_call_turns
        answers = mcp.process_completion_response(reply) if within else mcp.refuse_completion_response(reply)
        messages += answers
    print_conversation([*messages, reply])

    answer, _ = registry.generate(
        chat_generator([ToolCall("search", {"text": "lamp"})]), "And a lamp?", tool_alias="prices"
    )
    print(f"registry.generate: {answer}")

    runner = MCPToolRunner(MCPTool("search", registry.providers["shop"]))
    print(f"MCPToolRunner: {runner.run(text='lamp')['text']}")
    runner.close()
    registry.close()


if __name__ == "__main__":
    main()
