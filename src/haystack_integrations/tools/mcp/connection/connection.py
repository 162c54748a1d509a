# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The public connection, `MCPConnection`, and the pool of sessions that connections share.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from haystack import logging
from haystack.tracing.tracer import is_tracing_enabled

from haystack_integrations.tools.mcp.concurrency import begin_import, import_in_thread, lock_of_each_process
from haystack_integrations.tools.mcp.connection.context_managed import (
    ContextManaged,
    OperationRunner,
    Read,
    UserCount,
    asynchronous,
    blocking,
)
from haystack_integrations.tools.mcp.connection.interceptors import InterceptedCall, Interceptors, check_interceptors
from haystack_integrations.tools.mcp.connection.limits import (
    DEFAULT_READ_TIMEOUT,
    CallLimits,
    CallOptions,
    check_timeout,
)
from haystack_integrations.tools.mcp.connection.listening import Watching
from haystack_integrations.tools.mcp.connection.monitoring import MCPConnectionStatus, traced_call
from haystack_integrations.tools.mcp.connection.reading import Reading
from haystack_integrations.tools.mcp.connection.requests import (
    Admission,
    CallKeywords,
    CallRequest,
    call_recorder,
    call_request,
    executor_failure,
)
from haystack_integrations.tools.mcp.errors import (
    MCPCallPendingError,
    MCPConnectionError,
    MCPInvocationError,
)
from haystack_integrations.tools.mcp.executor import AsyncExecutor, ExecutorStartError, is_from_caller
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.calling import LoopReports, ThreadReports, is_asynchronous
from haystack_integrations.tools.mcp.parameters import explains_options, own_parameters, texts
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from haystack_integrations.tools.mcp.protocol.changes import Unsubscribe, Watcher, next_tick
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import texts_in

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.identities import ServerSessions
    from haystack_integrations.tools.mcp.connection.requests import ToolListing
    from haystack_integrations.tools.mcp.connection.session import Session
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor
    from haystack_integrations.tools.mcp.protocol.negotiation import ServerDetails

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# Closing a session has a limit of its own (`connection.session`); this one applies when the loop is blocked.
_CLOSE_TIMEOUT = 20.0


_NOT_TRACED: AbstractContextManager[None] = nullcontext()


_PACKAGE = "haystack_integrations.tools.mcp"

# The module that each connection needs.
_COMMON_MODULES = (f"{_PACKAGE}.connection.identities",)

# What `preload` imports in addition: the modules for servers over stdio, and over HTTP without OAuth.
_PRELOADED_MODULES = (
    f"{_PACKAGE}.transports.stdio",
    f"{_PACKAGE}.transports.http_client",
    "httpcore2",
    "anyio._backends._asyncio",
    f"{_PACKAGE}.transports.aiohttp_transport",
)


def preload() -> None:
    """
    Start to import what connections over stdio and HTTP need, in a background thread, and return at once.

    Without it, the import starts with the first connection and takes some tenths of a second. Call this when the
    program starts if the first call should not wait for that. Calling it again does nothing. A fork waits for the end
    of the import.
    """
    begin_import(*_COMMON_MODULES, *_PRELOADED_MODULES)


async def load_modules(server_info: MCPServerInfo) -> None:
    """
    Import what a connection needs in a thread, without blocking the event loop.

    :param server_info: How the server is reached.
    :raises TimeoutError: If it takes so long that it may never end.
    """
    await import_in_thread(*_COMMON_MODULES, *server_info._modules)


class Pool:
    """
    Lets connections with equal server infos share sessions. It decides under a lock, and leaves the I/O to its callers.
    """

    def __init__(self) -> None:
        self.lock: Callable[[], threading.Lock] = lock_of_each_process()
        self._shared_sessions: list[tuple[Any, ServerSessions]] = []

    def acquire(self, server_info: MCPServerInfo, handlers: MCPHandlers, *, share: bool) -> ServerSessions:
        """
        Find or make the sessions with a server, and count one more user.

        :param server_info: How to reach the server.
        :param handlers: Answer the requests of the server.
        :param share: Whether equal server infos with equal handlers get the same sessions.
        :returns: The sessions.
        """
        # It imports the types of the protocol, which were loaded when `load_modules` was awaited.
        from haystack_integrations.tools.mcp.connection.identities import ServerSessions  # noqa: PLC0415

        settings = _settings(server_info), _settings(handlers)
        with self.lock():
            matching = (sessions for known, sessions in self._shared_sessions if known == settings)
            sessions = next(matching, None) if share else None
            if sessions is None:
                sessions = ServerSessions(server_info, handlers)
                if share:
                    self._shared_sessions.append((settings, sessions))
            sessions.users += 1
            return sessions

    def release(self, sessions: ServerSessions) -> bool:
        """
        Remove one user.

        :param sessions: The sessions that it used.
        :returns: Whether it was the last user, so that the sessions are to be closed.
        """
        with self.lock():
            sessions.users -= 1
            if not sessions.users:
                self._shared_sessions = [shared for shared in self._shared_sessions if shared[1] is not sessions]
            return not sessions.users


pool: Pool = Pool()


# The sessions of users that were garbage-collected. These users are still counted.
_collected: deque[ServerSessions] = deque()


def release_collected(sessions: ServerSessions) -> None:
    """
    Remove a user that was garbage-collected.

    Garbage collection may strike in any thread, with any lock held, so this takes no lock: it leaves the release to the
    executor. Without a running executor, there is no session to close, and the next user does it.

    :param sessions: The sessions that it used.
    """
    _collected.append(sessions)
    _post_if_running(_release_all_collected)


def _release_all_collected() -> None:
    while _collected:
        with suppress(IndexError):  # another thread has released it
            sessions = _collected.popleft()
            if pool.release(sessions):
                _post_if_running(sessions.close_in_background)


def _post_if_running(callback: Callable[[], object]) -> None:
    executor = AsyncExecutor._singleton
    if executor is not None:
        executor.post(callback)


def _settings(configuration: Any) -> Any:
    """
    Return the current values by which server infos, or handlers, are compared.
    """
    if not dataclasses.is_dataclass(configuration):
        return configuration
    values = [getattr(configuration, field.name) for field in dataclasses.fields(configuration)]
    return type(configuration), [copy.copy(each) if isinstance(each, (dict, list)) else each for each in values]


@explains_options
class MCPConnection(Reading, Watching, OperationRunner, ContextManaged):
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
        interceptors: Sequence[Any] | None = None,
        call_options: CallOptions | Mapping[str, Any] | None = None,
    ) -> None:
        """
        Initialize the connection. Nothing is opened yet.

        :param server_info: How to reach the server.
        :param connection_timeout: How long opening a session may take, and listing the tools, in seconds.
        :param invocation_timeout: How long a tool call, or reading a resource or prompt, may take, in seconds. None for
            no limit.
        :param share: Whether to share the session with every other user of an equal server info. False opens a separate
            session, e.g. for a server that keeps state for its client.
        :param handlers: Answer the requests of the server, e.g. for input. Connections with different handlers do not
            share a session.
        :param interceptors: Functions that wrap each tool call, outermost first. They take an MCPToolCall and
            `call_next`. Callable objects and import paths, `"package.module:name"`, work as well.
        :param call_options: Timeouts and other options of calls: a CallOptions, or a dictionary of its fields.
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
        self.call_options: CallOptions = CallOptions.of(call_options)
        self._limits = CallLimits(invocation_timeout=invocation_timeout, **self.call_options.changed())
        self.share = share
        self.handlers: MCPHandlers = MCPHandlers.of(handlers)
        self._interceptors: Interceptors = check_interceptors(interceptors)
        self._admission: Admission | None = None
        # The server's instructions, from a recorded run that is played without the server.
        self._recorded_instructions: str | None = None
        # The blocks and calls that use the connection. Once a block has ended, the last of them closes it.
        self._users = UserCount()
        self._server_sessions: ServerSessions | None = None
        self._watchers: set[Watcher] = set()
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

    def _name_timeout(self, name: str) -> None:
        # For messages: an alias of a registry calls the timeout `timeout_sec`.
        self._limits = dataclasses.replace(self._limits, timeout_name=name)

    @property
    def interceptors(self) -> list[Any]:
        """
        The interceptors of tool calls as the user passed them, outermost first.
        """
        return [each.given for each in self._interceptors]

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the configuration. The unpickled connection opens a new session.
        """
        return partial(type(self), **own_parameters(self, MCPConnection)), ()

    def _acquire(self) -> ServerSessions:
        sessions = self._server_sessions
        if sessions is not None:
            return sessions
        _release_all_collected()
        acquired = pool.acquire(self.server_info, self.handlers, share=self.share)
        with pool.lock():
            if self._server_sessions is None:
                self._server_sessions = acquired
                self._was_used = True
                self._finalizer = weakref.finalize(self, release_collected, acquired)
                self._finalizer.atexit = False  # at exit, all open sessions are closed together
                for watcher in self._watchers:
                    _post(acquired.default.watchers.add, watcher)
                return acquired
            sessions = self._server_sessions
        pool.release(acquired)  # another thread acquired them first, and is still a user
        return sessions

    def _describe_server(self) -> str:
        sessions = self._server_sessions  # the sessions cache the description, which is slow to make
        return self.server_info.describe() if sessions is None else sessions.default.description

    def _release(self) -> ServerSessions | None:
        """
        Stop using the sessions, and return them if they are to be closed.
        """
        with pool.lock():
            sessions, self._server_sessions = self._server_sessions, None
            finalizer, self._finalizer = self._finalizer, None
            if sessions is not None:
                for watcher in self._watchers:
                    _post(sessions.default.watchers.remove, watcher)
        if sessions is None or finalizer is None or finalizer.detach() is None:
            return None
        return sessions if pool.release(sessions) else None

    @property
    def is_ready(self) -> bool:
        """
        Whether there is an open session now.
        """
        supervisor = self._active_supervisor
        return supervisor is not None and supervisor.is_ready()

    @property
    def _active_supervisor(self) -> Supervisor | None:
        """
        The supervisor of the server info's session if it is ready, otherwise of the identity that made the last call.
        """
        sessions = self._server_sessions
        if sessions is None:
            return None
        return sessions.default if sessions.last_used is None or sessions.default.is_ready() else sessions.last_used

    @property
    def _session(self) -> Session | None:
        supervisor = self._active_supervisor
        return None if supervisor is None else supervisor.session

    @property
    def generation(self) -> int:
        """
        The number of the newest session, greater than every earlier one; 0 before the first.
        """
        supervisor = self._active_supervisor
        return supervisor.generation if supervisor is not None else 0

    def call_tool(
        self, tool_name: str, tool_args: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> types.CallToolResult:
        """
        Call a tool.

        :param tool_name: Name of the tool at the server.
        :param tool_args: Arguments to pass to the tool.
        :param options: `display_name`: name of the tool in error messages, if it differs. `may_repeat`: whether it
            does no harm if the tool runs twice, so that a call whose outcome is unknown may be sent again.
            `invocation_timeout`: how long this call may take, in seconds; default: the connection's. `secrets`:
            the secrets among the arguments, which are redacted where the server quotes them in errors. `meta`: the
            `_meta` of the request, for data beside the arguments. `on_progress`: called with an MCPProgress for each
            progress report of the tool, in this thread, before the call returns; if it raises, the error is logged,
            and further reports of this call are skipped.
        :returns: The result.
        :raises MCPInvocationError: If the tool reports an error or the call fails.
        :raises TimeoutError: If the call takes longer than `invocation_timeout`; as an MCPTimeoutError, which is also
            an MCPInvocationError.
        :raises ValueError: If `on_progress` is asynchronous.
        """
        return self._deliver(_require_sync_progress(call_request(tool_name, tool_args, **options)))

    async def call_tool_async(
        self, tool_name: str, tool_args: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> types.CallToolResult:
        """
        Do the same as `call_tool` without blocking the event loop.

        `on_progress` is called in that loop and may be asynchronous.
        """
        return await self._deliver_async(call_request(tool_name, tool_args, **options))

    def begin_call(
        self, tool_name: str, tool_args: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> types.CallToolResult | MCPPendingCall:
        """
        Call a tool, and return early if the server runs it as a task or needs input from the user first.

        Servers of revision 2026-07-28 do that. They ask for input only if the connection has
        `MCPHandlers(elicitation=answer_later)`, or another handler, which then answers.

        :param tool_name: Name of the tool at the server.
        :param tool_args: Arguments to pass to the tool.
        :param options: As for `call_tool`. A call that is left open does not contain the `secrets`.
        :returns: The result; or the call that is left open, for `continue_call` in this or any other process.
        :raises MCPInvocationError: As for `call_tool`.
        :raises ValueError: As for `call_tool`.
        """
        try:
            return self._deliver(
                _require_sync_progress(call_request(tool_name, tool_args, leaves_tasks=True, **options))
            )
        except MCPCallPendingError as error:
            return error.pending_call

    async def begin_call_async(
        self, tool_name: str, tool_args: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> types.CallToolResult | MCPPendingCall:
        """
        Do the same as `begin_call` without blocking the event loop.
        """
        try:
            return await self._deliver_async(call_request(tool_name, tool_args, leaves_tasks=True, **options))
        except MCPCallPendingError as error:
            return error.pending_call

    def continue_call(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        withheld: Mapping[str, Any] | None = None,
        **options: Unpack[CallKeywords],
    ) -> types.CallToolResult:
        """
        Continue a call that was left open, on this or any other connection to the same server.

        It sends the answers to the server's questions, or waits for the end of a task.

        :param call: The call.
        :param answers: The answers to `call.questions` by their keys: for a form a dictionary of its values; True to
            accept a form with its defaults, or a URL that was opened; False to decline; None to cancel. Questions
            without an answer go to the handler `elicitation`, unless that is `answer_later`.
        :param withheld: The values of the arguments in `call.withheld`, which are Secrets.
        :param options: As for `call_tool`.
        :returns: The result.
        :raises MCPCallPendingError: If the server has further questions. The call is in its `pending_call`.
        :raises MCPInvocationError: As for `call_tool`; also if the server has forgotten the call.
        :raises ValueError: If an answer or an argument is missing, unknown, or does not fit its form; if the call
            belongs to another server, or cannot be continued. Nothing was sent.
        """
        return self._deliver(_require_sync_progress(self._continuation_request(call, answers, withheld, options)))

    async def continue_call_async(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        withheld: Mapping[str, Any] | None = None,
        **options: Unpack[CallKeywords],
    ) -> types.CallToolResult:
        """
        Do the same as `continue_call` without blocking the event loop.
        """
        return await self._deliver_async(self._continuation_request(call, answers, withheld, options))

    async def _cancel_call(self, call: MCPPendingCall) -> bool:
        """
        Ask the server to end the task of a call that was left open.

        :param call: The call.
        :returns: Whether the server was asked. False for a call that is not a task: the server need not be told.
        :raises MCPConnectionError: If that fails, e.g. because the server has forgotten the task.
        :raises ValueError: If `call` is no MCPPendingCall, or belongs to another server.
        """
        task_id = self._checked_call(call).task_id
        if task_id is not None:
            await self._runner._ask("tasks/cancel", lambda client: client.cancel_task(task_id))
        return task_id is not None

    cancel_call: Final = blocking(_cancel_call)
    cancel_call_async: Final = asynchronous(_cancel_call)

    def _checked_call(self, call: MCPPendingCall) -> MCPPendingCall:
        if not isinstance(call, MCPPendingCall):
            msg = f"`call` must be an MCPPendingCall, as of MCPPendingCall.from_dict(stored), got {type(call).__name__}"
            raise ValueError(msg)
        this_server = self._describe_server()
        if call.server and call.server != this_server:
            msg = (
                f"`call` is one of {call.server}, and this is a connection to {this_server}. If that is the same "
                'server, pass `dataclasses.replace(call, server="")`.'
            )
            raise ValueError(msg)
        return call

    def _continuation_request(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None,
        withheld: Mapping[str, Any] | None,
        options: CallKeywords,
    ) -> CallRequest:
        if not self._checked_call(call).can_be_continued:
            msg = (
                "`call` has nothing to go on with: no task, no questions and no request state. Pass what was stored, "
                "or begin a call with `begin_call`."
            )
            raise ValueError(msg)
        values = dict(withheld or {})
        if set(values) != set(call.withheld):
            msg = f"`withheld` must have the arguments {sorted(call.withheld)}, and no others; it has {sorted(values)}"
            raise ValueError(msg)
        options["secrets"] = (*texts("secrets", options.get("secrets", ())), *texts_in(values))
        return call_request(call.tool_name, {**call.arguments, **values}, continues=(call, answers), **options)

    def _deliver(self, request: CallRequest) -> types.CallToolResult:
        reports = None if request.on_progress is None else ThreadReports(request.on_progress)
        request.report = None if reports is None else reports.put
        self._users.calls.add(request)
        try:
            with self._traced(request) if is_tracing_enabled() else _NOT_TRACED:
                try:
                    # Before the coroutine is made, which a failure would leave unawaited.
                    executor = AsyncExecutor.get_instance()
                    call, max_wait = self._call(request)
                    result = executor.run(call, max_wait, waiter=reports, has_limit=True)
                except MCPInvocationError:
                    raise
                except (OSError, RuntimeError) as error:
                    if is_from_caller(error):
                        raise
                    raise executor_failure(error, request) from error
            return result
        finally:
            self._users.calls.discard(request)
            if self._users.is_to_be_closed and self._users.closes_after_call():
                self._leave()

    async def _deliver_async(self, request: CallRequest) -> types.CallToolResult:
        reports = None if request.on_progress is None else LoopReports(request.on_progress)
        request.report = None if reports is None else reports.add
        self._users.calls.add(request)
        try:
            with self._traced(request) if is_tracing_enabled() else _NOT_TRACED:
                try:
                    # Before the coroutine is made, which a failure would leave unawaited.
                    executor = AsyncExecutor.get_instance()
                    call, max_wait = self._call(request)
                    operation = executor.run_async(call, max_wait, has_limit=True)
                    result = await (operation if reports is None else reports.wait(operation))
                except MCPInvocationError:
                    raise
                except (OSError, RuntimeError) as error:
                    raise executor_failure(error, request) from error
            return result
        finally:
            self._users.calls.discard(request)
            if self._users.is_to_be_closed and self._users.closes_after_call():
                self._leave()

    @contextmanager
    def _counted(self, call: object) -> Iterator[None]:
        self._users.calls.add(call)
        try:
            yield
        finally:
            self._users.calls.discard(call)
            if self._users.is_to_be_closed and self._users.closes_after_call():
                self._leave()

    def _traced(self, request: CallRequest) -> AbstractContextManager[None]:
        return traced_call(request.tool_name, self.server_info, self._describe_server(), self._details)

    def _call(self, request: CallRequest) -> tuple[Coroutine[Any, Any, types.CallToolResult], float | None]:
        """
        Set the limits of a call, and make its coroutine.

        :returns: A coroutine for the executor's loop, and how long to wait for it if the loop is blocked, in seconds.
        """
        limits = self._limits
        if request.invocation_timeout is not None:
            limits = limits.within(request.invocation_timeout)
        request.limits, request.admission = limits, self._admission
        request.connection_timeout = waits = self.connection_timeout
        max_wait = None if limits.max_call_time is None else waits + limits.max_call_time
        sessions = self._server_sessions  # another thread may close the connection meanwhile
        if sessions is None or self._interceptors:
            return self._prepare_and_call(request), max_wait
        return sessions.call(request), max_wait

    async def _prepare_and_call(self, request: CallRequest) -> types.CallToolResult:
        await load_modules(self.server_info)  # the first session of a process needs the types of the protocol
        if not self._interceptors:
            return await self._acquire().call(request)

        def send(following: CallRequest) -> Coroutine[Any, Any, types.CallToolResult]:
            return self._acquire().call(following)

        call = InterceptedCall(self._interceptors, request, server=self._describe_server(), send=send)
        return await call.run()

    def _submit(self, body: Coroutine[Any, Any, T]) -> T:
        with self._counted(body):
            return self._executor(body).run(body, self._max_wait, has_limit=True)

    async def _submit_async(self, body: Coroutine[Any, Any, T]) -> T:
        with self._counted(body):
            return await self._executor(body).run_async(body, self._max_wait, has_limit=True)

    def _executor(self, body: Coroutine[Any, Any, Any]) -> AsyncExecutor:
        try:
            return AsyncExecutor.get_instance()
        except ExecutorStartError as error:
            body.close()
            raise self._not_started(error) from error

    def _not_started(self, error: Exception) -> MCPConnectionError:
        msg = f"Failed to connect to {self.server_info.describe()}: {error}."
        return MCPConnectionError(msg, self.server_info, "connect")

    async def _acquire_async(self) -> ServerSessions:
        """
        Return the sessions with the server. Await this in the executor's loop.
        """
        try:
            if self._server_sessions is None:
                await load_modules(self.server_info)  # the first session of a process needs the types of the protocol
            return self._acquire()
        except (OSError, RuntimeError) as error:  # e.g. the process cannot start a thread
            raise self._not_started(error) from error

    async def _with_session(self, operation: Callable[[Supervisor], Coroutine[Any, Any, T]]) -> T:
        return await (await self._acquire_async()).run(operation, self.connection_timeout)

    async def _cached_listing(self, requested: Sequence[str] = ()) -> ToolListing:
        recorder, server = call_recorder.get(), self.server_info.describe()
        if recorder is not None and (recorded := recorder.listing(server)) is not None:
            self._recorded_instructions = recorded.instructions
            return recorded
        began = next_tick()
        listing = await self._with_session(lambda supervisor: supervisor.cached_listing(self.connection_timeout))
        if listing.tick < began and not {tool.name for tool in listing.tools}.issuperset(requested):
            # Another user requested this listing earlier; the server may have added the tool without a notification.
            listing = await self._fresh_listing()
        if recorder is not None:
            recorder.keep_listing(server, listing)
        return listing

    _open: Final = blocking(_cached_listing)
    _open_async: Final = asynchronous(_cached_listing)

    async def _fresh_listing(self) -> ToolListing:
        return await self._with_session(lambda supervisor: supervisor.list_tools(self.connection_timeout))

    _list: Final = blocking(_fresh_listing)
    _list_async: Final = asynchronous(_fresh_listing)

    async def _list_if_open_async(self) -> ToolListing:
        """
        List the tools in the session of the server info if it is open.
        """
        sessions = self._server_sessions
        if sessions is None:
            msg = f"{self.server_info.describe()} is not connected"
            raise MCPConnectionError(msg, self.server_info, "list_tools")
        body = sessions.default.list_tools_if_open(self.connection_timeout)
        # Not counted as a user: no caller waits for it, and it must not delay the closing.
        return await self._executor(body).run_async(body, self.connection_timeout, has_limit=True)

    def open(self) -> tuple[int, list[types.Tool]]:
        """
        Open the session, if none is open.

        :returns: Its number, and the tools from the latest listing.
        :raises MCPConnectionError: If it cannot be opened.
        """
        listing = self._open()
        return listing.generation, _copy_tools(listing)

    async def open_async(self) -> tuple[int, list[types.Tool]]:
        """
        Do the same as `open` without blocking the event loop.
        """
        listing = await self._open_async()
        return listing.generation, _copy_tools(listing)

    def list_tools(self) -> list[types.Tool]:
        """
        List the current tools of the server, all pages of them.

        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        """
        return _copy_tools(self._list())

    async def list_tools_async(self) -> list[types.Tool]:
        """
        Do the same as `list_tools` without blocking the event loop.
        """
        return _copy_tools(await self._list_async())

    def _watch(self, watcher: Watcher) -> Unsubscribe:
        with pool.lock():
            self._watchers.add(watcher)
            if self._server_sessions is not None:
                _post(self._server_sessions.default.watchers.add, watcher)
        connection = weakref.ref(self)

        def unwatch() -> None:
            watched = connection()
            if watched is not None:
                watched._unwatch(watcher)

        return unwatch

    def _unwatch(self, watcher: Watcher) -> None:
        with pool.lock():
            self._watchers.discard(watcher)
            if self._server_sessions is not None:
                _post(self._server_sessions.default.watchers.remove, watcher)

    async def _subscribed(self, uri: str) -> None:
        await (await self._acquire_async()).default.subscribe(uri, self.connection_timeout)

    def _has_own_session(self) -> bool:
        """
        Return whether the session of the server info is open. Thread-safe.
        """
        sessions = self._server_sessions
        return sessions is not None and sessions.default.is_ready()

    @property
    def _runner(self) -> MCPConnection:
        return self

    async def _ask(self, operation: str, read: Read[T], *, may_repeat: bool = True) -> T:
        timeout = self._read_limit
        return await self._with_session(
            lambda supervisor: supervisor.read(
                operation,
                lambda session: session.read(operation, read, timeout),
                self.connection_timeout,
                timeout,
                may_repeat=may_repeat,
            )
        )

    @property
    def _read_limit(self) -> float:
        # Reads have a limit even if calls have none.
        return DEFAULT_READ_TIMEOUT if self.invocation_timeout is None else self.invocation_timeout

    @property
    def _max_wait(self) -> float:
        return self.connection_timeout + self._read_limit

    @property
    def instructions(self) -> str | None:
        """
        The server's instructions. See `Reading`.
        """
        return self._recorded_instructions if self._details() is None else super().instructions

    def _details(self) -> ServerDetails | None:
        session = self._session
        return None if session is None else session.details

    def _unusable_tools(self) -> dict[str, str]:
        """
        Return the tools that were left out of the server's listing, each with the reason.
        """
        session = self._session
        return {} if session is None else session.client.unusable_tools()

    def _latest_definition(self, tool_name: str) -> types.Tool | None:
        """
        Return a tool's definition from the latest listing; None without an open session.
        """
        session = self._session
        tools = [] if session is None else session.listing.tools
        return next((tool for tool in tools if tool.name == tool_name), None)

    def _has_changed_since(self, tick: int) -> bool:
        """
        Return whether the server has reported in an open session, since a listing, that its tools changed.
        """
        supervisor = self._active_supervisor
        return supervisor is not None and supervisor.has_changed_since(tick)

    async def _notify_roots_changed(self) -> bool:
        """
        Notify the server that the function `roots` in `handlers` now returns other roots, so that it asks again.

        In a block of `mcp_request_context`, the session of the caller is notified.

        :returns: Whether the server was notified. False without an open session, and since revision 2026-07-28, in
            which servers ask for the roots in each call.
        :raises MCPConnectionError: If that fails.
        """
        return self.is_ready and await self._ask("notify_roots_changed", lambda client: client.notify_roots_changed())

    notify_roots_changed: Final = blocking(_notify_roots_changed)
    notify_roots_changed_async: Final = asynchronous(_notify_roots_changed)

    def status(self) -> MCPConnectionStatus:
        """
        Return the state of the connection. Never blocks and never connects.

        :returns: A snapshot.
        """
        sessions = self._server_sessions
        if sessions is None:
            return MCPConnectionStatus(state="closed" if self._was_used else "idle")
        supervisor, active = sessions.default, self._active_supervisor or sessions.default
        details = self._details()
        supervisors = (supervisor, *sessions.by_identity.values())
        opened = [session for each in supervisors if (session := each.session) is not None]
        retry_in = max([supervisor.gate.retry_in, *(each.throttle.seconds for each in supervisors)])
        return MCPConnectionStatus(
            state=active.state,
            protocol_version=details.protocol_version if details else None,
            server_name=details.name if details else None,
            server_version=details.version if details else None,
            capabilities=details.capabilities if details else None,
            extensions=details.extensions if details else None,
            users=sessions.users,
            sessions=supervisor.sessions_opened,
            calls=supervisor.calls,
            failed_calls=supervisor.failed_calls,
            in_flight=sum(session.in_flight for session in opened),
            last_error=supervisor.last_error,
            circuit=supervisor.gate.state,
            retry_in=retry_in if retry_in > 0 else None,
            waiting=supervisor.gate.waiting,
            last_error_at=supervisor.last_error_at,
        )

    def close(self) -> None:
        """
        Stop using the session, for all users of this connection; it is closed with the last connection that shares it.

        Open `with` blocks do not prevent it, and calls under way fail: if the connection may have other users, leave a
        `with` block instead. Idempotent and thread-safe. On the executor's own thread it only schedules the close and
        returns. A later use opens a session again.
        """
        sessions = self._leave()
        if sessions is not None and not AsyncExecutor.get_instance().in_loop_thread():
            with _log_close_errors(sessions):
                AsyncExecutor.get_instance().run(_wait_until_closed(sessions), _CLOSE_TIMEOUT)

    def _leave(self) -> ServerSessions | None:
        """
        Stop using the sessions. If they have no other users, close them in the background and return them.
        """
        sessions = self._release()
        if sessions is not None:
            AsyncExecutor.get_instance().post(sessions.close_in_background)
        return sessions

    async def close_async(self) -> None:
        """
        Do the same as `close` without blocking the event loop.
        """
        sessions = self._leave()  # the closing goes on even if the caller is cancelled
        if sessions is not None:
            with _log_close_errors(sessions):
                await AsyncExecutor.get_instance().run_async(_wait_until_closed(sessions), _CLOSE_TIMEOUT)

    def _enter(self) -> None:
        self.open()

    async def _enter_async(self) -> None:
        await self.open_async()

    def _repr_html_(self) -> str:
        return self.status()._html(f"MCPConnection to {self.server_info.describe()}")

    def __repr__(self) -> str:
        """
        Show the server and the state.
        """
        return f"MCPConnection({self.server_info!r}, state={self.status().state!r})"


def _require_sync_progress(request: CallRequest) -> CallRequest:
    if request.on_progress is not None and is_asynchronous(request.on_progress):
        msg = "`on_progress` of a call that blocks must not be asynchronous; use the asynchronous call, or a function"
        raise ValueError(msg)
    return request


def _copy_tools(listing: ToolListing) -> list[types.Tool]:
    # The originals stay private, because others compare with them.
    return [tool.model_copy(deep=True) for tool in listing.tools]


def _post(update: Callable[[Watcher], None], watcher: Watcher) -> None:
    # This runs before the caller's next operation, which goes through the same loop.
    AsyncExecutor.get_instance().post(lambda: update(watcher))


@contextmanager
def _log_close_errors(sessions: ServerSessions) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, RuntimeError) as error:
        server = sessions.default.description
        logger.warning("Closing the session with {server} did not finish: {error}", server=server, error=str(error))


async def _wait_until_closed(sessions: ServerSessions) -> None:
    await asyncio.shield(sessions.close_in_background())
