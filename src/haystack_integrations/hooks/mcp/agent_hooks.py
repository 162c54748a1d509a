# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Hooks of Agents, which need Haystack 3: limiting tool calls, and confirming them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Self
from weakref import WeakKeyDictionary

from haystack import logging
from haystack.components.agents.state.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.human_in_the_loop import ConfirmationHook, NeverAskPolicy
from haystack.hooks.human_in_the_loop.types import ConfirmationStrategy, ConfirmationUI
from haystack.tools.tool import Tool

from haystack_integrations.hooks.mcp.confirmation import (
    Ask,
    ConfirmationRules,
    MCPConfirmationStrategy,
    Override,
    RecordingStrategy,
    check_method,
    is_of_server,
    load_rules,
)
from haystack_integrations.tools.mcp.budgets import (
    CountLimits,
    Limit,
    LimitPerTool,
    refusal,
)
from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError, MCPConfigurationError
from haystack_integrations.tools.mcp.haystack_compat import serialize_object
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import Positive, Text, checked, own_parameters
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

logger: logging.PatchedLogger = logging.getLogger(__name__)

EXIT_REASON: Final = "tool_call_budget_exceeded"
FINAL_MESSAGE: Final = (
    "The run was stopped: the model went on to call tools after its budget of tool calls was used up."
)


@stored_in("haystack_integrations.hooks.mcp")
class MCPCallBudgetHook:
    """
    A `before_tool` hook that limits the tool calls of each run of an Agent, and lets the model answer. Haystack 3.

    Calls over the limit are not made: the model gets an error message for each of them, and can answer in words. Calls
    of the same turn that are within the limit are made. If the model continues to call tools, the run is stopped with
    the `exit_reason` `"tool_call_budget_exceeded"`. On Haystack 3.1, whose Agent cannot be stopped, the run ends with
    an `MCPBudgetExceededError`.

    Put it before hooks that ask the user, so that the user is not asked about calls that are refused anyway.

    ```python
    agent = Agent(
        chat_generator=OpenAIChatGenerator(),
        tools=toolset,
        hooks={"before_tool": [MCPCallBudgetHook(max_turns=5, max_calls_per_tool={"search": 10})]},
    )
    ```
    """

    allowed_hook_points: ClassVar[tuple[str, ...]] = ("before_tool",)

    @checked(MCPConfigurationError)
    def __init__(
        self,
        max_turns: Limit | None = None,
        max_calls: Limit | None = None,
        max_calls_per_tool: LimitPerTool | None = None,
        *,
        tools: Sequence[str] | None = None,
        tool_alias: Text | None = None,
        max_refused_turns: Positive = 2,
        final_message: str | None = FINAL_MESSAGE,
    ) -> None:
        """
        Initialize the hook.

        :param max_turns: How many replies of the model may call tools that are counted. Default: no limit.
        :param max_calls: The maximum number of calls altogether. Default: no limit.
        :param max_calls_per_tool: The maximum number of calls of each tool, or by tool name. Default: no limit.
        :param tools: Names of the tools that are counted. Default: all MCP tools, and calls of tools that do not exist.
        :param tool_alias: An alias of a registry, in place of `tools`: the only MCP tools that are counted are those of
            its toolset, regardless of their names.
        :param max_refused_turns: The run ends after this many turns in which every counted call was refused; at least
            1. Default: 2.
        :param final_message: The text of the assistant's message that is added when the run is stopped. None to add no
            message.
        :raises MCPConfigurationError: If a parameter is invalid. The message names it and the valid choices.
        """
        self.max_turns = max_turns
        self.max_calls = max_calls
        self.max_calls_per_tool = (
            dict(max_calls_per_tool) if isinstance(max_calls_per_tool, Mapping) else max_calls_per_tool
        )
        self.tools = None if tools is None else list(tools)
        self.tool_alias = tool_alias
        self.max_refused_turns = max_refused_turns
        self.final_message = final_message
        # An Agent has one State for each run, so concurrent runs do not mix.
        self._turns_by_run: WeakKeyDictionary[State, Counter[str]] = WeakKeyDictionary()

    def run(self, state: State) -> None:
        """
        Refuse the pending tool calls that are over a limit.

        :param state: The State of the run.
        :raises MCPBudgetExceededError: If the model continues and the run cannot be stopped otherwise.
        """
        messages: list[ChatMessage] = state.data.get("messages") or []
        if not messages or not messages[-1].tool_calls:
            return
        calls = messages[-1].tool_calls
        # The counts include calls that were confirmed, failed or succeeded so far, but not calls that a user declined.
        executed: Mapping[str, int] = state.data.get("tool_call_counts") or {}
        counted = self._names_to_count(state.data.get("tools") or [], {*executed, *(call.tool_name for call in calls)})
        limits = CountLimits(
            max_turns=self.max_turns,
            max_calls=self.max_calls,
            max_calls_per_tool=self.max_calls_per_tool,
        )
        turns = self._turns_by_run.setdefault(state, Counter())
        counts = Counter({name: count for name, count in executed.items() if name in counted})
        kept, refused = list[ToolCall](), list[tuple[ToolCall, str]]()
        for call in calls:
            limit = None
            if call.tool_name in counted:
                limit = limits.reason_against(call.tool_name, counts, turns["made"])
                counts[call.tool_name] += limit is None
            if limit is None:
                kept.append(call)
            else:
                refused.append((call, limit))
        is_made = any(call.tool_name in counted for call in kept)
        if is_made or refused:
            turns["made" if is_made else "refused"] += 1
        if not refused:
            return
        history = [*messages[:-1], *_refusals(messages[-1], kept, refused)]
        if turns["refused"] >= self.max_refused_turns:
            logger.warning(
                "The run is ended: the model went on to call tools after {turns} refused turns",
                turns=turns["refused"],
            )
            if "stop_run" not in state.schema:
                msg = f"The model went on to call tools after {turns['refused']} refused turns"
                raise MCPBudgetExceededError(msg, history)
            state.set("stop_run", EXIT_REASON)
            if self.final_message is not None and not kept:
                history.append(ChatMessage.from_assistant(self.final_message))
        state.set("messages", history, handler_override=replace_values)

    async def run_async(self, state: State) -> None:
        """
        Do the same as `run`, which never waits.

        :param state: The State of the run.
        """
        self.run(state)

    def _names_to_count(self, tools: list[Tool], called: set[str]) -> set[str]:
        if self.tools is not None:
            return set(self.tools)
        mcp_tools = (tool for tool in tools if isinstance(tool, MCPTool))
        known_names = {tool.name for tool in mcp_tools if self.tool_alias in (None, tool._owner._tool_alias)}
        # Count unknown tools as well: otherwise a model that calls them could continue forever.
        return known_names | (called - {tool.name for tool in tools})

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the hook.

        :returns: A dictionary with its parameters.
        """
        return default_to_dict(self, **own_parameters(self, MCPCallBudgetHook))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize the hook.

        :param data: The result of `to_dict`.
        :returns: The hook.
        """
        loaded: Self = default_from_dict(cls, data)
        return loaded

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the parameters, without the runs of this process.
        """
        return partial(type(self), **own_parameters(self, MCPCallBudgetHook)), ()


def _refusals(message: ChatMessage, kept: list[ToolCall], refused: list[tuple[ToolCall, str]]) -> list[ChatMessage]:
    """
    Answer the refused calls, and leave the others pending in a separate message, which has to be the last one.
    """
    answered = message if not kept else _copy_with_calls(message, [call for call, _ in refused], message.text)
    answers = [answered, *(refusal(call, limit) for call, limit in refused)]
    return [*answers, _copy_with_calls(message, kept, None)] if kept else answers


def _copy_with_calls(message: ChatMessage, calls: list[ToolCall], text: str | None) -> ChatMessage:
    return ChatMessage.from_assistant(
        text=text,
        meta=dict(message.meta),
        name=message.name,
        tool_calls=calls,
        reasoning=message.reasoning,
    )


@stored_in("haystack_integrations.hooks.mcp")
class MCPConfirmationHook:
    """
    A `before_tool` hook that asks the user to confirm calls of MCP tools. Haystack 3.

    It asks about every MCP tool, except those that a *trusted* server annotates as read-only, and about the tools of an
    MCPResourceToolset unless its server is trusted. Annotations of other servers relax nothing. It also asks about
    tools without annotations, and about tools that lose the annotation or their session while the Agent runs. The model
    is informed of every call that the user declines or edits.

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
        :param ask: When to ask: "unless_read_only" (default), or "always", even about read-only tools.
        :param trusted: Servers whose annotations are trusted: server infos, MCPToolsets, or names that you chose: the
            name of a provider in a registry, or a `tool_name_prefix`. A name that a server gives itself does not count.
        :param overrides: "always", "never" or a ConfirmationPolicy for single tools, by the names that the model sees.
            The tools need not come from MCP servers.
        :param strategy: The strategy for calls that must be confirmed, in place of asking with `confirmation_ui`.
        :raises MCPConfigurationError: If a parameter is invalid.
        :raises TypeError: Unless exactly one of `confirmation_ui` and `strategy` is given.
        """
        if (confirmation_ui is None) is (strategy is None):
            msg = f"{type(self).__name__}: pass either a `confirmation_ui` or a `strategy`"
            raise TypeError(msg)
        owner = type(self).__name__
        if strategy is None:
            check_method(owner, "confirmation_ui", confirmation_ui, "get_user_confirmation")
        else:
            check_method(owner, "strategy", strategy, "run")
        self._rules = ConfirmationRules(ask=ask, trusted=trusted, overrides=overrides)
        self.confirmation_ui = confirmation_ui
        self.strategy = strategy

    def run(self, state: State) -> None:
        """
        Confirm the pending tool calls.

        :param state: The State of the run.
        """
        asked = set[str]()
        while hook := self._hook_for(state, asked):
            hook.run(state)

    async def run_async(self, state: State) -> None:
        """
        Confirm the pending tool calls like `run`, without blocking the event loop.

        :param state: The State of the run.
        """
        asked = set[str]()
        while hook := self._hook_for(state, asked):
            await hook.run_async(state)

    def _hook_for(self, state: State, asked: set[str]) -> ConfirmationHook | None:
        """
        Make Haystack's hook for the calls of this step, without tools in `asked`, and add its tools to `asked`.

        This is repeated because the server may change the annotations of one tool while the user decides about another.
        """
        messages = state.data.get("messages") or []
        if not messages or not messages[-1].tool_calls:
            return None
        tools: dict[str, Tool] = {tool.name: tool for tool in state.data.get("tools") or []}
        strategies: dict[str | tuple[str, ...], Any] = {}
        for name in {call.tool_name for call in messages[-1].tool_calls} - asked:
            tool = tools.get(name)
            if not is_of_server(tool) and name not in (self._rules.overrides or {}):
                continue
            policy = self._rules.policy(name, tool)
            if isinstance(policy, NeverAskPolicy):
                continue
            asked.add(name)
            if self.confirmation_ui is not None:
                strategies[name] = MCPConfirmationStrategy(
                    confirmation_policy=policy, confirmation_ui=self.confirmation_ui
                )
            elif self.strategy is not None and _asks_for_any(policy, name, messages[-1].tool_calls, tool):
                is_recording = isinstance(self.strategy, MCPConfirmationStrategy)  # it records its decisions itself
                strategies[name] = self.strategy if is_recording else RecordingStrategy(self.strategy)
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
        loaded: Self = default_from_dict(cls, {**data, "init_parameters": parameters})
        return loaded


def _asks_for_any(policy: Any, name: str, calls: Sequence[Any], tool: Tool | None) -> bool:
    description = "" if tool is None else tool.description
    return any(policy.should_ask(name, description, call.arguments) for call in calls if call.tool_name == name)
