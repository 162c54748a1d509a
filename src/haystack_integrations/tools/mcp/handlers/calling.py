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
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

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
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await _in_loop_of_caller(function(*args))
    result = await in_thread(function, *args)
    return await _in_loop_of_caller(result) if inspect.isawaitable(result) else result


async def _in_loop_of_caller(awaitable: Awaitable[Any]) -> Any:
    loop = caller_loop()
    if loop is None or loop is asyncio.get_running_loop():
        return await awaitable
    coro = awaited(awaitable)
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


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """
    Make a coroutine of anything that can be awaited.

    :param awaitable: What to await.
    :returns: Its result.
    """
    return await awaitable


async def in_thread(function: Callable[..., Any], *args: Any, name: str = "mcp-haystack-handler") -> Any:
    """
    Call a function in a daemon thread of its own, with the caller's context variables.

    :param function: The function.
    :param args: Its arguments.
    :param name: Name of the thread.
    :returns: Its result.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run(outcome: asyncio.Future[Any]) -> None:
        try:
            set_outcome, value = outcome.set_result, context.run(function, *args)
        except StopIteration:  # a future does not take it
            set_outcome, value = outcome.set_exception, RuntimeError("it raised StopIteration")
        except Exception as error:
            set_outcome, value = outcome.set_exception, error
        except BaseException as error:  # e.g. SystemExit, which is not to end the loop
            set_outcome, value = outcome.set_exception, RuntimeError(f"it raised {type(error).__name__}")
        try:
            loop.call_soon_threadsafe(_settle, outcome, set_outcome, value)
        except RuntimeError:
            pass  # the loop was closed; nobody waits
        finally:
            del outcome, set_outcome, value  # they hold an error whose traceback holds this frame

    try:
        threading.Thread(target=run, args=(outcome,), name=name, daemon=True).start()
        return await outcome
    finally:
        del outcome  # likewise


def _settle(outcome: asyncio.Future[Any], set_outcome: Callable[[Any], None], value: Any) -> None:
    if not outcome.done():
        set_outcome(value)


class InOrder:
    """
    Delivers what comes from a server one after the other, without holding up the server.
    """

    def __init__(self, deliver: Callable[[Any], Awaitable[None]], overflow: Callable[[], None]) -> None:
        """
        Initialize the InOrder.

        :param deliver: Takes one item; it must not raise.
        :param overflow: Called when the oldest item is dropped, because the recipient is too slow.
        """
        self._deliver = deliver
        self._overflow = overflow
        self._waiting: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, item: Any) -> None:
        """
        Deliver an item after those that wait, on behalf of the current caller. To be called in the loop.

        :param item: The item.
        """
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            self._overflow()
        self._waiting.append((item, caller_of_operation.get()))
        if self._task is None:
            # Not in the context of a call: it may outlive the call.
            self._task = asyncio.create_task(self._drain(), context=contextvars.Context())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                item, caller = self._waiting.popleft()
                caller_of_operation.set(caller)  # the context is this task's own
                await self._deliver(item)
        finally:
            self._task = None
