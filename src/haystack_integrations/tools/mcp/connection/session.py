# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import update_wrapper
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from haystack import logging

from haystack_integrations.tools.mcp.connection.deadlines import Deadlines
from haystack_integrations.tools.mcp.connection.given_up import given_up_tasks_cancelled
from haystack_integrations.tools.mcp.connection.requests import ToolListing
from haystack_integrations.tools.mcp.connection.silence import SilenceWatch
from haystack_integrations.tools.mcp.convert.task_support import needs_tasks
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.executor import AsyncExecutor, Caller, caller_of_operation, keep_forever
from haystack_integrations.tools.mcp.protocol.base import MCPClient, ServerDetails
from haystack_integrations.tools.mcp.protocol.changes import ServerChange, WantedChanges, next_moment
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error, failed_to, outcome_unknown
from haystack_integrations.tools.mcp.protocol.inputs import CallLeftOpenError
from haystack_integrations.tools.mcp.protocol.life import CLOSED_DURING_CALL, SessionLife, SessionState
from haystack_integrations.tools.mcp.protocol.outcome_errors import ReadInterruptedError
from haystack_integrations.tools.mcp.request_context import Identity, current_identity, current_request

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.limits import CallLimits
    from haystack_integrations.tools.mcp.connection.requests import CallRequest
    from haystack_integrations.tools.mcp.protocol.inputs import Continuation

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Our transports bound their own end (2 s for a server to exit by itself, 2 s after each signal); a custom client may
# not.
_CLOSE_TIMEOUT = 15.0

# How long calls have to notice by themselves that their session ended.
_CALLS_END_TIMEOUT = 0.5

# How long a transport may take to notice that its process was killed.
_KILLED_TIMEOUT = 1.0


class SessionOwner(Protocol):
    """
    Who opens sessions and wants to know when one is lost.
    """

    description: str

    def session_lost(self, session: Session, reason: str) -> None:
        """
        Take note that a session ended by itself.

        :param session: The session.
        :param reason: Why.
        """

    def session_closed(self, session: Session) -> None:
        """
        Take note that an open session was closed on purpose.

        :param session: The session.
        """

    def server_changed(self, change: ServerChange) -> None:
        """
        Take note of what the server says has changed.

        :param change: What.
        """

    def server_asks(self) -> AbstractContextManager[None]:
        """
        Take note that the server wants something of a handler.

        :returns: What the handler runs in.
        """
        ...


P = ParamSpec("P")
T = TypeVar("T")


def _redacted(
    method: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]:
    """
    Redact in the errors of a method what the server may quote of its secrets.
    """

    async def run(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(self, *args, **kwargs)
        except Exception as error:
            failure = self._client.redactor.error(error)
            if failure is error:
                del failure  # its traceback holds this frame
                raise
        try:
            raise failure from failure.__cause__  # not in the clause: the context would be back that was left out
        finally:
            del failure

    update_wrapper(run, method)
    return run


class Session:
    """
    One generation: a client from its opening to its closing, in one task that owns it.

    The task connects the client, waits until its life is over, and closes it. Everybody else asks and waits.
    """

    # All that are not closed yet, so that neither garbage collection nor a fork finalises one.
    live: set[Session] = set()  # noqa: RUF012

    def __init__(self, client: MCPClient, *, owner: SessionOwner) -> None:
        """
        Initialize the Session.

        :param client: The client, not yet connected.
        :param owner: Who is told when it is lost.
        """
        self._owner = owner
        self._client = client
        self._task: asyncio.Task[None] | None = None
        # The requests under way, in the order in which they began, with their callers.
        self._calls: dict[asyncio.Task[Any], Caller | None] = {}
        self._abandoned: set[asyncio.Task[Any]] = set()
        # When it was opened, in the seconds of its loop.
        self.opened_at: float | None = None
        self.tools: list[types.Tool] = []
        # Those of them that can only be called as tasks of revision 2025-11-25.
        self.only_as_tasks: frozenset[str] = frozenset()
        # The identity whose tools they are.
        self.listed_by: Any = None
        # When they were asked for, among all listings of the process, and until when they may be kept.
        self.listing: int = 0
        # When the server was asked for them, in the seconds of `time.monotonic`.
        self.listed_at: float = 0.0
        self.tools_expire_at: float | None = None
        # Listens to changes as long as it is open.
        self._attendant: asyncio.Task[None] | None = None
        client.on_change = owner.server_changed
        client.on_question = owner.server_asks
        client.caller = self._latest_caller
        client.requests_under_way = lambda: [*self._calls]
        self._last_caller: Caller | None = None
        self.details: ServerDetails = ServerDetails()
        # Whether the server keeps nothing for it, so that different identities may share it.
        self.is_stateless: bool = False
        # Who made a request last.
        self._user: Identity | None = None
        self._life = client.life = SessionLife(self._lost)
        self._life.redact = client.redactor.text
        self._silence = SilenceWatch(self._life, self._ping)
        self.deadlines: Deadlines = Deadlines()
        client.time_left = self.deadlines.left

    def _latest_caller(self) -> Caller | None:
        # A server's request need not say for which call it is; most often there is one.
        return next(reversed(self._calls.values()), self._last_caller)

    @property
    def is_open(self) -> bool:
        """
        Whether it takes calls. From any thread.
        """
        return self._life.state is SessionState.OPEN

    async def open(self) -> None:
        """
        Open the session.

        :raises MCPConnectionError: If that fails. What was opened so far is closed in the background, as it is when
            the caller is cancelled.
        """
        loop = asyncio.get_running_loop()
        if loop is AsyncExecutor.ending_loop:
            msg = f"Failed to connect to {self._owner.description}: the AsyncExecutor was shut down."
            raise MCPConnectionError(msg, operation="connect")
        opened: asyncio.Future[None] = loop.create_future()
        self._last_caller = caller_of_operation.get()
        # It outlives whoever opens it.
        context = contextvars.copy_context()
        context.run(caller_of_operation.set, None)
        context.run(current_request.set, None)
        self._task = asyncio.create_task(self._run(opened), context=context)
        Session.live.add(self)

        def forget(_: asyncio.Task[None]) -> None:  # a task that is cancelled before its start never runs
            opened.cancel()  # does nothing if it is done
            Session.live.discard(self)

        self._task.add_done_callback(forget)
        try:
            await opened
        except asyncio.CancelledError:
            # If it was opened in this very moment, nobody takes it over.
            self._life.end("nobody waited for it any more", SessionState.CLOSED)
            raise

    async def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            self._life.opening()
            self.listed_by = caller_key()
            self.listing, self.listed_at = next_moment(), monotonic()
            self.tools = await self._client.connect()
            self.only_as_tasks = _only_as_tasks(self.tools)
            self.tools_expire_at = self._expiry()
            self.details = self._client.details()
            self.is_stateless = self._client._is_stateless
            self._life.opened()
            self.opened_at = asyncio.get_running_loop().time()
            if not opened.done():
                opened.set_result(None)
            await self._life.over.wait()
            await self._client.find_reason()
        except asyncio.CancelledError:
            # Opening it was given up; or a transport that lives in this task crashed, which closing tells more about.
            if self._life.interruption() and self._life.loss is not None and not opened.done():
                msg = f"Failed to connect to {self._owner.description}: {self._life.loss}"
                opened.set_exception(MCPConnectionError(msg, operation="connect"))
            self._life.end()
        except Exception as error:
            failure = self._client.redactor.error(error)
            if opened.done():
                self._life.end(describe_error(failure))
            else:
                self._life.end(describe_error(failure), SessionState.CLOSED)
                opened.set_exception(failure)
            del failure  # its traceback holds this frame
        except BaseException as error:
            if _is_being_closed(error, self._task) or opened.done():
                raise
            self._life.end(_raised_by_server(error), SessionState.CLOSED)
            msg = f"Failed to connect to {self._owner.description}: {_raised_by_server(error)}"
            opened.set_exception(MCPConnectionError(msg, operation="connect"))
        finally:
            self._life.opened()  # a cancellation would interrupt the closing
            self._silence.stop()
            opened.cancel()  # does nothing if it is done
            # Nothing is awaited before the closing: a transport that crashed cancels each wait of this task.
            attendant, self._attendant = self._attendant, None
            if attendant is not None:
                attendant.cancel()
            # Beside the closing, which may take long.
            abandoning = asyncio.create_task(self._abandon_calls(attendant))
            try:
                await self._close_client()
                self._life.end("the transport was cancelled")  # if nobody knows better
                if self.opened_at is not None and self._life.state is SessionState.CLOSED:
                    self._owner.session_closed(self)
            finally:
                await abandoning
                self.deadlines.stop()

    def attend(self, task: asyncio.Task[None]) -> None:
        """
        Run a task as long as the session lasts.

        :param task: The task.
        """
        self._attendant = task
        if self._life.state in (SessionState.LOST, SessionState.CLOSED):
            task.cancel()

    @property
    def listens(self) -> bool:
        """
        Whether the revision of the protocol has a stream of changes.
        """
        return self._client.listens

    @_redacted
    async def listen(self, wanted: WantedChanges, acknowledged: Callable[[WantedChanges], None]) -> None:
        """
        Listen to changes until the server ends that. It is not counted as a request under way.

        :param wanted: Which changes.
        :param acknowledged: Called once the server sends them, with those that it does send.
        :raises MCPConnectionError: If the server refuses, or the stream breaks.
        """
        await self._client.listen(wanted, acknowledged)

    @_redacted
    async def subscribe_resource(self, uri: str) -> None:
        """
        Subscribe to changes of a resource, in revisions before 2026-07-28.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        await self._client.subscribe_resource(uri)

    @_redacted
    async def unsubscribe_resource(self, uri: str) -> None:
        """
        End such a subscription.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        await self._client.unsubscribe_resource(uri)

    def _expiry(self) -> float | None:
        ttl = self._client.tools_ttl
        return None if ttl is None else monotonic() + ttl

    async def _close_client(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._client.aclose()
        except Exception as error:
            logger.warning(
                "Closing the session with {server} failed: {error}",
                server=self._owner.description,
                error=self._client.redactor.text(describe_error(error)),
            )

    async def _abandon_calls(self, attendant: asyncio.Task[None] | None) -> None:
        if attendant is not None:
            await asyncio.wait({attendant}, timeout=_CALLS_END_TIMEOUT)
        # The SDK fails the calls of a transport that ended. In process there is none; a custom client may not notice.
        if self._calls:
            await asyncio.wait(self._calls, timeout=_CALLS_END_TIMEOUT)
        for task in list(self._calls):
            self._abandoned.add(task)
            task.cancel()

    def _lost(self, reason: str) -> None:
        if self.opened_at is not None:
            self._owner.session_lost(self, reason)
        if self._life.state is SessionState.DRAINING and not self._calls:
            self._life.end()

    async def reason(self) -> str:
        """
        Give the reason why the session ended, once it is known.

        :returns: A clause.
        """
        return await self._client.find_reason()

    async def close(self) -> None:
        """
        End the session and wait until it is closed.
        """
        self._life.end(CLOSED_DURING_CALL, SessionState.CLOSED)
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait({self._task})

    @_redacted
    async def list_tools(self) -> ToolListing:
        """
        Ask the server for its tools again.

        :returns: The tools; those of the beginning from a client that cannot ask.
        """
        number, asked_at = next_moment(), monotonic()
        try:
            tools = await self._client.list_tools()
        except (asyncio.CancelledError, Exception):
            raise
        except BaseException as error:
            if _is_being_closed(error, asyncio.current_task()):
                raise
            msg = f"Failed to list the tools of {self._owner.description}: {_raised_by_server(error)}"
            raise MCPConnectionError(msg, operation="list_tools") from error
        if tools is None:
            return self.tool_listing()
        if number > self.listing:  # a later one may have been answered earlier
            self.listing, self.tools, self.listed_by = number, tools, caller_key()
            self.listed_at = asked_at
            self.tools_expire_at = self._expiry()
            self.only_as_tasks = _only_as_tasks(tools)
        return ToolListing(number, tools, self._expiry(), instructions=self.details.instructions)

    def tool_listing(self) -> ToolListing:
        """
        Give the tools that the server had when it was asked last.

        :returns: The tools.
        """
        return ToolListing(self.listing, self.tools, self.tools_expire_at, instructions=self.details.instructions)

    def unusable_tools(self) -> dict[str, str]:
        """
        Tell which tools were left out of the listing, although the server has them.

        :returns: The reasons, by the names of the tools.
        """
        return self._client.unusable_tools()

    def why_unusable(self, tool_name: str) -> str | None:
        """
        Say why a tool was left out of the listing, although the server has it.

        :param tool_name: Name of the tool.
        :returns: A clause, or None if it was not left out.
        """
        return self._client.why_unusable(tool_name)

    async def call(
        self,
        request: CallRequest,
        limits: CallLimits,
        *,
        meta: dict[str, Any] | None = None,
        continuation: Continuation | None = None,
        on_progress: Any = None,
    ) -> types.CallToolResult:
        """
        Send the request of a call. To be awaited in a task of the session's loop.

        :param request: What the caller wants.
        :param limits: How long the server may be silent.
        :param meta: The `_meta` of the request.
        :param continuation: What to continue a call with that was left open.
        :param on_progress: Awaited with each report of progress; None not to ask for any.
        :returns: The result, a tool's own error included.
        :raises CallDidNotRunError: If the tool provably did not run.
        :raises CallLeftOpenError: If the server wants something first, or made a task of it.
        :raises MCPOutcomeUnknownError: If the call was sent and never answered.
        """
        # As `read`, without the objects that a decorator and a context manager make of each call.
        task = self._begin(limits.longest_silence, limits.ping_interval)
        try:
            if continuation is not None:
                result = await self._client.request_tool(
                    request.tool_name,
                    request.tool_args,
                    meta=meta,
                    on_progress=on_progress,
                    continuation=continuation,
                )
            elif meta is None and on_progress is None:  # a custom client may not know more
                result = await self._client.request_tool(request.tool_name, request.tool_args)
            else:
                result = await self._client.request_tool(
                    request.tool_name, request.tool_args, meta=meta, on_progress=on_progress
                )
            self._life.heard()  # there are no streams in process, and a custom client may have none
            return result
        except CallLeftOpenError:
            raise  # the server wants back what it gave to go on with, as it is
        except Exception as error:
            failure = self._client.redactor.error(error)
            if failure is error:
                del failure  # its traceback holds this frame
                raise
        except BaseException as error:
            failure = self._client.redactor.error(
                self._interrupted(
                    error, task, lambda reason: outcome_unknown(reason, request.tool_name, request.tool_args)
                )
            )
        finally:
            self._end(task)
            del task  # it holds an error whose traceback holds this frame
        try:
            raise failure from failure.__cause__  # not in the clause: the context would be back that was left out
        finally:
            del failure

    @_redacted
    async def read(self, operation: str, read: Callable[[MCPClient], Awaitable[T]]) -> T:
        """
        Read something of the server. To be awaited in a task of the session's loop.

        :param operation: What that is, for errors.
        :param read: Does it.
        :returns: Its result.
        :raises ReadInterruptedError: If the connection broke meanwhile.
        :raises MCPConnectionError: If it fails otherwise.
        """

        def interrupted(reason: str) -> Exception:
            msg = f"{failed_to(operation, self._owner.description)}: {reason}"
            return ReadInterruptedError(msg, operation=operation)

        with self._under_way(interrupted):
            return await read(self._client)

    @_redacted
    async def ask_handlers(self, ask: Callable[[MCPClient], Awaitable[T]]) -> T:
        """
        Let the handlers answer what the server wants to know for a task.

        That is not counted as a request under way, so that nobody is asked twice because the session ends meanwhile.

        :param ask: Does it.
        :returns: Its result.
        """
        return await ask(self._client)

    @contextmanager
    def _under_way(self, unanswered: Callable[[str], Exception]) -> Iterator[None]:
        """
        Count a request as under way, and end it if the session ends and nobody else does.

        :param unanswered: Makes the error of a request that is not answered any more, from the reason.
        :returns: A context manager.
        """
        task = self._begin()
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            failure = self._interrupted(error, task, unanswered)
            try:
                raise failure from failure.__cause__
            finally:
                del failure  # its traceback holds this frame
        finally:
            self._end(task)
            del task  # likewise, with an error

    def _begin(self, longest_silence: float | None = None, ping_interval: float | None = None) -> asyncio.Task[Any]:
        """
        Count a request as under way.

        :param longest_silence: After how many seconds of silence the session is given up; None for never.
        :param ping_interval: How long the server may be silent until it is pinged, in seconds; None for no pings.
        :returns: The running task, which makes it.
        """
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._calls[task] = self._last_caller = caller_of_operation.get()
        current_request.set(task)
        self._user = current_identity.get()
        self._silence.begin(task, longest_silence, ping_interval)
        return task

    def _interrupted(
        self, error: BaseException, task: asyncio.Task[Any], unanswered: Callable[[str], Exception]
    ) -> Exception:
        """
        Make the error of a request that is not answered any more, or raise one that is somebody else's matter.

        :param error: What ended the request, beyond Exception.
        :param task: The task that made it.
        :param unanswered: Makes the error from the reason.
        :returns: The error, with its cause.
        """
        if isinstance(error, asyncio.CancelledError):
            if task in self._abandoned and task.cancelling() <= 1:
                return unanswered(self._life.reason or "the session ended")
        elif not _is_being_closed(error, task):
            failure = unanswered(_raised_by_server(error))
            failure.__cause__ = error
            return failure
        try:
            raise error
        finally:
            del error, task  # its traceback holds this frame

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._calls.pop(task, None)
        current_request.set(None)
        self._silence.end(task)
        if task in self._abandoned:
            self._abandoned.discard(task)
            task.uncancel()
        if self._life.state is SessionState.DRAINING and not self._calls:
            self._life.end()

    async def _ping(self) -> bool:
        # It is part of nobody's call, but the server wants to know whose session it is.
        current_identity.set(self._user)
        return await self._client.ping()

    def heard(self) -> None:
        """
        Note that the server sent something.
        """
        self._life.heard()

    @classmethod
    async def close_all(cls) -> None:
        """
        Close the sessions of the running loop. If this is cancelled, kill those that are not closed by then.
        """
        sessions = cls.of_running_loop()
        try:
            await asyncio.gather(*(session.close() for session in sessions))
        except asyncio.CancelledError:
            _kill(sessions)
            # Whoever cancelled this ends the loop next; a transport must have noticed the end of its process before.
            tasks = [session._task for session in sessions if session._task is not None]
            if tasks:
                await asyncio.wait(tasks, timeout=_KILLED_TIMEOUT)
            raise
        _kill(sessions)  # those whose closing took too long, and was given up

    @classmethod
    def of_running_loop(cls) -> list[Session]:
        """
        Give the sessions that are alive in the running loop, as opposed to those of an executor that was shut down.

        :returns: The sessions.
        """
        loop = asyncio.get_running_loop()
        return [session for session in cls.live if session._task is not None and session._task.get_loop() is loop]

    def kill(self) -> None:
        """
        End at once what is left of a session that was closed, or that cannot be closed in time.
        """
        self._client.kill()

    def belongs_to(self, owner: SessionOwner) -> bool:
        """
        Tell whose session it is.

        :param owner: An owner of sessions.
        :returns: True if it is this one's.
        """
        return self._owner is owner

    def was_silent_since(self, moment: float) -> bool:
        """
        Tell whether the server has sent nothing since a moment.

        :param moment: In the seconds of `time.monotonic`.
        :returns: True if it has not.
        """
        return self._life.heard_at < moment

    @property
    def in_flight(self) -> int:
        """
        How many calls are under way.
        """
        return len(self._calls)

    def progress(self) -> str:
        """
        Say how far the opening has come.

        :returns: A clause, or the empty string.
        """
        return self._client.redactor.text(self._client.progress())


def _only_as_tasks(tools: list[types.Tool]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if needs_tasks(tool))


def caller_key() -> Any:
    """
    Return the key of the identity on whose behalf the running operation is; None for that of the server info.
    """
    identity = current_identity.get()
    return identity.key if identity is not None else None


def _raised_by_server(error: BaseException) -> str:
    # What a server in this process raises beyond Exception must end neither the loop nor the program of the caller.
    return f"the server raised {type(error).__name__}"


def _is_being_closed(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    # Whoever closes a coroutine that has not ended, e.g. garbage collection, is not in its task.
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is not task
    except RuntimeError:  # there is no running loop
        return True


def _kill(sessions: Iterable[Session]) -> None:
    for session in sessions:
        session.kill()


def _forget_after_fork() -> None:
    # They are the parent's. Finalising them here would kill the parent's server processes.
    keep_forever(Session.live)
    Session.live = set()


# First: closing a session may leave processes behind, which another hook waits for. Before that, a server hears of the
# tasks whose callers were interrupted, most likely with the whole program.
AsyncExecutor.before_shutdown[:0] = [given_up_tasks_cancelled, Session.close_all]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
