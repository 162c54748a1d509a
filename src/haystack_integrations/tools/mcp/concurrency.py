# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextvars
import importlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
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


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """
    Retrieve the error of a task, which asyncio would log if nobody waits for the task any more.

    :param task: A task that is done.
    """
    if not task.cancelled():
        task.exception()


# How long anybody waits for an import, in seconds. It hangs if it needs a module that a thread which waits for it is
# importing.
_LONGEST_IMPORT = 60.0

_lock = threading.Lock()
_one_at_a_time = threading.Lock()
# By what they import.
_threads: dict[tuple[str, ...], threading.Thread] = {}


def _import(modules: tuple[str, ...]) -> None:
    # Two threads that import what has circles, as the SDK has, may get modules that are imported by half.
    with _one_at_a_time, suppress(ImportError):  # whoever needs it imports it again, and gets the error
        for module in modules:
            importlib.import_module(module)


def begin_import(*modules: str) -> threading.Thread:
    """
    Begin to import modules in a thread, and return at once. A fork waits for the end.

    :param modules: Their names.
    :returns: The thread, the same one for the same modules.
    :raises RuntimeError: If none can be started.
    """
    with _lock:
        if modules not in _threads:
            # A daemon, so that a program may end meanwhile.
            thread = threading.Thread(target=_import, args=(modules,), name="mcp-haystack-preload", daemon=True)
            thread.start()
            _threads[modules] = thread
        return _threads[modules]


async def imported(*modules: str) -> None:
    """
    Import modules in a thread, and wait for it without blocking the event loop.

    :param modules: Their names. Whoever needs one that cannot be imported gets the error.
    :raises TimeoutError: If it takes so long that it may never end.
    """
    thread = begin_import(*modules)
    if thread.is_alive():
        await start_in_thread(thread.join, _LONGEST_IMPORT)
        if thread.is_alive():
            msg = (
                f"importing the MCP SDK has taken more than {_LONGEST_IMPORT:g} s. Does another thread import it and "
                "wait for this? Connect after the imports of the program, or import `mcp` first"
            )
            raise TimeoutError(msg)


def _before_fork() -> None:
    # The child would have modules that are imported by half, and their locks for ever.
    for thread in [*_threads.values()]:
        if thread is not threading.current_thread():
            thread.join(_LONGEST_IMPORT)


def _replace_locks_after_fork() -> None:
    # Other threads of the parent may have held them.
    global _lock, _one_at_a_time
    _lock, _one_at_a_time = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_replace_locks_after_fork)


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
