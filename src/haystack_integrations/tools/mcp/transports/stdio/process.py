# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from haystack import logging

from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.redaction import redact_text
from haystack_integrations.tools.mcp.transports.fields import DEFAULT_MAX_MESSAGE_SIZE
from haystack_integrations.tools.mcp.transports.stdio.lines import LineBuffer, OversizedLine
from haystack_integrations.tools.mcp.transports.stdio.stderr_tail import StderrTail

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How long a server and its children may take to exit, in seconds: after the end of its input, and again after SIGTERM.
# As long as the SDK allows.
_GRACE = 2.0

# How long the output is still read after the process has exited. A child of it may keep the pipe open.
_DRAIN_TIMEOUT = 0.2

_POLL_INTERVAL = 0.02

# When this many bytes of messages are read and not taken, the server has to wait.
_READ_AHEAD = 1024 * 1024

_STDIN, _STDOUT, _STDERR = range(3)

# Process groups that servers left behind, and that were sent SIGTERM.
_terminating: set[int] = set()


class _Pipe(asyncio.Protocol):
    """
    One of the three pipes of a process.
    """

    def __init__(self, fd: int, process: ServerProcess) -> None:
        self._fd = fd
        self._process = process

    def data_received(self, data: bytes) -> None:
        if self._fd == _STDERR:
            for line in self._process.stderr.feed(data):
                logger.debug("The MCP server {server} says: {line}", server=self._process.describe(), line=line)
        else:
            self._process.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.pipe_closed(self._fd, exc)

    def pause_writing(self) -> None:
        self._process.writable.clear()

    def resume_writing(self) -> None:
        self._process.writable.set()


class _Descriptor:
    """
    Our end of a pipe, closed exactly once.

    uvloop closes the descriptor, and later the object, when the number may already be reused.
    """

    def __init__(self, file: Any, *, loop_closes_number: bool) -> None:
        self._number = os.dup(file.fileno())
        self._loop_closes_number = loop_closes_number
        file.close()

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        if not self._loop_closes_number:
            self.close_number()

    def close_number(self) -> None:
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


class ServerProcess:
    """
    A server process and the lines it reads and writes, from its start until its children are gone, too.

    It belongs to the event loop it was started in. States: new -> running -> output over (nothing more is read: the
    process exited, it closed its output, or it did not take a whole message) -> stopped.

    The subprocess functions of the event loops do not do: a start that is cancelled midway loses the process, uvloop
    passes copies of the pipes to the process, so that it does not notice when they are closed, and asyncio needs a
    thread for each process.
    """

    def __init__(
        self,
        command: str,
        args: list[str],
        env: Mapping[str, str],
        cwd: str | None,
        *,
        max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
        secrets: Iterable[str] = (),
    ) -> None:
        """
        Initialize the ServerProcess.

        :param command: The command.
        :param args: Its arguments.
        :param env: Its environment, all of it.
        :param cwd: Its working directory.
        :param max_message_size: How many bytes a line of its output may have.
        :param secrets: What is redacted in its standard error.
        """
        self._command = [command, *args]
        self._env = env
        self._cwd = cwd
        self.stderr: StderrTail = StderrTail(secrets)
        # Called when there may be something to take with `next_line`, and when the output is over. Must not raise.
        self.on_output: Callable[[], None] = _ignore
        self.writable: asyncio.Event = asyncio.Event()
        # Who waits until the process has read enough, in their order.
        self._writers = 0
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        # What is wrong with its output, so that nothing more is read of it.
        self.fault: str | None = None
        # Whether the process has exited, and somebody else has its exit code.
        self.exit_code_is_unknown: bool = False
        self._group: int | None = None
        self._pid_fd: int | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pipes: dict[int, Any] = {}
        self._unconnected: deque[_Descriptor] = deque()
        self._exited = asyncio.Event()
        self._outputs_closed = asyncio.Event()
        self._output_over = False
        self._drain_timer: asyncio.TimerHandle | None = None
        self._outputs = {_STDOUT, _STDERR}
        self._paused = False
        self._lines: deque[bytes | OversizedLine] = deque()
        self._line_buffer = LineBuffer(max_message_size)
        self._unread = 0

    def describe(self) -> str:
        """
        Name the process in log messages, without its arguments, which may contain secrets.

        :returns: A noun phrase.
        """
        pid = f", process {self._process.pid}" if self._process is not None else ""
        return f"`{redact_text(self._command[0])}`{pid}"

    async def start(self) -> None:
        """
        Start the process, as the leader of a session and a process group of its own.

        :raises OSError: If it cannot be started.
        """
        self._process = process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        self._group = process.pid
        self._watch()
        self.writable.set()
        foreign_loop = not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
        try:
            for file in (process.stdin, process.stdout, process.stderr):
                self._unconnected.append(_Descriptor(file, loop_closes_number=foreign_loop))
            self._connecting = asyncio.create_task(self._connect_pipes())
            await asyncio.shield(self._connecting)  # takes a few iterations of the loop
        except BaseException:
            self.end_children(at_once=True)
            if self._connecting is None or self._connecting.done():
                self._release()
            else:
                self._connecting.add_done_callback(lambda _: self._release())
            raise

    async def _connect_pipes(self) -> None:
        loop = asyncio.get_running_loop()
        for fd, connect in enumerate((loop.connect_write_pipe, loop.connect_read_pipe, loop.connect_read_pipe)):
            # The loop itself closes an end whose connecting fails.
            self._pipes[fd], _ = await connect(partial(_Pipe, fd, self), self._unconnected.popleft())

    def _watch(self) -> None:
        if self._process is None or self.has_exited():
            self._note_exit()
        elif self._pid_fd is None:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(AttributeError, OSError):  # another system than Linux, an old kernel
                self._pid_fd = os.pidfd_open(self._process.pid)
                loop.add_reader(self._pid_fd, self._watch)
            if self._pid_fd is None:
                loop.call_later(_POLL_INTERVAL, self._watch)

    def _note_exit(self) -> None:
        if self._pid_fd is not None:
            asyncio.get_running_loop().remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = None
        self._exited.set()
        self._drain_output()

    def take(self, data: bytes) -> None:
        """
        Take what the process wrote to its standard output.

        :param data: The bytes.
        """
        if self._output_over:
            return  # reading goes on, so that a full pipe does not keep the process from exiting
        lines = self._line_buffer.feed(data)
        self._lines.extend(lines)
        self._unread += sum(map(_size, lines))
        self.on_output()
        if self._unread > _READ_AHEAD and not self._paused:
            pipe = self._pipe(_STDOUT)
            if pipe is not None:
                self._paused = True
                pipe.pause_reading()

    def pipe_closed(self, fd: int, exc: Exception | None) -> None:
        """
        Note that a pipe was closed.

        :param fd: Which one.
        :param exc: Why, if not by the process.
        """
        self._outputs.discard(fd)
        if not self._outputs:
            self._outputs_closed.set()
        if fd == _STDOUT:
            self._end_of_output()
        elif fd == _STDIN:
            self.writable.set()
            if exc is not None:  # the process did not take a whole message, so it will not answer it
                self._drain_output()

    def _drain_output(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        if not self._output_over:
            self._drain_timer = asyncio.get_running_loop().call_later(_DRAIN_TIMEOUT, self._end_of_drain)

    def _end_of_drain(self) -> None:
        if self._paused:  # there may be more to read
            self._drain_output()
        else:
            self._end_of_output()

    def give_up(self, fault: str) -> None:
        """
        Read nothing more.

        :param fault: Why, as a clause.
        """
        self.fault = fault
        self._lines.clear()
        self._unread = 0
        self._end_of_output()
        self._read_on()

    def _end_of_output(self) -> None:
        self._output_over = True
        self.writable.set()  # what is not written yet would not be answered
        self.on_output()

    @property
    def output_is_over(self) -> bool:
        """
        Whether all of its output was taken, and no more will come.
        """
        return self._output_over and not self._lines

    def next_line(self) -> bytes | OversizedLine | None:
        """
        Take the next line of the standard output.

        :returns: The line without its line break, or the report of one that is too large, or None if there is none yet.
        """
        if not self._lines:
            return None
        line = self._lines.popleft()
        self._unread -= _size(line)
        if self._paused and self._unread <= _READ_AHEAD:
            self._read_on()
        return line

    async def write(self, data: bytes, on_write: Callable[[], None] | None = None) -> None:
        """
        Write a message to the process, once it has read most of the earlier ones.

        Whoever is cancelled before that has written nothing.

        :param data: The message.
        :param on_write: Called right before the first byte can leave.
        :raises BrokenPipeError: If the process takes no more messages. Nothing of this one was written.
        """
        if not self._writers and self.writable.is_set():
            self._write(data, on_write)
            return
        self._writers += 1
        try:
            async with self._turn:
                await self.writable.wait()
                self._write(data, on_write)
        finally:
            self._writers -= 1

    def _write(self, data: bytes, on_write: Callable[[], None] | None) -> None:
        pipe = self._pipe(_STDIN)
        if pipe is None or self._output_over:
            raise BrokenPipeError
        if on_write is not None:
            on_write()
        pipe.write(data)
        if pipe.is_closing():  # the first attempt failed
            raise BrokenPipeError

    def _pipe(self, fd: int) -> Any:
        # None once it is closed, because the closed pipes of uvloop raise at any use.
        pipe = self._pipes.get(fd)
        return None if pipe is None or pipe.is_closing() else pipe

    def _read_on(self) -> None:
        if not self._paused:
            return
        self._paused = False
        pipe = self._pipe(_STDOUT)
        if pipe is not None:
            pipe.resume_reading()
        if self._drain_timer is not None:
            self._drain_output()

    def has_exited(self) -> bool:
        """
        Check whether the process has exited, ahead of the event loop.

        :returns: True if it certainly has.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return process is not None
        try:
            pid, status = os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError:
            # Other code of this program waited for it, as init processes of containers do. Popen would say 0.
            self.exit_code_is_unknown = True
            pid, status = process.pid, 0
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
        return bool(pid)

    @property
    def has_closed_output(self) -> bool:
        """
        Whether its standard output was closed.
        """
        return _STDOUT not in self._outputs

    async def exit_code(self, timeout: float = 1.0) -> int | None:
        """
        Wait for the exit code, and for the last lines on standard error.

        :param timeout: How long to wait for the exit, in seconds.
        :returns: The exit code (negative: the signal that killed it), or None if the process still runs.
        """
        if self._process is None:
            return None
        if not await _is_set(self._exited, timeout):
            return None
        await _is_set(self._outputs_closed, _DRAIN_TIMEOUT)
        return self._process.returncode

    async def stop(self) -> None:
        """
        End the process: close its input; if it stays, send SIGTERM, then SIGKILL.

        The order is the protocol's: https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown
        """
        process = self._process
        if process is None:
            return
        try:
            self._lines.clear()
            self._end_of_output()
            self._read_on()
            pipe = self._pipe(_STDIN)
            if pipe is not None:
                pipe.close()
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    _signal_group(process.pid, number)
                if await _is_set(self._exited, _GRACE):
                    return
            logger.warning("The MCP server {server} still runs after SIGKILL", server=self.describe())
        finally:
            self._release()

    def _release(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        pipe = self._pipes.get(_STDIN)
        if pipe is not None and pipe.get_write_buffer_size():  # close() would wait until everything is written
            pipe.abort()
        for pipe in self._pipes.values():
            pipe.close()
        while self._unconnected:
            self._unconnected.popleft().close_number()
        if self._process is not None:
            for file in (self._process.stdin, self._process.stdout, self._process.stderr):
                if file is not None:
                    file.close()  # not a _Descriptor yet: there was no free number for its copy

    def end_children(self, *, at_once: bool = False) -> None:
        """
        End the children that the process left behind, and the process itself if it was not stopped.

        :param at_once: Whether to kill them; otherwise they get SIGTERM, and SIGKILL 2 s later.
        """
        group, self._group = self._group, None
        if group is None:
            return
        if at_once:
            _signal_group(group, signal.SIGKILL)
        elif _signal_group(group, signal.SIGTERM):
            _terminating.add(group)
            asyncio.get_running_loop().call_later(_GRACE, _kill_group, group)


def _ignore() -> None:
    pass


def _size(line: bytes | OversizedLine) -> int:
    return 1 + (len(line) if isinstance(line, bytes) else len(line.head) + len(line.tail))


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _kill_group(group: int) -> None:
    if group in _terminating:
        _terminating.discard(group)
        _signal_group(group, signal.SIGKILL)


async def end_leftovers() -> None:
    """
    Wait until the processes that servers left behind have exited, within their grace period, and kill the rest.
    """
    try:
        async with asyncio.timeout(_GRACE):
            while any(_signal_group(group, 0) for group in _terminating):
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        pass  # the grace period is over
    finally:
        for group in list(_terminating):
            _kill_group(group)


AsyncExecutor.before_shutdown.append(end_leftovers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_terminating.clear)  # they belong to the parent


async def _is_set(event: asyncio.Event, timeout: float) -> bool:
    # anyio's scopes import its backend at their first use, which may be at the interpreter's exit.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            return await event.wait()
    return event.is_set()
