# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A pipeline in which a chat generator calls the tools of a real MCP server.

    python examples/demo.py [--server inprocess|stdio|http]

On Haystack 3 an Agent calls the tools (see agent.py), on Haystack 2 a ToolInvoker (see tool_invoker_pipeline.py).
"""

import argparse
import sys
from contextlib import ExitStack

import haystack
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation
from servers.running import CALCULATOR, calculator_over

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPServerInfo,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
)

if haystack.__version__.startswith("2."):
    from tool_invoker_pipeline import ask
else:
    from agent import ask


def server_info(kind: str, running: ExitStack) -> MCPServerInfo:
    if kind == "stdio":
        return StdioServerInfo(command=sys.executable, args=[str(CALCULATOR)])
    if kind == "http":
        return StreamableHttpServerInfo(url=running.enter_context(calculator_over("http")))
    return InProcessServerInfo("servers.calculator:server")


def main() -> None:
    parser = argparse.ArgumentParser(description="A pipeline that calls the tools of a real MCP server.")
    parser.add_argument("--server", choices=["inprocess", "stdio", "http"], default="inprocess")
    options = parser.parse_args()

    with ExitStack() as running, MCPToolset(server_info(options.server, running)) as toolset:
        print(f"Haystack {haystack.__version__}, {toolset.server_info.describe()}")
        print(f"Tools of the server: {', '.join(tool.name for tool in toolset)}")
        generator = chat_generator([ToolCall("multiply", {"a": 6, "b": 7}), ToolCall("add", {"a": 5, "b": 3})])
        question = "How much are 6 x 7 and 5 + 3? Use the tools."
        print_conversation(ask(generator, toolset, [ChatMessage.from_user(question)]))

        status = toolset.connection.status()
        print(
            f"\nConnection: {status.state}, protocol {status.protocol_version}, server {status.server_name} "
            f"{status.server_version}, {status.calls} calls, {status.failed_calls} failed"
        )
    print(f"After closing: {toolset.connection.status().state}")


if __name__ == "__main__":
    main()
