# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The executor: it runs coroutines in its loop from any thread, and ends cleanly.
"""

import _thread
import asyncio
import contextlib
import gc
import socket
import sys
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from haystack_integrations.tools.mcp import AsyncExecutor
from haystack_integrations.tools.mcp.executor import ExecutorStartError, is_from_caller
from tests.support.background import in_new_loop, in_thread, together
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until, wait_until_async

# Seconds; no test waits this long.
LONG = 1000.0


@pytest.fixture
def executor() -> Iterator[AsyncExecutor]:
    """
    An executor that is not the singleton.
    """
    executor = AsyncExecutor()
    yield executor
    executor.shutdown()


def test_names_for_which_no_dns_server_answers_do_not_delay_others(executor, monkeypatch):
    released = threading.Event()

    def look_up(host, *_args, **_options):
        assert host == "quick.test" or released.wait(LIMIT)
        return host

    async def look_up_in_loop(name):
        return await asyncio.get_running_loop().getaddrinfo(name, 80)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    hung = [in_thread(executor.run, look_up_in_loop(f"hung{number}.test")) for number in range(40)]
    assert executor.run(look_up_in_loop("quick.test"), timeout=LIMIT) == "quick.test"
    assert not any(each.done() for each in hung)
    released.set()
    for each in hung:
        each.result(timeout=LIMIT)


def test_a_lookup_for_which_no_thread_can_be_started_fails_and_does_not_use_the_threads_of_the_loop(
    executor, monkeypatch
):
    def no_more(_thread):
        raise RuntimeError("can't start new thread")

    async def look_up():
        monkeypatch.setattr(threading.Thread, "start", no_more)
        await asyncio.get_running_loop().getaddrinfo("localhost", 80)

    with pytest.raises(OSError, match="can't start new thread"):
        executor.run(look_up(), timeout=LIMIT)


class Sleeper:
    """
    Coroutines that report when they run, and when they were cancelled.
    """

    def __init__(self) -> None:
        self.runs = self.was_cancelled = 0

    async def sleep(self) -> None:
        self.runs += 1
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            self.was_cancelled += 1
            raise


async def fail(error: BaseException) -> None:
    raise error


class TestInstance:
    def test_the_executor_is_one_for_all_threads(self):
        futures = together([AsyncExecutor.get_instance] * 16)
        assert {future.result(timeout=LIMIT) for future in futures} == {AsyncExecutor.get_instance()}

    def test_an_executor_that_cannot_start_a_thread_is_an_error_with_the_cause(self, monkeypatch):
        def no_more(_thread):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_more)
            with pytest.raises(ExecutorStartError, match="sessions could not be started: can't start new thread"):
                AsyncExecutor()

    def test_the_executor_uses_uvloop_if_it_is_installed_unless_threads_are_greenlets(self, executor, monkeypatch):
        uvloop = pytest.importorskip("uvloop")
        assert isinstance(executor.get_loop(), uvloop.Loop)
        start = _thread.start_new_thread
        with monkeypatch.context() as patch:
            patch.setattr(_thread, "start_new_thread", partial(start))
            greenlets = AsyncExecutor()
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "uvloop", None)
            without = AsyncExecutor()
        for other in (greenlets, without):
            assert type(other.get_loop()).__module__.startswith("asyncio")
            other.shutdown()


class TestRunAndRunAsync:
    @pytest.fixture(params=["run", "run_async"])
    def run(self, executor, request):
        def run_async(coro, timeout=None, *, has_limit=False):
            return asyncio.run(executor.run_async(coro, timeout=timeout, has_limit=has_limit))

        return executor.run if request.param == "run" else run_async

    def test_run_and_run_async_raise_the_error_of_the_coroutine(self, run):
        with pytest.raises(LookupError, match="no luck"):
            run(fail(LookupError("no luck")))
        with pytest.raises(TimeoutError, match="its own"):
            run(fail(TimeoutError("its own")), timeout=LIMIT)
        # Neither was the executor shut down nor the caller cancelled.
        with pytest.raises(RuntimeError, match=r"^The operation was cancelled\.$"):
            run(fail(asyncio.CancelledError()))

    def test_run_and_run_async_cancel_the_coroutine_at_the_timeout(self, run):
        sleeper = Sleeper()
        with pytest.raises(TimeoutError, match=r"timed out after 0\.5 seconds"):
            run(sleeper.sleep(), timeout=0.5)
        wait_until(lambda: sleeper.was_cancelled, "the end of the coroutine")

    def test_run_and_run_async_wait_longer_for_coroutines_with_their_own_limit_while_the_loop_runs(
        self, run, monkeypatch
    ):
        monkeypatch.setattr("haystack_integrations.tools.mcp.executor._PULSE_TIMEOUT", 2)
        assert run(asyncio.sleep(3, "done"), timeout=0.01, has_limit=True) == "done"


def test_the_error_in_the_executors_own_thread_says_what_to_do_instead_of_blocking(executor):
    async def run_inside() -> str:
        with pytest.raises(RuntimeError, match=r"own event loop.*run_async"):
            executor.run(asyncio.sleep(0))
        with pytest.raises(RuntimeError, match="another thread"):
            executor.shutdown()
        return "not blocked"

    assert executor.run(run_inside(), timeout=LIMIT) == "not blocked"


class TestRunAsync:
    async def test_run_async_returns_the_result_in_any_loop(self, executor):
        assert await executor.run_async(asyncio.sleep(0, "here")) == "here"
        there = in_new_loop(lambda: executor.run_async(asyncio.sleep(0, "there")))
        assert there.result(timeout=LIMIT) == "there"
        inside = executor.run_async(asyncio.sleep(0, "inside"), timeout=LIMIT)
        assert await asyncio.to_thread(executor.run, inside) == "inside"

    async def test_run_async_cancels_the_coroutine_with_its_caller(self, executor):
        sleeper = Sleeper()
        caller = asyncio.create_task(executor.run_async(sleeper.sleep(), timeout=LONG))
        await wait_until_async(lambda: sleeper.runs, "the coroutine")
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await wait_until_async(lambda: sleeper.was_cancelled, "its end")

    async def test_run_async_leaves_no_reference_cycles(self, executor):
        class Seconds(float):
            """A number that supports weak references."""

        timeout = Seconds(LIMIT)
        reference = weakref.ref(timeout)
        gc.disable()
        try:
            await executor.run_async(asyncio.sleep(0), timeout=timeout)
            del timeout
            assert reference() is None
        finally:
            gc.enable()

    def test_run_async_keeps_no_closed_loop_alive_and_does_not_affect_others(self, executor, caplog):
        go_on = asyncio.Event()
        loop = asyncio.new_event_loop()
        task = loop.create_task(executor.run_async(go_on.wait()))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        executor.post(go_on.set)
        executor.run(asyncio.sleep(0.05))  # long enough for the answer to be posted
        task._log_destroy_pending = False
        reference = weakref.ref(loop)
        del loop, task
        gc.collect()
        # Collecting the closed loop in Python 3.15 closes its waiting coroutines, which cancels the operation.
        executor.run(asyncio.sleep(0))
        assert asyncio.run(executor.run_async(asyncio.sleep(0, "here"))) == "here"
        gc.collect()
        assert reference() is None
        assert not caplog.records


def test_a_background_task_runs_in_the_loop_until_its_stop_event_is_set(executor):
    def serve(stop: asyncio.Event):
        assert executor.in_loop_thread()
        return stop.wait()

    future, stop = executor.run_background(serve)
    assert not future.done()
    executor.get_loop().call_soon_threadsafe(stop.set)
    assert future.result(timeout=LIMIT) is True


class TestShutdown:
    def test_a_shutdown_cancels_running_coroutines_and_refuses_new_ones(self, executor):
        sleeper = Sleeper()
        callers = [
            in_thread(executor.run, sleeper.sleep()),
            in_new_loop(lambda: executor.run_async(sleeper.sleep())),
        ]
        wait_until(lambda: sleeper.runs == 2, "both")
        executor.shutdown()
        assert sleeper.was_cancelled == 2
        for caller in callers:
            with pytest.raises(RuntimeError, match="shut down"):
                caller.result(timeout=LIMIT)
        with pytest.raises(RuntimeError, match=r"get_instance\(\) returns a running one"):
            executor.run(asyncio.sleep(0))
        with pytest.raises(RuntimeError, match="shut down"):
            executor.run_background(lambda _: asyncio.sleep(0))
        assert executor.post(lambda: pytest.fail("it ran")) is False

    def test_a_shutdown_does_not_wait_forever_for_a_coroutine_that_does_not_end(self, executor, caplog):
        go_on = threading.Event()

        async def refuse() -> None:
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    go_on.set()
                    await asyncio.sleep(LONG)

        caller = in_thread(executor.run, refuse())
        assert go_on.wait(LIMIT)
        executor.shutdown(timeout=0.2)
        assert "1 tasks did not end within 0.2 s" in caplog.text
        assert not executor.get_loop().is_running()
        assert "shut down" in str(caller.exception(timeout=LIMIT))

    @rows("error", SystemExit(3), KeyboardInterrupt())
    def test_a_task_that_exits_does_not_shut_down_the_executor(self, error):
        executor = AsyncExecutor.get_instance()
        with pytest.raises(type(error)):
            executor.run(fail(error), LIMIT)
        assert executor.run(asyncio.sleep(0, "here"), LIMIT) == "here"
        assert AsyncExecutor.get_instance() is executor


def test_a_slow_shutdown_hook_does_not_prevent_the_others_from_running(monkeypatch):
    ran: list[str] = []

    async def hang() -> None:
        await asyncio.Event().wait()

    async def note() -> None:
        ran.append("it")

    monkeypatch.setattr(AsyncExecutor, "before_shutdown", [hang, note])
    AsyncExecutor().shutdown(timeout=0.1)
    assert ran == ["it"]


@rows("iterations", *range(3))
def test_a_caller_gets_an_answer_if_its_coroutine_ends_while_the_loop_stops(monkeypatch, iterations):
    executor = AsyncExecutor()
    is_ending, runs = asyncio.Event(), threading.Event()

    async def end_with_the_loop() -> None:
        runs.set()
        await is_ending.wait()

    async def hook() -> None:
        is_ending.set()
        for _ in range(iterations):
            await asyncio.sleep(0)

    monkeypatch.setattr(AsyncExecutor, "before_shutdown", [hook])
    future = in_thread(executor.run, end_with_the_loop())
    assert runs.wait(LIMIT)
    executor.shutdown()
    error = future.exception(timeout=LIMIT)
    assert error is None or "shut down" in str(error)


@rows("kind", ArithmeticError, RuntimeError, TimeoutError)
def test_an_error_of_a_signal_handler_ends_the_wait_as_soon_as_a_coroutine_is_handed_over(executor, monkeypatch, kind):
    loop, begun, cancelled = executor.get_loop(), threading.Event(), threading.Event()
    hand_over = loop.call_soon_threadsafe

    def hand_over_and_raise(*given):
        monkeypatch.undo()
        hand_over(*given)
        assert begun.wait(LIMIT)
        raise kind

    async def work():
        begun.set()
        try:
            await asyncio.sleep(LONG)
        finally:
            cancelled.set()

    monkeypatch.setattr(loop, "call_soon_threadsafe", hand_over_and_raise)
    with pytest.raises(kind) as failure:
        executor.run(work())
    assert is_from_caller(failure.value)
    assert cancelled.wait(LIMIT)
