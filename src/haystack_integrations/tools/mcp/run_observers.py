# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Watches runs of pipelines and Agents from within, on both majors of Haystack.

What is watched is a copy, which shares its components with the original. Context variables say who watches, so that any
number of runs go on at a time.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from haystack.dataclasses import ToolCall

from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS, calls_of_model

# Told of each component of an observed pipeline before it runs; by raising, it stops the run.
component_observer: ContextVar[Callable[[str], None] | None] = ContextVar("mcp_haystack_observer", default=None)


def observed_pipeline(pipeline: Any) -> Any:
    """
    Copy a pipeline so that `component_observer` is told of each component before it runs.

    :param pipeline: A pipeline. It stays as it is, and shares its components and connections with the copy.
    :returns: The copy.
    """
    observed = copy.copy(pipeline)
    for name in ("_run_component", "_run_component_async"):
        run_component = getattr(pipeline, name, None)
        if run_component is not None:
            setattr(observed, name, _telling_observer(run_component))
    return observed


def _telling_observer(run_component: Callable[..., Any]) -> Callable[..., Any]:
    # Whether it is a coroutine function or not: the result is passed on.
    def run(component_name: str, *args: Any, **kwargs: Any) -> Any:
        observer = component_observer.get()
        if observer is not None:
            observer(component_name)
        return run_component(component_name, *args, **kwargs)

    return run


class AgentObserver(Protocol):
    """
    Told of what a run of an observed Agent does. By raising, it stops the run.
    """

    def before_model(self, data: dict[str, Any], steps: int) -> dict[str, Any] | None:
        """
        Called before each call of the chat generator.

        :param data: What the State of the run has: a copy, without what belongs to the server.
        :param steps: How many steps the run has taken.
        :returns: What the chat generator replied earlier, which is taken instead of calling it; or None.
        """

    def after_model(self, replied: dict[str, Any]) -> None:
        """
        Called with what the chat generator returned.

        :param replied: Its outputs.
        """

    def before_tools(self) -> None:
        """
        Called when it is settled which tools are called, before the first of them is.
        """


# Who observes the run that the code is part of.
agent_observer: ContextVar[AgentObserver | None] = ContextVar("mcp_haystack_agent_observer", default=None)
# The State of a run of Haystack 3, between its hook and its chat generator.
_state_of_run: ContextVar[Any] = ContextVar("mcp_haystack_state", default=None)


@dataclass
class _Steps:
    """
    What is known of an observed run on Haystack 2, all of which is in one thread.

    :param observer: Who observes it.
    :param taken: How often the model was called.
    :param state: Its State, once tools were called. Until then it has the inputs of the run and the messages.
    """

    observer: AgentObserver
    taken: int = 0
    state: Any = None


_steps_of_run: ContextVar[_Steps | None] = ContextVar("mcp_haystack_steps", default=None)

# What an Agent of Haystack 3 keeps in its State for itself, and makes anew for each run.
_OF_THE_SERVER = ("tools", "hook_context", "continue_run", "stop_run", "exit_reason")


def observed_agent(agent: Any) -> Any:
    """
    Copy an Agent so that `agent_observer` is told of what it does.

    :param agent: An Agent. It stays as it is, and shares its tools and hooks with the copy.
    :returns: The copy.
    """
    observed = copy.copy(agent)
    observed.chat_generator = copy.copy(agent.chat_generator)
    for name in ("run", "run_async"):
        method = getattr(agent.chat_generator, name, None)
        if method is not None:
            wrap = _observed_async if inspect.iscoroutinefunction(method) else _observed
            setattr(observed.chat_generator, name, wrap(method))
    for name in ("warm_up", "warm_up_async", "close", "close_async"):
        method = getattr(agent.chat_generator, name, None)
        if method is not None:
            # What this loads is the model of the one that runs.
            setattr(observed.chat_generator, name, method)
    if HAS_HOOKS:
        observed.hooks = {**agent.hooks}
        # The chat generator does not see the State.
        observed.hooks["before_llm"] = [*agent.hooks.get("before_llm", []), _Hook(_state_of_run.set)]
        observed.hooks["before_tool"] = [*agent.hooks.get("before_tool", []), _Hook(_tell_before_tools)]
    elif agent._tool_invoker is not None:
        observed._tool_invoker = copy.copy(agent._tool_invoker)
        observed._tool_invoker.run = _telling_of_tools(agent._tool_invoker.run)
    return observed


def continued_agent(observed: Any, data: dict[str, Any], steps: int) -> Any:
    """
    Copy an observed Agent so that its next run goes on where another one was before it called the chat generator.

    :param observed: The result of `observed_agent`.
    :param data: What the State had.
    :param steps: How many steps it had taken.
    :returns: The copy. It is run with that data as parameters.
    """
    continued = copy.copy(observed)
    # The messages have what these added.
    for name in ("system_prompt", "user_prompt", "_system_chat_prompt_builder", "_user_chat_prompt_builder"):
        setattr(continued, name, None)
    if HAS_HOOKS:
        continued.hooks = {**observed.hooks, "before_run": [_Hook(lambda state: state.data.update(data))]}
    else:
        continued.max_agent_steps = observed.max_agent_steps - steps
    return continued


def _observed(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def observed(**inputs: Any) -> Any:
        observer = agent_observer.get()
        if observer is None:
            return run(**inputs)
        replied = observer.before_model(*_current_state(observer, inputs)) or run(**inputs)
        calls_of_model.set([call for message in replied.get("replies") or [] for call in message.tool_calls])
        observer.after_model(replied)
        return replied

    return observed


def _observed_async(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    async def observed(**inputs: Any) -> Any:
        observer = agent_observer.get()
        if observer is None:
            return await run(**inputs)
        replied = observer.before_model(*_current_state(observer, inputs)) or await run(**inputs)
        observer.after_model(replied)
        return replied

    return observed


def _current_state(observer: AgentObserver, inputs: dict[str, Any]) -> tuple[dict[str, Any], int]:
    if HAS_HOOKS:
        data = _state_of_run.get().data
        steps = data["step_count"]
    else:
        known = _known_steps(observer)
        data = {**(known.state.data if known.state is not None else {}), "messages": inputs["messages"]}
        steps = known.taken
        known.taken += 1
    # Lists and dictionaries may be changed in place.
    return {
        key: copy.copy(value) if isinstance(value, list | dict) else value
        for key, value in data.items()
        if key not in _OF_THE_SERVER
    }, steps


def _known_steps(observer: AgentObserver) -> _Steps:
    known = _steps_of_run.get()
    if known is None or known.observer is not observer:
        known = _Steps(observer)
        _steps_of_run.set(known)
    return known


def pending_tool_calls() -> list[ToolCall] | None:
    """
    Find the calls that the observed Agent is about to make, as its hooks have changed them.

    :returns: The calls; None on Haystack 2, where the model's reply has them.
    """
    state = _state_of_run.get()
    return None if state is None else list(state.data["messages"][-1].tool_calls)


def _telling_of_tools(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def telling(**inputs: Any) -> Any:
        observer = agent_observer.get()
        if observer is not None:
            _known_steps(observer).state = inputs["state"]
            observer.before_tools()
        return run(**inputs)

    return telling


class _Hook:
    """
    A hook of an Agent of Haystack 3.
    """

    def __init__(self, run: Callable[[Any], object]) -> None:
        self.run = run

    async def run_async(self, state: Any) -> None:
        # Without it, the hook would run in a thread, whose context is lost.
        self.run(state)


def _tell_before_tools(_state: Any) -> None:
    observer = agent_observer.get()
    if observer is not None:
        observer.before_tools()
