# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves tools of other MCP servers.

Progress, cancellation and errors of the other server reach the client as they are. So do questions of a server of
revision 2026-07-28, if the toolset has `MCPHandlers(elicitation=answer_later)`: clients of that revision get them as
the result of the call and continue it, at any worker; earlier ones are asked during the call.
"""

from __future__ import annotations

import json
from typing import Any

from fastmcp import Context
from fastmcp.exceptions import ToolError
from haystack.dataclasses import StreamingChunk
from mcp import types
from mcp.shared.exceptions import MCPError as SDKError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp.errors import (
    MCPCallPendingError,
    MCPConnectionError,
    MCPInvocationError,
    MCPTimeoutError,
)
from haystack_integrations.tools.mcp.handlers.progress import MCPProgress, ProgressCallback
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.pool import CallPool
from haystack_integrations.tools.mcp.serving.served_tool import ServedCall, ServedTool

# How often a server may ask in one call before it is given up.
_MOST_QUESTIONS = 20


def serve_mcp_tool(tool: MCPTool, *, options: ServeOptions | None, pool: CallPool) -> ServedTool:
    """
    Make a tool of the server of one of another server.

    :param tool: The tool.
    :param options: What the user said of it.
    :param pool: Where its calls take their places.
    :returns: The tool.
    """

    async def body(arguments: dict[str, Any], call: ServedCall) -> Any:
        try:
            return await _call(tool, arguments, call)
        except MCPInvocationError as error:
            failure = _failure(tool, error)
        raise failure

    options = options or ServeOptions()
    declared = ServeOptions(meta=_public(tool.meta), title=tool.title or None)
    return ServedTool.create(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        output_schema=tool.output_schema,
        annotations=tool.annotations,
        body=body,
        options=declared.overridden_by(options),
        pool=pool,
    )


def _public(meta: dict[str, Any] | None) -> dict[str, Any]:
    # FastMCP writes its own there, also about tags and versions.
    return {key: value for key, value in (meta or {}).items() if key not in ("fastmcp", "_fastmcp")}


async def _call(tool: MCPTool, arguments: dict[str, Any], call: ServedCall) -> Any:
    async def tell(report: MCPProgress) -> None:
        await call.progress(report.progress, report.total, report.message)

    async def forward(chunk: StreamingChunk) -> None:
        report = chunk.meta["mcp"]
        await call.progress(report["progress"], report["total"], report["message"])

    context = call.context
    pending = _continued(tool, context)
    try:
        if pending is not None and context is not None:
            return _result((await tool.continue_call_async(pending, _answers(context), on_progress=tell)).raw)
        return _result(await tool.invoke_async(streaming_callback=forward, **arguments))
    except MCPCallPendingError as error:
        pending = error.pending_call
    if not pending.questions or context is None:
        msg = f"The server behind tool '{call.tool_name}' wants something that cannot be forwarded."
        raise ToolError(msg)
    if _is_modern(context):
        return types.InputRequiredResult(input_requests=pending.requests, request_state=json.dumps(pending.to_dict()))
    return await _ask_during_call(tool, pending, context, tell)


def _result(result: Any) -> Any:
    """Give the result as the server sent it; a toolset with outputs for the State of an Agent gives a dictionary."""
    if isinstance(result, str):
        result = types.CallToolResult.model_validate_json(result)
    if not isinstance(result, types.CallToolResult):
        return result
    # What the other server says of itself is not said of this one.
    meta = {key: value for key, value in (result.meta or {}).items() if not key.startswith("io.modelcontextprotocol/")}
    return result.model_copy(update={"meta": meta or None})


def _is_modern(context: Context) -> bool:
    request = context.request_context
    return request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS


def _continued(tool: MCPTool, context: Context | None) -> MCPPendingCall | None:
    if context is None or not context.request_state or context.input_responses is None:
        return None
    # FastMCP seals the state, so it comes from this server; but perhaps from a call of another tool.
    try:
        pending = MCPPendingCall.from_dict(json.loads(context.request_state))
    except ValueError:
        pending = None
    if pending is None or pending.tool_name != tool.remote_name:
        msg = "The request state belongs to another call."
        raise ToolError(msg)
    return pending


def _answers(context: Context) -> dict[str, Any]:
    return {key: _answer(response) for key, response in (context.input_responses or {}).items()}


def _answer(response: Any) -> Any:
    """Say an answer as `continue_call` takes it."""
    if not isinstance(response, types.ElicitResult):
        msg = "Only answers of the user can be forwarded."
        raise ToolError(msg)
    if response.action == "accept":
        return response.content if response.content is not None else True
    return False if response.action == "decline" else None


async def _ask_during_call(
    tool: MCPTool, pending: MCPPendingCall, context: Context, on_progress: ProgressCallback
) -> Any:
    for _ in range(_MOST_QUESTIONS):
        answers = {question.key: await _ask(context, question) for question in pending.questions}
        try:
            return _result((await tool.continue_call_async(pending, answers, on_progress=on_progress)).raw)
        except MCPCallPendingError as error:
            pending = error.pending_call
    msg = f"The server behind the tool asked more than {_MOST_QUESTIONS} times."
    raise ToolError(msg)


async def _ask(context: Context, question: Any) -> Any:
    related = context.request_id
    try:
        if question.url is not None:
            response = await context.session.elicit_url(question.message, question.url, question.key, related)
        else:
            response = await context.session.elicit_form(question.message, question.schema or {}, related)
    except SDKError as error:
        msg = f"The tool needs an answer of the user, and the client cannot ask: {error.error.message}"
        raise ToolError(msg) from None
    return _answer(response)


def _failure(tool: MCPTool, error: MCPInvocationError) -> Exception:
    """
    Say what of an error is the other server's; where it is and how it is reached is nobody's business.
    """
    if isinstance(error, MCPTimeoutError):
        return ToolError(f"The server behind tool '{tool.name}' did not answer in time.")
    if isinstance(error.__cause__, MCPConnectionError):
        return ToolError(f"The server behind tool '{tool.name}' cannot be reached.")
    if type(error) is MCPInvocationError and (error.__cause__ is None or error.code is not None):
        return ToolError(error.message.removeprefix(f"Failed to invoke Tool `{tool.name}`: "))
    return error.__cause__ if isinstance(error.__cause__, Exception) else error
