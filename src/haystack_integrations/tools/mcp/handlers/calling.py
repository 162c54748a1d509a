# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How functions of the user are called from the event loop that holds all sessions.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.executor import caller_loop, caller_of_operation

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
    loop = caller_loop()
    if loop is None or loop is asyncio.get_running_loop():
        return await awaitable

    async def awaited() -> Any:
        return await awaitable

    coro = awaited()
    try:
        running = asyncio.run_coroutine_threadsafe(coro, loop)
    except RuntimeError:  # it was closed in this moment
        coro.close()
        raise
    try:
        return await asyncio.wrap_future(running)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # It would end this task, and with it what others wait for.
        msg = "it was cancelled in the event loop of its caller"
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
        overflow: Callable[[], None] = lambda: None,
        context: contextvars.Context | None = None,
    ) -> None:
        """
        Initialize the InOrder.

        :param deliver: Takes one item; it must not raise.
        :param overflow: Called when the oldest item is dropped, because the recipient is too slow.
        :param context: Where `deliver` runs, and whose caller the items are for. By default it is an empty one, as it
            may outlive the calls on whose behalf the items are put.
        """
        self._deliver = deliver
        self._overflow = overflow
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
            self._overflow()
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
