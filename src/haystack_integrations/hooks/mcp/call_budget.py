# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self
from weakref import WeakKeyDictionary

from haystack import logging
from haystack.components.agents.state.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.budgets import (
    CONTINUED,
    REFUSAL_MESSAGE,
    REFUSED,
    CallCounts,
    Limit,
    LimitPerTool,
    RefusalMessage,
    note_refusal,
)
from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.parameters import Positive, Text, checked, own_parameters

logger: logging.PatchedLogger = logging.getLogger(__name__)

EXIT_REASON: Final = "tool_call_budget_exceeded"
FINAL_MESSAGE: Final = (
    "The run was stopped: the model went on to call tools after its budget of tool calls was used up."
)


class _Run:
    """
    What has happened in one run of an Agent.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.refused_turns = 0


class MCPCallBudgetHook:
    """
    A `before_tool` hook that limits the tool calls of each run of an Agent, and lets it end well. Haystack 3.

    Calls over the limit are not made: the model gets an error message for each of them, and its turn to answer in
    words. Those of a turn that fit are made. A model that goes on to call tools is stopped; the `exit_reason` of the
    run is `"tool_call_budget_exceeded"` then.

    Put it before hooks that ask the user, so that nobody is asked for calls that are refused anyway.

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
        refusal_message: RefusalMessage = REFUSAL_MESSAGE,
        max_refused_turns: Positive = 2,
        final_message: str | None = FINAL_MESSAGE,
    ) -> None:
        """
        Initialize the hook.

        :param max_turns: How many replies of the model may call tools that are counted. Default: no limit.
        :param max_calls: How many calls there may be altogether. Default: no limit.
        :param max_calls_per_tool: How many calls of each tool, or of single tools by their names. Default: no limit.
        :param tools: Names of the tools that are counted. Default: all MCP tools, and calls of tools that do not exist.
        :param tool_alias: An alias of a registry, instead of `tools`: of the MCP tools, only those of its toolset are
            counted, whatever their names are.
        :param refusal_message: What the model is told, with `{tool_name}` and `{limit}`.
        :param max_refused_turns: With how many turns of which all counted calls were refused the run ends, at least 1.
        :param final_message: The text of the assistant's message that is added when the run is ended. None for none.
        :raises MCPConfigurationError: If a parameter is invalid. The message names it and the valid choices.
        """
        self.max_turns = max_turns
        self.max_calls = max_calls
        self.max_calls_per_tool = (
            dict(max_calls_per_tool) if isinstance(max_calls_per_tool, Mapping) else max_calls_per_tool
        )
        self.refusal_message = refusal_message
        self.tools = None if tools is None else list(tools)
        if tool_alias is not None and tools is not None:
            msg = "`tools` and `tool_alias` both say which tools are counted; give one of them"
            raise MCPConfigurationError(msg)
        self.tool_alias = tool_alias
        self.max_refused_turns = max_refused_turns
        self.final_message = final_message
        # An Agent has one State for each run, so concurrent runs do not meet.
        self._runs: WeakKeyDictionary[State, _Run] = WeakKeyDictionary()

    def run(self, state: State) -> None:
        """
        Refuse the pending tool calls that are over a limit.

        :param state: The State of the run.
        """
        messages: list[ChatMessage] = state.data.get("messages") or []
        if not messages or not messages[-1].tool_calls:
            return
        calls = messages[-1].tool_calls
        # What was confirmed, failed or succeeded so far; what a user has declined is not in it.
        executed: Mapping[str, int] = state.data.get("tool_call_counts") or {}
        counted = self._counted(state.data.get("tools") or [], {*executed, *(call.tool_name for call in calls)})
        limits = CallCounts(
            max_turns=self.max_turns,
            max_calls=self.max_calls,
            max_calls_per_tool=self.max_calls_per_tool,
            refusal_message=self.refusal_message,
        )
        run = self._runs.setdefault(state, _Run())
        counts = Counter({name: count for name, count in executed.items() if name in counted})
        kept, refused = list[ToolCall](), list[tuple[ToolCall, str]]()
        for call in calls:
            limit = None
            if call.tool_name in counted:
                limit = limits.reason_against(call.tool_name, counts, run.turns)
                counts[call.tool_name] += limit is None
            if limit is None:
                kept.append(call)
            else:
                refused.append((call, limit))
        is_turn = any(call.tool_name in counted for call in kept)
        if is_turn:
            run.turns += 1
        if not refused:
            return
        history = [*messages[:-1], *_refusals(messages[-1], kept, refused, limits)]
        if not is_turn:
            run.refused_turns += 1
        if run.refused_turns >= self.max_refused_turns:
            logger.warning(
                "The run is ended: the model went on to call tools after {turns} refused turns",
                turns=run.refused_turns,
            )
            state.set("stop_run", EXIT_REASON)
            if self.final_message is not None and not kept:
                history.append(ChatMessage.from_assistant(self.final_message))
        state.set("messages", history, handler_override=replace_values)

    async def run_async(self, state: State) -> None:
        """
        Do the same as `run`; it never waits.

        :param state: The State of the run.
        """
        self.run(state)

    def _counted(self, tools: list[Tool], called: set[str]) -> set[str]:
        if self.tools is not None:
            return set(self.tools)
        own = {tool.name for tool in tools if isinstance(tool, MCPTool) and self.tool_alias in (None, tool._alias)}
        # A model that calls what does not exist would otherwise go on for ever.
        return own | (called - {tool.name for tool in tools})

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


def _refusals(
    message: ChatMessage, kept: list[ToolCall], refused: list[tuple[ToolCall, str]], counts: CallCounts
) -> list[ChatMessage]:
    """
    Answer the refused calls, and leave the others pending: in a message of their own, which has to be the last one.
    """
    answered = message if not kept else _with_calls(message, [call for call, _ in refused], message.text)
    answers = [answered]
    for call, limit in refused:
        note_refusal(call.tool_name, limit)
        text = counts.refusal(call.tool_name, limit)
        answers.append(ChatMessage.from_tool(text, origin=call, error=True, meta={REFUSED: limit}))
    return [*answers, _with_calls(message, kept, None, {CONTINUED: True})] if kept else answers


def _with_calls(
    message: ChatMessage, calls: list[ToolCall], text: str | None, more: dict[str, Any] | None = None
) -> ChatMessage:
    return ChatMessage.from_assistant(
        text=text,
        meta={**message.meta, **(more or {})},
        name=message.name,
        tool_calls=calls,
        reasoning=message.reasoning,
    )
