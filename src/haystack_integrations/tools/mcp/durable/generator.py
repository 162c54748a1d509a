# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from haystack import component, default_from_dict, default_to_dict
from haystack.core.serialization import component_to_dict
from haystack.dataclasses import ChatMessage, StreamingCallbackT, StreamingChunk
from haystack.tools import ToolsType, flatten_tools_or_toolsets
from haystack.utils import deserialize_chatgenerator_inplace

from haystack_integrations.tools.mcp.connection.recording import call_recorder
from haystack_integrations.tools.mcp.durable.run import OpenRun, request_of
from haystack_integrations.tools.mcp.import_paths import stored_in


@component
@stored_in("haystack_integrations.tools.mcp.durable")
class JournaledChatGenerator:
    """
    A chat generator whose replies are recorded where a durable run is open, and not asked for again.

    Outside of a run it is the generator itself. It keeps nothing of a run, so that one object serves several at once.
    """

    def __init__(self, chat_generator: Any, name: str = "generator") -> None:
        """
        Initialize the JournaledChatGenerator; `RunJournal.generator` does that.

        :param chat_generator: The chat generator.
        :param name: Its name in the journal. Generators that are asked at the same time need different names.
        :raises ValueError: If `chat_generator` has no `run`.
        """
        if not callable(getattr(chat_generator, "run", None)):
            msg = f"`chat_generator` must be a chat generator, got {type(chat_generator).__name__}"
            raise ValueError(msg)
        self.chat_generator = chat_generator
        self.name = name

    def warm_up(self) -> None:
        """
        Warm the chat generator up.
        """
        if hasattr(self.chat_generator, "warm_up"):
            self.chat_generator.warm_up()

    async def warm_up_async(self) -> None:
        """
        Warm the chat generator up for an event loop.
        """
        if hasattr(self.chat_generator, "warm_up_async"):
            await self.chat_generator.warm_up_async()
        else:
            await asyncio.to_thread(self.warm_up)

    def close(self) -> None:
        """
        Release what the chat generator holds, such as its HTTP client.
        """
        if hasattr(self.chat_generator, "close"):
            self.chat_generator.close()

    async def close_async(self) -> None:
        """
        Release what the chat generator holds for an event loop.
        """
        if hasattr(self.chat_generator, "close_async"):
            await self.chat_generator.close_async()
        else:
            self.close()

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """
        Return the recorded reply, or ask the model.

        :param messages: The conversation.
        :param streaming_callback: Gets the reply while it arrives; a recorded one in one piece.
        :param generation_kwargs: Parameters of the model.
        :param tools: The tools that the model may call.
        :param tools_strict: Whether the model is held to their schemas.
        :returns: `replies`.
        """
        options = _given(
            streaming_callback=streaming_callback,
            generation_kwargs=generation_kwargs,
            tools=tools,
            tools_strict=tools_strict,
        )
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return self.chat_generator.run(messages=messages, **options)  # type: ignore[no-any-return]
        with opened.replying(self.name, request_of(messages, flatten_tools_or_toolsets(tools))) as reply:
            if not reply.is_recorded:
                result: dict[str, Any] = self.chat_generator.run(messages=messages, **options)
                reply.record([message.to_dict() for message in result["replies"]])
                return result
        replies = [ChatMessage.from_dict(message) for message in reply.result]
        for chunk in _chunks(replies):
            if streaming_callback is not None:
                streaming_callback(chunk)
        return {"replies": replies}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """
        Return the recorded reply, or ask the model, without blocking the event loop.

        :param messages: The conversation.
        :param streaming_callback: Gets the reply while it arrives; a recorded one in one piece.
        :param generation_kwargs: Parameters of the model.
        :param tools: The tools that the model may call.
        :param tools_strict: Whether the model is held to their schemas.
        :returns: `replies`.
        """
        options = _given(
            streaming_callback=streaming_callback,
            generation_kwargs=generation_kwargs,
            tools=tools,
            tools_strict=tools_strict,
        )
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return await self._ask(messages, options)
        with opened.replying(self.name, request_of(messages, flatten_tools_or_toolsets(tools))) as reply:
            if not reply.is_recorded:
                result = await self._ask(messages, options)
                await asyncio.to_thread(reply.record, [message.to_dict() for message in result["replies"]])
                return result
        replies = [ChatMessage.from_dict(message) for message in reply.result]
        for chunk in _chunks(replies):
            if streaming_callback is not None and inspect.isawaitable(waiting := streaming_callback(chunk)):
                await waiting
        return {"replies": replies}

    async def _ask(self, messages: list[ChatMessage], options: dict[str, Any]) -> dict[str, Any]:
        if hasattr(self.chat_generator, "run_async"):
            return await self.chat_generator.run_async(messages=messages, **options)  # type: ignore[no-any-return]
        return await asyncio.to_thread(self.chat_generator.run, messages=messages, **options)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the generator.

        :returns: A dictionary.
        """
        inner = component_to_dict(self.chat_generator, "chat_generator")
        data: dict[str, Any] = default_to_dict(self, chat_generator=inner, name=self.name)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> JournaledChatGenerator:
        """
        Deserialize a generator.

        :param data: The result of `to_dict`.
        :returns: The generator.
        """
        deserialize_chatgenerator_inplace(data["init_parameters"], key="chat_generator")
        loaded: JournaledChatGenerator = default_from_dict(cls, data)
        return loaded


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _chunks(messages: list[ChatMessage]) -> list[StreamingChunk]:
    return [StreamingChunk(content=message.text) for message in messages if message.text]
