# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import codecs
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, TextIO

import anyio
from haystack import logging

from haystack_integrations.tools.mcp.redaction import REDACTED
from mcp.client._transport import TransportStreams

logger = logging.getLogger(__name__)

# What a server started and left behind has this long, in seconds, to end after SIGTERM; as long as the SDK gives.
_CHILDREN_GRACE = 2.0

_POLL_INTERVAL = 0.02

_TAIL_LINES = 20
_LINE_LENGTH = 500

# Shorter values of environment variables (a port, "true") are words of every log line.
_SHORTEST_SECRET = 6

# Process groups that were asked to end, because a server left them behind.
_leaving: set[int] = set()


class StderrTail:
    """
    Reads the standard error of a server process, logs it at debug level and keeps its last lines for error messages.

    The values of the server's environment variables are blotted out, since they may be secrets.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        """
        Initialize the StderrTail.

        :param secrets: What must not show.
        """
        # A value of several lines is printed as several lines.
        values = {line.strip() for value in secrets for line in [value, *value.splitlines()]}
        self._secrets = sorted((value for value in values if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read_fd: int | None = None
        self._write_end: TextIO | None = None

    def open(self) -> TextIO:
        """
        Open the pipe and start reading it in the running loop.

        :returns: The file to start the process with; close it here with `started` once the process has it.
        """
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        try:
            asyncio.get_running_loop().add_reader(read_fd, self._read)
        except NotImplementedError:  # the event loop of Windows: the server's lines go to the terminal, unread
            os.close(read_fd)
            os.close(write_fd)
            return sys.stderr
        self._read_fd = read_fd
        self._write_end = os.fdopen(write_fd, "w")
        return self._write_end

    def started(self) -> None:
        """
        Close this process' copy of the writing end, so that the end of the server's is noticed.
        """
        if self._write_end is not None:
            self._write_end.close()
            self._write_end = None

    def _read(self) -> None:
        if self._read_fd is None:
            return
        try:
            data = os.read(self._read_fd, 65536)
        except BlockingIOError:
            return
        if not data:
            self._stop_reading()
            return
        *lines, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        self._rest = self._rest[-_LINE_LENGTH * 4 :]
        for line in lines:
            self._keep(line)

    def _clean(self, line: str) -> str:
        for secret in self._secrets:
            line = line.replace(secret, REDACTED)
        return " ".join(line.split())[:_LINE_LENGTH]

    def _keep(self, line: str) -> None:
        text = self._clean(line)
        if text:
            self._lines.append(text)
            logger.debug("MCP server: {line}", line=text)

    def _stop_reading(self) -> None:
        if self._read_fd is not None:
            asyncio.get_running_loop().remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = None
        self._keep(self._rest)
        self._rest = ""

    def text(self) -> str:
        """
        Give what was read last.

        :returns: The last lines on one line, or the empty string.
        """
        rest = self._clean(self._rest)
        return " | ".join([*self._lines, rest] if rest else self._lines)

    def close(self) -> None:
        """
        Stop reading.
        """
        if self._read_fd is not None:
            self._read()  # what the process said last may still be in the pipe
        self._stop_reading()
        self.started()


class ServerProcess:
    """
    The process of an SDK stdio transport: when it ends, and how.
    """

    def __init__(self, transport: AbstractAsyncContextManager[TransportStreams]) -> None:
        """
        Initialize the ServerProcess.

        :param transport: What the SDK's `stdio_client` returned.
        """
        self._transport = transport
        self._pid_fd: int | None = None
        self._poll: select.poll | None = None
        self._group: int | None = None

    def _process(self) -> Any:
        # The SDK has no accessor for the process; its generator's local variable is the one place that knows it.
        frame = getattr(getattr(self._transport, "gen", None), "ag_frame", None)
        return frame.f_locals.get("process") if frame is not None else None

    async def exit_code(self, timeout: float = 1.0) -> int | None:
        """
        Find out with which code the process ended, before the transport is closed.

        :param timeout: How long to wait for the end, in seconds.
        :returns: The exit code (negative: the signal that killed it), or None if it still runs or cannot be known.
        """
        process = self._process()
        if process is None:
            return None
        with anyio.move_on_after(timeout):
            # Not process.wait(), which also waits for the pipes, and a grandchild may hold these.
            while process.returncode is None:
                await anyio.sleep(0.01)
        code: int | None = process.returncode
        return code

    def watch(self, ended: Callable[[], None]) -> None:
        """
        Have the end of the process noticed even if a grandchild keeps its pipes open.

        Where the platform has no way to wait for a process in an event loop, the end of the pipes has to do.

        :param ended: Called in the running loop when the process ended.
        """
        process = self._process()
        if process is None:
            return
        self._group = process.pid  # the SDK starts every server as the leader of a process group of its own
        if not hasattr(os, "pidfd_open"):
            return
        try:
            pid_fd = os.pidfd_open(process.pid)
        except OSError:  # it has ended already, which the end of its pipes will tell, or the kernel is too old
            return
        self._pid_fd = pid_fd
        self._poll = select.poll()
        self._poll.register(pid_fd, select.POLLIN)

        def notice() -> None:
            self.unwatch()
            ended()

        asyncio.get_running_loop().add_reader(pid_fd, notice)

    def has_ended(self) -> bool:
        """
        Look whether the process has ended, ahead of the event loop.

        :returns: True if it has for sure.
        """
        return self._pid_fd is not None and self._poll is not None and bool(self._poll.poll(0))

    def end_children(self, *, at_once: bool = False) -> None:
        """
        End the process and what it started and left behind, once the transport is closed or cannot be.

        :param at_once: Whether to kill them; else they are asked to end, and have some time to do so.
        """
        process = self._process()
        group, self._group = self._group, None
        if group is None and process is not None and process.returncode is None:
            group = process.pid  # it is still being connected to
        if group is None or not hasattr(os, "killpg"):
            return
        if at_once:
            _signal_group(group, signal.SIGKILL)
        elif _signal_group(group, signal.SIGTERM):
            _leaving.add(group)
            asyncio.get_running_loop().call_later(_CHILDREN_GRACE, _end_of_grace, group)

    def unwatch(self) -> None:
        """
        Stop watching.
        """
        if self._pid_fd is not None:
            asyncio.get_running_loop().remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = None


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_of_grace(group: int) -> None:
    if group in _leaving:
        _leaving.discard(group)
        _signal_group(group, signal.SIGKILL)


async def end_those_left_behind() -> None:
    """
    Wait until what servers have left behind has ended, for as long as it is given, and kill the rest.
    """
    try:
        async with asyncio.timeout(_CHILDREN_GRACE):
            while any(_signal_group(group, 0) for group in _leaving):
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        pass  # that is what they were given
    finally:
        for group in list(_leaving):
            _end_of_grace(group)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leaving.clear)  # they are the parent's
