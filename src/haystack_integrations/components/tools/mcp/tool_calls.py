# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
The tool calls of a step: which are to be made, in which order, with which arguments, and what they leave in the State.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from haystack.components.agents import State
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import ComponentTool
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp import MCPTool
from haystack_integrations.tools.mcp.any_tools import ResolvedCall


def pending_calls(messages: Sequence[ChatMessage]) -> list[ToolCall]:
    """
    Find the tool calls that have no result yet.

    :param messages: The messages: replies of a model, or a whole conversation.
    :returns: The calls in their order.
    """
    pending = []
    for position, message in enumerate(messages):
        answered = []
        for following in messages[position + 1 :]:
            if not following.tool_call_results:
                break
            answered += [result.origin for result in following.tool_call_results]
        for call in message.tool_calls:
            origin = next((origin for origin in answered if _is_same(origin, call)), None)
            if origin is None:
                pending.append(call)
            else:
                answered.remove(origin)
    return pending


def _is_same(first: ToolCall, second: ToolCall) -> bool:
    return first.id == second.id if first.id and second.id else first == second


def tools_by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """
    Index tools.

    :param tools: The tools.
    :returns: The tools by name.
    :raises ValueError: If two have the same name.
    """
    named: dict[str, Tool] = {}
    for tool in tools:
        if named.setdefault(tool.name, tool) is not tool:
            msg = f"Two tools are called '{tool.name}'. Pass `tool_name_prefix` to the MCPToolset of one of them."
            raise ValueError(msg)
    return named


def in_batches(calls: Sequence[ResolvedCall]) -> list[list[int]]:
    """
    Order calls so that one that reads a key of the State runs after those that write it.

    Where two wait for each other, the one that the model called first goes first.

    :param calls: The calls.
    :returns: The positions of the calls, in batches. The calls of a batch may run at the same time.
    """
    reads, writes = zip(*(_state_keys(call) for call in calls), strict=True) if calls else ((), ())
    waits_for = [
        {other for other in range(len(calls)) if other != number and _overlap(reads[number], writes[other])}
        for number in range(len(calls))
    ]
    batches: list[list[int]] = []
    left = list(range(len(calls)))
    while left:
        ready = [number for number in left if not waits_for[number] & set(left)] or left[:1]
        batches.append(ready)
        left = [number for number in left if number not in ready]
    return batches


def _state_keys(resolved: ResolvedCall) -> tuple[set[str] | None, set[str] | None]:
    # What it reads and what it writes; None for everything.
    tool = resolved.tool
    if tool is None:
        return set(), set()
    if _state_parameters(tool):
        return None, None
    inputs = tool.inputs_from_state or {}
    return {key for key, name in inputs.items() if name not in resolved.call.arguments}, set(
        tool.outputs_to_state or {}
    )


def _overlap(first: set[str] | None, second: set[str] | None) -> bool:
    if first is None or second is None:
        other = second if first is None else first
        return other is None or bool(other)
    return bool(first & second)


def call_arguments(tool: Tool, call: ToolCall, state: State, streaming_callback: Any = None) -> dict[str, Any]:
    """
    Complete the arguments of a call.

    :param tool: The tool.
    :param call: The call. The arguments of the model take precedence over the State.
    :param state: The State.
    :param streaming_callback: Passed to tools that take one.
    :returns: The arguments.
    """
    arguments = dict(call.arguments)
    for key, name in (tool.inputs_from_state or {}).items():
        if name not in arguments and state.has(key):
            arguments[name] = state.get(key)
    for name in _state_parameters(tool):
        arguments[name] = state
    if streaming_callback is not None and "streaming_callback" in _parameters(tool):
        arguments.setdefault("streaming_callback", streaming_callback)
    return arguments


def _parameters(tool: Tool) -> dict[str, Any]:
    if isinstance(tool, ComponentTool):
        sockets = tool._component.__haystack_input__._sockets_dict  # type: ignore[attr-defined]
        return {name: socket.type for name, socket in sockets.items()}
    # An asynchronous tool of Haystack 3 need not have the other.
    function: Any = getattr(tool, "function", None) or getattr(tool, "async_function", None)
    if function is None:
        return {}
    try:
        signature = inspect.signature(function)
    except ValueError:  # some of Python's own functions have none
        return {}
    parameters = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    if any(isinstance(annotation, str) for annotation in parameters.values()):
        try:
            hints = get_type_hints(function, include_extras=True)
        except (NameError, TypeError):  # of types that are imported for type checkers only
            return parameters
        return {name: hints.get(name, annotation) for name, annotation in parameters.items()}
    return parameters


def _state_parameters(tool: Tool) -> list[str]:
    if isinstance(tool, MCPTool):
        return []
    return [name for name, annotation in _parameters(tool).items() if _is_state(annotation)]


def _is_state(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_state(get_args(annotation)[0])
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return any(_is_state(each) for each in get_args(annotation))
    return annotation is State


def update_state(tool: Tool, result: Any, state: State) -> None:
    """
    Write the outputs of a tool to the State.

    :param tool: The tool.
    :param result: Its result. Only a dictionary has outputs for the State.
    :param state: The State.
    """
    if not isinstance(result, dict):
        return
    for key, config in (tool.outputs_to_state or {}).items():
        source = config.get("source")
        if source and source not in result:
            continue
        state.set(key, result[source] if source else result, handler_override=config.get("handler"))
