# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`AsyncExecutor`: the event loop of all sessions, in its own thread.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import concurrent.futures
import contextvars
import ctypes
import errno
import inspect
import os
import queue
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, TypeAlias, TypeVar

from haystack import logging

from haystack_integrations.tools.mcp.concurrency import lock_of_each_process, retrieve_error, start_in_thread

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

THREAD_NAME = "mcp-haystack-executor"

# The standard stream with the highest descriptor.
_STDERR_DESCRIPTOR = 2

# How many descriptors must be free. This is more than an event loop opens.
_LOOP_DESCRIPTORS = 16

# Seconds for closing the sessions at interpreter exit.
_EXIT_TIMEOUT = 10.0

# Seconds without activity after which an event loop counts as blocked, e.g. by an in-process server that never awaits.
_PULSE_TIMEOUT = 10.0

_SHUT_DOWN = "This AsyncExecutor was shut down. AsyncExecutor.get_instance() returns a running one."


# The event loop

# In bytes: a few times the size of a large message.
_REUSED_MEMORY = 4 * 1024 * 1024


def _new_event_loop() -> asyncio.AbstractEventLoop:
    check_descriptors()
    # glibc keeps freed memory up to twice the size of the largest block freed so far. This block is never touched, but
    # because of it, a message of 1 MB can reuse memory; allocating it anew would take longer than reading the message.
    bytes(_REUSED_MEMORY)
    loop = asyncio.new_event_loop() if _are_threads_greenlets() else _fastest_event_loop()
    loop.getaddrinfo = _getaddrinfo_in_thread  # type: ignore[method-assign]
    return loop


def _are_threads_greenlets() -> bool:
    # gevent and eventlet replace threads by greenlets. A loop of uvloop would never yield to the others.
    return not inspect.isbuiltin(_thread.start_new_thread)


def _fastest_event_loop() -> asyncio.AbstractEventLoop:
    # uvloop (the extra `fast`, not available on Windows) makes a call about 10 % faster.
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _getaddrinfo_in_thread(*args: Any, **options: Any) -> Any:
    # Event loops have as few as four threads for lookups. A name for which no DNS server answers occupies one for about
    # 20 s, and the connections to all other servers would wait.
    try:
        return await start_in_thread(partial(socket.getaddrinfo, *args, **options), name="mcp-haystack-dns")
    except RuntimeError as error:  # no thread can be started; the loop's own method would let uvloop end the process
        raise OSError(errno.EAGAIN, str(error)) from error


def check_descriptors() -> None:
    """
    Check that there are enough descriptors for an event loop, because uvloop ends the whole process otherwise.

    :raises OSError: If there are too few.
    """
    held: list[int] = []
    try:
        while len(held) < _LOOP_DESCRIPTORS:
            held.append(os.open(os.devnull, os.O_RDWR))
    finally:
        for descriptor in held:
            # If a standard stream is closed, as in some daemons, the loop would get its descriptor. uvloop would then
            # end the process on closing it, and servers over stdio would write their logs into it.
            if descriptor > _STDERR_DESCRIPTOR:
                os.close(descriptor)


# Returns the event loop in which an operation is awaited; None if a thread waits for it.
Caller: TypeAlias = Callable[[], asyncio.AbstractEventLoop | None]

# The caller of the operation that the running code belongs to, if any.
caller_of_operation: ContextVar[Caller | None] = ContextVar("haystack_mcp_caller", default=None)


def caller_loop() -> asyncio.AbstractEventLoop | None:
    """
    Return the event loop of the running operation's caller.

    :returns: The loop if it is running, else None.
    """
    caller = caller_of_operation.get()
    loop = None if caller is None else caller()
    return loop if loop is not None and loop.is_running() else None


class ExecutorStartError(RuntimeError):
    """
    Raised when this process lacks the resources for an event loop in its own thread. A later attempt may succeed.
    """

    def __init__(self, error: Exception) -> None:
        """
        Initialize the ExecutorStartError.

        :param error: The underlying error.
        """
        super().__init__(f"the event loop for MCP sessions could not be started: {error}")


class OperationCancelledError(RuntimeError):
    """
    Raised when an operation was cancelled inside the executor and not by its caller.
    """

    def __init__(self, *, by_shutdown: bool) -> None:
        """
        Initialize the OperationCancelledError.

        :param by_shutdown: Whether the cause is a shutdown of the executor, which cancels all its operations.
        """
        reason = " because the AsyncExecutor was shut down" if by_shutdown else ""
        super().__init__(f"The operation was cancelled{reason}.")


_GAVE_UP = "It ended the wait for an MCP server: the request was cancelled, and a tool may have run."


def is_from_caller(error: BaseException) -> bool:
    """
    Return whether an error ended only the wait for an operation.

    It comes from a signal handler, by which Celery and RQ limit the time of a task.

    :param error: The error.
    :returns: False if it is the error of the operation itself.
    """
    return _GAVE_UP in getattr(error, "__notes__", ())


class _Operation:
    """
    A coroutine on its way through the executor's loop.

    .. code-block:: text

        handed over ──start()──> started ──_run()──> running ──> ended, with a result or an error
             │                      └──cancel()───────┴────────> ended, by a cancellation
             └── the loop is closed: abandon() ────────────────> likewise

    Whichever way it ends, the waiter is woken once. Each operation is one object without closures, because the more
    objects calls in flight leave on the heap, the more often the garbage collector runs.
    """

    __slots__ = ("_context", "_error", "_executor", "_has_begun", "_has_ended", "_notify", "_result", "_task", "coro")

    def __init__(
        self, executor: AsyncExecutor, coro: Coroutine[Any, Any, Any], caller: Caller, notify: Callable[[], object]
    ) -> None:
        """
        Initialize the _Operation.

        :param executor: The executor.
        :param coro: The coroutine.
        :param caller: Returns the event loop in which the coroutine's result is awaited.
        :param notify: Wakes the waiter. Called once, in the executor's thread.
        """
        self._executor = executor
        self.coro = coro
        self._context = contextvars.copy_context()
        self._context.run(caller_of_operation.set, caller)
        self._notify = notify
        self._task: asyncio.Task[None] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._has_begun = self._has_ended = False

    def hand_over(self) -> bool:
        """
        Hand the coroutine over to the executor's loop. Thread-safe.

        :returns: False if the executor was shut down. Then the coroutine did not start, and the waiter is not woken.
        """
        executor = self._executor
        executor._operations.add(self)
        try:
            if not executor._closing:
                executor._loop.call_soon_threadsafe(self.start)
                return True
        except RuntimeError:
            if not executor._loop.is_closed():  # of a signal handler
                raise
        executor._operations.discard(self)
        self.coro.close()
        return False

    def start(self) -> None:
        """
        Start the coroutine. Call this in the executor's loop.
        """
        if self not in self._executor._operations:  # cancelled meanwhile
            return
        loop = self._executor._loop
        if sys.version_info >= (3, 12):
            # The first step runs here, not in the next iteration of the loop.
            self._task = asyncio.Task(self._run(), loop=loop, context=self._context, eager_start=True)
        else:
            self._task = loop.create_task(self._run(), context=self._context)

    async def _run(self) -> None:
        # Wake the waiter from here, because a callback of the task would take another iteration of the loop.
        self._has_begun = True
        try:
            self._result = await self.coro
            self._has_ended = True
        except (asyncio.CancelledError, GeneratorExit):  # a coroutine that is destroyed with its loop has no task
            raise
        except BaseException as error:
            self._error, self._has_ended = error, True
            task: Any = asyncio.current_task()
            task.add_done_callback(retrieve_error)
            raise
        finally:
            # As in `abandon`, without a call more for each operation; one that was abandoned has left the set.
            if self in self._executor._operations:
                self._executor._operations.remove(self)
                self._notify()

    def abandon(self) -> None:
        """
        Wake the waiter if no more step of the coroutine will run.
        """
        if not self._has_begun:
            self.coro.close()
        if self in self._executor._operations:
            self._executor._operations.remove(self)
            self._notify()

    def cancel(self) -> None:
        """
        Cancel the coroutine, from any thread.
        """
        if self._executor.in_loop_thread():
            self._cancel()
        else:
            self._executor.post(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if not self._has_begun:  # a task cancelled before its first step never runs `_run`
            self.abandon()

    def outcome(self) -> Any:
        """
        Return the result of the coroutine, or raise its error.
        """
        if not self._has_ended:
            raise OperationCancelledError(by_shutdown=self._executor._closing)
        if self._error is not None:
            error, self._error = self._error, None  # breaks a cycle: the traceback refers to this object
            raise error
        return self._result


def _wake_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _has_pulse(pulse: threading.Event | None) -> bool:
    # True if the executor's loop has answered the last request for a pulse, or there was none yet.
    return pulse is None or pulse.is_set()


def running_loop() -> asyncio.AbstractEventLoop:
    """
    Get the event loop of the caller.

    :returns: The loop.
    :raises RuntimeError: Outside of an asyncio event loop. The message says what to do instead.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        msg = (
            "It was awaited outside of an asyncio event loop. From trio, or another library, call the synchronous "
            "counterpart in a thread: await trio.to_thread.run_sync(lambda: tool.invoke(...))."
        )
        raise RuntimeError(msg) from None


_singleton_lock = lock_of_each_process()


class AsyncExecutor:
    """
    Thread-safe event loop executor for running async code from sync contexts.

    The singleton's event loop runs in a daemon thread and holds every MCP session of the process: a session belongs to
    the loop that opened it, but it can be used from any thread and any loop. A coroutine sees the context variables of
    its caller.

    `get_instance` returns a new executor in the child process after a fork, and after `shutdown`.

    ### Usage example

    ```python
    import asyncio
    from haystack_integrations.tools.mcp import AsyncExecutor

    executor = AsyncExecutor.get_instance()
    assert executor.run(asyncio.sleep(0.01, result="done"), timeout=5) == "done"
    ```
    """

    # Awaited in the loop, one at a time, before a shutdown cancels the remaining tasks.
    before_shutdown: ClassVar[list[Callable[[], Coroutine[Any, Any, None]]]] = []

    # The loop that is being shut down. Nothing may be opened in it any more, because it would never be closed.
    ending_loop: ClassVar[asyncio.AbstractEventLoop | None] = None

    _singleton: ClassVar[AsyncExecutor | None] = None

    @classmethod
    def get_instance(cls) -> AsyncExecutor:
        """
        Get or create the global singleton executor instance.

        :returns: The running executor of this process.
        :raises ExecutorStartError: If it cannot be started, e.g. because there are too few file descriptors.
        """
        executor = cls._singleton
        if executor is not None and not executor._closing:
            return executor
        with _singleton_lock():
            executor = cls._singleton
            if executor is None or executor._closing:
                executor = cls._singleton = cls()
            return executor

    def __init__(self) -> None:
        """
        Start an event loop in its own thread.

        :raises ExecutorStartError: If that is not possible, e.g. because there are too few file descriptors.
        """
        self._closing = False
        # The operations that a caller waits for.
        self._operations: set[_Operation] = set()
        # The waiters whose operations have ended in this iteration, by their loops.
        self._waiters_to_wake: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        try:
            self._loop = _new_event_loop()
        except OSError as error:
            raise ExecutorStartError(error) from error
        started = threading.Event()
        self._thread_id: int | None = None
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name=THREAD_NAME, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._loop.close()
            raise ExecutorStartError(error) from error
        started.wait()

    def _run_loop(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(started.set)
        self._thread_id = threading.get_ident()
        try:
            while not self._closing:
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    # Such an exception in a task (of an in-process server, for example) stops the loop, which all
                    # sessions share.
                    logger.warning("{error} was raised in the AsyncExecutor and ignored", error=type(error).__name__)
        finally:
            self._closing = True
            self._thread_id = None  # a later thread may get the same ID
            asyncio.set_event_loop(None)
            self._loop.close()
            # Nothing can be handed over from now on. Abandon operations that came too late to start or to end.
            for operation in list(self._operations):
                operation.abandon()
            for loop in list(self._waiters_to_wake):
                self._wake(loop)

    def in_loop_thread(self) -> bool:
        """
        Return whether the caller is in the executor's own thread, where waiting for the executor would deadlock.

        :returns: True in the executor's thread.
        """
        return threading.get_ident() == self._thread_id

    def _notify(self, waiter: asyncio.Future[None]) -> None:
        """
        Wake a waiter in another loop, together with the waiters of all operations that end in this iteration.

        Waking a loop is a system call, during which the thread gives up the GIL.
        """
        loop = waiter.get_loop()
        waiters = self._waiters_to_wake.setdefault(loop, [])
        waiters.append(waiter)
        if not self._operations:
            self._wake(loop)  # no other operation can end
        elif len(waiters) == 1:
            with suppress(RuntimeError):  # the executor's loop was closed; `_run_loop` then wakes all waiters
                self._loop.call_soon(self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        waiters = self._waiters_to_wake.pop(loop, None)
        if waiters is not None:
            with suppress(RuntimeError):  # the caller's loop was closed
                loop.call_soon_threadsafe(_wake_all, waiters)

    def run(
        self,
        coro: Coroutine[Any, Any, T],
        timeout: float | None = None,
        *,
        waiter: queue.SimpleQueue[Any] | None = None,
        has_limit: bool = False,
    ) -> T:
        """
        Run a coroutine in the event loop and wait for its result.

        :param coro: Coroutine to execute.
        :param timeout: Optional timeout in seconds, after which the coroutine is cancelled.
        :param waiter: A queue that receives None at the end. The `get` of a subclass may do other work while it waits.
        :param has_limit: Whether the coroutine has its own time limit, so that `timeout` only matters if the loop is
            blocked.
        :returns: Result of the coroutine.
        :raises TimeoutError: If execution exceeds timeout.
        :raises RuntimeError: If called from the executor's own thread, where it would deadlock, or after `shutdown`.
        """
        if threading.get_ident() == self._thread_id:
            coro.close()
            msg = (
                "AsyncExecutor.run() was called from the executor's own event loop, where waiting for the result would "
                "block the loop that has to produce it. Await the asynchronous counterpart instead "
                "(call_async, invoke_async, warm_up_async, or AsyncExecutor.run_async)."
            )
            raise RuntimeError(msg)
        # A SimpleQueue takes a third of the time of a `concurrent.futures.Future`.
        waiter = queue.SimpleQueue() if waiter is None else waiter
        # It has no loop: even if the waiting thread has one, that is blocked.
        operation = _Operation(self, coro, lambda: None, partial(waiter.put, None))
        remaining = None if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
        pulse: threading.Event | None = None
        is_handed_over = has_ended = False
        try:
            is_handed_over = operation.hand_over()
            while is_handed_over and not has_ended:
                try:
                    has_ended = waiter.get(timeout=remaining) is None
                except queue.Empty:
                    if not has_limit or not _has_pulse(pulse):
                        break
                    pulse, remaining = self._request_pulse(), _PULSE_TIMEOUT
        except Exception as error:  # of a signal handler, which may raise it as soon as the coroutine is handed over
            error.add_note(_GAVE_UP)
            raise
        finally:
            if not has_ended:  # the caller stopped waiting, e.g. because of a KeyboardInterrupt
                operation.cancel()
        if not is_handed_over:
            raise RuntimeError(_SHUT_DOWN)
        if not has_ended:
            msg = f"Operation timed out after {timeout} seconds"
            raise TimeoutError(msg)
        result: T = operation.outcome()
        return result

    async def run_async(
        self, coro: Coroutine[Any, Any, T], timeout: float | None = None, *, has_limit: bool = False
    ) -> T:
        """
        Run a coroutine in the executor's event loop and await its result in the caller's event loop.

        Cancelling the caller cancels the coroutine.

        :param coro: Coroutine to execute.
        :param timeout: Optional timeout in seconds, after which the coroutine is cancelled.
        :param has_limit: As in `run`.
        :returns: Result of the coroutine.
        :raises TimeoutError: If execution exceeds timeout.
        :raises RuntimeError: After `shutdown`, or outside of an asyncio event loop. The coroutine did not start.
        """
        try:
            loop = running_loop()
        except RuntimeError:
            coro.close()
            raise
        waiter: asyncio.Future[None] = loop.create_future()
        # If a tool of an in-process server makes a call, the caller of that tool is also the caller of this call.
        caller = caller_of_operation.get() if self.in_loop_thread() else None
        pulse: threading.Event | None = None
        alarm: asyncio.TimerHandle | None = None

        # It receives itself as an argument: a closure over itself would be a cycle for the garbage collector.
        def ring(again: Callable[..., None]) -> None:
            nonlocal alarm, pulse
            if has_limit and _has_pulse(pulse):
                pulse, alarm = self._request_pulse(), loop.call_later(_PULSE_TIMEOUT, again, again)
            elif not waiter.done():
                waiter.set_exception(TimeoutError(f"Operation timed out after {timeout} seconds"))

        # Set the timer before waking the other thread, which then need not wait for the GIL.
        if timeout is not None:
            alarm = loop.call_later(timeout, ring, ring)
        try:
            operation = _Operation(self, coro, caller or weakref.ref(loop), partial(self._notify, waiter))
            try:
                if not operation.hand_over():
                    raise RuntimeError(_SHUT_DOWN)
                await waiter
            except BaseException:
                operation.cancel()
                raise
        finally:
            if alarm is not None:
                alarm.cancel()
        result: T = operation.outcome()
        return result

    def _request_pulse(self) -> threading.Event:
        # The loop sets the event unless it is blocked.
        pulse = threading.Event()
        self.post(pulse.set)
        return pulse

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """
        Get the event loop.

        :returns: The executor's event loop.
        """
        return self._loop

    def run_background(
        self,
        coro_factory: Callable[[asyncio.Event], Coroutine[Any, Any, Any]],
        timeout: float | None = None,  # noqa: ARG002
    ) -> tuple[concurrent.futures.Future[Any], asyncio.Event]:
        """
        Run a coroutine in the executor's event loop without waiting for it.

        To ask the coroutine to stop: `executor.get_loop().call_soon_threadsafe(stop_event.set)`.

        :param coro_factory: Called in the executor's loop with the `stop_event`; returns the coroutine to run.
        :param timeout: Has no effect. Kept for compatibility with 2.1.
        :returns: Tuple `(future, stop_event)`: the future of the coroutine's result, and an :class:`asyncio.Event` that
            the coroutine should watch.
        """
        stop_event = asyncio.Event()

        async def background() -> Any:
            return await coro_factory(stop_event)

        coro = background()
        try:
            if not self._closing:
                return asyncio.run_coroutine_threadsafe(coro, self._loop), stop_event
        except RuntimeError:
            pass  # the loop was closed since the check
        coro.close()
        raise RuntimeError(_SHUT_DOWN)

    def post(self, callback: Callable[[], Any]) -> bool:
        """
        Schedule a callback in the executor's thread and return at once.

        It takes no lock of this package, so finalisers can call it wherever the garbage collector runs.

        :param callback: The callback.
        :returns: False if the executor was shut down and will not call it.
        """
        if self._closing:
            return False
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop was closed since the check
            return False
        return True

    def shutdown(self, timeout: float = 2) -> None:
        """
        Shut down the background event loop and thread.

        Closes the sessions, then cancels the remaining tasks; each of these two steps has `timeout` seconds. Safe to
        call repeatedly.

        :param timeout: Timeout in seconds for each step.
        :raises RuntimeError: If called from the executor's own thread.
        """
        if self.in_loop_thread():
            msg = "AsyncExecutor.shutdown() was called from the executor's own thread. Call it from another thread."
            raise RuntimeError(msg)
        self._shut_down(timeout, timeout)

    def _shut_down(self, hooks_timeout: float, timeout: float) -> None:
        with _singleton_lock():
            if not self._closing:
                self._closing = True
                asyncio.run_coroutine_threadsafe(self._wind_down(hooks_timeout, timeout), self._loop)
        self._thread.join(len(AsyncExecutor.before_shutdown) * hooks_timeout + timeout + 2)

    async def _wind_down(self, hooks_timeout: float, timeout: float) -> None:
        AsyncExecutor.ending_loop = self._loop
        try:
            for hook in AsyncExecutor.before_shutdown:
                try:
                    async with asyncio.timeout(hooks_timeout):
                        await hook()
                except TimeoutError:
                    logger.warning(
                        "Closing MCP sessions and servers took longer than {timeout} s", timeout=hooks_timeout
                    )
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                _, pending = await asyncio.wait(tasks, timeout=timeout)
                if pending:
                    logger.warning(
                        "{count} tasks did not end within {timeout} s of the AsyncExecutor's shutdown",
                        count=len(pending),
                        timeout=timeout,
                    )
            await self._loop.shutdown_asyncgens()
        finally:
            self._loop.stop()

    @classmethod
    def _shutdown_at_exit(cls) -> None:
        executor = cls._singleton
        if executor is not None:
            executor._shut_down(_EXIT_TIMEOUT, 2)

    @classmethod
    def _forget_after_fork(cls) -> None:
        # A fork does not copy the thread, so the loop does not run here. It must also never be finalised: its
        # transports hold handles of the parent's server processes and would kill them.
        executor, cls._singleton = cls._singleton, None
        if executor is not None:
            executor._closing = True  # users get an error instead of waiting forever
            keep_forever(executor)


def keep_forever(obj: Any) -> None:
    """
    Keep an object and everything that it refers to alive until the process ends, even during interpreter shutdown.

    :param obj: The object.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))


atexit.register(AsyncExecutor._shutdown_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=AsyncExecutor._forget_after_fork)
