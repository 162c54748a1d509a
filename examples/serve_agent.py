# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An Agent as a tool of an MCP server, which asks the client to approve orders (Haystack 2 and 3).

Without arguments, a client in this process gives it a task. With `--stdio`, it serves an MCP client such as Claude
Desktop:

    python examples/serve_agent.py --stdio
"""

import asyncio
import sys

from fastmcp import Client
from haystack.components.agents import Agent
from haystack.dataclasses import ToolCall
from haystack.tools import tool
from scripted_chat import chat_generator

from haystack_integrations.tools.mcp.serving import (
    ClientConfirmationStrategy,
    ServeOptions,
    create_mcp_server,
    run_server,
)

try:
    from haystack.hooks.human_in_the_loop import ConfirmationHook
except ImportError:  # Haystack 2
    ConfirmationHook = None

PRICES = {"chair": 120, "lamp": 45}


@tool
def price(name: str) -> int:
    """Tell the price of something, in euros."""
    return PRICES[name]


@tool
def order(name: str, count: int) -> str:
    """Order something."""
    return f"{count} x {name} ordered"


def with_approval() -> dict:
    strategies = {"order": ClientConfirmationStrategy()}
    if ConfirmationHook is None:
        return {"confirmation_strategies": strategies}
    return {"hooks": {"before_tool": [ConfirmationHook(strategies)]}}


# The tool calls of the model, if there is no key for a real one.
SCRIPT = [
    [ToolCall("price", {"name": "lamp"})],
    [ToolCall("order", {"name": "lamp", "count": 2}), ToolCall("order", {"name": "chair", "count": 9})],
]
buyer = Agent(chat_generator=chat_generator(*SCRIPT), tools=[price, order], **with_approval())
server = create_mcp_server(
    "office",
    agents={"buyer": buyer},
    options={"buyer": ServeOptions(description="Buys furniture. Say what and how many.")},
)


async def show(done: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
    print(f"  {message}")


async def ask(message, response_type, params, context):  # noqa: ARG001
    approve = "lamp" in message
    print(f"Asked: {message}: {'yes' if approve else 'no'}")
    return {"approve": approve, "feedback": "" if approve else "We have enough chairs."}


async def main() -> None:
    async with Client(server, elicitation_handler=ask) as client:
        (served,) = await client.list_tools()
        print(f"{served.name}: {served.description}")
        result = await client.call_tool("buyer", {"task": "We need light and chairs."}, progress_handler=show)
        print(result.structured_content["answer"])


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        run_server(server)
    else:
        asyncio.run(main())
