# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What becomes of a task at a server whose caller gives up: it is cancelled there.

.. code-block:: text

    when the caller gives up                                who asks the server to cancel the task
    a handler keeps the call, or the task is waited for     the coroutine that does so, once it is cancelled itself
    one of the two has ended, or has not begun              a coroutine that the caller leaves behind
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

# How long the last request about a task, that cancels it, may take, in seconds.
CANCEL_TIMEOUT = 5.0


# The coroutines that cancel a task at a server: for which owner of sessions, and whether they do so in any case or only
# if they are cancelled themselves.
_holders: dict[asyncio.Task[object], tuple[object, bool]] = {}


@contextmanager
def holding_task(owner: object, *, is_given_up: bool = False) -> Iterator[None]:
    """
    Have the session kept open until the running coroutine has cancelled its task at the server, if it has to.

    :param owner: Has the session.
    :param is_given_up: Whether it has to in any case, not only if it is cancelled.
    :returns: A context manager.
    """
    running = asyncio.current_task()
    if running is None:
        raise AssertionError  # what is awaited in an event loop runs in a task
    _holders[running] = owner, is_given_up
    try:
        yield
    finally:
        _holders.pop(running, None)
        del running  # it may hold an error whose traceback holds this frame


async def given_up_tasks_cancelled(owner: object = None) -> None:
    """
    Wait until those tasks are cancelled at a server whose callers have given up.

    :param owner: Has the sessions, which are to be closed next; None for those of the running loop.
    """
    loop = asyncio.get_running_loop()
    waited_for = {
        running
        for running, (holder, is_given_up) in _holders.items()
        if owner is None or holder is owner
        if running is not asyncio.current_task()
        and running.get_loop() is loop  # after a fork, or a shutdown of the executor, others never end
        and (is_given_up or running.cancelling())
    }
    if waited_for:
        await asyncio.wait(waited_for, timeout=CANCEL_TIMEOUT)
