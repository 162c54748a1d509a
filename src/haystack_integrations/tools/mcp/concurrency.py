# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Threads and tasks: dedicated threads, shared tasks, methods with an asynchronous twin, locks and background imports.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")


# Threads and tasks


def start_in_thread(function: Callable[..., T], *args: Any, name: str = "mcp-haystack-worker") -> asyncio.Future[T]:
    """
    Call a function in its own daemon thread, with the caller's context variables.

    Unlike a thread of the event loop's default executor, this thread does not delay the interpreter's exit, and other
    functions that wait for this one cannot occupy it.

    :param function: The function.
    :param args: Its arguments.
    :param name: Name of the thread.
    :returns: A future with the result. A BaseException, or an exception that futures refuse, becomes a RuntimeError.
    :raises RuntimeError: If no thread can be started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(setter: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            setter(value)

    def run() -> None:
        outcome: tuple[Callable[[Any], None], Any]
        try:
            outcome = (done.set_result, context.run(function, *args))
        except BaseException as error:  # e.g. SystemExit, which must not end the loop
            can_be_set = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome = (done.set_exception, error if can_be_set else RuntimeError(f"it raised {type(error).__name__}"))
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            pass  # the loop was closed, so nothing waits for the result
        finally:
            del outcome  # breaks a cycle: the error's traceback refers to this frame

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """
    Retrieve the error of a task, which asyncio would log if nothing awaits the task any more.

    :param task: A finished task.
    """
    if not task.cancelled():
        task.exception()


class SharedTask(Generic[T]):
    """
    A task that several callers await, each with its own timeout. It is cancelled when the last caller gives up.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> None:
        """
        Start the task, in the running loop.

        :param coroutine: The coroutine to run.
        :param context: Its context; by default a copy of the caller's.
        """
        # None once all callers have left, because its error refers to the frames of all of them.
        self._task: asyncio.Task[T] | None = asyncio.create_task(coroutine, context=context)
        self._task.add_done_callback(retrieve_error)
        self.loop: asyncio.AbstractEventLoop = self._task.get_loop()
        self._waiters = 0
        self._must_finish = False

    @property
    def is_under_way(self) -> bool:
        """
        Whether it is not finished yet, so that it may be awaited.
        """
        task = self._task
        return task is not None and not task.done()

    def cancel(self) -> None:
        """
        Cancel the task for all callers.
        """
        if self._task is not None:
            self._task.cancel()

    def set_must_finish(self, must_finish: bool) -> None:
        """
        Set whether the task continues although no caller awaits it any more.

        :param must_finish: Whether it continues.
        """
        self._must_finish = must_finish
        self._end_if_unwanted()

    def _end_if_unwanted(self) -> None:
        if self._task is not None and not self._waiters and not self._must_finish:
            self._task.cancel()  # does nothing if the task is finished
            self._task = None

    async def ended(self) -> None:
        """
        Wait for the end of the task, without keeping it alive.
        """
        if self._task is not None:
            await asyncio.wait({self._task})

    async def result(self) -> T:
        """
        Await the task, which must be under way.

        :returns: Its result.
        :raises asyncio.CancelledError: If the task or the caller was cancelled.
        """
        task = self._task
        if task is None:
            raise AssertionError  # callers must check `is_under_way` first
        self._waiters += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiters -= 1
            self._end_if_unwanted()


async def gather_bounded(functions: Iterable[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """
    Run asynchronous functions concurrently, at most `limit` at a time.

    If one fails, or the caller is cancelled, the unfinished functions are cancelled and awaited.

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


# Methods with an asynchronous twin. A coroutine that gets its `Call` can run with and without an event loop.

# Calls a method of an object: `call_here` or `call_async`.
Call: TypeAlias = Callable[..., Awaitable[Any]]


async def call_here(thing: Any, method: str, *args: Any, **options: Any) -> Any:
    """
    Call a method in this thread.

    :param thing: The object.
    :param method: The name of the method.
    :param args: Its arguments.
    :param options: Its arguments by name.
    :returns: Its result.
    """
    return getattr(thing, method)(*args, **options)


async def call_async(thing: Any, method: str, *args: Any, **options: Any) -> Any:
    """
    Call a method without blocking the event loop: the method `..._async` if there is one, otherwise in a thread.

    :param thing: The object.
    :param method: The name of the synchronous method.
    :param args: Its arguments.
    :param options: Its arguments by name.
    :returns: Its result.
    """
    native = getattr(thing, f"{method}_async", None)
    if native is not None:
        return await native(*args, **options)
    return await asyncio.to_thread(getattr(thing, method), *args, **options)


async def call_if_there(thing: Any, method: str) -> None:
    """
    Call a method like `call_async` if the object has it: not everything of Haystack 2 and 3 can be warmed up or closed.

    :param thing: The object.
    :param method: The name of the synchronous method.
    """
    if hasattr(thing, method) or hasattr(thing, f"{method}_async"):
        await call_async(thing, method)


def run_here(steps: Coroutine[Any, Any, T]) -> T:
    """
    Run a coroutine that calls all methods with `call_here`, so that it needs no event loop.

    :param steps: The coroutine.
    :returns: Its result.
    :raises TypeError: If it waits for an asynchronous function of the user.
    """
    try:
        steps.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    steps.close()
    msg = "An asynchronous function cannot be awaited without an event loop. Pass a synchronous one, or use `run_async`"
    raise TypeError(msg)


# Locks


def lock_of_each_process() -> Callable[[], threading.Lock]:
    """
    Make a lock that is free in a forked child even if a thread of the parent holds it.

    :returns: A function that returns the lock of the current process.
    """
    locks: dict[int, threading.Lock] = {}
    return lambda: locks.setdefault(os.getpid(), threading.Lock())


# Imports in the background

# How long to wait for an import, in seconds. An import hangs if it needs a module that is being imported by a thread
# which waits for this import.
_IMPORT_TIMEOUT = 60.0

_import_lock = lock_of_each_process()
_one_import_at_a_time = lock_of_each_process()
# Threads by the modules that they import.
_import_threads: dict[tuple[str, ...], threading.Thread] = {}


def _import(modules: tuple[str, ...]) -> None:
    # Circular imports, as in the SDK, may show two importing threads half-imported modules.
    with _one_import_at_a_time(), suppress(ImportError):  # the code that needs the module repeats the import and fails
        for module in modules:
            importlib.import_module(module)


def begin_import(*modules: str) -> threading.Thread:
    """
    Start to import modules in a thread, and return at once. A fork waits until the import ends.

    :param modules: Names of the modules.
    :returns: The thread; the same one for the same modules.
    :raises RuntimeError: If no thread can be started.
    """
    with _import_lock():
        if modules not in _import_threads:
            # A daemon thread, so that the program can exit meanwhile.
            thread = threading.Thread(target=_import, args=(modules,), name="mcp-haystack-preload", daemon=True)
            thread.start()
            _import_threads[modules] = thread
        return _import_threads[modules]


async def import_in_thread(*modules: str) -> None:
    """
    Import modules in a thread, and wait for it without blocking the event loop.

    :param modules: Names of the modules. Errors are not raised here, but where a module is used.
    :raises TimeoutError: If the import takes so long that it may never end.
    """
    thread = begin_import(*modules)
    if thread.is_alive():
        await start_in_thread(thread.join, _IMPORT_TIMEOUT)
        if thread.is_alive():
            msg = (
                f"importing the MCP SDK has taken more than {_IMPORT_TIMEOUT:g} s. Does another thread import it and "
                "wait for this? Connect after the program has imported its modules, or import `mcp` first"
            )
            raise TimeoutError(msg)


def _before_fork() -> None:
    # Otherwise the child would inherit half-imported modules, and import locks that are never released.
    for thread in [*_import_threads.values()]:
        if thread is not threading.current_thread():
            thread.join(_IMPORT_TIMEOUT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
