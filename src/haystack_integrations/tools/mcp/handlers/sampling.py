# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Model replies for servers ("sampling"), from a Haystack chat generator or a function.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, get_args

import mcp_types as types
from haystack import logging
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall

from haystack_integrations.tools.mcp.convert.resources import plain_base64
from haystack_integrations.tools.mcp.handlers import GenerationKwarg, takes_tools
from haystack_integrations.tools.mcp.handlers.calling import call
from haystack_integrations.tools.mcp.handlers.sampling_tools import (
    InvalidSamplingError,
    OfferedTools,
    assistant_message,
    required_choice,
    result_with_tools,
    tool_messages,
)

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.handlers import MCPSampling

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The specification's code for a refusal by the user.
REJECTED = -1

# How generators call these, where it is not "max_tokens", "temperature", "stop", "model" and "tool_choice"; by parts of
# their class names. None: there is no such parameter.
_NAMES: dict[str, dict[str, str | None]] = {
    "OpenAIResponses": {"max_tokens": "max_output_tokens", "stop": None},
    "Anthropic": {"stop": "stop_sequences", "model": None},
    "GoogleGenAI": {"max_tokens": "max_output_tokens", "stop": "stop_sequences", "model": None, "tool_choice": None},
    "Ollama": {"max_tokens": "num_predict", "model": None, "tool_choice": None},
    "AmazonBedrock": {"max_tokens": "maxTokens", "stop": "stopSequences", "model": None, "tool_choice": None},
    "Cohere": {"stop": "stop_sequences", "model": None},
    "HuggingFaceLocal": {"max_tokens": "max_new_tokens", "stop": None, "model": None, "tool_choice": None},
    "HuggingFaceAPI": {"model": None},
}

_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse"}

# Some warm-ups are not safe to run twice at the same time.
_warm_up_lock = threading.Lock()


class Sampler:
    """
    Answers the sampling requests of one session, within the limits of its settings.
    """

    def __init__(self, settings: MCPSampling, server: str) -> None:
        """
        Initialize the Sampler.

        :param settings: How to answer.
        :param server: Describes the server in logs.
        """
        self._settings = settings
        self._server = server
        # Whether servers may offer the model tools, which they are told.
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
        :returns: The model's reply, or why there is none.
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
        # Before anything is awaited: other requests may come in meanwhile.
        self._requests += 1
        self._tokens += granted
        used: int | None = None
        try:
            if settings.consent is not None and not await call(settings.consent, params):
                used = 0
                return types.ErrorData(code=REJECTED, message="User rejected sampling request")
            if settings.function is not None:
                reply = await call(settings.function, params)
            else:
                reply = await call(_generate, settings, params)
            used = _tokens_of(reply)
            return _result(reply, settings, params)
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


def _generate(settings: MCPSampling, params: types.CreateMessageRequestParams) -> ChatMessage:
    generator = settings.chat_generator
    messages = [ChatMessage.from_system(params.system_prompt)] if params.system_prompt else []
    offered = OfferedTools(params)
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
    Say in a generator's own words what a server asks for.

    :param settings: The generator and what is known of it.
    :param params: The request.
    :returns: The `generation_kwargs`.
    """
    class_name = type(settings.chat_generator).__name__
    names: dict[str, str | None] = {name: name for name in get_args(GenerationKwarg)}
    for part, known in _NAMES.items():
        if part in class_name:
            names |= known
    if class_name in ("OpenAIChatGenerator", "AzureOpenAIChatGenerator") and not _has_other_provider(settings):
        names["max_tokens"] = "max_completion_tokens"  # OpenAI's newer models refuse "max_tokens"
    for key, name in (settings.generation_kwargs_names or {}).items():
        names[key] = name
    values = {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "stop": params.stop_sequences or None,
        "model": _model(settings.models or [], params),
        "tool_choice": required_choice(settings.chat_generator) if _requires_tool(params) else None,
    }
    return {name: values[key] for key, name in names.items() if name is not None and values[key] is not None}


def _has_other_provider(settings: MCPSampling) -> bool:
    return bool(getattr(settings.chat_generator, "api_base_url", None))


def _model(models: list[str], params: types.CreateMessageRequestParams) -> str | None:
    preferences = params.model_preferences
    for hint in (preferences.hints if preferences is not None else None) or []:
        for model in models:
            if hint.name and hint.name.lower() in model.lower():
                return model
    return None


def _requires_tool(params: types.CreateMessageRequestParams) -> bool:
    return params.tool_choice is not None and params.tool_choice.mode == "required"


def _chat_messages(given: list[types.SamplingMessage], offered: OfferedTools) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    calls: dict[str, ToolCall] = {}
    for message in given:
        blocks = message.content_as_list
        results, calls = calls, {}
        if message.role == "assistant":
            if results:
                tool_messages([], results)  # it raises an error
            messages.append(assistant_message(blocks, offered))
            calls = {call.id: call for call in messages[-1].tool_calls if call.id is not None}
        elif results or any(isinstance(block, types.ToolResultContent) for block in blocks):
            messages += tool_messages(blocks, results)
        else:
            messages.append(ChatMessage.from_user(content_parts=[_part(block) for block in blocks]))
    return messages


def _part(block: types.SamplingMessageContentBlock) -> TextContent | ImageContent | FileContent:
    if isinstance(block, types.TextContent):
        return TextContent(block.text)
    if isinstance(block, types.ImageContent):
        return ImageContent(base64_image=plain_base64(block.data)[0], mime_type=block.mime_type, validation=False)
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
    reply: Any, settings: MCPSampling, params: types.CreateMessageRequestParams
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
    if params.tools or params.tool_choice:
        return result_with_tools(reply, OfferedTools(params), model=model, stop_reason=stop_reason)
    content: types.SamplingContent = types.TextContent(type="text", text=reply.text or "")
    if reply.text is None and reply.images:
        image = reply.images[0]
        content = types.ImageContent(
            type="image", data=image.base64_image, mime_type=image.mime_type or "application/octet-stream"
        )
    return types.CreateMessageResult(role="assistant", content=content, model=model, stop_reason=stop_reason)
