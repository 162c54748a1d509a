# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The two ways to wait for what runs in the event loop of all sessions: in a thread, and in another event loop.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.base import MCPClient, ServerDetails
    from haystack_integrations.tools.mcp.protocol.changes import Unsubscribe, Watcher

P = ParamSpec("P")
T = TypeVar("T")

Read: TypeAlias = "Callable[[MCPClient], Coroutine[Any, Any, T]]"


class Sessions(ABC):
    """
    What the operations of a connection run with.
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
        Read something of the server. To be awaited in the executor's loop.

        :param operation: What that is, for errors.
        :param read: Does it.
        :param may_repeat: Whether it may be done again if the connection breaks meanwhile.
        :returns: The result.
        :raises MCPConnectionError: If that fails.
        """

    @abstractmethod
    async def _subscribed(self, uri: str) -> None:
        """
        Wait until the server reports the changes of a resource, which is watched already. To be awaited likewise.

        :param uri: URI of the resource.
        :raises MCPConnectionError: If the server does not report them.
        """

    @abstractmethod
    def _watch(self, watcher: Watcher) -> Unsubscribe:
        """Notify a watcher of changes, until the function that is returned is called."""

    @abstractmethod
    def _details(self) -> ServerDetails | None:
        """Return what the server said of itself when the session was opened; None while there is none."""


class UsesSessions(ABC):
    """
    A public class whose operations run in the loop of all sessions.
    """

    @property
    @abstractmethod
    def _sessions(self) -> Sessions:
        """What the operations run with."""


S = TypeVar("S", bound=UsesSessions)


def blocking(body: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """
    Make the method of an operation that waits in the thread of the caller.

    :param body: The operation, which runs in the executor's loop: `_name`, with the docstring of the method.
    :returns: The method `name`.
    """

    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._sessions._submit(body(self, *args, **kwargs))

    _describe(run, body, _name(body), body.__doc__)
    return run


def asynchronous(
    body: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """
    Make the method of an operation that is awaited in the event loop of the caller.

    :param body: As of `blocking`.
    :returns: The method `name_async`.
    """

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._sessions._submit_async(body(self, *args, **kwargs))

    name = _name(body)
    _, _, rest = inspect.cleandoc(body.__doc__ or "").partition("\n\n")
    _describe(run, body, f"{name}_async", f"Do the same as `{name}` without blocking the event loop.\n\n{rest}")
    return run


def _name(body: Any) -> str:
    return str(body.__name__).removeprefix("_")


def _describe(method: Any, body: Any, name: str, doc: str | None) -> None:
    method.__module__, method.__annotations__ = body.__module__, body.__annotations__
    method.__signature__, method.__doc__ = inspect.signature(body), doc
    method.__name__, method.__qualname__ = name, f"{body.__qualname__.rpartition('.')[0]}.{name}"
