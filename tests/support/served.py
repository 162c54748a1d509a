# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`tests/servers/served.py`, and other scripts that call `run_server`, as processes.
"""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2

from tests.support.measured import measured
from tests.support.prepared import PreparedProcess
from tests.support.processes import end, kill_group
from tests.support.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[2]
SERVED = ROOT / "tests" / "servers" / "served.py"

# Seconds; more than the slowest start takes on a busy machine, with the imports of Haystack and FastMCP.
START_LIMIT = 90.0

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"


def envelope(**meta: Any) -> dict[str, Any]:
    """
    Return the `_meta` of a request of the era since 2026-07-28.
    """
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        **meta,
    }


class ServedProcess:
    """
    A serving process and its output.
    """

    def __init__(self, script: Path, options: dict[str, Any], **environment: str) -> None:
        self.process = PreparedProcess(
            [sys.executable, str(script), json.dumps(options)],
            forks=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **measured(), **environment},
        )
        self._errors: list[str] = []
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_errors, daemon=True),
            threading.Thread(target=self._read_lines, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_errors(self) -> None:
        for line in self.process.stderr:
            self._errors.append(line.decode(errors="replace"))

    def _read_lines(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)

    @property
    def errors(self) -> str:
        """
        The text that it has written to stderr.
        """
        return "".join(self._errors)

    def wait_for(self, event: str, *, limit: float = LIMIT, count: int = 1) -> None:
        """
        Wait until it has written the event to stderr.
        """
        wait_until(lambda: self.errors.count(event) >= count, lambda: f"{event} in {self.errors}", limit=limit)

    def send(self, **message: Any) -> None:
        """
        Send a message over stdin.
        """
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}))

    def send_line(self, line: str) -> None:
        """
        Send a line over stdin.
        """
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """
        Return the next message on stdout.
        """
        return json.loads(self._lines.get(timeout=START_LIMIT))

    def answer(self, request_id: int | str | None) -> dict[str, Any]:
        """
        Return the answer to a request; messages before it are dropped.
        """
        while True:
            message = self.receive()
            if "method" not in message and message.get("id") == request_id:
                return message

    def shake_hands(self) -> None:
        """
        Open a session of the handshake era over stdin.
        """
        client = {"name": "test", "version": "1"}
        parameters = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": client}
        self.send(id="hello", method="initialize", params=parameters)
        self.answer("hello")
        self.send(method="notifications/initialized")

    def call(self, request_id: int, tool: str, **arguments: Any) -> None:
        """
        Call a tool over stdin.
        """
        self.send(id=request_id, method="tools/call", params={"name": tool, "arguments": arguments})

    def signal(self, number: int = signal.SIGTERM) -> None:
        """
        Send the process a signal.
        """
        self.process.send_signal(number)

    def wait(self, limit: float = LIMIT) -> int:
        """
        Wait for the end of the process.

        :returns: Its exit code.
        """
        code = self.process.wait(limit)
        for reader in self._readers:
            reader.join(limit)
        return code

    def __enter__(self) -> "ServedProcess":
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self.process.pid)
        for reader in self._readers:
            reader.join(LIMIT)
        end(self.process)


class ServedOverHttp(ServedProcess):
    """
    A process that serves over HTTP.
    """

    def __init__(self, options: dict[str, Any] | None = None, *, script: Path = SERVED) -> None:
        super().__init__(script, {"transport": "http", "port": 0, **(options or {})})
        try:
            self.wait_for("Serving over HTTP", limit=START_LIMIT)
            found = re.search(r"http://\S+?:(\d+)(/\S*)", self.errors)
            assert found
            self.port = int(found[1])
            self.url = f"http://127.0.0.1:{self.port}{found[2]}"
            wait_until(self._answers, lambda: f"an answer on {self.url}: {self.errors}", limit=START_LIMIT)
        except BaseException:
            self.__exit__()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.errors
        try:
            httpx2.get(f"http://127.0.0.1:{self.port}/nothing", timeout=START_LIMIT)
        except httpx2.TransportError:
            return False
        return True


def post(
    url: str, method: str, parameters: dict[str, Any] | None = None, *, timeout: float = START_LIMIT, **headers: str
) -> httpx2.Response:
    """
    Send a request of the era since 2026-07-28.
    """
    parameters = {"_meta": envelope(), **(parameters or {})}
    content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).encode()
    name = {"mcp-name": parameters["name"]} if "name" in parameters else {}
    return post_bytes(url, content, timeout=timeout, **{"mcp-method": method, **name, **headers})


def post_bytes(url: str, content: bytes, *, timeout: float = START_LIMIT, **headers: str) -> httpx2.Response:
    """
    Send bytes as a request of the era since 2026-07-28.
    """
    defaults = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
    }
    return httpx2.post(url, content=content, headers={**defaults, **headers}, timeout=timeout)


def free_port() -> int:
    """
    Return a free port.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
