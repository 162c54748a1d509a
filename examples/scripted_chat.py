# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Used by the other examples: a chat generator that needs no language model, and a printer for conversations.

`chat_generator` returns a real `OpenAIChatGenerator` when `OPENAI_API_KEY` is set.
"""

import os
from typing import Any

from haystack import component, default_to_dict
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent, StreamingCallbackT, TextContent, ToolCall
from haystack.tools import ToolsType, flatten_tools_or_toolsets


@component
class ScriptedChatGenerator:
    """
    A chat generator that follows a script instead of asking a language model.

    It makes the script's tool calls turn by turn, and then answers with their results. Like a model, it knows only the
    messages of the conversation and can call only the tools that it sees.

    :param script: The tool calls of each turn.
    """

    def __init__(self, script: list[list[ToolCall]]) -> None:
        self.script = script

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,  # noqa: ARG002
        generation_kwargs: dict[str, Any] | None = None,  # noqa: ARG002
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, list[ChatMessage]]:
        return {"replies": [self._reply(messages, tools)]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,  # noqa: ARG002
        generation_kwargs: dict[str, Any] | None = None,  # noqa: ARG002
        *,
        tools: ToolsType | None = None,
    ) -> dict[str, list[ChatMessage]]:
        return {"replies": [self._reply(messages, tools)]}

    def _reply(self, messages: list[ChatMessage], tools: ToolsType | None) -> ChatMessage:
        # Turns are counted by the ids of the calls, because Haystack makes two messages of a turn in which a person
        # declines one of two calls.
        turn = len({(call.id or "").rpartition("_")[0] for message in messages for call in message.tool_calls})
        if turn >= len(self.script):
            results = [describe(result.result) for message in messages for result in message.tool_call_results]
            return ChatMessage.from_assistant(f"The tools say: {'; '.join(results)}")
        available = [tool.name for tool in flatten_tools_or_toolsets(tools)]
        for call in self.script[turn]:
            if call.tool_name not in available:
                msg = f"The script calls '{call.tool_name}', but the available tools are {available}"
                raise ValueError(msg)
        return ChatMessage.from_assistant(
            tool_calls=[
                ToolCall(call.tool_name, call.arguments, id=f"call_{turn}_{number}")
                for number, call in enumerate(self.script[turn])
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, script=[[call.to_dict() for call in turn] for turn in self.script])

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ScriptedChatGenerator":
        return cls([[ToolCall.from_dict(call) for call in turn] for turn in data["init_parameters"]["script"]])


def chat_generator(*script: list[ToolCall]) -> Any:
    """
    Make the chat generator of an example.

    :param script: The tool calls of each turn. A real model decides on its own.
    :returns: An OpenAIChatGenerator if `OPENAI_API_KEY` is set, else a ScriptedChatGenerator.
    """
    if os.environ.get("OPENAI_API_KEY"):
        generator = OpenAIChatGenerator()
        print(f"Chat generator: OpenAI, {generator.model}")
        return generator
    print("Chat generator: scripted, because OPENAI_API_KEY is not set")
    return ScriptedChatGenerator(list(script))


def describe(result: Any) -> str:
    """
    Describe a tool result as the model sees it.

    :param result: Text, or a list of content blocks.
    :returns: The text, with short notes for images and files.
    """
    if isinstance(result, str):
        return result
    return " + ".join(
        part.text
        if isinstance(part, TextContent)
        else f"<{part.mime_type}, {len(part.base64_image)} characters of base64>"
        if isinstance(part, ImageContent)
        else type(part).__name__
        for part in result
    )


def print_conversation(messages: list[ChatMessage]) -> None:
    """
    Print messages, tool calls and tool results, each on a new line.

    :param messages: The messages.
    """
    for message in messages:
        if message.text:
            text = message.text.replace("\n", "\n" + 11 * " ")
            print(f"{message.role.value:>9}: {text}")
        for call in message.tool_calls:
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            print(f"{'call':>9}: {call.tool_name}({arguments})")
        for result in message.tool_call_results:
            text = describe(result.result).replace("\n", "\n" + 11 * " ")
            print(f"{'error' if result.error else 'result':>9}: {text}")


if __name__ == "__main__":
    print(__doc__.strip())
