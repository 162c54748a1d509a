# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Scripts that use the package in an interpreter of their own, where the fate of a whole process is the subject.
"""

import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from haystack_integrations.tools.mcp import MCPTool
from tests.support.processes import StdioServer

# Where this very package is imported from.
SOURCE = Path(inspect.getfile(MCPTool)).parents[3]

_PREAMBLE = """
import atexit, gc, json, os, signal, sys, threading, time, weakref

_arguments = json.loads(sys.argv[1])
if not _arguments["uvloop"]:
    sys.modules["uvloop"] = None

from haystack_integrations.tools.mcp import *

server_info = StdioServerInfo(_arguments["command"], _arguments["args"], base_delay=0.05, max_delay=0.2)


def pid_of(tool):
    return int(json.loads(tool.invoke())["content"][0]["text"])


def report(**facts):
    os.write(1, (json.dumps(facts) + "\\n").encode())


def wait_for_end_of(child):
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
"""


class Script:
    """
    Runs scripts that have `server_info` in a process of their own, with the event loop of asyncio or uvloop.
    """

    def __init__(self, folder: Path, server: StdioServer, loop: str) -> None:
        self._folder = folder
        self._loop = loop
        self.server = server

    def start(self, script: str) -> "subprocess.Popen[str]":
        """
        Start a script.
        """
        file = self._folder / "script.py"
        file.write_text(_PREAMBLE + textwrap.dedent(script))
        arguments = {"command": self.server.command, "args": self.server.args, "uvloop": self._loop == "uvloop"}
        return subprocess.Popen(
            # Python 3.12 warns of every fork of a process with threads.
            [sys.executable, "-W", "error::ResourceWarning", "-W", "ignore::DeprecationWarning", str(file)]
            + [json.dumps(arguments)],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "HAYSTACK_TELEMETRY_ENABLED": "False"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, *, code: int = 0, limit: float = 100) -> list[dict[str, object]]:
        """
        Run the script to its end, which must come in time, with that exit code, and without a word on stderr.

        :returns: What it reported.
        """
        process = self.start(script)
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            output, errors = process.communicate()
            pytest.fail(f"the script did not end within {limit} s. It wrote:\n{output}\n{errors}")
        assert not errors, f"the script wrote to stderr:\n{errors}"
        assert process.returncode == code
        self.server.wait_until_gone()
        return [json.loads(line) for line in output.splitlines()]
