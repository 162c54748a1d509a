# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is done for a call that is to be confirmed; each question leaves a span in the trace.

In a durable run each decision is recorded, and nobody is asked twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from haystack.tracing.tracer import tracer

from haystack_integrations.tools.mcp.connection.recording import Recall, call_recorder
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS

if TYPE_CHECKING or HAS_HOOKS:
    from haystack.hooks.human_in_the_loop import BlockingConfirmationStrategy
    from haystack.hooks.human_in_the_loop.dataclasses import ToolExecutionDecision
    from haystack.hooks.human_in_the_loop.types import ConfirmationStrategy
else:
    from haystack.human_in_the_loop import BlockingConfirmationStrategy
    from haystack.human_in_the_loop.dataclasses import ToolExecutionDecision
    from haystack.human_in_the_loop.types import ConfirmationStrategy

_ABSENT: Final = object()
# Stands for the arguments in what the model is told of edited ones.
_ARGUMENTS: Final = "\x00"

SPAN_CONFIRMATION: Final = "haystack.mcp.tool_call.confirmation"


@contextmanager
def _span(question: dict[str, Any]) -> Iterator[Callable[[ToolExecutionDecision], ToolExecutionDecision]]:
    """
    Leave a span of a question in the trace. It gets the decision by the function that the context manager yields.
    """
    with tracer.trace(SPAN_CONFIRMATION, tags={"haystack.mcp.tool_call.name": question["tool_name"]}) as span:

        def decided(decision: ToolExecutionDecision) -> ToolExecutionDecision:
            edited = decision.final_tool_params not in (None, question["tool_params"])
            outcome = "declined" if not decision.execute else "edited" if edited else "accepted"
            span.set_tag("haystack.mcp.tool_call.decision", outcome)
            return decision

        yield decided


def _recalled(question: dict[str, Any]) -> Recall | None:
    # By its place among the calls of the step: on Haystack 2.31 the arguments have values of the State among them.
    recorder = call_recorder.get()
    return None if recorder is None else recorder.recall("decision", question["tool_name"])


def _record(recall: Recall | None, question: dict[str, Any], decision: ToolExecutionDecision) -> ToolExecutionDecision:
    """
    Write a decision down, without the values of arguments that the user left as they were.
    """
    if recall is not None:
        asked, final = question["tool_params"], decision.final_tool_params or {}
        arguments = [[name] if asked.get(name, _ABSENT) == value else [name, value] for name, value in final.items()]
        feedback = decision.feedback if not final else (decision.feedback or "").replace(str(final), _ARGUMENTS)
        recall.record({"execute": decision.execute, "feedback": feedback or None, "arguments": arguments})
    return decision


def _recorded(recall: Recall, question: dict[str, Any]) -> ToolExecutionDecision:
    stored, asked = recall.result, question["tool_params"]
    final = {name: value[0] if value else asked[name] for name, *value in stored["arguments"]}
    return ToolExecutionDecision(
        tool_name=question["tool_name"],
        execute=stored["execute"],
        tool_call_id=question.get("tool_call_id"),
        feedback=stored["feedback"] and stored["feedback"].replace(_ARGUMENTS, str(final)),
        final_tool_params=final if stored["execute"] else None,
    )


def _decision(question: dict[str, Any], decide: Callable[..., ToolExecutionDecision]) -> ToolExecutionDecision:
    recall = _recalled(question)
    if recall is not None and recall.is_recorded:
        return _recorded(recall, question)
    with _span(question) as decided:
        return _record(recall, question, decided(decide(**question)))


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
        Return what the strategy decides.

        :param question: What Haystack asks a ConfirmationStrategy.
        :returns: The decision.
        """
        return _decision(question, self._strategy.run)

    async def run_async(self, **question: Any) -> ToolExecutionDecision:
        """
        Return what the strategy decides like `run`, without blocking the event loop.
        """
        recall = _recalled(question)
        if recall is not None and recall.is_recorded:
            return _recorded(recall, question)
        with _span(question) as decided:
            decision = decided(await self._strategy.run_async(**question))
        return await asyncio.to_thread(_record, recall, question, decision)


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
        return _decision(question, super().run)

    async def run_async(self, **question: Any) -> ToolExecutionDecision:
        """
        Ask the user like `run`, in a thread.
        """
        return await asyncio.to_thread(self.run, **question)
