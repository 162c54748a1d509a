# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which session an operation uses, on whose behalf it is made.

.. code-block:: text

    without an identity of its own                  the session of the server info
    with one, and the server has no sessions        one session for all: headers and token go with each message
    with one, and the server has sessions           a session for each identity, until it was idle for long enough

Whether a server has sessions is known once one was opened: the protocol has none since 2026-07-28.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from haystack.utils import Secret

from haystack_integrations.tools.mcp.connection.call import ToolCall
from haystack_integrations.tools.mcp.connection.limits import within
from haystack_integrations.tools.mcp.connection.session import caller_key
from haystack_integrations.tools.mcp.connection.supervisor import NotForCallerError, Supervisor
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPConnectionTimeoutError
from haystack_integrations.tools.mcp.handlers.elicitation import answer_later
from haystack_integrations.tools.mcp.redaction import secrets_in
from haystack_integrations.tools.mcp.request_context import (
    Identity,
    IdentityRefusedError,
    MCPRequestContext,
    current_context,
    current_identity,
)

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.limits import CallLimits
    from haystack_integrations.tools.mcp.connection.requests import Admission, CallRequest, ToolListing
    from haystack_integrations.tools.mcp.handlers import MCPHandlers
    from haystack_integrations.tools.mcp.handlers.progress import MCPProgress
    from haystack_integrations.tools.mcp.protocol.base import MCPClient
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

T = TypeVar("T")

# Seconds after which the session of an identity is closed if nobody used it.
IDLE_LIMIT = 300.0

# How many sessions of identities that nobody uses are kept. The one that was not used for longest is closed first.
MOST_IDLE = 100


class Identities:
    """
    The sessions of all who use one server info. All state is touched in the executor's loop only.
    """

    def __init__(self, server_info: MCPServerInfo, handlers: MCPHandlers) -> None:
        """
        Initialize the Identities.

        :param server_info: How to reach the server.
        :param handlers: What is done for the server.
        """
        # That of the server info itself.
        self.base: Supervisor = Supervisor(server_info, handlers)
        self._closing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self._is_stateless: bool | None = None
        self._shared: Supervisor | None = None
        # In the order of their last use.
        self._own: dict[Any, Supervisor] = {}
        self._users: dict[Any, int] = {}
        # In the order in which they became idle.
        self._idle_since: dict[Any, float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._finding_out = asyncio.Lock()
        # The one that was used last.
        self.newest: Supervisor | None = None

    def all(self) -> list[Supervisor]:
        """
        Give the supervisors of identities.

        :returns: They are open, or may be.
        """
        return [*([self._shared] if self._shared is not None else []), *self._own.values()]

    async def open(self, timeout: float) -> ToolListing:
        """
        Open the caller's session.

        :param timeout: How long that may take, in seconds.
        :returns: The tools that the caller has there, and the number of the session.
        :raises MCPConnectionError: If that fails.
        """

        async def opened(supervisor: Supervisor) -> ToolListing:
            session = await supervisor.ready_session(timeout)
            # Another identity may have other tools.
            if session.listing.caller == caller_key() and supervisor.knows_tools_of(session):
                return session.listing
            return await supervisor.list_tools(timeout)

        return await self._run(opened, timeout)

    async def list_tools(self, timeout: float) -> ToolListing:
        """
        List the tools that the caller has.

        :param timeout: How long opening a session may take, and how long the listing, in seconds.
        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        """
        return await self._run(lambda supervisor: supervisor.list_tools(timeout), timeout)

    async def read(
        self,
        operation: str,
        read: Callable[[MCPClient], Awaitable[T]],
        *,
        connection_timeout: float,
        timeout: float,
        may_repeat: bool,
    ) -> T:
        """
        Read something of the server on behalf of the caller.

        :param operation: As in `Supervisor.read`.
        :param read: Likewise.
        :param connection_timeout: Likewise.
        :param timeout: Likewise.
        :param may_repeat: Likewise.
        :returns: The result.
        :raises MCPConnectionError: If there is none.
        """

        def operate(supervisor: Supervisor) -> Coroutine[Any, Any, T]:
            return supervisor.read(
                operation, read, connection_timeout=connection_timeout, timeout=timeout, may_repeat=may_repeat
            )

        return await self._run(operate, connection_timeout)

    def call(
        self,
        request: CallRequest,
        limits: CallLimits,
        *,
        connection_timeout: float,
        on_progress: Callable[[MCPProgress], None] | None,
        admission: Admission | None,
    ) -> Coroutine[Any, Any, types.CallToolResult]:
        """
        Call a tool on behalf of the caller, in whose context this runs.

        :param request: What the caller wants.
        :param limits: How long the call may take, and how long the server may be silent.
        :param connection_timeout: How long to wait for sessions altogether, in seconds.
        :param on_progress: Called with each report of progress; must not block.
        :param admission: Asked before each attempt whether the call may be sent.
        :returns: A coroutine of the result. It raises MCPInvocationError if there is none.
        :raises ValueError: If answers of the caller do not fit the questions of the call to continue.
        """
        call = ToolCall(
            request,
            limits,
            connection_timeout=connection_timeout,
            on_progress=on_progress,
            admission=admission,
            asks=self.base.handlers.elicitation not in (None, answer_later),
        )
        if self._all_are_alike() and current_identity.get() is None:
            return call.run(self.base)
        return self._call(call)

    async def _call(self, call: ToolCall) -> types.CallToolResult:
        try:
            return await self._run(call.run, call.connection_timeout)
        except MCPConnectionError as error:
            failure = call.failed_before(error)
            self.base.note_error(str(failure))
            raise failure from failure.__cause__

    async def _run(self, operation: Callable[[Supervisor], Coroutine[Any, Any, T]], timeout: float) -> T:
        now = asyncio.get_running_loop().time
        started = now()
        try:
            identity = await self._identify(timeout)
            current_identity.set(identity)  # the task is the operation's own
            if identity is not None:
                self.base.redactor.of_calls.remember(secrets_in({"headers": identity.headers}))
            return await self._run_as(identity, operation, timeout + started)
        except MCPConnectionError as error:
            self.base.note_error(str(error))
            raise

    async def _run_as(
        self, identity: Identity | None, operation: Callable[[Supervisor], Coroutine[Any, Any, T]], deadline: float
    ) -> T:
        now = asyncio.get_running_loop().time
        for is_last in (False, True):
            try:
                supervisor = self._known(identity) or await self._found(identity, max(deadline - now(), 0.0))
                key = self._enter(identity, supervisor)
                try:
                    return await operation(supervisor)
                finally:
                    self._left(key, supervisor)
            except NotForCallerError as error:
                # A server that had no sessions has them now.
                self._is_stateless = False
                shared, self._shared = self._shared, None
                if shared is not None:
                    _in_background(shared.close())
                if is_last:
                    msg = f"Nothing was sent to {self.base.description}: {error}"
                    raise MCPConnectionError(msg, self.base.server_info) from None
        raise AssertionError  # the loop returns or raises

    def _all_are_alike(self) -> bool:
        return current_context.get() is None and not self.base.server_info._has_providers

    async def _identify(self, timeout: float) -> Identity | None:
        if self._all_are_alike():
            return None
        info, context = self.base.server_info, current_context.get()
        try:
            headers: dict[str, str] = {}
            if info._has_providers:
                async with asyncio.timeout(timeout):
                    headers = await info._provided_headers(context or MCPRequestContext())
            if context is not None:
                headers = _with(headers, context)
            _check_headers(headers)
        except TimeoutError:
            msg = f"Nothing was sent to {info.describe()}: its headers were not provided within {timeout:g} seconds"
            raise MCPConnectionTimeoutError(msg, info) from None
        except Exception as error:
            # Not the text of a provider's error, which may quote a credential.
            what = (
                str(error) if isinstance(error, IdentityRefusedError) else f"a provider failed ({type(error).__name__})"
            )
            msg = f"Nothing was sent to {info.describe()}: {what}"
            raise MCPConnectionError(msg, info) from error
        key: Any = tuple(sorted(headers.items())) or None
        if context is not None and context.user is not None:
            key = context.user
        return Identity(key=key, headers=headers)

    def _known(self, identity: Identity | None) -> Supervisor | None:
        # None: whether the server has sessions has to be found out.
        if identity is None or identity.key is None or self.base.is_closed:
            return self.base
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # after a fork, or a shutdown of the executor
            self._loop = loop
            self._reset()
        if self._is_stateless is None:
            return None
        return self._shared or self.base if self._is_stateless else self._own_of(identity.key)

    async def _found(self, identity: Identity | None, timeout: float) -> Supervisor:
        try:
            async with within(timeout, self.base.server_info):
                return await self._find(_key(identity), timeout)
        except TimeoutError as error:
            if isinstance(error, MCPConnectionError):
                raise
            msg = f"Failed to connect to {self.base.description}: timed out after {timeout:g} seconds"
            raise MCPConnectionTimeoutError(msg, self.base.server_info, "connect") from None

    def _enter(self, identity: Identity | None, supervisor: Supervisor) -> Any:
        if supervisor is not self.base:
            self.newest = supervisor
        key = _key(identity)
        if self._own.get(key) is supervisor:
            self._own[key] = self._own.pop(key)
            self._users[key] = self._users.get(key, 0) + 1
            self._idle_since.pop(key, None)
        return key

    async def _find(self, key: Any, timeout: float) -> Supervisor:
        session = self.base.session
        if self._is_stateless is None and session is not None and session.is_open:
            self._is_stateless = session.is_stateless
        if self._is_stateless is None:
            async with self._finding_out:
                if self._is_stateless is None:
                    supervisor = self._own_of(key)
                    try:
                        session = await supervisor.ready_session(timeout)
                    except BaseException:
                        self._close(key)
                        raise
                    self._is_stateless = session.is_stateless
                    if not self._is_stateless:
                        return supervisor
                    self._shared = self._own.pop(key)
                    self._shared.serves = None
        return self._shared or self.base if self._is_stateless else self._own_of(key)

    def _own_of(self, key: Any) -> Supervisor:
        if key not in self._own:
            self._own[key] = Supervisor(self.base.server_info, self.base.handlers, base=self.base, serves=key)
        return self._own[key]

    def _left(self, key: Any, supervisor: Supervisor) -> None:
        if self._own.get(key) is not supervisor:
            return
        self._users[key] -= 1
        if self._users[key]:
            return
        del self._users[key]
        loop = asyncio.get_running_loop()
        self._idle_since[key] = loop.time()
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_LIMIT, self._close_idle)
        if len(self._idle_since) > MOST_IDLE:
            self._close(next(iter(self._idle_since)))

    def _close_idle(self) -> None:
        # One timer for all, which is not touched by a call.
        self._sweep = None
        loop = asyncio.get_running_loop()
        for key, since in list(self._idle_since.items()):
            left = since + IDLE_LIMIT - loop.time()
            if left > 0:
                self._sweep = loop.call_later(left, self._close_idle)
                return
            self._close(key)

    def _close(self, key: Any) -> None:
        self._idle_since.pop(key, None)
        supervisor = self._own.pop(key, None)
        if supervisor is not None:
            if self.newest is supervisor:
                self.newest = None
            _in_background(supervisor.close())

    def close_in_background(self) -> asyncio.Task[None]:
        """
        Start closing all sessions, for good, without waiting. In the executor's thread only.

        :returns: The task that closes them; the same one however often it is asked for.
        """
        if self._closing is None:
            self._closing = _in_background(self._close_all())
        return self._closing

    async def _close_all(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        supervisors = self.all()
        self._reset()
        await asyncio.gather(*(supervisor.close() for supervisor in (self.base, *supervisors)))


# An event loop holds its tasks by weak references only.
_background: set[asyncio.Task[None]] = set()


def _in_background(closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(closing)
    task.add_done_callback(_background.discard)
    _background.add(task)
    return task


def _key(identity: Identity | None) -> Any:
    return identity.key if identity is not None else None


def _with(headers: dict[str, str], context: MCPRequestContext) -> dict[str, str]:
    own = {name: _plain(f"the header '{name}'", value) for name, value in (context.headers or {}).items()}
    if context.token is not None and not any(name.lower() == "authorization" for name in own):
        own["Authorization"] = f"Bearer {_plain('the token', context.token)}"
    replaced = {name.lower() for name in own}
    return {**{name: value for name, value in headers.items() if name.lower() not in replaced}, **own}


def _plain(what: str, value: str | Secret) -> str:
    try:
        plain = value.resolve_value() if isinstance(value, Secret) else value
    except ValueError as error:
        msg = f"{what} of mcp_request_context: {error}"
        raise IdentityRefusedError(msg) from None
    if not plain:
        msg = f"{what} of mcp_request_context has no value"
        raise IdentityRefusedError(msg)
    return str(plain)


def _check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable() or value != value.strip():
            msg = (
                f"the value of the header '{name}' has a line break, leading or trailing white space, or a character "
                "that is not ASCII"
            )
            raise IdentityRefusedError(msg)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.clear)  # they are tasks of the parent's loop
