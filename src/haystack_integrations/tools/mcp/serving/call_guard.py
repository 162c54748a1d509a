# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Middleware around the calls of a server: it ends them when the server stops, and keeps them from ending the process.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import anyio
from fastmcp import Context, FastMCP
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from haystack import logging
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, X_MCP_HEADER_KEY, decode_header_value

from haystack_integrations.tools.mcp.serving.calls import EXITS, CodeExitedError, UnansweredError

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Whether the running code belongs to a call, whether it is served by this package or a tool of FastMCP.
_in_call: ContextVar[bool] = ContextVar("mcp_haystack_in_call", default=False)
_watched_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def _fail_tasks_that_exit(loop: asyncio.AbstractEventLoop) -> None:
    """
    Make `sys.exit` fail a task that a call has started. asyncio would end the event loop, and the server with it.
    """
    if loop in _watched_loops:
        return
    _watched_loops.add(loop)
    previous_factory = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        guarded = _without_exit(coroutine) if _in_call.get() else coroutine
        task = (
            asyncio.Task(guarded, loop=loop, **options)
            if previous_factory is None
            else previous_factory(loop, guarded, **options)
        )
        if guarded is not coroutine:
            # Otherwise, Python would warn about a coroutine whose task was cancelled before it began.
            task.add_done_callback(lambda _: coroutine.close())
        return task

    loop.set_task_factory(factory)


async def _without_exit(coroutine: Any) -> Any:
    try:
        return await coroutine
    except EXITS as error:
        raise CodeExitedError(error) from error


# How long the SDK takes to write an answer after the code of the call has ended, in seconds.
_ANSWER_WRITE_TIME = 0.3
# The methods that run code of the user.
_CALL_METHODS = ("tools/call", "resources/read", "prompts/get", "completion/complete")


class CallGuard(Middleware):
    """
    Ends the calls of one server when it stops, and fails those whose code would end the process.

    When the SDK lists all tools before a call over HTTP, the guard returns at most the tool that is called.
    """

    def __init__(self) -> None:
        self._running: set[anyio.CancelScope] = set()
        self.is_stopping: bool = False

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """
        Pass on a message.

        :param context: The message.
        :param call_next: Answers it.
        :returns: The answer.
        :raises UnansweredError: If the server stops, or the code calls `sys.exit`.
        """
        if context.method == "tools/list" and context.fastmcp_context is not None:
            name = _name_of_call(context.fastmcp_context)
            if name is not None:
                called = await context.fastmcp_context.fastmcp.get_tool(name)
                return [called] if called is not None and X_MCP_HEADER_KEY in str(called.parameters) else []
        if context.method not in _CALL_METHODS:
            return await call_next(context)
        if self.is_stopping:
            msg = "The server is stopping"
            raise UnansweredError(msg)
        _fail_tasks_that_exit(asyncio.get_running_loop())
        token = _in_call.set(True)
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                return await call_next(context)
            except (Exception, GeneratorExit):
                raise
            except BaseException as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                    raise
                # This task was not cancelled: the code raised it, for example after waiting for a cancelled task.
                kind = type(error).__name__
                logger.error("Code that was called raised {kind}", kind=kind, exc_info=error)
                msg = f"The code that was called raised {kind}"
                raise UnansweredError(msg) from error
            finally:
                self._running.discard(scope)
                _in_call.reset(token)
        msg = "The server is stopping, and this did not end in time. It was given up"
        raise UnansweredError(msg)

    async def stop(self, seconds: float) -> None:
        """
        Accept no more calls, and wait until the running ones have ended and their answers are written.

        Until the process or the application has ended, calls are refused: clients may still be connected.

        :param seconds: The longest wait. Calls that still run then are cancelled, and answered with an error.
        """
        self.is_stopping = True
        deadline = time.monotonic() + seconds
        while self._running and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for scope in list(self._running):
            scope.cancel()
        await asyncio.sleep(_ANSWER_WRITE_TIME)


def _name_of_call(context: Context) -> str | None:
    """
    Return the name of the tool that is being called, if the SDK lists the tools before that call.

    It does so in revision 2026-07-28 before each call over HTTP, to compare headers with the arguments that declare
    some. A client's own listing has `tools/list` in its headers.
    """
    request: Any = context.request_context and context.request_context.request
    headers = getattr(request, "headers", {})
    return decode_header_value(headers.get(MCP_NAME_HEADER)) if headers.get(MCP_METHOD_HEADER) == "tools/call" else None


def guard_of(server: FastMCP[Any]) -> CallGuard:
    """
    Return the CallGuard of a server. The first time, it is added to the server's middleware.

    :param server: Any FastMCP server.
    :returns: The same guard each time.
    """
    guard = next((each for each in server.middleware if isinstance(each, CallGuard)), None)
    if guard is None:
        guard = CallGuard()
        server.add_middleware(guard)
    return guard
