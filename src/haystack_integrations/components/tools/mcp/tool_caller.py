# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPToolCaller`: a component that makes the tool calls of a model.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from haystack import component, default_from_dict, default_to_dict, logging
from haystack.components.agents import State
from haystack.dataclasses import ChatMessage, StreamingChunk, ToolCall, select_streaming_callback
from haystack.dataclasses.streaming_chunk import StreamingCallbackT
from haystack.tools import (
    ComponentTool,
    ToolsType,
    deserialize_tools_or_toolset_inplace,
    flatten_tools_or_toolsets,
    serialize_tools_or_toolset,
)
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from haystack.utils import deserialize_callable
from pydantic import SkipValidation

from haystack_integrations.tools.mcp import MCPTool
from haystack_integrations.tools.mcp.any_tools import (
    ResolvedCall,
    answer,
    close_tools,
    close_tools_async,
    invoke,
    invoke_async,
    resolve,
    run_in_threads,
    warm_up_tools,
    warm_up_tools_async,
)
from haystack_integrations.tools.mcp.budgets import calls_of
from haystack_integrations.tools.mcp.concurrency import gather_bounded
from haystack_integrations.tools.mcp.haystack_compat import (
    check_state_schema,
    component_of,
    deserialize_state_schema,
    input_sockets,
    is_state_type,
    serialize_state_schema,
)
from haystack_integrations.tools.mcp.import_paths import store_callable
from haystack_integrations.tools.mcp.parameters import Positive, checked, own_parameters

logger: logging.PatchedLogger = logging.getLogger(__name__)


@dataclass
class _Step:
    calls: list[ResolvedCall]
    state: State
    history: list[ChatMessage]
    replies: list[ChatMessage]
    # The streaming callback for the tools; None if they do not get it.
    callback: Any
    # The results, by the positions of the calls.
    messages: dict[int, ChatMessage] = field(default_factory=dict)


@component
class MCPToolCaller:
    """
    Makes the tool calls of a model's replies, and returns the tool messages, like ToolInvoker on Haystack 2.

    It can call all Haystack tools, not only those of MCP servers. The calls of a reply run concurrently, up to
    `max_concurrency`; the messages are in the order of the calls. Calls that already have a result are not made again,
    so a whole conversation can be passed.

    The model gets an error message for an unknown tool, arguments that the tool refuses, or a call that fails.

    For a loop in a pipeline, connect the output `messages` to the chat generator's input again, and take the answer
    from the output `replies`: a run returns `messages` if there were calls, and `replies` if there were none.

    ### Usage example

    ```python
    from haystack.dataclasses import ChatMessage, ToolCall
    from haystack_integrations.components.tools.mcp import MCPToolCaller
    from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo

    toolset = MCPToolset(StdioServerInfo(command="uvx", args=["mcp-server-time", "--local-timezone=Europe/Berlin"]))
    caller = MCPToolCaller(tools=toolset)
    call = ToolCall("get_current_time", {"timezone": "America/New_York"})
    [message] = caller.run(messages=[ChatMessage.from_assistant(tool_calls=[call])])["tool_messages"]
    caller.close()
    ```
    """

    @checked()
    def __init__(
        self,
        tools: SkipValidation[ToolsType],
        *,
        raise_on_failure: bool = False,
        max_concurrency: Positive = 4,
        state_schema: dict[str, dict[str, Any]] | None = None,
        streaming_callback: SkipValidation[StreamingCallbackT | None] = None,
        tool_streaming_callback_passthrough: bool = False,
    ) -> None:
        """
        Initialize the component. Nothing is connected yet.

        :param tools: The tools: a Toolset, or a list of Tools and Toolsets.
        :param raise_on_failure: Whether a failed call, or an unknown tool, is an error of the component instead of a
            message for the model.
        :param max_concurrency: How many calls run at a time.
        :param state_schema: The State that the tools read (`inputs_from_state`) and write (`outputs_to_state`), as for
            an Agent: a dictionary from keys to their `type` and, optionally, a `handler` that merges values. Each key
            is an optional input of the component, and an output.
        :param streaming_callback: Gets a StreamingChunk with each result, and a last chunk with the `finish_reason`
            "tool_call_results".
        :param tool_streaming_callback_passthrough: Whether the tools also get the callback, e.g. for the progress that
            an MCP server reports.
        :raises ValueError: If a parameter is invalid.
        """
        if not isinstance(tools, Toolset | list | tuple):
            msg = f"`tools` must be a Toolset, or a list of Tools and Toolsets, got {type(tools).__name__}"
            raise ValueError(msg)
        _tools_by_name(flatten_tools_or_toolsets(tools))
        check_state_schema(state_schema or {})
        self.tools = tools
        self.raise_on_failure = raise_on_failure
        self.max_concurrency = max_concurrency
        self.state_schema = state_schema
        self.streaming_callback = streaming_callback
        self.tool_streaming_callback_passthrough = tool_streaming_callback_passthrough
        outputs: dict[str, Any] = {key: config["type"] for key, config in (state_schema or {}).items()}
        for key, kind in outputs.items():
            component.set_input_type(self, key, kind, default=None)
        component.set_output_types(
            self,
            tool_messages=list[ChatMessage],
            messages=list[ChatMessage],
            replies=list[ChatMessage],
            state=State,
            tool_call_counts=dict[str, int],
            **outputs,
        )

    def warm_up(self) -> None:
        """
        Warm the tools up, connecting to MCP servers concurrently. Cheap if they are warm.

        :raises MCPConnectionError: If a server cannot be reached.
        """
        warm_up_tools(self.tools)

    async def warm_up_async(self) -> None:
        """
        Warm the tools up like `warm_up`, without blocking the event loop while MCP servers are connected.

        :raises MCPConnectionError: As `warm_up`.
        """
        await warm_up_tools_async(self.tools)

    def close(self) -> None:
        """
        Release the connections of the tools. The next warm-up or call opens them again.
        """
        close_tools(self.tools)

    async def close_async(self) -> None:
        """
        Release the connections of the tools like `close`, without blocking the event loop.
        """
        await close_tools_async(self.tools)

    def run(
        self,
        messages: list[ChatMessage],
        history: list[ChatMessage] | None = None,
        state: State | None = None,
        streaming_callback: StreamingCallbackT | None = None,
        *,
        tools: ToolsType | None = None,
        **state_inputs: Any,
    ) -> dict[str, Any]:
        """
        Make the tool calls that have no result yet.

        :param messages: Messages with tool calls: the replies of a chat generator, or a whole conversation.
        :param history: Messages that come before `messages` in the output `messages`.
        :param state: The State of the tools; it is changed. Default: a new one with the `state_schema`.
        :param streaming_callback: Replaces the callback of the component.
        :param tools: Tools for this run, which replace the tools of the component.
        :param state_inputs: Values for the keys of `state_schema`.
        :returns: A dictionary with:
            - `tool_messages`: One message for each call, in the order of the calls.
            - `messages`: `history`, `messages` and the tool messages, for the next turn of the model. Only if there
              were calls.
            - `replies`: The unchanged `messages`. Only if there were no calls.
            - `state`: The State after the calls.
            - `tool_call_counts`: The number of calls by tool, including failed calls and unknown tools.
            - The value of each key of `state_schema` that the State has.
        :raises MCPToolNotFoundError: With `raise_on_failure`, if there is no such tool.
        :raises ToolInvocationError: With `raise_on_failure`, if a call fails.
        :raises MCPBudgetExceededError: If a `call_budget` ends the run.
        :raises MCPToolFailedError: If a tool with `on_tool_error="raise"` fails.
        :raises ValueError: If two tools have the same name.
        """
        callback = select_streaming_callback(self.streaming_callback, streaming_callback, requires_async=False)
        tools = self.tools if tools is None else tools
        warm_up_tools(tools)
        step = self._step(messages, history, state, callback, tools, state_inputs)
        for batch in _in_batches(step.calls, set(step.state.schema)):
            # Collect all arguments before any call of the batch runs, so that the State changes only between batches.
            calls = [partial(invoke, *self._call(step, number)) for number in batch]
            with calls_of([*step.history, *step.replies]):
                results = [calls[0]()] if len(calls) == 1 else run_in_threads(calls, self.max_concurrency)
            for number, result in zip(batch, results, strict=True):
                message = self._conclude(step, number, result)
                if callback is not None:
                    callback(_chunk(message, number))
        if callback is not None and step.calls:
            callback(_last_chunk())
        return self._outputs(step)

    async def run_async(
        self,
        messages: list[ChatMessage],
        history: list[ChatMessage] | None = None,
        state: State | None = None,
        streaming_callback: StreamingCallbackT | None = None,
        *,
        tools: ToolsType | None = None,
        **state_inputs: Any,
    ) -> dict[str, Any]:
        """
        Make the tool calls like `run`, without blocking the event loop.

        :param messages: As in `run`.
        :param history: As in `run`.
        :param state: As in `run`.
        :param streaming_callback: As in `run`; it may be asynchronous.
        :param tools: As in `run`.
        :param state_inputs: As in `run`.
        :returns: As `run`.
        :raises MCPToolNotFoundError: As `run`.
        :raises ToolInvocationError: As `run`.
        :raises MCPBudgetExceededError: As `run`.
        :raises MCPToolFailedError: As `run`.
        :raises ValueError: As `run`.
        """
        callback = self.streaming_callback if streaming_callback is None else streaming_callback
        tools = self.tools if tools is None else tools
        await warm_up_tools_async(tools)
        step = self._step(messages, history, state, callback, tools, state_inputs)
        for batch in _in_batches(step.calls, set(step.state.schema)):
            calls = [partial(invoke_async, *self._call(step, number)) for number in batch]
            with calls_of([*step.history, *step.replies]):
                results = await gather_bounded(calls, self.max_concurrency)
            for number, result in zip(batch, results, strict=True):
                message = self._conclude(step, number, result)
                if callback is not None:
                    await _send(callback, _chunk(message, number))
        if callback is not None and step.calls:
            await _send(callback, _last_chunk())
        return self._outputs(step)

    def _step(
        self,
        messages: list[ChatMessage],
        history: list[ChatMessage] | None,
        state: State | None,
        callback: Any,
        tools: ToolsType,
        state_inputs: dict[str, Any],
    ) -> _Step:
        named = _tools_by_name(flatten_tools_or_toolsets(tools))
        given = {key: value for key, value in state_inputs.items() if value is not None}
        # Outputs of tools get into the State even if their keys are not in the schema.
        written = {key: {"type": object} for tool in named.values() for key in tool.outputs_to_state or {}}
        own_state = State(schema={**written, **(self.state_schema or {})}, data=given)
        if state is None:
            state = own_state
        else:
            # A State from another MCPToolCaller has only that component's keys.
            for key, definition in own_state.schema.items():
                state.schema.setdefault(key, definition)
            for key, value in given.items():
                state.set(key, value)
        calls = [resolve(call, named) for call in _pending_calls(messages)]
        passed = callback if self.tool_streaming_callback_passthrough else None
        return _Step(calls, state, list(history or []), list(messages), passed)

    @staticmethod
    def _call(step: _Step, number: int) -> tuple[ResolvedCall, dict[str, Any]]:
        resolved = step.calls[number]
        if resolved.tool is None:
            return resolved, {}
        return resolved, _call_arguments(resolved.tool, resolved.call, step.state, step.callback)

    def _conclude(self, step: _Step, number: int, result: Any) -> ChatMessage:
        def store(tool: Tool) -> None:
            _update_state(tool, result, step.state)

        message = answer(step.calls[number], result, store=store, raises=self.raise_on_failure)
        step.messages[number] = message
        return message

    def _outputs(self, step: _Step) -> dict[str, Any]:
        answers = [step.messages[number] for number in range(len(step.calls))]
        known = {key: step.state.get(key) for key in self.state_schema or {} if step.state.has(key)}
        following = {"messages": [*step.history, *step.replies, *answers]} if answers else {"replies": step.replies}
        return {
            "tool_messages": answers,
            **following,
            "state": step.state,
            "tool_call_counts": dict(Counter(resolved.call.tool_name for resolved in step.calls)),
            **known,
        }

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the component to a dictionary.

        :returns: The dictionary.
        """
        stored = {**own_parameters(self, MCPToolCaller), "tools": serialize_tools_or_toolset(self.tools)}
        if self.state_schema is not None:
            stored["state_schema"] = serialize_state_schema(self.state_schema)
        if self.streaming_callback is not None:
            stored["streaming_callback"] = store_callable("`streaming_callback`", self.streaming_callback)
        return default_to_dict(self, **stored)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MCPToolCaller:
        """
        Deserialize the component, without connecting.

        :param data: The result of `to_dict`.
        :returns: The component.
        """
        parameters = dict(data.get("init_parameters", {}))
        deserialize_tools_or_toolset_inplace(parameters, key="tools")
        if parameters.get("state_schema") is not None:
            parameters["state_schema"] = deserialize_state_schema(parameters["state_schema"])
        if parameters.get("streaming_callback") is not None:
            parameters["streaming_callback"] = deserialize_callable(parameters["streaming_callback"])
        return default_from_dict(cls, {**data, "init_parameters": parameters})


def _chunk(message: ChatMessage, number: int) -> StreamingChunk:
    result = message.tool_call_results[0]
    meta = {"tool_result": result.result, "tool_call": result.origin}
    return StreamingChunk(content="", index=number, tool_call_result=result, start=True, meta=meta)


def _last_chunk() -> StreamingChunk:
    reason: Any = "tool_call_results"
    return StreamingChunk(content="", finish_reason=reason, meta={"finish_reason": reason})


async def _send(callback: Any, chunk: StreamingChunk) -> None:
    sent = callback(chunk)
    if inspect.isawaitable(sent):
        await sent


# The calls of a step: selecting and ordering them, completing their arguments, and storing their outputs in the State.


def _pending_calls(messages: Sequence[ChatMessage]) -> list[ToolCall]:
    """
    Return the tool calls in replies, or in a whole conversation, that have no result yet.
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


def _tools_by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """
    Index tools by name, and refuse duplicate names.
    """
    named: dict[str, Tool] = {}
    for tool in tools:
        if named.setdefault(tool.name, tool) is not tool:
            msg = f"Two tools are called '{tool.name}'. Pass `tool_name_prefix` to the MCPToolset of one of them."
            raise ValueError(msg)
    return named


def _in_batches(calls: Sequence[ResolvedCall], all_keys: set[str]) -> list[list[int]]:
    """
    Order calls so that a call that reads a State key runs after the calls that write it.

    If two calls wait for each other, the one that comes first in the reply runs first. A batch is a list of positions
    of calls that may run concurrently.
    """
    keys = [_state_keys(call, all_keys) for call in calls]
    waits_for = [
        {other for other, (_, writes) in enumerate(keys) if other != number and reads & writes}
        for number, (reads, _) in enumerate(keys)
    ]
    batches: list[list[int]] = []
    left = list(range(len(calls)))
    while left:
        ready = [number for number in left if not waits_for[number] & set(left)] or left[:1]
        batches.append(ready)
        left = [number for number in left if number not in ready]
    return batches


def _state_keys(resolved: ResolvedCall, all_keys: set[str]) -> tuple[set[str], set[str]]:
    # Returns the keys that the call reads, and the keys that it writes.
    tool, given = resolved.tool, resolved.call.arguments
    if tool is None:
        return set(), set()
    if _state_parameters(tool):
        return all_keys, all_keys
    inputs = tool.inputs_from_state or {}
    return {key for key, name in inputs.items() if name not in given}, set(tool.outputs_to_state or {})


def _call_arguments(tool: Tool, call: ToolCall, state: State, streaming_callback: Any = None) -> dict[str, Any]:
    """
    Complete the arguments of a call. The model's arguments take precedence over the State.
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
        return {name: socket.type for name, socket in input_sockets(component_of(tool)).items()}
    # An asynchronous tool of Haystack 3 may have no `function`.
    function: Any = getattr(tool, "function", None) or getattr(tool, "async_function", None)
    if function is None:
        return {}
    try:
        signature = inspect.signature(function, eval_str=True)
    except (AttributeError, NameError, SyntaxError, TypeError):  # annotations for type checkers only, or plain words
        signature = inspect.signature(function)
    return {name: parameter.annotation for name, parameter in signature.parameters.items()}


def _state_parameters(tool: Tool) -> list[str]:
    if isinstance(tool, MCPTool):
        return []
    return [name for name, annotation in _parameters(tool).items() if is_state_type(annotation)]


def _update_state(tool: Tool, result: Any, state: State) -> None:
    """
    Write the outputs of a tool to the State.
    """
    if not isinstance(result, dict):
        return
    for key, config in (tool.outputs_to_state or {}).items():
        source = config.get("source")
        if source and source not in result:
            continue
        state.set(key, result[source] if source else result, handler_override=config.get("handler"))
