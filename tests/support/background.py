# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Work in the background of a test, in threads and event loops.
"""

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from tests.support.waiting import LIMIT

T = TypeVar("T")


def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> "Future[T]":
    """
    Run the function in a new daemon thread, so that a hanging function does not delay the end of the test run.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="test-background", daemon=True).start()
    return future


def together(functions: Iterable[Callable[[], T]]) -> "list[Future[T]]":
    """
    Run each function in its own thread; all of them start at the same moment.
    """
    functions = list(functions)
    barrier = threading.Barrier(len(functions))

    def start(function: Callable[[], T]) -> T:
        barrier.wait(30)
        return function()

    return [in_thread(start, function) for function in functions]


def in_new_loop(function: Callable[[], Any]) -> "Future[Any]":
    """
    Run the coroutine function in a new event loop in a new thread.
    """
    return in_thread(lambda: asyncio.run(function()))


def on_each_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """
    Run an asynchronous test in new event loops of asyncio and uvloop.
    """

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    @functools.wraps(test)
    def run(*args: Any, loop: str, **fixtures: Any) -> None:
        factory = None if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test(*args, **fixtures), LIMIT))

    parameters = [
        *inspect.signature(test).parameters.values(),
        inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def text(result: Any) -> str:
    """
    Return the text of a tool's result.
    """
    return "".join(block.text for block in result.content)
