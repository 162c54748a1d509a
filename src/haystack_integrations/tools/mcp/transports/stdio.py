# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers as child processes: the process, its pipes, its own children, its standard error, and the client.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging as stdlib_logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.convert.odd_messages import read_messages, unreadable_for_its_size
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.protocol.channel import Exchange, Transport
from haystack_integrations.tools.mcp.protocol.request_errors import describe_error, leaves
from haystack_integrations.tools.mcp.protocol.server_info import DEFAULT_MAX_MESSAGE_SIZE, resolve_secrets
from haystack_integrations.tools.mcp.protocol.wire_client import WireClient
from haystack_integrations.tools.mcp.redaction import MIN_SECRET_LENGTH, Redactor, redact_args, redact_text
from haystack_integrations.tools.mcp.secret_template import secret_text, shown
from haystack_integrations.tools.mcp.transports.allow_lists import check_command, inherited_environment
from haystack_integrations.tools.mcp.transports.sdk_streams import Streams, StreamsTransport
from haystack_integrations.tools.mcp.transports.server_infos import StdioServerInfo

logger: logging.PatchedLogger = logging.getLogger(__name__)
_stdlib_logger = stdlib_logging.getLogger(__name__)

_MAX_LINES = 50
_MAX_LINE_LENGTH = 500

# How many characters an error message quotes: enough for the error that Node prints before its stack.
_MAX_QUOTED_LENGTH = 1000

# How many characters of a line are kept: more than are shown, because redaction and cleaning make lines shorter.
_MAX_KEPT_LENGTH = 4 * _MAX_LINE_LENGTH

# Sequences of ECMA-48 that set colours, titles and links or move the cursor, even if the line ends within one.
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

    The secrets of the server, and well-known tokens, are redacted. Lines are cut after 500 characters. A carriage
    return, as in a progress bar, also ends a line. Escape sequences and control characters are removed, because they
    would reach a terminal through messages and logs.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        """
        Initialize the StderrTail.

        :param secrets: Values to redact.
        """
        # In their printed form: a secret of several lines appears as several lines.
        self._redactor = Redactor(_printable(line) for value in secrets for line in [value, *value.splitlines()])
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._unfinished = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[str]:
        """
        Process the next output.

        :param data: The bytes that the process wrote.
        :returns: The lines that are now complete, redacted.
        """
        text = self._unfinished + self._decoder.decode(data).replace("\r", "\n")
        *lines, self._unfinished = (line[:_MAX_KEPT_LENGTH] for line in text.split("\n"))
        cleaned = [text for line in lines if (text := self._clean(line, is_whole=len(line) < _MAX_KEPT_LENGTH))]
        self._lines.extend(cleaned)
        return cleaned

    def text(self) -> str:
        """
        Quote the last lines, preceded by the line that names the error if that is further up.

        :returns: At most 1000 characters, redacted, the lines joined with " | "; or an empty string.
        """
        lines = [*self._lines, self._clean(self._unfinished, is_whole=False)]
        lines = [" ".join(line.split()) for line in lines if line]
        text = " | ".join(lines)
        if len(text) <= _MAX_QUOTED_LENGTH:
            return text
        # Programs in Go print the error before their usage, and programs in JavaScript print it before the stack. Npm
        # packages with a program in Go add an error of their own, which only says that the program failed.
        words = ("fatal", "panic:", "error:")
        error = next((line for word in words for line in reversed(lines) if word in line.lower()), "")
        if error in text[1 - _MAX_QUOTED_LENGTH :]:
            return f"…{text[1 - _MAX_QUOTED_LENGTH :]}"
        return f"{error} | …{text[len(error) + 4 - _MAX_QUOTED_LENGTH :]}"

    def _clean(self, line: str, *, is_whole: bool) -> str:
        # Escape sequences are removed first, because one within a secret would hide it.
        line = _printable(line)
        if not is_whole:
            # The line may end with the first part of a secret, which a search for the whole secret does not find.
            line = line[: len(line) - max((_overlap(line, secret) for secret in self._redactor.forms), default=0)]
        return self._redactor.text(line).rstrip()[:_MAX_LINE_LENGTH]


def _printable(text: str) -> str:
    return _ESCAPE_SEQUENCE.sub("", text).translate(_CONTROL_CHARACTERS)


def _overlap(line: str, secret: str) -> int:
    # Only proper prefixes count: the search finds a whole secret.
    lengths = range(min(len(secret) - 1, len(line)), MIN_SECRET_LENGTH - 1, -1)
    return next((length for length in lengths if line.endswith(secret[:length])), 0)


# How long a server and its children may take to exit, in seconds: after the end of its input, and again after SIGTERM.
# The SDK has the same limit.
_GRACE = 2.0

_POLL_INTERVAL = 0.02

# How many bytes are read at once: the capacity of a pipe on Linux.
_READ_SIZE = 65_536

# How often the pipes are read once the process has exited. They hold up to 1 MiB; a child that keeps them open may go
# on writing.
_MAX_FINAL_READS = 16

# How to install the commands of most published servers, as a further sentence of a message.
_INSTALL_HINTS = {
    "uvx": " It comes with uv: `pip install uv` installs it.",
    "npx": " It comes with Node.js.",
}

# Process groups that servers left behind, and that have been sent SIGTERM.
_terminating: set[int] = set()


class StdioTransport(Transport):
    """
    A server process and the lines that it reads and writes, from its start until its own children are gone.

    It belongs to the event loop in which it was started. Requests are written in the task of the caller, and lines are
    read in callbacks of the pipes. States: new -> running -> output over (nothing more is read, because the process
    exited, closed its output, or did not accept a whole message) -> closed.

    The event loops' own subprocess functions are not used: a start that is cancelled midway loses the process, uvloop
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
        max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    ) -> None:
        """
        Initialize the StdioTransport.

        :param command: The command.
        :param args: Its arguments.
        :param env: Its whole environment.
        :param cwd: Its working directory.
        :param secrets: The values to redact in its standard error.
        :param redact: Removes secrets, including those of calls, from logs of its standard error.
        :param max_message_size: How many bytes a line of its output may have.
        """
        self._redact = redact
        self._command = [command, *args]
        self._env = env
        self._cwd = cwd
        self.stderr: StderrTail = StderrTail(secrets)
        self._output_has_ended = False
        self._max_message_size = max_message_size
        # The pieces of an incomplete line.
        self._unfinished: list[bytes] = []
        self._has_warned = False
        # The Popen and its pipes, once it is started.
        self._process: Any = None
        self._stdin: Any = None
        self._stdout: Any = None
        self._stderr: Any = None
        self._group: int | None = None
        self._pid_fd: int | None = None
        self._poll_timer: asyncio.TimerHandle | None = None
        self._exited = asyncio.Event()
        # The rest of the message that is being written. It is empty when the event is set.
        self._unwritten = memoryview(b"")
        self._writable = asyncio.Event()

    def _describe(self) -> str:
        """
        Describe the process for log messages: the command alone may be that of several servers, such as `npx`.

        :returns: A noun phrase, redacted.
        """
        pid = f", process {self._process.pid}" if self._process is not None else ""
        return self._redact(f"`{' '.join(redact_args(self._command))}`{pid}")

    async def open(self) -> None:
        """
        Start the process as the leader of a new session and process group.

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
        if self._process.poll() is not None:
            self._unwatch()
            self._exited.set()
            self._read_remaining()
        elif self._pid_fd is None:
            loop = asyncio.get_running_loop()
            try:
                self._pid_fd = os.pidfd_open(self._process.pid)
            except (AttributeError, OSError):  # another system than Linux, or an old kernel
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

    def _read_remaining(self) -> None:
        """
        Read what the process wrote before its end, without waiting, because children may keep the pipes open.
        """
        for pipe in (self._stderr, self._stdout):
            for _ in range(_MAX_FINAL_READS):
                if not self._read(pipe):
                    break
        self._end_output()

    def _read(self, pipe: Any) -> bool:
        """
        Read a pipe once, and close it at its end. Return whether it had data.
        """
        if pipe.closed:
            return False
        try:
            data = os.read(pipe.fileno(), _READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:  # e.g. in a test that replaces the file system; the loop would call this again and again
            data = b""
        if not data:
            _close(pipe)
        if pipe is self._stderr:
            _log_lines(self._describe(), self.stderr.feed(data), self._redact)
        elif not data:
            self._end_output()
        elif not self._output_has_ended:  # reading goes on: a full pipe would keep the process from exiting
            self._read_lines(data)
        return bool(data)

    def _end_output(self) -> None:
        if not self._output_has_ended:
            self._output_has_ended = True
            self._writable.set()  # wakes the waiting writers, whose messages would not be answered
            self.channel.ended(None)

    async def carry(self, content: bytes, exchange: Exchange) -> None:
        """
        Write a request, once the process has read most of the earlier ones.

        :param content: The request as JSON.
        :param exchange: The request.
        """
        try:
            await self.send(content)
        except BrokenPipeError:  # nothing of it was written
            # A live process may still answer the requests that it has read, but accepts no more.
            if not self.channel.has_ended and await self.exit_code() is None:
                self.channel.drained("the server process closed its input")
            exchange.lose()
        else:
            exchange.mark_sent()

    async def send(self, content: bytes) -> None:
        """
        Write a message, once the process has read most of the earlier ones.

        A caller that is cancelled before that has written nothing. Once the first byte can have left, nothing is
        awaited.

        :param content: The message as JSON.
        :raises BrokenPipeError: If the process accepts no more messages. Nothing of this one was written.
        """
        data = content + b"\n"
        while not self._writable.is_set():  # another waiting writer may have been first
            await self._writable.wait()
        if self.channel.has_ended or self._stdin.closed:  # the waiting requests were reported as not run
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
            asyncio.get_running_loop().add_writer(self._stdin.fileno(), self._continue_writing)

    def _continue_writing(self) -> None:
        try:
            written = os.write(self._stdin.fileno(), self._unwritten)
        except BlockingIOError:
            return
        except OSError:  # the process did not accept the whole message, so it will not answer it
            _close(self._stdin)
            self._read_remaining()
            return
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            asyncio.get_running_loop().remove_writer(self._stdin.fileno())
            self._writable.set()

    @property
    def has_closed_output(self) -> bool:
        """
        Whether the process, which was started, has closed its standard output.
        """
        return bool(self._stdout.closed)

    async def exit_code(self, timeout: float = 1.0) -> int | None:
        """
        Wait for the exit code. The last lines on standard error are read by then.

        :param timeout: How long to wait for the exit, in seconds.
        :returns: The exit code (negative: the signal that killed it), or None if the process still runs.
        """
        return self._process.returncode if await self._has_exited_within(timeout) else None

    async def _has_exited_within(self, timeout: float) -> bool:
        # Up to Python 3.11.2, `asyncio.timeout` fails in a task that is being cancelled (gh-102780). And anyio's
        # scopes import its backend at their first use, which may be at the interpreter's exit.
        exit_event = asyncio.ensure_future(self._exited.wait())
        try:
            await asyncio.wait({exit_event}, timeout=timeout)
        finally:
            exit_event.cancel()
        return self._exited.is_set()

    async def close(self) -> None:
        """
        End the process: close its input; if it stays, send SIGTERM, then SIGKILL. Also end the children that it left.

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
                if await self._has_exited_within(_GRACE):
                    return
            logger.warning("The MCP server {server} still runs after SIGKILL", server=self._describe())
        finally:
            self._release()
            self.end_children()

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

    def _read_lines(self, data: bytes) -> None:
        self.channel.heard()
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = b"".join([*self._unfinished, end]) if self._unfinished else end
            self._unfinished = []
            if len(line) > self._max_message_size:
                self._take_oversized(line)
                continue
            messages = read_messages(line)
            for message in messages:
                self.channel.received(message)
            if not messages and line.strip():
                self._warn_of_stray_line()
        if rest:
            self._unfinished.append(rest)
            if sum(map(len, self._unfinished)) > 2 * self._max_message_size:  # the line may never end
                line = b"".join(self._unfinished)[: self._max_message_size + 1]
                self._unfinished = [line]
                self._take_oversized(line)

    def _take_oversized(self, line: bytes) -> None:
        answer = unreadable_for_its_size(line, self._max_message_size)
        if answer is not None:
            self.channel.received(answer)
            return
        self.channel.ended(
            f"it wrote a line that is larger than `max_message_size` of the server info allows, "
            f"{self._max_message_size:,} bytes, and that does not begin or end like an answer"
        )

    def _warn_of_stray_line(self) -> None:
        log = logger.debug if self._has_warned else logger.warning
        self._has_warned = True
        log(
            "The MCP server {server} wrote a line to its standard output that is not a message; it was ignored. "
            "Logs belong on standard error. Other such lines are logged at debug level.",
            server=self._describe(),
        )


def _log_lines(server: str, lines: list[str], redact: Callable[[str], str]) -> None:
    for line in lines if _stdlib_logger.isEnabledFor(stdlib_logging.DEBUG) else ():
        logger.debug("The MCP server {server} says: {line}", server=server, line=redact(line))


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
        if _is_alive(group) and _signal_group(group, signal.SIGKILL):
            asyncio.get_running_loop().call_later(_GRACE, _is_alive, group)


def _is_alive(group: int) -> bool:
    # In a container without an init process, this process is the parent of all orphans, which stay zombies until now.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    return _signal_group(group, 0)


async def end_leftovers() -> None:
    """
    Wait until the processes that servers left behind have exited, within their grace period, and kill the rest.
    """
    try:
        async with asyncio.timeout(_GRACE):
            while any(_is_alive(group) for group in _terminating):
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        pass  # the grace period is over
    finally:
        for group in list(_terminating):
            _kill_group(group)


AsyncExecutor.before_shutdown.append(end_leftovers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_terminating.clear)  # the groups belong to the parent


class StdioClient(WireClient):
    """
    MCP client that connects to servers using stdio transport.

    A session begins with the handshake of the revisions up to 2025-11-25; a server that refuses it is asked for its
    revisions with `server/discover`. The specification recommends the other order
    (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio), but some servers exit, and some
    never answer, if the first request is not the handshake; and a call costs servers more in the newer revision.
    """

    _handshake_first = True

    def __init__(
        self,
        command: str | Secret,
        args: Sequence[str | Secret] | None = None,
        env: dict[str, str | Secret] | None = None,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 30.0,
    ) -> None:
        """
        Initialize a stdio MCP client.

        :param command: Command to run (e.g., "python", "node").
        :param args: Arguments to pass to the command.
        :param env: Environment variables for the command.
        :param max_retries: Maximum number of reconnection attempts.
        :param base_delay: Base delay for exponential backoff in seconds.
        :param max_delay: Longest delay between attempts in seconds.
        """
        super().__init__(max_retries, base_delay, max_delay)
        # Their variables are replaced by their values when `connect` is called.
        self.command: str = shown(command)
        self.args: list[str] = list(map(shown, args or []))
        self.env = env
        self.cwd: str | None = None
        # The variables from `env`, with the values of Secrets.
        self._resolved_env: dict[str, str] = {}
        self._transport: StdioTransport | None = None  # None on Windows, too
        self._stderr = StderrTail(())
        self._stderr_ended: asyncio.Event | None = None
        self._server_info: StdioServerInfo = StdioServerInfo(command=command, args=args, env=env)

    @classmethod
    def of(cls, server_info: StdioServerInfo) -> Self:
        """
        Make the client of a server info.

        :param server_info: The server info.
        :returns: The client.
        """
        info = server_info
        client = cls(info.command, info.args, info.env, info.max_retries, info.base_delay, info.max_delay)
        client._server_info = info
        return client

    async def _make_transport(self) -> Transport:
        info = self._server_info
        self.command = secret_text(info.command)
        self.args = list(map(secret_text, info.args or []))
        self.cwd = None if info.cwd is None else secret_text(info.cwd)
        self._resolved_env = resolve_secrets(self.env)
        command = check_command(self.command, self.env, info.inherit_env)
        env = {**inherited_environment(info.inherit_env), **self._resolved_env}
        if sys.platform == "win32":  # the SDK has job objects, which end all processes that a server started
            self._stderr, self._stderr_ended = StderrTail(self.redactor.secrets), asyncio.Event()
            take_stderr = partial(self._take_stderr, self._stderr, self._stderr_ended)
            return StreamsTransport(partial(_sdk_process, command, self.args, env, self.cwd, take_stderr))
        self._transport = StdioTransport(
            command,
            self.args,
            env,
            self.cwd,
            secrets=self.redactor.secrets,
            redact=self.redactor.text,
            max_message_size=info.max_message_size,
        )
        self._stderr = self._transport.stderr
        return self._transport

    def _take_stderr(self, tail: StderrTail, ended: asyncio.Event, data: bytes) -> None:
        _log_lines(f"`{redact_text(self.command)}`", tail.feed(data), self.redactor.text)
        if not data:
            ended.set()

    def kill(self) -> None:
        """
        Kill the server process and all processes that it started.
        """
        if self._transport is not None:
            self._transport.end_children(at_once=True)

    async def _post_mortem(self) -> str | None:
        transport = self._transport
        if transport is None:
            if self._stderr_ended is None:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._stderr_ended.wait()
            return f"the server process ended or closed its output{self._last_lines()}"
        code = await transport.exit_code()
        if code is None:
            event = f"closed its {'output' if transport.has_closed_output else 'input'}"
        else:
            event = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the server process {event}{self._last_lines()}"

    def _explain(self, error: BaseException) -> str:
        for leaf in leaves(error):
            if isinstance(leaf, (FileNotFoundError, NotADirectoryError)):
                if self.cwd is not None and not os.path.isdir(self.cwd):
                    return f"the working directory '{self.cwd}' does not exist"
                hint = _INSTALL_HINTS.get(self.command, "")
                return f"the command '{self.command}' was not found. Is it installed and on the PATH?{hint}"
            if isinstance(leaf, PermissionError):
                return f"the command '{self.command}' may not be executed"
        return describe_error(error)

    async def _advice(self) -> str | None:
        if not self.life.loss or self._stderr.text():
            return None  # its standard error explains the end
        if self._transport is not None and await self._transport.exit_code(timeout=0) == 0:
            return (
                "A program that ends in silence has done all that it was to do: does it run a server, as "
                "`server.run()` does? Run its command in a terminal to see."
            )
        return (
            "Run its command in a terminal to see why. If it works there, it may need a variable that it does not "
            "inherit (see `inherit_env`)."
        )

    def _last_lines(self) -> str:
        text = self._stderr.text()
        if text:
            return f" (its stderr says: {text})"
        # The only clues if a server ends without any output.
        given = f", with {', '.join(sorted(self._resolved_env))} from `env`" if self._resolved_env else ""
        return f" (it wrote nothing to stderr; it was started as `{self._server_info._command_line()}`{given})"

    def progress(self) -> str:
        """
        Describe how far `connect` has come, for the message of a timeout.

        :returns: A clause.
        """
        how_far = super().progress() or "the process was started, but did not answer"
        return self._connect_failure or f"{how_far}{self._last_lines()}"


@contextlib.asynccontextmanager
async def _sdk_process(
    command: str, args: list[str], env: dict[str, str], cwd: str | None, take_stderr: Callable[[bytes], None]
) -> AsyncIterator[Streams]:
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - a slow import

    # The SDK would pass on `sys.stderr`, which is not a file in a notebook on Windows.
    loop, (reading, writing) = asyncio.get_running_loop(), os.pipe()
    reader = partial(_read_stderr, reading, lambda data: loop.call_soon_threadsafe(take_stderr, data))
    with os.fdopen(writing, "w") as errlog:
        threading.Thread(target=reader, name="mcp-haystack-stderr", daemon=True).start()
        async with stdio_client(StdioServerParameters(command=command, args=args, env=env, cwd=cwd), errlog) as streams:
            errlog.close()  # the process has its own copy, whose end is the end of the pipe
            yield streams


def _read_stderr(reading: int, take: Callable[[bytes], object]) -> None:
    data: bytes | None = None
    while data != b"":
        data = os.read(reading, _READ_SIZE)
        with contextlib.suppress(RuntimeError):  # the loop is closed, but a full pipe would stop the process
            take(data)
    os.close(reading)
