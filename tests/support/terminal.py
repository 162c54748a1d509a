# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The command `mcp-haystack` as a user runs it: in a (pseudo-)terminal or in a pipe.
"""

import codecs
import os
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support.measured import measured
from tests.support.prepared import PreparedProcess, prepared_python
from tests.support.processes import end

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "haystack_integrations.tools.mcp.cli"]

# Seconds. A command and its server import Haystack and the SDK, while other tests run beside them.
LIMIT = 100.0

# The servers that commands start are also forked.
_start = partial(PreparedProcess, forks=True)

_ESCAPE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")


def environment(**variables: str) -> dict[str, str]:
    """
    Return the variables of a command: those of this process, changed to find this package but no files of the user.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    # The first `python` on the PATH is forked.
    path = os.pathsep.join([str(Path(program).parent) for program in (prepared_python(), sys.executable)])
    return {
        **inherited,
        "PATH": os.pathsep.join([path, os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "src"),
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        **measured(),
        **variables,
    }


@dataclass(frozen=True)
class Ran:
    """
    The outcome of a command.

    :param code: Its exit code.
    :param screen: In a terminal, the final content of the screen; in a pipe, its stdout.
    :param errors: Its stderr, in a pipe.
    """

    code: int
    screen: str
    errors: str = ""


class Terminal:
    """
    A terminal in which the command runs. A test can type text into it.
    """

    def __init__(self, *words: str, width: int = 100, cwd: Path = ROOT) -> None:
        termios = pytest.importorskip("termios", reason="Windows has no pseudo-terminals")
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, (50, width))
        # It is the process's controlling terminal, so that Ctrl-C becomes a signal.
        self.process = _start(
            [*COMMAND, *words],
            cwd=cwd,
            env=environment(TERM="xterm-256color"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self.raw = ""
        # A thread reads all the time, because a command hangs in its next write if its terminal is not read. A progress
        # bar alone fills the buffer in a minute.
        self._has_more = threading.Condition()
        self._is_at_end = False
        self._reader = threading.Thread(target=self._read, name="terminal")
        self._reader.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)
        self._reader.join(LIMIT)
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """
        Wait until the text was shown.
        """
        with self._has_more:
            self._has_more.wait_for(lambda: self._is_at_end or text in self.raw, LIMIT)
            assert text in self.raw, f"{text!r} was not shown in:\n{self.raw}"

    def end(self) -> Ran:
        """
        Wait for the end of the command.
        """
        with self._has_more:
            assert self._has_more.wait_for(lambda: self._is_at_end, LIMIT), f"the command takes too long:\n{self.raw}"
        return Ran(self.process.wait(LIMIT), rendered(self.raw))

    def _read(self) -> None:
        # A character may arrive in two pieces.
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # on Linux, the other end was closed
                data = b""
            with self._has_more:
                self.raw += decoder.decode(data)
                self._is_at_end = not data
                self._has_more.notify_all()
            if not data:
                return


def in_a_terminal(*words: str, width: int = 100, cwd: Path = ROOT) -> Ran:
    """
    Run the command in a terminal.
    """
    with Terminal(*words, width=width, cwd=cwd) as terminal:
        return terminal.end()


def rendered(raw: str) -> str:
    """
    Return the final content of a terminal after this output, for the control sequences that the command writes.
    """
    lines, row, column = [""], 0, 0
    position = 0
    while position < len(raw):
        escape = _ESCAPE.match(raw, position)
        character = raw[position]
        position = escape.end() if escape else position + 1
        if escape:
            kind, count = escape[2], int(escape[1]) if escape[1].isdigit() else 1
            if kind == "A":
                row = max(row - count, 0)
            elif kind == "K":
                lines[row] = ""
        elif character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def assert_kept(name: str, shown: str, folder: Path, replaced: Sequence[tuple[str, str]] = ()) -> None:
    """
    Compare the output with the kept file. `MCP_HAYSTACK_KEEP=1` writes the file.

    :param name: Name of the file, without its extension.
    :param shown: The output.
    :param folder: The folder of the kept files.
    :param replaced: Patterns of texts that differ from run to run, with their replacements.
    """
    for pattern, replacement in replaced:
        shown = re.sub(pattern, replacement, shown)
    shown = "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"
    file = folder / f"{name}.txt"
    if os.environ.get("MCP_HAYSTACK_KEEP"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
