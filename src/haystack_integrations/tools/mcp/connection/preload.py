# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Imports what a connection needs, most of all the types of the protocol, in a thread of its own.

The import takes more than half a second. In the thread of an event loop it would stop all that the loop does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import os
import threading

_MODULES = (
    "haystack_integrations.tools.mcp.connection.identities",
    "haystack_integrations.tools.mcp.connection.interception",
    "haystack_integrations.tools.mcp.transports.http.client",
    "haystack_integrations.tools.mcp.transports.in_process.client",
    "haystack_integrations.tools.mcp.transports.stdio.client",
    # Last, because it needs the extra `fast`.
    "haystack_integrations.tools.mcp.transports.http.aiohttp_transport",
)


# Held while modules are imported that wait for the first connection: a fork waits for it. The child would have modules
# that are imported by half, and their locks for ever.
whole_imports: threading.RLock = threading.RLock()


class _Preload:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def begin(self) -> bool:
        with self._lock:
            if self._thread is None:
                # A daemon, so that a program may end meanwhile.
                thread = threading.Thread(target=self._import, name="mcp-haystack-preload", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # this process has too many threads
                    return False
                self._thread = thread
            return True

    def _import(self) -> None:
        try:
            for module in _MODULES:
                importlib.import_module(module)
        except ImportError:
            pass  # whoever needs it imports it again, and gets the error
        finally:
            self._done.set_result(None)

    async def wait(self) -> None:
        # Without a thread, whoever waits goes on and imports it where it is.
        if not self._done.done() and self.begin():
            # Shielded, because a caller that is cancelled would cancel the future of all.
            await asyncio.shield(asyncio.wrap_future(self._done))

    def finish(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


_preload = _Preload()


def preload() -> None:
    """
    Begin to import what a connection needs, in a background thread, and return at once.

    Without it, the import, which takes more than half a second, begins with the first connection. Call it when the
    program starts if the first call should not wait for that. Calling it again does nothing. A fork waits for the end
    of the import. If no thread can be started, the import is left to the first connection.
    """
    _preload.begin()


async def preloaded() -> None:
    """
    Wait for the import without blocking the event loop; begin it if nobody has.
    """
    await _preload.wait()


def _before_fork() -> None:
    _preload.finish()
    whole_imports.acquire()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=whole_imports.release, after_in_child=whole_imports.release
    )
