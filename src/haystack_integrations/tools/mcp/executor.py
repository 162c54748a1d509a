# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import ctypes
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, ClassVar, TypeAlias, TypeVar

from haystack import logging

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

THREAD_NAME = "mcp-haystack-executor"

# More than an event loop opens.
_LOOP_DESCRIPTORS = 16

# How many iterations of the loop it takes from the end of an operation until its caller is told: its task calls back,
# and what it calls is called in the next one.
_UNTIL_TOLD = 3

# Seconds for closing the sessions at interpreter exit.
_EXIT_TIMEOUT = 10.0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    _check_descriptors()
    # uvloop (the extra `fast`, not available on Windows) makes a call about 10 % faster.
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _check_descriptors() -> None:
    # Where descriptors are scarce, uvloop ends the whole process instead of raising an exception.
    held: list[int] = []
    try:
        while len(held) < _LOOP_DESCRIPTORS:
            held.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for descriptor in held:
            os.close(descriptor)


# Gives the event loop in which somebody awaits an operation; None if that is a thread.
Caller: TypeAlias = Callable[[], asyncio.AbstractEventLoop | None]

# That of the operation which the code is part of, if it is part of one.
caller_of_operation: ContextVar[Caller | None] = ContextVar("haystack_mcp_caller", default=None)


def _no_loop() -> None:
    # A thread may be that of an event loop, which is blocked then.
    return None


def caller_loop() -> asyncio.AbstractEventLoop | None:
    """
    Find the event loop of whoever the running operation is for.

    :returns: The loop, if it is running.
    """
    caller = caller_of_operation.get()
    loop = None if caller is None else caller()
    return loop if loop is not None and loop.is_running() else None


class ExecutorStartError(RuntimeError):
    """
    Raised when this process lacks what an event loop in a thread of its own needs. It may be tried again.
    """

    def __init__(self, error: Exception) -> None:
        """
        Initialize the ExecutorStartError.

        :param error: What could not be had.
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


class _Mailbox:
    """
    Hands callbacks to an event loop from other threads, and wakes it once for all that wait.

    Waking a loop is a system call, at which the thread gives up the GIL; with two busy threads it then waits up to 5 ms
    to get it back. A mailbox must not refer to its loop, because it lives as long as the loop does.
    """

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], object]] = deque()
        # Whether the loop has awoken since it was woken last, so that it will not see what is posted now.
        self._wake_up: list[bool] = [True]

    def post(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        """
        Have a callback called in the loop.

        :param loop: The loop of this mailbox.
        :param callback: The callback; it must not raise.
        :raises RuntimeError: If the loop is closed.
        """
        self._callbacks.append(callback)
        if self._wake_up[0]:
            wake_up = [False]
            try:
                loop.call_soon_threadsafe(self._empty, wake_up)
            except RuntimeError:
                self._callbacks.clear()  # they refer to the loop
                raise
            # Only now: meanwhile a finaliser or a signal handler may post in this thread, and wait for the loop.
            self._wake_up = wake_up

    def _empty(self, wake_up: list[bool]) -> None:
        # First of all: whoever posts from now on wakes the loop again.
        wake_up[0] = True
        try:
            for _ in range(len(self._callbacks)):
                self._callbacks.popleft()()
        except BaseException:  # a KeyboardInterrupt, which may come anywhere
            asyncio.get_running_loop().call_soon(self._empty, wake_up)
            raise


# Those of the callers' loops.
_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = weakref.WeakKeyDictionary()


def _mailbox_of(loop: asyncio.AbstractEventLoop) -> _Mailbox:
    # Only the thread of a loop asks for its mailbox, so no other thread adds it meanwhile.
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        # What waits in the mailbox of a loop that was closed before it awoke refers to the loop.
        for reference in _mailboxes.keyrefs():
            known = reference()
            if known is not None and known.is_closed():
                _mailboxes.pop(known, None)
        mailbox = _mailboxes[loop] = _Mailbox()
    return mailbox


class _Operation(ABC):
    """
    A coroutine on its way through the executor's loop: waiting -> running -> done.

    Few objects for each, and no closures: all that calls in flight leave on the heap makes the garbage collector run.
    """

    __slots__ = ("_context", "_coro", "_executor", "_task")

    def __init__(self, executor: AsyncExecutor, coro: Coroutine[Any, Any, Any]) -> None:
        """
        Initialize the operation.

        :param executor: The executor.
        :param coro: The coroutine.
        """
        self._executor = executor
        self._coro = coro
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """
        Start the coroutine. To be called in the executor's loop.
        """
        self._task = self._executor._loop.create_task(self._coro, context=self._context)
        self._task.add_done_callback(self._done, context=self._context)

    @abstractmethod
    def _done(self, task: asyncio.Task[Any]) -> None:
        """Take note of the end. Called in the executor's loop."""

    def cancel(self) -> None:
        """
        Cancel the coroutine, from any thread. Does nothing if it is done.
        """
        try:
            self._executor._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # the loop was closed, which cancelled it

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _settle(self, future: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
        """
        Give whoever waits what became of the coroutine.
        """
        task = self._task
        if future.done() or task is None:  # nobody waits any more
            return
        if task.cancelled():
            future.set_exception(OperationCancelledError(by_shutdown=self._executor._closing))
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())


class _ForThread(_Operation):
    """
    One that a thread waits for.
    """

    __slots__ = ("future",)

    def __init__(self, executor: AsyncExecutor, coro: Coroutine[Any, Any, Any]) -> None:
        super().__init__(executor, coro)
        self._context.run(caller_of_operation.set, _no_loop)
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def _done(self, task: asyncio.Task[Any]) -> None:  # noqa: ARG002
        self._settle(self.future)


class _ForLoop(_Operation):
    """
    One that is awaited in another event loop.
    """

    __slots__ = ("_loop", "_mailbox", "_timeout", "waiter")

    def __init__(
        self,
        executor: AsyncExecutor,
        coro: Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        timeout: float | None,
    ) -> None:
        super().__init__(executor, coro)
        self._context.run(caller_of_operation.set, weakref.ref(loop))
        self._loop = loop
        self._mailbox = _mailbox_of(loop)
        self._timeout = timeout
        self.waiter: asyncio.Future[Any] = loop.create_future()

    def _done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # for asyncio, it is retrieved now, even if nobody waits for it any more
        # In the next iteration, so that what ends in this one goes along.
        self._executor._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        try:
            self._mailbox.post(self._loop, self._tell)
        except RuntimeError:
            pass  # the caller's loop was closed

    def _tell(self) -> None:
        self._settle(self.waiter)

    def start_timer(self) -> asyncio.TimerHandle | None:
        # Every call comes through here, and asyncio.timeout() costs 10 µs more than a timer.
        if self._timeout is None:
            return None
        return self._loop.call_later(self._timeout, self._time_out, context=self._context)

    def _time_out(self) -> None:
        if not self.waiter.done():
            self.waiter.set_exception(TimeoutError(f"Operation timed out after {self._timeout} seconds"))

    def give_up(self) -> None:
        """
        Cancel the coroutine unless it is done.
        """
        if self._task is None or not self._task.done():
            self.cancel()


def running_loop() -> asyncio.AbstractEventLoop:
    """
    Get the event loop of the caller.

    :returns: The loop.
    :raises RuntimeError: Outside of an asyncio event loop, with what to do instead.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        msg = (
            "It was awaited outside of an asyncio event loop. From trio, or another library, call the synchronous "
            "counterpart in a thread: await trio.to_thread.run_sync(lambda: tool.invoke(...))."
        )
        raise RuntimeError(msg) from None


class AsyncExecutor:
    """
    Thread-safe event loop executor for running async code from sync contexts.

    The singleton's event loop runs in a daemon thread and holds every MCP session of the process: a session belongs to
    the loop that opened it, but its users come from any thread and any loop. A coroutine sees the context variables of
    its caller.

    After a fork, the child process gets a new executor from `get_instance`; so does everybody after `shutdown`.

    ### Usage example

    ```python
    import asyncio
    from haystack_integrations.tools.mcp import AsyncExecutor

    executor = AsyncExecutor.get_instance()
    assert executor.run(asyncio.sleep(0.01, result="done"), timeout=5) == "done"
    ```
    """

    # Awaited in the loop, one after the other, before a shutdown cancels the remaining tasks.
    before_shutdown: ClassVar[list[Callable[[], Coroutine[Any, Any, None]]]] = []

    # The loop that is being shut down. Nothing may be opened in it any more, because nobody would close it.
    ending_loop: ClassVar[asyncio.AbstractEventLoop | None] = None

    _singleton: ClassVar[AsyncExecutor | None] = None
    _singleton_lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def get_instance(cls) -> AsyncExecutor:
        """
        Get or create the global singleton executor instance.

        :returns: The running executor of this process.
        :raises ExecutorStartError: If it cannot be started, e.g. for lack of file descriptors.
        """
        executor = cls._singleton
        if executor is not None and not executor._closing:
            return executor
        with cls._singleton_lock:
            executor = cls._singleton
            if executor is None or executor._closing:
                executor = cls._singleton = cls()
            return executor

    def __init__(self) -> None:
        """
        Start an event loop in a thread of its own.

        :raises ExecutorStartError: If that is not possible, e.g. for lack of file descriptors.
        """
        self._closing = False
        # Held while a coroutine is handed over, so that none reaches a loop that was already told to stop. Reentrant,
        # because a finaliser or a signal handler may run meanwhile in the same thread and hand over another one.
        self._handing_over = threading.RLock()
        self._mailbox = _Mailbox()
        try:
            self._loop = _new_event_loop()
        except OSError as error:
            raise ExecutorStartError(error) from error
        started = threading.Event()
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
        try:
            while not self._closing:
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    # Raised in a task (by an in-process server, for example), it stops the loop, which all sessions
                    # share.
                    logger.warning("{error} was raised in the AsyncExecutor and ignored", error=type(error).__name__)
        finally:
            with self._handing_over:
                self._closing = True
                asyncio.set_event_loop(None)
                self._loop.close()

    def in_loop_thread(self) -> bool:
        """
        Return whether the caller is in the executor's own thread, where waiting for the executor would deadlock.

        :returns: True in the executor's thread.
        """
        return threading.current_thread() is self._thread

    def _submit(self, operation: _Operation) -> None:
        self._hand_over(operation._coro, lambda: self._mailbox.post(self._loop, operation.start))

    def _hand_over(self, coro: Coroutine[Any, Any, Any], submit: Callable[[], T]) -> T:
        if not self._closing:
            with self._handing_over:
                if not self._closing:
                    return submit()
        coro.close()
        msg = "This AsyncExecutor was shut down. AsyncExecutor.get_instance() returns a running one."
        raise RuntimeError(msg)

    def run(
        self,
        coro: Coroutine[Any, Any, T],
        timeout: float | None = None,
        *,
        wait: Callable[[concurrent.futures.Future[T], float | None], T] | None = None,
    ) -> T:
        """
        Run a coroutine in the event loop and wait for its result.

        :param coro: Coroutine to execute.
        :param timeout: Optional timeout in seconds, after which the coroutine is cancelled.
        :param wait: Waits for the result in place of `Future.result`, and may do something meanwhile.
        :returns: Result of the coroutine.
        :raises TimeoutError: If execution exceeds timeout.
        :raises RuntimeError: If called from the executor's own thread, where it would deadlock, or after `shutdown`.
        """
        if self.in_loop_thread():
            coro.close()
            msg = (
                "AsyncExecutor.run() was called from the executor's own event loop, where waiting for the result would "
                "block the loop that has to produce it. Await the asynchronous counterpart instead "
                "(ainvoke, warm_up_async, close_async, or AsyncExecutor.run_async)."
            )
            raise RuntimeError(msg)
        operation = _ForThread(self, coro)
        self._submit(operation)
        future: concurrent.futures.Future[T] = operation.future
        try:
            return future.result(timeout) if wait is None else wait(future, timeout)
        except TimeoutError:
            if future.done():  # the coroutine's own TimeoutError, or a result that arrived just now
                return future.result()
            operation.cancel()
            msg = f"Operation timed out after {timeout} seconds"
            raise TimeoutError(msg) from None
        except BaseException:
            # After e.g. a KeyboardInterrupt nobody waits any more. Cancelling a finished operation has no effect.
            operation.cancel()
            raise
        finally:
            del future, operation  # they hold an error whose traceback holds this frame

    async def run_async(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """
        Run a coroutine in the executor's event loop and await its result in the caller's event loop.

        Cancelling the caller cancels the coroutine.

        :param coro: Coroutine to execute.
        :param timeout: Optional timeout in seconds, after which the coroutine is cancelled.
        :returns: Result of the coroutine.
        :raises TimeoutError: If execution exceeds timeout.
        :raises RuntimeError: After `shutdown`, or outside of an asyncio event loop. The coroutine did not start.
        """
        try:
            loop = running_loop()
        except RuntimeError:
            coro.close()
            raise
        if self.in_loop_thread():
            # In a task of its own: what counts, times and cancels operations knows them by their tasks, and a tool of
            # an in-process server, which may call another one, runs in the task of its caller.
            async with asyncio.timeout(timeout):
                return await asyncio.create_task(coro)
        operation = _ForLoop(self, coro, loop, timeout)
        self._submit(operation)
        timer = operation.start_timer()
        try:
            result: T = await operation.waiter
            return result
        finally:
            if timer is not None:
                timer.cancel()
            operation.give_up()
            del operation, timer  # they hold an error whose traceback holds this frame

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
        return self._hand_over(coro, lambda: asyncio.run_coroutine_threadsafe(coro, self._loop)), stop_event

    def post(self, callback: Callable[[], Any]) -> bool:
        """
        Schedule a callback in the executor's thread and return at once.

        Takes no lock of this package, so that finalisers can call it wherever the garbage collector runs.

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
        # In a forked child `_closing` is set, and the lock may be held by a thread that does not exist there.
        if not self._closing:
            with self._handing_over:
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
            for _ in range(_UNTIL_TOLD):
                await asyncio.sleep(0)
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
        cls._singleton_lock = threading.Lock()
        if executor is not None:
            executor._closing = True  # users get an error instead of waiting forever
            keep_forever(executor)


def keep_forever(obj: Any) -> None:
    """
    Keep an object, and all that it refers to, alive to the end of the process, interpreter shutdown included.

    :param obj: The object.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))


atexit.register(AsyncExecutor._shutdown_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=AsyncExecutor._forget_after_fork)
