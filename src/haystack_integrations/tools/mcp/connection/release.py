# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who closes a connection that nobody closed: garbage collection, and closing in the background.

At interpreter exit, and at a shutdown of the executor, the hooks in `AsyncExecutor.before_shutdown` close what is open.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import TYPE_CHECKING

from haystack_integrations.tools.mcp.connection.pool import pool
from haystack_integrations.tools.mcp.executor import AsyncExecutor

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor

# An event loop holds its tasks by weak references only.
_background: set[asyncio.Task[None]] = set()
_closing: weakref.WeakKeyDictionary[Supervisor, asyncio.Task[None]] = weakref.WeakKeyDictionary()


def close_in_background(supervisor: Supervisor) -> asyncio.Task[None]:
    """
    Start closing a supervisor, without waiting. In the executor's thread only.

    :param supervisor: The supervisor.
    :returns: The task that closes it; the same one however often it is asked for.
    """
    task = _closing.get(supervisor)
    if task is None:
        task = _closing[supervisor] = asyncio.get_running_loop().create_task(supervisor.close())
        task.add_done_callback(_background.discard)
        _background.add(task)
    return task


def release_collected(supervisor: Supervisor) -> None:
    """
    Drop a user that was garbage-collected.

    Garbage collection may strike in any thread, with any lock held, so this takes no lock: it posts the release to the
    executor, or leaves it to the next user of the pool.

    :param supervisor: What it used.
    """

    def release() -> None:
        if pool.release(supervisor):
            close_in_background(supervisor)

    executor = AsyncExecutor._singleton
    if executor is None or not executor.post(release):
        pool.collected.append(supervisor)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.clear)  # they are tasks of the parent's loop
