# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One session with a server: its requests, their deadlines, and the errors of requests that are not answered.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from haystack import logging

from haystack_integrations.tools.mcp.connection.requests import ToolListing, call_recorder
from haystack_integrations.tools.mcp.convert.tool_schemas import needs_tasks
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.executor import AsyncExecutor, Caller, caller_of_operation, keep_forever
from haystack_integrations.tools.mcp.protocol.changes import next_tick
from haystack_integrations.tools.mcp.protocol.channel import (
    CLOSED_DURING_CALL,
    MAX_WAIT_OUTSIDE_CALLS,
    SessionLife,
    SessionOwner,
    SessionState,
)
from haystack_integrations.tools.mcp.protocol.mcp_client import MCPClient
from haystack_integrations.tools.mcp.protocol.negotiation import ServerDetails
from haystack_integrations.tools.mcp.protocol.request_errors import ReadInterruptedError, describe_error, failed_to
from haystack_integrations.tools.mcp.protocol.requests_of_server import CallLeftOpenError
from haystack_integrations.tools.mcp.protocol.server_info import extended_by_logins
from haystack_integrations.tools.mcp.request_context import Identity, current_identity, current_request

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo


logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# How much longer than its limit silence may be, in seconds. A call with the same limit, which a long
# `invocation_timeout` has by default, then times out first, and a message that arrives at that moment, such as the
# answer to a ping, still counts.
_SILENCE_TOLERANCE = 0.1

# How late a check of the limits must be to show that this process was stopped (Ctrl+Z, a paused container) or its loop
# blocked, and how long the loop then has to read what arrived meanwhile, in seconds.
_STOPPED_AFTER = 1.0

# Timers and pings belong to no call, so they must not see the context variables of one.
_empty_context = contextvars.Context()


class DeadlineError(Exception):
    """
    Raised when a request exceeds its deadline.
    """


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """
    One request that is under way. It is created in the task that waits for the answer.

    :param deadline: When it is given up, in the seconds of `time.monotonic`; None for never.
    :param max_silence: After how many seconds of silence the session may be given up; None for never.
    :param ping_interval: After how many seconds of silence the server is pinged; None for no pings.
    :param awaited_until: When its caller stops waiting, in the seconds of `time.monotonic`; None for never.
    """

    deadline: float | None = None
    max_silence: float | None = None
    ping_interval: float | None = None
    awaited_until: float | None = None
    task: asyncio.Task[Any] = field(init=False, default_factory=cast("Any", asyncio.current_task))
    caller: Caller | None = field(init=False, default_factory=caller_of_operation.get)
    has_ended: bool = field(init=False, default=False)
    # Set by `give_up`. An `asyncio.timeout` would do the same, but with a timer for each request.
    is_given_up: bool = field(init=False, default=False)
    # How often the task was cancelled before.
    cancelled_before: int = field(init=False, default=0)

    @property
    def is_over(self) -> bool:
        """
        Whether it was answered or given up.
        """
        return self.has_ended or self.is_given_up

    @property
    def seconds_left(self) -> float | None:
        """
        How much longer it may take, in seconds; None for no limit.
        """
        end = self.awaited_until if self.deadline is None else self.deadline
        return None if end is None else max(end - monotonic(), 0.0)

    def extend(self, seconds: float) -> None:
        """
        Move the deadline, if there is one.

        :param seconds: By how many seconds.
        """
        if self.deadline is not None:
            self.deadline += seconds
        if self.awaited_until is not None:
            self.awaited_until += seconds

    def give_up(self) -> None:
        """
        Cancel the request if it is not over.
        """
        if not self.is_over:
            self.is_given_up = True
            self.task.cancel()

    @property
    def is_only_given_up(self) -> bool:
        """
        Whether `give_up` is the only one that has cancelled the task.
        """
        return self.is_given_up and self.task.cancelling() == self.cancelled_before + 1


class Watchdog:
    """
    Gives up requests at their deadlines, and a session whose server is silent for too long.

    It is used in the event loop of the session. Silence is counted only while requests are under way, from the last
    time that the server sent anything. If there are several requests, the most patient one decides. One timer serves
    all of them, and goes on for a while after the last one.
    """

    def __init__(self, life: SessionLife) -> None:
        """
        Initialize the Watchdog.

        :param life: The life of the session, which knows when the server sent something last.
        """
        self._life = life
        # By their tasks, in the order in which they began.
        self.requests: dict[asyncio.Task[Any], InFlightRequest] = {}
        # When silence began, unless the server was heard later. It moves by the pauses between requests.
        self._silent_since = self._paused_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._next_check = 0.0
        self._is_catching_up = False

    def begin(self, request: InFlightRequest) -> None:
        """
        Watch a request.

        :param request: The request.
        """
        now = monotonic()
        if not self.requests:
            self._silent_since += now - self._paused_at
        self.requests[request.task] = request
        request.cancelled_before = request.task.cancelling()
        next_check = request.deadline
        if request.max_silence is not None:
            silent_at = request.max_silence + max(self._silent_since, self._life.heard_at)
            next_check = silent_at if next_check is None else min(next_check, silent_at)
        if next_check is not None and (self._timer is None or next_check < self._next_check):
            self._schedule_check(next_check)

    def end(self, request: InFlightRequest) -> None:
        """
        Note the end of a request.

        :param request: The request.
        """
        request.has_ended = True
        if request.is_given_up:
            request.task.uncancel()
        del self.requests[request.task]
        if not self.requests:
            self._silent_since, self._paused_at = max(self._silent_since, self._life.heard_at), monotonic()
            limit = request.max_silence
            if limit is not None and self._paused_at - self._silent_since >= limit:
                self._give_up(limit)  # the silence has reached its limit as well; the next request must not fail for it

    def stop(self) -> None:
        """
        Stop watching.
        """
        if self._timer is not None:
            self._timer.cancel()

    def _schedule_check(self, moment: float) -> None:
        self.stop()
        self._next_check = moment
        seconds = max(moment - monotonic(), 0.001)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check, context=_empty_context)

    def _check(self) -> None:
        self._timer = None
        now = monotonic()
        self._is_catching_up = not self._is_catching_up and now - self._next_check > _STOPPED_AFTER
        if self._is_catching_up:
            self._schedule_check(now + _STOPPED_AFTER)
            return
        next_checks = []
        for request in self.requests.values():
            if request.deadline is None:
                continue
            if request.deadline <= now:
                request.give_up()
            else:
                next_checks.append(request.deadline)
        limits = [each.max_silence for each in self.requests.values() if each.max_silence is not None]
        if limits:
            silent_at = max(limits) + max(self._silent_since, self._life.heard_at) + _SILENCE_TOLERANCE
            if len(limits) < len(self.requests):
                next_checks.append(now + min(limits))  # the most patient request may have ended by then
            elif now < silent_at:
                next_checks.append(silent_at)
            else:
                self._give_up(max(limits))
        if next_checks:
            self._schedule_check(min(next_checks))

    def _give_up(self, limit: float) -> None:
        self._life.end(
            f"the server has sent nothing for {limit:g} seconds while a call was under way. If its tools are silent "
            "for longer, raise `read_timeout`"
        )


# One counter for the whole process, so that the generations of a connection grow even after it was closed.
_generations = itertools.count(1)

# Built-in transports close within a limit (2 s for a server to exit by itself, 2 s after each signal); a custom client
# may not.
_CLOSE_TIMEOUT = 15.0

# How long calls have to notice by themselves that their session ended, in seconds.
_CALLS_END_TIMEOUT = 0.5

# How long a transport may take to notice that its process was killed, in seconds.
_KILLED_TIMEOUT = 1.0


class Session(SessionOwner):
    """
    One generation: a client from its opening to its closing, in one task that owns it.

    The task connects the client, waits until its life is over, and closes it. All other code posts requests and waits.
    """

    opens_client = True
    # All sessions that are not closed yet, so that neither garbage collection nor a fork finalises one.
    live: set[Session] = set()  # noqa: RUF012

    def __init__(
        self,
        client: MCPClient,
        server_info: MCPServerInfo,
        server: str,
        *,
        on_end: Callable[[Session, str | None], None],
        supervisor: object,
    ) -> None:
        """
        Initialize the Session.

        :param client: The client, not yet connected.
        :param server_info: How the server is reached.
        :param server: Describes the server.
        :param on_end: Called when a session that was open has ended: with the reason, or with None if it was closed on
            purpose.
        :param supervisor: What opens it.
        """
        super().__init__()
        self.supervisor = supervisor
        self.client: MCPClient = client
        self._server = server
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        # Whether its task may be cancelled. The steps before and after connecting are short, or clean up.
        self._is_connecting = False
        # When it was opened, in the seconds of `time.monotonic`.
        self.opened_at: float | None = None
        # Its number among all sessions of the process; 0 until it is open.
        self.generation: int = 0
        # The tools from the latest listing.
        self.listing: ToolListing = ToolListing()
        # The names of tools that can only be called as tasks of revision 2025-11-25.
        self.task_only_tools: frozenset[str] = frozenset()
        # Listens to changes while the session is open.
        self.listener_task: asyncio.Task[None] | None = None
        self._last_caller: Caller | None = None
        self.details: ServerDetails = ServerDetails()
        # Whether the server keeps no state for the session, so that different identities may share it.
        self.is_stateless: bool = False
        # The identity that made the latest request.
        self._latest_identity: Identity = current_identity.get()
        # The state of the session, why it ended, and when the server was heard last.
        self.life: SessionLife = SessionLife(self)
        client.life = self.life
        self.request_tool: Callable[..., Coroutine[Any, Any, types.CallToolResult]] = client.request_tool
        self.life.redact = client.redactor.text
        self._watchdog = Watchdog(self.life)
        self._login_info = server_info if server_info._may_log_in else None
        # Whether the client supports pings, as far as is known.
        self._may_ping = True

    def requests_in_flight(self) -> list[asyncio.Task[Any]]:
        """
        Return the tasks of the requests in flight.
        """
        return [*self._watchdog.requests]

    def latest_identity(self) -> Identity:
        """
        Return the identity of the latest request.
        """
        return self._latest_identity

    def caller(self) -> Caller | None:
        """
        Return the caller of the latest request: the server need not name the call, and most often there is only one.
        """
        latest = next(reversed(self._watchdog.requests.values()), None)
        return self._last_caller if latest is None else latest.caller

    @property
    def is_open(self) -> bool:
        """
        Whether it takes calls. Thread-safe.
        """
        return self.life.state is SessionState.OPEN

    async def open(self) -> None:
        """
        Open the session.

        :raises MCPConnectionError: If that fails. What was opened so far is closed in the background, as it is when
            the caller is cancelled.
        """
        loop = asyncio.get_running_loop()
        if loop is AsyncExecutor.ending_loop:
            msg = "the AsyncExecutor was shut down."
            raise self._not_opened(msg)
        opened: asyncio.Future[None] = loop.create_future()
        self._last_caller = caller_of_operation.get()
        # The session outlives the operation that opens it, and its durable run.
        context = contextvars.copy_context()
        context.run(caller_of_operation.set, None)
        context.run(current_request.set, None)
        context.run(call_recorder.set, None)
        self._task = asyncio.create_task(self._run(opened), context=context)
        Session.live.add(self)

        def forget(_: asyncio.Task[None]) -> None:  # a task that is cancelled before its start never runs
            opened.cancel()  # no effect if it is done
            Session.live.discard(self)

        self._task.add_done_callback(forget)
        try:
            await opened
        except asyncio.CancelledError:
            # The session may have been opened at this very moment, and would have no user.
            self._end("its callers had stopped waiting")
            raise

    def _not_opened(self, reason: str) -> MCPConnectionError:
        return MCPConnectionError(f"Failed to connect to {self._server}: {reason}", operation="connect")

    async def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            self.life.opening()
            tick = next_tick()
            self._is_connecting = True
            try:
                tools = await self.client.connect()
            finally:
                self._is_connecting = False
            if tools is None:
                msg = f"`connect` of {type(self.client).__name__} must return the server's tools, it returned None"
                raise TypeError(msg)
            self.details = self.client.details()
            self.is_stateless = self.client._is_stateless
            self.generation = next(_generations)
            self._note_listing(tools, tick)
            self.life.opened()
            self.opened_at = monotonic()
            if not opened.done():
                opened.set_result(None)
            await self.life.ended_event.wait()
            await self.client.find_reason()
        except asyncio.CancelledError:
            # Opening was given up; or a transport that lives in this task crashed, and closing it shows the cause.
            if self.life.loss is not None and not opened.done():
                opened.set_exception(self._not_opened(self.life.loss))
            self.life.end()
        except Exception as error:
            failure = self.client.redactor.error(error)
            self.life.end(describe_error(failure), SessionState.LOST if opened.done() else SessionState.CLOSED)
            if not opened.done():
                opened.set_exception(failure)
        except BaseException as error:
            if isinstance(error, GeneratorExit) or opened.done():
                raise
            self.life.end(_raised_by_server(error), SessionState.CLOSED)
            opened.set_exception(self._not_opened(_raised_by_server(error)))
        finally:
            self._watchdog.stop()
            opened.cancel()  # no effect if it is done
            # Nothing is awaited before the closing, because a transport that crashed cancels each wait of this task.
            if self.listener_task is not None:
                self.listener_task.cancel()
            # This runs beside the closing, which may take long.
            abandoning = asyncio.create_task(self._abandon_calls())
            try:
                await self._close_client()
                self.life.end("the transport was cancelled")  # unless there is an earlier reason
                if self.opened_at is not None and self.life.state is SessionState.CLOSED:
                    self._on_end(self, None)
            finally:
                await abandoning

    def time_left(self) -> float | None:
        """
        Return how many seconds the request of the running task may still take.
        """
        task = asyncio.current_task()
        request = None if task is None else self._watchdog.requests.get(task)
        if request is None:  # a request of the opening, or one in the background
            return MAX_WAIT_OUTSIDE_CALLS if self.opened_at is None else None
        return request.seconds_left

    async def uncounted(self, request: Awaitable[T]) -> T:
        """
        Await something without counting it as in flight: it cannot outlive the session, or must not end with it.

        :param request: Awaits something of the client.
        :returns: Its result.
        :raises MCPConnectionError: If that fails.
        """
        try:
            return await request
        except Exception as error:
            failure = error
        # Outside of the `except` clause, so that the original error is not its context.
        raise self.client.redactor.error(failure)

    async def _close_client(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self.client.aclose()
        except Exception as error:
            logger.warning(
                "Closing the session with {server} failed: {error}",
                server=self._server,
                error=self.client.redactor.text(describe_error(error)),
            )

    async def _abandon_calls(self) -> None:
        # A channel fails the calls of a transport that ended. A custom client may not, so its calls are given up.
        unfinished = {*self._watchdog.requests, *filter(None, [self.listener_task])}
        if unfinished:
            await asyncio.wait(unfinished, timeout=_CALLS_END_TIMEOUT)
        for request in self._watchdog.requests.values():
            request.give_up()

    def lost(self, reason: str) -> None:
        """
        Note that the session was lost.
        """
        if self.opened_at is not None:
            self._on_end(self, reason)
        if self.life.state is SessionState.DRAINING and not self._watchdog.requests:
            self.life.end()

    async def close(self) -> None:
        """
        End the session and wait until it is closed.
        """
        self._end(CLOSED_DURING_CALL)
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait({self._task})

    def _end(self, reason: str) -> None:
        self.life.end(reason, SessionState.CLOSED)
        if self._is_connecting and self._task is not None and self._task is not asyncio.current_task():
            self._is_connecting = False
            self._task.cancel()

    async def list_tools(self) -> ToolListing:
        """
        Ask the server for its tools again.

        :returns: The tools; those from the opening if the client cannot ask again.
        """
        tick = next_tick()
        tools = await self.read("list_tools", lambda client: client.list_tools())
        return self.listing if tools is None else self._note_listing(tools, tick)

    def _note_listing(self, tools: list[types.Tool], tick: int) -> ToolListing:
        ttl = self.client.tools_ttl
        listing = ToolListing(
            tick,
            tools,
            caller=current_identity.get().key,
            generation=self.generation,
            expires_at=None if ttl is None else monotonic() + ttl,
            instructions=self.details.instructions,
        )
        if tick > self.listing.tick:  # a later request may have been answered earlier
            self.listing = listing
            self.task_only_tools = frozenset(tool.name for tool in tools if needs_tasks(tool))
        return listing

    def read(
        self, operation: str, read: Callable[[MCPClient], Awaitable[T]], timeout: float | None = None
    ) -> Coroutine[Any, Any, T]:
        """
        Read something from the server. Await this in a task of the session's loop.

        :param operation: Name of the operation, for errors.
        :param read: Reads it, with the client.
        :param timeout: After how many seconds the caller gives up; None for never. The read fails at once if the server
            has asked for a longer pause.
        :returns: A coroutine that returns the result. It raises ReadInterruptedError if the connection broke meanwhile,
            and MCPConnectionError if it fails otherwise.
        """

        def interrupted(reason: str) -> Exception:
            msg = f"{failed_to(operation, self._server)}: {reason}"
            return ReadInterruptedError(msg, operation=operation)

        awaited_until = None if timeout is None else monotonic() + timeout
        return self.answer(read(self.client), interrupted, InFlightRequest(awaited_until=awaited_until))

    async def answer(
        self, request: Awaitable[T], unanswered: Callable[[str], Exception], in_flight: InFlightRequest | None = None
    ) -> T:
        """
        Await the answer; cancel the request if the session ends first. Run this in a task of the session's loop.

        :param request: Makes the request.
        :param unanswered: Makes the error of a request that will not be answered, from the reason.
        :param in_flight: How long it may take, and how long the server may be silent. Default: no limits.
        :returns: The result of the request.
        :raises DeadlineError: If it took too long.
        """
        in_flight = in_flight or InFlightRequest()
        self._last_caller = in_flight.caller
        self._latest_identity = current_identity.get()
        current_request.set(in_flight.task)
        interval = in_flight.ping_interval if self._may_ping else None
        pings = None if interval is None else asyncio.create_task(self._ping(interval), context=_empty_context.copy())
        self._watchdog.begin(in_flight)
        try:
            if self._login_info is None:
                result = await request
            else:

                def extend(seconds: float) -> None:
                    in_flight.extend(seconds)
                    self.life.heard_at = monotonic()  # it is the person who is silent

                with extended_by_logins(self._login_info, extend, is_own=True):
                    result = await request
            self.life.heard_at = monotonic()  # the only sign of life that a custom client may give
            return result
        except CallLeftOpenError:
            raise  # not redacted: the state must go back to the server as it is
        except Exception as error:
            failure = error
        except GeneratorExit:
            raise
        except asyncio.CancelledError:
            if not in_flight.is_only_given_up:
                raise
            is_over = self.life.ended_event.is_set()
            failure = unanswered(self.life.reason or "the session ended") if is_over else DeadlineError()
        except BaseException as error:
            failure = unanswered(_raised_by_server(error))
            failure.__cause__ = error
        finally:
            current_request.set(None)
            self._watchdog.end(in_flight)
            if pings is not None:
                pings.cancel()
            if self.life.state is SessionState.DRAINING and not self._watchdog.requests:
                self.life.end()
        # Outside of the `except` clause, so that the original error is not its context.
        raise self.client.redactor.error(failure)

    async def _ping(self, interval: float) -> None:
        # A ping belongs to no call, but needs the credentials of the session's user.
        current_identity.set(self._latest_identity)
        while self._may_ping:
            await asyncio.sleep(interval)
            if monotonic() - self.life.heard_at < interval:
                continue
            try:
                self._may_ping = await self.client.ping()
            except Exception as error:
                logger.debug("A ping of {server} failed: {error}", server=self._server, error=type(error).__name__)

    @classmethod
    async def close_all(cls) -> None:
        """
        Close the sessions of the running loop. If this is cancelled, kill the ones that are still open.
        """
        sessions = cls.of_running_loop()
        try:
            await asyncio.gather(*(session.close() for session in sessions))
        except asyncio.CancelledError:
            _kill(sessions)
            # The loop ends after a cancellation, so the transports must first notice that their processes ended.
            tasks = [session._task for session in sessions if session._task is not None]
            if tasks:
                await asyncio.wait(tasks, timeout=_KILLED_TIMEOUT)
            raise
        _kill(sessions)  # those whose closing was given up after its time limit

    @classmethod
    def of_running_loop(cls) -> list[Session]:
        """
        Return the live sessions of the running loop, and none of an executor that was shut down.

        :returns: The sessions.
        """
        loop = asyncio.get_running_loop()
        return [session for session in cls.live if session._task is not None and session._task.get_loop() is loop]

    @property
    def in_flight(self) -> int:
        """
        How many requests are under way.
        """
        return len(self._watchdog.requests)


def _raised_by_server(error: BaseException) -> str:
    # A BaseException from a server in this process must end neither the loop nor the caller's program.
    return f"the server raised {type(error).__name__}"


def _kill(sessions: Iterable[Session]) -> None:
    for session in sessions:
        session.client.kill()


def _forget_after_fork() -> None:
    # The sessions belong to the parent. Finalising them here would kill the parent's server processes.
    keep_forever(Session.live)
    Session.live = set()


# This hook comes first: closing a session may leave processes behind, and another hook waits for those.
AsyncExecutor.before_shutdown.insert(0, Session.close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
