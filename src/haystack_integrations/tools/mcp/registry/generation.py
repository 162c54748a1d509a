# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One generation with tools: the loop around a chat generator that `MCPRegistry.generate` runs.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError
from haystack_integrations.tools.mcp.registry.facade import MCPFacade, first_reply
from haystack_integrations.tools.mcp.tool_failures import calls_of

# After so many refusals, a model that goes on to call tools is stopped.
MAX_REFUSED_TURNS: Final = 2


class Generation:
    """
    What a generation has come to.
    """

    def __init__(
        self,
        prompt: str | ChatMessage | Sequence[ChatMessage],
        facade: MCPFacade | None,
        parser: Callable[[str], Any] | None,
        system_prompt: str | None,
        generation_kwargs: dict[str, Any] | None,
    ) -> None:
        """
        Begin a generation. The parameters are those of `MCPRegistry.generate`.

        :param prompt: What the model is asked.
        :param facade: The tools; None for none.
        :param parser: Makes the output of the text.
        :param system_prompt: What comes before.
        :param generation_kwargs: Parameters of the model.
        """
        self.messages: list[ChatMessage] = [ChatMessage.from_system(system_prompt)] if system_prompt else []
        if isinstance(prompt, str):
            self.messages.append(ChatMessage.from_user(prompt))
        else:
            self.messages += [prompt] if isinstance(prompt, ChatMessage) else list(prompt)
        self.facade = facade
        self._parser = parser
        self._generation_kwargs = generation_kwargs
        self._turns = 0
        self._refused_turns = 0

    def parameters(self, tools: list[Any] | None) -> dict[str, Any]:
        """
        Say what to run the chat generator with.

        :param tools: The tools.
        :returns: The parameters.
        """
        parameters: dict[str, Any] = {"messages": list(self.messages)}
        if self._generation_kwargs is not None:
            # A model that must call a tool in each turn would never answer.
            dropped = {"tool_choice"} if self._turns or self._refused_turns else set()
            kwargs = {name: value for name, value in self._generation_kwargs.items() if name not in dropped}
            parameters["generation_kwargs"] = kwargs
        if tools:
            parameters["tools"] = tools
        return parameters

    def must_refuse(self) -> bool:
        """
        Begin a turn of tool calls.

        :returns: Whether it is to be refused.
        :raises MCPBudgetExceededError: If the model has been refused too often.
        """
        if self.facade is not None and self._turns < self.facade.max_tool_call_turns:
            self._turns += 1
            return False
        self._refused_turns += 1
        if self._refused_turns >= MAX_REFUSED_TURNS:
            alias = self.facade.tool_alias if self.facade is not None else ""
            msg = (
                f"The generation with '{alias}' was stopped: the model went on to call tools after {self._turns} turns "
                "of tool calls, although it was told that they are refused"
            )
            raise MCPBudgetExceededError(msg, list(self.messages))
        return True

    def finish(self, reply: ChatMessage) -> tuple[Any, list[ChatMessage]]:
        """
        End the generation.

        :param reply: The reply that calls no tools.
        :returns: The output, and all messages.
        """
        self.messages.append(reply)
        text = reply.text or ""
        return (text if self._parser is None else self._parser(text)), self.messages


def generate(chat_generator: Any, generation: Generation) -> tuple[Any, list[ChatMessage]]:
    """
    Run a generation.

    :param chat_generator: The chat generator.
    :param generation: The generation.
    :returns: The output, and all messages.
    :raises MCPBudgetExceededError: If the model does not stop calling tools.
    """
    facade = generation.facade
    if hasattr(chat_generator, "warm_up"):
        chat_generator.warm_up()
    while True:
        tools = None if facade is None else facade.tools
        reply = first_reply(chat_generator.run(**generation.parameters(tools)))
        if facade is None or not facade.has_tool_calls(reply):
            return generation.finish(reply)
        if generation.must_refuse():
            generation.messages += facade.refuse_completion_response(reply)
        else:
            with calls_of(generation.messages):
                generation.messages += facade.process_completion_response(reply)


async def generate_async(chat_generator: Any, generation: Generation) -> tuple[Any, list[ChatMessage]]:
    """
    Run a generation without blocking the event loop.

    :param chat_generator: The chat generator.
    :param generation: The generation.
    :returns: The output, and all messages.
    :raises MCPBudgetExceededError: If the model does not stop calling tools.
    """
    facade = generation.facade
    if hasattr(chat_generator, "warm_up_async"):
        await chat_generator.warm_up_async()
    elif hasattr(chat_generator, "warm_up"):
        await _in_thread(chat_generator.warm_up)
    while True:
        tools = None
        if facade is not None:
            await facade.toolset.warm_up_async()
            tools = list(facade.toolset)
        parameters = generation.parameters(tools)
        if hasattr(chat_generator, "run_async"):
            reply = first_reply(await chat_generator.run_async(**parameters))
        else:
            reply = first_reply(await _in_thread(functools.partial(chat_generator.run, **parameters)))
        if facade is None or not facade.has_tool_calls(reply):
            return generation.finish(reply)
        if generation.must_refuse():
            generation.messages += facade.refuse_completion_response(reply)
        else:
            with calls_of(generation.messages):
                generation.messages += await facade.process_completion_response_async(reply)


async def _in_thread(function: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(function)
