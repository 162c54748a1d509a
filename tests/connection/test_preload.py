# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The import of the MCP SDK: not in the thread of an event loop, in the background if one wishes, and whole after a fork.
"""

import json
import os
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import StdioServerFactory
from tests.support.processes import run_to_end
from tests.support.scripts import SOURCE
from tests.support.waiting import LIMIT

# The scripts of `conftest.py` import all names, and the SDK with them.
PREAMBLE = """
import asyncio, json, os, sys, threading
from haystack_integrations.tools.mcp import MCPTool, StdioServerInfo, preload

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            importing_threads.append(threading.current_thread().name)

importing_threads = []
sys.meta_path.insert(0, Watch())

def report(**facts):
    os.write(1, (json.dumps(facts) + "\\n").encode())

server_info = StdioServerInfo(sys.argv[1], json.loads(sys.argv[2]))
"""


@pytest.fixture
def run(stdio_server: StdioServerFactory) -> Callable[[str], list[dict[str, Any]]]:
    server = stdio_server()

    def run(script: str) -> list[dict[str, Any]]:
        code = PREAMBLE + textwrap.dedent(script)
        command = [sys.executable, "-W", "ignore", "-c", code, server.command, json.dumps(server.args)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "HAYSTACK_TELEMETRY_ENABLED": "False"}
        done = run_to_end(command, limit=LIMIT, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        server.wait_until_gone()
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_the_first_use_from_an_event_loop_imports_the_sdk_in_another_thread(run):
    (facts,) = run(
        """
        async def main():
            tool = MCPTool("pid", server_info)
            await tool.invoke_async()
            await tool.close_async()

        asyncio.run(main())
        report(threads=importing_threads)
        """
    )
    assert facts["threads"] == ["mcp-haystack-preload"]


def test_preload_imports_the_sdk_once_in_the_background(run):
    (facts,) = run(
        """
        preload()
        preload()
        tool = MCPTool("pid", server_info)
        asyncio.run(tool.warm_up_async())
        tool.close()
        preload()
        report(threads=importing_threads, left=[thread.name for thread in threading.enumerate()])
        """
    )
    assert facts["threads"] == ["mcp-haystack-preload"]
    assert "mcp-haystack-preload" not in facts["left"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_fork_waits_for_the_import_so_that_the_child_has_it_whole(run):
    reports = run(
        """
        preload()
        child = os.fork()
        whole = "haystack_integrations.tools.mcp.transports.stdio" in sys.modules
        tool = MCPTool("pid", server_info)
        report(whole=whole, called=bool(tool.invoke()))
        tool.close()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert reports == [{"whole": True, "called": True}] * 2
