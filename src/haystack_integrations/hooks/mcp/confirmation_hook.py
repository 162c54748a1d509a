# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from haystack.components.agents.state.state import State
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.hooks.human_in_the_loop import ConfirmationHook, NeverAskPolicy
from haystack.hooks.human_in_the_loop.types import ConfirmationStrategy, ConfirmationUI
from haystack.tools.tool import Tool

from haystack_integrations.hooks.mcp.confirmation import (
    Ask,
    ConfirmationRules,
    MCPConfirmationStrategy,
    Override,
    TracedStrategy,
    check_object,
    check_ui,
    is_of_server,
    load_rules,
)
from haystack_integrations.tools.mcp.haystack_compat import deserialize_object, serialize_object
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo


class MCPConfirmationHook:
    """
    A `before_tool` hook that has the user confirm calls of MCP tools. Haystack 3.

    It asks for every MCP tool, except those of which a *trusted* server says that they only read, and for the tools of
    an MCPResourceToolset unless its server is trusted. What a server says of its tools relaxes nothing otherwise, and
    a tool without annotations is asked for, as is one that lost the annotation while the Agent runs. Whatever the user
    declines or edits, the model is told.

    ```python
    from haystack.hooks.human_in_the_loop import SimpleConsoleUI

    hook = MCPConfirmationHook(SimpleConsoleUI(), trusted=[library], overrides={"search": "never"})
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=[shop, library], hooks={"before_tool": [hook]})
    ```
    """

    allowed_hook_points: ClassVar[tuple[str, ...]] = ("before_tool",)

    def __init__(
        self,
        confirmation_ui: ConfirmationUI | None = None,
        *,
        ask: Ask = "unless_read_only",
        trusted: Sequence[str | MCPServerInfo | MCPToolset] = (),
        overrides: Mapping[str, Override] | None = None,
        strategy: ConfirmationStrategy | None = None,
    ) -> None:
        """
        Initialize the hook.

        :param confirmation_ui: How to ask the user, e.g. Haystack's SimpleConsoleUI.
        :param ask: When to ask: "unless_read_only" (default), or "always", also for tools that only read.
        :param trusted: Servers whose annotations are believed: server infos, MCPToolsets, or names that you gave:
            that of a provider in a registry, or a `tool_name_prefix`. The name that a server gives itself is none.
        :param overrides: What holds for single tools, by the names that the model sees, also for tools that are none of
            MCP servers: "always", "never" or a ConfirmationPolicy.
        :param strategy: What is done for a call that is to be confirmed, instead of asking with `confirmation_ui`.
        :raises MCPConfigurationError: If a parameter is invalid.
        :raises TypeError: If there is neither a `confirmation_ui` nor a `strategy`, or both.
        """
        if (confirmation_ui is None) is (strategy is None):
            msg = f"{type(self).__name__}: pass either a `confirmation_ui` or a `strategy`"
            raise TypeError(msg)
        owner = type(self).__name__
        if strategy is None:
            check_ui(owner, confirmation_ui)
        else:
            check_object(owner, "strategy", strategy, "run", "ConfirmationStrategy object of Haystack")
        self._rules = ConfirmationRules(ask=ask, trusted=trusted, overrides=overrides)
        self.confirmation_ui = confirmation_ui
        self.strategy = strategy

    def run(self, state: State) -> None:
        """
        Confirm the pending tool calls.

        :param state: The State of the run.
        """
        if hook := self._hook_for(state):
            hook.run(state)

    async def run_async(self, state: State) -> None:
        """
        Confirm the pending tool calls like `run`, without blocking the event loop.

        :param state: The State of the run.
        """
        if hook := self._hook_for(state):
            await hook.run_async(state)

    def _hook_for(self, state: State) -> ConfirmationHook | None:
        """
        Make Haystack's hook for the calls of this step.
        """
        messages = state.data.get("messages") or []
        if not messages or not messages[-1].tool_calls:
            return None
        tools: dict[str, Tool] = {tool.name: tool for tool in state.data.get("tools") or []}
        strategies: dict[str | tuple[str, ...], Any] = {}
        for name in {call.tool_name for call in messages[-1].tool_calls}:
            tool = tools.get(name)
            if not is_of_server(tool) and name not in (self._rules.overrides or {}):
                continue
            policy = self._rules.policy(name, tool)
            if isinstance(policy, NeverAskPolicy):
                continue
            if self.confirmation_ui is not None:
                strategies[name] = MCPConfirmationStrategy(
                    confirmation_policy=policy, confirmation_ui=self.confirmation_ui
                )
            elif self.strategy is not None and _asks_for_any(policy, name, messages[-1].tool_calls, tool):
                # Ours leaves a span itself, only where it asks.
                own = isinstance(self.strategy, MCPConfirmationStrategy)
                strategies[name] = self.strategy if own else TracedStrategy(self.strategy)
        return ConfirmationHook(confirmation_strategies=strategies) if strategies else None

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the hook.

        :returns: A dictionary with its parameters.
        """
        stored = {
            name: None if each is None else serialize_object(name, each)
            for name, each in (("confirmation_ui", self.confirmation_ui), ("strategy", self.strategy))
        }
        return default_to_dict(self, **stored, **self._rules.to_dict())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize the hook.

        :param data: The result of `to_dict`.
        :returns: The hook.
        """
        parameters = load_rules(data.get("init_parameters", {}))
        for name in ("confirmation_ui", "strategy"):
            if isinstance(parameters.get(name), dict):
                parameters[name] = deserialize_object(parameters[name])
        loaded: Self = default_from_dict(cls, {**data, "init_parameters": parameters})
        return loaded


def _asks_for_any(policy: Any, name: str, calls: Sequence[Any], tool: Tool | None) -> bool:
    description = "" if tool is None else tool.description
    return any(policy.should_ask(name, description, call.arguments) for call in calls if call.tool_name == name)
