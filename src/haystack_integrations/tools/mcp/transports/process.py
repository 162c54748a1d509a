# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging as stdlib_logging
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from haystack import logging

from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.redaction import SHORTEST_SECRET, Redactor, redact_text

logger: logging.PatchedLogger = logging.getLogger(__name__)
_stdlib_logger = stdlib_logging.getLogger(__name__)

_LINES = 50
_LINE_LENGTH = 500

# What an error message quotes, in characters: as much as has the error of Node before its stack.
_TEXT_LENGTH = 1000

# How much of a line is kept: more than is shown, because redaction and the removal of white space make lines shorter.
_KEPT_LENGTH = 4 * _LINE_LENGTH

# Sequences of ECMA-48 that set colours, titles and links or move the cursor, also where the line cuts one off.
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*(?:[0-~]|$)"
)
_CONTROL_CHARACTERS = dict.fromkeys(
    number for number in (*range(0x20), *range(0x7F, 0xA0)) if not chr(number).isspace()
)


class StderrTail:
    """
    Keeps the last lines of a server's standard error, which error messages quote.

    The secrets of the server, and well-known tokens, are redacted. Lines are cut after 500
    characters. A carriage return, as in a progress bar, ends a line, too. Escape sequences and control characters are
    removed: they would reach a terminal through messages and logs.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        """
        Initialize the StderrTail.

        :param secrets: Values to redact.
        """
        # As they show: a value of several lines is printed as several lines.
        self._redactor = Redactor(_printable(line) for value in secrets for line in [value, *value.splitlines()])
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._unfinished = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[str]:
        """
        Process the next output.

        :param data: The bytes that the process wrote.
        :returns: The lines that are now complete, redacted.
        """
        text = self._unfinished + self._decoder.decode(data).replace("\r", "\n")
        *lines, self._unfinished = (line[:_KEPT_LENGTH] for line in text.split("\n"))
        cleaned = [text for line in lines if (text := self._clean(line, is_whole=len(line) < _KEPT_LENGTH))]
        self._lines.extend(cleaned)
        return cleaned

    def text(self) -> str:
        """
        Quote the last lines.

        :returns: At most 1000 characters, redacted, the lines joined with " | "; or an empty string.
        """
        lines = [*self._lines, self._clean(self._unfinished, is_whole=False)]
        text = " | ".join(" ".join(line.split()) for line in lines if line)
        return text if len(text) <= _TEXT_LENGTH else f"…{text[1 - _TEXT_LENGTH :]}"

    def _clean(self, line: str, *, is_whole: bool) -> str:
        # The sequences first, because one within a secret would hide it.
        line = _printable(line)
        if not is_whole:
            # It may end in the first part of a secret, which a search for the whole does not find.
            line = line[: len(line) - max((_overlap(line, secret) for secret in self._redactor.forms), default=0)]
        return self._redactor.text(line).rstrip()[:_LINE_LENGTH]


def _printable(text: str) -> str:
    return _ESCAPE_SEQUENCE.sub("", text).translate(_CONTROL_CHARACTERS)


def _overlap(line: str, secret: str) -> int:
    # Only proper prefixes count: the search finds a whole secret.
    lengths = range(min(len(secret) - 1, len(line)), SHORTEST_SECRET - 1, -1)
    return next((length for length in lengths if line.endswith(secret[:length])), 0)


# How long a server and its children may take to exit, in seconds: after the end of its input, and again after SIGTERM.
# As long as the SDK allows.
_GRACE = 2.0

_POLL_INTERVAL = 0.02

# What is read at once, in bytes: as much as a pipe of Linux holds.
_CHUNK = 65_536

# How often the pipes are read once the process has exited. They hold up to 1 MiB of it; a child that keeps them open
# may write more.
_LAST_READS = 16

# Process groups that servers left behind, and that were sent SIGTERM.
_terminating: set[int] = set()


class ServerProcess:
    """
    A server process and its pipes, from its start until its children are gone, too.

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
        secrets: Iterable[str] = (),
        redact: Callable[[str], str] = redact_text,
    ) -> None:
        """
        Initialize the ServerProcess.

        :param command: The command.
        :param args: Its arguments.
        :param env: Its environment, all of it.
        :param cwd: Its working directory.
        :param secrets: What is redacted in its standard error.
        :param redact: Removes the secrets of calls, too, from what is logged of it.
        """
        self._redact = redact
        self._command = [command, *args]
        self._env = env
        self._cwd = cwd
        self.stderr: StderrTail = StderrTail(secrets)
        # Called with what the process writes to its standard output, and with nothing at the end. Must not raise.
        self.on_output: Callable[[bytes], object] = bool
        self.output_is_over: bool = False
        # The Popen and its pipes, once it is started.
        self._process: Any = None
        self._stdin: Any = None
        self._stdout: Any = None
        self._stderr: Any = None
        self._group: int | None = None
        self._pid_fd: int | None = None
        self._poll_timer: asyncio.TimerHandle | None = None
        self._exited = asyncio.Event()
        # The rest of the message that is being written. There is none when the event is set.
        self._unwritten = memoryview(b"")
        self._writable = asyncio.Event()

    def describe(self) -> str:
        """
        Name the process in log messages, without its arguments, which may contain secrets.

        :returns: A noun phrase.
        """
        pid = f", process {self._process.pid}" if self._process is not None else ""
        return f"`{redact_text(self._command[0])}`{pid}"

    def start(self) -> None:
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
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._writable.set()
        try:
            for pipe in (self._stdin, self._stdout, self._stderr):
                os.set_blocking(pipe.fileno(), False)
            loop = asyncio.get_running_loop()
            loop.add_reader(self._stdout.fileno(), self._read, self._stdout)
            loop.add_reader(self._stderr.fileno(), self._read, self._stderr)
            self._watch()
        except BaseException:
            self.end_children(at_once=True)
            process.wait()
            self._release()
            raise

    def _watch(self) -> None:
        if self.has_exited():
            self._unwatch()
            self._exited.set()
            self._read_the_rest()
        elif self._pid_fd is None:
            loop = asyncio.get_running_loop()
            try:
                self._pid_fd = os.pidfd_open(self._process.pid)
            except (AttributeError, OSError):  # another system than Linux, an old kernel
                self._poll_timer = loop.call_later(_POLL_INTERVAL, self._watch)
            else:
                loop.add_reader(self._pid_fd, self._watch)

    def _unwatch(self) -> None:
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        if self._pid_fd is not None:
            asyncio.get_running_loop().remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = None

    def _read_the_rest(self) -> None:
        """
        Read what the process wrote before its end. Without waiting: children may keep the pipes open.
        """
        for pipe in (self._stderr, self._stdout):
            for _ in range(_LAST_READS):
                if not self._read(pipe):
                    break
        self._end_output()

    def _read(self, pipe: Any) -> bool:
        """
        Read a pipe once, and close it at its end. Return whether there was something.
        """
        if pipe.closed:
            return False
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            _close(pipe)
        if pipe is self._stderr:
            lines = self.stderr.feed(data)
            for line in lines if _stdlib_logger.isEnabledFor(stdlib_logging.DEBUG) else ():
                logger.debug("The MCP server {server} says: {line}", server=self.describe(), line=self._redact(line))
        elif not data:
            self._end_output()
        elif not self.output_is_over:  # reading goes on: a full pipe would keep the process from exiting
            self.on_output(data)
        return bool(data)

    def _end_output(self) -> None:
        if not self.output_is_over:
            self.output_is_over = True
            self._writable.set()  # what is not written yet would not be answered
            self.on_output(b"")

    async def write(self, data: bytes) -> None:
        """
        Write a message to the process, once it has read most of the earlier ones.

        Whoever is cancelled before that has written nothing. Once the first byte can have left, nothing is awaited.

        :param data: The message.
        :raises BrokenPipeError: If the process takes no more messages. Nothing of this one was written.
        """
        while not self._writable.is_set():  # of those who waited, another may have been first
            await self._writable.wait()
        if self.output_is_over or self._stdin.closed:
            raise BrokenPipeError
        try:
            written = os.write(self._stdin.fileno(), data)
        except BlockingIOError:
            written = 0
        except OSError:
            _close(self._stdin)
            raise BrokenPipeError from None
        if written < len(data):
            self._unwritten = memoryview(data)[written:]
            self._writable.clear()
            asyncio.get_running_loop().add_writer(self._stdin.fileno(), self._write_on)

    def _write_on(self) -> None:
        try:
            written = os.write(self._stdin.fileno(), self._unwritten)
        except BlockingIOError:
            return
        except OSError:  # the process did not take a whole message, so it will not answer it
            _close(self._stdin)
            self._read_the_rest()
            return
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            asyncio.get_running_loop().remove_writer(self._stdin.fileno())
            self._writable.set()

    def has_exited(self) -> bool:
        """
        Check whether the process has exited, ahead of the event loop.

        :returns: True if it certainly has.
        """
        return self._process is not None and self._process.poll() is not None

    @property
    def has_closed_output(self) -> bool:
        """
        Whether its standard output was closed.
        """
        return self._stdout is not None and self._stdout.closed

    async def exit_code(self, timeout: float = 1.0) -> int | None:
        """
        Wait for the exit code. The last lines on standard error are read by then.

        :param timeout: How long to wait for the exit, in seconds.
        :returns: The exit code (negative: the signal that killed it), or None if the process still runs.
        """
        return self._process.returncode if await self._exits(timeout) else None

    async def _exits(self, timeout: float) -> bool:
        # anyio's scopes import its backend at their first use, which may be at the interpreter's exit.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._exited.wait()
        return self._exited.is_set()

    async def stop(self) -> None:
        """
        End the process: close its input; if it stays, send SIGTERM, then SIGKILL.

        The order is the protocol's: https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown
        """
        if self._process is None:
            return
        try:
            self._end_output()
            _close(self._stdin)
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    _signal_group(self._process.pid, number)
                if await self._exits(_GRACE):
                    return
            logger.warning("The MCP server {server} still runs after SIGKILL", server=self.describe())
        finally:
            self._release()

    def _release(self) -> None:
        self._unwatch()
        for pipe in (self._stdin, self._stdout, self._stderr):
            _close(pipe)

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


def _close(pipe: Any) -> None:
    if not pipe.closed:
        loop = asyncio.get_running_loop()
        loop.remove_reader(pipe.fileno())
        loop.remove_writer(pipe.fileno())
        pipe.close()


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
