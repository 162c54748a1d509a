# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who shares which identities in this process.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any

from haystack.utils import Secret

from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig
from haystack_integrations.tools.mcp.connection.preload import whole_imports
from haystack_integrations.tools.mcp.executor import AsyncExecutor

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.identities import Identities
    from haystack_integrations.tools.mcp.handlers import MCPHandlers
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo


class Pool:
    """
    Who shares which sessions. Decides under a lock and returns what is to be closed; it does no I/O.
    """

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self._shared: dict[Any, Identities] = {}
        # What users that were garbage-collected after the executor's shutdown had used: its sessions ended with the
        # executor. Finalisers append to it without the lock.
        self.collected: deque[Identities] = deque()

    def acquire(self, server_info: MCPServerInfo, handlers: MCPHandlers, *, share: bool) -> Identities:
        """
        Find or make the sessions with a server, and count one more user.

        :param server_info: How to reach the server.
        :param handlers: What is done for the server.
        :param share: Whether equal server infos with equal handlers get the same one.
        :returns: The sessions.
        """
        key = (_identity(server_info), _identity(handlers)) if share else None
        # It imports the types of the protocol, which takes 0.25 s, so that waits for the first connection.
        # What only calls use comes along, so that a fork during calls finds no module that is imported by half.
        with whole_imports:
            from haystack_integrations.tools.mcp.connection import interception  # noqa: F401, PLC0415
            from haystack_integrations.tools.mcp.connection.identities import Identities  # noqa: PLC0415

        with self.lock:
            self._forget_collected()
            identities = self._shared.get(key) if share else None
            if identities is None:
                identities = Identities(server_info, handlers)
                if share:
                    self._shared[key] = identities
            identities.users += 1
            return identities

    def release(self, identities: Identities) -> bool:
        """
        Drop one user.

        :param identities: What it used.
        :returns: Whether it was the last, so that they are to be closed.
        """
        with self.lock:
            self._forget_collected()
            return self._drop(identities)

    def _drop(self, identities: Identities) -> bool:
        identities.users -= 1
        if not identities.users:
            self._shared = {key: shared for key, shared in self._shared.items() if shared is not identities}
        return not identities.users

    def _forget_collected(self) -> None:
        while self.collected:
            self._drop(self.collected.popleft())


pool: Pool = Pool()


def release_collected(identities: Identities) -> None:
    """
    Drop a user that was garbage-collected.

    Garbage collection may strike in any thread, with any lock held, so this takes no lock: it posts the release to the
    executor, or leaves it to the next user of the pool.

    :param identities: What it used.
    """

    def release() -> None:
        if pool.release(identities):
            identities.close_in_background()

    executor = AsyncExecutor._singleton
    if executor is None or not executor.post(release):
        pool.collected.append(identities)


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
    if isinstance(value, MethodType):  # each access makes another, equal one
        return value
    if isinstance(value, OAuthConfig):
        return _identity(value)
    if dataclasses.is_dataclass(value) and getattr(type(value), "__dataclass_params__").frozen:  # noqa: B009 - a dunder
        return _identity(value)
    return _Itself(value)


def _identity(configuration: Any) -> Any:
    if not dataclasses.is_dataclass(configuration):
        return _Itself(configuration)
    values = ((field.name, getattr(configuration, field.name)) for field in dataclasses.fields(configuration))
    return type(configuration), tuple((name, _freeze(value)) for name, value in values)


def _replace_lock_after_fork() -> None:
    # Another thread of the parent may have held it.
    pool.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock_after_fork)
