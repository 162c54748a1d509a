# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from haystack import logging
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.any_tools import (
    Failure,
    ResolvedCall,
    failure_message,
    invoke,
    invoke_async,
    resolve,
    result_message,
    unusable_result,
)
from haystack_integrations.tools.mcp.budgets import REFUSED, CallCounts, note_refusal
from haystack_integrations.tools.mcp.registry.aliases import MCPAliasToolset

logger: logging.PatchedLogger = logging.getLogger(__name__)

Reply: TypeAlias = ChatMessage | Sequence[ChatMessage] | Mapping[str, Any]


class MCPFacade:
    """
    The tools of an alias for a loop of one's own around a chat generator.

    `MCPRegistry.get_mcp(alias)` makes one. A reply is a ChatMessage, the `replies` of a chat generator, or the
    dictionary that has them; of several, the first counts.

    ```python
    mcp = registry.get_mcp("search")
    messages = [ChatMessage.from_user("Which lamps are there?")]
    for turn in range(mcp.max_tool_call_turns + 1):
        reply = generator.run(messages=messages, tools=mcp.tools)["replies"][0]
        if not mcp.has_tool_calls(reply):
            break
        if turn < mcp.max_tool_call_turns:
            messages += mcp.process_completion_response(reply)
        else:
            messages += mcp.refuse_completion_response(reply)
    ```
    """

    def __init__(self, toolset: MCPAliasToolset) -> None:
        """
        Initialize the facade.

        :param toolset: The toolset of the alias.
        """
        self._toolset = toolset
        self._config = toolset.tool_config

    @property
    def tool_alias(self) -> str:
        """
        The alias.
        """
        return self._config.tool_alias

    @property
    def providers(self) -> list[str]:
        """
        Names of the servers.
        """
        return list(self._config.providers)

    @property
    def allow_tools(self) -> list[str] | None:
        """
        The only tools that are allowed; None for all.
        """
        return None if self._config.allow_tools is None else list(self._config.allow_tools)

    @property
    def max_tool_call_turns(self) -> int:
        """
        How many turns of tool calls there may be. The loop has to count them.
        """
        return self._config.max_tool_call_turns

    @property
    def timeout_sec(self) -> float | None:
        """
        How long one call may take, in seconds; None for no limit.
        """
        return self._config.timeout_sec

    @property
    def toolset(self) -> MCPAliasToolset:
        """
        The toolset of the alias.
        """
        return self._toolset

    @property
    def tools(self) -> list[Tool]:
        """
        The tools, for a chat generator. The servers are connected to if they are not.
        """
        self._toolset.warm_up()
        return list(self._toolset)

    def tool_call_count(self, reply: Reply) -> int:
        """
        Count the tool calls of a reply.

        :param reply: The reply.
        :returns: How many there are.
        """
        return len(first_reply(reply).tool_calls)

    def has_tool_calls(self, reply: Reply) -> bool:
        """
        Tell whether a reply calls tools.

        :param reply: The reply.
        :returns: Whether it does.
        """
        return self.tool_call_count(reply) > 0

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """
        Describe the tools in OpenAI's format. The servers are connected to if they are not.

        :returns: For each tool `{"type": "function", "function": {"name": …, "description": …, "parameters": …}}`.
        :raises MCPError: As `warm_up` of the toolset.
        """
        return openai_schemas(self.tools)

    async def get_tool_schemas_async(self) -> list[dict[str, Any]]:
        """
        Describe the tools like `get_tool_schemas`, without blocking the event loop.
        """
        await self._toolset.warm_up_async()
        return openai_schemas(list(self._toolset))

    def process_completion_response(self, reply: Reply) -> list[ChatMessage]:
        """
        Make the tool calls of a reply, all at the same time.

        What goes wrong with a call (an unknown tool, arguments that are no JSON object, an error of the tool, a
        timeout) becomes an error message for the model and does not concern the others.

        :param reply: The reply.
        :returns: The reply, and a tool message for each of its calls, in their order.
        :raises MCPError: As `warm_up` of the toolset.
        """
        message = first_reply(reply)
        if not message.tool_calls:
            return [message]
        tools = {tool.name: tool for tool in self.tools}
        # In threads: tools and output handlers of the user must not run in the event loop of all sessions.
        with ThreadPoolExecutor(len(message.tool_calls), thread_name_prefix="mcp-haystack-calls") as threads:
            answers = [
                threads.submit(contextvars.copy_context().run, _called, tools, call) for call in message.tool_calls
            ]
        return [message, *(answer.result() for answer in answers)]

    async def process_completion_response_async(self, reply: Reply) -> list[ChatMessage]:
        """
        Make the tool calls of a reply like `process_completion_response`, without blocking the event loop.
        """
        message = first_reply(reply)
        if not message.tool_calls:
            return [message]
        await self._toolset.warm_up_async()
        tools = {tool.name: tool for tool in self._toolset}
        answers = await asyncio.gather(
            *(_called_async(tools, call) for call in message.tool_calls), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):  # only after all calls have ended
                raise answer
        return [message, *(answer for answer in answers if isinstance(answer, ChatMessage))]

    def refuse_completion_response(self, reply: Reply, refusal_message: str | None = None) -> list[ChatMessage]:
        """
        Refuse the tool calls of a reply, because their budget is used up.

        :param reply: The reply.
        :param refusal_message: What the model is told. Default: that no more turns of tool calls are allowed.
        :returns: The reply, and a tool message with an error for each of its calls.
        """
        message = first_reply(reply)
        counts = CallCounts(max_turns=self.max_tool_call_turns)
        messages = [message]
        for call in message.tool_calls:
            limit = counts.reason_against(call.tool_name, {}, self.max_tool_call_turns) or ""
            note_refusal(call.tool_name, limit)
            text = counts.refusal(call.tool_name, limit) if refusal_message is None else refusal_message
            messages.append(ChatMessage.from_tool(text, origin=call, error=True, meta={REFUSED: limit}))
        return messages

    def __repr__(self) -> str:
        """
        Describe the facade without secrets.
        """
        return f"{type(self).__name__}({self._config!r})"


def openai_schemas(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """
    Describe tools in OpenAI's format.

    :param tools: The tools.
    :returns: Their descriptions.
    """
    return [{"type": "function", "function": dict(tool.tool_spec)} for tool in tools]


def first_reply(reply: Reply) -> ChatMessage:
    """
    Take the reply out of what a chat generator returns.

    :param reply: A ChatMessage, a list of them, or a dictionary with `replies`.
    :returns: The first one.
    :raises TypeError: If it is something else, or there is none.
    """
    found: Any = reply.get("replies") if isinstance(reply, Mapping) else reply
    if isinstance(found, Sequence) and found:
        found = found[0]
    if not isinstance(found, ChatMessage):
        msg = (
            "A reply must be a ChatMessage, a list of them, or a dictionary with `replies`, and not be empty, got "
            f"{type(reply).__name__}"
        )
        raise TypeError(msg)
    return found


def _called(tools: Mapping[str, Tool], call: ToolCall) -> ChatMessage:
    resolved = resolve(call, tools)
    return _answer(resolved, invoke(resolved, call.arguments))


async def _called_async(tools: Mapping[str, Tool], call: ToolCall) -> ChatMessage:
    resolved = resolve(call, tools)
    return _answer(resolved, await invoke_async(resolved, call.arguments))


def _answer(resolved: ResolvedCall, result: Any) -> ChatMessage:
    if resolved.tool is None or isinstance(result, Failure):
        return failure_message(resolved.call, result)
    try:
        return result_message(resolved.tool, resolved.call, result)
    except Exception as problem:  # of an output handler of the user's
        error = unusable_result(resolved.tool, problem)
        logger.warning("A tool call failed, and the model is told: {error}", error=str(error))
        return failure_message(resolved.call, error)
