# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haystack.core.serialization import default_from_dict, default_to_dict

from haystack_integrations.tools.mcp.haystack_compat import (
    HAS_HOOKS,
    arguments_of_model,
    deserialize_object,
    serialize_object,
)
from haystack_integrations.tools.mcp.serving.approvals import Approvals, current_approvals
from haystack_integrations.tools.mcp.serving.questions import Verdict

if TYPE_CHECKING or HAS_HOOKS:
    from haystack.hooks.human_in_the_loop import (
        AlwaysAskPolicy,
        BlockingConfirmationStrategy,
        ConfirmationUIResult,
        RichConsoleUI,
        SimpleConsoleUI,
        ToolExecutionDecision,
    )
else:
    from haystack.human_in_the_loop import (
        AlwaysAskPolicy,
        BlockingConfirmationStrategy,
        ConfirmationUIResult,
        RichConsoleUI,
        SimpleConsoleUI,
        ToolExecutionDecision,
    )

# The texts for the model that a strategy of Haystack may have of its own.
_TEMPLATES = ("reject_template", "modify_template", "user_feedback_template")


class ClientConfirmationStrategy:
    """
    Has the client of a served Agent approve tool calls. A confirmation strategy of Haystack, on both majors.

    ```python
    from haystack.hooks.human_in_the_loop import ConfirmationHook

    hook = ConfirmationHook({"delete_file": ClientConfirmationStrategy()})
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=[delete_file], hooks={"before_tool": [hook]})
    server = create_mcp_server("files", agents={"files": agent})
    ```

    On Haystack 2.31, an Agent takes it as `confirmation_strategies={"delete_file": ClientConfirmationStrategy()}`.

    The person who uses the client sees the tool and the arguments that the model chose, and approves or rejects,
    perhaps with a word for the model or with other arguments. A client that cannot ask anybody rejects. A served Agent
    whose strategies ask at a console (`SimpleConsoleUI`, `RichConsoleUI`) asks its clients instead, without any change.
    """

    def __init__(self, confirmation_policy: Any = None, **templates: str) -> None:
        """
        Initialize the ClientConfirmationStrategy.

        :param confirmation_policy: A ConfirmationPolicy of Haystack, which decides what is asked; by default
            everything. What it learns from answers holds for one call of the served Agent.
        :param templates: `reject_template`, `modify_template` and `user_feedback_template`, as
            BlockingConfirmationStrategy has them.
        :raises TypeError: If there is another template.
        """
        unknown = sorted(set(templates) - set(_TEMPLATES))
        if unknown:
            msg = f"Unknown parameters: {', '.join(unknown)}. There are confirmation_policy, {', '.join(_TEMPLATES)}."
            raise TypeError(msg)
        self.confirmation_policy = AlwaysAskPolicy() if confirmation_policy is None else confirmation_policy
        self._templates = templates

    def run(
        self,
        *,
        tool_name: str,
        tool_description: str,
        tool_params: dict[str, Any],
        tool_call_id: str | None = None,
        confirmation_strategy_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        """
        Ask the client if the policy says so, from a thread.

        :param tool_name: Name of the tool.
        :param tool_description: Its description.
        :param tool_params: The arguments.
        :param tool_call_id: Identifies the call.
        :param confirmation_strategy_context: Not used.
        :returns: The decision, a ToolExecutionDecision of Haystack.
        :raises RuntimeError: If the Agent is not served.
        """
        verdict = None
        asks = self._policy.should_ask(tool_name, tool_description, tool_params)
        if asks:
            verdict = _approvals().decide_in_thread(tool_name, tool_params, tool_call_id=tool_call_id)
        return self._decision(verdict, tool_name, tool_description, tool_params, tool_call_id, asks=asks)

    async def run_async(
        self,
        *,
        tool_name: str,
        tool_description: str,
        tool_params: dict[str, Any],
        tool_call_id: str | None = None,
        confirmation_strategy_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        """
        Ask the client like `run`, in the event loop.
        """
        verdict = None
        asks = self._policy.should_ask(tool_name, tool_description, tool_params)
        if asks:
            verdict = await _approvals().decide(tool_name, tool_params, tool_call_id=tool_call_id)
        return self._decision(verdict, tool_name, tool_description, tool_params, tool_call_id, asks=asks)

    @property
    def _policy(self) -> Any:
        approvals = current_approvals.get()
        return self.confirmation_policy if approvals is None else approvals.own_policy(self.confirmation_policy)

    def _decision(
        self,
        verdict: Verdict | None,
        tool_name: str,
        tool_description: str,
        tool_params: dict[str, Any],
        tool_call_id: str | None,
        *,
        asks: bool,
    ) -> Any:
        if not asks:
            return ToolExecutionDecision(tool_name, True, tool_call_id, final_tool_params=tool_params)
        if verdict is None:
            # The run ends before anything comes of it.
            return ToolExecutionDecision(tool_name, False, tool_call_id)
        if not verdict.was_asked:
            # Nobody rejected it, so the policy learns nothing from it.
            return ToolExecutionDecision(tool_name, False, tool_call_id, feedback=verdict.feedback)
        # Both are used once, and never stored.
        policy: Any = _Asking(self._policy)
        changed = None
        if verdict.approved and verdict.arguments is not None:
            chosen = arguments_of_model(tool_name, tool_call_id, tool_params)
            kept = {name: value for name, value in tool_params.items() if name not in chosen}
            changed = {**kept, **verdict.arguments}
        ui: Any = _Given(verdict, changed)
        decided = BlockingConfirmationStrategy(confirmation_policy=policy, confirmation_ui=ui, **self._templates).run(
            tool_name=tool_name, tool_description=tool_description, tool_params=tool_params, tool_call_id=tool_call_id
        )
        # Haystack would take no arguments for unchanged ones.
        return decided if changed is None else replace(decided, final_tool_params=changed)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the strategy.

        :returns: A dictionary with its parameters.
        """
        policy = serialize_object("confirmation_policy", self.confirmation_policy)
        return default_to_dict(self, confirmation_policy=policy, **self._templates)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ClientConfirmationStrategy:
        """
        Deserialize the strategy.

        :param data: The result of `to_dict`.
        :returns: The strategy.
        """
        parameters = dict(data.get("init_parameters", {}))
        if isinstance(parameters.get("confirmation_policy"), dict):
            parameters["confirmation_policy"] = deserialize_object(parameters["confirmation_policy"])
        loaded: ClientConfirmationStrategy = default_from_dict(cls, {**data, "init_parameters": parameters})
        return loaded


def _approvals() -> Approvals:
    approvals = current_approvals.get()
    if approvals is None:
        msg = "ClientConfirmationStrategy asks the client of a served Agent, but this Agent is not run by a server."
        raise RuntimeError(msg)
    return approvals


class _Asking:
    """
    A policy that has decided to ask.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def should_ask(self, *_: Any, **__: Any) -> bool:
        return True

    def update_after_confirmation(self, *args: Any, **kwargs: Any) -> None:
        self._policy.update_after_confirmation(*args, **kwargs)


class _Given:
    """
    A user interface that has the answer.
    """

    def __init__(self, verdict: Verdict, changed: dict[str, Any] | None) -> None:
        self._verdict = verdict
        self._changed = changed

    def get_user_confirmation(self, *_: Any, **__: Any) -> ConfirmationUIResult:
        if not self._verdict.approved:
            return ConfirmationUIResult("reject", self._verdict.feedback)
        if self._changed is None:
            return ConfirmationUIResult("confirm", self._verdict.feedback)
        return ConfirmationUIResult("modify", self._verdict.feedback, self._changed)


def ask_clients(agent: Any) -> None:
    """
    Have an Agent ask clients where it would ask at a console, which a server does not have.

    :param agent: A copy of an Agent, which is changed.
    """
    if HAS_HOOKS:
        agent.hooks = {point: [_hook_for_clients(each) for each in hooks] for point, hooks in agent.hooks.items()}
    else:
        agent._confirmation_strategies = _for_clients(agent._confirmation_strategies)


def _hook_for_clients(hook: Any) -> Any:
    strategies = getattr(hook, "confirmation_strategies", None)
    if isinstance(strategies, dict):
        asking = copy.copy(hook)
        asking.confirmation_strategies = _for_clients(strategies)
        return asking
    if _is_console(getattr(hook, "confirmation_ui", None)):
        # MCPConfirmationHook, which has either.
        asking = copy.copy(hook)
        asking.confirmation_ui, asking.strategy = None, ClientConfirmationStrategy()
        return asking
    return hook


def _for_clients(strategies: dict[Any, Any]) -> dict[Any, Any]:
    return {name: _strategy_for_clients(each) for name, each in strategies.items()}


def _strategy_for_clients(strategy: Any) -> Any:
    if not _is_console(getattr(strategy, "confirmation_ui", None)):
        return strategy
    templates = {name: getattr(strategy, name) for name in _TEMPLATES if hasattr(strategy, name)}
    return ClientConfirmationStrategy(strategy.confirmation_policy, **templates)


def _is_console(ui: Any) -> bool:
    return isinstance(ui, RichConsoleUI | SimpleConsoleUI)
