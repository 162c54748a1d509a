# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A chat generator without a model: it plays given replies, and records its input.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, StreamingCallbackT, ToolCall
from haystack.tools import ToolsType, flatten_tools_or_toolsets


def say(text: str) -> ChatMessage:
    """
    Return a reply of text.
    """
    return ChatMessage.from_assistant(text)


def call(tool_name: str, /, **arguments: Any) -> ChatMessage:
    """
    Return a reply that calls one tool.
    """
    return calls((tool_name, arguments))


def calls(*tool_calls: tuple[str, dict[str, Any]]) -> ChatMessage:
    """
    Return a reply that calls several tools at once, each given as its name and arguments.
    """
    prepared = [
        ToolCall(tool_name=name, arguments=arguments, id=f"call_{number}")
        for number, (name, arguments) in enumerate(tool_calls)
    ]
    return ChatMessage.from_assistant(tool_calls=prepared)


@dataclass
class Turn:
    """
    The input of one run of the generator. Toolsets are resolved to the single tools, as a model is shown them.
    """

    messages: list[ChatMessage]
    tool_names: list[str]
    tool_specs: list[dict[str, Any]]

    @property
    def tool_results(self) -> list[Any]:
        """
        The tool results so far, as the model sees them.
        """
        return [result.result for message in self.messages for result in message.tool_call_results]


@component
class ScriptedChatGenerator:
    """
    Plays the replies in order, one per run, and records its messages and tools in `turns`.

    A test may set `before_reply`, which is called with the number of each reply after the tools were read.

    :param replies: The replies, or their dictionaries.
    """

    before_reply: Callable[[int], object] = staticmethod(lambda _: None)

    def __init__(self, replies: list[ChatMessage]) -> None:
        self.replies = [ChatMessage.from_dict(reply) if isinstance(reply, dict) else reply for reply in replies]
        self.turns: list[Turn] = []
        self.generation_kwargs: list[dict[str, Any] | None] = []
        self._lock = threading.Lock()

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, list[ChatMessage]]:
        self.generation_kwargs.append(generation_kwargs)
        return {"replies": [self._next(messages, tools)]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, list[ChatMessage]]:
        self.generation_kwargs.append(generation_kwargs)
        return {"replies": [self._next(messages, tools)]}

    def _next(self, messages: list[ChatMessage], tools: ToolsType | None) -> ChatMessage:
        shown = flatten_tools_or_toolsets(tools)
        turn = Turn(list(messages), [tool.name for tool in shown], [tool.tool_spec for tool in shown])
        with self._lock:
            self.turns.append(turn)
            number = len(self.turns)
        self.before_reply(number)
        if number > len(self.replies):
            raise RuntimeError(f"the script has only {len(self.replies)} replies")
        return self.replies[number - 1]

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, replies=[reply.to_dict() for reply in self.replies])

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ScriptedChatGenerator":
        return default_from_dict(cls, data)


class CallsUntilRefused(ScriptedChatGenerator):
    """
    Plays the first reply until a call is refused, and then the second one, in any number of concurrent runs.
    """

    def _next(self, messages: list[ChatMessage], tools: ToolsType | None) -> ChatMessage:
        insisting, final = self.replies
        return final if any(each.error for message in messages for each in message.tool_call_results) else insisting
