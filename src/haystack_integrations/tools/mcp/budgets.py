# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Limits for the number of tool calls and the failures of a tool, and the messages to the model about refused calls.

Failures are counted in the messages of a run, and not stored here. So runs of one Agent do not disturb each other.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from haystack.dataclasses import ChatMessage, TextContent, ToolCall
from haystack.dataclasses.chat_message import ToolCallResult
from haystack.tracing.tracer import tracer
from pydantic import Field

from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError, MCPCallRefusedError, MCPConfigurationError
from haystack_integrations.tools.mcp.haystack_compat import was_declined
from haystack_integrations.tools.mcp.parameters import checked

__all__ = ["MCPCallBudget", "call_budget"]

REFUSAL_MESSAGE: Final = (
    "The call of '{tool_name}' was refused: {limit}. Answer with what you have, and say what is missing."
)

# Key in the `meta` of tool messages for refused calls.
REFUSED: Final = "mcp_call_refused"

SPAN_REFUSED: Final = "haystack.mcp.tool_call.refused"

# The key of the messages in an Agent's State, and the argument in which Haystack passes them to a tool.
MESSAGES_KEY: Final = "messages"
MESSAGES_ARGUMENT: Final = "_mcp_conversation"

# The prefix of a failure that is returned as the result of its tool.
_FAILURE_PREFIX: Final = "[This tool call failed] "
# The prefix is searched for in this many characters, because an output handler may have put text before it.
_PREFIX_SEARCH_LENGTH: Final = 100


Limit: TypeAlias = Annotated[int, Field(ge=0)]
LimitPerTool: TypeAlias = Limit | Mapping[str, Limit]


@dataclass(frozen=True, kw_only=True)
class CountLimits:
    """
    Limits for calls and for turns with calls.

    :param max_turns: How many replies of the model may call tools; None for no limit.
    :param max_calls: The maximum number of calls altogether; None for no limit.
    :param max_calls_per_tool: The maximum number of calls of each tool, or by tool name; None for no limit.
    """

    max_turns: int | None = None
    max_calls: int | None = None
    max_calls_per_tool: int | Mapping[str, int] | None = None

    def reason_against(self, tool_name: str, counts: Mapping[str, int], turns: int = 0) -> str | None:
        """
        Return why a call would exceed a limit.

        :param tool_name: Name of the tool.
        :param counts: The number of earlier calls by tool.
        :param turns: The number of earlier turns.
        :returns: The limit that is reached; None if the call is within all limits.
        """
        if self.max_turns is not None and turns >= self.max_turns:
            return f"the limit of {self.max_turns} {_plural('turn', self.max_turns)} of tool calls is reached"
        if self.max_calls is not None and sum(counts.values()) >= self.max_calls:
            return f"the limit of {self.max_calls} tool {_plural('call', self.max_calls)} is reached"
        per_tool = self.max_calls_per_tool
        limit = per_tool.get(tool_name) if isinstance(per_tool, Mapping) else per_tool
        if limit is not None and counts.get(tool_name, 0) >= limit:
            return f"the limit of {limit} {_plural('call', limit)} of this tool is reached"
        return None


def _was_refused(result: ToolCallResult) -> bool:
    # In an Agent, the message to the model is the only trace that a `call_budget` leaves.
    text = result.result if isinstance(result.result, str) else ""
    beginning, end = REFUSAL_MESSAGE.split("{limit}")
    beginning = beginning.format(tool_name=result.origin.tool_name)
    return result.error and text.startswith(f"{beginning}the limit of ") and text.endswith(f" is reached{end}")


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def note_refusal(tool_name: str, limit: str) -> None:
    """
    Add a span for a refused call to the trace.

    :param tool_name: Name of the tool.
    :param limit: The limit that was reached.
    """
    tags = {"haystack.mcp.tool_call.name": tool_name, "haystack.mcp.tool_call.limit": limit}
    with tracer.trace(SPAN_REFUSED, tags=tags):
        pass


def refusal(call: ToolCall, limit: str) -> ChatMessage:
    """
    Refuse a call.

    :param call: The call.
    :param limit: The limit that was reached.
    :returns: The message that the model gets in place of its result.
    """
    note_refusal(call.tool_name, limit)
    text = REFUSAL_MESSAGE.format(tool_name=call.tool_name, limit=limit)
    return ChatMessage.from_tool(text, origin=call, error=True, meta={REFUSED: limit})


class MCPCallBudget:
    """
    The state of a `call_budget`: how many calls were made and refused.
    """

    def __init__(
        self, limits: CountLimits, *, tools: Sequence[str] | None = None, max_refused_calls: int | None = None
    ) -> None:
        """
        Initialize the budget; `call_budget` does that.

        :param limits: The limits.
        :param tools: Names of the tools that are counted; None for all MCP tools.
        :param max_refused_calls: The number of refused calls after which the next one ends the run; None for no limit.
        """
        self._limits = limits
        self._tools = tools
        self._max_refused = max_refused_calls
        self._lock = threading.Lock()
        self._made_calls: Counter[str] = Counter()
        self._refused_calls: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<MCPCallBudget: {self.calls} calls, {self.refused} refused>"

    @property
    def calls(self) -> int:
        """
        The number of calls that were made.
        """
        return sum(self._made_calls.values())

    @property
    def refused(self) -> int:
        """
        The number of calls that were refused.
        """
        return sum(self._refused_calls.values())

    @property
    def calls_by_tool(self) -> dict[str, int]:
        """
        The number of calls that were made, by tool.
        """
        return {name: count for name, count in dict(self._made_calls).items() if count}

    def _admit(self, tool_name: str) -> None:
        with self._lock:
            limit = self._limits.reason_against(tool_name, self._made_calls)
            if limit is None:
                self._made_calls[tool_name] += 1
                return
            self._refused_calls[tool_name] += 1
            refused = self.refused
        note_refusal(tool_name, limit)
        if self._max_refused is not None and refused > self._max_refused:
            calls = _plural("call", self._max_refused)
            msg = f"The model went on to call tools after {self._max_refused} refused {calls}: {limit}"
            raise MCPBudgetExceededError(msg)
        raise MCPCallRefusedError(REFUSAL_MESSAGE.format(tool_name=tool_name, limit=limit), tool_name)

    def _give_back(self, tool_name: str) -> None:
        with self._lock:
            self._made_calls[tool_name] -= 1


# The budgets of the blocks in which this code runs, outermost first.
call_budgets: Final[ContextVar[tuple[MCPCallBudget, ...]]] = ContextVar("haystack_mcp_call_budgets", default=())


def admit_call(tool_name: str, *, is_mcp_tool: bool = True) -> None:
    """
    Count a call in the budgets in which this code runs, or refuse it.

    :param tool_name: Name of the tool.
    :param is_mcp_tool: Whether it is a tool of a server. Other tools count only in budgets that name them.
    :raises MCPCallRefusedError: If a budget is used up.
    """
    admitted: list[MCPCallBudget] = []
    for budget in call_budgets.get():
        if is_mcp_tool if budget._tools is None else tool_name in budget._tools:
            try:
                budget._admit(tool_name)
            except (MCPBudgetExceededError, MCPCallRefusedError):
                for outer in admitted:
                    outer._give_back(tool_name)
                raise
            admitted.append(budget)


@contextmanager
@checked(MCPConfigurationError)
def call_budget(
    max_calls: Limit | None = None,
    *,
    max_calls_per_tool: LimitPerTool | None = None,
    tools: Sequence[str] | None = None,
    max_refused_calls: Limit | None = None,
) -> Iterator[MCPCallBudget]:
    """
    Limit the calls of MCP tools in this block, on Haystack 2.31 and 3.

    A call over the limit is not sent. The model gets an error in place of its result, and answers in words. The budget
    applies to everything that runs in the block, e.g. `agent.run` or `await agent.run_async`, in all threads and tasks
    that Haystack starts for it. Each block has its own budget, even if several blocks run one Agent at the same time.
    In nested blocks, all budgets apply.

    ```python
    from haystack_integrations.tools.mcp import call_budget

    with call_budget(max_calls=5, max_calls_per_tool={"search": 2}) as budget:
        agent.run(messages=[ChatMessage.from_user("Which lamps are there?")])
    print(budget.calls, budget.refused)
    ```

    :param max_calls: The maximum number of calls altogether. Default: no limit.
    :param max_calls_per_tool: The maximum number of calls of each tool, or by tool name. Default: no limit.
    :param tools: Names of the tools that are counted. Default: all MCP tools.
    :param max_refused_calls: After this many refused calls, the next one ends the run with an MCPBudgetExceededError,
        because the model insists. Default: no limit; only `max_agent_steps` of the Agent ends the run.
    :returns: A context manager that returns the budget, with `calls`, `calls_by_tool` and `refused`.
    :raises MCPConfigurationError: If a parameter is invalid.
    """
    limits = CountLimits(max_calls=max_calls, max_calls_per_tool=max_calls_per_tool)
    budget = MCPCallBudget(limits, tools=tools, max_refused_calls=max_refused_calls)
    token = call_budgets.set((*call_budgets.get(), budget))
    try:
        yield budget
    finally:
        call_budgets.reset(token)


# The messages of this package's own loop, which has no State.
_conversation: ContextVar[Sequence[ChatMessage] | None] = ContextVar("haystack_mcp_conversation", default=None)


@contextmanager
def calls_of(conversation: Sequence[ChatMessage]) -> Iterator[None]:
    """
    Attribute the calls in this block to a conversation.

    :param conversation: Its messages.
    """
    token = _conversation.set(conversation)
    try:
        yield
    finally:
        _conversation.reset(token)


def failures_in_a_row(passed: Any, tool_name: str) -> int:
    """
    Count how often a tool has failed in a run since it last succeeded.

    :param passed: The messages that Haystack passed to the tool, if any.
    :param tool_name: Name of the tool.
    :returns: The number of failed calls. Calls that were refused or declined are not counted.
    """
    count = 0
    # Only Haystack can pass ChatMessages; a model cannot forge them.
    is_passed = isinstance(passed, list) and all(isinstance(each, ChatMessage) for each in passed)
    for message in reversed(passed if is_passed else _conversation.get() or ()):
        if message.is_from("user"):
            break
        for result in reversed(message.tool_call_results):
            if result.origin.tool_name != tool_name or REFUSED in message.meta:
                continue
            if result.error and (_was_refused(result) or was_declined(result)):
                continue
            if not result.error and not _was_returned(result):
                return count
            count += 1
    return count


def _was_returned(result: ToolCallResult) -> bool:
    parts = [result.result] if isinstance(result.result, str) else result.result
    text = next((part.text if isinstance(part, TextContent) else part for part in parts), "")
    return isinstance(text, str) and _FAILURE_PREFIX in text[:_PREFIX_SEARCH_LENGTH]


def limit_reached(limit: int) -> str:
    """
    Return the message that tells the model not to call a tool any more.

    :param limit: How often the tool has failed.
    :returns: The message.
    """
    times = "once" if limit == 1 else f"{limit} times in a row"
    return f"This tool has failed {times}. Do not call it again in this run: answer with what you have."


class ReturnedFailure(str):
    """
    A failure returned as a tool's result; result handlers must not receive it.
    """

    __slots__ = ()


def as_result(error: Exception) -> str:
    """
    Convert a failure to a result of its tool.

    :param error: The failure.
    :returns: The JSON string of an MCP result with `isError`.
    """
    return json.dumps({"content": [{"type": "text", "text": f"{_FAILURE_PREFIX}{error}"}], "isError": True})
