# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Imports what a connection needs, most of all the types of the protocol, in a thread of its own.

The import takes more than half a second. In the thread of an event loop it would stop all that the loop does.
"""

from __future__ import annotations

import importlib
import os
import threading

from haystack_integrations.tools.mcp.concurrency import start_in_thread

_MODULES = (
    "haystack_integrations.tools.mcp.connection.identities",
    "haystack_integrations.tools.mcp.connection.interception",
    "haystack_integrations.tools.mcp.transports.http_client",
    "haystack_integrations.tools.mcp.transports.in_process",
    "haystack_integrations.tools.mcp.transports.stdio",
    # Last, because it needs the extra `fast`.
    "haystack_integrations.tools.mcp.transports.aiohttp_transport",
)


# Held while modules are imported that wait for the first connection: a fork waits for it. The child would have modules
# that are imported by half, and their locks for ever.
whole_imports: threading.RLock = threading.RLock()


_lock = threading.Lock()
_thread: threading.Thread | None = None


def _import() -> None:
    try:
        for module in _MODULES:
            importlib.import_module(module)
    except ImportError:
        pass  # whoever needs it imports it again, and gets the error


def _begun() -> threading.Thread | None:
    global _thread  # noqa: PLW0603
    with _lock:
        if _thread is None:
            # A daemon, so that a program may end meanwhile.
            thread = threading.Thread(target=_import, name="mcp-haystack-preload", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # this process has too many threads
                return None
            _thread = thread
        return _thread


def preload() -> None:
    """
    Begin to import what a connection needs, in a background thread, and return at once.

    Without it, the import, which takes more than half a second, begins with the first connection. Call it when the
    program starts if the first call should not wait for that. Calling it again does nothing. A fork waits for the end
    of the import. If no thread can be started, the import is left to the first connection.
    """
    _begun()


async def preloaded() -> None:
    """
    Wait for the import without blocking the event loop; begin it if nobody has.
    """
    thread = _begun()
    # Without a thread, whoever waits goes on and imports it where it is.
    if thread is not None and thread.is_alive():
        await start_in_thread(thread.join)


def _before_fork() -> None:
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join()
    whole_imports.acquire()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=whole_imports.release, after_in_child=whole_imports.release
    )
