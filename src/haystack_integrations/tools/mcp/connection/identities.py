# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which session an operation uses, depending on the identity of its caller.

.. code-block:: text

    the caller has no identity of its own           the session of the server info
    it has one, and the server has no sessions      one session for all: headers and token go with each message
    it has one, and the server has sessions         a session for each identity, closed when it has been idle for long

Whether a server has sessions is known once one was opened: the protocol has none since 2026-07-28.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from haystack.utils import Secret

from haystack_integrations.tools.mcp.connection.supervisor import NotForCallerError, Supervisor
from haystack_integrations.tools.mcp.connection.tool_call import ToolCall
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPConnectionTimeoutError
from haystack_integrations.tools.mcp.protocol.server_info import within
from haystack_integrations.tools.mcp.redaction import secrets_in
from haystack_integrations.tools.mcp.request_context import (
    Identity,
    IdentityRefusedError,
    MCPRequestContext,
    bearer,
    current_context,
    current_identity,
    problem_with_headers,
)

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import CallRequest
    from haystack_integrations.tools.mcp.handlers import MCPHandlers
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

T = TypeVar("T")

# Seconds after which an unused session of an identity is closed.
IDLE_LIMIT = 300.0

# How many unused sessions of identities are kept. The least recently used one is closed first.
MAX_IDLE_SESSIONS = 100

# The key of the session that all identities share, if the server has no sessions.
_SHARED_KEY = object()


class ServerSessions:
    """
    The sessions of all users of one server info. All state is touched in the executor's loop only.
    """

    def __init__(self, server_info: MCPServerInfo, handlers: MCPHandlers) -> None:
        """
        Initialize the ServerSessions.

        :param server_info: How to reach the server.
        :param handlers: Answer the requests of the server.
        """
        # Supervises the session of the server info itself.
        self.default: Supervisor = Supervisor(server_info, handlers)
        self._has_providers = server_info._has_providers
        # How many connections share these sessions; counted by the pool.
        self.users: int = 0
        self._closing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self._is_stateless: bool | None = None
        # The supervisors of identities' sessions, by the keys of the identities.
        self.by_identity: dict[Any, Supervisor] = {}
        # The timers that close idle sessions of identities, in the order in which the sessions became idle.
        self._idle_timers: dict[Any, asyncio.TimerHandle] = {}
        self._statelessness_lock = asyncio.Lock()
        # The supervisor of an identity that was used last.
        self.last_used: Supervisor | None = None

    def call(self, request: CallRequest) -> Coroutine[Any, Any, types.CallToolResult]:
        """
        Call a tool for the caller, in whose context this runs.

        :param request: What the caller wants.
        :returns: A coroutine for the executor's loop that returns the result. It raises MCPInvocationError if there is
            none, and ValueError if the caller's answers do not fit the questions of the continued call.
        """
        call = ToolCall(request, self.default.handlers)
        if not self._has_providers and current_context.get() is None and current_identity.get().key is None:
            return call.run(self.default)
        return self._call_with_identity(call)

    async def _call_with_identity(self, call: ToolCall) -> types.CallToolResult:
        try:
            return await self.run(call.run, call.request.connection_timeout)
        except MCPConnectionError as error:
            failure = call.error_without_session(error)
            self.default.note_error(str(failure))
            raise failure from failure.__cause__

    async def run(self, operation: Callable[[Supervisor], Coroutine[Any, Any, T]], timeout: float) -> T:
        """
        Run an operation for the caller.

        :param operation: Gets the supervisor of the caller's session.
        :param timeout: How long choosing that session may take, in seconds.
        :returns: The result of the operation.
        :raises MCPConnectionError: If nothing can be sent for the caller, or the operation raises it.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        try:
            identity = await self._identify(timeout)
            current_identity.set(identity)  # no other operation runs in this task
            if identity.headers:
                self.default.redactor.remember(secrets_in({"headers": identity.headers}))
            try:
                return await self._run(operation, deadline - now())
            except NotForCallerError:
                # The server had no sessions and has them now, so identities must not share one any more.
                self._is_stateless = False
                self._close(_SHARED_KEY)
                return await self._run(operation, deadline - now())
        except MCPConnectionError as error:
            self.default.note_error(str(error))
            raise

    async def _run(self, operation: Callable[[Supervisor], Coroutine[Any, Any, T]], timeout: float) -> T:
        supervisor = await self._choose_supervisor(current_identity.get().key, max(timeout, 0.0))
        supervisor.operations += 1
        if supervisor is not self.default:
            self.last_used = supervisor
            self._stop_idle_timer(supervisor.identity_key)
        try:
            return await operation(supervisor)
        finally:
            supervisor.operations -= 1
            if not supervisor.operations and self.by_identity.get(supervisor.identity_key) is supervisor:
                self._start_idle_timer(supervisor.identity_key)

    async def _identify(self, timeout: float) -> Identity:
        info, context = self.default.server_info, current_context.get()
        limit = asyncio.timeout(timeout)
        try:
            headers: dict[str, str] = {}
            if self._has_providers:
                async with limit:
                    headers = await info._provided_headers(context or MCPRequestContext())
            if context is not None:
                headers = _with_context_headers(headers, context)
            if fault := problem_with_headers(headers):
                raise IdentityRefusedError(fault)
        except Exception as error:
            if limit.expired():
                msg = f"Nothing was sent to {info.describe()}: its headers were not provided within {timeout:g} seconds"
                raise MCPConnectionTimeoutError(msg, info) from None
            # The text of a provider's error is left out: it may quote a credential.
            providers = [f"`{name}`" for name in ("headers_provider", "token_provider") if getattr(info, name, None)]
            text = f": {error}" if isinstance(error, ImportError) else ""  # from an import path that leads nowhere
            failed = f"{' or '.join(providers)} failed ({type(error).__name__}{text})"
            problem = str(error) if isinstance(error, IdentityRefusedError) else failed
            msg = f"Nothing was sent to {info.describe()}: {problem}"
            raise MCPConnectionError(msg, info) from error
        key: Any = tuple(sorted(headers.items())) or None
        if context is not None and context.user is not None:
            key = context.user
        return Identity(key=key, headers=headers)

    async def _choose_supervisor(self, key: Any, timeout: float) -> Supervisor:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # after a fork, or a shutdown of the executor
            self._loop = loop
            self._reset()
        if key is None or self.default.is_closed:
            return self.default
        if self._is_stateless is None:
            await self._determine_statelessness(key, timeout)
        return self.by_identity.get(_SHARED_KEY, self.default) if self._is_stateless else self._supervisor_of(key)

    async def _determine_statelessness(self, key: Any, timeout: float) -> None:
        try:
            async with within(timeout, self.default.server_info), self._statelessness_lock:
                if self._is_stateless is None:
                    self._is_stateless = await self._is_first_session_stateless(key, timeout)
        except TimeoutError as error:
            if isinstance(error, MCPConnectionError):
                raise
            msg = f"Failed to connect to {self.default.description}: timed out after {timeout:g} seconds"
            raise MCPConnectionTimeoutError(msg, self.default.server_info, "connect") from None

    async def _is_first_session_stateless(self, key: Any, timeout: float) -> bool:
        session = self.default.session
        if session is not None and session.is_open:
            return session.is_stateless
        supervisor = self._supervisor_of(key)
        try:
            session = await supervisor.ready_session(timeout)
        except BaseException:
            self._close(key)
            raise
        if session.is_stateless and self.by_identity.get(key) is supervisor:  # otherwise it was closed meanwhile
            supervisor.identity_key = _SHARED_KEY
            self.by_identity[_SHARED_KEY] = self.by_identity.pop(key)
        return session.is_stateless

    def _supervisor_of(self, key: Any) -> Supervisor:
        if self.default.is_closed:
            return self.default  # a new supervisor would open a session that nobody closes
        if key not in self.by_identity:
            self.by_identity[key] = Supervisor(
                self.default.server_info, self.default.handlers, base=self.default, identity_key=key
            )
        return self.by_identity[key]

    def _start_idle_timer(self, key: Any) -> None:
        if key is _SHARED_KEY:
            return
        self._idle_timers[key] = asyncio.get_running_loop().call_later(IDLE_LIMIT, self._close, key)
        if len(self._idle_timers) > MAX_IDLE_SESSIONS:
            self._close(next(iter(self._idle_timers)))

    def _stop_idle_timer(self, key: Any) -> None:
        timer = self._idle_timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _close(self, key: Any) -> None:
        self._stop_idle_timer(key)
        supervisor = self.by_identity.pop(key, None)
        if supervisor is not None:
            if self.last_used is supervisor:
                self.last_used = None
            _in_background(supervisor.close())

    def close_in_background(self) -> asyncio.Task[None]:
        """
        Start closing all sessions for good, without waiting. Call this in the executor's thread only.

        :returns: The task that closes them; the same one for every call.
        """
        if self._closing is None:
            self._closing = _in_background(self._close_all())
        return self._closing

    async def _close_all(self) -> None:
        for timer in self._idle_timers.values():
            timer.cancel()
        supervisors = (self.default, *self.by_identity.values())
        self.default.is_closed = True
        self._reset()
        await asyncio.gather(*(supervisor.close() for supervisor in supervisors))


# An event loop holds its tasks by weak references only.
_background: set[asyncio.Task[None]] = set()


def _in_background(closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(closing)
    task.add_done_callback(_background.discard)
    _background.add(task)
    return task


def _with_context_headers(headers: dict[str, str], context: MCPRequestContext) -> dict[str, str]:
    # Checked before a message quotes a name.
    if fault := problem_with_headers(dict.fromkeys(context.headers or {}, "")):
        raise IdentityRefusedError(fault)
    context_headers = {
        name: _resolved_value(f"the header '{name}'", value) for name, value in (context.headers or {}).items()
    }
    if context.token is not None and not any(name.lower() == "authorization" for name in context_headers):
        context_headers["Authorization"] = bearer(_resolved_value("the token", context.token))
    replaced = {name.lower() for name in context_headers}
    return {**{name: value for name, value in headers.items() if name.lower() not in replaced}, **context_headers}


def _resolved_value(subject: str, value: str | Secret) -> str:
    try:
        resolved = value.resolve_value() if isinstance(value, Secret) else value
    except ValueError as error:
        msg = f"{subject} of mcp_request_context: {error}"
        raise IdentityRefusedError(msg) from None
    if not resolved:
        msg = f"{subject} of mcp_request_context has no value"
        raise IdentityRefusedError(msg)
    return str(resolved)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.clear)  # they are tasks of the parent's loop
