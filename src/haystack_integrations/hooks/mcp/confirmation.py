# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Confirmation of tool calls, on Haystack 2.31 and 3: annotations of MCP tools decide which calls to confirm.

In a durable run each decision is recorded, and the user is not asked twice.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.tools import (
    ToolsType,
    deserialize_tools_or_toolset_inplace,
    serialize_tools_or_toolset,
)
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from pydantic import InstanceOf
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.any_tools import tool_items
from haystack_integrations.tools.mcp.budgets import MESSAGES_ARGUMENT
from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.connection.requests import Recall, call_recorder
from haystack_integrations.tools.mcp.convert.server_texts import confirmed
from haystack_integrations.tools.mcp.errors import MCPConfigurationError, MCPError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS, deserialize_object, serialize_object
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.options import is_bound_name
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, explains_options
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.resource_tools import toolset_of_reader

if TYPE_CHECKING or HAS_HOOKS:
    from haystack.hooks.human_in_the_loop import AlwaysAskPolicy, BlockingConfirmationStrategy, NeverAskPolicy
    from haystack.hooks.human_in_the_loop.dataclasses import ConfirmationUIResult, ToolExecutionDecision
    from haystack.hooks.human_in_the_loop.types import ConfirmationPolicy, ConfirmationStrategy, ConfirmationUI
else:
    from haystack.human_in_the_loop import AlwaysAskPolicy, BlockingConfirmationStrategy, NeverAskPolicy
    from haystack.human_in_the_loop.dataclasses import ConfirmationUIResult, ToolExecutionDecision
    from haystack.human_in_the_loop.types import ConfirmationPolicy, ConfirmationStrategy, ConfirmationUI

_ABSENT: Final = object()
# Placeholder for the arguments in the recorded feedback to the model.
_ARGUMENTS_PLACEHOLDER: Final = "\x00"

Ask: TypeAlias = Literal["unless_read_only", "always"]
Override: TypeAlias = "Literal['always', 'never'] | ConfirmationPolicy"


def check_method(owner: str, parameter: str, value: Any, method: str) -> None:
    """
    Check a parameter whose value must be an object with a certain method.

    :param owner: The class or function that has the parameter.
    :param parameter: Name of the parameter.
    :param value: The object.
    :param method: The method that it must have.
    :raises MCPConfigurationError: If it is anything else, such as a class.
    """
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        msg = f"{owner}: `{parameter}` must be an object with the method `{method}`, got {type(value).__name__}"
        raise MCPConfigurationError(msg)


@explains_options
@checked_dataclass(frozen=True, kw_only=True, repr=False, config=CHECKED)
class ConfirmationRules(Options):
    """
    Rules that decide for which tools calls must be confirmed. Without annotations, the user is asked.

    :param ask: When to ask.
    :param trusted: Servers whose annotations are trusted.
    :param overrides: Rules for single tools.
    """

    _error = MCPConfigurationError
    # The name in error messages: users see the fields as parameters of three other classes and functions.
    _shown_as: ClassVar[str] = "Confirmation"

    ask: Ask = "unless_read_only"
    trusted: Sequence[str | InstanceOf[MCPServerInfo] | InstanceOf[MCPToolset]] = ()
    overrides: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """
        Check the overrides.
        """
        for name, override in (self.overrides or {}).items():
            if "*" in name:
                msg = f"`overrides` has '{name}', but takes names of single tools; `ask='always'` is for all"
                raise ValueError(msg)
            is_policy = hasattr(override, "should_ask") and not isinstance(override, type)
            if override not in ("always", "never") and not is_policy:
                msg = f"`overrides['{name}']` must be 'always', 'never' or a ConfirmationPolicy"
                raise ValueError(msg)

    def policy(self, tool_name: str, tool: Tool | None) -> ConfirmationPolicy:
        """
        Return the policy for the calls of a tool.

        :param tool_name: Its name, as the model sees it.
        :param tool: The tool; None for an unknown tool.
        """
        override = (self.overrides or {}).get(tool_name)
        if override is None:
            override = "always" if self._asks(tool) else "never"
        policies = {"always": AlwaysAskPolicy, "never": NeverAskPolicy}
        policy: ConfirmationPolicy = policies[override]() if isinstance(override, str) else override
        return policy

    def _asks(self, tool: Tool | None) -> bool:
        if self.ask == "always":
            return True
        if isinstance(tool, MCPTool):
            names = [tool._owner._provider_name, getattr(tool._owner, "tool_name_prefix", None)]
            # A server can claim anything about its tools, so its annotations relax nothing unless the user trusts it.
            return not (tool._only_reads() and self._trusts(tool.server_info, names))
        reader = toolset_of_reader(tool)
        # Reading a resource changes nothing according to the protocol, but its URI can carry data to the server.
        return reader is None or not self._trusts(reader.server_info, [reader.tool_name_prefix])

    def _trusts(self, server_info: MCPServerInfo, names: Sequence[str | None]) -> bool:
        # Only names that the user chose count, never the name that a server gives itself.
        return any(
            each in names if isinstance(each, str) else getattr(each, "server_info", each) == server_info
            for each in self.trusted
        )

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the rules as parameters.
        """
        servers = [each.server_info if isinstance(each, MCPToolset) else each for each in self.trusted]
        return {
            "ask": self.ask,
            "trusted": [each if isinstance(each, str) else each.to_dict() for each in servers],
            "overrides": {
                name: each if isinstance(each, str) else serialize_object("overrides", each)
                for name, each in (self.overrides or {}).items()
            },
        }


def is_of_server(tool: Tool | None) -> bool:
    """
    Return whether a call of a tool goes to an MCP server.

    :param tool: The tool; None for an unknown tool.
    :returns: True if it is a server's tool, or lists or reads a server's resources.
    """
    return isinstance(tool, MCPTool) or toolset_of_reader(tool) is not None


def load_rules(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """
    Deserialize the result of `ConfirmationRules.to_dict`.

    :param parameters: The stored parameters, and perhaps others.
    :returns: All parameters.
    """
    loaded = dict(parameters)
    trusted = loaded.get("trusted") or []
    loaded["trusted"] = [MCPServerInfo.from_dict(each) if isinstance(each, dict) else each for each in trusted]
    overrides = loaded.get("overrides") or {}
    loaded["overrides"] = {
        name: deserialize_object(each) if isinstance(each, dict) else each for name, each in overrides.items()
    }
    return loaded


def _find_recall(question: dict[str, Any]) -> Recall | None:
    # Found by its place among the calls of the step, because on Haystack 2.31 the arguments contain State values.
    recorder = call_recorder.get()
    return None if recorder is None else recorder.recall("decision", question["tool_name"])


def _record(recall: Recall | None, question: dict[str, Any], decision: ToolExecutionDecision) -> ToolExecutionDecision:
    """
    Record a decision, without the values of arguments that the user did not change.

    On Haystack 2.31, these include State values, which may not be JSON, and must not be stored.
    """
    if recall is not None:
        asked, final = question["tool_params"], decision.final_tool_params or {}
        arguments = [[name] if asked.get(name, _ABSENT) == value else [name, value] for name, value in final.items()]
        feedback = decision.feedback and decision.feedback.replace(str(final), _ARGUMENTS_PLACEHOLDER)
        recall.record({"execute": decision.execute, "feedback": feedback, "arguments": arguments})
    return decision


def _recorded_decision(recall: Recall, question: dict[str, Any]) -> ToolExecutionDecision:
    stored, asked = recall.result, question["tool_params"]
    final = {name: value[0] if value else asked[name] for name, *value in stored["arguments"]}
    return ToolExecutionDecision(
        tool_name=question["tool_name"],
        execute=stored["execute"],
        tool_call_id=question.get("tool_call_id"),
        feedback=stored["feedback"] and stored["feedback"].replace(_ARGUMENTS_PLACEHOLDER, str(final)),
        final_tool_params=final if stored["execute"] else None,
    )


def _decide_once(question: dict[str, Any], decide: Callable[..., ToolExecutionDecision]) -> ToolExecutionDecision:
    recall = _find_recall(question)
    if recall is not None and recall.is_recorded:
        return _recorded_decision(recall, question)
    return _record(recall, question, decide(**question))


class RecordingStrategy:
    """
    Wraps a custom strategy, and records its decisions if a durable run is open.
    """

    def __init__(self, strategy: ConfirmationStrategy) -> None:
        """
        Initialize the RecordingStrategy.
        """
        self._strategy = strategy

    def run(self, **question: Any) -> ToolExecutionDecision:
        """
        Return the decision of the strategy.
        """
        return _decide_once(question, self._strategy.run)

    async def run_async(self, **question: Any) -> ToolExecutionDecision:
        """
        Return the decision like `run`, without blocking the event loop.
        """
        if not hasattr(self._strategy, "run_async"):
            return await start_in_thread(partial(self.run, **question), name="mcp-haystack-confirmation")
        recall = _find_recall(question)
        if recall is not None and recall.is_recorded:
            return _recorded_decision(recall, question)
        decision = await self._strategy.run_async(**question)
        return await asyncio.to_thread(_record, recall, question, decision)


class _PlainUI:
    """
    Shows a call so that nothing of it is hidden from the user, and keeps arguments that the user did not change.
    """

    def __init__(self, ui: ConfirmationUI, answered: Callable[[Any], None]) -> None:
        self._ui = ui
        self._answered = answered

    def get_user_confirmation(
        self, tool_name: str, tool_description: str, tool_params: dict[str, Any]
    ) -> ConfirmationUIResult:
        answer, wanted = confirmed(self._ui, tool_name, tool_description, tool_params)
        self._answered(answer)
        return ConfirmationUIResult(answer.action, getattr(answer, "feedback", None), wanted)


@stored_in("haystack_integrations.hooks.mcp")
class MCPConfirmationStrategy(BlockingConfirmationStrategy):
    """
    Haystack's BlockingConfirmationStrategy, but `run_async` does not block the event loop while the user decides.

    The user sees the complete arguments that the model chose, with invisible characters escaped and markup shown as
    text. State values are not shown, except on Haystack 2.31 with a policy that is not an MCPAnnotationPolicy.
    """

    def run(self, **question: Any) -> ToolExecutionDecision:
        """
        Ask the user if the policy requires it.

        :param question: The parameters that Haystack passes to a ConfirmationStrategy: `tool_name`, `tool_description`,
            `tool_params`, `tool_call_id` and `confirmation_strategy_context`.
        :returns: The decision.
        """
        tool_name, tool_params, policy = question["tool_name"], question["tool_params"], self.confirmation_policy
        if not HAS_HOOKS:
            question["tool_params"] = self._arguments_of_model(tool_name, tool_params)
        if not policy.should_ask(tool_name, question["tool_description"], tool_params):
            return ToolExecutionDecision(
                tool_name=tool_name,
                execute=True,
                tool_call_id=question.get("tool_call_id"),
                final_tool_params=question["tool_params"],
            )
        answered = partial(policy.update_after_confirmation, tool_name, question["tool_description"], tool_params)
        asker: Any = copy.copy(self)
        asker.confirmation_policy, asker.confirmation_ui = AlwaysAskPolicy(), _PlainUI(self.confirmation_ui, answered)
        return _decide_once(question, partial(BlockingConfirmationStrategy.run, asker))

    def _arguments_of_model(self, tool_name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        # Haystack 2.31 adds State values before it asks, and again when the tool is called. In between, it sends the
        # model the arguments of the decision.
        policy = self.confirmation_policy
        tool = policy._find(tool_name) if isinstance(policy, MCPAnnotationPolicy) else None
        state_arguments = {MESSAGES_ARGUMENT, *(getattr(tool, "inputs_from_state", None) or {}).values()}
        # A policy from YAML has its own toolsets, whose bound names differ.
        state_arguments.update(filter(is_bound_name, arguments))
        # The model's value takes precedence over the State for parameters that it sees.
        state_arguments.difference_update(getattr(tool, "parameters", {}).get("properties", {}))
        return {name: each for name, each in arguments.items() if name not in state_arguments and not callable(each)}

    async def run_async(self, **question: Any) -> ToolExecutionDecision:
        """
        Ask the user like `run`, in a separate thread: users who think would occupy the few threads of the event loop.
        """
        return await start_in_thread(partial(self.run, **question), name="mcp-haystack-confirmation")


def _selectable(part: Tool | Toolset) -> list[Tool]:
    # Include tools that a toolset does not show yet, because the model has to find them first.
    if isinstance(part, Tool):
        return [part]
    selectable = getattr(part, "get_selectable_tools", None)
    return list(part) if selectable is None else selectable()


@stored_in("haystack_integrations.hooks.mcp")
class MCPAnnotationPolicy(ConfirmationPolicy):
    """
    A ConfirmationPolicy that asks unless a trusted server annotates a tool as read-only. Haystack 2.31 and 3.

    It looks a tool up by its name when it is called. Both the annotations in use and the server's latest ones must say
    that the tool only reads. It also asks about tools that are not in `tools`, and tools whose session was lost.
    """

    def __init__(
        self,
        tools: ToolsType,
        *,
        ask: Ask = "unless_read_only",
        trusted: Sequence[str | MCPServerInfo | MCPToolset] = (),
        overrides: Mapping[str, Override] | None = None,
    ) -> None:
        """
        Initialize the policy.

        :param tools: A toolset, or a list of toolsets and tools.
        :param ask: When to ask: "unless_read_only" (default) or "always".
        :param trusted: Servers whose annotations are trusted; see MCPConfirmationHook.
        :param overrides: Rules for single tools; see MCPConfirmationHook.
        :raises MCPConfigurationError: If a parameter is invalid.
        """
        self.tools = tools
        self._rules = ConfirmationRules(ask=ask, trusted=trusted, overrides=overrides)

    def should_ask(self, tool_name: str, tool_description: str, tool_params: dict[str, Any]) -> bool:
        """
        Return whether a call must be confirmed.

        :param tool_name: Name of the tool.
        :param tool_description: Its description.
        :param tool_params: The arguments.
        :returns: True if the user must be asked.
        """
        has_own = tool_name in (self._rules.overrides or {})
        policy = self._rules.policy(tool_name, None if has_own else self._find(tool_name))
        return policy.should_ask(tool_name, tool_description, tool_params)

    def update_after_confirmation(
        self, tool_name: str, tool_description: str, tool_params: dict[str, Any], confirmation_result: Any
    ) -> None:
        """
        Pass the user's answer to the tool's override, if it is a policy.

        :param tool_name: Name of the tool.
        :param tool_description: Its description.
        :param tool_params: The arguments.
        :param confirmation_result: The answer.
        """
        override = (self._rules.overrides or {}).get(tool_name)
        if override is not None and not isinstance(override, str):
            override.update_after_confirmation(tool_name, tool_description, tool_params, confirmation_result)

    def _find_listed(self, tool_name: str) -> Tool | None:
        tools = (tool for part in tool_items(self.tools) for tool in _selectable(part))
        return next((tool for tool in tools if tool.name == tool_name), None)

    def _find(self, tool_name: str) -> Tool | None:
        try:
            tool = self._find_listed(tool_name)
            # A policy from YAML has its own toolsets, which share connections with those of the Agent. Warming up warm
            # toolsets would show a running Agent of Haystack 2.31 new tools, for which there are no strategies.
            if tool is None or (isinstance(tool, MCPTool) and tool._definition is None):
                for each in tool_items(self.tools):
                    each.warm_up()
                tool = self._find_listed(tool_name)
            return tool
        except (MCPError, ValueError):  # the tool's annotations are unknown
            return None

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the policy with its tools.

        :returns: A dictionary with its parameters.
        """
        return default_to_dict(self, tools=serialize_tools_or_toolset(self.tools), **self._rules.to_dict())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize the policy, without connecting.

        :param data: The result of `to_dict`.
        :returns: The policy.
        """
        parameters = load_rules(data.get("init_parameters", {}))
        deserialize_tools_or_toolset_inplace(parameters, key="tools")
        return default_from_dict(cls, {**data, "init_parameters": parameters})


class _Strategies(dict[str, ConfirmationStrategy]):
    """
    The strategies of an Agent of Haystack 2.31, including a strategy for each tool that a server adds later.
    """

    def __init__(self, names: Iterable[str], strategy: ConfirmationStrategy, policy: MCPAnnotationPolicy) -> None:
        super().__init__(dict.fromkeys(names, strategy))
        self._strategy, self._policy = strategy, policy

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and is_of_server(self._policy._find_listed(name)))

    def __missing__(self, name: str) -> ConfirmationStrategy:
        if name not in self:
            raise KeyError(name)
        return self._strategy


def confirmation_strategies_for(
    tools: ToolsType,
    confirmation_ui: ConfirmationUI,
    *,
    ask: Ask = "unless_read_only",
    trusted: Sequence[str | MCPServerInfo | MCPToolset] = (),
    overrides: Mapping[str, Override] | None = None,
) -> dict[str, ConfirmationStrategy]:
    """
    Make the `confirmation_strategies` of an Agent of Haystack 2.31, one for each MCP tool.

    Haystack 2.31 silently ignores the key `"*"`, so each tool has its own key. The tools must be known: warm the
    toolsets up first, or pass `tool_names` to them. The user is also asked about tools that a server adds later, unless
    the strategies were copied into another dictionary, or stored with the Agent: then they would run unconfirmed.
    A call is not checked again if its tool changes while the user decides about another call of the same reply.
    MCPConfirmationHook on Haystack 3 has neither gap.

    :param tools: A toolset, or a list of toolsets and tools.
    :param confirmation_ui: How to ask the user.
    :param ask: When to ask: "unless_read_only" (default) or "always".
    :param trusted: Servers whose annotations are trusted; see MCPConfirmationHook.
    :param overrides: Rules for single tools; see MCPConfirmationHook.
    :returns: Strategies by tool name.
    :raises MCPConfigurationError: If a toolset is not warm and has no `tool_names`, or a parameter is invalid.
    """
    check_method("confirmation_strategies_for", "confirmation_ui", confirmation_ui, "get_user_confirmation")
    policy = MCPAnnotationPolicy(tools, ask=ask, trusted=trusted, overrides=overrides)
    names = []
    for each in tool_items(tools):
        selectable = _selectable(each)
        names += [tool.name for tool in selectable if is_of_server(tool)]
        if not selectable:
            msg = (
                "confirmation_strategies_for: a toolset has no tools yet, so they would run unasked. Call its "
                "warm_up() first, or give it `tool_names`"
            )
            raise MCPConfigurationError(msg)
    strategy = MCPConfirmationStrategy(confirmation_policy=policy, confirmation_ui=confirmation_ui)
    return _Strategies(dict.fromkeys([*names, *(overrides or {})]), strategy, policy)
