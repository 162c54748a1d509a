# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
MCP servers as processes that a test starts, kills and restarts, and that are gone at its end.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.support.prepared import PreparedProcess, prepared_python
from tests.support.waiting import LIMIT, wait_until, wait_until_async

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "servers"
COUNTER_SERVER = SERVERS / "counter_server.py"
PLAIN_SERVER = SERVERS / "plain_server.py"
FASTMCP_SERVER = SERVERS / "fastmcp_server.py"
ASKING_SERVER = SERVERS / "asking_server.py"
PATIENT_SERVER = SERVERS / "patient_server.py"

_PYTHON = [sys.executable, "-u"]


def is_alive(pid: int) -> bool:
    """
    Return whether the process runs. A zombie, which has ended but has not been waited for, does not run.

    A killed process whose main thread has ended looks like a zombie while its other threads are still ending, and it
    keeps its pipes open until they have.
    """
    try:
        process = psutil.Process(pid)
        ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not ended or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def kill_group(pid: int) -> None:
    """
    Kill a process that leads a process group, and everything that it started.
    """
    try:
        if sys.platform == "win32":  # which has no process groups
            for child in psutil.Process(pid).children(recursive=True):
                child.kill()
            psutil.Process(pid).kill()
        else:
            os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, psutil.NoSuchProcess):
        pass


def leader(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """
    Start a process that leads a session and a process group, so that everything that it starts ends with it.
    """
    return subprocess.Popen(command, start_new_session=True, **options)


def end(process: "subprocess.Popen[Any]") -> None:
    """
    Kill a process that leads a group, and everything that it started; wait for its end, and close its pipes.
    """
    kill_group(process.pid)
    process.kill()  # it may not lead a group yet
    process.wait(LIMIT)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()


def run_to_end(
    command: Sequence[str],
    *,
    limit: float,
    start: "Callable[..., subprocess.Popen[str]]" = leader,
    check: bool = False,
    text: str | None = None,
    **options: Any,
) -> "subprocess.CompletedProcess[str]":
    """
    Run a command to its end, and then end everything that it started, including orphans.

    :param command: The command.
    :param limit: Seconds it may take. A command that takes longer fails the test.
    :param start: Starts it: `leader`, or `PreparedProcess` for a command of this Python.
    :param check: Whether to fail if its exit code is not 0.
    :param text: The text on its stdin, which is empty by default.
    :param options: Further options of `subprocess.Popen`.
    :returns: Its exit code, stdout and stderr; with `stderr=subprocess.STDOUT`, stdout contains both.
    """
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    pipes["stdin"] = subprocess.DEVNULL if text is None else subprocess.PIPE
    process = start(command, text=True, **{**pipes, **options})
    try:
        output, errors = process.communicate(text, timeout=limit)
    except subprocess.TimeoutExpired as timeout:
        shown = [(part or b"").decode(errors="replace") for part in (timeout.stdout, timeout.stderr)]
        raise AssertionError("\n".join([f"{command} did not end within {limit} s. It wrote:", *shown])) from None
    finally:
        end(process)
    assert not check or process.returncode == 0, f"{command} ended with {process.returncode}:\n{output}\n{errors}"
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


class CallLog:
    """
    The record of a counter server: one line per event, `<event> <details as JSON>`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def events(self, name: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """
        Return all recorded events, or those with the name.
        """
        recorded = self.path.read_text() if self.path.exists() else ""
        lines = recorded[: recorded.rfind("\n") + 1].splitlines()  # the last line may be incomplete
        parsed = [(event, json.loads(details)) for event, _, details in (line.partition(" ") for line in lines)]
        return [event for event in parsed if name in (None, event[0])]

    def calls(self, name: str | None = None) -> list[str]:
        """
        Return the names of the executed tools in order, or only those with the name.
        """
        return [event for event, _ in self.events(name) if not event.startswith("@")]

    def requests(self, method: str | None = None) -> list[str]:
        """
        Return the methods of the MCP requests that arrived, in order, or only those of the method.
        """
        methods = [event[1:] for event, _ in self.events() if event.startswith("@") and event != "@start"]
        return [seen for seen in methods if method in (None, seen)]

    def pids(self) -> list[int]:
        """
        Return the pids of the processes in which this server was started, in order.
        """
        return [details["pid"] for _, details in self.events("@start")]

    def wait_for(self, event: str, count: int = 1, *, limit: float = LIMIT) -> None:
        """
        Wait until the event was recorded that many times.
        """
        wait_until(lambda: len(self.events(event)) >= count, lambda: self._missing(event, count), limit=limit)

    async def wait_for_async(self, event: str, count: int = 1, *, limit: float = LIMIT) -> None:
        """
        `wait_for` for a coroutine.
        """
        await wait_until_async(
            lambda: len(self.events(event)) >= count, lambda: self._missing(event, count), limit=limit
        )

    def _missing(self, event: str, count: int) -> str:
        return f"{count} x {event!r} in {[name for name, _ in self.events()]}"


class _Recorded:
    """
    Gives a server the methods of its call log.
    """

    log: CallLog

    def __post_init__(self) -> None:
        self.calls, self.requests, self.pids = self.log.calls, self.log.requests, self.log.pids
        self.wait_for, self.wait_for_async = self.log.wait_for, self.log.wait_for_async


@dataclass
class StdioServer(_Recorded):
    """
    A server over stdio, which the client under test starts.
    """

    command: str
    args: list[str]
    log: CallLog
    env: dict[str, str] | None = None
    cwd: str | None = None

    def info(self, **parameters: Any) -> Any:
        """
        Return a new server info, which equals earlier ones, with short delays between attempts.
        """
        from haystack_integrations.tools.mcp import StdioServerInfo

        parameters = {"env": self.env, "cwd": self.cwd, "base_delay": 0.05, "max_delay": 0.2, **parameters}
        return StdioServerInfo(self.command, list(self.args), **parameters)

    def alive(self) -> list[int]:
        """
        Return the pids of this server's processes that still run.
        """
        return [pid for pid in self.pids() if is_alive(pid)]

    def kill(self) -> None:
        """
        Kill the running processes, and wait until they are gone.
        """
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.wait_until_gone()

    def freeze(self) -> None:
        """
        Stop the processes without ending them: the server hangs.
        """
        for pid in self.alive():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """
        Resume the frozen processes.
        """
        for pid in self.alive():
            os.kill(pid, signal.SIGCONT)

    def wait_until_gone(self, *, limit: float = LIMIT) -> None:
        """
        Wait until none of this server's processes runs any more.
        """
        wait_until(lambda: not self.alive(), lambda: f"the end of server processes {self.alive()}", limit=limit)


@dataclass
class HttpServer(_Recorded):
    """
    A server process that listens on the loopback interface and has printed `PORT <n>`.

    The process leads a group, so that everything that it started ends with it. Its port is reserved until `close`.
    """

    command: Sequence[str]
    path: str
    folder: Path
    log: CallLog
    env: Mapping[str, str] = field(default_factory=dict)
    # The option that passes the port to the command; None: the environment variable PORT.
    port_option: str | None = "--port"
    limit: float = LIMIT

    port: int = field(init=False, default=0)
    _process: "subprocess.Popen[bytes] | None" = field(init=False, default=None)
    _keeper: socket.socket | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stdout, self._stderr = self.folder / "stdout.txt", self.folder / "stderr.txt"

    def start(self) -> "HttpServer":
        """
        Start the process, on its earlier port if it had one, and wait until it listens.
        """
        assert not self.running, "the server runs already"
        # Some servers import from `tests`.
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, **self.env}
        command = list(self.command)
        if self.port_option is None:
            environment["PORT"] = str(self.port)
        else:
            command += [self.port_option, str(self.port)]
        self._stdout.unlink(missing_ok=True)
        self._process = self._started(command, environment)
        try:
            self.port = wait_until(self._announced_port, f"PORT line of {command}", limit=self.limit)
        except AssertionError as error:
            self.kill()
            raise AssertionError(f"{error}\nstderr of the server:\n{self.stderr()}") from None
        if self._keeper is None and self.port_option is not None:
            self._keeper = bound_socket(self.port)
        return self

    def _started(self, command: list[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        start = PreparedProcess if command[0] == sys.executable else leader
        with self._stdout.open("wb") as stdout, self._stderr.open("ab") as stderr:
            return start(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment)

    def _announced_port(self) -> int:
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            raise AssertionError(f"the server ended with status {status} before it listened")
        written = self._stdout.read_bytes() if self._stdout.exists() else b""
        match = re.search(rb"^PORT (\d+)$", written, re.MULTILINE)
        return int(match[1]) if match else 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stderr(self) -> str:
        """
        Return everything that the server has written to stderr since its first start.
        """
        return self._stderr.read_text(errors="replace") if self._stderr.exists() else ""

    def kill(self) -> None:
        """
        Kill the process and everything that it started. Connections break, and new ones are refused.
        """
        if self._process is not None:
            end(self._process)

    def restart(self) -> None:
        """
        End the process if it runs, and start a new one on the same port.
        """
        self.kill()
        self.start()

    def freeze(self) -> None:
        """
        Stop the process without ending it. Connections stay open, but nothing answers.
        """
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """
        Resume the frozen process.
        """
        os.killpg(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """
        Kill the process and release its port.
        """
        self.kill()
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None


def bound_socket(port: int) -> socket.socket:
    """
    Return a socket that is bound to the port but not listening. It refuses connections, and reserves the port.
    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def python_script(script: Path, *arguments: str) -> list[str]:
    """
    Return the command that runs a script with the Python of the tests.
    """
    return [*_PYTHON, str(script), *arguments]


def prepared_script(script: Path, *arguments: str) -> list[str]:
    """
    Return the command that runs a script that imports the MCP SDK, in a forked process.
    """
    return [prepared_python(), "-u", str(script), *arguments]
