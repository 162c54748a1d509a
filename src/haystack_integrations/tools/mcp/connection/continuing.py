# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that are begun here and finished elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from haystack_integrations.tools.mcp.connection.calling import Calling
from haystack_integrations.tools.mcp.connection.in_loop import asynchronous, blocking
from haystack_integrations.tools.mcp.connection.reading import Reading
from haystack_integrations.tools.mcp.connection.requests import CallRequest, call_request
from haystack_integrations.tools.mcp.errors import MCPCallPendingError
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, strings_in

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.handlers.progress import ProgressCallback


class Continuing(Calling, Reading):
    """
    Begins calls without waiting for their end, and continues calls that were left open.
    """

    def begin_call(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult | MCPPendingCall:
        """
        Call a tool, and return as soon as the server runs it as a task, or wants something of the user first.

        Servers of revision 2026-07-28 do that; they ask only if the connection has
        `MCPHandlers(elicitation=answer_later)`, or another handler, which then answers.

        :param tool_name: Name of the tool at the server.
        :param tool_args: Arguments to pass to the tool.
        :param invocation_timeout: As in `call_tool`, as the further parameters.
        :param secrets: The secrets among the arguments. What is kept of the call does not contain them.
        :param meta: The `_meta` of the request.
        :param on_progress: Called with each report of the tool's progress.
        :returns: The result; or the call that is left open, for `continue_call` in this or any other process.
        :raises MCPInvocationError: As `call_tool`.
        :raises ValueError: As `call_tool`.
        """
        request = _beginning(tool_name, tool_args, invocation_timeout, secrets, meta, on_progress)
        try:
            return self._deliver(request)
        except MCPCallPendingError as error:
            return error.pending_call

    async def begin_call_async(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult | MCPPendingCall:
        """
        Do the same as `begin_call` without blocking the event loop.
        """
        request = _beginning(tool_name, tool_args, invocation_timeout, secrets, meta, on_progress)
        try:
            return await self._deliver_async(request)
        except MCPCallPendingError as error:
            return error.pending_call

    def continue_call(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        withheld: Mapping[str, Any] | None = None,
        display_name: str | None = None,
        invocation_timeout: float | None = None,
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Go on with a call that was left open, on this or any other connection to the same server.

        It sends the answers to the server's questions, and waits for the end of a task.

        :param call: The call.
        :param answers: The answers to `call.questions` by their keys: for a form a dictionary of its values; True to
            accept a form with its defaults, or a URL that was opened; False to decline; None to cancel. Questions
            without an answer go to the handler `elicitation`, if it is another than `answer_later`.
        :param withheld: The values of the arguments in `call.withheld`, which are Secrets.
        :param display_name: Name of the tool in error messages, if it is another.
        :param invocation_timeout: As in `call_tool`, as the further parameters.
        :param meta: The `_meta` of the request.
        :param on_progress: Called with each report of the tool's progress.
        :returns: The result.
        :raises MCPCallPendingError: If the server has further questions. The call is in its `pending_call`.
        :raises MCPInvocationError: As `call_tool`; also if the server does not know the call any more.
        :raises ValueError: If an answer or an argument is missing, unknown, or does not fit its form; if the call is
            another server's, or has nothing to go on with. Nothing was sent.
        """
        self._check_pending(call)
        return self._deliver(_continuing(call, answers, withheld, display_name, invocation_timeout, meta, on_progress))

    async def continue_call_async(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        withheld: Mapping[str, Any] | None = None,
        display_name: str | None = None,
        invocation_timeout: float | None = None,
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Do the same as `continue_call` without blocking the event loop.
        """
        self._check_pending(call)
        return await self._deliver_async(
            _continuing(call, answers, withheld, display_name, invocation_timeout, meta, on_progress)
        )

    async def _cancel_call(self, call: MCPPendingCall) -> bool:
        """
        Ask the server to end the task of a call that was left open.

        :param call: The call.
        :returns: Whether it was asked. False for a call that is no task, of which the server need not know.
        :raises MCPConnectionError: If that fails, e.g. because the server does not know the task any more.
        :raises ValueError: If `call` is no pending call, or that of another server.
        """
        task_id = self._checked_call(call).task_id
        if task_id is not None:
            await self._sessions._ask("tasks/cancel", lambda client: client.cancel_task(task_id))
        return task_id is not None

    cancel_call: Final = blocking(_cancel_call)
    cancel_call_async: Final = asynchronous(_cancel_call)

    def _checked_call(self, call: Any) -> MCPPendingCall:
        if not isinstance(call, MCPPendingCall):
            msg = f"`call` must be an MCPPendingCall, e.g. of `MCPPendingCall.from_dict`, got {type(call).__name__}"
            raise ValueError(msg)
        here = self._describe_server()
        if call.server and call.server != here:
            msg = (
                f"`call` is one of {call.server}, and this is a connection to {here}. If that is the same server, "
                'pass `dataclasses.replace(call, server="")`.'
            )
            raise ValueError(msg)
        return call

    def _check_pending(self, call: Any) -> None:
        if not self._checked_call(call).can_be_continued:
            msg = (
                "`call` has nothing to go on with, neither a task nor questions nor a request state, so it would begin "
                "anew. Pass what was stored, or begin a call with `begin_call`."
            )
            raise ValueError(msg)


def _beginning(
    tool_name: str,
    tool_args: dict[str, Any] | None,
    invocation_timeout: float | None,
    secrets: Iterable[str],
    meta: dict[str, Any] | None,
    on_progress: ProgressCallback | None,
) -> CallRequest:
    return call_request(
        tool_name,
        tool_args,
        invocation_timeout=invocation_timeout,
        secrets=secrets,
        meta=meta,
        on_progress=on_progress,
        leaves_tasks=True,
    )


def _continuing(
    call: MCPPendingCall,
    answers: Mapping[str, Any] | None,
    withheld: Mapping[str, Any] | None,
    display_name: str | None,
    invocation_timeout: float | None,
    meta: dict[str, Any] | None,
    on_progress: ProgressCallback | None,
) -> CallRequest:
    if answers is not None and not isinstance(answers, Mapping):
        msg = f"`answers` must be a dict from the keys of `call.questions` to answers, got {type(answers).__name__}"
        raise ValueError(msg)
    given = dict(withheld or {})
    if set(given) != set(call.withheld):
        msg = f"`withheld` must have the arguments {sorted(call.withheld)}, and no others; it has {sorted(given)}"
        raise ValueError(msg)
    return call_request(
        call.tool_name,
        {**call.arguments, **given},
        display_name=display_name,
        invocation_timeout=invocation_timeout,
        secrets=tuple(strings_in(given)),
        meta=meta,
        on_progress=on_progress,
        continues=(call, answers),
    )
