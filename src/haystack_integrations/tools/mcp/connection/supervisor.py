# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The supervisor of one server's sessions, which runs in the executor's loop.

.. code-block:: text

    IDLE ──use──> CONNECTING ──opened──> READY ──lost──> LOST ──use──> CONNECTING …
      │               │ failed: back to IDLE or LOST        │
      └───────────────┴───────── close() ───────────────────┴──> CLOSED, for good: the next use makes another one

One `Session` is one generation: its owner task opens the client, waits for its end and closes it. All other code posts
requests and waits for results. All state is touched in the loop only, so there is no lock; other threads only read
single attributes.

A listing or another read that was interrupted is sent again, up to `max_retries` times (`Supervisor.read`).
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable
from time import monotonic, time
from typing import TYPE_CHECKING, Any, TypeVar

from haystack import logging

from haystack_integrations.tools.mcp.concurrency import SharedTask
from haystack_integrations.tools.mcp.connection.gate import Gate
from haystack_integrations.tools.mcp.connection.limits import back_off
from haystack_integrations.tools.mcp.connection.listening import Watchers
from haystack_integrations.tools.mcp.connection.monitoring import ConnectionState, traced_connect
from haystack_integrations.tools.mcp.connection.requests import ToolListing
from haystack_integrations.tools.mcp.connection.session import Session
from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPConnectionError,
    MCPConnectionTimeoutError,
)
from haystack_integrations.tools.mcp.protocol.changes import ServerChange, next_tick
from haystack_integrations.tools.mcp.protocol.channel import (
    MAX_WAIT_OUTSIDE_CALLS,
    ServerThrottle,
    SessionState,
    describe_throttle,
)
from haystack_integrations.tools.mcp.protocol.request_errors import (
    ReadInterruptedError,
    describe_error,
    failed_to,
    with_full_stop,
)
from haystack_integrations.tools.mcp.protocol.server_info import DEFAULT_FAILURE_PAUSE, within
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.request_context import NO_IDENTITY, current_context, current_identity

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.handlers import MCPHandlers
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

_CLOSED = "the connection was closed"
_NO_SUBSCRIPTION_PER_USER = (
    "changes are reported only to the server info's own session, not to a user's. Subscribe outside of the block of "
    "mcp_request_context."
)
_SESSION_OF_ANOTHER = "the server's session belongs to another identity"
_HEADERS_NEED_HTTP = (
    "it is not reached over HTTP, so it cannot get the `token` and `headers` of mcp_request_context or of an "
    "interceptor. Pass `user` or `meta` instead, and let the `token_provider` of servers over HTTP find the token."
)


class NotForCallerError(Exception):
    """
    Raised when a session turns out to belong to another identity. Nothing was sent.
    """


class Supervisor:
    """
    Opens, shares, watches and reopens the sessions with one server.
    """

    def __init__(
        self,
        server_info: MCPServerInfo,
        handlers: MCPHandlers,
        *,
        base: Supervisor | None = None,
        identity_key: Any = None,
    ) -> None:
        """
        Initialize the Supervisor.

        :param server_info: How to reach the server.
        :param handlers: Answer the requests of the server.
        :param base: The supervisor of the server info's own sessions, if this one is for an identity. It counts the
            calls, failures and sessions of all identities.
        :param identity_key: The key of that identity.
        """
        self.server_info = server_info
        self.handlers: MCPHandlers = handlers
        self.base: Supervisor = base or self
        self.identity_key: Any = identity_key
        # How many operations of identities use it now.
        self.operations: int = 0
        self.description: str = server_info.describe()
        self.max_retries: int = 3
        self._base_delay: float = 1.0
        self._max_delay: float = 30.0
        self._set_retries(server_info)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._opening: SharedTask[Session] | None = None
        # The listings under way, by the number of the session and the key of the caller's identity.
        self._listings: dict[Any, SharedTask[ToolListing]] = {}
        # The watchers of changes. Changes are reported in the server info's own sessions only.
        self.watchers: Watchers = Watchers(self.description)
        self._tools_changed_at = 0
        # The session whose opening began last.
        self._latest_session: Session | None = None
        self._last_failure: str | None = None
        # Whether it was closed for good.
        self.is_closed: bool = False
        # Set when it is closed, to wake the tasks that sleep.
        self._closed_event = asyncio.Event()
        self.session: Session | None = None
        self.generation: int = 0
        self.sessions_opened: int = 0
        self.calls: int = 0
        self.failed_calls: int = 0
        self.last_error: str | None = None
        # In seconds since the epoch.
        self.last_error_at: float | None = None
        # Decides which calls may go to the server now; all identities share it.
        self.gate: Gate = (
            base.gate
            if base is not None
            else Gate(
                self.description,
                max_in_flight=getattr(server_info, "max_in_flight", None),
                pause=getattr(server_info, "failure_pause", DEFAULT_FAILURE_PAUSE),
            )
        )
        # How long the server wants no requests of this identity.
        self.throttle: ServerThrottle = ServerThrottle()
        # All identities share it, and it outlives sessions, because the server may quote secrets of earlier calls.
        self.redactor: Redactor = Redactor() if base is None else base.redactor

    def _set_retries(self, source: object) -> None:
        self.max_retries = getattr(source, "max_retries", self.max_retries)
        self._base_delay = getattr(source, "base_delay", self._base_delay)
        self._max_delay = getattr(source, "max_delay", self._max_delay)

    def note_error(self, text: str) -> str:
        """
        Record the text of an error for the status.

        :param text: The text.
        :returns: The same text.
        """
        base = self.base
        base.last_error, base.last_error_at = text, time()
        return text

    @property
    def state(self) -> ConnectionState:
        """
        The state of the connection. Thread-safe.
        """
        if self.is_closed:
            return "closed"
        if self.is_ready():
            return "ready"
        opening = self._opening
        if opening is not None and opening.is_under_way and self._is_loop_current():
            return "connecting"
        return "lost" if self.generation else "idle"

    def is_ready(self) -> bool:
        """
        Return whether calls can be sent at once. Thread-safe.

        :returns: True with an open session in a loop that runs.
        """
        session = self.session
        return session is not None and session.is_open and self._is_loop_current()

    def _is_loop_current(self) -> bool:
        # In a forked child, the loop of the parent looks as if it were running.
        return self._loop is not None and self._loop.is_running() and self._pid == os.getpid()

    def _session_ended(self, session: Session, reason: str | None) -> None:
        tags: dict[str, Any] = {
            "server": self.description,
            "transport": self.server_info._transport_name,
            "seconds": monotonic() - (session.opened_at or 0.0),
        }
        if reason is None:
            logger.info("Closed the session with {server} after {seconds:.1f} s", **tags)
            return
        if self.session is session:
            self.session = None
        self.note_error(reason)
        logger.warning("Lost the session with {server} after {seconds:.1f} s: {reason}", **tags, reason=reason)

    def _server_changed(self, change: ServerChange) -> None:
        if change.kind == "tools":
            self._note_tools_changed()
        self.base.watchers.announce(change)

    def _changes_missed(self) -> None:
        # Only if the server reports changes of its tools: a proxy may end the stream every minute.
        capabilities = None if self.session is None else self.session.details.capabilities
        if ((capabilities or {}).get("tools") or {}).get("listChanged"):
            self._note_tools_changed()
        if self.watchers.listener is not None:
            self.watchers.announce(*self.watchers.listener.wanted().as_changes())

    def _note_tools_changed(self) -> None:
        self._listings = {}  # later callers must not get the answer to an earlier request
        self._tools_changed_at = next_tick()

    def has_changed_since(self, tick: int) -> bool:
        """
        Return whether the server has reported since a listing that its tools changed. Thread-safe.

        :param tick: When the listing was requested.
        """
        return self.session is not None and tick < self._tools_changed_at

    def _bind_to_loop(self) -> None:
        # After a fork, or a shutdown of the executor, everything here belongs to a loop that is gone.
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._pid = loop, os.getpid()
            self._opening = self.session = self._latest_session = None
            self._listings, self._closed_event = {}, asyncio.Event()

    def open_session(self) -> Session | None:
        """
        Return the session if it is open and the caller may use it.

        :returns: The session; None if `ready_session` has to decide.
        """
        session = self.session
        if session is None or session.life.state is not SessionState.OPEN:
            return None
        if self._loop is not asyncio.get_running_loop():
            return None
        return session if session.is_stateless or self.identity_key == current_identity.get().key else None

    async def ready_session(self, timeout: float) -> Session:
        """
        Return the open session, or open one; concurrent callers share one attempt.

        :param timeout: How long this caller waits, in seconds.
        :returns: The session.
        :raises MCPConnectionError: If it cannot be opened.
        """
        self._bind_to_loop()
        if self.session is not None and self.session.is_open:
            return self._check_identity(self.session)
        if self.is_closed:
            raise self._connect_error(_CLOSED)
        if self.throttle.seconds > timeout:
            raise self._connect_error(with_full_stop(describe_throttle(self.throttle.seconds)))
        if self._opening is None or not self._opening.is_under_way:
            # The session of the server info belongs to no identity, even if a caller with an identity opens it.
            self._opening = SharedTask(self._open(), _context_without_user() if self.base is self else None)
        try:
            async with within(timeout, self.server_info):
                return self._check_identity(await _result(self._opening))
        except TimeoutError as error:
            if isinstance(error, MCPConnectionError):  # the attempt itself timed out, not the wait for it
                raise
            client = None if self._latest_session is None else self._latest_session.client
            progress = "" if client is None else client.redactor.text(client.progress())
            if self._last_failure is not None:
                progress = f"the last attempt: {self._last_failure}"
            elif self.throttle.seconds:
                progress = describe_throttle(self.throttle.seconds)
            msg = with_full_stop(f"timed out after {round(timeout, 2):g} seconds{f': {progress}' if progress else ''}")
            msg += " If the server needs longer, raise `connection_timeout`."
            raise self._connect_error(msg, MCPConnectionTimeoutError) from None

    def _check_identity(self, session: Session) -> Session:
        # All identities may use a session for which the server keeps no state.
        if session.is_stateless or self.identity_key == current_identity.get().key:
            return session
        if self.is_closed:
            raise self._connect_error(_CLOSED)
        raise NotForCallerError(_SESSION_OF_ANOTHER)

    def _connect_error(self, text: str, kind: type[MCPConnectionError] = MCPConnectionError) -> MCPConnectionError:
        msg = f"Failed to connect to {self.description}: {text}"
        return kind(msg, server_info=self.server_info, operation="connect")

    async def _open(self) -> Session:
        # If the first session cannot be opened, the configuration is most likely wrong, and the user should learn that
        # at once. A lost session is worth waiting for.
        retries = self.max_retries if self.generation else 0
        self._last_failure = None
        for attempt in range(retries + 1):
            if attempt:
                await asyncio.sleep(self.delay(attempt - 1))
            while self.throttle.seconds:
                await asyncio.sleep(self.throttle.seconds)
            try:
                with traced_connect(self.server_info, self.description) as connected:
                    session = await self._open_once()
                    connected(session.details)
                    return session
            except MCPConnectionError as error:
                self._last_failure = self.note_error(str(error))
                is_for_long = self.throttle.seconds > MAX_WAIT_OUTSIDE_CALLS
                if attempt == retries or is_for_long or isinstance(error, MCPAuthorizationError):
                    raise
                logger.info("{error} Trying again.", error=with_full_stop(str(error)), server=self.description)
        raise AssertionError  # the loop returns or raises

    async def _open_once(self) -> Session:
        now = asyncio.get_running_loop().time
        started = now()
        # After a failed attempt, watchers do not know the server's lists yet, so they are notified as after a lost
        # session.
        is_first = not self.generation and self._latest_session is None
        try:
            session = self._latest_session = self._new_session()
            await session.open()
        except MCPConnectionError as error:
            error.server_info = self.server_info
            raise
        except Exception as error:
            raise self._connect_error(describe_error(error)) from error
        if not session.is_open:
            raise self._connect_error(await session.client.find_reason())
        logger.info(
            "{verb} to {server} in {seconds:.2f} s, protocol revision {protocol_version}",
            verb="Reconnected" if self.generation else "Connected",
            server=self.description,
            transport=self.server_info._transport_name,
            protocol_version=session.details.protocol_version or "unknown",
            seconds=now() - started,
        )
        self.session = session
        self.base.sessions_opened += 1
        self.generation = session.generation
        if self.base is self:
            listener = self.watchers.listen_in(session, is_first=is_first, on_gap=self._note_tools_changed)
            session.listener_task = asyncio.create_task(listener.run(), context=_context_without_user())
        return session

    def _new_session(self) -> Session:
        client = self.server_info.create_client()
        client.handlers = self.handlers
        self.redactor.learn(self.server_info._secrets() | client.redactor.secrets)
        client.redactor = self.redactor
        if current_identity.get().headers and not client._takes_headers:
            raise self._connect_error(_HEADERS_NEED_HTTP)
        # A custom server info may leave the retries to its client.
        self._set_retries(client)
        self._set_retries(self.server_info)
        client.on_change, client.on_question = self._server_changed, self.gate.answering
        client.on_gap = self._changes_missed
        session = Session(client, self.server_info, self.description, on_end=self._session_ended, supervisor=self)
        session.throttle = self.throttle
        return session

    async def cached_listing(self, timeout: float) -> ToolListing:
        """
        Return the latest listing of the session, or a new one if that is too old or was made for another identity.

        :param timeout: How long opening a session may take, and how long the listing, in seconds.
        :returns: The caller's tools.
        :raises MCPConnectionError: If that fails.
        """
        listing = (await self.ready_session(timeout)).listing
        is_kept = listing.expires_at is None or monotonic() < listing.expires_at
        if is_kept and listing.caller == current_identity.get().key and listing.tick > self._tools_changed_at:
            return listing
        return await self.list_tools(timeout)

    async def list_tools(self, timeout: float) -> ToolListing:
        """
        List the current tools of the server; concurrent callers share one listing.

        :param timeout: How long opening a session may take, and how long the listing, in seconds.
        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        """
        return await self.read("list_tools", self._fresh_listing, timeout, timeout)

    async def list_tools_if_open(self, timeout: float) -> ToolListing:
        """
        Do the same in the open session. Do not open one, even if the session is lost meanwhile.

        :param timeout: How long the listing may take, in seconds.
        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        :raises TimeoutError: If it takes longer.
        """
        self._bind_to_loop()
        session = self.session
        if session is None or not session.is_open:
            msg = f"{failed_to('list_tools', self.description)}: there is no open session"
            raise MCPConnectionError(msg, self.server_info, "list_tools")
        async with within(timeout, self.server_info):
            return await self._fresh_listing(session)

    async def _fresh_listing(self, session: Session) -> ToolListing:
        requested = next_tick()
        listing = await _result(self._shared_listing(session))
        if listing.tick < requested:  # it was requested before this call, and may be out of date
            listing = await _result(self._shared_listing(session))
        return listing

    def _shared_listing(self, session: Session) -> SharedTask[ToolListing]:
        key = session.generation, current_identity.get().key
        self._listings = {key: each for key, each in self._listings.items() if each.is_under_way}
        if key not in self._listings:
            self._listings[key] = SharedTask(session.list_tools())
        return self._listings[key]

    async def current_tools(self, session: Session, timeout: float, *, again: bool = False) -> ToolListing:
        """
        Return the tools of an open session. List them again if the server has reported changes since.

        :param session: The session.
        :param timeout: How long listing them may take, in seconds.
        :param again: Whether to list them again in any case.
        :returns: The tools.
        :raises MCPConnectionError: If listing them fails.
        :raises TimeoutError: If it takes longer.
        """
        listing = session.listing
        if again or listing.tick < self._tools_changed_at:
            async with within(timeout, self.server_info):
                return await self._fresh_listing(session)
        return listing

    async def subscribe(self, uri: str, timeout: float) -> None:
        """
        Wait until the server reports changes of a resource that a watcher wants.

        :param uri: URI of the resource.
        :param timeout: How long opening a session may take, and how long the subscribing, in seconds.
        :raises MCPConnectionError: If the server does not report them.
        """
        operation = "subscribe_resource"
        if current_context.get() is not None:
            msg = f"{failed_to(operation, self.description)}: {_NO_SUBSCRIPTION_PER_USER}"
            raise MCPConnectionError(msg, self.server_info, operation)

        async def served(_: Session) -> None:
            listener = self.watchers.listener
            if listener is None or not listener.offers_resources:
                msg = f"{failed_to(operation, self.description)}: the server does not offer it"
                raise MCPConnectionError(msg, self.server_info, operation)
            await listener.wait_until_served(uri)

        await self.read(operation, served, timeout, timeout)

    async def read(
        self,
        operation: str,
        read_in: Callable[[Session], Awaitable[T]],
        connection_timeout: float,
        timeout: float,
        *,
        may_repeat: bool = True,
    ) -> T:
        """
        Read something from the server; read it again if the connection breaks meanwhile.

        :param operation: Name of the operation, for errors.
        :param read_in: Reads it in a session.
        :param connection_timeout: How long opening a session may take, in seconds.
        :param timeout: How long the reading may take, in seconds.
        :param may_repeat: Whether the server may get the request twice without harm.
        :returns: The result.
        :raises MCPConnectionError: If there is no result.
        """
        paused, attempt, newest_before = 0.0, 0, self.generation
        while True:
            session = await self.ready_session(connection_timeout)
            try:
                async with within(timeout, self.server_info):
                    return await read_in(session)
            except TimeoutError:
                msg = f"{failed_to(operation, self.description)}: timed out after {timeout:g} seconds"
                if self.throttle.seconds:
                    msg += f": {describe_throttle(self.throttle.seconds)}"
                raise MCPConnectionTimeoutError(msg, self.server_info, operation) from None
            except ReadInterruptedError as interrupted:
                interrupted.server_info = self.server_info
                if interrupted.was_sent and not may_repeat:
                    msg = f"{with_full_stop(str(interrupted))} The server may have done what it was asked for."
                    raise MCPConnectionError(msg, self.server_info, operation) from interrupted
                if session.generation <= newest_before and not interrupted.was_sent and not session.is_open:
                    attempt = 0  # earlier attempts may have failed because the server was restarting
                pause = self.delay(attempt)
                paused += pause
                is_for_long = self.throttle.seconds > timeout
                if attempt == self.max_retries or paused > connection_timeout or is_for_long:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    def delay(self, attempt: int) -> float:
        """
        Choose the pause before another attempt.

        :param attempt: How many attempts failed before the last one.
        :returns: Seconds.
        """
        return back_off(attempt, base=self._base_delay, max_pause=self._max_delay)

    async def sleep(self, seconds: float) -> None:
        """
        Sleep, but no longer than until the connection is closed.

        :param seconds: How long to sleep.
        """
        try:
            await asyncio.wait_for(self._closed_event.wait(), seconds)
        except TimeoutError:
            pass

    def count_failure(self, failure: Exception) -> None:
        """
        Count a failed call.

        :param failure: Its error.
        """
        self.base.failed_calls += 1
        self.note_error(str(failure))

    async def close(self) -> None:
        """
        Close everything, for good.
        """
        self._bind_to_loop()
        self.is_closed = True
        self._closed_event.set()
        self.session = None
        if self._opening is not None:
            self._opening.cancel()
        await asyncio.gather(*(session.close() for session in Session.of_running_loop() if session.supervisor is self))


async def _result(shared: SharedTask[T]) -> T:
    try:
        return await shared.result()
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is not None and not caller.cancelling():  # the shared task was cancelled, not the task that waits
            raise MCPConnectionError(_CLOSED) from None
        raise


def _context_without_user() -> contextvars.Context:
    # For a task that belongs to no identity, although a caller with one may have started it.
    context = contextvars.copy_context()
    context.run(current_identity.set, NO_IDENTITY)
    context.run(current_context.set, None)
    return context
