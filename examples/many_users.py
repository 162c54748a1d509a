# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One tool for many users at the same time: each call is made on behalf of one user. The tool is shaped for the model.
"""

import asyncio

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset, ToolOverride, mcp_request_context

server = MCPServer("diary", log_level="WARNING")


@server.tool()
def write(context: Context, text: str, day: str) -> str:
    """Write into the diary of the user."""
    return f"{context.request_context.meta['name']} on {day}: {text}"


async def main() -> None:
    # The model sees `note(text)`, without the day.
    toolset = MCPToolset(
        InProcessServerInfo(server),
        tool_overrides={
            "write": ToolOverride(name="note", description="Note something.", bound_arguments={"day": "Monday"})
        },
    )
    await toolset.warm_up_async()
    [note] = toolset
    print(f"{note.name}: {note.description} It takes {', '.join(note.parameters['properties'])}.")

    async def speak(name: str) -> str:
        # Blocks of other users, in other tasks, have no effect here. `user=name` gives each user a login and a session.
        with mcp_request_context(user=name, meta={"name": name}):
            return (await note.call_async(text=f"a day of {name}")).value

    for result in await asyncio.gather(*map(speak, ["Ada", "Bob"])):
        print(result)
    await toolset.close_async()


if __name__ == "__main__":
    asyncio.run(main())
