# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One call, seen from inside: what it leaves on the heap, and what its deadline does.
"""

import asyncio

import pytest
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPCallTimeoutError,
    MCPConnection,
)
from tests.support.rows import rows
from tests.support.waiting import wait_until

# In a process of its own, where nobody else makes or drops objects meanwhile.
OBJECTS_OF_A_CALL = """
import asyncio, mcp
from pathlib import Path

CALLS = 200  # enough for what is there once, such as a timer, not to count
LOG = Path(server_info.args[server_info.args.index("--calls-file") + 1])


async def objects_of_a_call(call, earlier):
    # How many objects of one call in flight the garbage collector has to look at.
    gc.collect()
    gc.disable()
    known = {id(thing) for thing in gc.get_objects()}
    calls = [asyncio.ensure_future(call()) for _ in range(CALLS)]
    while LOG.read_text().count("sleep {") < earlier + CALLS:
        await asyncio.sleep(0.05)
    count = sum(id(thing) not in known for thing in gc.get_objects())
    gc.enable()
    for task in calls:
        task.cancel()
    await asyncio.wait(calls)
    return count / CALLS


async def main():
    arguments = {"seconds": 600}
    parameters = mcp.StdioServerParameters(command=server_info.command, args=server_info.args)
    with open(os.devnull, "w") as unheard:
        async with mcp.Client(mcp.stdio_client(parameters, errlog=unheard), mode="legacy") as client:
            sdk = await objects_of_a_call(lambda: client.call_tool("sleep", arguments), 0)
    async with MCPToolset(server_info) as toolset:
        ours = await objects_of_a_call(lambda: toolset["sleep"].invoke_async(**arguments), CALLS)
    report(sdk=sdk, ours=ours)


asyncio.run(main())
"""


def test_a_call_in_flight_has_at_most_half_as_many_objects_again_as_that_of_the_sdk(script_with):
    # With 256 calls in flight, it is these objects that make Python collect the garbage of the whole process.
    (objects,) = script_with(loop="asyncio").run(OBJECTS_OF_A_CALL)
    assert objects["sdk"] > 50
    assert objects["ours"] <= 1.5 * objects["sdk"]


@rows("is_inner_late", [False, True])
def test_a_tool_in_process_that_calls_another_of_its_server_is_held_to_its_own_deadline(is_inner_late):
    server = MCPServer("nested", log_level="WARNING")

    @server.tool()
    async def inner() -> str:
        await asyncio.sleep(60 if is_inner_late else 0)
        return "inner"

    @server.tool()
    async def outer() -> str:
        await connection.call_tool_async("inner", invocation_timeout=60)
        await asyncio.sleep(60)
        return "outer"

    with MCPConnection(InProcessServerInfo(server), invocation_timeout=0.3) as connection:
        with pytest.raises(MCPCallTimeoutError, match=r"`outer`: timed out after 0\.3 seconds"):
            connection.call_tool("outer")
        wait_until(lambda: not connection.status().in_flight, "the end of the inner call, too")
