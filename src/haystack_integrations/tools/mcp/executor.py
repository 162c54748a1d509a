# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import ctypes
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from haystack import logging

logger = logging.getLogger(__name__)

T = TypeVar("T")

THREAD_NAME = "mcp-haystack-executor"

# How long closing the sessions may take at interpreter exit, in seconds.
_EXIT_TIMEOUT = 10.0


def _new_event_loop() -> asyncio.AbstractEventLoop:
    # uvloop makes a call some 10 % faster; it comes with the extra `fast` and does not exist on Windows.
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class OperationCancelledError(RuntimeError):
    """
    Raised when an operation was cancelled in the executor, and not by the one who waits for it.
    """

    def __init__(self, *, by_shutdown: bool) -> None:
        """
        Initialize the OperationCancelledError.

        :param by_shutdown: Whether the executor was shut down, which cancels all that runs in it.
        """
        reason = " because the AsyncExecutor was shut down" if by_shutdown else ""
        super().__init__(f"The operation was cancelled{reason}.")


class AsyncExecutor:
    """
    Thread-safe event loop executor for running async code from sync contexts.

    Every MCP session of the process lives in the one loop of the singleton, in a daemon thread of its own: a session
    belongs to the loop that opened it, while its users come from any thread and any loop. The context variables of the
    caller are visible to the coroutine.

    A forked child process finds no executor and gets a fresh one from `get_instance`, as does everybody after
    `shutdown`.

    ### Usage example

    ```python
    import asyncio
    from haystack_integrations.tools.mcp import AsyncExecutor

    executor = AsyncExecutor.get_instance()
    assert executor.run(asyncio.sleep(0.01, result="done"), timeout=5) == "done"
    ```
    """

    # Awaited in the loop, one after the other, before a shutdown cancels what still runs in it.
    before_shutdown: ClassVar[list[Callable[[], Coroutine[Any, Any, None]]]] = []

    # The loop that is being shut down: what were opened in it now, nobody would close.
    ending_loop: ClassVar[asyncio.AbstractEventLoop | None] = None

    _singleton: ClassVar[AsyncExecutor | None] = None
    _singleton_lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def get_instance(cls) -> AsyncExecutor:
        """
        Get or create the global singleton executor instance.

        :returns: The executor of this process, running.
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
        Initialize a dedicated event loop.
        """
        self._closing = False
        # A coroutine is handed over before the loop is told to end, or not at all. A finaliser or a signal handler may
        # strike in the midst of that, in the same thread, and hand over another one.
        self._handing_over = threading.RLock()
        self._loop = _new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), name=THREAD_NAME, daemon=True)
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(started.set)
        try:
            while not self._closing:
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    # Raised in a task, by a server in this process, say, it ends a loop. This one is everybody's.
                    logger.warning("{error} was raised in the AsyncExecutor and ignored", error=type(error).__name__)
        finally:
            with self._handing_over:
                self._closing = True
                asyncio.set_event_loop(None)
                self._loop.close()

    def in_loop_thread(self) -> bool:
        """
        Tell whether the caller runs in the executor's own thread, where waiting for the executor would deadlock.

        :returns: True in the executor's thread.
        """
        return threading.current_thread() is self._thread

    def _submit(self, coro: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if not self._closing:
            with self._handing_over:
                if not self._closing:
                    return asyncio.run_coroutine_threadsafe(coro, self._loop)
        coro.close()
        msg = "This AsyncExecutor was shut down. AsyncExecutor.get_instance() returns a running one."
        raise RuntimeError(msg)

    def run(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """
        Run a coroutine in the event loop and wait for its result.

        :param coro: Coroutine to execute.
        :param timeout: Optional timeout in seconds; when it is over the coroutine is cancelled.
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
        future = self._submit(coro)
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise OperationCancelledError(by_shutdown=self._closing) from None
        except TimeoutError:
            if future.done():  # the coroutine's own TimeoutError, or a result that came in the very last moment
                return future.result()
            future.cancel()
            msg = f"Operation timed out after {timeout} seconds"
            raise TimeoutError(msg) from None
        except BaseException:
            # KeyboardInterrupt and the like: nobody waits any more. On a finished future it does nothing.
            future.cancel()
            raise

    async def run_async(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """
        Run a coroutine in the executor's event loop and await its result in the caller's, whichever that is.

        Cancelling the caller cancels the coroutine.

        :param coro: Coroutine to execute.
        :param timeout: Optional timeout in seconds; when it is over the coroutine is cancelled.
        :returns: Result of the coroutine.
        :raises TimeoutError: If execution exceeds timeout.
        :raises RuntimeError: After `shutdown`.
        """
        if self.in_loop_thread():
            async with asyncio.timeout(timeout):
                return await coro
        future = self._submit(coro)
        waiter = asyncio.wrap_future(future)
        timed_out: list[bool] = []
        timer = None
        if timeout is not None:
            # A timer is all it takes, and this is on the path of every call: asyncio.timeout() costs 10 µs more.
            timer = waiter.get_loop().call_later(timeout, lambda: timed_out.append(waiter.cancel()))
        try:
            return await waiter
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            if any(timed_out):
                msg = f"Operation timed out after {timeout} seconds"
                raise TimeoutError(msg) from None
            # It was not the caller who was cancelled; a bare CancelledError would end the caller's whole run.
            raise OperationCancelledError(by_shutdown=self._closing) from None
        finally:
            if timer is not None:
                timer.cancel()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """
        Get the event loop.

        :returns: The event loop.
        """
        return self._loop

    def run_background(
        self,
        coro_factory: Callable[[asyncio.Event], Coroutine[Any, Any, Any]],
        timeout: float | None = None,  # noqa: ARG002
    ) -> tuple[concurrent.futures.Future[Any], asyncio.Event]:
        """
        Schedule `coro_factory` to run in the executor's event loop without blocking the caller thread.

        The factory receives an :class:`asyncio.Event` that can be used to cooperatively shut the coroutine down. The
        method returns both the concurrent future (to observe completion or failure) and the created `stop_event` so
        that callers can signal termination: `executor.get_loop().call_soon_threadsafe(stop_event.set)`.

        :param coro_factory: A callable receiving the stop_event and returning the coroutine to execute. It is called
            in the executor's loop.
        :param timeout: Kept for compatibility: the stop_event exists at once, so that there is nothing to wait for.
        :returns: Tuple `(future, stop_event)`.
        """
        stop_event = asyncio.Event()

        async def background() -> Any:
            return await coro_factory(stop_event)

        return self._submit(background()), stop_event

    def post(self, callback: Callable[[], Any]) -> bool:
        """
        Have a callback called soon in the executor's thread, without waiting.

        It takes no lock of this package, so that finalisers may call it wherever garbage collection strikes.

        :param callback: What to call.
        :returns: False if the executor was shut down, so that the callback will not be called.
        """
        if self._closing:
            return False
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop was closed in between
            return False
        return True

    def shutdown(self, timeout: float = 2) -> None:
        """
        Shut down the background event loop and thread.

        What still runs is cancelled and has `timeout` seconds to clean up. Safe to call repeatedly.

        :param timeout: Timeout in seconds for shutting down the event loop.
        :raises RuntimeError: If called from the executor's own thread.
        """
        if self.in_loop_thread():
            msg = "AsyncExecutor.shutdown() must be called from another thread than the executor's own."
            raise RuntimeError(msg)
        self._shut_down(timeout, timeout)

    def _shut_down(self, hooks_timeout: float, timeout: float) -> None:
        if not self._closing:  # in a forked child it is set, and nobody would release the lock
            with self._handing_over:
                if not self._closing:
                    self._closing = True
                    asyncio.run_coroutine_threadsafe(self._wind_down(hooks_timeout, timeout), self._loop)
        self._thread.join(hooks_timeout + timeout + 2)

    async def _wind_down(self, hooks_timeout: float, timeout: float) -> None:
        AsyncExecutor.ending_loop = self._loop
        try:
            try:
                async with asyncio.timeout(hooks_timeout):
                    for hook in AsyncExecutor.before_shutdown:
                        await hook()
            except TimeoutError:
                logger.warning("Closing the MCP sessions took longer than {timeout} s", timeout=hooks_timeout)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                _, pending = await asyncio.wait(tasks, timeout=timeout)
                if pending:
                    logger.warning(
                        "{count} tasks did not end within {timeout} s of the executor's shutdown",
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
        # The thread was not forked, so the loop is dead here. It must also never be finalised: its transports would
        # kill the parent's server processes, whose handles they hold.
        executor, cls._singleton = cls._singleton, None
        cls._singleton_lock = threading.Lock()
        if executor is not None:
            executor._closing = True  # whoever holds it is told so, and does not wait for ever
            keep_forever(executor)


def keep_forever(obj: Any) -> None:
    """
    Make an object, and what it refers to, outlive everything, interpreter shutdown included.

    :param obj: The object.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))


atexit.register(AsyncExecutor._shutdown_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=AsyncExecutor._forget_after_fork)
