# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is done for a call that is to be confirmed; each question leaves a span in the trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from haystack.tracing.tracer import tracer

from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS

if TYPE_CHECKING or HAS_HOOKS:
    from haystack.hooks.human_in_the_loop import BlockingConfirmationStrategy
    from haystack.hooks.human_in_the_loop.dataclasses import ToolExecutionDecision
    from haystack.hooks.human_in_the_loop.types import ConfirmationStrategy
else:
    from haystack.human_in_the_loop import BlockingConfirmationStrategy
    from haystack.human_in_the_loop.dataclasses import ToolExecutionDecision
    from haystack.human_in_the_loop.types import ConfirmationStrategy

SPAN_CONFIRMATION: Final = "haystack.mcp.tool_call.confirmation"


@contextmanager
def _span(question: dict[str, Any]) -> Iterator[Callable[[ToolExecutionDecision], ToolExecutionDecision]]:
    """
    Leave a span of a question in the trace. It gets the decision by the function that the context manager gives.
    """
    with tracer.trace(SPAN_CONFIRMATION, tags={"haystack.mcp.tool_call.name": question["tool_name"]}) as span:

        def decided(decision: ToolExecutionDecision) -> ToolExecutionDecision:
            edited = decision.final_tool_params not in (None, question["tool_params"])
            outcome = "declined" if not decision.execute else "edited" if edited else "accepted"
            span.set_tag("haystack.mcp.tool_call.decision", outcome)
            return decision

        yield decided


class TracedStrategy:
    """
    A strategy of the user's own, of which each decision leaves a span in the trace.
    """

    def __init__(self, strategy: ConfirmationStrategy) -> None:
        """
        Initialize the TracedStrategy.

        :param strategy: The strategy.
        """
        self._strategy = strategy

    def run(self, **question: Any) -> ToolExecutionDecision:
        """
        Have the strategy decide.

        :param question: What Haystack asks a ConfirmationStrategy.
        :returns: The decision.
        """
        with _span(question) as decided:
            return decided(self._strategy.run(**question))

    async def run_async(self, **question: Any) -> ToolExecutionDecision:
        """
        Have the strategy decide like `run`, without blocking the event loop.
        """
        with _span(question) as decided:
            return decided(await self._strategy.run_async(**question))


class MCPConfirmationStrategy(BlockingConfirmationStrategy):
    """
    Haystack's BlockingConfirmationStrategy, but `run_async` does not block the event loop while the user thinks.

    Each question leaves a span in the trace, with the name of the tool and the decision.
    """

    def run(self, **question: Any) -> ToolExecutionDecision:
        """
        Ask the user if the policy says so.

        :param question: What Haystack asks a ConfirmationStrategy: `tool_name`, `tool_description`, `tool_params`,
            `tool_call_id` and `confirmation_strategy_context`.
        :returns: The decision.
        """
        tool_name, tool_params = question["tool_name"], question["tool_params"]
        if not self.confirmation_policy.should_ask(tool_name, question["tool_description"], tool_params):
            return ToolExecutionDecision(
                tool_name=tool_name,
                execute=True,
                tool_call_id=question.get("tool_call_id"),
                final_tool_params=tool_params,
            )
        with _span(question) as decided:
            return decided(super().run(**question))

    async def run_async(self, **question: Any) -> ToolExecutionDecision:
        """
        Ask the user like `run`, in a thread.
        """
        return await asyncio.to_thread(self.run, **question)
