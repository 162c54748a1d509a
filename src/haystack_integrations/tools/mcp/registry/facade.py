# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The tools of an alias for a custom loop around a chat generator, and the loop that `MCPRegistry.generate` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypedDict

from haystack.dataclasses import ChatMessage, TextContent
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.any_tools import (
    Failure,
    ResolvedCall,
    answer,
    invoke,
    invoke_async,
    resolve,
    run_in_threads,
)
from haystack_integrations.tools.mcp.budgets import CountLimits, calls_of, refusal
from haystack_integrations.tools.mcp.concurrency import Call, call_async, call_here, call_if_there, run_here
from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.registry.aliases import MCPAliasToolset

Reply: TypeAlias = ChatMessage | Sequence[ChatMessage] | Mapping[str, Any]
Prompt: TypeAlias = str | ChatMessage | Sequence[ChatMessage]
Outcome: TypeAlias = tuple[Any, list[ChatMessage]]
Conversation: TypeAlias = Sequence[ChatMessage] | Mapping[str, Any] | Outcome


class MCPFacade:
    """
    The tools of an alias for a custom loop around a chat generator.

    `MCPRegistry.get_mcp(alias)` creates it. A reply is a ChatMessage, the `replies` of a chat generator, or the
    dictionary that contains them. If there are several replies, the first is used.

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
        The maximum number of turns with tool calls. The loop has to count them.
        """
        return self._config.max_tool_call_turns

    @property
    def timeout_sec(self) -> float | None:
        """
        The time limit of one call, in seconds; None for no limit.
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
        The tools, for a chat generator. Connects to the servers if necessary.
        """
        self._toolset.warm_up()
        return list(self._toolset)

    async def _tools_async(self) -> list[Tool]:
        await self._toolset.warm_up_async()
        return list(self._toolset)

    def tool_call_count(self, reply: Reply) -> int:
        """
        Count the tool calls of a reply.

        :param reply: The reply.
        :returns: The number of tool calls.
        """
        return len(_first_reply(reply).tool_calls)

    def has_tool_calls(self, reply: Reply) -> bool:
        """
        Return whether a reply calls tools.

        :param reply: The reply.
        :returns: True if it has tool calls.
        """
        return self.tool_call_count(reply) > 0

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """
        Describe the tools in OpenAI's format. Connects to the servers if necessary.

        :returns: For each tool `{"type": "function", "function": {"name": …, "description": …, "parameters": …}}`.
        :raises MCPError: As `warm_up` of the toolset.
        """
        return _openai_schemas(self.tools)

    async def get_tool_schemas_async(self) -> list[dict[str, Any]]:
        """
        Describe the tools like `get_tool_schemas`, without blocking the event loop.
        """
        return _openai_schemas(await self._tools_async())

    def process_completion_response(self, reply: Reply) -> list[ChatMessage]:
        """
        Make the tool calls of a reply concurrently.

        If a call fails (an unknown tool, arguments that are not a JSON object, an error of the tool, a timeout), the
        model gets an error message for it, and the other calls continue.

        :param reply: The reply.
        :returns: The reply, and a tool message for each of its calls, in their order.
        :raises MCPError: As `warm_up` of the toolset.
        """
        message = _first_reply(reply)
        if not message.tool_calls:
            return [message]
        tools = {tool.name: tool for tool in self.tools}
        # Even a single call gets a thread: the user's output handlers may fail if the caller is in an event loop.
        invocations = [partial(_answered, resolve(call, tools)) for call in message.tool_calls]
        return [message, *run_in_threads(invocations, len(invocations))]

    async def process_completion_response_async(self, reply: Reply) -> list[ChatMessage]:
        """
        Make the tool calls of a reply like `process_completion_response`, without blocking the event loop.
        """
        message = _first_reply(reply)
        if not message.tool_calls:
            return [message]
        tools = {tool.name: tool for tool in await self._tools_async()}
        calls = [resolve(call, tools) for call in message.tool_calls]
        invocations = [invoke_async(each, each.call.arguments) for each in calls]
        results = await asyncio.gather(*invocations, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Failure):  # raise after all have ended
                raise result
        return [message, *map(answer, calls, results)]

    def refuse_completion_response(self, reply: Reply) -> list[ChatMessage]:
        """
        Refuse the tool calls of a reply, because their budget is used up.

        :param reply: The reply.
        :returns: The reply, and a tool message with an error for each of its calls.
        """
        message = _first_reply(reply)
        limits = CountLimits(max_turns=self.max_tool_call_turns)
        limit = limits.reason_against("", {}, self.max_tool_call_turns) or ""
        return [message, *(refusal(call, limit) for call in message.tool_calls)]

    def __repr__(self) -> str:
        """
        Describe the facade without secrets.
        """
        return f"{type(self).__name__}({self._config!r})"


def _answered(resolved: ResolvedCall) -> ChatMessage:
    return answer(resolved, invoke(resolved, resolved.call.arguments))


def _openai_schemas(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {**tool.tool_spec, "description": _description(tool)}} for tool in tools]


def _description(tool: Tool) -> str:
    # OpenAI allows an empty description, so a tool without one needs no substitute here.
    definition = tool._definition if isinstance(tool, MCPTool) else None
    if definition is None or (definition.description or "").strip():
        return tool.description
    return "" if tool.description in (tool.name, definition.title) else tool.description


def _first_reply(reply: Reply) -> ChatMessage:
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


class GenerationOptions(TypedDict, total=False):
    """
    The options of `MCPRegistry.generate`.
    """

    parser: Callable[[str], Any] | None
    system_prompt: str | None
    generation_kwargs: dict[str, Any] | None


@dataclass
class _Generation:
    """
    The state of one generation: its messages so far, and its outcome at the end.
    """

    facade: MCPFacade | None
    prompt: Prompt
    parser: Callable[[str], Any] | None = None
    system_prompt: str | None = None
    generation_kwargs: dict[str, Any] | None = None
    # The output, and all messages.
    outcome: Outcome | None = None
    _turns: int = 0
    _has_refused: bool = False

    def __post_init__(self) -> None:
        prompt = ChatMessage.from_user(self.prompt) if isinstance(self.prompt, str) else self.prompt
        self.messages: list[ChatMessage] = [prompt] if isinstance(prompt, ChatMessage) else list(prompt)
        if self.system_prompt:
            self.messages.insert(0, ChatMessage.from_system(self.system_prompt))

    def parameters(self, tools: Sequence[Tool]) -> dict[str, Any]:
        """
        Return the parameters of the next call of the chat generator.
        """
        parameters: dict[str, Any] = {"messages": list(self.messages)}
        if self.generation_kwargs is not None:
            # A model that must call a tool in each turn would never answer.
            dropped = {"tool_choice"} if self._turns or self._has_refused else set()
            kept = {name: value for name, value in self.generation_kwargs.items() if name not in dropped}
            parameters["generation_kwargs"] = kept
        return {**parameters, "tools": tools} if tools else parameters

    def take(self, replied: Reply) -> ChatMessage | None:
        """
        Process a reply: end the generation, refuse the reply's tool calls, or return it so that they are made.

        :param replied: The result of the chat generator.
        :returns: The reply, if its tool calls must be made now.
        :raises MCPBudgetExceededError: If the model calls tools even after its calls were refused.
        """
        reply = _first_reply(replied)
        facade = self.facade
        if facade is None or not reply.tool_calls:
            self.messages.append(reply)
            text = reply.text or ""
            self.outcome = (text if self.parser is None else self.parser(text)), self.messages
            return None
        if self._turns < facade.max_tool_call_turns:
            self._turns += 1
            return reply
        if self._has_refused:
            msg = (
                f"The generation with '{facade.tool_alias}' was stopped: the model went on to call tools after "
                f"{self._turns} turns of tool calls, although they were refused"
            )
            raise MCPBudgetExceededError(msg, self.messages)
        self._has_refused = True
        self.messages += facade.refuse_completion_response(reply)
        return None


def generate(chat_generator: Any, facade: MCPFacade | None, prompt: Prompt, options: GenerationOptions) -> Outcome:
    """
    Run the loop of a model and its tools.

    :param chat_generator: The chat generator.
    :param facade: The tools; None for a model without tools.
    :param prompt: The prompt: a text or messages.
    :param options: The options of `MCPRegistry.generate`.
    :returns: The output, and all messages.
    :raises MCPBudgetExceededError: If the model does not stop calling tools.
    """
    if hasattr(chat_generator, "warm_up"):
        chat_generator.warm_up()
    return run_here(_generate(call_here, chat_generator, facade, _Generation(facade, prompt, **options)))


async def generate_async(
    chat_generator: Any, facade: MCPFacade | None, prompt: Prompt, options: GenerationOptions
) -> Outcome:
    """
    Run the loop like `generate`, without blocking the event loop.
    """
    await call_if_there(chat_generator, "warm_up")
    return await _generate(call_async, chat_generator, facade, _Generation(facade, prompt, **options))


async def _generate(call: Call, chat_generator: Any, facade: MCPFacade | None, generation: _Generation) -> Outcome:
    while generation.outcome is None:
        if facade is not None:
            await call(facade.toolset, "warm_up")
        parameters = generation.parameters([] if facade is None else list(facade.toolset))
        reply = generation.take(await call(chat_generator, "run", **parameters))
        if facade is not None and reply is not None:
            with calls_of(generation.messages):
                generation.messages += await call(facade, "process_completion_response", reply)
    return generation.outcome


# Traces


def conversation_trace(conversation: Conversation) -> list[dict[str, Any]]:
    """
    Return a trace of a conversation, with tool calls and their results, that can be stored as JSON.

    ```python
    result = agent.run(messages=[ChatMessage.from_user("Which lamps are there?")])
    json.dumps(conversation_trace(result))
    ```

    :param conversation: ChatMessages, the result of an Agent, or the output and messages of `MCPRegistry.generate`.
    :returns: A dictionary for each message, in the format of OpenAI's Chat Completions API.
    :raises TypeError: If it is anything else.
    """
    found: Any = conversation.get("messages") if isinstance(conversation, Mapping) else conversation
    if isinstance(found, tuple) and found and isinstance(found[-1], list):
        found = found[-1]
    if not isinstance(found, Sequence) or not all(isinstance(message, ChatMessage) for message in found):
        msg = (
            "A conversation must be a list of ChatMessages, the result of an Agent, or the output and messages of "
            f"`generate`, got {type(conversation).__name__}"
        )
        raise TypeError(msg)
    return [_openai(message) for message in found]


def _openai(message: ChatMessage) -> dict[str, Any]:
    results = message.tool_call_results
    if results and not isinstance(results[0].result, str):
        # The API accepts only text in tool results; a remark replaces other content.
        [result] = results
        parts = [part.text if isinstance(part, TextContent) else f"[{type(part).__name__}]" for part in result.result]
        return {"role": "tool", "tool_call_id": result.origin.id, "content": "\n".join(parts)}
    if message.is_from("assistant") and not message.texts and not message.tool_calls:
        return {"role": "assistant", "content": ""}  # Haystack 2 refuses a reply without content
    return message.to_openai_dict_format(require_tool_call_ids=False)
