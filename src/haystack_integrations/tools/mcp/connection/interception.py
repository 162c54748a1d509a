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


_GIVEN_UP = "the call was given up by its caller."

# Takes the reports of progress, in the executor's loop.
_Note: TypeAlias = Callable[[MCPProgress], None] | None

_CallNext: TypeAlias = Callable[[MCPToolCall], Awaitable[types.CallToolResult]]


class InterceptedCall:
    """
    One call of a tool on its way through the interceptors of a connection.
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
        self._secrets = list(request.secrets)
        context = current_context.get()
        self._first = MCPToolCall._unchecked(
            name=request.tool_name,
            arguments=request.tool_args,
            meta=meta_of_call(request.meta) or {},
            headers=(context.headers if context is not None else None) or {},
            user=context.user if context is not None else None,
            server=server,
            may_repeat=request.may_repeat,
        )
        self._replays = _Replays(request.display_name, request.tool_args)
        # The last exception, and the interceptor that raised it; None if that was ourselves.
        self._raised: tuple[Exception, Interceptor | None] | None = None
        # Whether the last sending was answered with a result.
        self._is_answered = False
        self._executor: AsyncExecutor

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
        try:
            raise failure from failure.__cause__  # not in the clause: the context would be back that was left out
        finally:
            del failure  # its traceback holds this frame

    async def run_async(self) -> types.CallToolResult:
        """
        Do the same as `run` without blocking the event loop.

        :returns: The result.
        :raises MCPInvocationError: If there is none.
        """
        try:
            self._executor = AsyncExecutor.get_instance()
            reports = None if self._request.on_progress is None else AwaitedReports(self._request.on_progress)
            note = reports.add if reports is not None else None
            operation = self._executor.run_async(self._step_async(self._first, 0, note))
            return await (operation if reports is None else reports.wait(operation))
        except Exception as error:
            failure = self._failure(error)
        try:
            raise failure from failure.__cause__  # not in the clause: the context would be back that was left out
        finally:
            del failure  # its traceback holds this frame

    def _step(self, call: MCPToolCall, index: int) -> types.CallToolResult:
        """
        Go on in a thread that may block.
        """
        if index == len(self._interceptors):
            with self._sending(call, self._request.on_progress) as request:
                return self._send(request)
        interceptor = self._interceptors[index]
        if interceptor.is_async:
            return self._enter_loop(call, index)

        def call_next(following: MCPToolCall) -> types.CallToolResult:
            return self._step(_checked(following), index + 1)

        with self._naming(interceptor):
            return self._result(interceptor, interceptor.function(call, call_next))

    def _enter_loop(self, call: MCPToolCall, index: int) -> types.CallToolResult:
        reports = None if self._request.on_progress is None else WaitingReports(self._request.on_progress)
        note, wait = (reports.add, reports.wait) if reports is not None else (None, None)
        # What is sent has its own time limit; an interceptor may wait for as long as it likes.
        with self._naming(None):
            return self._executor.run(self._step_async(call, index, note), wait=wait)

    async def _step_async(self, call: MCPToolCall, index: int, note: _Note) -> types.CallToolResult:
        """
        Go on in the executor's loop.
        """
        if index == len(self._interceptors):
            with self._sending(call, note) as request:
                return await self._send_async(request)
        interceptor = self._interceptors[index]

        async def call_next(following: MCPToolCall) -> types.CallToolResult:
            return await self._step_async(_checked(following), index + 1, note)

        with self._naming(interceptor):
            if interceptor.is_async:
                answer: Any = await interceptor.function(call, call_next)
            else:
                answer = await self._in_thread(interceptor, call, call_next)
            return self._result(interceptor, answer)

    async def _in_thread(self, interceptor: Interceptor, call: MCPToolCall, call_next: _CallNext) -> Any:
        executor, is_given_up = self._executor, False
        awaited: set[asyncio.Task[Any]] = set()

        async def go_on(following: MCPToolCall) -> types.CallToolResult:
            if is_given_up:
                raise self._error(MCPInvocationError, _GIVEN_UP)
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            awaited.add(task)
            try:
                return await call_next(following)
            finally:
                awaited.discard(task)
                del task  # it holds an error whose traceback holds this frame

        def wait_for_next(following: MCPToolCall) -> types.CallToolResult:
            _checked(following)  # here, where it is the interceptor's mistake
            try:
                with self._naming(None):
                    return executor.run(go_on(following))
            except OperationCancelledError:
                raise self._error(MCPInvocationError, _GIVEN_UP) from None

        try:
            return await in_thread(interceptor.function, call, wait_for_next, name="mcp-haystack-interceptor")
        except asyncio.CancelledError:
            # The thread cannot be cancelled, but what it waits for; and it sends nothing from now on.
            is_given_up = True
            for task in awaited:
                task.cancel()
            raise

    @contextmanager
    def _sending(self, call: MCPToolCall, on_progress: ProgressCallback | None) -> Iterator[CallRequest]:
        """
        Give the request with which a call is sent, and take note of what becomes of it.
        """
        is_same_tool = call.name == self._first.name
        request = dataclasses.replace(
            self._request,
            tool_name=call.name,
            tool_args=dict(call.arguments),
            display_name=self._request.display_name if is_same_tool else call.name,
            may_repeat=self._first.may_repeat and is_same_tool,  # of another tool, nothing is known
            secrets=self._secrets,
            on_progress=on_progress,
            original=(self._request.tool_name, self._request.tool_args),
        )
        # What no interceptor has changed is as the innermost block of mcp_request_context says.
        changes: dict[str, Any] = {}
        if call is not self._first:
            changes = {
                name: getattr(call, name)
                for name in ("headers", "user")
                if getattr(call, name) != getattr(self._first, name)
            }
            if call.meta != self._first.meta:
                changes["meta"], request.meta = None, dict(call.meta)
        with self._naming(None), self._replays.sending(call, may_repeat=request.may_repeat):
            self._is_answered = False
            if not changes:
                yield request
                self._is_answered = True
                return
            context = current_context.get() or MCPRequestContext()
            reset = current_context.set(dataclasses.replace(context, **changes))
            try:
                yield request
                self._is_answered = True
            finally:
                current_context.reset(reset)

    @contextmanager
    def _naming(self, interceptor: Interceptor | None) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._raised is None or self._raised[0] is not error:
                self._raised = error, interceptor
            raise

    def _result(self, interceptor: Interceptor, answer: Any) -> types.CallToolResult:
        match answer:
            case types.CallToolResult():
                result = answer
            case MCPToolResult(raw=types.CallToolResult()):
                result = answer.raw
            case str():
                result = types.CallToolResult(content=[types.TextContent(type="text", text=answer)])
            case dict() if (text := _as_json(answer)) is not None:
                result = types.CallToolResult(
                    content=[types.TextContent(type="text", text=text)], structured_content=answer
                )
            case _:
                raise self._bad_result(interceptor, answer)
        raise_tool_error(result, self._request.display_name, self._request.tool_args)
        return result

    def _bad_result(self, interceptor: Interceptor, answer: Any) -> MCPInvocationError:
        if asyncio.iscoroutine(answer):
            answer.close()
        what = type(answer).__name__ if answer is not None else "None"
        advice = "return what `call_next` gave, a CallToolResult, an MCPToolResult, a string or a dict of JSON values"
        if isinstance(answer, Awaitable):
            advice = "`await call_next(call)`" if interceptor.is_async else "define it with `async def`"
        elif isinstance(answer, dict):
            what = "a dict that JSON cannot say"
        text = f"the interceptor '{interceptor.name}' returned {what}; {advice}."
        return self._error(MCPInvocationError, text)

    def _failure(self, error: Exception) -> Exception:
        raised, interceptor = self._raised or (None, None)
        self._raised = None  # it refers to this frame
        if isinstance(error, MCPInvocationError):
            error.tool_args = self._request.tool_args  # an interceptor may have added what is not for the caller
            return error
        if raised is not error or interceptor is None:
            if not isinstance(error, (OSError, RuntimeError)):
                return error
            failure = executor_failed(error, self._request.display_name, self._request.tool_args)
            if self._replays.is_unknown and not isinstance(failure, MCPOutcomeUnknownError):
                failure = self._unknown(str(error))  # this is about the last sending, not about one before
            failure.__cause__ = error
            return failure
        text = str(error)
        what = f"the interceptor '{interceptor.name}' raised {type(error).__name__}{f': {text}' if text else ''}"
        kind = MCPTimeoutError if isinstance(error, TimeoutError) else MCPInvocationError
        redactor = Redactor(self._secrets)
        redacted = redactor.text(what)
        failure = self._error(kind, with_full_stop(redacted))
        failure.code, failure.data = getattr(error, "code", None), redactor.value(getattr(error, "data", None))
        # If the text had to be redacted, its cause quotes the same values.
        failure.__cause__ = error if redacted == what else None
        return failure

    def _error(self, kind: type[MCPInvocationError], text: str) -> MCPInvocationError:
        name, arguments = self._request.display_name, self._request.tool_args
        if not self._replays.is_unknown:
            error = kind(f"Failed to invoke Tool `{name}`: {text}", name, arguments)
            error._outcome = "answered" if self._is_answered else None
            return error
        return self._unknown(text, MCPCallTimeoutError if kind is MCPTimeoutError else MCPOutcomeUnknownError)

    def _unknown(
        self, text: str, kind: type[MCPOutcomeUnknownError] = MCPOutcomeUnknownError
    ) -> MCPOutcomeUnknownError:
        msg = f"Failed to invoke Tool `{self._request.display_name}`: {with_full_stop(text)} The tool may have run."
        return kind(msg, self._request.display_name, self._request.tool_args)


class _Replays:
    """
    Which calls were sent on behalf of one call, so that interceptors send none twice that may have run.

    Threads of interceptors may send at the same time.
    """

    def __init__(self, display_name: str, tool_args: dict[str, Any]) -> None:
        """
        Initialize the Replays.

        :param display_name: Name of the tool in messages.
        :param tool_args: The arguments that the caller gave.
        """
        self._display_name = display_name
        self._tool_args = tool_args
        self._lock = threading.Lock()
        self._under_way: list[MCPToolCall] = []
        # The tools whose last call was not answered.
        self._unknown: set[str] = set()

    @property
    def is_unknown(self) -> bool:
        """
        Whether a call was sent and not answered, or not yet.
        """
        return bool(self._unknown or self._under_way)

    @contextmanager
    def sending(self, call: MCPToolCall, *, may_repeat: bool) -> Iterator[None]:
        """
        Take note of what becomes of a call.

        :param call: The call.
        :param may_repeat: Whether it does no harm if the tool runs twice.
        :raises MCPOutcomeUnknownError: If it must not be sent.
        """
        with self._lock:
            if not may_repeat:
                self._check(call)
            self._under_way.append(call)
        is_known = False
        try:
            yield
            is_known = True
        except MCPInvocationError as error:
            is_known = not isinstance(error, MCPOutcomeUnknownError)
            raise
        finally:
            with self._lock:
                self._under_way = [each for each in self._under_way if each is not call]
                if is_known:
                    self._unknown.discard(call.name)
                else:
                    self._unknown.add(call.name)

    def _check(self, call: MCPToolCall) -> None:
        if call.name in self._unknown:
            reason = "it was sent before and not answered. The tool may have run"
        elif any(each.name == call.name and each.arguments == call.arguments for each in self._under_way):
            reason = "it is under way already. The tool may have run"
        else:
            return
        msg = (
            f"Failed to invoke Tool `{self._display_name}`: an interceptor would have sent the call again, but "
            f"{reason}. Interceptors may repeat calls of tools that the server annotates as read-only or idempotent, "
            "if `retry_idempotent` is set."
        )
        raise MCPOutcomeUnknownError(msg, self._display_name, self._tool_args)


def _checked(call: Any) -> MCPToolCall:
    if not isinstance(call, MCPToolCall):
        msg = f"it passed {type(call).__name__} to `call_next`; pass it an MCPToolCall, the given one or an `override`"
        raise TypeError(msg)
    return call


def _as_json(value: dict[Any, Any]) -> str | None:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
