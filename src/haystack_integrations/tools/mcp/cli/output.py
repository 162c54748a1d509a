# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the command shows, and with which code it exits: results on stdout, all else on stderr.

Texts of servers are shown as text: no markup of rich, and no control character that a terminal would obey.
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

# Where no terminal says how wide it is: tables are not wrapped, so that programs can read their lines, and help is. The
# variable COLUMNS takes precedence.
_WIDTH_OF_TABLES, _WIDTH_OF_HELP = 1_000_000, 120

# Control characters but tab and line break, and those that reverse the order of what is shown.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: object) -> str:
    """
    Escape what a terminal would obey: control characters become escapes such as `\\x1b`.
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], str(text).replace("\r\n", "\n"))


def one_line(text: object) -> str:
    """
    Return a text in one line, with single spaces in place of white space.
    """
    return visible(" ".join(str(text).split()))


def as_json(value: Any, *, ensure_ascii: bool = False) -> str:
    """
    Write a value for a script.

    :param value: JSON, and objects of the MCP SDK in it.
    :param ensure_ascii: Whether to escape all that is not in ASCII, too.
    :returns: Indented JSON, with the names of the protocol. Control characters are escaped.
    """
    text = json.dumps(value, indent=2, ensure_ascii=ensure_ascii, default=protocol_json)
    # Within strings. What JSON does not escape, a terminal may obey.
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def protocol_json(value: Any) -> Any:
    """
    Return the JSON of an object of the MCP SDK as in the protocol, without what is not set.
    """
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class Output:
    """
    Where a command writes.
    """

    def __init__(self, *, is_json: bool = False) -> None:
        """
        Initialize the Output.

        :param is_json: Whether stdout gets JSON only.
        """
        self.is_json = is_json
        self.results: Console = _console(_results_stream or sys.stdout, _WIDTH_OF_TABLES)
        self.help: Console = _console(_results_stream or sys.stdout, _WIDTH_OF_HELP)
        self.notes: Console = _console(sys.stderr, _WIDTH_OF_HELP)

    def json(self, value: Any) -> None:
        """
        Print a result as JSON.
        """
        # An escape of `backslashreplace` is none of JSON.
        is_unicode = str(self.results.encoding).startswith("utf")
        self._write(as_json(value, ensure_ascii=not is_unicode))

    def text(self, text: str) -> None:
        """
        Print a text of a server. Into a file or a pipe it goes as it is; a terminal gets no control characters.
        """
        self._write(visible(text) if self.results.is_terminal else text)

    def _write(self, text: str) -> None:
        self.results.file.write(text if text.endswith("\n") else f"{text}\n")
        self.results.file.flush()

    def bytes(self, data: bytes) -> None:
        """
        Print bytes as they are.
        """
        self.results.file.flush()
        self.results.file.buffer.write(data)  # type: ignore[attr-defined]
        self.results.file.flush()

    def print(self, renderable: Any = "", *, style: str | None = None) -> None:
        """
        Print a part of a result for a person: a text, which is taken literally, or something of rich.
        """
        self.results.print(_literal(renderable, style), soft_wrap=isinstance(renderable, str))

    def note(self, text: str, *, style: str | None = None) -> None:
        """
        Show a text that is no result, literally.
        """
        self.notes.print(_literal(text, style), soft_wrap=True)

    def ask(self, question: str) -> str:
        """
        Ask the person, and return what was typed.

        :raises EOFError: After Ctrl-D.
        """
        self.notes.print(_literal(question, None), end="")
        line = (_keyboard() if sys.stdin is sys.__stdin__ else sys.stdin).readline()
        if not line:
            raise EOFError
        return str(line).strip()

    def confirm(self, question: str) -> bool:
        """
        Ask the person for a yes or no; no is the default.

        :raises EOFError: After Ctrl-D.
        """
        return self.ask(f"{question} [y/N] ").lower() in ("y", "yes")


@cache
def _keyboard() -> TextIO:
    # A reader of its own: when the command ends, a thread may still wait for a line, and Python aborts if it cannot get
    # the lock of `sys.stdin` then.
    return os.fdopen(os.dup(sys.stdin.fileno()), encoding=sys.stdin.encoding, errors="replace")


OUTPUT: Group = Group("Output", sort_key=2)


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """
    What is shown, and where.

    :param json: Print JSON for scripts: the objects of the protocol, where there are such.
    :param verbose: Write a log to stderr, with what the server writes to its own.
    """

    json: Annotated[bool, Parameter(group=OUTPUT)] = False
    verbose: Annotated[bool, Parameter(group=OUTPUT)] = False

    @property
    def output(self) -> Output:
        """
        Where the command writes.
        """
        return Output(is_json=self.json)


def save_bytes(file: Path, data: bytes, output: Output) -> None:
    """
    Write a file, in a folder that may not exist yet, and say so.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    output.note(f"Saved {file}")


# While a command runs, `sys.stdout` is stderr, so that what a server in this process prints is no result.
_results_stream: Any = None


def keep_stdout_for_results() -> None:
    """
    Keep stdout for results: whatever else this process prints goes to stderr.
    """
    global _results_stream
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # for an emoji of a server in a terminal without Unicode
            reconfigure(errors="backslashreplace")
    _results_stream, sys.stdout = sys.stdout, sys.stderr


def stdout_for_protocol() -> AbstractContextManager[Any]:
    """
    Use stdout for a server over stdio, for the time of a block.
    """
    return redirect_stdout(_results_stream or sys.stdout)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], otherwise: str = "") -> Table | str:
    """
    Return a table of texts of servers, or, if there are no rows, another text.
    """
    lines = [[one_line(cell) for cell in row] for row in rows]
    if not lines:
        return otherwise
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold", header_style="bold")
    for line in lines:
        made.add_row(*map(Text, line))
    return made


def _literal(renderable: Any, style: str | None) -> Any:
    return Text(visible(renderable), style=style or "") if isinstance(renderable, str) else renderable


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich ends the process with exit code 1, as if the server had answered with an error
        raise BrokenPipeError from None


def _console(stream: Any, width_in_a_pipe: int) -> Console:
    # FORCE_COLOR, as many set it in CI, makes no terminal of a pipe or file.
    is_terminal = stream.isatty()
    # With 0 columns, rich shows nothing.
    width = None if is_terminal or os.environ.get("COLUMNS", "0") not in ("", "0") else width_in_a_pipe
    return _Console(file=stream, force_terminal=is_terminal, width=width, highlight=False, emoji=False, markup=False)


# What messages of the package say, and what that is on the command line: where it is not the option of the same name.
_WORDS = {
    'pass `auth="oauth"`, or the credentials as `token` or in `headers`': (
        "log in with 'mcp-haystack login', or pass the credentials with --token-env or --header"
    ),
    # Of a login that was tried.
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
    "pass transport='http'": "add --http",
    "MCPToolSnapshot.capture(toolset).save(path)": "mcp-haystack inspect TARGET --snapshot FILE",
}


class ExitCode(IntEnum):
    """
    What scripts can tell from the end of the command. The help and docs/command-line.md say what each means.
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

        :param message: What was tried, what happened, what to do.
        :param code: With which code the command exits.
        """
        super().__init__(message)
        self.code = code


# The first that fits.
_CODES: dict[type[BaseException], ExitCode] = {
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
    Return the code with which the command exits after an error.

    :param error: The error.
    :returns: The code, or None for an error that is a defect of this program.
    """
    if isinstance(error, CommandError):
        return error.code
    # With a code, the server was there and refused; if that was at the beginning, it cannot be used at all.
    if isinstance(error, MCPConnectionError) and error.code is not None and error.operation != "connect":
        return ExitCode.FAILED
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    if code is None and isinstance(error, OSError):
        # Of a file that somebody has named; or the result cannot be written, as to a full disk: a tool may have run.
        return ExitCode.FAILED if error.filename is None else ExitCode.USAGE
    return code


def for_terminal(error: object) -> str:
    """
    Put the message of an error into the words of the command line.

    :param error: The error.
    :returns: Its message, with options in place of parameters.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    text = str(error)
    for said, meant in _WORDS.items():
        text = text.replace(said, meant)
    return text
