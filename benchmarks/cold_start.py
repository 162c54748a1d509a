# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Prints the seconds that a new process needs for its MCP tools, in addition to `import haystack.tools`.

The pipeline is loaded twice, first without tools, so that Haystack's own imports for an Agent do not count.
"""

import argparse
import json
from time import perf_counter

import haystack.tools  # noqa: F401

_PIPELINE = """
components:
  agent:
    type: haystack.components.agents.agent.Agent
    init_parameters:
      chat_generator:
        type: scripted_generator.ScriptedChatGenerator
        init_parameters: {}
      tools:
"""

_TOOLSET = """
        type: haystack_integrations.tools.mcp.mcp_toolset.MCPToolset
        data:
          server_info:
            type: haystack_integrations.tools.mcp.mcp_tool.StdioServerInfo
            command: python
            args: [server.py]
"""

_REST = """
connections: []
metadata: {}
"""


def with_the_package() -> tuple[float, float]:
    """Import the package, build tools, load a pipeline."""
    begin = perf_counter()
    from haystack_integrations.tools.mcp import MCPTool, MCPToolset, StdioServerInfo

    imported = perf_counter() - begin
    info = StdioServerInfo(command="python", args=["server.py"])
    for index in range(10):
        MCPTool(name=f"tool_{index}", server_info=info)
    MCPToolset(server_info=info)
    built = perf_counter() - begin

    from haystack import Pipeline

    Pipeline.loads(_PIPELINE + _REST, allowed_modules=["scripted_generator"])
    begin = perf_counter()
    Pipeline.loads(_PIPELINE + _TOOLSET + _REST, allowed_modules=["scripted_generator"])
    return imported, built + perf_counter() - begin


def with_the_sdk_alone() -> tuple[float, float]:
    """Import the SDK's client."""
    begin = perf_counter()
    from mcp import Client  # noqa: F401

    imported = perf_counter() - begin
    return imported, imported


def main() -> None:
    """Print the times as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--subject", choices=["ours", "upstream", "floor"], required=True)
    imported, ready = with_the_sdk_alone() if parser.parse_args().subject == "floor" else with_the_package()
    print(json.dumps({"seconds": ready, "figures": {"import": imported}}))


if __name__ == "__main__":
    main()
