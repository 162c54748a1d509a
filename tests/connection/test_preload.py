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
        whole = "haystack_integrations.tools.mcp.transports.stdio.client" in sys.modules
        tool = MCPTool("pid", server_info)
        report(whole=whole, called=bool(tool.invoke()))
        tool.close()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert reports == [{"whole": True, "called": True}] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_fork_waits_for_what_a_blocking_call_imports(run):
    child, parent = run(
        """
        import time

        module = "haystack_integrations.tools.mcp.transports.stdio.client"

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == module:
                    importing.set()
                    forking.wait(30)
                    time.sleep(0.5)  # a fork that does not wait for the import is faster than this

        importing, forking = threading.Event(), threading.Event()
        sys.meta_path.insert(0, Slow())
        os.register_at_fork(before=forking.set)
        tool = MCPTool("pid", server_info)
        thread = threading.Thread(target=tool.warm_up)
        thread.start()
        assert importing.wait(30)
        child = os.fork()
        whole = hasattr(sys.modules.get(module), "StdioClient")
        if child:
            assert os.waitpid(child, 0)[1] == 0
            thread.join()
            tool.close()
            report(whole=whole)
        else:
            report(whole=whole)
            os._exit(0)
        """
    )
    assert (child, parent) == ({"whole": True}, {"whole": True})


def test_a_program_may_end_during_the_import(run):
    assert run("preload()") == []


def test_types_that_cannot_be_imported_are_the_error_of_who_needs_it(run):
    (facts,) = run(
        """
        sys.modules["mcp_types"] = None
        preload()
        try:
            asyncio.run(MCPTool("pid", server_info).warm_up_async())
        except ImportError as error:
            report(said=str(error))
        """
    )
    assert "mcp_types" in facts["said"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_lack_of_threads_leaves_the_import_to_the_connection(run):
    (facts,) = run(
        """
        start = threading.Thread.start

        def refuse(thread):
            if thread.name == "mcp-haystack-preload":
                raise RuntimeError("can't start new thread")
            start(thread)

        threading.Thread.start = refuse
        preload()
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

        async def main():
            tool = MCPTool("pid", server_info)
            await asyncio.wait_for(tool.warm_up_async(), 30)
            await tool.close_async()

        asyncio.run(main())
        report(is_imported="haystack_integrations.tools.mcp.transports.stdio.client" in sys.modules)
        """
    )
    assert facts == {"is_imported": True}
