# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The executor by itself: how coroutines are run in its loop, from anywhere, and how it ends.
"""

import asyncio
import gc
import socket
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from haystack_integrations.tools.mcp import AsyncExecutor
from haystack_integrations.tools.mcp.executor import ExecutorStartError
from tests.support.background import in_loop_of_its_own, in_thread, together
from tests.support.rows import rows
from tests.support.waiting import LIMIT

# No test waits for this.
LONG = 1000.0


@pytest.fixture
def executor() -> Iterator[AsyncExecutor]:
    """
    One that is not the singleton.
    """
    executor = AsyncExecutor()
    yield executor
    executor.shutdown()


def test_names_for_which_no_dns_server_answers_hold_up_no_other(executor, monkeypatch):
    released, real = threading.Event(), socket.getaddrinfo

    def look_up(host, *args, **options):
        assert host == "quick.test" or released.wait(LIMIT)
        return real("127.0.0.1", *args, **options)

    async def addresses(name):
        return await asyncio.get_running_loop().getaddrinfo(name, 80, type=socket.SOCK_STREAM)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    hung = [in_thread(executor.run, addresses(f"hung{number}.test")) for number in range(40)]
    ((*_, address),) = executor.run(addresses("quick.test"), timeout=LIMIT)
    assert address == ("127.0.0.1", 80) and not any(each.done() for each in hung)
    released.set()
    for each in hung:
        each.result(timeout=LIMIT)


def test_a_name_is_looked_up_where_no_thread_can_be_started(executor, monkeypatch):
    async def address():
        ((*_, address),) = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
        return address

    def refuse(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(f"{AsyncExecutor.__module__}.start_in_thread", refuse)
    assert executor.run(address(), timeout=LIMIT) == ("127.0.0.1", 80)


class Sleeper:
    """
    A coroutine that says when it runs, and when it was cancelled.
    """

    def __init__(self) -> None:
        self.runs = threading.Event()
        self.was_cancelled = threading.Event()

    async def sleep(self) -> None:
        self.runs.set()
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise


async def fail() -> None:
    msg = "no luck"
    raise LookupError(msg)


async def time_out_by_itself() -> None:
    msg = "its own"
    raise TimeoutError(msg)


class TestInstance:
    def test_is_one_for_all_threads(self):
        futures = together([AsyncExecutor.get_instance] * 16)
        assert {future.result(timeout=LIMIT) for future in futures} == {AsyncExecutor.get_instance()}

    def test_that_can_start_no_thread_is_an_error_with_the_cause(self, monkeypatch):
        start, here = threading.Thread.start, threading.current_thread()

        def no_more(thread):
            if threading.current_thread() is here:
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_more)
            with pytest.raises(ExecutorStartError) as raised:
                AsyncExecutor()
        assert str(raised.value) == "the event loop for MCP sessions could not be started: can't start new thread"

    def test_uses_uvloop_if_it_is_installed(self, executor):
        uvloop = pytest.importorskip("uvloop")
        assert isinstance(executor.get_loop(), uvloop.Loop)

    def test_uses_asyncio_if_it_is_not(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvloop", None)
        executor = AsyncExecutor()
        assert type(executor.get_loop()).__module__.startswith("asyncio")
        executor.shutdown()


class TestRunAndRunAsync:
    @pytest.fixture(params=["run", "run_async"])
    def run(self, executor, request):
        def run_async(coro, timeout=None, *, has_limit=False):
            return asyncio.run(executor.run_async(coro, timeout=timeout, has_limit=has_limit))

        return executor.run if request.param == "run" else run_async

    def test_raise_what_the_coroutine_raises(self, run):
        with pytest.raises(LookupError, match="no luck"):
            run(fail())
        with pytest.raises(TimeoutError, match="its own"):
            run(time_out_by_itself(), timeout=LIMIT)

    def test_cancel_the_coroutine_when_the_timeout_is_over(self, run):
        sleeper = Sleeper()
        with pytest.raises(TimeoutError, match=r"timed out after 0\.5 seconds"):
            run(sleeper.sleep(), timeout=0.5)
        assert sleeper.was_cancelled.wait(LIMIT)

    def test_wait_beyond_the_timeout_for_what_has_a_limit_of_its_own_while_the_loop_runs(self, run, monkeypatch):
        monkeypatch.setattr("haystack_integrations.tools.mcp.executor._PULSE", 0.2)
        assert run(asyncio.sleep(1, "done"), timeout=0.01, has_limit=True) == "done"

    def test_take_no_cancellation_by_the_coroutine_for_a_shutdown_or_the_callers_own(self, run):
        async def give_up() -> None:
            raise asyncio.CancelledError

        with pytest.raises(RuntimeError, match=r"^The operation was cancelled\.$"):
            run(give_up())


def test_in_its_own_thread_the_executor_says_what_to_do_instead_of_blocking(executor):
    async def run_inside() -> str:
        with pytest.raises(RuntimeError, match=r"own event loop.*run_async"):
            executor.run(asyncio.sleep(0))
        with pytest.raises(RuntimeError, match="another thread"):
            executor.shutdown()
        return "not blocked"

    assert executor.run(run_inside(), timeout=LIMIT) == "not blocked"


class TestRunAsync:
    async def test_gives_the_result_to_any_loop(self, executor):
        assert await executor.run_async(asyncio.sleep(0, "here")) == "here"
        there = in_loop_of_its_own(lambda: executor.run_async(asyncio.sleep(0, "there")))
        assert there.result(timeout=LIMIT) == "there"
        inside = executor.run_async(asyncio.sleep(0, "inside"), timeout=LIMIT)
        assert await asyncio.to_thread(executor.run, inside) == "inside"

    async def test_cancels_the_coroutine_with_the_caller(self, executor):
        sleeper = Sleeper()
        caller = asyncio.create_task(executor.run_async(sleeper.sleep(), timeout=LONG))
        assert await asyncio.to_thread(sleeper.runs.wait, LIMIT)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert await asyncio.to_thread(sleeper.was_cancelled.wait, LIMIT)

    async def test_is_not_a_cancelled_caller_when_the_executor_ends(self, executor):
        sleeper = Sleeper()
        caller = asyncio.create_task(executor.run_async(sleeper.sleep()))
        assert await asyncio.to_thread(sleeper.runs.wait, LIMIT)
        await asyncio.to_thread(executor.shutdown)
        with pytest.raises(RuntimeError, match="shut down"):
            await caller

    async def test_cancelled_before_it_could_start_harms_no_other(self, executor):
        hold = threading.Event()
        executor.post(lambda: hold.wait(LIMIT))  # until then, the executor starts nothing
        given_up = asyncio.create_task(executor.run_async(Sleeper().sleep()))
        other = asyncio.create_task(executor.run_async(asyncio.sleep(0, "done")))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        hold.set()
        assert await other == "done"
        with pytest.raises(asyncio.CancelledError):
            await given_up

    @pytest.mark.parametrize("is_closed_first", [True, False], ids=["closed-then-ended", "ended-then-closed"])
    def test_keeps_no_closed_loop_alive_and_harms_no_other(self, executor, is_closed_first, caplog):
        go_on = asyncio.Event()

        async def answer() -> None:
            await go_on.wait()

        def let_it_end() -> None:
            executor.post(go_on.set)
            executor.run(asyncio.sleep(0.05))  # until the answer was posted

        loop = asyncio.new_event_loop()
        task = loop.create_task(executor.run_async(answer()))
        loop.run_until_complete(asyncio.sleep(0))
        if not is_closed_first:
            let_it_end()
        loop.close()
        if is_closed_first:
            let_it_end()
        assert not task.done()
        task._log_destroy_pending = False
        reference = weakref.ref(loop)
        del loop, task
        asyncio.run(executor.run_async(asyncio.sleep(0)))  # from another loop
        gc.collect()
        # Python 3.15 closes what still waited there in the collection, which cancels its operation.
        executor.run(asyncio.sleep(0))
        gc.collect()
        assert reference() is None
        assert not caplog.records


def test_a_background_task_runs_in_the_loop_until_its_stop_event_is_set(executor):
    def serve(stop: asyncio.Event):
        assert executor.in_loop_thread()

        async def wait() -> str:
            await stop.wait()
            return "stopped"

        return wait()

    future, stop = executor.run_background(serve)
    assert not future.done()
    executor.get_loop().call_soon_threadsafe(stop.set)
    assert future.result(timeout=LIMIT) == "stopped"


class TestShutdown:
    def test_cancels_what_runs_and_lets_nothing_run_afterwards(self, executor):
        sleeper = Sleeper()
        caller = in_thread(executor.run, sleeper.sleep())
        assert sleeper.runs.wait(LIMIT)
        executor.shutdown()
        assert sleeper.was_cancelled.is_set()
        assert "shut down" in str(caller.exception(timeout=LIMIT))
        with pytest.raises(RuntimeError, match=r"get_instance\(\) returns a running one"):
            executor.run(asyncio.sleep(0))
        with pytest.raises(RuntimeError, match="shut down"):
            executor.run_background(lambda _: asyncio.sleep(0))
        assert executor.post(lambda: pytest.fail("it ran")) is False

    def test_does_not_wait_for_ever_for_what_refuses_to_end(self, executor, caplog):
        go_on = threading.Event()

        async def refuse() -> None:
            go_on.set()
            while True:
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    continue

        caller = in_thread(executor.run, refuse())
        assert go_on.wait(LIMIT)
        executor.shutdown(timeout=0.2)
        assert "1 tasks did not end within 0.2 s" in caplog.text
        assert not executor.get_loop().is_running()
        assert "shut down" in str(caller.exception(timeout=LIMIT))

    @rows("error", [SystemExit, KeyboardInterrupt])
    def test_is_not_for_a_task_to_bring_about(self, error):
        async def leave() -> None:
            raise error(3)

        executor = AsyncExecutor.get_instance()
        with pytest.raises(error):
            executor.run(leave(), LIMIT)
        assert executor.run(asyncio.sleep(0, "here"), LIMIT) == "here"
        assert AsyncExecutor.get_instance() is executor


def test_a_hook_that_takes_too_long_does_not_keep_the_others_from_running_at_a_shutdown(monkeypatch):
    ran = threading.Event()

    async def hang() -> None:
        await asyncio.Event().wait()

    async def note() -> None:
        ran.set()

    monkeypatch.setattr(AsyncExecutor, "before_shutdown", [hang, note])
    executor = AsyncExecutor()
    executor.shutdown(timeout=0.1)
    assert ran.is_set()


@rows("iterations", range(4))
@pytest.mark.parametrize("is_async", [False, True], ids=["run", "run_async"])
def test_what_ends_while_the_loop_is_told_to_stop_is_answered(monkeypatch, is_async, iterations):
    executor = AsyncExecutor()
    is_ending, runs = asyncio.Event(), threading.Event()

    async def end_with_the_loop() -> str:
        runs.set()
        await is_ending.wait()
        return "done"

    async def hook() -> None:
        is_ending.set()
        for _ in range(iterations):
            await asyncio.sleep(0)

    monkeypatch.setattr(AsyncExecutor, "before_shutdown", [hook])
    coro = end_with_the_loop()
    future = in_thread(asyncio.run, executor.run_async(coro)) if is_async else in_thread(executor.run, coro)
    assert runs.wait(LIMIT)
    executor.shutdown()
    try:
        assert future.result(timeout=LIMIT) == "done"
    except RuntimeError as error:
        assert "shut down" in str(error)
