# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import dataclasses
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from haystack import logging

from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.connection.context_managed import ContextManaged
from haystack_integrations.tools.mcp.connection.limits import DEFAULT_READ_TIMEOUT, CallLimits, check_timeout
from haystack_integrations.tools.mcp.connection.pool import pool
from haystack_integrations.tools.mcp.connection.preload import preloaded
from haystack_integrations.tools.mcp.connection.reading import Read, Reading
from haystack_integrations.tools.mcp.connection.release import close_in_background, release_collected
from haystack_integrations.tools.mcp.connection.status import MCPConnectionStatus
from haystack_integrations.tools.mcp.errors import (
    NO_DESCRIPTORS,
    MCPCallTimeoutError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    lacks_descriptors,
)
from haystack_integrations.tools.mcp.executor import AsyncExecutor, ExecutorStartError, OperationCancelledError
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.progress import (
    AwaitedReports,
    MCPProgress,
    ProgressCallback,
    WaitingReports,
    is_asynchronous,
)
from haystack_integrations.tools.mcp.request_context import meta_of_call

if TYPE_CHECKING:
    from mcp import types

    from haystack_integrations.tools.mcp.client.base import ServerDetails
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# Closing is bounded by what the server needs to leave (supervisor.py); this is for a loop that is blocked.
_CLOSE_TIMEOUT = 20.0

# The timeouts of an operation run in the executor's loop. The caller's own, longer by this, is for a loop that is
# blocked, e.g. by an in-process server that never gives way.
_BLOCKED_LOOP_GRACE = 10.0


class MCPConnection(Reading, ContextManaged):
    """
    The supervised connection to one MCP server.

    All connections of a process whose server infos are equal share one session: one child process, one handshake. It
    is opened at the first use, reopened after it was lost, and closed when its last user closes. Any thread and any
    event loop may use it, at the same time.

    A tool call is sent again only if it provably did not run. If the connection breaks while a tool may be running, the
    call fails with an error that says so.

    ### Usage example

    ```python
    from mcp.server import MCPServer
    from haystack_integrations.tools.mcp import InProcessServerInfo, MCPConnection

    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    with MCPConnection(InProcessServerInfo(server)) as connection:
        print([tool.name for tool in connection.list_tools()])
        print(connection.call_tool("add", {"a": 5, "b": 3}).structured_content)
        print(connection.status().state)
    ```
    """

    def __init__(
        self,
        server_info: MCPServerInfo,
        *,
        connection_timeout: float = 30.0,
        invocation_timeout: float | None = 30.0,
        share: bool = True,
        handlers: MCPHandlers | None = None,
        reset_timeout_on_progress: bool = False,
        max_total_timeout: float | None = None,
        read_timeout: float | None = DEFAULT_READ_TIMEOUT,
        ping_interval: float | None = None,
    ) -> None:
        """
        Initialize the connection. Nothing is opened yet.

        :param server_info: How to reach the server.
        :param connection_timeout: How long opening a session may take, and listing the tools, in seconds.
        :param invocation_timeout: How long a tool call may take, or what is read beside the tools, in seconds. None for
            no limit.
        :param share: Whether to share the session with every other user of an equal server info. False gives a session
            of its own, e.g. for a server that keeps state for its client.
        :param handlers: What to do for a server that asks for something. Users with different handlers do not share a
            session.
        :param reset_timeout_on_progress: Whether each report of progress gives a call `invocation_timeout` seconds from
            then on.
        :param max_total_timeout: With `reset_timeout_on_progress`: how long a call may take altogether, in seconds.
            None (default) for no limit, as long as the server reports progress.
        :param read_timeout: After how many seconds in which the server sent nothing, while a call was under way, the
            session is given up; the next call opens a new one. 300 by default, or `invocation_timeout` if that is
            longer. None for never.
        :param ping_interval: How long the server may send nothing, in seconds, while a call is under way, until it is
            pinged. An answer shows that it is there. None (default) for no pings. The protocol has pings up to revision
            2025-11-25.
        :raises ValueError: If a parameter is invalid, or two exclude each other.
        """
        if not isinstance(server_info, MCPServerInfo):
            msg = (
                "`server_info` must be an MCPServerInfo (StdioServerInfo, SSEServerInfo, StreamableHttpServerInfo, "
                f"InProcessServerInfo or a custom one; `server_info_from` makes one of a URL or a command line), got "
                f"{type(server_info).__name__}"
            )
            raise ValueError(msg)
        self.server_info = server_info
        self.connection_timeout: float = check_timeout("connection_timeout", connection_timeout)
        self._limits = CallLimits(
            invocation_timeout=invocation_timeout,
            reset_timeout_on_progress=reset_timeout_on_progress,
            max_total_timeout=max_total_timeout,
            read_timeout=read_timeout,
            ping_interval=ping_interval,
        )
        self.share = share
        self.handlers: MCPHandlers = check_handlers(handlers)
        self._supervisor: Supervisor | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._was_used = False

    @property
    def invocation_timeout(self) -> float | None:
        """
        How long a tool call may take, in seconds; None for no limit.
        """
        return self._limits.invocation_timeout

    @invocation_timeout.setter
    def invocation_timeout(self, value: float | None) -> None:
        self._limits = dataclasses.replace(self._limits, invocation_timeout=value)

    def _acquire(self) -> Supervisor:
        supervisor = self._supervisor
        if supervisor is not None:
            return supervisor
        acquired = pool.acquire(self.server_info, self.handlers, share=self.share)
        with pool.lock:
            if self._supervisor is None:
                self._supervisor = acquired
                self._was_used = True
                self._finalizer = weakref.finalize(self, release_collected, acquired)
                self._finalizer.atexit = False  # everything that is still open then is closed together
                return acquired
            supervisor = self._supervisor
        pool.release(acquired)  # another thread was first, so this is never the last user
        return supervisor

    def _release(self) -> Supervisor | None:
        """
        Stop using the supervisor; give it if it is to be closed.
        """
        with pool.lock:
            supervisor, self._supervisor = self._supervisor, None
            finalizer, self._finalizer = self._finalizer, None
        if supervisor is None or finalizer is None or finalizer.detach() is None:
            return None
        return supervisor if pool.release(supervisor) else None

    @property
    def is_ready(self) -> bool:
        """
        Whether there is an open session now.
        """
        supervisor = self._newest
        return supervisor is not None and supervisor.is_ready()

    @property
    def _newest(self) -> Supervisor | None:
        """
        The session of the server info, or that of the identity that made a call last if that is newer.
        """
        supervisor = self._supervisor
        newest = supervisor.identities.newest if supervisor is not None else None
        return newest if newest is not None and supervisor is not None and not supervisor.is_ready() else supervisor

    @property
    def generation(self) -> int:
        """
        The number of the session that was opened last, greater than that of every earlier one; 0 before the first.
        """
        supervisor = self._newest
        return supervisor.generation if supervisor is not None else 0

    def _start(self) -> tuple[AsyncExecutor, Supervisor]:
        with self._start_errors():
            return AsyncExecutor.get_instance(), self._acquire()

    async def _start_async(self) -> tuple[AsyncExecutor, Supervisor]:
        if self._supervisor is None:
            with self._start_errors():
                executor = AsyncExecutor.get_instance()
            await executor.run_async(preloaded())  # making the first of a process imports the SDK
        return self._start()

    @contextmanager
    def _start_errors(self) -> Iterator[None]:
        try:
            yield
        except (ExecutorStartError, OSError) as error:
            if not (isinstance(error, ExecutorStartError) or lacks_descriptors(error)):
                raise
            reason = NO_DESCRIPTORS if lacks_descriptors(error) else error
            msg = f"Failed to connect to {self.server_info.describe()}: {reason}."
            raise MCPConnectionError(msg, self.server_info, "connect") from error

    @property
    def _grace(self) -> float:
        # What waits in the loop has its own timeout, which a login of a person may extend.
        return _BLOCKED_LOOP_GRACE + self.server_info._longest_login

    def _run(self, operation: Callable[[Supervisor], Coroutine[Any, Any, T]], timeout: float) -> T:
        executor, supervisor = self._start()
        try:
            return executor.run(operation(supervisor), timeout + self._grace)
        except MCPConnectionError as error:
            # The frames of the executor's tasks help nobody.
            raise error.with_traceback(None)  # noqa: B904

    async def _run_async(self, operation: Callable[[Supervisor], Coroutine[Any, Any, T]], timeout: float) -> T:
        executor, supervisor = await self._start_async()
        try:
            return await executor.run_async(operation(supervisor), timeout + self._grace)
        except MCPConnectionError as error:
            raise error.with_traceback(None)  # noqa: B904

    def _opened_tools(self, supervisor: Supervisor) -> Coroutine[Any, Any, tuple[int, list[types.Tool]]]:
        return supervisor.identities.open(self.connection_timeout)

    def open(self) -> tuple[int, list[types.Tool]]:
        """
        Open the session, if none is open.

        :returns: Its number and the tools that the server had when it was opened.
        :raises MCPConnectionError: If it cannot be opened.
        """
        return self._run(self._opened_tools, self.connection_timeout)

    async def open_async(self) -> tuple[int, list[types.Tool]]:
        """
        Do the same as `open` without blocking the event loop.
        """
        return await self._run_async(self._opened_tools, self.connection_timeout)

    def list_tools(self) -> list[types.Tool]:
        """
        List the tools of the server, all pages of them, as it has them now.

        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        """
        return self._run(self._listed_tools, self._listing_timeout())

    async def list_tools_async(self) -> list[types.Tool]:
        """
        Do the same as `list_tools` without blocking the event loop.
        """
        return await self._run_async(self._listed_tools, self._listing_timeout())

    def _listed_tools(self, supervisor: Supervisor) -> Coroutine[Any, Any, list[types.Tool]]:
        return supervisor.identities.list_tools(self.connection_timeout)

    def _listing_timeout(self) -> float:
        # A listing that loses its session is begun again.
        return 2 * self.connection_timeout * (1 + int(getattr(self.server_info, "max_retries", 3)))

    def _read(self, operation: str, read: Read[T], *, may_repeat: bool = True) -> T:
        return self._run(self._reader(operation, read, may_repeat), self._reading_timeout())

    async def _read_async(self, operation: str, read: Read[T], *, may_repeat: bool = True) -> T:
        return await self._run_async(self._reader(operation, read, may_repeat), self._reading_timeout())

    def _reader(
        self, operation: str, read: Read[T], may_repeat: bool
    ) -> Callable[[Supervisor], Coroutine[Any, Any, T]]:
        return lambda supervisor: supervisor.identities.read(
            operation,
            read,
            connection_timeout=self.connection_timeout,
            timeout=self._read_limit,
            may_repeat=may_repeat,
        )

    @property
    def _read_limit(self) -> float:
        # What is read beside the tools takes no minutes, even where calls may.
        return DEFAULT_READ_TIMEOUT if self.invocation_timeout is None else self.invocation_timeout

    def _reading_timeout(self) -> float:
        attempts = 1 + int(getattr(self.server_info, "max_retries", 3))
        return (2 * self.connection_timeout + self._read_limit) * attempts

    def _details(self) -> ServerDetails | None:
        supervisor = self._newest
        session = supervisor.session if supervisor is not None else None
        return session.details if session is not None else None

    def _why_unusable(self, tool_name: str) -> str | None:
        """
        Say why the server's listing was read without a tool, if it was.
        """
        supervisor = self._newest
        session = supervisor.session if supervisor is not None else None
        return session.why_unusable(tool_name) if session is not None else None

    def call_tool(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        display_name: str | None = None,
        may_repeat: bool = False,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Call a tool.

        :param tool_name: Name of the tool at the server.
        :param tool_args: Arguments to pass to the tool.
        :param display_name: Name of the tool in error messages, if it is another.
        :param may_repeat: Whether it does no harm if the tool runs twice, so that a call whose outcome is unknown may
            be sent again.
        :param invocation_timeout: How long this call may take, in seconds. Default: that of the connection.
        :param secrets: The secrets among the arguments. They are redacted where the server quotes them in errors.
        :param meta: The `_meta` of the request: what the server is told beside the arguments.
        :param on_progress: Called with an MCPProgress for each report of the tool's progress, in this thread, before
            the call returns. If it raises, that is logged, and it gets no more of this call.
        :returns: The result.
        :raises MCPInvocationError: If the tool reports an error or the call fails.
        :raises TimeoutError: If the call takes longer than `invocation_timeout`; as an MCPTimeoutError, which is an
            MCPInvocationError, too.
        :raises ValueError: If `meta` or `on_progress` is invalid.
        """
        _check_call(meta, on_progress)
        if is_asynchronous(on_progress):
            msg = "`on_progress` of `call_tool` must not be asynchronous; use `call_tool_async`, or a function"
            raise ValueError(msg)
        reports = None if on_progress is None else WaitingReports(on_progress)
        try:
            executor = AsyncExecutor.get_instance()
            note, wait = (reports.add, reports.wait) if reports is not None else (None, None)
            limits = self._limits_of(invocation_timeout)
            call = self._call(tool_name, tool_args, display_name, may_repeat, limits, secrets, meta, note)
            return executor.run(call, self._longest_wait(limits), wait=wait)
        except MCPInvocationError:
            raise
        except (OSError, RuntimeError) as error:
            raise _executor_failed(error, display_name or tool_name, tool_args) from error

    async def call_tool_async(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        display_name: str | None = None,
        may_repeat: bool = False,
        invocation_timeout: float | None = None,
        secrets: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> types.CallToolResult:
        """
        Do the same as `call_tool` without blocking the event loop.

        It calls `on_progress`, which may be asynchronous, in that loop.
        """
        _check_call(meta, on_progress)
        try:
            executor = AsyncExecutor.get_instance()
            if self._supervisor is None:
                await executor.run_async(preloaded())
            reports = None if on_progress is None else AwaitedReports(on_progress)
            note = reports.add if reports is not None else None
            limits = self._limits_of(invocation_timeout)
            call = self._call(tool_name, tool_args, display_name, may_repeat, limits, secrets, meta, note)
            operation = executor.run_async(call, self._longest_wait(limits))
            return await (operation if reports is None else reports.wait(operation))
        except MCPInvocationError:
            raise
        except (OSError, RuntimeError) as error:
            raise _executor_failed(error, display_name or tool_name, tool_args) from error

    def _limits_of(self, invocation_timeout: float | None) -> CallLimits:
        if invocation_timeout is None:
            return self._limits
        total = self._limits.max_total_timeout
        return dataclasses.replace(
            self._limits,
            invocation_timeout=invocation_timeout,
            max_total_timeout=None if total is None else max(total, invocation_timeout),
        )

    def _longest_wait(self, limits: CallLimits) -> float | None:
        limit = limits.longest_call
        return None if limit is None else self.connection_timeout + limit + self._grace

    def _call(
        self,
        tool_name: str,
        tool_args: dict[str, Any] | None,
        display_name: str | None,
        may_repeat: bool,
        limits: CallLimits,
        secrets: Iterable[str],
        meta: dict[str, Any] | None,
        on_progress: Callable[[MCPProgress], None] | None,
    ) -> Coroutine[Any, Any, types.CallToolResult]:
        from haystack_integrations.tools.mcp.connection.call import ToolCall  # noqa: PLC0415 - imports the SDK

        call = ToolCall(
            tool_name,
            tool_args if tool_args is not None else {},
            display_name=display_name or tool_name,
            connection_timeout=self.connection_timeout,
            limits=limits,
            may_repeat=may_repeat,
            secrets=secrets,
            meta=meta_of_call(meta),
            on_progress=on_progress,
        )
        return (self._supervisor or self._acquire()).identities.call(call)

    def status(self) -> MCPConnectionStatus:
        """
        Tell how the connection is. Never blocks and never connects.

        :returns: A snapshot.
        """
        supervisor = self._supervisor
        if supervisor is None:
            return MCPConnectionStatus(state="closed" if self._was_used else "idle")
        newest = self._newest or supervisor
        details = self._details()
        sessions = (user.session for user in (supervisor, *supervisor.identities.all()))
        return MCPConnectionStatus(
            state=newest.state,
            protocol_version=details.protocol_version if details else None,
            server_name=details.name if details else None,
            server_version=details.version if details else None,
            capabilities=details.capabilities if details else None,
            users=pool.users(supervisor),
            sessions=supervisor.sessions,
            calls=supervisor.calls,
            failed_calls=supervisor.failed_calls,
            in_flight=sum(session.in_flight for session in sessions if session is not None),
            last_error=supervisor.last_error,
        )

    def close(self) -> None:
        """
        Stop using the session; it is closed with its last user.

        Idempotent, and callable from any thread. On the executor's own thread it only schedules the close and returns.
        A later use opens a session again.
        """
        supervisor = self._leave()
        if supervisor is None:
            return
        executor = AsyncExecutor.get_instance()
        if executor.in_loop_thread():
            return
        try:
            executor.run(_closed(supervisor), _CLOSE_TIMEOUT)
        except (TimeoutError, RuntimeError) as error:
            _warn_of_close(supervisor, error)

    def _leave(self) -> Supervisor | None:
        """
        Stop using the supervisor, and have it closed in the background if nobody else does; give it then.
        """
        supervisor = self._release()
        if supervisor is not None:
            AsyncExecutor.get_instance().post(lambda: close_in_background(supervisor))
        return supervisor

    async def close_async(self) -> None:
        """
        Do the same as `close` without blocking the event loop.
        """
        supervisor = self._leave()  # it is closed even if the caller is cancelled
        if supervisor is None:
            return
        try:
            await AsyncExecutor.get_instance().run_async(_closed(supervisor), _CLOSE_TIMEOUT)
        except (TimeoutError, RuntimeError) as error:
            _warn_of_close(supervisor, error)

    def _enter(self) -> None:
        self.open()

    async def _enter_async(self) -> None:
        await self.open_async()

    def __repr__(self) -> str:
        """
        Show the server and the state.
        """
        return f"MCPConnection({self.server_info!r}, state={self.status().state!r})"


async def _closed(supervisor: Supervisor) -> None:
    await asyncio.shield(close_in_background(supervisor))


def _warn_of_close(supervisor: Supervisor, error: Exception) -> None:
    logger.warning(
        "Closing the session with {server} did not end: {error}", server=supervisor.description, error=str(error)
    )


def check_handlers(handlers: MCPHandlers | None) -> MCPHandlers:
    """
    Check handlers.

    :param handlers: The value of the parameter `handlers`.
    :returns: The handlers; those without any function for None.
    :raises ValueError: If it is something else.
    """
    if handlers is None:
        return MCPHandlers()
    if not isinstance(handlers, MCPHandlers):
        msg = f"`handlers` must be an MCPHandlers or None, got {type(handlers).__name__}"
        raise ValueError(msg)
    return handlers


def _check_call(meta: dict[str, Any] | None, on_progress: ProgressCallback | None) -> None:
    if meta is not None and not (isinstance(meta, dict) and all(isinstance(key, str) for key in meta)):
        msg = f"`meta` must be a dict with strings as keys, or None, got {type(meta).__name__}"
        raise ValueError(msg)
    if on_progress is not None and not callable(on_progress):
        msg = f"`on_progress` must be a function that takes an MCPProgress, or None, got {type(on_progress).__name__}"
        raise ValueError(msg)


def _executor_failed(error: Exception, tool_name: str, tool_args: dict[str, Any] | None) -> MCPInvocationError:
    if isinstance(error, TimeoutError):
        msg = f"Failed to invoke Tool `{tool_name}`: {error} (its event loop is blocked). The tool may have run."
        return MCPCallTimeoutError(msg, tool_name, tool_args)
    if isinstance(error, OperationCancelledError):
        msg = f"Failed to invoke Tool `{tool_name}`: {error} The tool may have run."
        return MCPOutcomeUnknownError(msg, tool_name, tool_args)
    reason = NO_DESCRIPTORS if lacks_descriptors(error) else str(error).rstrip(".")
    msg = f"Failed to invoke Tool `{tool_name}`: {reason}. The tool did not run."
    return MCPInvocationError(msg, tool_name, tool_args)
