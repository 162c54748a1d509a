# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Model replies for servers ("sampling"), from a Haystack chat generator or a function.

A server may offer the model tools, which it runs itself: the model's tool calls are returned to the server, which sends
another request with their results.
"""

from __future__ import annotations

import inspect
import threading
import uuid
from collections.abc import Iterable
from typing import Any, NoReturn

import mcp_types as types
from haystack import logging
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.convert.content import image_type, model_text
from haystack_integrations.tools.mcp.convert.resources import plain_base64
from haystack_integrations.tools.mcp.convert.tool_names import assign_tool_names
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters
from haystack_integrations.tools.mcp.handlers.calling import call
from haystack_integrations.tools.mcp.handlers.mcp_handlers import MCPSampling, takes_tools

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The specification's code for a refusal by the user.
REJECTED = -1

# The generators' names for "max_tokens", "temperature", "stop" and "tool_choice" where they differ, by parts of the
# generators' class names. None: there is no such parameter.
_NAMES: dict[str, dict[str, str | None]] = {
    "OpenAIResponses": {"max_tokens": "max_output_tokens", "stop": None},
    "Anthropic": {"stop": "stop_sequences"},
    "GoogleGenAI": {"max_tokens": "max_output_tokens", "stop": "stop_sequences", "tool_choice": None},
    "Ollama": {"max_tokens": "num_predict", "tool_choice": None},
    "AmazonBedrock": {"max_tokens": "maxTokens", "stop": "stopSequences", "tool_choice": None},
    "Cohere": {"stop": "stop_sequences"},
    "HuggingFaceLocal": {"max_tokens": "max_new_tokens", "stop": None, "tool_choice": None},
}

# The value of `tool_choice` that forces the model to use a tool, by parts of the generators' class names; the others
# use OpenAI's value, or have no such parameter.
_REQUIRED: dict[str, Any] = {"Anthropic": {"type": "any"}, "Mistral": "any", "Cohere": "REQUIRED"}

_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse"}

# Some generators cannot be warmed up by two threads at the same time.
_warm_up_lock = threading.Lock()


class InvalidSamplingError(ValueError):
    """
    Raised when a request breaks the rules of the protocol. The server receives the message.
    """


class Sampler:
    """
    Answers the sampling requests of one session, within the limits of its settings.
    """

    def __init__(self, settings: MCPSampling, server: str) -> None:
        """
        Initialize the Sampler.

        :param settings: The user's settings.
        :param server: Describes the server in logs.
        """
        self._settings = settings
        self._server = server
        # Whether servers may offer the model tools; the client's capabilities declare it.
        generator = settings.chat_generator
        self.takes_tools: bool = settings.tools or (
            settings.tools is None and generator is not None and takes_tools(generator)
        )
        self._requests = 0
        self._tokens = 0

    async def answer(
        self, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """
        Answer a request.

        :param params: The request.
        :returns: The model's reply, or an error that says why there is none.
        """
        settings = self._settings
        if not self.takes_tools and (params.tools or params.tool_choice):
            return types.ErrorData(code=types.INVALID_PARAMS, message="Sampling with tools is not supported")
        if settings.max_requests is not None and self._requests >= settings.max_requests:
            return self._refuse("max_requests", settings.max_requests)
        granted = params.max_tokens
        if settings.max_tokens is not None:
            granted = min(granted, settings.max_tokens - self._tokens)
            if granted <= 0:
                return self._refuse("max_tokens", settings.max_tokens)
            params = params.model_copy(update={"max_tokens": granted})
        # Count before the first await, because other requests may arrive meanwhile.
        self._requests += 1
        self._tokens += granted
        used: int | None = None
        try:
            offered = OfferedTools(params)
            agrees = settings.consent is None or await call(settings.consent, params)
            if agrees is not True:  # not `not agrees`, because a string such as "no" is truthy
                used = 0
                return types.ErrorData(code=REJECTED, message="User rejected sampling request")
            if settings.function is not None:
                reply = await call(settings.function, params)
            else:
                reply = await call(_generate, settings, params, offered)
            used = _tokens_of(reply)
            return _result(reply, settings, params, offered)
        except InvalidSamplingError as error:
            used = 0
            return types.ErrorData(code=types.INVALID_PARAMS, message=str(error))
        finally:
            if used is not None:
                self._tokens += used - granted

    def _refuse(self, name: str, limit: int) -> types.ErrorData:
        logger.warning(
            "Refused a sampling request of {server}: the limit of `{field}`={limit} in MCPSampling is reached",
            server=self._server,
            field=name,
            limit=limit,
        )
        return types.ErrorData(code=REJECTED, message="The client's limit for sampling in this session is reached")


class OfferedTools:
    """
    The tools of one request.

    Model providers accept fewer names than servers use for tools, so the model may see them under other names.
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
        Return the tools for a generator.

        :returns: Tools with a name, a description and parameters only, because the server runs its tools itself.
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
        Convert an earlier tool call of the model.

        :param use: The call, as the server repeats it.
        :returns: The call for a generator.
        """
        return ToolCall(tool_name=self._names[use.name], arguments=use.input, id=use.id)

    def uses_of(self, calls: Iterable[ToolCall]) -> list[types.SamplingMessageContentBlock]:
        """
        Convert the tool calls of a model's reply.

        :param calls: The calls of the reply.
        :returns: The calls for the server.
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


def _not_here(**_arguments: Any) -> NoReturn:
    msg = "The server runs this tool itself"
    raise RuntimeError(msg)


def _generate(settings: MCPSampling, params: types.CreateMessageRequestParams, offered: OfferedTools) -> ChatMessage:
    generator = settings.chat_generator
    messages = [ChatMessage.from_system(params.system_prompt)] if params.system_prompt else []
    messages += _chat_messages(params.messages, offered)
    if callable(getattr(generator, "warm_up", None)):
        with _warm_up_lock:
            generator.warm_up()
    inputs: dict[str, Any] = {"messages": messages}
    if _takes(generator, "generation_kwargs"):
        inputs["generation_kwargs"] = generation_kwargs(settings, params)
    if tools := offered.for_generator():
        inputs["tools"] = tools
    replies = generator.run(**inputs)["replies"]
    if not replies:
        msg = "the chat generator gave no reply"
        raise RuntimeError(msg)
    reply: ChatMessage = replies[0]
    return reply


def _takes(generator: Any, parameter: str) -> bool:
    parameters = inspect.signature(generator.run).parameters
    return parameter in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def generation_kwargs(settings: MCPSampling, params: types.CreateMessageRequestParams) -> dict[str, Any]:
    """
    Translate the parameters of a request to those of a generator.

    :param settings: The settings with the generator.
    :param params: The request.
    :returns: The `generation_kwargs`.
    """
    # A wrapper, such as a JournaledChatGenerator, has the generator of the model.
    generator = getattr(settings.chat_generator, "chat_generator", settings.chat_generator)
    class_name = type(generator).__name__
    has_other_provider = bool(getattr(generator, "api_base_url", None))
    requires_tool = params.tool_choice is not None and params.tool_choice.mode == "required"
    required_choice = next((value for part, value in _REQUIRED.items() if part in class_name), "required")
    names: dict[str, str | None] = {name: name for name in ("max_tokens", "temperature", "stop", "tool_choice")}
    for part, known in _NAMES.items():
        if part in class_name:
            names |= known
    if class_name in ("OpenAIChatGenerator", "AzureOpenAIChatGenerator") and not has_other_provider:
        names["max_tokens"] = "max_completion_tokens"  # OpenAI's newer models refuse "max_tokens"
    values = {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "stop": params.stop_sequences or None,
        "tool_choice": required_choice if requires_tool else None,
    }
    return {name: values[key] for key, name in names.items() if name is not None and values[key] is not None}


def _chat_messages(given: list[types.SamplingMessage], offered: OfferedTools) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    calls: dict[str, ToolCall] = {}
    for message in given:
        blocks = message.content_as_list
        if message.role == "assistant":
            messages.append(_assistant_message(blocks, offered))
            calls = {call.id: call for call in messages[-1].tool_calls if call.id is not None}
        elif any(isinstance(block, types.ToolResultContent) for block in blocks):
            messages += _tool_messages(blocks, calls)
        else:
            messages.append(ChatMessage.from_user(content_parts=[_part(block) for block in blocks]))
    return messages


def _tool_messages(results: list[types.SamplingMessageContentBlock], calls: dict[str, ToolCall]) -> list[ChatMessage]:
    messages = []
    for result in results:
        if not isinstance(result, types.ToolResultContent):
            msg = "Tool results mixed with other content"
            raise InvalidSamplingError(msg)
        origin = calls.get(result.tool_use_id)
        if origin is None:
            msg = "A tool result has no tool use in the message before"
            raise InvalidSamplingError(msg)
        envelope = types.CallToolResult(content=result.content).model_dump_json(by_alias=True)
        if not result.content and result.structured_content is not None:
            envelope = result.structured_content
        messages.append(ChatMessage.from_tool(model_text(envelope), origin=origin, error=bool(result.is_error)))
    return messages


def _assistant_message(blocks: list[types.SamplingMessageContentBlock], offered: OfferedTools) -> ChatMessage:
    texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    uses = [block for block in blocks if isinstance(block, types.ToolUseContent)]
    if len(texts) + len(uses) < len(blocks):
        msg = "messages of the assistant may contain text and tool uses only"
        raise InvalidSamplingError(msg)
    text = "\n".join(texts) if texts or not uses else None
    return ChatMessage.from_assistant(text, tool_calls=[offered.call_of(use) for use in uses])


def _part(block: types.SamplingMessageContentBlock) -> TextContent | ImageContent | FileContent:
    if isinstance(block, types.TextContent):
        return TextContent(block.text)
    if isinstance(block, types.ImageContent):
        data, _ = plain_base64(block.data)
        return ImageContent(base64_image=data, mime_type=image_type(data, block.mime_type), validation=False)
    if isinstance(block, types.AudioContent):
        return FileContent(base64_data=plain_base64(block.data)[0], mime_type=block.mime_type, validation=False)
    msg = f"content of the type {block.type} is not supported"
    raise ValueError(msg)


def _tokens_of(reply: Any) -> int | None:
    if not isinstance(reply, ChatMessage):
        return None
    usage = reply.meta.get("usage")
    count = usage.get("completion_tokens", usage.get("output_tokens")) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count >= 0 else None


def _result(
    reply: Any, settings: MCPSampling, params: types.CreateMessageRequestParams, offered: OfferedTools
) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
    if isinstance(reply, (types.CreateMessageResult, types.CreateMessageResultWithTools, types.ErrorData)):
        return reply
    if isinstance(reply, str):
        reply = ChatMessage.from_assistant(reply)
    if not isinstance(reply, ChatMessage):
        msg = (
            f"the function returned {type(reply).__name__}; it must return a string, a ChatMessage, or a "
            "CreateMessageResult or ErrorData of the MCP SDK"
        )
        raise TypeError(msg)
    reason = reply.meta.get("finish_reason") or reply.meta.get("stop_reason")
    stop_reason = _STOP_REASONS.get(str(reason), str(reason)) if reason is not None else None
    source = settings.function if settings.chat_generator is None else settings.chat_generator
    named = reply.meta.get("model") or getattr(source, "model", None) or getattr(source, "__name__", None)
    model = named if isinstance(named, str) else type(source).__name__
    if not (params.tools or params.tool_choice):
        content: types.SamplingContent = types.TextContent(type="text", text=reply.text or "")
        if reply.text is None and reply.images:
            image = reply.images[0]
            content = types.ImageContent(
                type="image", data=image.base64_image, mime_type=image.mime_type or "application/octet-stream"
            )
        return types.CreateMessageResult(role="assistant", content=content, model=model, stop_reason=stop_reason)
    uses = offered.uses_of(reply.tool_calls) if offered.may_be_used else []
    if offered.must_be_used and not uses:
        msg = "the model used no tool, although the server requires it"
        raise RuntimeError(msg)
    texts = [text for text in reply.texts if text] or ([] if uses else [""])
    return types.CreateMessageResultWithTools(
        role="assistant",
        content=[*(types.TextContent(type="text", text=text) for text in texts), *uses],
        model=model,
        stop_reason="toolUse" if uses else stop_reason,
    )
