# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers of an `mcp.json` in one Agent (Haystack 2 and 3).

One of them, the archive, is down. It is not required, so the Agent runs without it.
"""

import os
import sys
from pathlib import Path

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import load_mcp_toolsets, warm_up_toolsets


def main() -> None:
    os.environ["PYTHON"] = sys.executable  # what the file calls ${PYTHON}
    toolsets = load_mcp_toolsets(Path(__file__).parent / "mcp.json")
    try:
        warm_up_toolsets(toolsets)
        for each in toolsets:
            status = each.connection.status()
            print(f"{each.tool_name_prefix}: {status.last_error or status.state}")
            print(f"  tools: {[tool.name for tool in each]}")
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
