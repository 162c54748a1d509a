# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One function for everything in Haystack that executes tool calls, and a tracer that keeps its spans.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from haystack import Pipeline, tracing
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.dataclasses import ChatMessage
from haystack.dataclasses.chat_message import ToolCallResult
from haystack.tools import Tool, ToolsType
from haystack.tracing.utils import coerce_tag_value

from tests.support.scripted_chat import ScriptedChatGenerator, Turn, calls, say

try:
    from haystack.components.tools import ToolInvoker
except ImportError:  # Haystack 3
    ToolInvoker = None

HAS_TOOL_INVOKER = ToolInvoker is not None


@dataclass
class Outcome:
    """
    The outcome of a step of tool calls: their results, the State after them, and the model's turns.
    """

    results: list[ToolCallResult]
    state: dict[str, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)

    @property
    def result(self) -> Any:
        """
        Return the result of the only call, which has succeeded, as the model sees it.
        """
        assert [each.error for each in self.results] == [False], self.results
        return self.results[0].result

    @property
    def error(self) -> str:
        """
        Return the error of the only call, which has failed, as the model sees it.
        """
        assert [each.error for each in self.results] == [True], self.results
        text = self.results[0].result
        assert isinstance(text, str)
        return text


Executor = Callable[..., Outcome]

in_both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["run", "run_async"])


def agent_of(tools: ToolsType, *replies: ChatMessage, **options: Any) -> Agent:
    """
    Return an Agent whose model plays these replies.
    """
    return Agent(chat_generator=ScriptedChatGenerator(list(replies)), tools=tools, **options)


def run(agent: Agent, *, is_async: bool = False, **given: Any) -> dict[str, Any]:
    """
    Run an Agent; with `is_async`, with `Agent.run_async` in a new event loop.
    """
    given = {"messages": [ChatMessage.from_user("go")], **given}
    return asyncio.run(agent.run_async(**given)) if is_async else agent.run(**given)


def results_of(result: dict[str, Any]) -> list[ToolCallResult]:
    """
    Return the results of the tool calls in the messages of a run.
    """
    return [each for message in result["messages"] for each in message.tool_call_results]


def answers_of(result: dict[str, Any]) -> list[Any]:
    """
    Return the contents of the tool results in the messages of a run.
    """
    return [each.result for each in results_of(result)]


def shown_to(agent: Agent) -> list[list[str]]:
    """
    Return the names of the tools that the model of an Agent was shown in each turn.
    """
    return [turn.tool_names for turn in agent.chat_generator.turns]


def names(tools: Iterable[Tool]) -> list[str]:
    """
    Return the names of the tools.
    """
    return [tool.name for tool in tools]


def reloaded(instance: Any) -> Any:
    """
    Store a component with a pipeline, load it again, check that the copy is stored alike, and return the copy.
    """
    pipeline = Pipeline()
    pipeline.add_component("component", instance)
    loaded = Pipeline.loads(pipeline.dumps())
    assert loaded.to_dict() == pipeline.to_dict()
    return loaded.get_component("component")


def by_agent(
    tools: ToolsType, *tool_calls: tuple[str, Any], state_schema: Any = None, state: Any = None, is_async: bool = False
) -> Outcome:
    """
    Execute the calls with an Agent, in one step.
    """
    agent = agent_of(tools, calls(*tool_calls), say("done"), state_schema=state_schema)
    result = run(agent, is_async=is_async, **(state or {}))
    turns = agent.chat_generator.turns
    return Outcome(results_of(result), {key: result.get(key) for key in state_schema or {}}, turns)


def by_tool_invoker(
    tools: ToolsType, *tool_calls: tuple[str, Any], state_schema: Any = None, state: Any = None, is_async: bool = False
) -> Outcome:
    """
    Execute the calls with a ToolInvoker; with `is_async`, with `ToolInvoker.run_async` in a new event loop.
    """
    invoker = ToolInvoker(tools=tools, raise_on_failure=False)
    given = {"messages": [calls(*tool_calls)], "state": State(schema=state_schema or {}, data=state)}
    result = asyncio.run(invoker.run_async(**given)) if is_async else invoker.run(**given)
    results = [each for message in result["tool_messages"] for each in message.tool_call_results]
    return Outcome(results, {key: result["state"].get(key) for key in state_schema or {}})


by_agent_async = functools.partial(by_agent, is_async=True)

EXECUTORS = [pytest.param(by_agent, id="Agent.run"), pytest.param(by_agent_async, id="Agent.run_async")]
if HAS_TOOL_INVOKER:
    EXECUTORS += [
        pytest.param(by_tool_invoker, id="ToolInvoker.run"),
        pytest.param(functools.partial(by_tool_invoker, is_async=True), id="ToolInvoker.run_async"),
    ]

# Runs a test with every executor of the installed Haystack: `execute(tools, *tool_calls, state_schema=, state=)`.
every_executor = pytest.mark.parametrize("execute", EXECUTORS)


class _RecordedSpan(tracing.Span):
    def __init__(self, tags: dict[str, Any]) -> None:
        self._tags = tags

    def set_tag(self, key: str, value: Any) -> None:
        self._tags[key] = value


class RecordingTracer(tracing.Tracer):
    """
    A tracer that keeps the names and tags of its spans, and the exceptions that left a span, as OpenTelemetry does.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[str] = []

    @contextlib.contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: tracing.Span | None = None
    ) -> Iterator[tracing.Span]:
        noted = dict(tags or {})
        self.spans.append((operation_name, noted))
        try:
            yield _RecordedSpan(noted)
        except Exception as error:
            self.errors.append(str(error))
            raise

    def current_span(self) -> tracing.Span | None:
        return None

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """
        Return the spans since the last call, and forget them.
        """
        spans, self.spans = self.spans, []
        return spans

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.spans]

    @property
    def text(self) -> str:
        """
        Return everything that was recorded, as text.
        """
        return "\n".join(f"{name} {key}={coerce_tag_value(tags[key])}" for name, tags in self.spans for key in tags)


@contextlib.contextmanager
def recorded_traces(*, content: bool) -> Iterator[RecordingTracer]:
    """
    Record Haystack's traces.

    :param content: Whether to also trace inputs and outputs, as `HAYSTACK_CONTENT_TRACING_ENABLED` does.
    """
    tracer = RecordingTracer()
    before = tracing.tracer.is_content_tracing_enabled
    tracing.enable_tracing(tracer)
    tracing.tracer.is_content_tracing_enabled = content
    try:
        yield tracer
    finally:
        tracing.disable_tracing()
        tracing.tracer.is_content_tracing_enabled = before
