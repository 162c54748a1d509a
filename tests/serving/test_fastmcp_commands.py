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
from tests.support.served import ROOT
from tests.support.waiting import LIMIT

SERVER = ROOT / "tests" / "servers" / "served_haystack.py"
FASTMCP = [sys.executable, "-m", "fastmcp.cli"]
PATHS = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "FASTMCP_CHECK_FOR_UPDATES": "off", "NO_COLOR": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = {"path": str(SERVER), "entrypoint": "make_server"}
    config = {"source": source, "deployment": {"transport": "stdio"}}
    (tmp_path / "fastmcp.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("target", [[f"{SERVER}:make_server"], ["fastmcp.json", "--skip-env"]])
def test_inspect_shows_what_is_served(folder: Path, target: list[str]) -> None:
    command = [*FASTMCP, "inspect", *target, "--format", "fastmcp", "-o", "report.json"]
    run_to_end(command, limit=LIMIT, start=PreparedProcess, cwd=folder, env=ENVIRONMENT, check=True)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    tools = {tool["name"]: tool for tool in report["tools"]}
    assert tools["add"]["description"] == "Add two numbers."
    assert "text" in tools["shout"]["output_schema"]["properties"]


async def test_run_serves_it(folder: Path) -> None:
    arguments = [*FASTMCP[1:], "run", "fastmcp.json", "--skip-env", "--no-banner"]
    transport = StdioTransport(prepared_python(), arguments, env=ENVIRONMENT, cwd=str(folder), keep_alive=False)
    with anyio.fail_after(60):
        async with Client(transport) as client:
            assert (await client.call_tool("shout", {"text": "tea"})).structured_content["text"] == "TEA"
