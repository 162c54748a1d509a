# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls of MCP tools without a language model: sync, async, and what errors look like.
"""

import asyncio
import json
import sys

from servers.running import CALCULATOR

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolNotFoundError,
    StdioServerInfo,
)

SERVER = StdioServerInfo(command=sys.executable, args=[str(CALCULATOR)])


def call_a_tool() -> None:
    with MCPTool(name="add", server_info=SERVER) as tool:
        print(f"add(5, 3) = {tool.call(a=5, b=3).value}")
        # `invoke`, as Haystack calls it, returns the MCP result as a JSON string.
        print(f"As Haystack has it: {json.loads(tool.invoke(a=5, b=3))['content']}")
        print(f"The model sees the tool as: {json.dumps(tool.tool_spec)}")


async def call_tools_at_the_same_time() -> None:
    async with MCPTool(name="multiply", server_info=SERVER) as tool:
        results = await asyncio.gather(*(tool.call_async(a=7, b=number) for number in range(1, 6)))
        print("7 times 1 to 5 =", [result.value for result in results])


def use_the_connection() -> None:
    # Tools and toolsets are built on MCPConnection, which returns types of the MCP SDK.
    with MCPConnection(SERVER, invocation_timeout=10) as connection:
        print("The server has:", [tool.name for tool in connection.list_tools()])
        print("divide(7, 2) =", connection.call_tool("divide", {"a": 7, "b": 2}).structured_content)
        status = connection.status()
        print(f"It is {status.state}, served {status.calls} calls, speaks protocol {status.protocol_version}")


def meet_errors() -> None:
    with MCPTool(name="divide", server_info=SERVER) as tool:
        try:
            tool.invoke(a=7, b=0)
        except MCPInvocationError as error:
            print(f"The tool failed:    {error}")
    try:
        MCPTool(name="modulo", server_info=SERVER).warm_up()
    except MCPToolNotFoundError as error:
        print(f"No such tool:       {error}")
    try:
        MCPTool(name="add", server_info=StdioServerInfo(command="no-such-command")).warm_up()
    except MCPConnectionError as error:
        print(f"No such server:     {error}")


if __name__ == "__main__":
    # Equal server infos share one connection, so this one keeps the server running between the functions.
    with MCPConnection(SERVER):
        call_a_tool()
        asyncio.run(call_tools_at_the_same_time())
        use_the_connection()
        meet_errors()
