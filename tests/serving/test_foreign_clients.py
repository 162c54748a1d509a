# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Third-party clients at fixed versions: their command lines and SDKs use served Haystack objects.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.support.external import DOWNLOAD_LIMIT, npx, typescript_client, uv_script
from tests.support.prepared import PreparedProcess, prepared_python
from tests.support.processes import leader, run_to_end
from tests.support.served import ROOT, SERVED, ServedOverHttp
from tests.support.waiting import LIMIT

TOOLS = {"add", "clerk", "fail", "grow", "hasty", "refuse", "shout", "wait"}

INSPECTOR = "@modelcontextprotocol/inspector@0.18.0"
PYDANTIC_AI = "pydantic-ai-slim[mcp]>=1,<2"

PYDANTIC_AI_CALL = """
import asyncio, json, sys
from pydantic_ai import ModelRetry
from pydantic_ai.mcp import MCPServerStreamableHTTP

async def main():
    async with MCPServerStreamableHTTP(sys.argv[1]) as server:
        found = {"tools": [tool.name for tool in await server.list_tools()]}
        found["shouted"] = await server.direct_call_tool("shout", {"text": "tea"})
        try:
            await server.direct_call_tool("refuse", {})
        except ModelRetry as error:
            found["failed"] = str(error)
    print(json.dumps(found))

asyncio.run(main())
"""

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def served() -> Iterator[ServedOverHttp]:
    with ServedOverHttp() as process:
        yield process


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    # The folder is next to those of pytest-xdist's workers, which all use it.
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return typescript_client(shared / "typescript")


PATHS = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
SETTINGS = {"PYTHONPATH": PATHS, "NO_COLOR": "1", "COLUMNS": "200", "FASTMCP_CHECK_FOR_UPDATES": "off"}
ENVIRONMENT = {**os.environ, **SETTINGS}


def run(*command: str) -> str:
    start = PreparedProcess if command[0] == sys.executable else leader
    return run_to_end(command, limit=DOWNLOAD_LIMIT, start=start, env=ENVIRONMENT, check=True).stdout


def text_of(result: dict[str, Any]) -> str:
    [block] = result["content"]
    return block["text"]


@pytest.mark.parametrize(
    ("version", "mode", "over"),
    [
        ("v1", "legacy", "http"),
        ("v2", "auto", "http"),
        ("v2", "auto", "stdio"),
    ],
)
def test_the_typescript_sdk_uses_everything_that_is_served(
    served: ServedOverHttp, typescript: list[str], version: str, mode: str, over: str
) -> None:
    target = [served.url] if over == "http" else [prepared_python(), str(SERVED)]
    told = served.errors.count("EVENT cancelled")
    found = json.loads(run(*typescript, version, mode, *target))
    assert set(found["tools"]) >= TOOLS
    assert (found["added"]["structuredContent"], found["added"]["isError"]) == ({"result": 3}, False)
    shouted = found["shouted"]["structuredContent"]
    assert shouted["text"] == "TEA"
    assert [document["content"] for document in shouted["documents"]] == ["tea"]
    assert "embedding" not in shouted["documents"][0]
    errors = {name: text_of(found[name]) for name in ("wrong", "unknown", "failed", "leaked", "hasty")}
    assert {found[name]["isError"] for name in errors} == {True}
    assert errors["wrong"] == "Invalid arguments for tool 'add': 'a' must be of type integer"
    assert errors["unknown"] == "Unknown tool: 'nothing'"
    assert errors["failed"] == "out of stock"
    assert errors["leaked"] == "Error calling tool 'fail'"
    assert "did not finish within 0.3 s" in errors["hasty"]
    assert found["ordered"]["structuredContent"] == {"answer": "lamp ordered"}
    assert found["asked"] == ["The agent 'clerk' wants to call the tool 'order' with {\"name\": \"lamp\"}"]
    # The SDK drops notifications that it reads together with the result of the call, over stdio sometimes all of them.
    assert over == "stdio" or found["steps"][0] == "Step 1: asking the model"
    assert {resource["uri"] for resource in found["resources"]["resources"]} == {"documents://shop"}
    assert found["document"]["contents"][0]["text"] == "It has four legs."
    assert found["prompt"]["messages"][0]["content"]["text"] == "What costs tea?"
    assert "enough" in found["cancelled"]["error"]
    if over == "http":
        served.wait_for("EVENT cancelled", count=told + 1)
    assert set(found["changed"]) >= TOOLS | {"grown"}


def test_the_inspector_calls_a_tool() -> None:
    served = [npx(), "-y", INSPECTOR, "--cli", prepared_python(), str(SERVED), "--method", "tools/call"]
    called = json.loads(run(*served, "--tool-name", "shout", "--tool-arg", "text=tea"))
    assert called["structuredContent"]["text"] == "TEA"


def test_the_command_line_of_fastmcp_inspects_the_server() -> None:
    assert "Tools:" in run(sys.executable, "-m", "fastmcp.cli", "inspect", f"{SERVED}:make_server")


async def test_the_command_line_of_fastmcp_runs_the_server_of_its_configuration_file(tmp_path: Path) -> None:
    source = {"path": str(SERVED), "entrypoint": "make_server"}
    (tmp_path / "fastmcp.json").write_text(json.dumps({"source": source, "deployment": {"transport": "stdio"}}))
    arguments = ["-m", "fastmcp.cli", "run", "fastmcp.json", "--skip-env", "--no-banner"]
    transport = StdioTransport(prepared_python(), arguments, env=ENVIRONMENT, cwd=str(tmp_path), keep_alive=False)
    async with asyncio.timeout(LIMIT), Client(transport) as client:
        assert (await client.call_tool("shout", {"text": "tea"})).structured_content["text"] == "TEA"


def test_pydantic_ai_lists_and_calls_tools(served: ServedOverHttp, tmp_path: Path) -> None:
    script = tmp_path / "call.py"
    script.write_text(PYDANTIC_AI_CALL)
    program, arguments = uv_script(PYDANTIC_AI, str(script))
    found = json.loads(run(program, *arguments, served.url))
    assert set(found["tools"]) >= TOOLS
    assert found["shouted"]["text"] == "TEA"
    assert found["failed"] == "out of stock"
