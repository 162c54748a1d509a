# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Limits for an Agent's tools: a budget of calls, and confirmation by a person (Haystack 2 and 3).

The person here is a function that declines divisions. Haystack's own SimpleConsoleUI asks in the terminal.
"""

import json
import sys
from pathlib import Path

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.hooks import mcp as hooks
from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, call_budget
from haystack_integrations.tools.mcp.registry import conversation_trace

CALCULATOR = Path(__file__).parent / "servers" / "calculator.py"
QUESTION = ChatMessage.from_user("How much are 5 + 3, 6 x 7 and 7 / 2?")

try:
    from haystack.hooks.human_in_the_loop import ConfirmationUIResult
except ImportError:  # Haystack 2
    from haystack.human_in_the_loop import ConfirmationUIResult


class DeclinesDivisions:
    def get_user_confirmation(self, tool_name, tool_description, tool_params):  # noqa: ARG002
        print(f"Asked: may the model call {tool_name}?")
        return ConfirmationUIResult(action="reject" if tool_name == "divide" else "confirm")


def with_confirmation(toolset):
    rules = {"trusted": [toolset], "overrides": {"multiply": "never"}}
    try:
        return {"hooks": {"before_tool": [hooks.MCPConfirmationHook(DeclinesDivisions(), **rules)]}}
    except ImportError:  # Haystack 2
        strategies = hooks.confirmation_strategies_for(toolset, DeclinesDivisions(), **rules)
        return {"confirmation_strategies": strategies}


def main() -> None:
    with MCPToolset(StdioServerInfo(command=sys.executable, args=[str(CALCULATOR)])) as toolset:
        print("A budget of 2 calls, for a model that makes one too many:")
        additions = [ToolCall("add", {"a": 5, "b": number}) for number in (3, 4, 5)]
        agent = Agent(chat_generator=chat_generator(additions), tools=toolset)
        with call_budget(max_calls=2) as budget:
            print_conversation(agent.run(messages=[QUESTION])["messages"])
        print(f"{budget.calls} calls made, {budget.refused} refused")

        print("A person who declines divisions:")
        wanted = [[ToolCall("divide", {"a": 7, "b": 2})], [ToolCall("multiply", {"a": 6, "b": 7})]]
        agent = Agent(chat_generator=chat_generator(*wanted), tools=toolset, **with_confirmation(toolset))
        result = agent.run(messages=[QUESTION])
        print_conversation(result["messages"])
        trace = json.dumps(conversation_trace(result))
        print(f"A trace of {len(trace)} characters")


if __name__ == "__main__":
    main()
