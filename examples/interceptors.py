# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Interceptors: functions that wrap each call of a server's tools, here for an Agent (Haystack 2 and 3).

`audit` prints each call, `polite` refuses some calls with a reason that the model sees, and `cached` answers repeated
calls without the server.
"""

import sys
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation
from servers.running import CALCULATOR

from haystack_integrations.tools.mcp import MCPToolCall, MCPToolset, StdioServerInfo

answers: dict[Any, Any] = {}


async def audit(call: MCPToolCall, call_next: Any) -> Any:
    print(f"audit: {call.name} on its way")
    result = await call_next(call)
    print(f"audit: {call.name} answered")
    return result


def polite(call: MCPToolCall, call_next: Any) -> Any:
    if call.name == "divide" and call.arguments.get("b") == 0:
        message = "nobody can divide by zero, so the server is not asked"
        raise PermissionError(message)
    return call_next(call)


def cached(call: MCPToolCall, call_next: Any) -> Any:
    key = (call.name, *sorted(call.arguments.items()))
    if key in answers:
        print(f"cached: {call.name}")
    else:
        answers[key] = call_next(call)
    return answers[key]


def main() -> None:
    server_info = StdioServerInfo(command=sys.executable, args=[str(CALCULATOR)])
    with MCPToolset(server_info, interceptors=[audit, polite, cached]) as toolset:
        agent = Agent(
            chat_generator=chat_generator(
                [ToolCall("multiply", {"a": 6, "b": 7})],
                [ToolCall("multiply", {"a": 6, "b": 7})],
                [ToolCall("divide", {"a": 1, "b": 0})],
            ),
            tools=toolset,
        )
        question = "How much is 6 times 7? Are you sure? And 1 divided by 0?"
        print_conversation(agent.run(messages=[ChatMessage.from_user(question)])["messages"])


if __name__ == "__main__":
    main()
