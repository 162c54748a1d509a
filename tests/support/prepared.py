# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Python processes that are forked from a process that has already imported Haystack, the MCP SDK and this package.

Each starts in 0.05 s instead of 2 s. Tests of the start of an interpreter use `subprocess` instead.
"""

import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import psutil

from tests.support import fork_server

SOURCE = Path(__file__).parents[2] / "src"
_PROGRAM = str(Path(fork_server.__file__))
# Names the socket of the fork server, also for the workers of pytest-xdist.
_VARIABLE = "MCP_HAYSTACK_FORK_SERVER"

CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")


class ForkServer:
    """
    The process that all others are forked from. A test run has one, even if several workers run its tests.
    """

    _own: "ClassVar[subprocess.Popen[bytes] | None]" = None

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mcp-haystack-")
        path = os.path.join(self._folder.name, "socket")
        for folder, forks in (("", False), ("forks", True)):
            python = Path(self._folder.name, folder, "python")
            python.parent.mkdir(exist_ok=True)
            python.write_text(
                # sh starts this Python, whose path may have spaces, or be too long for the first line of a script.
                f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} -IS \"$0\" \"$@\"\n' '''\n"
                f"import sys\nsys.path.insert(0, {str(Path(_PROGRAM).parent)!r})\n"
                f"from fork_server import run\nrun({path!r}, sys.argv[1:], {str(python) if forks else None!r})\n"
            )
            python.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(64)
            self.process = subprocess.Popen(
                [sys.executable, _PROGRAM, str(listener.fileno())],
                stdin=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(SOURCE), "HAYSTACK_TELEMETRY_ENABLED": "False"},
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        os.environ[_VARIABLE] = path

        ForkServer._own = self.process

    @staticmethod
    def runs() -> bool:
        """
        Return whether this process or its parent has already started a fork server.
        """
        return _VARIABLE in os.environ

    @classmethod
    def processes(cls) -> set[int]:
        """
        Return the pids of the fork server and of its processes, as far as they are children of this process.
        """
        if cls._own is None:
            return set()
        process = psutil.Process(cls._own.pid)
        return {process.pid, *(child.pid for child in process.children(recursive=True))}

    def close(self) -> None:
        """
        End the fork server and all processes that it has forked.
        """
        del os.environ[_VARIABLE]
        ForkServer._own = None
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        self._folder.cleanup()


def prepared_python(*, forks: bool = False) -> str:
    """
    Return the path of a `python` that other programs can start. Its program runs in a forked process, and ends with it.

    :param forks: Whether the programs of `sys.executable` that it starts are forked, too.
    """
    if not CAN_FORK:
        return sys.executable
    return str(Path(os.environ[_VARIABLE]).parent / ("forks/python" if forks else "python"))


class PreparedProcess(subprocess.Popen[Any]):
    """
    `subprocess.Popen` for a command of this Python. The process leads a session and a group, and never outlives ours.
    """

    _started: ClassVar[Any] = WeakSet()

    def __init__(self, command: Sequence[str], *, finalize: bool = False, forks: bool = False, **options: Any) -> None:
        """
        Start the process.

        :param command: The path of this Python, and its arguments.
        :param finalize: Whether it ends like an interpreter, which frees all objects.
        :param forks: Whether the programs of `sys.executable` that it starts are forked, too.
        :param options: Options of `subprocess.Popen`.
        """
        assert command[0] == sys.executable, command
        self._settings = {"finalize": finalize, "python": prepared_python(forks=True) if forks else None}
        super().__init__(command, start_new_session=True, **options)
        PreparedProcess._started.add(self)

    @classmethod
    def started(cls) -> set[int]:
        """
        Return the pids of the processes that this one has started and that have not ended.
        """
        return {process.pid for process in list(cls._started) if process.poll() is None}

    if CAN_FORK:

        def _execute_child(self, *settings: Any) -> None:
            # Take the command, its folder and variables, and the ends of the pipes.
            args, _, _, _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = settings
            ends = enumerate((p2cread, c2pwrite, errwrite))
            own = {number: end if end >= 0 else number for number, end in ends}
            try:
                self._connection = fork_server.ask(
                    os.environ[_VARIABLE],
                    list(map(str, args[1:])),
                    own,
                    cwd=str(cwd or os.getcwd()),
                    env=dict(os.environ if env is None else env),
                    **self._settings,
                )
                self._told = b""
                self.pid = int(self._next_line(None) or 0)
                self._child_created = True
            finally:
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

        def _next_line(self, timeout: float | None) -> bytes:
            """Return the next line of the fork server, or nothing if none came in time."""
            while b"\n" not in self._told:
                if not select.select([self._connection], [], [], timeout)[0]:
                    return b""
                received = self._connection.recv(64)
                # If the fork server was killed, all processes that it forked were, too.
                self._told += received or b"%d\n" % signal.SIGKILL
            line, _, self._told = self._told.partition(b"\n")
            return line

        def _internal_poll(self, *_: Any, **__: Any) -> int | None:  # type: ignore[override]
            return self._ended_within(0)

        def _wait(self, timeout: float | None) -> int:
            if self._ended_within(timeout) is None:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            return self.returncode

        def _ended_within(self, timeout: float | None) -> int | None:
            with self._waitpid_lock:
                if self.returncode is None and (line := self._next_line(timeout)):
                    self.returncode = os.waitstatus_to_exitcode(int(line))
                    self._connection.close()
                return self.returncode
