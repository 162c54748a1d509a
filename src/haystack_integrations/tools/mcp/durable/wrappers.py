# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is wrapped so that a run records it: chat generators, and Haystack's own tools.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import haystack.dataclasses
from haystack import component, default_from_dict, default_to_dict
from haystack.core.serialization import component_to_dict
from haystack.dataclasses import ChatMessage, StreamingCallbackT, StreamingChunk
from haystack.tools import ComponentTool, Toolset, ToolsType, flatten_tools_or_toolsets
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool
from haystack.utils import deserialize_chatgenerator_inplace

from haystack_integrations.tools.mcp.connection.requests import call_recorder
from haystack_integrations.tools.mcp.durable.run import OpenRun, failure, in_scope, request_of
from haystack_integrations.tools.mcp.durable.store import Entry
from haystack_integrations.tools.mcp.errors import MCPRunError
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_tool import MCPTool

# The member that says of which class a stored object is.
_TYPE: Final = "haystack.dataclasses"


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


def journaled_tools(tools: Iterable[Tool | Toolset]) -> list[Tool]:
    """
    Make tools whose calls are recorded where a run is open.

    :param tools: Tools, and toolsets whose tools are taken.
    :returns: Copies of the tools; MCP tools as they are.
    :raises ValueError: If something is no tool.
    """
    found: list[Tool] = []
    for each in tools:
        if isinstance(each, Toolset):
            found += journaled_tools(list(each))
        elif isinstance(each, MCPTool):
            found.append(each)
        elif isinstance(each, Tool):
            found.append(_journaled(each))
        else:
            msg = f"`tools` must be Tools and Toolsets, got {type(each).__name__}"
            raise ValueError(msg)
    return found


def _journaled(tool: Tool) -> Tool:
    kind = type(tool)
    # A subclass of its class, so that Haystack finds in it what it looks for, stored under the name of that class.
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made = copy.copy(tool)
    made.__class__ = type(kind.__name__, (_Journaled, kind), names)
    return made


class _Journaled(Tool):
    """
    What is put before the class of a tool.
    """

    def invoke(self, **kwargs: Any) -> Any:
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return super().invoke(**kwargs)
        entry, is_due = opened.begin(self.name, self._recognized_by(kwargs), may_repeat=partial(_runs_an_agent, self))
        if not is_due:
            return self._recorded(entry)
        try:
            with in_scope(_inside(entry)):
                result = super().invoke(**kwargs)
        except ToolInvocationError as error:
            opened.note(entry, "failed", failure("", str(error)))
            raise
        opened.note(entry, "done", _stored(result))
        return result

    async def invoke_async(self, **kwargs: Any) -> Any:
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return await super().invoke_async(**kwargs)  # type: ignore[misc, unused-ignore]
        entry, is_due = await asyncio.to_thread(
            opened.begin, self.name, self._recognized_by(kwargs), may_repeat=partial(_runs_an_agent, self)
        )
        if not is_due:
            return self._recorded(entry)
        try:
            with in_scope(_inside(entry)):
                result = await super().invoke_async(**kwargs)  # type: ignore[misc, unused-ignore]
        except ToolInvocationError as error:
            await asyncio.to_thread(opened.note, entry, "failed", failure("", str(error)))
            raise
        await asyncio.to_thread(opened.note, entry, "done", _stored(result))
        return result

    def _recognized_by(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from_state = {*(self.inputs_from_state or {}).values()}
        return {name: value for name, value in arguments.items() if name not in from_state and not callable(value)}

    def _recorded(self, entry: Entry) -> Any:
        if entry.state == "failed":
            raise ToolInvocationError(entry.result["message"], tool_name=self.name)
        if "content" in entry.result:  # what `RunJournal.decide` was told, which knows no kinds of tools
            return entry.result["content"][0]["text"]
        return _decoded(entry.result["value"])


def _inside(entry: Entry) -> str:
    place = entry.place
    return f"{place.scope}/{place.step}.{place.name}.{place.fingerprint[:12]}.{place.occurrence}"


def _runs_an_agent(tool: Tool) -> bool:
    """
    Return whether all that a tool does is recorded itself, so that it is entered again.
    """
    component = getattr(tool, "_component", None) if isinstance(tool, ComponentTool) else None
    return isinstance(getattr(component, "chat_generator", None), JournaledChatGenerator)


def _stored(result: Any) -> dict[str, Any]:
    try:
        return {"value": json.loads(json.dumps(result, default=_encoded))}
    except (TypeError, ValueError) as error:
        msg = (
            f"A result of type {type(result).__name__} cannot be recorded: journaled tools must return JSON, or "
            "objects of haystack.dataclasses in it. The tool has run."
        )
        raise MCPRunError(msg) from error


def _encoded(value: Any) -> dict[str, Any]:
    name = type(value).__name__
    if getattr(haystack.dataclasses, name, None) is not type(value):
        msg = f"{name} is no JSON"
        raise TypeError(msg)
    return {_TYPE: name, "data": value.to_dict()}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TYPE, "data"}:
        return getattr(haystack.dataclasses, value[_TYPE]).from_dict(value["data"])
    return {name: _decoded(each) for name, each in value.items()}
