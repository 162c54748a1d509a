# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tools in sampling: those that a server offers the model, the model's calls of them, and their results.

The server runs its tools itself. The model's calls go back to it, and it asks again with the results.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, NoReturn

import mcp_types as types
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.convert.results import model_text
from haystack_integrations.tools.mcp.convert.tool_names import assign_tool_names
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters

# The value of the generator's `tool_choice` that has the model use a tool, by parts of the generators' class names; the
# others have OpenAI's word for it, or no such parameter (sampling.py).
_REQUIRED: dict[str, Any] = {"Anthropic": {"type": "any"}, "Mistral": "any", "Cohere": "REQUIRED"}


class InvalidSamplingError(ValueError):
    """
    Raised when a request breaks the rules of the protocol. The server is told why.
    """


def required_choice(generator: Any) -> Any:
    """
    Say in a generator's own words that the model is to use a tool.

    :param generator: The generator.
    :returns: The value of its `tool_choice`.
    """
    name = type(generator).__name__
    return next((value for part, value in _REQUIRED.items() if part in name), "required")


class OfferedTools:
    """
    The tools of one request.

    Providers of models take fewer names than servers give their tools, so the model may know them by others.
    """

    def __init__(self, params: types.CreateMessageRequestParams) -> None:
        """
        Initialize the OfferedTools.

        :param params: The request.
        :raises InvalidSamplingError: If a tool is unusable.
        """
        self._definitions = params.tools or []
        mode = params.tool_choice.mode if params.tool_choice is not None else None
        # Messages may contain calls of tools that are no longer offered.
        used = [
            block.name
            for message in params.messages
            for block in message.content_as_list
            if isinstance(block, types.ToolUseContent)
        ]
        offered = [definition.name for definition in self._definitions]
        try:
            self._names = assign_tool_names([*offered, *(name for name in dict.fromkeys(used) if name not in offered)])
        except ValueError as error:
            raise InvalidSamplingError(str(error)) from None
        self.must_be_used: bool = mode == "required"
        self.may_be_used: bool = bool(self._definitions) and mode != "none"
        if self.must_be_used and not self._definitions:
            msg = "`toolChoice` requires a tool, but there are no `tools`"
            raise InvalidSamplingError(msg)

    def for_generator(self) -> list[Tool]:
        """
        Give the tools to a generator.

        :returns: Tools that only have a name, a description and parameters: the server runs its tools itself.
        :raises InvalidSamplingError: If a schema is unusable.
        """
        tools = []
        for definition in self._definitions if self.may_be_used else ():
            try:
                parameters = normalize_parameters(definition.input_schema)
            except ValueError as error:
                msg = f"the schema of tool '{definition.name}' is unusable: {error}"
                raise InvalidSamplingError(msg) from None
            name = self._names[definition.name]
            tools.append(
                Tool(name=name, description=definition.description or "", parameters=parameters, function=_not_here)
            )
        return tools

    def call_of(self, use: types.ToolUseContent) -> ToolCall:
        """
        Convert a call that the model made before.

        :param use: The call, as the server repeats it.
        :returns: The same for a generator.
        """
        return ToolCall(tool_name=self._names[use.name], arguments=use.input, id=use.id)

    def uses_of(self, calls: Iterable[ToolCall]) -> list[types.SamplingMessageContentBlock]:
        """
        Convert the calls that a model makes.

        :param calls: The calls of a reply.
        :returns: The same for the server.
        """
        remote_names = {name: remote_name for remote_name, name in self._names.items()}
        return [
            types.ToolUseContent(
                name=remote_names.get(call.tool_name, call.tool_name),
                id=call.id or f"call_{uuid.uuid4().hex}",  # some providers give none
                input=call.arguments,
            )
            for call in calls
        ]


def tool_messages(results: list[types.SamplingMessageContentBlock], calls: dict[str, ToolCall]) -> list[ChatMessage]:
    """
    Convert the results of a model's calls.

    :param results: The content of the message after the calls.
    :param calls: The calls of the message before, by their ids.
    :returns: A message of the role "tool" for each.
    :raises InvalidSamplingError: If they are not the results of these calls.
    """
    messages = []
    missing = dict(calls)
    for result in results:
        if not isinstance(result, types.ToolResultContent):
            msg = "Tool results mixed with other content"
            raise InvalidSamplingError(msg)
        origin = missing.pop(result.tool_use_id, None)
        if origin is None:
            msg = "A tool result has no tool use in the message before"
            raise InvalidSamplingError(msg)
        envelope = types.CallToolResult(content=result.content).model_dump_json(by_alias=True)
        if not result.content and result.structured_content is not None:
            envelope = result.structured_content
        messages.append(ChatMessage.from_tool(model_text(envelope), origin=origin, error=bool(result.is_error)))
    if missing:
        msg = "Tool result missing in request"
        raise InvalidSamplingError(msg)
    return messages


def assistant_message(blocks: list[types.SamplingMessageContentBlock], offered: OfferedTools) -> ChatMessage:
    """
    Convert what the model said before.

    :param blocks: The content of the message.
    :param offered: The tools of the request.
    :returns: The message.
    :raises InvalidSamplingError: If there is something else in it than text and calls.
    """
    texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    uses = [block for block in blocks if isinstance(block, types.ToolUseContent)]
    if len(texts) + len(uses) < len(blocks):
        msg = "messages of the assistant may contain text and tool uses only"
        raise InvalidSamplingError(msg)
    text = "\n".join(texts) if texts or not uses else None
    return ChatMessage.from_assistant(text, tool_calls=[offered.call_of(use) for use in uses])


def result_with_tools(
    reply: ChatMessage, offered: OfferedTools, *, model: str, stop_reason: str | None
) -> types.CreateMessageResultWithTools:
    """
    Convert the reply to a request with tools.

    :param reply: The reply.
    :param offered: The tools of the request.
    :param model: Name of the model.
    :param stop_reason: Why it stopped, in the words of the protocol.
    :returns: The answer to the server.
    """
    content: list[types.SamplingMessageContentBlock] = [
        types.TextContent(type="text", text=text) for text in reply.texts if text
    ]
    uses = offered.uses_of(reply.tool_calls) if offered.may_be_used else []
    if uses:
        stop_reason = "toolUse"
    elif offered.must_be_used:
        msg = "the model used no tool, although the server requires it"
        raise RuntimeError(msg)
    if not content and not uses:
        content.append(types.TextContent(type="text", text=""))
    return types.CreateMessageResultWithTools(
        role="assistant", content=[*content, *uses], model=model, stop_reason=stop_reason
    )


def _not_here(**_arguments: Any) -> NoReturn:
    msg = "The server runs this tool itself"
    raise RuntimeError(msg)
