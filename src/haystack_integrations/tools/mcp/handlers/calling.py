# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls the user's functions from the event loop that holds all sessions, and delivers reports of progress to them.

The functions never run in that loop. Functions in `MCPHandlers` run as `call` describes. A function for the progress of
one call runs in its caller's thread or event loop. It receives all reports of the call, in order, before the call
returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from haystack import logging

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.executor import caller_loop, caller_of_operation
from haystack_integrations.tools.mcp.parameters import short_repr

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# Bounds the queue of a slow function, so that it does not fill the memory.
_MAX_QUEUED = 10_000


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """
    Call a function of the user: await an async function, and run a sync function in its own daemon thread.

    An async function runs in the caller's event loop if that is running, so that it can use objects bound to that loop.
    There is no thread pool, because it could run dry if functions wait for calls that wait for functions. If the caller
    is cancelled, an async function is cancelled with it; a thread keeps running.

    :param function: The function.
    :param args: Its arguments.
    :returns: Its result.
    """
    if is_asynchronous(function):
        return await _in_loop_of_caller(function(*args))
    result = await start_in_thread(function, *args, name="mcp-haystack-handler")
    return await _in_loop_of_caller(result) if inspect.isawaitable(result) else result


async def _in_loop_of_caller(awaitable: Awaitable[Any]) -> Any:
    loop, running = caller_loop(), awaitable
    if loop is not None and loop is not asyncio.get_running_loop():

        async def awaited() -> Any:
            return await awaitable

        running = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(awaited(), loop))
    try:
        return await running
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # A CancelledError would end this task, and with it operations that others wait for.
        msg = "it was cancelled in its event loop"
        raise RuntimeError(msg) from None


def is_asynchronous(function: object) -> bool:
    """
    Return whether a function has to be awaited.

    :param function: A function or another callable.
    :returns: True if it is asynchronous.
    """
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class DeliveryQueue:
    """
    Delivers items one at a time, without blocking the code that puts them.
    """

    def __init__(
        self,
        deliver: Callable[[Any], Awaitable[None]],
        context: contextvars.Context | None = None,
    ) -> None:
        """
        Initialize the DeliveryQueue.

        :param deliver: Takes one item; it must not raise.
        :param context: The context in which `deliver` runs, and whose caller all items belong to. By default an empty
            one, because the delivery may outlive the calls on whose behalf items are put.
        """
        self._deliver = deliver
        self._context = context
        self._queue: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, item: Any) -> None:
        """
        Deliver an item after the waiting ones. Call this in the loop.

        :param item: The item.
        """
        if len(self._queue) >= _MAX_QUEUED:
            self._queue.popleft()
            logger.warning("A function is too slow for what a server sends; the oldest message was dropped")
        context = contextvars.copy_context() if self._context is None else self._context
        self._queue.append((item, context.get(caller_of_operation)))
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), context=self._context or contextvars.Context())

    async def delivered(self, timeout: float | None) -> bool:
        """
        Wait until all items are delivered.

        :param timeout: How long to wait, in seconds; None for no limit.
        :returns: Whether all items are delivered.
        """
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout)
        return self._task is None

    def cancel(self) -> None:
        """
        Stop the delivery that is under way.
        """
        if self._task is not None:
            self._task.cancel()

    async def _drain(self) -> None:
        try:
            while self._queue:
                item, caller = self._queue.popleft()
                caller_of_operation.set(caller)  # the context is used for these items only
                await self._deliver(item)
        finally:
            self._task = None


@short_repr
@dataclass(frozen=True, slots=True, kw_only=True)
class MCPProgress:
    """
    A server's report on the progress of a call while its tool is running.

    :param server: Description of the server, without secrets.
    :param tool_name: The server's name of the tool.
    :param progress: The progress so far; it increases with each report.
    :param total: The progress at the end, if the server knows it.
    :param message: The server's message about the progress, if any.
    """

    server: str
    tool_name: str
    progress: float
    total: float | None = None
    message: str | None = None


ProgressCallback: TypeAlias = Callable[[MCPProgress], Awaitable[None] | None]


class _Reports:
    """
    Delivers the reports of one call to one function.

    If the function raises, the call continues, because its tool may have done its work. The exception is logged, and
    the function receives no further reports of this call.
    """

    def __init__(self, callback: ProgressCallback) -> None:
        self._callback = callback
        self._has_failed = False

    async def _deliver(self, report: MCPProgress) -> None:
        if self._has_failed:
            return
        try:
            await self._call(report)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._fail(error, report)
        except Exception as error:
            self._fail(error, report)

    async def _call(self, report: MCPProgress) -> None:
        result = self._callback(report)
        if inspect.isawaitable(result):
            await result

    def _fail(self, error: BaseException, report: MCPProgress) -> None:
        self._has_failed = True
        logger.error(
            "A function for progress raised {error}, so it gets no more reports of this call of tool '{tool}' of "
            "{server}. The call continues",
            error=type(error).__name__,
            tool=report.tool_name,
            server=report.server,
            exc_info=error,
        )


class HandlerReports(_Reports):
    """
    Reports for the function in `MCPHandlers`, which runs like other handlers. Used in the executor's loop.
    """

    def __init__(self, callback: ProgressCallback) -> None:
        """
        Initialize the HandlerReports.

        :param callback: The function.
        """
        super().__init__(callback)
        in_order = DeliveryQueue(self._deliver, context=contextvars.copy_context())
        self.add: Callable[[MCPProgress], None] = in_order.put
        self.delivered: Callable[[float | None], Awaitable[bool]] = in_order.delivered

    async def _call(self, report: MCPProgress) -> None:
        await call(self._callback, report)


class LoopReports(_Reports):
    """
    Reports for a function that runs in the event loop of the caller.
    """

    def __init__(self, callback: ProgressCallback) -> None:
        """
        Initialize the LoopReports. Call this in the caller's loop.

        :param callback: The function, asynchronous or not.
        """
        super().__init__(callback)
        self._loop = asyncio.get_running_loop()
        self._in_order = DeliveryQueue(self._deliver, context=contextvars.copy_context())

    def add(self, report: MCPProgress) -> None:
        """
        Call the function with a report, after the waiting ones. Thread-safe.

        :param report: The report.
        """
        try:
            self._loop.call_soon_threadsafe(self._in_order.put, report)
        except RuntimeError:
            pass  # the caller's loop was closed, which ended the call

    async def wait(self, operation: Coroutine[Any, Any, T]) -> T:
        """
        Await an operation, and call the function meanwhile.

        :param operation: The operation.
        :returns: Its result.
        """
        try:
            try:
                result = await operation
            except Exception:
                await self._in_order.delivered(None)
                raise
            await self._in_order.delivered(None)
            return result
        finally:
            self._in_order.cancel()  # does nothing if everything is delivered


class ThreadReports(_Reports, queue.SimpleQueue["MCPProgress | None"]):
    """
    Reports for a function that the calling thread runs while it waits for the call. It cannot be asynchronous.
    """

    def get(self, block: bool = True, timeout: float | None = None) -> None:
        """
        Wait for the None that the executor puts at the end of the call, and call the function meanwhile.

        :param block: Whether to wait.
        :param timeout: How long to wait, in seconds; None for no limit.
        :raises queue.Empty: If the timeout expires.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            report = super().get(block, left)
            if report is None:
                return
            if self._has_failed:
                continue
            try:
                result = self._callback(report)
            except Exception as error:
                self._fail(error, report)
                continue
            if inspect.iscoroutine(result):
                result.close()
                self._fail(TypeError("an asynchronous function needs an asynchronous call"), report)
