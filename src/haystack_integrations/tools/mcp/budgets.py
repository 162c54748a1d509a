# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How many tool calls there may be, and how often a tool may fail; what the model is told of calls that are refused.

Nothing of a run's failures is kept here: they are counted in its messages. So runs of one Agent do not disturb each
other.
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

# In the `meta` of tool messages that stand for refused calls.
REFUSED: Final = "mcp_call_refused"

SPAN_REFUSED: Final = "haystack.mcp.tool_call.refused"

# The key of an Agent's State that has its messages, and the argument by which Haystack passes them to a tool.
STATE_KEY: Final = "messages"
ARGUMENT: Final = "_mcp_conversation"

# How a failure begins that is returned as the result of its tool.
_FAILED: Final = "[This tool call failed] "
# Beyond this, an output handler has put something before it.
_BEGINNING: Final = 100


Limit: TypeAlias = Annotated[int, Field(ge=0)]
LimitPerTool: TypeAlias = Limit | Mapping[str, Limit]


@dataclass(frozen=True, kw_only=True)
class CallCounts:
    """
    How many calls, and how many turns of them, there may be.

    :param max_turns: How many replies of the model may call tools; None for no limit.
    :param max_calls: How many calls there may be altogether; None for no limit.
    :param max_calls_per_tool: How many calls of each tool, or of the tools by their names; None for no limit.
    """

    max_turns: int | None = None
    max_calls: int | None = None
    max_calls_per_tool: int | Mapping[str, int] | None = None

    def reason_against(self, tool_name: str, counts: Mapping[str, int], turns: int = 0) -> str | None:
        """
        Return why a call does not fit.

        :param tool_name: Name of the tool.
        :param counts: How many calls of which tool there were.
        :param turns: In how many turns.
        :returns: The limit that is reached; None if it fits.
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
    # Agents leave no other trace of a `call_budget` than what the model was told.
    text = result.result if isinstance(result.result, str) else ""
    beginning, end = REFUSAL_MESSAGE.split("{limit}")
    beginning = beginning.format(tool_name=result.origin.tool_name)
    return result.error and text.startswith(f"{beginning}the limit of ") and text.endswith(f" is reached{end}")


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def note_refusal(tool_name: str, limit: str) -> None:
    """
    Leave a span of a refused call in the trace.

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
    What is left of a `call_budget`.
    """

    def __init__(
        self, counts: CallCounts, *, tools: Sequence[str] | None = None, max_refused_calls: int | None = None
    ) -> None:
        """
        Initialize the budget; `call_budget` does that.

        :param counts: The limits.
        :param tools: Names of the tools that are counted; None for all MCP tools.
        :param max_refused_calls: After how many refused calls the run is ended.
        """
        self._counts = counts
        self._tools = tools
        self._max_refused = max_refused_calls
        self._lock = threading.Lock()
        self._made: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<MCPCallBudget: {self.calls} calls, {self.refused} refused>"

    @property
    def calls(self) -> int:
        """
        How many calls were made.
        """
        return sum(self._made.values())

    @property
    def refused(self) -> int:
        """
        How many calls were refused.
        """
        return sum(self._refused.values())

    @property
    def calls_by_tool(self) -> dict[str, int]:
        """
        How many calls were made of which tool.
        """
        return {name: count for name, count in self._made.items() if count}

    def _admit(self, tool_name: str) -> None:
        with self._lock:
            limit = self._counts.reason_against(tool_name, self._made)
            if limit is None:
                self._made[tool_name] += 1
                return
            self._refused[tool_name] += 1
            refused = self.refused
        note_refusal(tool_name, limit)
        if self._max_refused is not None and refused > self._max_refused:
            msg = f"The model went on to call tools after {self._max_refused} refused calls: {limit}"
            raise MCPBudgetExceededError(msg)
        raise MCPCallRefusedError(REFUSAL_MESSAGE.format(tool_name=tool_name, limit=limit), tool_name)


# Those in which this code runs, the outermost first.
call_budgets: Final[ContextVar[tuple[MCPCallBudget, ...]]] = ContextVar("haystack_mcp_call_budgets", default=())


def admit_call(tool_name: str, *, is_mcp_tool: bool = True) -> None:
    """
    Ask the budgets in which this code runs for a call.

    :param tool_name: Name of the tool.
    :param is_mcp_tool: Whether it is a tool of a server. Others are counted by budgets that name them.
    :raises MCPCallRefusedError: If one is used up.
    """
    for budget in call_budgets.get():
        if is_mcp_tool if budget._tools is None else tool_name in budget._tools:
            budget._admit(tool_name)


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

    A call over the limit is not sent. The model gets an error in place of its result, and answers in words. It concerns
    everything that runs in the block, e.g. `agent.run` or `await agent.run_async`, in all threads and tasks that
    Haystack starts for it. Each block has a budget of its own, also if several run one Agent at the same time; in a
    block within a block, both budgets hold.

    ```python
    from haystack_integrations.tools.mcp import call_budget

    with call_budget(max_calls=5, max_calls_per_tool={"search": 2}) as budget:
        agent.run(messages=[ChatMessage.from_user("Which lamps are there?")])
    print(budget.calls, budget.refused)
    ```

    :param max_calls: How many calls there may be altogether. Default: no limit.
    :param max_calls_per_tool: How many calls of each tool, or of single tools by their names. Default: no limit.
    :param tools: Names of the tools that are counted. Default: all MCP tools.
    :param max_refused_calls: After how many refused calls the next one ends the run with an MCPBudgetExceededError,
        because the model insists. Default: never; `max_agent_steps` of the Agent ends it.
    :returns: A context manager that gives the budget, with `calls`, `calls_by_tool` and `refused`.
    :raises MCPConfigurationError: If a parameter is invalid.
    """
    counts = CallCounts(max_calls=max_calls, max_calls_per_tool=max_calls_per_tool)
    budget = MCPCallBudget(counts, tools=tools, max_refused_calls=max_refused_calls)
    reset = call_budgets.set((*call_budgets.get(), budget))
    try:
        yield budget
    finally:
        call_budgets.reset(reset)


# The messages of a loop of this package, which has no State.
_conversation: ContextVar[Sequence[ChatMessage] | None] = ContextVar("haystack_mcp_conversation", default=None)


@contextmanager
def calls_of(conversation: Sequence[ChatMessage]) -> Iterator[None]:
    """
    Make the calls in this block part of a conversation.

    :param conversation: Its messages.
    """
    reset = _conversation.set(conversation)
    try:
        yield
    finally:
        _conversation.reset(reset)


def failures_in_a_row(passed: Any, tool_name: str) -> int:
    """
    Count how often a tool has failed in a run since it last succeeded.

    :param passed: The messages that Haystack passed to the tool, if it did.
    :param tool_name: Name of the tool.
    :returns: The number of calls that failed. Those that were refused or declined are not counted.
    """
    count = 0
    # No model can write ChatMessages, which Haystack passes.
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
    return isinstance(text, str) and _FAILED in text[:_BEGINNING]


def limit_reached(limit: int) -> str:
    """
    Return what the model is told of a tool that is not to be called any more.

    :param limit: How often it has failed.
    :returns: A sentence.
    """
    times = "once" if limit == 1 else f"{limit} times in a row"
    return f"This tool has failed {times}. Do not call it again in this run: answer with what you have."


class ReturnedFailure(str):
    """
    A failure as the result of a tool with handlers of results, which are not to get it.
    """

    __slots__ = ()


def as_result(error: Exception) -> str:
    """
    Write a failure as the result of its tool.

    :param error: The failure.
    :returns: The JSON string of an MCP result with `isError`.
    """
    return json.dumps({"content": [{"type": "text", "text": f"{_FAILED}{error}"}], "isError": True})
