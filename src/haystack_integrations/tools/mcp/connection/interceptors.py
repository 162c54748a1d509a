# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Interceptors, which wrap tool calls: what they get, how they are stored, and how a call passes through them.

An async interceptor runs in the event loop that all sessions share, however the call is made, so its resources (a lock,
an HTTP client) belong to that loop. A sync interceptor runs in a separate thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from haystack.core.errors import SerializationError
from haystack.utils import Secret, deserialize_callable

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.connection.monitoring import outcome_of
from haystack_integrations.tools.mcp.convert.content import MCPToolResult
from haystack_integrations.tools.mcp.errors import (
    MCPCallPendingError,
    MCPCallTimeoutError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTimeoutError,
)
from haystack_integrations.tools.mcp.executor import AsyncExecutor, OperationCancelledError
from haystack_integrations.tools.mcp.handlers.calling import is_asynchronous
from haystack_integrations.tools.mcp.haystack_compat import deserialize_object, serialize_object
from haystack_integrations.tools.mcp.import_paths import import_object, store_callable
from haystack_integrations.tools.mcp.protocol.request_errors import raise_tool_error, with_full_stop
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.request_context import MCPRequestContext, current_context, meta_of_call

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import CallRequest


@dataclass(frozen=True, kw_only=True)
class MCPToolCall:
    """
    A tool call, as interceptors see it on its way to the server.

    It cannot be changed; `override` makes a changed copy. Its `repr` shows no values.

    :param name: Name of the tool at the server.
    :param arguments: The arguments as the server would get them, including those from the State and `bound_arguments`,
        with the values of Secrets.
    :param meta: The `_meta` of the request, including the `meta` of `mcp_request_context`.
    :param headers: The HTTP headers of `mcp_request_context`. Headers of the server info, its token and its providers
        are sent as well, unless they have the same name.
    :param user: The `user` of `mcp_request_context`.
    :param server: The server, in words and without secrets.
    :param may_repeat: Whether the tool may run twice, so that a call whose outcome is unknown may be sent again.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str | Secret] = field(default_factory=dict)
    user: str | None = None
    server: str = ""
    may_repeat: bool = False

    def __post_init__(self) -> None:
        """
        Keep copies, so that later changes to the originals are not sent.
        """
        for name in ("arguments", "meta", "headers"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def override(
        self,
        *,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        user: str | None = None,
    ) -> MCPToolCall:
        """
        Make a changed copy of this call. `None` keeps the value of this call.

        :param name: Name of another tool of the server.
        :param arguments: All arguments, e.g. `{**call.arguments, "limit": 10}`.
        :param meta: All of the `_meta`.
        :param headers: All headers. They work only with servers over HTTP; calls to others fail. If the server has
            sessions, each different set of headers gets a separate session, unless there is a `user`.
        :param user: The user for whom the call is made. If the server has sessions, each user gets a separate one.
        :returns: The changed copy.
        """
        changes = {"name": name, "arguments": arguments, "meta": meta, "headers": headers, "user": user}
        return dataclasses.replace(self, **{key: value for key, value in changes.items() if value is not None})  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """
        Describe the call without the values of arguments and headers.
        """
        return (
            f"MCPToolCall(name={self.name!r}, arguments={sorted(self.arguments)!r}, meta={sorted(self.meta)!r}, "
            f"headers={sorted(self.headers)!r}, server={self.server!r})"
        )


@dataclass(frozen=True)
class Interceptor:
    """
    One function that wraps calls, and the value by which the user named it.

    :param function: The function, or a callable object.
    :param given: What the user passed: the function, or its import path.
    """

    function: Callable[[MCPToolCall, Any], Any] = field(compare=False)
    given: Any

    @cached_property
    def name(self) -> str:
        """
        The name of the function, for errors.
        """
        known = self.given if hasattr(self.given, "__qualname__") else type(self.given)
        return self.given if isinstance(self.given, str) else f"{known.__module__}.{known.__qualname__}"

    @cached_property
    def is_async(self) -> bool:
        """
        Whether the function has to be awaited.
        """
        return is_asynchronous(self.function)

    def stored(self) -> Any:
        """
        Serialize the interceptor.

        :returns: Its import path, or the dictionary of an object with `to_dict`.
        :raises SerializationError: If it has neither.
        """
        if isinstance(self.given, str):
            return self.given
        if callable(getattr(self.given, "to_dict", None)):
            return serialize_object("interceptors", self.given)
        try:
            return store_callable(f"`interceptors`: '{self.name}'", self.given)
        except SerializationError as error:
            msg = f'{error}, an object with `to_dict` and `from_dict`, or an import path, "package.module:name".'
            raise SerializationError(msg) from error


class Interceptors(tuple[Interceptor, ...]):
    """
    The interceptors of a connection, outermost first. They do not import the MCP SDK, so that loading YAML stays cheap.
    """

    __slots__ = ()

    def to_dict(self) -> list[Any]:
        """
        Serialize the interceptors.

        :returns: A list of import paths, and of dictionaries for objects with `to_dict`.
        :raises SerializationError: If one cannot be stored.
        """
        return [each.stored() for each in self]

    def _to_trace_dict(self) -> list[str]:
        return [each.name for each in self]


def check_interceptors(given: Any) -> Interceptors:
    """
    Check the value of `interceptors`, and import those given by an import path.

    :param given: Functions, callable objects and import paths, or None.
    :returns: The interceptors.
    :raises ValueError: If the value is of another kind, or an import fails.
    """
    if isinstance(given, Interceptors):
        return given
    if given is None:
        return Interceptors()
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        msg = (
            "`interceptors` must be a list of functions or import paths, outermost first, or None, got "
            f"{type(given).__name__}"
        )
        raise ValueError(msg)
    return Interceptors(_checked_interceptor(each, _imported) for each in given)


def load_interceptors(stored: Any) -> Any:
    """
    Deserialize interceptors. Modules must be on Haystack 3's allowlist.

    :param stored: The result of `Interceptors.to_dict`.
    :returns: The interceptors.
    :raises DeserializationError: If one cannot be imported.
    """
    if not isinstance(stored, Iterable) or isinstance(stored, (str, Mapping)):
        return stored  # the constructor raises the error
    return Interceptors(
        _checked_interceptor(deserialize_object(each) if isinstance(each, dict) else each, _deserialized)
        for each in stored
    )


def _checked_interceptor(given: Any, find: Callable[[str], Any]) -> Interceptor:
    found = find(given) if isinstance(given, str) else given
    if not callable(found):
        what = f"'{given}', which is {type(found).__name__}" if isinstance(given, str) else type(found).__name__
        msg = (
            "`interceptors` must contain functions that take an MCPToolCall and `call_next`, or import paths "
            f'"package.module:name" of such functions, got {what}'
        )
        raise ValueError(msg)
    interceptor = Interceptor(found, given)
    try:
        inspect.signature(found).bind(None, None)
    except TypeError:
        msg = (
            f"`interceptors`: '{interceptor.name}' must take two arguments, the MCPToolCall and `call_next`, as in "
            "`def interceptor(call, call_next): return call_next(call)`"
        )
        raise ValueError(msg) from None
    return interceptor


def _deserialized(path: str) -> Any:
    return deserialize_callable(path.replace(":", "."))


def _imported(path: str) -> Any:
    try:
        return import_object(path if ":" in path else ":".join(path.rsplit(".", 1)))
    except (ImportError, ValueError) as error:
        msg = f"`interceptors`: '{path}' cannot be imported ({error}). Give a function, or \"package.module:name\""
        raise ValueError(msg) from error


class InterceptedCall:
    """
    One tool call on its way through the interceptors of a connection. It is run once.

    A call that was sent and not answered is not sent again, unless the tool may run twice.
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

        :param interceptors: The interceptors that the call passes through.
        :param request: What the caller wants.
        :param server: Describes the server.
        :param send: Sends a request, in the executor's loop.
        """
        self._interceptors, self._request, self._send = interceptors, request, send
        context = current_context.get() or MCPRequestContext()
        self._original_call = MCPToolCall(
            name=request.tool_name,
            arguments=request.tool_args,
            meta=meta_of_call(request.meta) or {},
            headers=context.headers or {},
            user=context.user,
            server=server,
            may_repeat=request.may_repeat,
        )
        # The last exception, and the interceptor that raised it; None if none of them did.
        self._last_error: tuple[Exception, Interceptor | None] | None = None
        # Whether the last call that was sent was answered with a result.
        self._is_answered = False
        self._calls_in_flight: list[MCPToolCall] = []
        # The tools whose last call was not answered.
        self._unanswered_tools: set[str] = set()

    async def run(self) -> types.CallToolResult:
        """
        Make the call. Await this in the executor's loop.

        :returns: The result.
        :raises MCPInvocationError: If there is no result.
        """
        try:
            return await self._pass_through(self._original_call, 0)
        except Exception as error:
            failure = self._failure(error)
        raise failure  # outside of the except clause, so that its context does not quote what was redacted

    async def _pass_through(self, call: MCPToolCall, index: int) -> types.CallToolResult:
        interceptor = self._interceptors[index] if index < len(self._interceptors) else None
        try:
            if interceptor is None:
                return await self._send_call(call)

            async def call_next(following: MCPToolCall) -> types.CallToolResult:
                return await self._pass_through(_checked_call(following), index + 1)

            if interceptor.is_async:
                answer = await interceptor.function(call, call_next)
            else:
                answer = await self._in_thread(interceptor, call, call_next)
            return self._result(interceptor, answer)
        except Exception as error:
            if self._last_error is None or self._last_error[0] is not error:
                self._last_error = error, interceptor
            raise

    async def _in_thread(
        self,
        interceptor: Interceptor,
        call: MCPToolCall,
        call_next: Callable[[MCPToolCall], Awaitable[types.CallToolResult]],
    ) -> Any:
        is_given_up = False
        tasks: list[asyncio.Task[Any] | None] = []
        executor = AsyncExecutor.get_instance()
        if executor.get_loop() is not asyncio.get_running_loop():
            msg = "the AsyncExecutor was shut down."
            raise self._error(msg)

        async def go_on(following: MCPToolCall) -> types.CallToolResult:
            if is_given_up:
                raise asyncio.CancelledError
            tasks.append(asyncio.current_task())
            return await call_next(following)

        def wait_for_next(following: MCPToolCall) -> types.CallToolResult:
            try:
                # In the loop of the call, even during its shutdown: a call in another loop could not be given up.
                return executor.run(go_on(following))
            except OperationCancelledError:
                msg = "the call was given up by its caller."
                raise self._error(msg) from None

        try:
            return await start_in_thread(interceptor.function, call, wait_for_next, name="mcp-haystack-interceptor")
        except asyncio.CancelledError:
            # The thread cannot be cancelled, but its pending calls can. It sends nothing from now on.
            is_given_up = True
            for task in filter(None, tasks):
                task.cancel()  # no effect if it is done
            raise

    async def _send_call(self, call: MCPToolCall) -> types.CallToolResult:
        first, request = self._original_call, self._request
        is_same_tool = call.name == first.name
        request = dataclasses.replace(
            request,
            tool_name=call.name,
            tool_args=dict(call.arguments),
            display_name=request.display_name if is_same_tool else call.name,
            may_repeat=first.may_repeat and is_same_tool,  # the annotations of another tool are unknown
            original=(request.tool_name, request.tool_args),
        )
        # Only what an interceptor changed overrides the innermost block of mcp_request_context.
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
        self._calls_in_flight.append(call)
        is_known = self._is_answered = False
        try:
            # In a separate context: the identity of this call must not apply to what the interceptor does next.
            result = await asyncio.create_task(context.run(self._send, request), context=context)
            is_known = self._is_answered = True
            return result
        except MCPCallPendingError:
            raise
        except MCPInvocationError as error:
            outcome = outcome_of(error)
            # The error covers this attempt only.
            if call.name in self._unanswered_tools and outcome == "did_not_run":
                kind = MCPTimeoutError if isinstance(error, TimeoutError) else MCPInvocationError
                raise self._error(str(error.__cause__ or error), kind) from error
            is_known = outcome != "may_have_run"
            raise
        finally:
            self._calls_in_flight = [each for each in self._calls_in_flight if each is not call]
            self._unanswered_tools -= {call.name}
            self._unanswered_tools |= set() if is_known else {call.name}

    def _check_repeats(self, call: MCPToolCall, *, may_repeat: bool) -> None:
        reason = None
        if call.name in self._unanswered_tools:
            reason = "it was sent before and not answered"
        elif any(each.name == call.name and each.arguments == call.arguments for each in self._calls_in_flight):
            reason = "it is under way already"
        if reason is not None and not may_repeat:
            msg = (
                f"an interceptor would have sent the call again, but {reason}. Interceptors may repeat calls of tools "
                "that the server annotates as read-only or idempotent, if `retry_idempotent` is set."
            )
            raise self._error(msg)

    def _result(self, interceptor: Interceptor, answer: Any) -> types.CallToolResult:
        import mcp_types as types  # noqa: PLC0415 - the import is slow, and a connection has done it already

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
            error.tool_args = self._request.tool_args  # the caller must not see what an interceptor added
            return error
        raised, interceptor = self._last_error or (None, None)
        if raised is not error or interceptor is None:
            # An error of the executor covers only the last time that the call was sent, not earlier ones.
            return (
                self._error(str(error))
                if self._unanswered_tools and isinstance(error, (OSError, RuntimeError))
                else error
            )
        text = str(error)
        text_with_name = (
            f"the interceptor '{interceptor.name}' raised {type(error).__name__}{f': {text}' if text else ''}"
        )
        redactor = Redactor(self._request.secrets)
        redacted = redactor.text(text_with_name)
        failure = self._error(
            with_full_stop(redacted), MCPTimeoutError if isinstance(error, TimeoutError) else MCPInvocationError
        )
        failure.code, failure.data = getattr(error, "code", None), redactor.value(getattr(error, "data", None))
        # If the text had to be redacted, the cause quotes the same values, so it is left out.
        failure.__cause__ = error if redacted == text_with_name else None
        return failure

    def _error(self, text: str, kind: type[MCPInvocationError] = MCPInvocationError) -> MCPInvocationError:
        if self._unanswered_tools or self._calls_in_flight:
            kind = MCPCallTimeoutError if kind is MCPTimeoutError else MCPOutcomeUnknownError
            text = f"{with_full_stop(text)} The tool may have run."
        error = self._request.error(kind, text)
        error._outcome = "answered" if self._is_answered else None
        return error


def _checked_call(call: Any) -> MCPToolCall:
    if not isinstance(call, MCPToolCall):
        msg = f"it passed {type(call).__name__} to `call_next`; pass it an MCPToolCall, the given one or an `override`"
        raise TypeError(msg)
    return call
