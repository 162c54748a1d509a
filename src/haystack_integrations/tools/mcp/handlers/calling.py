# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How functions of the user are called from the event loop that holds all sessions, and how they get progress.

None runs in that loop: functions in `MCPHandlers` run as `call` says, those for the progress of a single call where its
caller is. Each of these gets all reports of a call, in order, before the call returns.
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

# What waits for a slow function is not to fill the memory.
_MOST_WAITING = 10_000


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """
    Call a function of the user: await an async one, and run a sync one in a daemon thread of its own.

    An async one runs in the event loop of the caller if that is running, so that it can use what belongs to that loop.
    A pool of threads could run dry if functions wait for calls that wait for functions. If the caller is cancelled, an
    async function is, too; a thread is left to itself.

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
        # It would end this task, and with it what others wait for.
        msg = "it was cancelled in its event loop"
        raise RuntimeError(msg) from None


def is_asynchronous(function: object) -> bool:
    """
    Return whether a function has to be awaited.

    :param function: A function, or an object that can be called.
    :returns: True if it is asynchronous.
    """
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class InOrder:
    """
    Delivers items one after the other, without holding up whoever has them.
    """

    def __init__(
        self,
        deliver: Callable[[Any], Awaitable[None]],
        context: contextvars.Context | None = None,
    ) -> None:
        """
        Initialize the InOrder.

        :param deliver: Takes one item; it must not raise.
        :param context: Where `deliver` runs, and whose caller the items are for. By default it is an empty one, as it
            may outlive the calls on whose behalf the items are put.
        """
        self._deliver = deliver
        self._context = context
        self._waiting: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, item: Any) -> None:
        """
        Deliver an item after those that wait. To be called in the loop.

        :param item: The item.
        """
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            logger.warning("A function is too slow for what a server sends; the oldest message was dropped")
        context = self._context or contextvars.copy_context()
        self._waiting.append((item, context.get(caller_of_operation)))
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), context=self._context or contextvars.Context())

    async def delivered(self, timeout: float | None) -> bool:
        """
        Wait until there is nothing left to deliver.

        :param timeout: How long, in seconds; None for no limit.
        :returns: Whether there is nothing left.
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
            while self._waiting:
                item, caller = self._waiting.popleft()
                caller_of_operation.set(caller)  # the context is of these items only
                await self._deliver(item)
        finally:
            self._task = None


@short_repr
@dataclass(frozen=True, slots=True, kw_only=True)
class MCPProgress:
    """
    What a server reports of a call while its tool is running.

    :param server: The server, in words and without secrets.
    :param tool_name: Name of the tool at the server.
    :param progress: How far it is; greater with each report.
    :param total: How far it will be at the end, if the server knows.
    :param message: What the server says about it, if it does.
    """

    server: str
    tool_name: str
    progress: float
    total: float | None = None
    message: str | None = None


ProgressCallback: TypeAlias = Callable[[MCPProgress], Awaitable[None] | None]


class _Reports:
    """
    The reports of one call on their way to one function.

    An exception of the function does not end the call, whose tool may have done its work: it is logged, and the
    function gets no more reports of this call.
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
            "A function for progress raised {error}, so it gets no more of this call of tool '{tool}' of {server}. "
            "The call goes on",
            error=type(error).__name__,
            tool=report.tool_name,
            server=report.server,
            exc_info=error,
        )


class HandlerReports(_Reports):
    """
    Reports for the function in `MCPHandlers`, which runs where functions of handlers do. Used in the executor's loop.
    """

    def __init__(self, callback: ProgressCallback) -> None:
        """
        Initialize the HandlerReports.

        :param callback: The function.
        """
        super().__init__(callback)
        in_order = InOrder(self._deliver, context=contextvars.copy_context())
        self.add: Callable[[MCPProgress], None] = in_order.put
        self.delivered: Callable[[float | None], Awaitable[bool]] = in_order.delivered

    async def _call(self, report: MCPProgress) -> None:
        await call(self._callback, report)


class AwaitedReports(_Reports):
    """
    Reports for a function that runs in the event loop of the caller.
    """

    def __init__(self, callback: ProgressCallback) -> None:
        """
        Initialize the AwaitedReports. To be called in the caller's loop.

        :param callback: The function, asynchronous or not.
        """
        super().__init__(callback)
        self._loop = asyncio.get_running_loop()
        self._in_order = InOrder(self._deliver, context=contextvars.copy_context())

    def add(self, report: MCPProgress) -> None:
        """
        Call the function with a report, after those that wait. From any thread.

        :param report: The report.
        """
        try:
            self._loop.call_soon_threadsafe(self._in_order.put, report)
        except RuntimeError:
            pass  # the caller's loop was closed, and with it went the call

    async def wait(self, operation: Coroutine[Any, Any, T]) -> T:
        """
        Await a result, and call the function meanwhile.

        :param operation: What gives the result.
        :returns: The result.
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
            self._in_order.cancel()  # does nothing if all is delivered


class WaitingReports(_Reports, queue.SimpleQueue["MCPProgress | None"]):
    """
    Reports for a function that the calling thread, which cannot await it, runs while it waits for the call.
    """

    def get(self, block: bool = True, timeout: float | None = None) -> None:
        """
        Wait for the None that the executor puts at the end of the call, and call the function meanwhile.

        :param block: Whether to wait.
        :param timeout: How long, in seconds; None for no limit.
        :raises queue.Empty: If the time is over.
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
