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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haystack import logging

from haystack_integrations.tools.mcp.errors import MCPConnectionError

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.supervisor import Supervisor

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How long the last request about a task, that cancels it, may take, in seconds.
CANCEL_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class _Holder:
    supervisor: Supervisor
    is_given_up: bool


# The coroutines that cancel a task at a server, if they are cancelled themselves, or in any case.
_holders: dict[asyncio.Task[object], _Holder] = {}


@contextmanager
def holding_task(supervisor: Supervisor, *, is_given_up: bool = False) -> Iterator[None]:
    """
    Have the session kept open until the running coroutine has cancelled its task at the server, if it has to.

    :param supervisor: Has the session.
    :param is_given_up: Whether it has to in any case, not only if it is cancelled.
    :returns: A context manager.
    """
    running = asyncio.current_task()
    if running is None:
        raise AssertionError  # what is awaited in an event loop runs in a task
    _holders[running] = _Holder(supervisor.base, is_given_up)
    try:
        yield
    finally:
        _holders.pop(running, None)
        del running  # it may hold an error whose traceback holds this frame


async def cancel_task(task_id: str, supervisor: Supervisor) -> None:
    """
    Ask a server to cancel a task that nobody waits for any more.

    :param task_id: The server's name of the task.
    :param supervisor: Has the session.
    """
    try:
        await supervisor.read(
            "tasks/cancel",
            lambda client: client.cancel_task(task_id),
            connection_timeout=CANCEL_TIMEOUT,
            timeout=CANCEL_TIMEOUT,
        )
    except MCPConnectionError as error:
        _warn(supervisor, error)


def cancel_in_background(task_id: str, supervisor: Supervisor) -> None:
    """
    Do the same on behalf of a caller that does not wait for it. To be called in the executor's loop and its context.

    :param task_id: The server's name of the task.
    :param supervisor: Has the sessions of all identities.
    """

    async def cancel() -> None:
        with holding_task(supervisor, is_given_up=True):
            try:
                await supervisor.identities.read(
                    "tasks/cancel",
                    lambda client: client.cancel_task(task_id),
                    connection_timeout=CANCEL_TIMEOUT,
                    timeout=CANCEL_TIMEOUT,
                    may_repeat=True,
                )
            except MCPConnectionError as error:
                _warn(supervisor, error)

    # It is referred to by the loop until it begins, and by `_holders` from then on.
    asyncio.get_running_loop().create_task(cancel())


async def given_up_tasks_cancelled(supervisor: Supervisor | None = None) -> None:
    """
    Wait until those tasks are cancelled at a server whose callers have given up.

    :param supervisor: Has the sessions, which are to be closed next; None for those of the running loop.
    """
    loop = asyncio.get_running_loop()
    waited_for = {
        running
        for running, holder in _holders.items()
        if supervisor in (None, holder.supervisor)
        and running is not asyncio.current_task()
        and running.get_loop() is loop  # after a fork, or a shutdown of the executor, others never end
        and (holder.is_given_up or running.cancelling())
    }
    if waited_for:
        await asyncio.wait(waited_for, timeout=CANCEL_TIMEOUT)


def _warn(supervisor: Supervisor, error: MCPConnectionError) -> None:
    logger.warning(
        "A task of a tool of {server} was given up, but could not be cancelled: {error}",
        server=supervisor.description,
        error=str(error),
    )
