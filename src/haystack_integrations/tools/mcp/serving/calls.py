# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Runs calls of served tools, and reads: limits on concurrency and time, threads, errors and progress reports.

A call takes a place in a pool, or waits for one. If too many calls are waiting already, it is refused. It keeps its
place until it has ended and so have its threads: a thread cannot be stopped, so a cancelled call may leave one behind.
"""

from __future__ import annotations

import asyncio
import inspect
import logging as python_logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from keyword import iskeyword
from math import inf
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from fastmcp import Context
from fastmcp.dependencies import Dependency
from fastmcp.exceptions import FastMCPError, NotFoundError, PromptError, ResourceError, ToolError
from fastmcp.exceptions import ValidationError as InvalidRequestError
from fastmcp.server.auth import AuthCheck
from fastmcp.server.dependencies import OptionalCurrentContext, resolve_dependencies
from fastmcp.tools.base import Tool, ToolResult
from fastmcp.utilities.tasks import TaskConfig
from haystack import logging
from haystack.core.errors import PipelineRuntimeError
from haystack.tools.errors import ToolInvocationError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import PrivateAttr, ValidationError
from pydantic_core import to_json, to_jsonable_python

from haystack_integrations.tools.mcp.serving.results import ResultWriter, well_formed
from haystack_integrations.tools.mcp.serving.schemas import ArgumentCheck, InputSchema, reasons_of, remove_arguments
from haystack_integrations.tools.mcp.serving.sources import ServeOptions, check_name

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds to wait for the user's answer. Over HTTP, nothing shows that a client was killed.
ANSWER_TIMEOUT = 3600.0

# Enough for tools that wait for servers, and not too many for a machine with few cores.
DEFAULT_MAX_CONCURRENCY = 32
# How many calls may wait per place. The last of them waits about this many times as long as a call takes.
_WAITING_PER_PLACE = 8

# The limiter for threads. The places already limit their number, so all event loops share one that never blocks.
_UNLIMITED = anyio.CapacityLimiter(inf)

# Arguments of this many characters or more are checked in a thread. 4 MiB take half a minute, which would block other
# calls.
_MAX_LENGTH_CHECKED_IN_LOOP = 100_000


class UnansweredError(ToolError, ResourceError, PromptError):
    """
    Raised if a call or read cannot be answered. The client sees the message.

    It derives from FastMCP's errors for tools, resources and prompts, so that users' middleware can catch any of them.
    """


class CallPool:
    """
    Limits how many calls run at a time in an event loop.
    """

    def __init__(self, max_concurrency: int = DEFAULT_MAX_CONCURRENCY) -> None:
        """
        Initialize the CallPool.

        :param max_concurrency: How many calls may run at a time. Eight times as many may wait.
        """
        self.max_concurrency = max_concurrency
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter] = WeakKeyDictionary()

    def limited_by(self, options: ServeOptions) -> CallPool:
        """
        Return the pool of one served thing.

        :param options: Its options.
        :returns: A separate pool if the options have a limit, otherwise this one.
        """
        return self if options.max_concurrency is None else CallPool(options.max_concurrency)

    @property
    def limiter(self) -> anyio.CapacityLimiter:
        """
        The limiter of the running event loop.
        """
        loop = asyncio.get_running_loop()
        limiter = self._limiters.get(loop)
        if limiter is None:
            limiter = self._limiters[loop] = anyio.CapacityLimiter(self.max_concurrency)
        return limiter


class CodeExitedError(RuntimeError):
    """
    Raised in place of an exception that would end more than the call, such as SystemExit.
    """

    def __init__(self, error: BaseException) -> None:
        """
        Initialize the CodeExitedError.

        :param error: The exception.
        """
        super().__init__(f"The code that was called raised {type(error).__name__}, which no call may end with")


class AbandonedCallError(BaseException):
    """
    Raised in a thread whose call was cancelled, to end it. Clients do not see it.

    It does not derive from Exception, because Haystack 2 would save a snapshot of an Agent's run.
    """


# Exceptions that end the event loop, and the process with it, unless they are caught in their task.
EXITS = (SystemExit, KeyboardInterrupt)


class ServedCall:
    """
    One call of a served tool, or one read, which takes a place in a pool: `async with ServedCall(...) as call`.

    The place is free again when the block and the threads of the call have ended.
    """

    def __init__(self, pool: CallPool, tool_name: str = "", context: Context | None = None) -> None:
        """
        Initialize the ServedCall.

        :param pool: The pool.
        :param tool_name: The name of the tool for clients.
        :param context: FastMCP's context of the request; None if the tool is run without a server.
        """
        self.tool_name = tool_name
        self.context = context
        # Whether the client no longer waits for it. Threads that it has left behind check this.
        self.is_over: bool = False
        self._pool = pool
        self._holders = 1

    async def __aenter__(self) -> ServedCall:
        """
        Wait for a place.

        :raises UnansweredError: If too many calls are waiting already.
        """
        limiter = self._limiter = self._pool.limiter
        try:
            limiter.acquire_on_behalf_of_nowait(self)
        except anyio.WouldBlock:
            places, waiting = self._pool.max_concurrency, limiter.statistics().tasks_waiting
            if waiting >= places * _WAITING_PER_PLACE:
                msg = f"The server is busy: {places} calls are running and {waiting} are waiting. Try again in a while."
                raise UnansweredError(msg) from None
            await limiter.acquire_on_behalf_of(self)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """
        Release the place, unless a thread still runs.
        """
        self.is_over = True
        self._leave()

    def _leave(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._limiter.release_on_behalf_of(self)

    def check(self) -> None:
        """
        Stop a thread that has been left behind, before it begins its next step.

        :raises AbandonedCallError: If the client no longer waits for the call.
        """
        if self.is_over:
            raise AbandonedCallError

    @property
    def asks_by_result(self) -> bool:
        """
        Whether questions are returned as a result, because the client cannot be asked during the call.
        """
        if self.context is None:
            return False
        request = self.context.request_context
        is_modern = request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS
        return is_modern or self.context.is_background_task

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """
        Report the progress of the call, if the client has asked for it.

        :param done: How much is done. It must increase with each report.
        :param total: The total, if it is known.
        :param message: The current step.
        """
        if self.context is not None:
            await self.context.report_progress(done, total, message)

    async def answer_of_user(self, asking: Awaitable[T]) -> T:
        """
        Wait for an answer from the client's user. Meanwhile, another call may have the place: a person may take long.

        :param asking: Asks the client.
        :returns: The answer.
        :raises TimeoutError: If there is no answer within an hour.
        """
        self._limiter.total_tokens += 1
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await asking
        finally:
            self._limiter.total_tokens -= 1

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """
        Call a blocking function in a separate thread, with the context variables of the caller.

        If the call is cancelled or reaches its timeout, the client is answered at once. The thread is left behind, and
        keeps the place until it ends. In it, `anyio.from_thread.run` runs coroutines in this event loop.

        :param function: The function.
        :param args: Its arguments.
        :returns: Its return value.
        """

        # Acquired only once: by the thread when it begins, or by the call if it is cancelled before that.
        begin = threading.Lock()
        loop = asyncio.get_running_loop()

        def call() -> Any:
            if not begin.acquire(blocking=False):
                return None
            try:
                return function(*args)
            except (*EXITS, GeneratorExit, asyncio.CancelledError) as error:
                # The function's own code raised it, because a thread cannot be ended or cancelled from outside.
                raise CodeExitedError(error) from error
            finally:
                # This may be long after the call, if the thread was left behind.
                loop.call_soon_threadsafe(self._leave)

        self._holders += 1
        try:
            result: T = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=_UNLIMITED)
        finally:
            if begin.acquire(blocking=False):
                self._leave()
        return result

    async def read_generator(self, value: Any) -> Any:
        """
        Read a generator, which may take long, without blocking other calls.

        :param value: Any value.
        :returns: A list of a generator's items; any other value unchanged.
        """
        if inspect.isasyncgen(value):
            return [each async for each in value]
        return await self.in_thread(list, value) if inspect.isgenerator(value) else value


# How long a model's text is collected before it is sent, in seconds. That is often enough for people who read it.
TEXT_INTERVAL = 0.25
# Seconds of silence before a heartbeat. The strictest clients give up on a silent call after some 30 seconds.
HEARTBEAT_INTERVAL = 10.0
# How long a call over HTTP that may be short runs before the first notification, in seconds. In the newest revision, a
# notification turns the answer from JSON into a stream of events, which clients limit to 1 MiB each, and many clients
# ask for progress in every call.
FIRST_REPORT_DELAY = 0.25


class ProgressReporter:
    """
    Reports the progress of a call to its client.

    All steps are sent in order. Text of a model is collected and sent a few times a second. Without either, a heartbeat
    shows that the call is alive.

    It is an asynchronous context manager around the work. If the client did not ask for progress, it does nothing.
    """

    def __init__(self, call: ServedCall, *, total: int | None = None, delays_first_report: bool = False) -> None:
        """
        Initialize the ProgressReporter.

        :param call: The call.
        :param total: The number of steps, if it is known.
        :param delays_first_report: Whether to send nothing for a call over HTTP that ends within `FIRST_REPORT_DELAY`.
        """
        self._call = call
        self._total = total
        request = call.context.request_context if call.context is not None else None
        self._first_report_delay = (
            FIRST_REPORT_DELAY if delays_first_report and request is not None and request.request is not None else 0.0
        )
        # Whether the client asked for progress. Background tasks always report it.
        self.is_wanted: bool = call.context is not None and (request is None or "progressToken" in (request.meta or {}))
        # Pending messages, and whether each is a step (otherwise, it is text).
        self._pending_messages: deque[tuple[str, bool]] = deque()
        self._steps = 0
        self._since_step = 0
        self._last_step = "Working"
        self._loop = asyncio.get_running_loop()
        self._has_messages = asyncio.Event()
        self._send_lock = asyncio.Lock()
        self._is_open = False
        self._may_report = not self._first_report_delay
        self._sender: asyncio.Task[None] | None = None

    def step(self, message: str) -> None:
        """
        Report a step. Thread-safe.

        :param message: What begins or has ended.
        """
        self._report(message, is_step=True)

    def text(self, text: str) -> None:
        """
        Report text of a model. Thread-safe.

        :param text: The text since the last report.
        """
        self._report(text, is_step=False)

    def _report(self, message: str, *, is_step: bool) -> None:
        if self._is_open:
            self._pending_messages.append((message, is_step))
            self._loop.call_soon_threadsafe(self._has_messages.set)

    async def __aenter__(self) -> ProgressReporter:
        """
        Start reporting.
        """
        self._is_open = self.is_wanted
        if self.is_wanted:
            self._sender = self._loop.create_task(self._send())
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """
        Send the remaining messages, unless the work failed, or was too short to be worth a report.
        """
        self._is_open = False
        if self._sender is None:
            return
        try:
            if error is None and self._may_report:
                await self._send_messages()
        finally:
            self._sender.cancel()
        await asyncio.wait([self._sender])

    async def _send(self) -> None:
        await asyncio.sleep(self._first_report_delay)
        self._may_report = True
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_INTERVAL):
                    await self._has_messages.wait()
            except TimeoutError:
                self._pending_messages.append((f"{self._last_step} ...", False))
            self._has_messages.clear()
            await self._send_messages()
            # Collect more text, which may follow.
            await asyncio.sleep(TEXT_INTERVAL)

    async def _send_messages(self) -> None:
        # Errors of a closed connection are ignored, because the client's call is cancelled then anyway.
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with self._send_lock:
                while self._pending_messages:
                    message, is_step = self._pending_messages.popleft()
                    while not is_step and self._pending_messages and not self._pending_messages[0][1]:
                        message += self._pending_messages.popleft()[0]
                    is_half = not is_step and "\ud800" <= message[-1:] <= "\udbff"  # of a surrogate pair
                    if is_half and self._is_open and not self._pending_messages:  # the other half will follow
                        self._pending_messages.appendleft((message, False))
                        return
                    await self._notify(message, is_step=is_step)

    async def _notify(self, message: str, *, is_step: bool) -> None:
        if is_step:
            self._steps, self._since_step, self._last_step = self._steps + 1, 0, message
        else:
            self._since_step += 1
        # The number must increase with each notification, so text between two steps counts as fractions of a step.
        done = self._steps + self._since_step / (self._since_step + 1)
        total = self._total if self._total is not None and done <= self._total else None
        await self._call.progress(done, total, well_formed(message))


Body = Callable[[dict[str, Any], ServedCall], Awaitable[Any]]
# Makes the context manager that returns the bound values for one call.
Bound = Callable[[], AbstractAsyncContextManager[dict[str, Any]]]


class ServedTool(Tool):
    """
    A tool of the server that runs something built in Haystack.

    FastMCP checks arguments and enforces the timeout only for tools that are plain functions; this class does both.
    """

    _body: Body = PrivateAttr()
    _options: ServeOptions = PrivateAttr()
    _pool: CallPool = PrivateAttr()
    _arguments: ArgumentCheck = PrivateAttr()
    _results: ResultWriter = PrivateAttr()
    _bound: Bound = PrivateAttr()

    @classmethod
    def create(
        cls,
        *,
        name: str,
        description: str | None,
        parameters: dict[str, Any],
        body: Body,
        options: ServeOptions,
        pool: CallPool,
        inputs: InputSchema | None = None,
        output_schema: dict[str, Any] | None = None,
        auth: AuthCheck | list[AuthCheck] | None = None,
        kind: str = "tools",
    ) -> ServedTool:
        """
        Create a tool.

        The options take precedence over the other parameters.

        :param name: Its name.
        :param description: What it does, for the model.
        :param parameters: JSON schema of its arguments. Bound ones need not be removed.
        :param body: Does the work of the tool. It gets the arguments, checked, converted and with the bound ones, and
            the call. Its result is converted to content and structured content; a `ToolResult` is sent unchanged.
        :param options: Its options.
        :param pool: The pool for its calls.
        :param inputs: Converts arguments for the body.
        :param output_schema: JSON schema of the structured result, if it can be derived.
        :param auth: Who may use it, if the options have no scopes.
        :param kind: The parameter of `create_mcp_server` that it comes from.
        :returns: The tool.
        :raises ValueError: If clients cannot call it.
        """
        check_name("`ServeOptions(name=...)`" if options.name else f"`{kind}`", options.name or name)
        if "." in (options.name or name):
            logger.warning(
                "The name '{tool}' has a dot: Claude refuses all tools of a server then. Set `ServeOptions(name=...)`",
                tool=options.name or name,
            )
        if options.outputs is not None and kind == "tools":
            msg = (
                f"`outputs` cannot be chosen for tool '{name}', only for pipelines and agents. Serve a function that "
                "returns less."
            )
            raise ValueError(msg)
        if options.output_schema is not None:
            output_schema = dict(options.output_schema) if options.output_schema else None
        shown_parameters = remove_arguments(_listable_schema(options.name or name, parameters), options.bound)
        defaults = {"description": description, "annotations": options.annotations, "auth": auth}
        properties: Any = {**defaults, **options.of_component()}
        tool = cls(
            name=options.name or name,
            **properties,
            parameters=shown_parameters,
            output_schema=output_schema,
            timeout=options.timeout,
            task_config=TaskConfig(mode="required")
            if options.task == "required"
            else TaskConfig.from_bool(options.task is True),
        )
        tool._body = body
        tool._options = options
        tool._pool = pool.limited_by(options)
        tool._arguments = ArgumentCheck(tool.name, shown_parameters, inputs)
        tool._results = ResultWriter(tool.name, output_schema, options)
        tool._bound = _bind_per_call(options.bound)
        return tool

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """
        Run the tool.

        :param arguments: The client's arguments.
        :returns: The result.
        :raises ToolError: If the arguments cannot be used, the server is busy, or the call takes too long. The client
            sees the message.
        """
        current: Any = OptionalCurrentContext()
        async with current as context:
            strict = self._options.strict_validation
            if strict is None:
                strict = context is not None and context.fastmcp.strict_input_validation
            # The timeout does not apply to background tasks.
            is_limited = not (context is not None and context.is_background_task)
            # A cancel scope of anyio would also cancel the cleanup of dependencies.
            limit = asyncio.timeout(self.timeout if is_limited else None)
            try:
                async with limit, self._bound() as bound:
                    check = partial(self._arguments.check, arguments, strict=strict)
                    is_long = len(repr(arguments)) > _MAX_LENGTH_CHECKED_IN_LOOP
                    checked = await anyio.to_thread.run_sync(check, abandon_on_cancel=True) if is_long else check()
                    return await self._results.result(await self._call({**checked, **bound}, context))
            except TimeoutError:
                if not limit.expired():
                    raise
        logger.warning(
            "A call of tool '{tool}' ran into its timeout of {timeout} s. A background task has no such limit: "
            "`ServeOptions(task=True)`",
            tool=self.name,
            timeout=self.timeout,
        )
        msg = f"Tool '{self.name}' did not finish within {self.timeout:g} s."
        raise ToolError(msg)

    async def _call(self, arguments: dict[str, Any], context: Context | None) -> Any:
        try:
            async with ServedCall(self._pool, self.name, context) as call:
                return await self._body(arguments, call)
        except Exception as error:
            failure = _with_valid_text(_error_for_client(error))
            if failure is error:
                raise
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException as error:  # for example a panic of a library in Rust
            raise CodeExitedError(error) from error
        # Raised outside of the handler, because the log would show the original error, which quotes arguments.
        raise failure


def _error_for_client(error: Exception) -> BaseException:
    """
    Choose the error to show the client, or to log if errors are masked.

    Haystack's ToolInvocationError quotes all arguments, even bound ones, and pydantic's errors quote values, so their
    texts are replaced. Other errors are returned unchanged.
    """
    inner: BaseException = error
    quotes_arguments = False
    while isinstance(inner, PipelineRuntimeError | ToolInvocationError) and inner.__cause__ is not None:
        quotes_arguments = quotes_arguments or isinstance(inner, ToolInvocationError)
        inner = inner.__cause__
    if isinstance(inner, ToolInvocationError):
        return RuntimeError(f"Tool '{inner.tool_name}' could not be invoked")
    if isinstance(inner, ValidationError):
        # FastMCP would take a ValidationError for one of the call's arguments.
        return ValueError("; ".join(reasons_of(inner)))
    return inner if quotes_arguments or isinstance(inner, ToolError) else error


def _with_valid_text(error: BaseException) -> BaseException:
    """Repair the text of an error. Over stdio, writing half of a surrogate pair would end the server."""
    text = well_formed(str(error))
    if text == str(error):
        return error
    repaired = ToolError(text, log_level=error.log_level) if isinstance(error, ToolError) else RuntimeError(text)
    repaired.__cause__ = error
    return repaired


def _listable_schema(tool_name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of type 'object' that can be written as JSON. A single other schema would break the listing."""
    try:
        # Members of an Enum are written as clients send them.
        parameters = to_jsonable_python(parameters, inf_nan_mode="constants", bytes_mode="base64", fallback=str)
        to_json(parameters)
    except ValueError as error:
        msg = f"The parameters of tool '{tool_name}' cannot be written as JSON: {error}"
        raise ValueError(msg) from error
    kinds = parameters.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        msg = f"The parameters of tool '{tool_name}' must be of type 'object', as arguments have names, not {kinds!r}"
        raise ValueError(msg)
    return {**parameters, "type": "object"}


def _bind_per_call(bound: Mapping[str, Any]) -> Bound:
    """
    Prepare bound values, so that dependencies among them are resolved for each call.

    FastMCP resolves only dependencies that are parameters of a function.
    """
    dependencies = {name: each for name, each in bound.items() if isinstance(each, Dependency)}
    if not dependencies:
        values = dict(bound)
        return lambda: nullcontext(values)

    def function(**_resolved: Any) -> None:
        """Never called."""

    # Names of inputs, such as `retriever.filters`, may not be valid as names of parameters.
    names = {
        name if name.isidentifier() and not iskeyword(name) else f"_dependency_{number}": name
        for number, name in enumerate(dependencies)
    }
    set_signature(function, (), {parameter: dependencies[name] for parameter, name in names.items()})

    @asynccontextmanager
    async def for_call() -> AsyncIterator[dict[str, Any]]:
        async with resolve_dependencies(function, {}) as resolved:
            yield {**bound, **{names[parameter]: value for parameter, value in resolved.items()}}

    return for_call


def set_signature(function: Any, names: tuple[str, ...], dependencies: Mapping[str, Any]) -> None:
    """
    Set the signature of a function.

    :param function: The function.
    :param names: Its positional parameters.
    :param dependencies: Its other parameters, with their defaults.
    """
    positional = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each) for name, each in dependencies.items()
    ]
    function.__signature__ = inspect.Signature([*positional, *keywords])


# Reads of resources and prompts


class UnknownNameError(FastMCPError, NotFoundError):
    """
    Raised when a client names something that does not exist. FastMCP answers it like any other unknown name.
    """

    def __init__(self, message: str) -> None:
        """
        Initialize the UnknownNameError.

        :param message: The message for the log.
        """
        super().__init__(message, log_level=python_logging.DEBUG)  # FastMCP logs it with a traceback


def invalid_request(message: str) -> InvalidRequestError:
    """
    Make the error for an argument of a client that cannot be used. The client sees the message.

    :param message: What is wrong with it, without the argument itself.
    :returns: The error.
    """
    return InvalidRequestError(message, log_level=python_logging.DEBUG)  # FastMCP logs it with a traceback


class ReadRunner:
    """
    Runs the reads of one served thing, in threads and within the limits of its options.
    """

    def __init__(self, subject: str, options: ServeOptions, pool: CallPool) -> None:
        """
        Initialize the ReadRunner.

        :param subject: What is read, for messages.
        :param options: Its options.
        :param pool: The pool, unless the options have a separate limit.
        """
        self._subject = subject
        self._bound = _bind_per_call(options.bound)
        self._timeout = options.timeout
        self._pool = pool.limited_by(options)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """
        Run a function in a thread.

        :param function: A blocking function, or one that returns an awaitable, which is awaited in the event loop.
        :param args: Its arguments.
        :returns: Its result.
        :raises UnansweredError: If it takes too long, or the server is busy.
        """
        return await self._run(nullcontext({}), lambda _bound: function(*args))

    async def run_bound(self, function: Callable[[dict[str, Any]], T]) -> T:
        """
        Run a blocking function in a thread, with the bound values.

        :param function: The function, which gets the bound values by name.
        :returns: Its result.
        :raises UnansweredError: If it takes too long, or the server is busy.
        """
        return await self._run(self._bound(), function)

    async def _run(
        self, binding: AbstractAsyncContextManager[dict[str, Any]], function: Callable[[dict[str, Any]], T]
    ) -> T:
        limit = asyncio.timeout(self._timeout)  # not a scope of anyio, as in `ServedTool.run`
        try:
            async with limit, binding as bound, ServedCall(self._pool) as call:
                result: Any = await call.in_thread(function, bound)
                return await result if inspect.isawaitable(result) else result  # type: ignore[no-any-return]
        except TimeoutError:
            if not limit.expired():
                raise
        msg = f"{self._subject} took longer than {self._timeout} s"
        raise UnansweredError(msg)


@contextmanager
def errors_named(kind: str, name: str) -> Iterator[None]:
    """
    Name the pipeline or Agent in errors within the block.

    :param kind: "pipeline" or "agent".
    :param name: Its name.
    :returns: A context manager.
    """
    try:
        yield
    except ValueError as error:
        msg = f"The {kind} '{name}' cannot be served. {error}"
        raise ValueError(msg) from error
