# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Scripts that use the package in a separate process, for tests of the start and end of whole processes.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.prepared import SOURCE, PreparedProcess
from tests.support.processes import StdioServer, end, run_to_end

# Since 3.12, Python warns about every fork of a process with threads.
_WARNINGS = """
import warnings

warnings.simplefilter("error", ResourceWarning)
warnings.simplefilter("ignore", DeprecationWarning)
"""

PREAMBLE = """
import atexit, gc, json, os, signal, sys, threading, time, weakref

_arguments = json.loads(sys.argv[1])
if not _arguments["uvloop"]:
    sys.modules["uvloop"] = None

from haystack_integrations.tools.mcp import *
from haystack_integrations.tools.mcp.errors import *
from haystack_integrations.tools.mcp.handlers import *

server_info = StdioServerInfo(_arguments["command"], _arguments["args"], base_delay=0.05, max_delay=0.2)


def pid_of(tool):
    return int(json.loads(tool.invoke())["content"][0]["text"])


def report(**facts):
    os.write(1, (json.dumps(facts) + "\\n").encode())


def wait_for_end_of(child):
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
"""


# Starts a process that ends like an interpreter, which frees all objects.
finalized = partial(PreparedProcess, finalize=True)

_PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


class Script:
    """
    Runs scripts that use `server_info` in a separate process, with the event loop of asyncio or uvloop.
    """

    def __init__(self, folder: Path, server: StdioServer, loop: str, preamble: str = PREAMBLE) -> None:
        self._preamble = preamble
        self._folder = folder
        self._loop = loop
        self.server = server

    @contextmanager
    def started(self, script: str) -> "Iterator[subprocess.Popen[str]]":
        """
        Start a script that ends with the `with` block.
        """
        process = finalized(self._command(script), text=True, env=self._environment(), **_PIPES)
        try:
            yield process
        finally:
            end(process)

    def run(
        self,
        script: str,
        *,
        code: int = 0,
        limit: float = 100,
        start: "Callable[..., subprocess.Popen[str]]" = finalized,
    ) -> list[dict[str, object]]:
        """
        Run the script, which must end in time, with the exit code, and without a word on stderr.

        :returns: Its report.
        """
        ended = run_to_end(self._command(script), limit=limit, start=start, env=self._environment())
        assert not ended.stderr, f"the script wrote to stderr:\n{ended.stderr}"
        assert ended.returncode == code
        self.server.wait_until_gone()
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def _command(self, script: str) -> list[str]:
        file = self._folder / "script.py"
        file.write_text(_WARNINGS + self._preamble + textwrap.dedent(script))
        arguments = {"command": self.server.command, "args": self.server.args, "uvloop": self._loop == "uvloop"}
        return [sys.executable, str(file), json.dumps(arguments)]

    @staticmethod
    def _environment() -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(SOURCE), "HAYSTACK_TELEMETRY_ENABLED": "False"}
