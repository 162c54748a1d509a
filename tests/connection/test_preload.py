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
import asyncio, contextlib, json, os, sys, threading
from haystack_integrations.tools.mcp import MCPConnectionError, MCPTool, StdioServerInfo, preload

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp_types":
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
        slow = [name for name in ("mcp", "httpx2", "aiohttp", "cryptography") if name in sys.modules]
        report(threads=importing_threads, slow=slow)
        """
    )
    assert facts == {"threads": ["mcp-haystack-preload"], "slow": []}


def test_a_connection_over_http_without_tokens_imports_nothing_of_the_sdk_but_its_types(run):
    (facts,) = run(
        """
        from haystack_integrations.tools.mcp import StreamableHttpServerInfo

        with contextlib.suppress(MCPConnectionError):
            MCPTool("pid", StreamableHttpServerInfo("http://127.0.0.1:9/mcp")).warm_up()
        client = "haystack_integrations.tools.mcp.transports.http_client"
        report(threads=importing_threads, client=client in sys.modules, sdk="mcp" in sys.modules)
        """
    )
    assert facts == {"threads": ["mcp-haystack-preload"], "client": True, "sdk": False}


def test_the_command_line_begins_without_the_sdk(run):
    (facts,) = run(
        """
        import haystack_integrations.tools.mcp.cli.app

        report(sdk=[name for name in ("mcp", "mcp_types", "fastmcp") if name in sys.modules])
        """
    )
    assert facts == {"sdk": []}


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


def test_an_import_that_hangs_fails_what_waits_for_it(run):
    (facts,) = run(
        """
        import importlib.machinery
        from haystack_integrations.tools.mcp import concurrency

        class Hanging:  # while it is executed: while it is searched for, Python lets nobody fork
            def find_spec(self, name, path=None, target=None):
                return importlib.machinery.ModuleSpec(name, self) if name == "mcp_types" else None

            def create_module(self, spec):
                return None

            def exec_module(self, module):
                threading.Event().wait()

        sys.meta_path.insert(0, Hanging())
        concurrency._LONGEST_IMPORT = 0.1
        tool = MCPTool("pid", server_info)

        def failure_of(function):
            try:
                function()
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        failures = [failure_of(each) for each in (tool.warm_up, tool.invoke, lambda: asyncio.run(tool.invoke_async()))]
        waiting = [thread for thread in threading.enumerate() if thread.name == "mcp-haystack-worker"]
        for thread in waiting:
            thread.join(10)
        if hasattr(os, "fork"):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        report(failures=failures, waiting=sum(thread.is_alive() for thread in waiting))
        """
    )
    assert [each.partition(":")[0] for each in facts["failures"]] == [
        "MCPConnectionError",
        "MCPInvocationError",
        "MCPInvocationError",
    ]
    assert all("importing the MCP SDK has taken more than 0.1 s" in each for each in facts["failures"])
    assert facts["waiting"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_process_that_can_start_no_thread_for_the_import_cannot_connect(run):
    (facts,) = run(
        """
        start = threading.Thread.start

        def refuse(self):
            if self.name == "mcp-haystack-preload":
                raise RuntimeError("can't start new thread")
            start(self)

        threading.Thread.start = refuse
        try:
            MCPTool("add", server_info).warm_up()
        except MCPConnectionError as error:
            report(error=str(error))
        """
    )
    assert facts["error"].startswith("Failed to connect to") and "can't start new thread" in facts["error"]


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
