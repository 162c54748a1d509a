# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The output of the command, with results on stdout and everything else on stderr, and its exit codes.

Texts of servers are shown literally: rich does not interpret markup in them, and control characters are escaped.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import Group, Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPRunError,
    MCPTimeoutError,
    MCPToolNotFoundError,
)

# Widths without a terminal: tables are not wrapped, so that programs can read their lines, but help is. The variable
# COLUMNS takes precedence.
_WIDTH_OF_TABLES, _WIDTH_OF_HELP = 1_000_000, 120

# Control characters except tab and line break, and those that change the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: object) -> str:
    """
    Escape control characters, which a terminal would execute, as `\\x1b` and the like.
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], str(text).replace("\r\n", "\n"))


def one_line(text: object) -> str:
    """
    Return a text as one line, with each run of white space replaced by a single space.
    """
    return visible(" ".join(str(text).split()))


def as_json(value: Any, *, ensure_ascii: bool = False) -> str:
    """
    Write a value for a script.

    :param value: JSON, which may contain objects of the MCP SDK.
    :param ensure_ascii: Whether to escape all characters outside ASCII.
    :returns: Indented JSON, with the names of the protocol. Control characters are escaped.
    """
    text = json.dumps(value, indent=2, ensure_ascii=ensure_ascii, default=protocol_json)
    # They are all within strings. JSON leaves some unescaped that a terminal would execute.
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def protocol_json(value: Any) -> Any:
    """
    Return the JSON of an object of the MCP SDK as in the protocol, without fields that are None.
    """
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class Output:
    """
    Writes the results and notes of a command.
    """

    def __init__(self, *, is_json: bool = False) -> None:
        """
        Initialize the Output.

        :param is_json: Whether to write only JSON to stdout.
        """
        self.is_json = is_json
        self.results: Console = _console(_results_stream or sys.stdout, _WIDTH_OF_TABLES)
        self.help: Console = _console(_results_stream or sys.stdout, _WIDTH_OF_HELP)
        self.notes: Console = _console(sys.stderr, _WIDTH_OF_HELP)

    def json(self, value: Any) -> None:
        """
        Print a result as JSON.
        """
        # Without Unicode, stdout would use `backslashreplace`, whose escapes are not valid in JSON.
        is_unicode = str(self.results.encoding).startswith("utf")
        self._write(as_json(value, ensure_ascii=not is_unicode))

    def text(self, text: str) -> None:
        """
        Print a text of a server: unchanged into a file or a pipe, but with escaped control characters in a terminal.
        """
        self._write(visible(text) if self.results.is_terminal else text)

    def _write(self, text: str) -> None:
        self.results.file.write(text if text.endswith("\n") else f"{text}\n")
        self.results.file.flush()

    def bytes(self, data: bytes) -> None:
        """
        Print bytes unchanged.
        """
        self.results.file.flush()
        self.results.file.buffer.write(data)  # type: ignore[attr-defined]
        self.results.file.flush()

    def print(self, renderable: Any = "", *, style: str | None = None) -> None:
        """
        Print a part of a result for a person: a literal text, or a renderable of rich.
        """
        self.results.print(_literal(renderable, style), soft_wrap=isinstance(renderable, str))

    def note(self, text: str, *, style: str | None = None) -> None:
        """
        Show a literal text on stderr, which is not a result.
        """
        self.notes.print(_literal(text, style), soft_wrap=True)

    def ask(self, question: str) -> str:
        """
        Ask the user, and return the typed line.

        :raises EOFError: After Ctrl-D.
        """
        self.notes.print(_literal(question, None), end="")
        line = (_keyboard() if sys.stdin is sys.__stdin__ else sys.stdin).readline()
        if not line:
            raise EOFError
        return str(line).strip()

    def confirm(self, question: str) -> bool:
        """
        Ask the user for yes or no; no is the default.

        :raises EOFError: After Ctrl-D.
        """
        return self.ask(f"{question} [y/N] ").lower() in ("y", "yes")


@cache
def _keyboard() -> TextIO:
    # A separate reader: a thread may still wait for a line when the command ends, and Python aborts then if it cannot
    # get the lock of `sys.stdin`.
    return os.fdopen(os.dup(sys.stdin.fileno()), encoding=sys.stdin.encoding, errors="replace")


OUTPUT: Group = Group("Output", sort_key=2)


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """
    The options for output.

    :param json: Print JSON for scripts, with the objects of the protocol.
    :param verbose: Write a log to stderr, including what the server writes to its stderr.
    """

    json: Annotated[bool, Parameter(group=OUTPUT)] = False
    verbose: Annotated[bool, Parameter(group=OUTPUT)] = False

    @property
    def output(self) -> Output:
        """
        The Output of the command.
        """
        return Output(is_json=self.json)


def save_bytes(file: Path, data: bytes, output: Output) -> None:
    """
    Write a file, creating its folder, and print a note.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    output.note(f"Saved {file}")


# The real stdout. While a command runs, `sys.stdout` is stderr, so prints of a server in this process are not results.
_results_stream: Any = None


def keep_stdout_for_results() -> None:
    """
    Reserve stdout for results: everything else that this process prints goes to stderr.
    """
    global _results_stream
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal without Unicode could not show, for example, an emoji of a server
            reconfigure(errors="backslashreplace")
    _results_stream, sys.stdout = sys.stdout, sys.stderr


def stdout_for_protocol() -> AbstractContextManager[Any]:
    """
    Restore stdout for a server over stdio, for the duration of a block.
    """
    return redirect_stdout(_results_stream or sys.stdout)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], otherwise: str = "") -> Table | str:
    """
    Make a table of texts from servers; without rows, return `otherwise`.
    """
    lines = [[one_line(cell) for cell in row] for row in rows]
    if not lines:
        return otherwise
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        grid.add_column(column, overflow="fold", header_style="bold")
    for line in lines:
        grid.add_row(*map(Text, line))
    return grid


def _literal(renderable: Any, style: str | None) -> Any:
    return Text(visible(renderable), style=style or "") if isinstance(renderable, str) else renderable


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would end the process with exit code 1, as if the server had answered with an error.
        raise BrokenPipeError from None


def _console(stream: Any, width_in_a_pipe: int) -> Console:
    # Without this, rich would take a pipe or file for a terminal if FORCE_COLOR is set, as is common in CI.
    is_terminal = stream.isatty()
    # COLUMNS=0 is ignored, because rich would show nothing.
    width = None if is_terminal or os.environ.get("COLUMNS", "0") not in ("", "0") else width_in_a_pipe
    return _Console(file=stream, force_terminal=is_terminal, width=width, highlight=False, emoji=False, markup=False)


# Phrases in messages of the package, with their counterparts on the command line where the names differ.
_COMMAND_LINE_PHRASES = {
    'pass `auth="oauth"`, or the credentials as `token` or in `headers`': (
        "log in with 'mcp-haystack login', or pass the credentials with --token-env or --header"
    ),
    # After a login that failed.
    "if it has none, pass the credentials as `token` or in `headers`": (
        "if it has none, pass the credentials to the other commands, with --token-env or --header"
    ),
    "pass the credentials as `token` or in `headers`": (
        "pass the credentials with --token-env or --header, or try 'mcp-haystack login'"
    ),
    "`insecure=True`": "--insecure",
    "Choose another `port`": "Choose another --port",
    "; `host` must be": "; --host must be",
    "`connection_timeout`": "--timeout",
    "`invocation_timeout`": "--timeout",
    "`auth=` (a Secret with a bearer token, or a provider of FastMCP)": "--token-env NAME",
    "MCPToolSnapshot.capture(toolset).save(path)": "mcp-haystack inspect TARGET --snapshot FILE",
}


class ExitCode(IntEnum):
    """
    The exit codes of the command, for scripts. The help and docs/command-line.md explain each.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    UNAUTHORIZED = 4
    UNANSWERED = 5
    CHANGED = 6
    DEFECT = 70
    INTERRUPTED = 130
    NO_READER = 141


class CommandError(Exception):
    """
    Raised when a command cannot go on. Its message is for the person at the terminal.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        """
        Initialize the CommandError.

        :param message: What was tried, what happened, and what to do.
        :param code: The exit code of the command.
        """
        super().__init__(message)
        self.code = code


# The exit codes by the class of the error. The first class that matches counts.
_EXIT_CODES: dict[type[BaseException], ExitCode] = {
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    MCPAuthorizationError: ExitCode.UNAUTHORIZED,
    MCPOutcomeUnknownError: ExitCode.UNANSWERED,
    MCPTimeoutError: ExitCode.UNREACHABLE,
    MCPToolNotFoundError: ExitCode.USAGE,
    MCPInvocationError: ExitCode.FAILED,
    MCPConnectionError: ExitCode.UNREACHABLE,
    MCPRunError: ExitCode.USAGE,
}


def exit_code_of(error: BaseException) -> ExitCode | None:
    """
    Return the exit code for an error.

    :param error: The error.
    :returns: The code; None if the error is a defect of this program.
    """
    if isinstance(error, CommandError):
        return error.code
    # The server answered with an error code. If it did so while connecting, it cannot be used at all.
    if isinstance(error, MCPConnectionError) and error.code is not None and error.operation != "connect":
        return ExitCode.FAILED
    code = next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), None)
    if code is None and isinstance(error, OSError):
        # Either a file that the user has named, or a result that cannot be written (full disk), so a tool may have run.
        return ExitCode.FAILED if error.filename is None else ExitCode.USAGE
    return code


def for_terminal(error: object) -> str:
    """
    Return the message of an error in terms of the command line.

    :param error: The error.
    :returns: Its message, with options in place of parameters.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    text = str(error)
    if isinstance(error, CommandError):  # its text is final
        return text
    for phrase, replacement in _COMMAND_LINE_PHRASES.items():
        text = text.replace(phrase, replacement)
    return text
