# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One tool call of a model, of any tool of Haystack: finding the tool, calling it, and what the model sees of the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.budgets import REFUSED
from haystack_integrations.tools.mcp.convert.results import json_text
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.errors import (
    MCPBudgetExceededError,
    MCPCallRefusedError,
    MCPRunError,
    MCPToolFailedError,
    MCPToolNotFoundError,
)
from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.mcp_tool import MCPTool

# What a call comes to if it has no result.
Failure: TypeAlias = ToolInvocationError | MCPToolNotFoundError

_ENDS_RUN = (MCPBudgetExceededError, MCPRunError, MCPToolFailedError)


@dataclass(frozen=True)
class ResolvedCall:
    """
    A call and its tool, or why it cannot be made.
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
    :param arguments: Its arguments, completed.
    :returns: The result of the tool, or a `Failure`, which is not raised, so that the other calls go on.
    :raises MCPBudgetExceededError: If a budget ends the run.
    :raises MCPToolFailedError: If the tool fails, and that ends the run.
    """
    tool = resolved.tool
    if tool is None:
        return resolved.error
    try:
        if _is_async_only(tool):
            return asyncio.run(_invoke_native(tool, arguments))
        return tool.invoke(**arguments)
    except _ENDS_RUN:
        raise
    except Exception as error:
        return _failure(tool, error)


async def invoke_async(resolved: ResolvedCall, arguments: Mapping[str, Any]) -> Any:
    """
    Make a call like `invoke`, without blocking the event loop.

    :param resolved: The call.
    :param arguments: Its arguments, completed.
    :returns: As `invoke`.
    :raises MCPBudgetExceededError: As `invoke`.
    :raises MCPToolFailedError: As `invoke`.
    """
    tool = resolved.tool
    if tool is None:
        return resolved.error
    try:
        if HAS_ASYNC_FUNCTION or isinstance(tool, MCPTool):
            return await _invoke_native(tool, arguments)
        return await asyncio.to_thread(partial(tool.invoke, **arguments))
    except _ENDS_RUN:
        raise
    except Exception as error:
        return _failure(tool, error)


async def _invoke_native(tool: Any, arguments: Mapping[str, Any]) -> Any:
    return await tool.invoke_async(**arguments)


def _is_async_only(tool: Tool) -> bool:
    # On Haystack 3. Where a loop runs in this thread, the tool's own error says what to do.
    if isinstance(tool, MCPTool) or getattr(tool, "function", None) is not None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def _failure(tool: Tool, error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    # Haystack's tools raise nothing else, but tools of the user's own may.
    failure = ToolInvocationError(f"Failed to invoke Tool `{tool.name}`: {error}", tool_name=tool.name)
    failure.__cause__ = error
    return failure


def result_message(tool: Tool, call: ToolCall, result: Any) -> ChatMessage:
    """
    Make the message that the model sees of a result.

    :param tool: The tool, whose `outputs_to_string` says how.
    :param call: The call.
    :param result: The result.
    :returns: The message.
    """
    config = tool.outputs_to_string or {}
    if not config or any(key in config for key in ("source", "handler", "raw_result")):
        return ChatMessage.from_tool(tool_result=_shown(config, result), origin=call)
    shown = {key: _shown({**each, "raw_result": False}, result) for key, each in config.items()}
    return ChatMessage.from_tool(tool_result=json_text(shown), origin=call)


def _shown(config: Mapping[str, Any], result: Any) -> Any:
    source = config.get("source")
    value = result.get(source) if source is not None and isinstance(result, Mapping) else result
    handler = config.get("handler")
    if handler is not None:
        return handler(value)
    return value if config.get("raw_result") else json_text(value)


def unusable_result(tool: Tool, problem: Exception) -> ToolInvocationError:
    """
    Say that a call was made, but that nothing could be made of its result.

    The result itself is not shown: the handler that failed may be there to leave something out.

    :param tool: The tool.
    :param problem: What a handler of the user's raised, or a State that refused the value.
    :returns: An error for the model.
    """
    text = f"Tool `{tool.name}` was called, but its result cannot be used: {problem}"
    error = ToolInvocationError(text, tool_name=tool.name)
    error.__cause__ = problem
    return error


def failure_message(call: ToolCall, failure: Exception) -> ChatMessage:
    """
    Tell the model that a call has no result.

    :param call: The call.
    :param failure: Why.
    :returns: The message.
    """
    meta = {REFUSED: str(failure)} if isinstance(failure, MCPCallRefusedError) else {}
    return ChatMessage.from_tool(tool_result=str(failure), origin=call, error=True, meta=meta)
