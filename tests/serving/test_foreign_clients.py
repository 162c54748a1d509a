# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Clients that nobody here wrote, at fixed versions: their command lines and SDKs call a server that `run_server` runs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.external import DOWNLOAD_LIMIT, npx, uv_script
from tests.support.served import ROOT, SERVED, ServedOverHttp

INSPECTOR = "@modelcontextprotocol/inspector@0.18.0"
PYDANTIC_AI = "pydantic-ai-slim[mcp]>=1,<2"

PYDANTIC_AI_CALL = """
import asyncio, sys
from pydantic_ai.mcp import MCPServerStreamableHTTP

async def main():
    async with MCPServerStreamableHTTP(sys.argv[1]) as server:
        print(sorted(tool.name for tool in await server.list_tools())[:2])
        print(await server.direct_call_tool("add", {"a": 1, "b": 2}))

asyncio.run(main())
"""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(DOWNLOAD_LIMIT + 60)]


@pytest.fixture(scope="module")
def served() -> Iterator[ServedOverHttp]:
    with ServedOverHttp() as process:
        yield process


def run(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "NO_COLOR": "1", "COLUMNS": "200"}
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT, env=environment, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def fastmcp(*arguments: str) -> str:
    return run(str(Path(sys.executable).parent / "fastmcp"), *arguments)


@pytest.mark.parametrize("over", ["http", "stdio"])
def test_the_inspector_lists_and_calls(served: ServedOverHttp, over: str) -> None:
    stdio = [sys.executable, str(SERVED)]
    target = [served.url, "--transport", "http"] if over == "http" else stdio
    inspector = [npx(), "-y", INSPECTOR, "--cli", *target]
    tools = json.loads(run(*inspector, "--method", "tools/list"))["tools"]
    assert "add" in [tool["name"] for tool in tools]
    called = run(*inspector, "--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=1", "--tool-arg", "b=2")
    assert json.loads(called)["structuredContent"] == {"result": 3}


def test_the_command_line_of_fastmcp_lists_and_calls(served: ServedOverHttp) -> None:
    assert "add(a: int, b: int)" in fastmcp("list", served.url)
    assert json.loads(fastmcp("call", served.url, "add", "a=1", "b=2")) == {"result": 3}
    assert "Tools:" in fastmcp("inspect", f"{SERVED}:make_server")


def test_pydantic_ai_lists_and_calls(served: ServedOverHttp, tmp_path: Path) -> None:
    script = tmp_path / "call.py"
    script.write_text(PYDANTIC_AI_CALL)
    program, arguments = uv_script(PYDANTIC_AI, str(script))
    lines = run(program, *arguments, served.url).splitlines()
    assert lines[0] == "['add', 'ask']"
    assert "3" in lines[1]
