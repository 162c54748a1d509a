# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Check that a test run leaves nothing behind in its process: child processes, threads, listening sockets.
"""

import contextlib
import ctypes
import gc
import os
import sys
import threading
from typing import Any

import psutil

from tests.support.prepared import ForkServer, PreparedProcess
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """
    Adopt processes whose parent has ended as children of this process (Linux), so that they can be found.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def footprint() -> dict[Any, str]:
    """
    Return the child processes, threads and listening sockets of this process, with a description of each.
    """
    process = psutil.Process()
    children = {child.pid for child in process.children(recursive=True)} - ForkServer.processes()
    found: dict[Any, str] = {
        ("process", pid): f"process {pid}: {_command(pid)}"
        for pid in children | PreparedProcess.started()
        if is_alive(pid)
    }
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if not thread.daemon:
            found[thread] = f"thread {thread.name!r} (not a daemon): {frames.get(thread.ident or 0)}"
    for each in process.net_connections(kind="inet"):
        if each.status == psutil.CONN_LISTEN:
            found["port", each.laddr.port] = f"listening socket on port {each.laddr.port}"
    return found


def assert_nothing_left(earlier: dict[Any, str], *, limit: float = 15.0) -> None:
    """
    Fail with the names of everything that is left over and not gone within the limit.

    :param earlier: The footprint at the start.
    :param limit: Seconds that processes and threads may take to end.
    """

    def left() -> dict[Any, str]:
        gc.collect()
        return {key: shown for key, shown in footprint().items() if key not in earlier}

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), "the end of all", limit=limit)
    if found := left():
        for key in found:
            match key:
                case ("process", pid):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        psutil.Process(pid).kill()
        lines = "".join(f"\n  * {shown}" for shown in found.values())
        raise AssertionError(f"the tests of this process ({os.getpid()}) left behind:{lines}")


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error as error:
        return str(error)
