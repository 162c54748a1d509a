# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Saves a pipeline with MCP tools to YAML and loads it. Loading starts no server; running the pipeline does.
"""

import os
import sys

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation
from servers.running import CALCULATOR

from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo

# Haystack 3 loads only classes from modules on its allowlist. This package is on it by default; the module of the
# scripted chat generator is not.
os.environ.setdefault("HAYSTACK_DESERIALIZATION_ALLOWLIST", "scripted_chat")


def main() -> None:
    toolset = MCPToolset(StdioServerInfo(command=sys.executable, args=[str(CALCULATOR)]), tool_names=["add"])
    generator = chat_generator([ToolCall("add", {"a": 5, "b": 3})])
    pipeline = Pipeline()
    pipeline.add_component("agent", Agent(chat_generator=generator, tools=toolset))

    definition = pipeline.dumps()
    print("The tools in YAML:\n")
    print(definition[definition.index("      tools:") : definition.index("MCPToolset\n")] + "MCPToolset\n")

    loaded = Pipeline.loads(definition)
    connection = loaded.get_component("agent").tools.connection
    print(f"After loading: {connection.status().state}")
    result = loaded.run({"agent": {"messages": [ChatMessage.from_user("How much is 5 + 3? Use a tool.")]}})
    print(f"After running: {connection.status().state}\n")
    print_conversation(result["agent"]["messages"])
    connection.close()


if __name__ == "__main__":
    main()
