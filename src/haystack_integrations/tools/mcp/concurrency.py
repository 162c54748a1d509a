# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

# How many tools, and how many resources or prompts, all pages of a listing may have together.
MAX_TOOLS: Final = 10_000
MAX_ITEMS: Final = 50_000


def start_in_thread(function: Callable[..., T], *args: Any, name: str = "mcp-haystack-worker") -> asyncio.Future[T]:
    """
    Call a function in a daemon thread of its own, with the caller's context variables.

    Unlike those of the event loop's executor, it does not hold up the end of the interpreter, and it cannot be taken by
    somebody who waits for this function.

    :param function: The function.
    :param args: Its arguments.
    :param name: Name of the thread.
    :returns: Its result. What is no `Exception`, or no future takes, is a RuntimeError.
    :raises RuntimeError: If no thread can be started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(settled: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            settled(value)

    def run() -> None:
        outcome: tuple[Callable[[Any], None], Any]
        try:
            outcome = (done.set_result, context.run(function, *args))
        except BaseException as error:  # e.g. SystemExit, which is not to end the loop
            can_be_set = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome = (done.set_exception, error if can_be_set else RuntimeError(f"it raised {type(error).__name__}"))
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            pass  # the loop was closed; nobody waits
        finally:
            del outcome  # it holds an error whose traceback holds this frame

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


async def gather_bounded(functions: Iterable[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """
    Run asynchronous functions concurrently, not more than a number of them at a time.

    If one fails, or the caller is cancelled, those that have not ended are cancelled and waited for.

    :param functions: The functions.
    :param limit: How many may run at a time.
    :returns: Their results, in their order.
    """
    semaphore = asyncio.Semaphore(limit)

    async def run(function: Callable[[], Awaitable[T]]) -> T:
        async with semaphore:
            return await function()

    tasks = [asyncio.create_task(run(function)) for function in functions]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def check_max_concurrency(value: object) -> int:
    """
    Check how many calls or readings may be under way at a time.

    :param value: The number.
    :returns: The number.
    :raises ValueError: If it is not a positive integer.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"`max_concurrency` must be an integer of at least 1, got {value!r}"
        raise ValueError(msg)
    return value
