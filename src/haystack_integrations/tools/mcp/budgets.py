# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How many tool calls there may be, and what the model is told of those that are refused.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from haystack.dataclasses import ToolCallResult
from haystack.tracing.tracer import tracer

from haystack_integrations.tools.mcp.errors import MCPBudgetExceededError, MCPCallRefusedError, MCPConfigurationError

__all__ = ["MCPCallBudget", "call_budget"]

REFUSAL_MESSAGE: Final = (
    "The call of '{tool_name}' was refused: {limit}. Answer with what you have, and say what is missing."
)

# In the `meta` of tool messages that stand for refused calls.
REFUSED: Final = "mcp_call_refused"

# In the `meta` of an assistant's message with what is left of a reply of which calls were refused.
CONTINUED: Final = "mcp_reply_continued"

SPAN_REFUSED: Final = "haystack.mcp.tool_call.refused"


@dataclass(frozen=True, kw_only=True)
class CallCounts:
    """
    How many calls, and how many turns of them, there may be.

    :param max_turns: How many replies of the model may call tools; None for no limit.
    :param max_calls: How many calls there may be altogether; None for no limit.
    :param max_calls_per_tool: How many calls of each tool, or of the tools by their names; None for no limit.
    :param refusal_message: What the model is told, with `{tool_name}` and `{limit}`.
    """

    max_turns: int | None = None
    max_calls: int | None = None
    max_calls_per_tool: int | Mapping[str, int] | None = None
    refusal_message: str = REFUSAL_MESSAGE

    def check(self, owner: str) -> None:
        """
        Validate the limits.

        :param owner: Whose they are, for messages.
        :raises MCPConfigurationError: If one is invalid. The message names it and the valid choices.
        """
        for name in ("max_turns", "max_calls"):
            _check_count(owner, name, getattr(self, name))
        per_tool = self.max_calls_per_tool
        if isinstance(per_tool, Mapping):
            for tool, value in per_tool.items():
                _check_count(owner, f"max_calls_per_tool['{tool}']", value)
        else:
            _check_count(owner, "max_calls_per_tool", per_tool)
        try:
            self.refusal("a_tool", "a limit")
        except (KeyError, IndexError, ValueError, AttributeError):
            msg = f"{owner}: `refusal_message` may have the placeholders {{tool_name}} and {{limit}} only"
            raise MCPConfigurationError(msg) from None

    def of_tool(self, tool_name: str) -> int | None:
        """
        Give the limit of a tool.

        :param tool_name: Name of the tool.
        :returns: How many calls there may be; None for no limit.
        """
        per_tool = self.max_calls_per_tool
        return per_tool.get(tool_name) if isinstance(per_tool, Mapping) else per_tool

    def reason_against(self, tool_name: str, counts: Mapping[str, int], turns: int = 0) -> str | None:
        """
        Say why a call does not fit.

        :param tool_name: Name of the tool.
        :param counts: How many calls of which tool there were.
        :param turns: In how many turns.
        :returns: The limit that is reached; None if it fits.
        """
        if self.max_turns is not None and turns >= self.max_turns:
            return f"the limit of {self.max_turns} {_plural('turn', self.max_turns)} of tool calls is reached"
        if self.max_calls is not None and sum(counts.values()) >= self.max_calls:
            return f"the limit of {self.max_calls} tool {_plural('call', self.max_calls)} is reached"
        limit = self.of_tool(tool_name)
        if limit is not None and counts.get(tool_name, 0) >= limit:
            return f"the limit of {limit} {_plural('call', limit)} of this tool is reached"
        return None

    def refusal(self, tool_name: str, limit: str) -> str:
        """
        Say to the model that a call is refused.

        :param tool_name: Name of the tool.
        :param limit: The limit that is reached.
        :returns: The text.
        """
        return self.refusal_message.format(tool_name=tool_name, limit=limit)


def was_refused(result: ToolCallResult) -> bool:
    """
    Tell whether a tool call was refused, by what the model was told. Agents leave no other trace of a `call_budget`.

    :param result: What the model was told of the call.
    :returns: False for a budget with a `refusal_message` of its own.
    """
    text = result.result if isinstance(result.result, str) else ""
    beginning, end = REFUSAL_MESSAGE.split("{limit}")
    beginning = beginning.format(tool_name=result.origin.tool_name)
    return result.error and text.startswith(f"{beginning}the limit of ") and text.endswith(f" is reached{end}")


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def _check_count(owner: str, name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        msg = f"{owner}: `{name}` must be a whole number of at least 0, or None for no limit, got {value!r}"
        raise MCPConfigurationError(msg)


def check_tools(owner: str, tools: Any) -> list[str] | None:
    """
    Check the value of `tools`.

    :param owner: Whose it is, for messages.
    :param tools: Names of tools, or None for all MCP tools.
    :returns: The names.
    :raises MCPConfigurationError: If it is something else.
    """
    if tools is None:
        return None
    if isinstance(tools, str) or not isinstance(tools, Sequence) or not all(isinstance(name, str) for name in tools):
        msg = f"{owner}: `tools` must be a list of names of tools, or None for all MCP tools, got {tools!r}"
        raise MCPConfigurationError(msg)
    return list(tools)


def note_refusal(tool_name: str, limit: str) -> None:
    """
    Leave a span of a refused call in the trace.

    :param tool_name: Name of the tool.
    :param limit: The limit that was reached.
    """
    tags = {"haystack.mcp.tool_call.name": tool_name, "haystack.mcp.tool_call.limit": limit}
    with tracer.trace(SPAN_REFUSED, tags=tags):
        pass


class MCPCallBudget:
    """
    What is left of a `call_budget`.
    """

    def __init__(
        self, counts: CallCounts, *, tools: list[str] | None = None, max_refused_calls: int | None = None
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

    def _counts_tool(self, tool_name: str, *, is_servers: bool) -> bool:
        return is_servers if self._tools is None else tool_name in self._tools

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
        raise MCPCallRefusedError(self._counts.refusal(tool_name, limit), tool_name)

    def _take_back(self, tool_name: str) -> None:
        # Another budget has refused the call.
        with self._lock:
            self._made[tool_name] -= 1


_current: ContextVar[tuple[MCPCallBudget, ...]] = ContextVar("haystack_mcp_call_budgets", default=())


def admit_call(tool_name: str, *, is_servers: bool = True) -> None:
    """
    Ask the budgets in which this code runs for a call.

    :param tool_name: Name of the tool.
    :param is_servers: Whether it is a tool of a server. Others are counted by budgets that name them.
    :raises MCPCallRefusedError: If one is used up.
    """
    current = _current.get()
    if not current:
        return
    budgets = [each for each in current if each._counts_tool(tool_name, is_servers=is_servers)]
    for number, budget in enumerate(budgets):
        try:
            budget._admit(tool_name)
        except (MCPCallRefusedError, MCPBudgetExceededError):
            for outer in budgets[:number]:
                outer._take_back(tool_name)
            raise


@contextmanager
def call_budget(
    max_calls: int | None = None,
    *,
    max_calls_per_tool: int | Mapping[str, int] | None = None,
    tools: Sequence[str] | None = None,
    refusal_message: str = REFUSAL_MESSAGE,
    max_refused_calls: int | None = None,
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
    :param refusal_message: What the model is told, with `{tool_name}` and `{limit}`.
    :param max_refused_calls: After how many refused calls the next one ends the run with an MCPBudgetExceededError,
        because the model insists. Default: never; `max_agent_steps` of the Agent ends it.
    :returns: A context manager that gives the budget, with `calls`, `calls_by_tool` and `refused`.
    :raises MCPConfigurationError: If a parameter is invalid.
    """
    owner = "call_budget"
    counts = CallCounts(max_calls=max_calls, max_calls_per_tool=max_calls_per_tool, refusal_message=refusal_message)
    counts.check(owner)
    _check_count(owner, "max_refused_calls", max_refused_calls)
    budget = MCPCallBudget(counts, tools=check_tools(owner, tools), max_refused_calls=max_refused_calls)
    reset = _current.set((*_current.get(), budget))
    try:
        yield budget
    finally:
        _current.reset(reset)
