# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The import of the MCP SDK: not in the thread of an event loop, in the background if one wishes, and whole after a fork.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StdioServerFactory
from tests.support.processes import leader
from tests.support.scripts import Script

# That of other scripts imports all names, and the SDK with them.
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

arguments = json.loads(sys.argv[1])
server_info = StdioServerInfo(arguments["command"], arguments["args"])
"""


@pytest.fixture
def run(tmp_path: Path, stdio_server: StdioServerFactory) -> Callable[[str], list[dict[str, Any]]]:
    return partial(Script(tmp_path, stdio_server(), "uvloop", PREAMBLE).run, start=leader)


def test_the_first_use_from_an_event_loop_imports_of_the_sdk_its_types_only_in_another_thread(run):
    (facts,) = run(
        """
        from haystack_integrations.tools.mcp import StreamableHttpServerInfo

        async def main():
            tool = MCPTool("pid", server_info)
            await tool.invoke_async()
            await tool.close_async()

        def slow():
            return [name for name in ("mcp", "httpx2", "aiohttp", "cryptography") if name in sys.modules]

        asyncio.run(main())
        over_stdio = slow()
        with contextlib.suppress(MCPConnectionError):
            MCPTool("pid", StreamableHttpServerInfo("http://127.0.0.1:9/mcp")).warm_up()
        report(threads=importing_threads, over_stdio=over_stdio, over_http="mcp" in slow())
        """
    )
    assert facts == {"threads": ["mcp-haystack-preload"], "over_stdio": [], "over_http": False}


def test_an_import_that_hangs_fails_what_waits_for_it_and_holds_up_no_fork(run):
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

        def failure_of(function):
            try:
                function()
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        sys.meta_path.insert(0, Hanging())
        concurrency._LONGEST_IMPORT = 0.1
        tool = MCPTool("pid", server_info)
        report(failures=[failure_of(each) for each in (tool.warm_up, tool.invoke, lambda: asyncio.run(tool.ainvoke()))])
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
        """
    )
    kinds = [each.partition(":")[0] for each in facts["failures"]]
    assert kinds == ["MCPConnectionError", "MCPInvocationError", "MCPInvocationError"]
    assert all("importing the MCP SDK has taken more than 0.1 s" in each for each in facts["failures"])


def test_preload_imports_once_in_the_background_and_a_fork_waits_so_that_the_child_has_it_whole(run):
    reports = run(
        """
        preload()
        preload()
        child = os.fork()
        whole = "haystack_integrations.tools.mcp.transports.stdio" in sys.modules
        tool = MCPTool("pid", server_info)
        report(whole=whole, called=bool(tool.invoke()), threads=importing_threads)
        tool.close()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert reports == [{"whole": True, "called": True, "threads": ["mcp-haystack-preload"]}] * 2
