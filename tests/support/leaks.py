# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a test run must not leave behind in its process: child processes, threads, listening sockets.
"""

import ctypes
import gc
import os
import sys
import threading
from dataclasses import dataclass

import psutil

from tests.support.prepared import ForkServer, PreparedProcess
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """
    Make a process whose parent has ended a child of this one (Linux), so that it can be seen.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Footprint:
    """
    What this process has running now.
    """

    children: frozenset[int]
    threads: frozenset[threading.Thread]
    ports: frozenset[int]

    @classmethod
    def take(cls) -> "Footprint":
        process = psutil.Process()
        apart = ForkServer.processes()
        started = {child.pid for child in process.children(recursive=True)} - apart | PreparedProcess.started()
        children = frozenset(pid for pid in started if is_alive(pid))
        threads = frozenset(thread for thread in threading.enumerate() if not thread.daemon)
        listening = (each for each in process.net_connections(kind="inet") if each.status == psutil.CONN_LISTEN)
        return cls(children, threads, frozenset(each.laddr.port for each in listening))

    def beyond(self, earlier: "Footprint") -> "Footprint":
        """
        What is here and was not earlier.
        """
        return Footprint(self.children - earlier.children, self.threads - earlier.threads, self.ports - earlier.ports)

    def __bool__(self) -> bool:
        return bool(self.children or self.threads or self.ports)

    def __str__(self) -> str:
        lines = [f"process {pid}: {_command(pid)}" for pid in sorted(self.children)]
        lines += [f"thread {thread.name!r} (not a daemon): {_where(thread)}" for thread in self.threads]
        lines += [f"listening socket on port {port}" for port in sorted(self.ports)]
        return "\n".join(f"  * {line}" for line in lines)


def assert_nothing_left(earlier: Footprint, *, limit: float = 15.0) -> None:
    """
    Fail, naming all that is left over, unless it is gone within the limit.

    :param earlier: What was running at the start.
    :param limit: How long ends that are under way may take, in seconds.
    """
    gc.collect()
    try:
        wait_until(lambda: not Footprint.take().beyond(earlier), "the end of all", limit=limit)
    except AssertionError:
        left = Footprint.take().beyond(earlier)
        message = f"the tests of this process ({os.getpid()}) left behind:\n{left}"
        for pid in left.children:
            _kill(pid)
        raise AssertionError(message) from None


def _kill(pid: int) -> None:
    try:
        psutil.Process(pid).kill()
    except psutil.NoSuchProcess:
        pass


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error as error:
        return str(error)


def _where(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "ended"
