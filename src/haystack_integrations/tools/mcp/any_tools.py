# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Warms up, calls and closes tools of any kind, not only those of MCP servers.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from haystack import logging
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.budgets import REFUSED
from haystack_integrations.tools.mcp.concurrency import call_async
from haystack_integrations.tools.mcp.convert.content import json_text
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.errors import (
    MCPBudgetExceededError,
    MCPCallRefusedError,
    MCPConnectionError,
    MCPRunError,
    MCPToolFailedError,
    MCPToolNotFoundError,
)
from haystack_integrations.tools.mcp.executor import AsyncExecutor, ExecutorStartError, running_loop
from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.tool_base import HasConnection

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")


def tool_items(tools: Any) -> list[Any]:
    """
    List tools and toolsets.

    :param tools: A Tool, a Toolset, or a list of them.
    :returns: The list.
    """
    return [tools] if isinstance(tools, Tool | Toolset) else list(tools)


def connected_items(tools: Any) -> list[HasConnection]:
    """
    Find everything that has a connection to a server, including in combined toolsets.

    :param tools: A Tool, a Toolset, or a list of them.
    :returns: The MCPTools, MCPToolsets and MCPResourceToolsets.
    """
    found: list[HasConnection] = []
    for item in tool_items(tools):
        if isinstance(item, HasConnection):
            found.append(item)
        elif isinstance(item, Toolset):
            found += connected_items(_parts_of(item))
    return found


def _parts_of(toolset: Toolset) -> list[Any]:
    # The parts are toolsets or tools. Haystack 3 cannot warm up or close a combined toolset as a whole.
    combined: Any = getattr(toolset, "toolsets", None) or getattr(toolset, "catalog", None)
    parts = combined or getattr(toolset, "tools", ())
    return tool_items(parts.values() if isinstance(parts, Mapping) else parts)


async def warm_up_toolsets_async(toolsets: Sequence[HasConnection | Tool | Toolset]) -> None:
    """
    Warm up several toolsets or tools concurrently. Haystack warms them up one after the other.

    :param toolsets: The tools of an Agent: MCPToolsets, MCPTools, and others.
    :raises MCPConnectionError: If several of them fail, after all were tried. If one fails, its own error is raised.
    :raises RuntimeError: Outside of an asyncio event loop, e.g. in trio.
    """
    running_loop()
    toolsets = list(_items_with(toolsets, "warm_up_async", "warm_up"))
    failures = [outcome for outcome in await _warm_up_all(toolsets) if outcome is not None]
    if len(failures) == 1 or any(not isinstance(failure, Exception) for failure in failures):
        raise failures[0]
    if failures:
        texts = "".join(f"\n* {failure}" for failure in failures)
        msg = f"{len(failures)} of {len(toolsets)} toolsets could not be warmed up:{texts}"
        raise MCPConnectionError(msg, operation="warm_up")


def warm_up_toolsets(toolsets: Sequence[HasConnection | Tool | Toolset]) -> None:
    """
    Warm up several toolsets or tools concurrently. Haystack warms them up one after the other.

    :param toolsets: The tools of an Agent: MCPToolsets, MCPTools, and others.
    :raises MCPConnectionError: If several of them fail, after all were tried. If one fails, its own error is raised.
    """
    _executor().run(warm_up_toolsets_async(toolsets))


def try_to_warm_up(toolsets: Sequence[HasConnection]) -> list[BaseException | None]:
    """
    Warm up several toolsets or tools concurrently, and return the errors.

    :param toolsets: MCPToolsets and MCPTools.
    :returns: For each of them, in order, its error, or None if it is warm.
    :raises MCPConnectionError: If warming up could not even start.
    """
    return _executor().run(_warm_up_all(toolsets))


async def _warm_up_all(toolsets: Sequence[Any]) -> list[BaseException | None]:
    warming = (call_async(toolset, "warm_up") for toolset in toolsets)
    outcomes: list[BaseException | None] = await asyncio.gather(*warming, return_exceptions=True)
    return outcomes


def _executor() -> AsyncExecutor:
    try:
        return AsyncExecutor.get_instance()
    except ExecutorStartError as error:
        msg = f"The toolsets could not be warmed up: {error}."
        raise MCPConnectionError(msg, operation="warm_up") from error


def _items_with(tools: Any, *methods: str) -> Iterator[Any]:
    """
    List tools and toolsets that have one of the methods. A toolset with none of them is replaced with its parts.
    """
    for item in tool_items(tools):
        if any(hasattr(item, method) for method in methods):
            yield item
        elif isinstance(item, Toolset):
            yield from _items_with(_parts_of(item), *methods)


def warm_up_tools(tools: Any) -> None:
    """
    Warm tools up, tools of MCP servers concurrently.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    servers = connected_items(tools)
    if len(servers) > 1:
        warm_up_toolsets(servers)
    for item in _items_with(tools, "warm_up"):
        if len(servers) == 1 or not isinstance(item, HasConnection):
            item.warm_up()


async def warm_up_tools_async(tools: Any) -> None:
    """
    Warm tools up like `warm_up_tools`, without blocking the event loop.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    await warm_up_toolsets_async(connected_items(tools))
    for item in _items_with(tools, "warm_up_async", "warm_up"):
        if not isinstance(item, HasConnection):
            await call_async(item, "warm_up")


def close_tools(tools: Any) -> None:
    """
    Close the tools that can be closed.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    for item in _items_with(tools, "close"):
        item.close()


async def close_tools_async(tools: Any) -> None:
    """
    Close the tools that can be closed, without blocking the event loop.

    :param tools: A Toolset, or a list of Tools and Toolsets.
    """
    for item in _items_with(tools, "close_async", "close"):
        await call_async(item, "close")


# The errors that replace the result of a failed call.
Failure: TypeAlias = ToolInvocationError | MCPToolNotFoundError

_RUN_ENDING_ERRORS = (MCPBudgetExceededError, MCPRunError, MCPToolFailedError)


@dataclass(frozen=True)
class ResolvedCall:
    """
    A call with its tool, or with the reason why it cannot be made.
    """

    call: ToolCall
    tool: Tool | None
    error: Failure | None = None


def resolve(call: ToolCall, tools: Mapping[str, Tool]) -> ResolvedCall:
    """
    Find the tool of a call.

    :param call: The call.
    :param tools: The tools by name.
    :returns: The call with its tool, or an error for the model.
    """
    tool = tools.get(call.tool_name)
    if tool is None:
        choices = describe_choices([call.tool_name], list(tools), "The model")
        msg = f"Tool '{call.tool_name}' not found. {choices}"
        return ResolvedCall(call, None, MCPToolNotFoundError(msg, call.tool_name, list(tools)))
    if not isinstance(call.arguments, Mapping) or not all(isinstance(name, str) for name in call.arguments):
        msg = (
            f"Failed to invoke Tool `{call.tool_name}`: its arguments must be a JSON object, got "
            f"{type(call.arguments).__name__}"
        )
        return ResolvedCall(call, None, ToolInvocationError(msg, tool_name=call.tool_name))
    return ResolvedCall(call, tool)


def invoke(resolved: ResolvedCall, arguments: Mapping[str, Any]) -> Any:
    """
    Make a call.

    :param resolved: The call.
    :param arguments: The completed arguments.
    :returns: The result of the tool, or a `Failure`, which is not raised, so that the other calls continue.
    :raises MCPBudgetExceededError: If a budget ends the run.
    :raises MCPToolFailedError: If the tool fails, and that ends the run.
    """
    tool = resolved.tool
    if tool is None:
        return resolved.error
    try:
        return tool.invoke(**arguments)
    except _RUN_ENDING_ERRORS:
        raise
    except Exception as error:
        return _to_failure(tool, error)


async def invoke_async(resolved: ResolvedCall, arguments: Mapping[str, Any]) -> Any:
    """
    Make a call like `invoke`, without blocking the event loop.

    :param resolved: The call.
    :param arguments: The completed arguments.
    :returns: As `invoke`.
    :raises MCPBudgetExceededError: As `invoke`.
    :raises MCPToolFailedError: As `invoke`.
    """
    tool = resolved.tool
    if tool is None:
        return resolved.error
    try:
        if HAS_ASYNC_FUNCTION or isinstance(tool, MCPTool):
            native: Any = tool  # an asynchronous method, which the type of Haystack 2 lacks
            return await native.invoke_async(**arguments)
        return await asyncio.to_thread(partial(tool.invoke, **arguments))
    except _RUN_ENDING_ERRORS:
        raise
    except Exception as error:
        return _to_failure(tool, error)


def run_in_threads(functions: Sequence[Callable[[], T]], limit: int) -> list[T]:
    """
    Run functions that make calls concurrently, in threads.

    :param functions: The functions. Their exceptions are raised after the running functions have ended.
    :param limit: How many run at a time.
    :returns: Their results, in order.
    """
    # Each runs in a copy of this context, which holds the tracing span and the user on whose behalf it runs.
    runs = [partial(contextvars.copy_context().run, function) for function in functions]
    with ThreadPoolExecutor(max(1, min(limit, len(runs))), thread_name_prefix="mcp-haystack-calls") as threads:
        return list(threads.map(lambda run: run(), runs))


def _to_failure(tool: Tool, error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    # Haystack's tools raise only these errors, but custom tools may raise others.
    failure = ToolInvocationError(f"Failed to invoke Tool `{tool.name}`: {error}", tool_name=tool.name)
    failure.__cause__ = error
    return failure


def answer(
    resolved: ResolvedCall, result: Any, *, store: Callable[[Tool], None] | None = None, raises: bool = False
) -> ChatMessage:
    """
    Return the message for the model with the result of a call.

    If a handler fails, its input is not shown instead, because the handler may exist to leave something out.

    :param resolved: The call.
    :param result: The result of `invoke`.
    :param store: Called with the tool before the message is made, to store the result.
    :param raises: Whether a failure is raised in place of a message.
    :returns: The message.
    """
    tool, call = resolved.tool, resolved.call
    error: Any = result
    if tool is not None and not isinstance(result, Failure):
        try:
            if store is not None:
                store(tool)
            return ChatMessage.from_tool(tool_result=shown_result(tool, result), origin=call)
        except Exception as problem:  # the user's handler failed, or the State refused the value
            text = f"Tool `{tool.name}` was called, but its result cannot be used: {problem}"
            error = ToolInvocationError(text, tool_name=tool.name)
            error.__cause__ = problem
    if raises:
        raise error
    logger.warning("A tool call failed. The model gets this error: {error}", error=str(error))
    meta = {REFUSED: str(error)} if isinstance(error, MCPCallRefusedError) else {}
    return ChatMessage.from_tool(tool_result=str(error), origin=call, error=True, meta=meta)


def shown_result(tool: Tool, result: Any, write: Callable[[Any], Any] = json_text) -> Any:
    """
    Convert a result for the model, according to `outputs_to_string` of the tool.

    :param tool: The tool.
    :param result: The result of `invoke`.
    :param write: Converts values for which there is neither a handler nor `raw_result`.
    :returns: The result of the handler, the raw result, or the result of `write`.
    """
    config = tool.outputs_to_string or {}
    if not config or any(key in config for key in ("source", "handler", "raw_result")):
        return _convert_output(config, result, write)
    return write({key: _convert_output({**each, "raw_result": False}, result, write) for key, each in config.items()})


def _convert_output(config: Mapping[str, Any], result: Any, write: Callable[[Any], Any]) -> Any:
    source = config.get("source")
    value = result.get(source) if source is not None and isinstance(result, Mapping) else result
    handler = config.get("handler")
    if handler is not None:
        return handler(value)
    return value if config.get("raw_result") else write(value)
