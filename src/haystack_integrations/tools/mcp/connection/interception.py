# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How a call goes through its interceptors.

.. code-block:: text

    the call                 a sync interceptor runs in                an async one runs in
    call_tool, invoke        the thread of the caller; inside of an    the event loop of all sessions
                             async one, a thread of its own
    call_tool_async,         a thread of its own                       the event loop of all sessions
    invoke_async

Async interceptors have one loop, however the call is made, so what they keep (a lock, an HTTP client) belongs to it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import mcp_types as types

from haystack_integrations.tools.mcp.connection.interceptors import Interceptor, Interceptors, MCPToolCall
from haystack_integrations.tools.mcp.connection.requests import executor_failed
from haystack_integrations.tools.mcp.convert.tool_result import MCPToolResult
from haystack_integrations.tools.mcp.errors import (
    MCPCallTimeoutError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTimeoutError,
)
from haystack_integrations.tools.mcp.executor import AsyncExecutor, OperationCancelledError
from haystack_integrations.tools.mcp.handlers.calling import in_thread
from haystack_integrations.tools.mcp.handlers.progress import (
    AwaitedReports,
    MCPProgress,
    ProgressCallback,
    WaitingReports,
)
from haystack_integrations.tools.mcp.protocol.error_texts import raise_tool_error, with_full_stop
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.request_context import MCPRequestContext, current_context, meta_of_call

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.requests import CallRequest


# Takes the reports of progress, in the executor's loop.
_Report: TypeAlias = Callable[[MCPProgress], None] | None


class InterceptedCall:
    """
    One call of a tool on its way through the interceptors of a connection.

    What was sent and not answered is not sent again, unless the tool may run twice. Threads of interceptors may send at
    the same time.
    """

    def __init__(
        self,
        interceptors: Interceptors,
        request: CallRequest,
        *,
        server: str,
        send: Callable[[CallRequest], types.CallToolResult],
        send_async: Callable[[CallRequest], Awaitable[types.CallToolResult]],
    ) -> None:
        """
        Initialize the InterceptedCall.

        :param interceptors: What it goes through.
        :param request: What the caller wants.
        :param server: Describes the server.
        :param send: Sends a request and waits for the result.
        :param send_async: Does the same without blocking the event loop.
        """
        self._send, self._send_async = send, send_async
        self._interceptors = interceptors
        self._request = request
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
        self._executor: AsyncExecutor
        # The last exception, and the interceptor that raised it; None if that was ourselves.
        self._raised: tuple[Exception, Interceptor | None] | None = None
        # Whether the last call that was sent was answered with a result.
        self._is_answered = False
        self._lock = threading.Lock()
        self._under_way: list[MCPToolCall] = []
        # The tools whose last call was not answered.
        self._unanswered: set[str] = set()

    def run(self) -> types.CallToolResult:
        """
        Make the call.

        :returns: The result.
        :raises MCPInvocationError: If there is none.
        """
        try:
            self._executor = AsyncExecutor.get_instance()
            if self._executor.in_loop_thread():
                msg = (
                    "it was called from the event loop of all sessions, which it would block. Await the asynchronous "
                    "counterpart instead"
                )
                raise RuntimeError(msg)
            return self._step(self._first, 0)
        except Exception as error:
            failure = self._failure(error)
        raise failure  # not in the clause: its context would quote what was redacted

    async def run_async(self) -> types.CallToolResult:
        """
        Do the same as `run` without blocking the event loop.

        :returns: The result.
        :raises MCPInvocationError: If there is none.
        """
        try:
            self._executor = AsyncExecutor.get_instance()
            if self._request.on_progress is None:
                return await self._executor.run_async(self._step_async(self._first, 0, None))
            reports = AwaitedReports(self._request.on_progress)
            return await reports.wait(self._executor.run_async(self._step_async(self._first, 0, reports.add)))
        except Exception as error:
            failure = self._failure(error)
        raise failure  # not in the clause: its context would quote what was redacted

    def _step(self, call: MCPToolCall, index: int) -> types.CallToolResult:
        """
        Go on in a thread that may block.
        """
        if index == len(self._interceptors):
            with self._sending(call, self._request.on_progress) as request:
                return self._send(request)
        interceptor = self._interceptors[index]
        if interceptor.is_async:
            # What is sent has its own time limit; an interceptor may wait for as long as it likes.
            with self._naming(None):
                if self._request.on_progress is None:
                    return self._executor.run(self._step_async(call, index, None))
                reports = WaitingReports(self._request.on_progress)
                return self._executor.run(self._step_async(call, index, reports.add), waiter=reports)
        with self._naming(interceptor):
            answer = interceptor.function(call, lambda following: self._step(_checked(following), index + 1))
            return self._result(interceptor, answer)

    async def _step_async(self, call: MCPToolCall, index: int, report: _Report) -> types.CallToolResult:
        """
        Go on in the executor's loop.
        """
        if index == len(self._interceptors):
            with self._sending(call, report) as request:
                return await self._send_async(request)
        interceptor = self._interceptors[index]

        async def call_next(following: MCPToolCall) -> types.CallToolResult:
            return await self._step_async(_checked(following), index + 1, report)

        with self._naming(interceptor):
            if interceptor.is_async:
                answer: Any = await interceptor.function(call, call_next)
            else:
                answer = await self._in_thread(interceptor, call, call_next)
            return self._result(interceptor, answer)

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
            _checked(following)  # here, where it is the interceptor's mistake
            try:
                with self._naming(None):
                    return self._executor.run(go_on(following))
            except OperationCancelledError:
                msg = "the call was given up by its caller."
                raise self._error(msg) from None

        try:
            return await in_thread(interceptor.function, call, wait_for_next, name="mcp-haystack-interceptor")
        except asyncio.CancelledError:
            # The thread cannot be cancelled, but what it waits for; and it sends nothing from now on.
            is_given_up = True
            for task in filter(None, tasks):
                task.cancel()  # does nothing if it is done
            raise

    @contextmanager
    def _sending(self, call: MCPToolCall, on_progress: ProgressCallback | None) -> Iterator[CallRequest]:
        """
        Make the request with which a call is sent, and note what becomes of it.
        """
        first, request, context = self._first, self._request, current_context.get()
        is_same_tool = call.name == first.name
        request = dataclasses.replace(
            request,
            tool_name=call.name,
            tool_args=dict(call.arguments),
            display_name=request.display_name if is_same_tool else call.name,
            may_repeat=first.may_repeat and is_same_tool,  # of another tool, nothing is known
            on_progress=on_progress,
            original=(request.tool_name, request.tool_args),
        )
        # What no interceptor has changed is as the innermost block of mcp_request_context says.
        changes: dict[str, Any] = {
            name: getattr(call, name) for name in ("headers", "user") if getattr(call, name) != getattr(first, name)
        }
        if call.meta != first.meta:
            changes["meta"], request.meta = None, dict(call.meta)
        if changes:
            context = dataclasses.replace(context or MCPRequestContext(), **changes)
        with self._naming(None):
            self._begin(call, may_repeat=request.may_repeat)
            reset = current_context.set(context)
            is_known = self._is_answered = False
            try:
                yield request
                is_known = self._is_answered = True
            except MCPInvocationError as error:
                is_known = not isinstance(error, MCPOutcomeUnknownError)
                raise
            finally:
                current_context.reset(reset)
                with self._lock:
                    self._under_way = [each for each in self._under_way if each is not call]
                    self._unanswered -= {call.name}
                    self._unanswered |= set() if is_known else {call.name}

    def _begin(self, call: MCPToolCall, *, may_repeat: bool) -> None:
        with self._lock:
            reason = None
            if call.name in self._unanswered:
                reason = "it was sent before and not answered"
            elif any(each.name == call.name and each.arguments == call.arguments for each in self._under_way):
                reason = "it is under way already"
            if may_repeat or reason is None:
                self._under_way.append(call)
                return
        msg = (
            f"an interceptor would have sent the call again, but {reason}. Interceptors may repeat calls of tools that "
            "the server annotates as read-only or idempotent, if `retry_idempotent` is set."
        )
        raise self._error(msg)

    @contextmanager
    def _naming(self, interceptor: Interceptor | None) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._raised is None or self._raised[0] is not error:
                self._raised = error, interceptor
            raise

    def _result(self, interceptor: Interceptor, answer: Any) -> types.CallToolResult:
        what = type(answer).__name__ if answer is not None else "None"
        advice = "return what `call_next` gave, a CallToolResult, an MCPToolResult, a string or a dict of JSON values"
        result: Any = None
        match answer:
            case types.CallToolResult():
                result = answer
            case MCPToolResult():
                result = answer.raw
            case str():
                result = types.CallToolResult(content=[types.TextContent(type="text", text=answer)])
            case dict():
                try:
                    text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
                except (TypeError, ValueError, RecursionError):
                    what = "a dict that JSON cannot say"
                else:
                    content: list[Any] = [types.TextContent(type="text", text=text)]
                    result = types.CallToolResult(content=content, structured_content=answer)
            case Awaitable():
                advice = "`await call_next(call)`" if interceptor.is_async else "define it with `async def`"
                if asyncio.iscoroutine(answer):
                    answer.close()
        if result is None:
            msg = f"the interceptor '{interceptor.name}' returned {what}; {advice}."
            raise self._error(msg)
        raise_tool_error(result, self._request.display_name, self._request.tool_args)
        return cast("types.CallToolResult", result)

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, MCPInvocationError):
            error.tool_args = self._request.tool_args  # an interceptor may have added what is not for the caller
            return error
        raised, interceptor = self._raised or (None, None)
        if raised is not error or interceptor is None:
            if not isinstance(error, (OSError, RuntimeError)):
                return error
            failure = executor_failed(error, self._request.display_name, self._request.tool_args)
            if self._may_have_run and not isinstance(failure, MCPOutcomeUnknownError):
                failure = self._error(str(error))  # this is about the last sending, not about one before
            failure.__cause__ = error
            return failure
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

    @property
    def _may_have_run(self) -> bool:
        return bool(self._unanswered or self._under_way)

    def _error(self, text: str, kind: type[MCPInvocationError] = MCPInvocationError) -> MCPInvocationError:
        if self._may_have_run:
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
