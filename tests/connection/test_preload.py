# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The MCP SDK is imported outside the thread of an event loop, on request in the background, and completely after a fork.
"""

from tests.support.processes import leader
from tests.support.scripts import Script

# The preamble of other scripts imports all names, and thus the SDK.
PREAMBLE = """
import asyncio, contextlib, json, os, sys, threading
from haystack_integrations.tools.mcp import MCPConnectionError, MCPTool, StdioServerInfo, preload

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("mcp_types", "httpcore2", "anyio._backends._asyncio"):
            importing_threads.append(threading.current_thread().name)

importing_threads = []
sys.meta_path.insert(0, Watch())


arguments = json.loads(sys.argv[1])
server_info = StdioServerInfo(arguments["command"], arguments["args"])
"""


SCRIPT = """
def use_in_an_event_loop():
    from haystack_integrations.tools.mcp import StreamableHttpServerInfo

    async def main():
        async with MCPTool("pid", server_info) as tool:
            await tool.invoke_async()

    def slow():
        return [name for name in ("mcp", "httpx2", "aiohttp", "cryptography") if name in sys.modules]

    asyncio.run(main())
    over_stdio = slow()
    with contextlib.suppress(MCPConnectionError):
        MCPTool("pid", StreamableHttpServerInfo("http://127.0.0.1:9/mcp")).warm_up()
    return {"threads": importing_threads, "over_stdio": over_stdio, "over_http": "mcp" in slow()}


def hang():
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
    concurrency._IMPORT_TIMEOUT = 0.1
    tool = MCPTool("pid", server_info)
    failures = [failure_of(each) for each in (tool.warm_up, tool.invoke, lambda: asyncio.run(tool.invoke_async()))]
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    return {"failures": failures}


def preload_and_fork():
    preload()
    preload()
    child = os.fork()
    whole = "haystack_integrations.tools.mcp.transports.stdio" in sys.modules
    with MCPTool("pid", server_info) as tool:
        called = bool(tool.invoke())
    if not child:
        os._exit(0 if whole and called else 1)
    in_child = os.waitpid(child, 0)[1] == 0
    return {"whole": whole, "called": called, "in_child": in_child, "threads": importing_threads}


for use in (use_in_an_event_loop, hang, preload_and_fork):
    if not (child := os.fork()):
        os.write(1, (json.dumps(use()) + "\\n").encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_the_sdk_is_imported_in_another_thread_even_if_that_hangs_or_is_forked(tmp_path, stdio_server):
    in_loop, hung, preloaded = Script(tmp_path, stdio_server(), "uvloop", PREAMBLE).run(SCRIPT, start=leader)
    thread = "mcp-haystack-preload"
    # Only the types of the SDK are imported.
    assert in_loop == {"threads": [thread] * 3, "over_stdio": [], "over_http": False}
    kinds = [each.partition(":")[0] for each in hung["failures"]]
    assert kinds == ["MCPConnectionError", "MCPInvocationError", "MCPInvocationError"]
    assert all("importing the MCP SDK has taken more than 0.1 s" in each for each in hung["failures"])
    assert preloaded == {"whole": True, "called": True, "in_child": True, "threads": [thread] * 3}
