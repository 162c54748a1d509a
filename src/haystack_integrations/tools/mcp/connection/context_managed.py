# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Base classes of the public classes that hold sessions.

They are opened and closed by `with` and `async with`. Their operations run in the event loop that all sessions share;
the caller waits for them either in its thread or in its own event loop.
"""

from __future__ import annotations

import inspect
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

from haystack_integrations.tools.mcp.concurrency import lock_of_each_process

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.changes import Unsubscribe, Watcher
    from haystack_integrations.tools.mcp.protocol.mcp_client import MCPClient
    from haystack_integrations.tools.mcp.protocol.negotiation import ServerDetails

P = ParamSpec("P")
T = TypeVar("T")

Read: TypeAlias = "Callable[[MCPClient], Coroutine[Any, Any, T]]"


_lock = lock_of_each_process()  # held for a few instructions, and never while another lock is taken


class UserCount:
    """
    Counts the users of an object: `with` blocks and calls. Thread-safe.

    .. code-block:: text

        unused ──a block or a call──> used ──────────────the last one ends──> unused
                                       │ a block ends, or it is asked to close
                                       └──> to be closed ──the last one ends──> closed by that one
    """

    def __init__(self) -> None:
        """
        Initialize the UserCount. Nobody uses the object yet.
        """
        self._blocks = 0
        # Calls add themselves here. That is one operation of the set, which needs no lock.
        self.calls: set[object] = set()
        # A call checks this after it has removed itself from `calls`.
        self.is_to_be_closed: bool = False
        # The counts of objects that contain this one, e.g. a registry: their users use this one as well. The references
        # are weak, because a service may make a searchable toolset of this one for each request.
        self._containers: list[weakref.ref[UserCount]] = []

    def count_users_of(self, outer: UserCount) -> None:
        """
        Also count the users of an object that contains this one.

        :param outer: The count of that object.
        """
        with _lock():
            self._containers = [*(each for each in self._containers if each() is not None), weakref.ref(outer)]

    def enter(self) -> None:
        """
        Count one more `with` block.
        """
        with _lock():
            self._blocks += 1

    def leave(self) -> bool:
        """
        Count one `with` block less.

        :returns: Whether the object is to be closed now.
        """
        with _lock():
            self._blocks -= 1
            return self._closes_now()

    def closes_after_call(self) -> bool:
        """
        Return whether a call that has left `calls` was the last user of an object that is to be closed.

        :returns: Whether the object is to be closed now.
        """
        with _lock():
            return self.is_to_be_closed and self._closes_now()

    def ask_to_close(self) -> bool:
        """
        Request that the object is closed as soon as it has no users.

        :returns: Whether it is to be closed now.
        """
        with _lock():
            return self._closes_now()

    @property
    def is_used(self) -> bool:
        """
        Whether the object has users now.
        """
        return self._blocks > 0 or bool(self.calls) or any(map(_is_used, self._containers))

    def _closes_now(self) -> bool:
        # Set before calls are counted, so that each call that is counted here sees the flag when it ends.
        self.is_to_be_closed = True
        self.is_to_be_closed = self.is_used
        return not self.is_to_be_closed


def _is_used(reference: weakref.ref[UserCount]) -> bool:
    users = reference()
    return users is not None and users.is_used


class ContextManaged:
    """
    Opened by `with` and `async with`, and closed when the last user leaves. A failed opening leaves nothing open.

    Any number of blocks may be open at a time, in threads, tasks and event loops. Blocks and calls count as users.
    `close` closes the object for all of them.
    """

    _users: UserCount

    @abstractmethod
    def _enter(self) -> object:
        """Open it."""

    @abstractmethod
    async def _enter_async(self) -> object:
        """Open it without blocking the event loop."""

    @abstractmethod
    def _leave(self) -> object:
        """Close it in the background."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    @abstractmethod
    async def close_async(self) -> None:
        """Close it without blocking the event loop."""

    def _close_unused(self) -> None:
        """
        Close it after its last user has left.
        """
        self.close()

    async def _close_unused_async(self) -> None:
        """
        Do the same without blocking the event loop.
        """
        await self.close_async()

    @contextmanager
    def _entering(self) -> Iterator[None]:
        self._users.enter()
        try:
            yield
        except BaseException:
            if self._users.leave():
                self._leave()
            raise

    def _enter_or_leave(self) -> None:
        try:
            self._enter()
        except BaseException:
            if self._users.ask_to_close():
                self._leave()
            raise

    def __enter__(self) -> Self:
        """
        Open it.

        :returns: The object itself.
        """
        with self._entering():
            self._enter()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Close it, unless it has other users.
        """
        if self._users.leave():
            self._close_unused()

    async def __aenter__(self) -> Self:
        """
        Open it without blocking the event loop.

        :returns: The object itself.
        """
        with self._entering():
            await self._enter_async()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Close it without blocking the event loop, unless it has other users.
        """
        if self._users.leave():
            await self._close_unused_async()


class Compound(ContextManaged):
    """
    An object made of others. When its last user has left, its parts without users of their own are closed.
    """

    @abstractmethod
    def _parts(self) -> Sequence[ContextManaged]:
        """Return its current parts."""

    def close(self) -> None:
        """
        Release the connections for all their users, open `with` blocks included. The next use connects again.
        """
        for part in self._parts():
            part.close()

    async def close_async(self) -> None:
        """
        Release the connections like `close`, without blocking the event loop.
        """
        for part in self._parts():
            await part.close_async()

    def _free_parts(self) -> Iterator[ContextManaged]:
        return (part for part in self._parts() if part._users.ask_to_close())

    def _close_unused(self) -> None:
        for part in self._free_parts():
            part._close_unused()

    async def _close_unused_async(self) -> None:
        for part in self._free_parts():
            await part._close_unused_async()

    def _leave(self) -> None:
        for part in self._free_parts():
            part._leave()


class OperationRunner(ABC):
    """
    Runs the operations of a connection in the executor's loop.
    """

    @abstractmethod
    def _submit(self, body: Coroutine[Any, Any, T]) -> T:
        """
        Run a coroutine in the executor's loop and wait for its result.

        :param body: The coroutine.
        :returns: Its result.
        """

    @abstractmethod
    async def _submit_async(self, body: Coroutine[Any, Any, T]) -> T:
        """Do the same without blocking the event loop."""

    @abstractmethod
    async def _ask(self, operation: str, read: Read[T], *, may_repeat: bool = True) -> T:
        """
        Read something from the server. Await this in the executor's loop.

        :param operation: Name of the operation, for errors.
        :param read: Reads it, with the client.
        :param may_repeat: Whether to read again if the connection breaks meanwhile.
        :returns: The result.
        :raises MCPConnectionError: If that fails.
        """

    @abstractmethod
    async def _subscribed(self, uri: str) -> None:
        """
        Wait until the server reports changes of a resource that is watched already. Await this in the executor's loop.

        :param uri: URI of the resource.
        :raises MCPConnectionError: If the server does not report them.
        """

    @abstractmethod
    def _watch(self, watcher: Watcher) -> Unsubscribe:
        """Notify a watcher of changes until the returned function is called."""

    @abstractmethod
    def _details(self) -> ServerDetails | None:
        """Return the details that the server gave when the session was opened; None without a session."""


class UsesRunner(ABC):
    """
    A public class whose operations run in the event loop that all sessions share.
    """

    @property
    @abstractmethod
    def _runner(self) -> OperationRunner:
        """Runs the operations."""


S = TypeVar("S", bound=UsesRunner)


def blocking(body: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """
    Make the method of an operation that blocks the caller's thread.

    :param body: The operation, which runs in the executor's loop: `_name`, with the docstring of the method.
    :returns: The method `name`.
    """

    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._runner._submit(body(self, *args, **kwargs))

    _copy_metadata(run, body, _public_name(body), body.__doc__)
    return run


def asynchronous(
    body: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """
    Make the method of an operation that is awaited in the caller's event loop.

    :param body: As for `blocking`.
    :returns: The method `name_async`.
    """

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._runner._submit_async(body(self, *args, **kwargs))

    name = _public_name(body)
    _, _, rest = inspect.cleandoc(body.__doc__ or "").partition("\n\n")
    _copy_metadata(run, body, f"{name}_async", f"Do the same as `{name}` without blocking the event loop.\n\n{rest}")
    return run


def _public_name(body: Any) -> str:
    return str(body.__name__).removeprefix("_")


def _copy_metadata(method: Any, body: Any, name: str, doc: str | None) -> None:
    method.__module__, method.__annotations__ = body.__module__, body.__annotations__
    method.__signature__, method.__doc__ = inspect.signature(body), doc
    method.__name__, method.__qualname__ = name, f"{body.__qualname__.rpartition('.')[0]}.{name}"
