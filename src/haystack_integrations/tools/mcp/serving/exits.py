# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Code that calls `sys.exit`, or raises anything else that is no Exception, fails its own call and not the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fastmcp import FastMCP
from haystack import logging
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.types import INTERNAL_ERROR, CallToolResult, TextContent

from haystack_integrations.tools.mcp.serving.low_level import low_level_server

logger: logging.PatchedLogger = logging.getLogger(__name__)

# What the code that called a function takes for an order to itself.
ORDERS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)

_in_request: ContextVar[bool] = ContextVar("mcp_haystack_in_request", default=False)


class CodeExitedError(RuntimeError):
    """
    Raised in place of an exception that would have ended more than a call.
    """

    def __init__(self, error: BaseException) -> None:
        """
        Initialize the CodeExitedError.

        :param error: What was raised.
        """
        super().__init__(f"The code that was called raised {type(error).__name__}, which no call may end with")


def is_for_others(error: BaseException) -> bool:
    """
    Tell whether an exception concerns those who called a function, and not only its call.

    :param error: What it raised.
    :returns: True for an Exception, for the end of a coroutine, and for the cancellation of the running task. False for
        a CancelledError that the function has made up, such as that of another task that it had waited for.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, Exception | GeneratorExit)


@contextmanager
def surviving_exits(server: FastMCP[Any]) -> Iterator[None]:
    """
    Have a server answer requests whose code wants to end the process, also in tasks that it has started.

    :param server: A FastMCP server.
    :returns: A context manager, as long as the server runs in this event loop.
    """
    middleware = low_level_server(server).middleware
    if _answer_all_the_same not in middleware:
        middleware.append(_answer_all_the_same)
    loop = asyncio.get_running_loop()
    before: Any = loop.get_task_factory()
    factory = before if isinstance(before, _TaskFactory) else _TaskFactory(before)
    loop.set_task_factory(factory)
    factory.users += 1
    try:
        yield
    finally:
        factory.users -= 1
        now: Any = loop.get_task_factory()
        if not factory.users and now is factory:
            loop.set_task_factory(factory.before)


async def _answer_all_the_same(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    token = _in_request.set(True)
    try:
        return await call_next(ctx)
    except BaseException as error:
        if is_for_others(error):
            raise
        failure = error
    finally:
        _in_request.reset(token)
    logger.error(
        "What answers `{method}` raised {kind}. The server goes on",
        method=ctx.method,
        kind=type(failure).__name__,
        exc_info=failure,
    )
    msg = f"The server failed to answer `{ctx.method}`"
    if ctx.method == "tools/call":
        return CallToolResult(content=[TextContent(type="text", text=msg)], is_error=True)
    raise MCPError(INTERNAL_ERROR, msg)


class _TaskFactory:
    """
    Has tasks of requests fail, where asyncio's would end the event loop.
    """

    def __init__(self, before: Any) -> None:
        self.before = before
        self.users = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if _in_request.get():
            coroutine = _Surviving(coroutine)
        if self.before is not None:
            return self.before(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)


class _Surviving(Coroutine[Any, Any, Any]):
    """
    A coroutine that fails where another one would end the event loop.
    """

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        # Its state, at which anyio looks.
        return getattr(self._coroutine, name)

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise CodeExitedError(error) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise CodeExitedError(raised) from raised

    def close(self) -> None:
        self._coroutine.close()
