# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the connections of a process share: sessions with equal servers, and the modules that a connection needs.

Importing these, most of all the types of the protocol, takes some tenths of a second, and most of a second for OAuth.
It is done in a thread of its own: in the thread of an event loop it would stop all that the loop does.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
from typing import TYPE_CHECKING, Any

from haystack_integrations.tools.mcp.concurrency import begin_import, imported
from haystack_integrations.tools.mcp.executor import AsyncExecutor

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.identities import Identities
    from haystack_integrations.tools.mcp.handlers import MCPHandlers
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo


_PACKAGE = "haystack_integrations.tools.mcp"

# What each connection needs.
_COMMON = (f"{_PACKAGE}.connection.identities",)

# What `preload` imports beside it: what servers over stdio and HTTP need that want no token.
_USUAL = tuple(f"{_PACKAGE}.transports.{name}" for name in ("stdio", "http_client", "aiohttp_transport"))


def preload() -> None:
    """
    Begin to import what connections over stdio and HTTP need, in a background thread, and return at once.

    Without it, the import, which takes some tenths of a second, begins with the first connection. Call it when the
    program starts if the first call should not wait for that. Calling it again does nothing. A fork waits for the end
    of the import.
    """
    begin_import(*_COMMON, *_USUAL)


async def preloaded(server_info: MCPServerInfo) -> None:
    """
    Import what a connection needs, in a thread, and wait for it without blocking the event loop.

    :param server_info: How the server is reached.
    :raises TimeoutError: If it takes so long that it may never end.
    """
    await imported(*_COMMON, *server_info._modules)


class Pool:
    """
    Who shares which sessions. Decides under a lock and returns what is to be closed; it does no I/O.
    """

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self._shared: list[tuple[Any, Identities]] = []

    def acquire(self, server_info: MCPServerInfo, handlers: MCPHandlers, *, share: bool) -> Identities:
        """
        Find or make the sessions with a server, and count one more user.

        :param server_info: How to reach the server.
        :param handlers: What is done for the server.
        :param share: Whether equal server infos with equal handlers get the same one.
        :returns: The sessions.
        """
        # It imports the types of the protocol, which are there once `preloaded` was awaited.
        from haystack_integrations.tools.mcp.connection.identities import Identities  # noqa: PLC0415

        settings = _settings(server_info), _settings(handlers)
        with self.lock:
            alike = (identities for known, identities in self._shared if known == settings)
            identities = next(alike, None) if share else None
            if identities is None:
                identities = Identities(server_info, handlers)
                if share:
                    self._shared.append((settings, identities))
            identities.users += 1
            return identities

    def release(self, identities: Identities) -> bool:
        """
        Drop one user.

        :param identities: What it used.
        :returns: Whether it was the last, so that they are to be closed.
        """
        with self.lock:
            identities.users -= 1
            if not identities.users:
                self._shared = [shared for shared in self._shared if shared[1] is not identities]
            return not identities.users


pool: Pool = Pool()


def release_collected(identities: Identities) -> None:
    """
    Drop a user that was garbage-collected.

    Garbage collection may strike in any thread, with any lock held, so this takes no lock: it posts the release to the
    executor. Without one, there is no session to close.

    :param identities: What it used.
    """

    def release() -> None:
        if pool.release(identities):
            identities.close_in_background()

    executor = AsyncExecutor._singleton
    if executor is not None:
        executor.post(release)


def _settings(configuration: Any) -> Any:
    """
    Return what a server info or handlers are equal by, as it is now.
    """
    if not dataclasses.is_dataclass(configuration):
        return configuration
    values = [getattr(configuration, field.name) for field in dataclasses.fields(configuration)]
    return type(configuration), [copy.copy(each) if isinstance(each, (dict, list)) else each for each in values]


def _replace_lock_after_fork() -> None:
    # Another thread of the parent may have held it.
    pool.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock_after_fork)
