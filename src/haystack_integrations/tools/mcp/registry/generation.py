# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One generation with tools: the loop around a chat generator that `MCPRegistry.generate` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypedDict

from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp.budgets import calls_of
from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError
from haystack_integrations.tools.mcp.registry.facade import MCPFacade, first_reply

Prompt: TypeAlias = str | ChatMessage | Sequence[ChatMessage]
Outcome: TypeAlias = tuple[Any, list[ChatMessage]]


class GenerationOptions(TypedDict, total=False):
    """
    The options of `MCPRegistry.generate`.
    """

    parser: Callable[[str], Any] | None
    system_prompt: str | None
    generation_kwargs: dict[str, Any] | None


def _steps(
    facade: MCPFacade | None,
    prompt: Prompt,
    parser: Callable[[str], Any] | None = None,
    system_prompt: str | None = None,
    generation_kwargs: dict[str, Any] | None = None,
) -> Generator[tuple[str, Any], Any, Outcome]:
    # Yields what is to be done, and is sent what came of it: "tools", "model" with its parameters, or "calls" with the
    # reply that has them and the messages before.
    messages: list[ChatMessage] = [ChatMessage.from_system(system_prompt)] if system_prompt else []
    if isinstance(prompt, str):
        messages.append(ChatMessage.from_user(prompt))
    else:
        messages += [prompt] if isinstance(prompt, ChatMessage) else list(prompt)
    turns, has_refused = 0, False
    while True:
        parameters: dict[str, Any] = {"messages": list(messages)}
        if generation_kwargs is not None:
            # A model that must call a tool in each turn would never answer.
            dropped = {"tool_choice"} if turns or has_refused else set()
            kept = {name: value for name, value in generation_kwargs.items() if name not in dropped}
            parameters["generation_kwargs"] = kept
        if facade is not None and (tools := (yield "tools", None)):
            parameters["tools"] = tools
        reply = first_reply((yield "model", parameters))
        if facade is None or not reply.tool_calls:
            messages.append(reply)
            text = reply.text or ""
            return (text if parser is None else parser(text)), messages
        if turns < facade.max_tool_call_turns:
            turns += 1
            messages += yield "calls", (reply, messages)
        elif not has_refused:
            has_refused = True
            messages += facade.refuse_completion_response(reply)
        else:
            msg = (
                f"The generation with '{facade.tool_alias}' was stopped: the model went on to call tools after {turns} "
                "turns of tool calls, although it was told that they are refused"
            )
            raise MCPBudgetExceededError(msg, messages)


def generate(chat_generator: Any, facade: MCPFacade | None, prompt: Prompt, options: GenerationOptions) -> Outcome:
    """
    Have a model answer.

    :param chat_generator: The chat generator.
    :param facade: The tools; None for none.
    :param prompt: What the model is asked.
    :param options: The options of `MCPRegistry.generate`.
    :returns: The output, and all messages.
    :raises MCPBudgetExceededError: If the model does not stop calling tools.
    """
    if hasattr(chat_generator, "warm_up"):
        chat_generator.warm_up()
    steps, answer = _steps(facade, prompt, **options), None
    while True:
        try:
            step, given = steps.send(answer)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        if facade is None or step == "model":
            answer = chat_generator.run(**given)
        elif step == "tools":
            answer = facade.tools
        else:
            reply, messages = given
            with calls_of(messages):
                answer = facade.process_completion_response(reply)


async def generate_async(
    chat_generator: Any, facade: MCPFacade | None, prompt: Prompt, options: GenerationOptions
) -> Outcome:
    """
    Have a model answer like `generate`, without blocking the event loop.
    """
    if hasattr(chat_generator, "warm_up_async"):
        await chat_generator.warm_up_async()
    elif hasattr(chat_generator, "warm_up"):
        await asyncio.to_thread(chat_generator.warm_up)
    steps, answer = _steps(facade, prompt, **options), None
    while True:
        try:
            step, given = steps.send(answer)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        if facade is None or step == "model":
            if hasattr(chat_generator, "run_async"):
                answer = await chat_generator.run_async(**given)
            else:
                answer = await asyncio.to_thread(chat_generator.run, **given)
        elif step == "tools":
            await facade.toolset.warm_up_async()
            answer = list(facade.toolset)
        else:
            reply, messages = given
            with calls_of(messages):
                answer = await facade.process_completion_response_async(reply)
