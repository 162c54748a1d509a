# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The compared MCP servers over HTTP: this package, or FastMCP alone, with hand-written functions that do the same.

    python served.py ours calls 8000          # a tool, and a pipeline that takes almost no time
    python served.py fastmcp many 8000        # 1,000 tools
    python served.py ours load 8000           # the tool, and a pipeline of 0.2 s, 8 calls at a time
    python served.py fastmcp yaml 8000        # the pipeline, loaded from its YAML

hayhooks serves the same from the folders of hayhooks_files.py.
"""

import argparse
import time
from typing import Any

from cases import LOAD_PLACES, LOAD_SECONDS, MANY_TOOLS
from fastmcp import FastMCP
from hayhooks_files import PRAISE
from haystack import Pipeline, component
from haystack.tools import Tool, Toolset

ADDING = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@component
class Wait:
    """A component that takes some time, like a model."""

    @component.output_types(text=str)
    def run(self, text: str) -> dict[str, Any]:
        """Return the text after a while."""
        time.sleep(LOAD_SECONDS)
        return {"text": text}


def served_by_this_package(content: str) -> FastMCP[Any]:
    """Return a server that this package makes from tools and pipelines."""
    from haystack_integrations.tools.mcp.serving import create_mcp_server

    tools = [Tool("add", "Add two numbers.", ADDING, add)]
    if content == "many":
        named = [Tool(f"add_{number}", "Add two numbers.", ADDING, add) for number in range(MANY_TOOLS)]
        return create_mcp_server("served", tools=[Toolset(named)])
    if content == "load":
        waiting = Pipeline()
        waiting.add_component("wait", Wait())
        return create_mcp_server("served", tools=tools, pipelines={"wait": waiting}, max_concurrency=LOAD_PLACES)
    return create_mcp_server("served", tools=tools, pipelines={"praise": PRAISE})


def served_by_hand(content: str) -> FastMCP[Any]:
    """Return the same server, written with FastMCP alone."""
    server: FastMCP[Any] = FastMCP("served")
    if content == "many":
        for number in range(MANY_TOOLS):
            server.tool(add, name=f"add_{number}")
        return server
    pipeline = Pipeline.loads(PRAISE)
    if content == "calls":
        server.tool(add)

    @server.tool
    def praise(what: str) -> dict[str, str]:
        return {"prompt": pipeline.run({"what": what})["prompt"]["prompt"]}

    return server


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("subject", choices=["ours", "fastmcp"])
    parser.add_argument("content", choices=["calls", "many", "load", "yaml"])
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    if options.subject == "fastmcp":
        served_by_hand(options.content).run(
            transport="http",
            port=options.port,
            show_banner=False,
            log_level="error",
            uvicorn_config={"access_log": False},
        )
        return
    from haystack_integrations.tools.mcp.serving import run_server

    run_server(served_by_this_package(options.content), transport="http", port=options.port, log_level="error")


if __name__ == "__main__":
    main()
