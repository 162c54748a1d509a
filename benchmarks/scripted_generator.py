# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""A chat generator without a model: it requests tool calls once and then answers."""

from typing import Any

from haystack import component
from haystack.dataclasses import ChatMessage, ToolCall


@component
class ScriptedChatGenerator:
    """
    Requests `calls` calls of one tool in the first step, and finishes in the second.

    :param tool_name: The tool to call.
    :param arguments: The arguments of every call.
    :param calls: Number of calls in the first step's message.
    """

    def __init__(self, tool_name: str = "echo", arguments: dict[str, Any] | None = None, calls: int = 8) -> None:
        """Store the script."""
        self.tool_name = tool_name
        self.arguments = arguments or {"text": "hello"}
        self.calls = calls

    def _reply(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
        if messages[-1].tool_call_results:
            return {"replies": [ChatMessage.from_assistant("done")]}
        calls = [ToolCall(self.tool_name, dict(self.arguments), id=f"call-{index}") for index in range(self.calls)]
        return {"replies": [ChatMessage.from_assistant(tool_calls=calls)]}

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, list[ChatMessage]]:  # noqa: ARG002
        """Return the scripted reply."""
        return self._reply(messages)

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, list[ChatMessage]]:  # noqa: ARG002
        """Return the scripted reply."""
        return self._reply(messages)
