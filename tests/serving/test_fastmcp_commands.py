# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
FastMCP's own commands work with what `create_mcp_server` returns.
"""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.support.prepared import PreparedProcess, prepared_python
from tests.support.processes import run_to_end
from tests.support.waiting import LIMIT

SERVER = '''
from haystack import Pipeline, component
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@component
class Shout:
    @component.output_types(text=str)
    def run(self, text: str):
        return {"text": text.upper()}


pipeline = Pipeline()
pipeline.add_component("shout", Shout())


async def make_server():
    return create_mcp_server(
        "shop", tools=[add], pipelines={"shout": pipeline}, options={"add": ServeOptions(title="Adder", tags={"sums"})}
    )


mcp = create_mcp_server("shop", tools=[add], pipelines={"shout": pipeline})
'''

SOURCE = Path(__file__).parents[2] / "src"
FASTMCP = [sys.executable, "-m", "fastmcp.cli"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(SERVER, encoding="utf-8")
    config = {"source": {"path": "shop.py", "entrypoint": "make_server"}, "deployment": {"transport": "stdio"}}
    (tmp_path / "fastmcp.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


@pytest.fixture
def environment():
    return {**os.environ, "PYTHONPATH": str(SOURCE), "FASTMCP_CHECK_FOR_UPDATES": "off", "NO_COLOR": "1"}


def _inspected(folder, environment, *arguments):
    command = [*FASTMCP, "inspect", *arguments, "--format", "fastmcp", "-o", "report.json"]
    run_to_end(command, limit=LIMIT, start=PreparedProcess, cwd=folder, env=environment, check=True)
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("target", [["shop.py"], ["shop.py:make_server"], ["fastmcp.json", "--skip-env"]])
def test_inspect_shows_what_is_served(folder, environment, target):
    tools = {tool["name"]: tool for tool in _inspected(folder, environment, *target)["tools"]}
    assert set(tools) == {"add", "shout"}
    assert tools["add"]["description"] == "Add two numbers."
    assert set(tools["shout"]["output_schema"]["properties"]) == {"text"}


@pytest.mark.parametrize("target", [["shop.py"], ["fastmcp.json", "--skip-env"]])
async def test_run_serves_it(folder, environment, target):
    arguments = [*FASTMCP[1:], "run", *target, "--no-banner"]
    transport = StdioTransport(prepared_python(), arguments, env=environment, cwd=str(folder), keep_alive=False)
    with anyio.fail_after(60):
        async with Client(transport) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert (await client.call_tool("shout", {"text": "tea"})).structured_content == {"text": "TEA"}
