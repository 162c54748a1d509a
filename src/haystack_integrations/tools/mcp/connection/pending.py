# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What becomes of a call that its server does not answer at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from haystack import logging

from haystack_integrations.tools.mcp.errors import MCPCallPendingError
from haystack_integrations.tools.mcp.handlers.calling import call as call_function
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, without, without_secrets
from haystack_integrations.tools.mcp.protocol.error_texts import with_full_stop
from haystack_integrations.tools.mcp.protocol.tasks import TaskState
from haystack_integrations.tools.mcp.redaction import SHORTEST_SECRET, Redactor

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.calling import CallRequest
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor

logger: logging.PatchedLogger = logging.getLogger(__name__)


def pending_call(result: dict[str, Any], request: CallRequest, server: str) -> MCPPendingCall:
    """
    Make of a server's result what its call can be continued with.

    :param result: The result, as in the protocol.
    :param request: What the caller wants.
    :param server: Describes the server.
    :returns: The call.
    """
    name, given = request.original or (request.tool_name, request.tool_args)
    if request.continues is None:
        arguments, withheld = without_secrets(given, tuple(request.secrets), SHORTEST_SECRET)
    else:  # its arguments are those of the call before
        withheld = request.continues[0].withheld
        arguments = without(given, withheld)
    shared: dict[str, Any] = {"tool_name": name, "arguments": arguments, "withheld": withheld, "server": server}
    if result.get("resultType") != "task":
        state = result.get("requestState")
        return MCPPendingCall(**shared, requests=result.get("inputRequests") or {}, request_state=state)
    task = TaskState.model_validate(result, by_name=False)
    return MCPPendingCall(**shared, task_id=task.task_id, poll_interval=task.poll_interval, expires_at=task.expires_at)


def pending_error(call: MCPPendingCall, request: CallRequest, reason: str = "") -> MCPCallPendingError:
    """
    Make the error of a call that is left open.

    :param call: The call.
    :param request: What the caller wants.
    :param reason: Why nobody can give what the server wants, as sentences, if it is not that it is answered later.
    :returns: The error. A model that reads it knows that there is no use in calling again.
    """
    if call.requests:
        asked = " ".join(with_full_stop(question.message) for question in call.questions)
        what = " ".join(filter(None, ["the server wants input first, which nobody can give now.", asked, reason]))
    else:
        what = "the server runs it as a task."
    text = Redactor(request.secrets).text(what)
    msg = f"Failed to invoke Tool `{request.display_name}`: {text} The call is left open; do not repeat it."
    return MCPCallPendingError(msg, request.display_name, request.tool_args, pending_call=call)


async def keep(call: MCPPendingCall, supervisor: Supervisor) -> None:
    """
    Let the user keep a call, so that it can be continued whatever happens to this process.

    :param call: The call.
    :param supervisor: Has the handlers.
    """
    function = supervisor.handlers.pending_calls
    if function is None:
        return
    try:
        await call_function(function, call)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            raise  # it is not the function's own
        logger.error(
            "The handler `pending_calls` for {server} failed: {kind}",
            server=supervisor.description,
            kind=type(error).__name__,
            exc_info=error,
        )


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
