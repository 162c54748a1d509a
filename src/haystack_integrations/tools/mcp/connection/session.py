# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from haystack import logging

from haystack_integrations.tools.mcp.client.base import MCPClient, ServerDetails
from haystack_integrations.tools.mcp.client.failures import describe_error, outcome_unknown
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.executor import AsyncExecutor, keep_forever

if TYPE_CHECKING:
    from mcp import types

logger = logging.getLogger(__name__)

# The SDK bounds the end of a transport (2 s for a server to leave by itself, 2 s after each signal); a client of a
# user's own may not.
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


class Session:
    """
    One generation: a client from its opening to its closing, owned by one task.
    """

    # All that are open, so that neither garbage collection nor a fork finalises one.
    live: set[Session] = set()  # noqa: RUF012

    def __init__(self, client: MCPClient, *, owner: SessionOwner) -> None:
        """
        Initialize the Session.

        :param client: The client, not yet connected.
        :param owner: Whom to tell when it is lost.
        """
        self._owner = owner
        self._client = client
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._ends_with_calls = False
        self._life: asyncio.Task[None] | None = None
        self._opened = False
        self.tools: list[types.Tool] = []
        self.details = ServerDetails()
        self.ended_because: str | None = None

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
        self._life = asyncio.create_task(self._live(opened))
        Session.live.add(self)

        def forget(_: asyncio.Task[None]) -> None:  # not a part of the task: one cancelled before its start never runs
            opened.cancel()  # nothing to do with one that is done
            Session.live.discard(self)

        self._life.add_done_callback(forget)
        try:
            await opened
        except asyncio.CancelledError:
            self._stop_connecting()
            # Should it have been opened in this very moment, nobody takes it over.
            self.ended_because = self.ended_because or "nobody waited for it any more"
            self._end.set()
            raise

    async def _live(self, opened: asyncio.Future[None]) -> None:
        try:
            self._client.on_lost = self.lose
            self.tools = await self._client.connect()
            self.details = self._client.details()
            self._opened = True
            if not opened.done():
                opened.set_result(None)
            await self._end.wait()
        except asyncio.CancelledError:
            # Either the caller of open() gave up, or a transport that lives in this task died and cancelled it.
            self.lose("the transport was cancelled")
        except Exception as error:
            if opened.done():
                self.lose(describe_error(error))
            else:
                opened.set_exception(error)
        finally:
            opened.cancel()  # nothing to do with one that is done
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self._client.aclose()
            except Exception as error:
                logger.warning(
                    "Closing the session with {server} failed: {error}",
                    server=self._owner.description,
                    error=describe_error(error),
                )
            await self._abandon_calls()

    async def _abandon_calls(self) -> None:
        # The SDK fails the calls of a transport that ended. In process there is none, and other clients may forget it.
        if self._calls:
            await asyncio.wait(self._calls, timeout=_CALLS_END_TIMEOUT)
        for task in list(self._calls):
            self._abandoned.add(task)
            task.cancel()

    def lose(self, reason: str, calls_may_end: bool = False) -> None:
        """
        Note that the session ended without having been asked to, and close what is left.

        :param reason: Why.
        :param calls_may_end: Whether the calls under way may still be answered, so that closing waits for them.
        """
        if self.ended_because is None:
            self.ended_because = reason
            self._owner.session_lost(self, reason)
        if not calls_may_end or not self._calls:
            self._end.set()
        self._ends_with_calls = True

    async def close(self) -> None:
        """
        End the session and wait until it is closed.
        """
        if self.ended_because is None:
            self.ended_because = "the connection was closed while the tool was running"
        self._end.set()
        life = self._life
        if life is not None and life is not asyncio.current_task():
            self._stop_connecting()
            await asyncio.wait({life})

    def _stop_connecting(self) -> None:
        # Once only: a second cancellation would interrupt the closing of what was opened so far.
        if self._life is not None and not self._opened and not self._life.cancelling():
            self._life.cancel()

    async def list_tools(self) -> list[types.Tool]:
        """
        Ask the server for its tools again.

        :returns: The tools; those of the beginning from a client that cannot ask.
        """
        tools = await self._client.list_tools()
        if tools is not None:
            self.tools = tools
        return self.tools

    async def call(self, tool_name: str, tool_args: dict[str, Any]) -> types.CallToolResult:
        """
        Call a tool.

        :param tool_name: Its name at the server.
        :param tool_args: The arguments.
        :returns: The result, a tool's own error included.
        """
        task = _current_task()
        self._calls.add(task)
        try:
            return await self._client.request_tool(tool_name, tool_args)
        except (SystemExit, KeyboardInterrupt) as error:  # of a server in this process: it must not end the loop
            reason = f"the server raised {type(error).__name__}"
            raise outcome_unknown(reason, tool_name, tool_args) from error
        except asyncio.CancelledError:
            if task not in self._abandoned or task.uncancel():
                raise
            raise outcome_unknown(self.ended_because or "the session ended", tool_name, tool_args) from None
        finally:
            self._calls.discard(task)
            self._abandoned.discard(task)
            if self._ends_with_calls and not self._calls:
                self._end.set()

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
            lives = [session._life for session in sessions if session._life is not None]
            if lives:
                await asyncio.wait(lives, timeout=_KILLED_TIMEOUT)
            raise
        _kill(sessions)  # those whose closing took too long, and was given up

    @classmethod
    def of_running_loop(cls) -> list[Session]:
        """
        Give the sessions that are alive in the running loop, as opposed to those of an executor that was shut down.

        :returns: The sessions.
        """
        loop = asyncio.get_running_loop()
        return [session for session in cls.live if session._life is not None and session._life.get_loop() is loop]

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
        return self._client.progress()


def _kill(sessions: Iterable[Session]) -> None:
    for session in sessions:
        session.kill()


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        msg = "A tool call must run in a task of the executor's loop"
        raise RuntimeError(msg)
    return task


def _forget_after_fork() -> None:
    # They are the parent's. Finalising them here would kill the parent's server processes.
    keep_forever(Session.live)
    Session.live = set()


# First: closing a session may leave processes behind, which another hook waits for.
AsyncExecutor.before_shutdown.insert(0, Session.close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
