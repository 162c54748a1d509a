# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which supervisors there are in this process, who shares them, and when they are closed.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import importlib
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.executor import AsyncExecutor

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.base_server_info import MCPServerInfo
    from haystack_integrations.tools.mcp.supervisor import Supervisor

logger = logging.getLogger(__name__)

_EXIT_TIMEOUT = 10.0


class Registry:
    """
    Who shares which supervisor. Decides under a lock and returns what is to be closed; it does no I/O.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._shared: dict[Any, Supervisor] = {}
        self._users: dict[int, int] = {}
        # Users that were garbage-collected when no executor ran: their sessions had ended with it. Appended to without
        # the lock, by finalisers.
        self.collected: deque[Supervisor] = deque()

    def acquire(self, server_info: MCPServerInfo, *, share: bool) -> Supervisor:
        """
        Find or make the supervisor of a server, and count one more user.

        :param server_info: How to reach the server.
        :param share: Whether equal server infos get the same one.
        :returns: The supervisor.
        """
        key = _identity(server_info) if share else None
        # The module imports the MCP SDK, so it waits until the first session is wanted.
        supervisor_class = importlib.import_module("haystack_integrations.tools.mcp.supervisor").Supervisor
        with self.lock:
            self._forget_collected()
            supervisor: Supervisor | None = self._shared.get(key) if share else None
            if supervisor is None:
                supervisor = supervisor_class(server_info)
                if share:
                    self._shared[key] = supervisor
            self._users[id(supervisor)] = self._users.get(id(supervisor), 0) + 1
            return supervisor

    def release(self, supervisor: Supervisor) -> bool:
        """
        Drop one user.

        :param supervisor: What it used.
        :returns: Whether it was the last, so that the supervisor is to be closed.
        """
        with self.lock:
            self._forget_collected()
            return self._drop(supervisor)

    def _drop(self, supervisor: Supervisor) -> bool:
        left = self._users.get(id(supervisor), 1) - 1
        if left:
            self._users[id(supervisor)] = left
            return False
        self._users.pop(id(supervisor), None)
        for key, shared in self._shared.items():
            if shared is supervisor:
                del self._shared[key]
                break
        return True

    def _forget_collected(self) -> None:
        while self.collected:
            self._drop(self.collected.popleft())

    def users(self, supervisor: Supervisor) -> int:
        """
        Count the users of a supervisor.

        :param supervisor: The supervisor.
        :returns: How many there are.
        """
        return self._users.get(id(supervisor), 0)


registry = Registry()


@dataclass(frozen=True, eq=False)
class _Itself:
    """
    Identity of an object that has no equality to go by. Holds it, so that its id is not given to another.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return frozenset((key, _freeze(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, (str, int, float, bytes, type(None), Secret)):
        return type(value), value
    return _Itself(value)


def _identity(server_info: MCPServerInfo) -> Any:
    if not dataclasses.is_dataclass(server_info):
        return _Itself(server_info)
    values = ((field.name, getattr(server_info, field.name)) for field in dataclasses.fields(server_info))
    return type(server_info), tuple((name, _freeze(value)) for name, value in values)


# The tasks of a loop are held by weak references only.
_background: set[asyncio.Task[None]] = set()
_closing: weakref.WeakKeyDictionary[Supervisor, asyncio.Task[None]] = weakref.WeakKeyDictionary()


def close_in_background(supervisor: Supervisor) -> asyncio.Task[None]:
    """
    Have a supervisor closed, without waiting. In the executor's thread only.

    :param supervisor: The supervisor.
    :returns: The task that closes it; the same one however often it is asked for.
    """
    task = _closing.get(supervisor)
    if task is None:
        task = _closing[supervisor] = asyncio.get_running_loop().create_task(supervisor.close())
        task.add_done_callback(_background.discard)
        _background.add(task)
    return task


def release_from_anywhere(supervisor: Supervisor) -> None:
    """
    Drop a user that was garbage-collected.

    :param supervisor: What it used.
    """

    # Garbage collection may strike in any thread, with any lock held, so it only leaves word.
    def release() -> None:
        if registry.release(supervisor):
            close_in_background(supervisor)

    executor = AsyncExecutor._singleton
    if executor is None or not executor.post(release):
        registry.collected.append(supervisor)


async def _close_all(*, for_good: bool = True) -> None:
    module = sys.modules.get("haystack_integrations.tools.mcp.session")
    if module is None:
        return  # no session was ever opened
    await module.Session.close_all(for_good=for_good)
    processes = sys.modules.get("haystack_integrations.tools.mcp.stdio_process")
    if processes is not None:
        await processes.end_those_left_behind()


def _close_at_exit() -> None:
    # Server processes must not outlive this one because somebody forgot to close.
    executor = AsyncExecutor._singleton
    if executor is None or executor._closing:
        return
    try:
        # Callbacks that were registered earlier come later, and may still call tools.
        executor.run(_close_all(for_good=False), _EXIT_TIMEOUT)
    except (TimeoutError, RuntimeError) as error:
        logger.warning("Closing the MCP sessions at exit did not end: {error}", error=str(error))


def _forget_after_fork() -> None:
    # Another thread of the parent may have held the lock.
    registry.lock = threading.Lock()
    _background.clear()


AsyncExecutor.before_shutdown = _close_all
atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
