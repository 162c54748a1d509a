# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How a call goes through its interceptors.

An async interceptor runs in the event loop of all sessions, however the call is made, so what it keeps (a lock, an HTTP
client) belongs to that loop. A sync one runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import mcp_types as types

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.connection.interceptors import Interceptor, Interceptors, MCPToolCall
from haystack_integrations.tools.mcp.convert.results import MCPToolResult
from haystack_integrations.tools.mcp.errors import (
    MCPCallTimeoutError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTimeoutError,
)
from haystack_integrations.tools.mcp.executor import AsyncExecutor, OperationCancelledError
from haystack_integrations.tools.mcp.protocol.error_texts import raise_tool_error, with_full_stop
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.request_context import MCPRequestContext, current_context, meta_of_call

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.requests import CallRequest


class InterceptedCall:
    """
    One call of a tool on its way through the interceptors of a connection. Run once.

    What was sent and not answered is not sent again, unless the tool may run twice.
    """

    def __init__(
        self,
        interceptors: Interceptors,
        request: CallRequest,
        *,
        server: str,
        send: Callable[[CallRequest], Coroutine[Any, Any, types.CallToolResult]],
    ) -> None:
        """
        Initialize the InterceptedCall, in the context of the caller.

        :param interceptors: What it goes through.
        :param request: What the caller wants.
        :param server: Describes the server.
        :param send: Sends a request, in the executor's loop.
        """
        self._interceptors, self._request, self._send = interceptors, request, send
        context = current_context.get() or MCPRequestContext()
        self._first = MCPToolCall(
            name=request.tool_name,
            arguments=request.tool_args,
            meta=meta_of_call(request.meta) or {},
            headers=context.headers or {},
            user=context.user,
            server=server,
            may_repeat=request.may_repeat,
        )
        # The last exception, and the interceptor that raised it; None if that was ourselves.
        self._raised: tuple[Exception, Interceptor | None] | None = None
        # Whether the last call that was sent was answered with a result.
        self._is_answered = False
        self._under_way: list[MCPToolCall] = []
        # The tools whose last call was not answered.
        self._unanswered: set[str] = set()

    async def run(self) -> types.CallToolResult:
        """
        Make the call. To be awaited in the executor's loop.

        :returns: The result.
        :raises MCPInvocationError: If there is none.
        """
        try:
            return await self._step(self._first, 0)
        except Exception as error:
            failure = self._failure(error)
        raise failure  # not in the clause: its context would quote what was redacted

    async def _step(self, call: MCPToolCall, index: int) -> types.CallToolResult:
        interceptor = self._interceptors[index] if index < len(self._interceptors) else None
        try:
            if interceptor is None:
                return await self._sent(call)

            async def call_next(following: MCPToolCall) -> types.CallToolResult:
                return await self._step(_checked(following), index + 1)

            if interceptor.is_async:
                answer = await interceptor.function(call, call_next)
            else:
                answer = await self._in_thread(interceptor, call, call_next)
            return self._result(interceptor, answer)
        except Exception as error:
            if self._raised is None or self._raised[0] is not error:
                self._raised = error, interceptor
            raise

    async def _in_thread(
        self,
        interceptor: Interceptor,
        call: MCPToolCall,
        call_next: Callable[[MCPToolCall], Awaitable[types.CallToolResult]],
    ) -> Any:
        is_given_up = False
        tasks: list[asyncio.Task[Any] | None] = []

        async def go_on(following: MCPToolCall) -> types.CallToolResult:
            if is_given_up:
                raise asyncio.CancelledError
            tasks.append(asyncio.current_task())
            return await call_next(following)

        def wait_for_next(following: MCPToolCall) -> types.CallToolResult:
            try:
                return AsyncExecutor.get_instance().run(go_on(following))
            except OperationCancelledError:
                msg = "the call was given up by its caller."
                raise self._error(msg) from None

        try:
            return await start_in_thread(interceptor.function, call, wait_for_next, name="mcp-haystack-interceptor")
        except asyncio.CancelledError:
            # The thread cannot be cancelled, but what it waits for; and it sends nothing from now on.
            is_given_up = True
            for task in filter(None, tasks):
                task.cancel()  # does nothing if it is done
            raise

    async def _sent(self, call: MCPToolCall) -> types.CallToolResult:
        first, request = self._first, self._request
        is_same_tool = call.name == first.name
        request = dataclasses.replace(
            request,
            tool_name=call.name,
            tool_args=dict(call.arguments),
            display_name=request.display_name if is_same_tool else call.name,
            may_repeat=first.may_repeat and is_same_tool,  # of another tool, nothing is known
            original=(request.tool_name, request.tool_args),
        )
        # What no interceptor has changed is as the innermost block of mcp_request_context says.
        changes: dict[str, Any] = {
            name: getattr(call, name) for name in ("headers", "user") if getattr(call, name) != getattr(first, name)
        }
        if call.meta != first.meta:
            changes["meta"], request.meta = None, dict(call.meta)
        self._check_repeats(call, may_repeat=request.may_repeat)
        context = contextvars.copy_context()
        if changes:
            changed = dataclasses.replace(current_context.get() or MCPRequestContext(), **changes)
            context.run(current_context.set, changed)
        self._under_way.append(call)
        is_known = self._is_answered = False
        try:
            # In a context of its own, because whose call it is must not be known to what the interceptor does next.
            result = await asyncio.create_task(context.run(self._send, request), context=context)
            is_known = self._is_answered = True
            return result
        except MCPInvocationError as error:
            is_known = not isinstance(error, MCPOutcomeUnknownError)
            raise
        finally:
            self._under_way = [each for each in self._under_way if each is not call]
            self._unanswered -= {call.name}
            self._unanswered |= set() if is_known else {call.name}

    def _check_repeats(self, call: MCPToolCall, *, may_repeat: bool) -> None:
        reason = None
        if call.name in self._unanswered:
            reason = "it was sent before and not answered"
        elif any(each.name == call.name and each.arguments == call.arguments for each in self._under_way):
            reason = "it is under way already"
        if reason is not None and not may_repeat:
            msg = (
                f"an interceptor would have sent the call again, but {reason}. Interceptors may repeat calls of tools "
                "that the server annotates as read-only or idempotent, if `retry_idempotent` is set."
            )
            raise self._error(msg)

    def _result(self, interceptor: Interceptor, answer: Any) -> types.CallToolResult:
        match answer:
            case types.CallToolResult():
                result = answer
            case MCPToolResult():
                result = answer.raw
            case str():
                result = types.CallToolResult(content=[types.TextContent(type="text", text=answer)])
            case dict():
                text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
                content: list[Any] = [types.TextContent(type="text", text=text)]
                result = types.CallToolResult(content=content, structured_content=answer)
            case _:
                advice = "return what `call_next` gave, a CallToolResult, an MCPToolResult, a string or a dict"
                if asyncio.iscoroutine(answer):
                    answer.close()
                    advice = "`await call_next(call)`" if interceptor.is_async else "define it with `async def`"
                what = "None" if answer is None else type(answer).__name__
                msg = f"the interceptor '{interceptor.name}' returned {what}; {advice}."
                raise self._error(msg)
        raise_tool_error(result, self._request.display_name, self._request.tool_args)
        return result

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, MCPInvocationError):
            error.tool_args = self._request.tool_args  # an interceptor may have added what is not for the caller
            return error
        raised, interceptor = self._raised or (None, None)
        if raised is not error or interceptor is None:
            # What the executor says is of the last sending, not of one before.
            return self._error(str(error)) if self._unanswered and isinstance(error, (OSError, RuntimeError)) else error
        text = str(error)
        what = f"the interceptor '{interceptor.name}' raised {type(error).__name__}{f': {text}' if text else ''}"
        redactor = Redactor(self._request.secrets)
        redacted = redactor.text(what)
        failure = self._error(
            with_full_stop(redacted), MCPTimeoutError if isinstance(error, TimeoutError) else MCPInvocationError
        )
        failure.code, failure.data = getattr(error, "code", None), redactor.value(getattr(error, "data", None))
        # If the text had to be redacted, its cause quotes the same values.
        failure.__cause__ = error if redacted == what else None
        return failure

    def _error(self, text: str, kind: type[MCPInvocationError] = MCPInvocationError) -> MCPInvocationError:
        if self._unanswered or self._under_way:
            kind = MCPCallTimeoutError if kind is MCPTimeoutError else MCPOutcomeUnknownError
            text = f"{with_full_stop(text)} The tool may have run."
        name = self._request.display_name
        error = kind(f"Failed to invoke Tool `{name}`: {text}", name, self._request.tool_args)
        error._outcome = "answered" if self._is_answered else None
        return error


def _checked(call: Any) -> MCPToolCall:
    if not isinstance(call, MCPToolCall):
        msg = f"it passed {type(call).__name__} to `call_next`; pass it an MCPToolCall, the given one or an `override`"
        raise TypeError(msg)
    return call
