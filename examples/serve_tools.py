# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tools of Haystack as an MCP server (Haystack 2 and 3).

Without arguments, a client in this process calls them. With `--stdio`, it serves an MCP client such as Claude Desktop:

    python examples/serve_tools.py --stdio
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.exceptions import ToolError
from haystack import Document, component
from haystack.tools import ComponentTool, Tool

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server, run_server

MENU = {"green tea": 2.5, "black tea": 2.0, "jam": 1.2, "scones": 3.4}


@component
class Menu:
    """Searches the menu of a tea room."""

    @component.output_types(documents=list[Document])
    def run(self, query: str):
        """
        Search the menu.

        :param query: What to look for.
        """
        found = {name: price for name, price in MENU.items() if query in name}
        return {"documents": [Document(content=name, meta={"price": price}) for name, price in found.items()]}


def order(name: str, count: int, guest: str) -> str:
    if name not in MENU:
        msg = f"There is no {name} today."
        raise ToolError(msg)
    return f"{guest} orders {count} x {name}: {count * MENU[name]:.2f}"


ORDER = Tool(
    name="order",
    description="Order something from the menu.",
    parameters={
        "type": "object",
        "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "guest": {"type": "string"}},
        "required": ["name", "count", "guest"],
    },
    function=order,
)

server = create_mcp_server(
    "tea room",
    tools=[ORDER, ComponentTool(Menu(), name="search_menu")],
    options={
        "order": ServeOptions(title="Order", bound={"guest": "Ada"}, annotations={"destructiveHint": True}, timeout=10),
        "search_menu": ServeOptions(max_documents=1, tags={"read"}),
    },
)


@server.tool
def opening_hours() -> str:
    """Tell when the tea room is open."""
    return "from 8 to 18"


async def main() -> None:
    async with Client(server) as client:
        for tool in await client.list_tools():
            print(f"{tool.name}({', '.join(tool.input_schema['properties'])}): {tool.description}")
        found = await client.call_tool("search_menu", {"query": "tea"})
        print(found.structured_content["documents"][0]["content"], "|", found.content[-1].text)
        print((await client.call_tool("order", {"name": "jam", "count": "2"})).content[0].text)
        try:
            await client.call_tool("order", {"name": "coffee", "count": 1})
        except ToolError as error:
            print(error)
        print((await client.call_tool("opening_hours", {})).content[0].text)


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        run_server(server)
    else:
        asyncio.run(main())
