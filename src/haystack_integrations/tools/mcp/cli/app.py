# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The command line `mcp-haystack`: its commands and its exit codes.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import traceback
import warnings
from types import FrameType

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

import haystack_integrations.tools.mcp as package
from haystack_integrations.tools.mcp.cli.output import (
    ExitCode,
    Output,
    exit_code_of,
    for_terminal,
    keep_stdout_for_results,
)
from haystack_integrations.tools.mcp.cli.targets import LAUNCHERS
from haystack_integrations.tools.mcp.redaction import redact_text

# Where each command is defined, and its summary. Only the module of the command that runs is imported.
_COMMANDS = {
    "list": ("inspect:list_tools", "List what a server offers: its tools and, if asked, its resources and prompts."),
    "call": ("call:call", "Call a tool, and print its result."),
    "read": ("call:read", "Read a resource, and print its content."),
    "prompt": ("call:prompt", "Get a prompt, and print its messages."),
    "inspect": ("inspect:inspect", "Show everything about a server."),
    "doctor": ("doctor:doctor", "Find out what is wrong, and what to do."),
    "login": ("login:login", "Log in at a server that wants it (OAuth), in the browser."),
    "logout": ("login:logout", "Forget the login at a server."),
    "serve": ("serve:serve", "Serve what was built in Haystack as an MCP server."),
    "runs": ("runs:runs", "List the durable runs in a journal, or show one."),
    "config": ("files:config", "Check an mcp.json, and print the toolsets for it as YAML."),
}

# The logs of these libraries are shown only with `--verbose`.
_LIBRARIES = ("mcp", "fastmcp", "httpx2", "asyncio")

_HELP = """\
Use MCP servers from a terminal or a script.

A server is named by a URL (https://host/mcp), a command in quotes ("uvx mcp-server-time"), a script (server.py), an
import path (package.module:server), a configuration file (mcp.json), or the name of a server in one (mcp.json:time, or
just time if this folder or your editor has such a file).
"""

_EPILOGUE = """\
Exit codes:

* 0: it worked
* 1: the server answered with an error, a result could not be written, or doctor found other problems
* 2: the command line, a file or an argument is wrong; nothing was called
* 3: the server could not be reached, or the connection was lost
* 4: the server wants a login, or the login failed
* 5: a tool was called and did not answer: it may have run
* 6: the server is not as it was in the snapshot
* 130: interrupted with Ctrl-C
"""


def _make_app(chosen: str | None = None) -> App:
    # The help of the chosen command comes from its docstring. The others show only their summary.
    app = App(
        name="mcp-haystack",
        help=_HELP,
        help_epilogue=_EPILOGUE,
        help_format="markdown",
        version=lambda: f"mcp-haystack {package.__version__}",
        default_parameter=Parameter(negative=(), show_default=False),
        suppress_keyboard_interrupt=False,
    )
    app.register_install_completion_command(help="Install completion for the shell, e.g. bash or zsh.")
    for number, (name, (place, summary)) in enumerate(_COMMANDS.items()):
        about = {} if name == chosen else {"help": summary}
        app.command(f"{__package__}.{place}", name=name, help_epilogue="", sort_key=number, **about)
    return app


def run(words: list[str]) -> int:
    """
    Run a command. It changes the signal handlers, logging and stdout of the process for good.

    :param words: The words of the command line after its name.
    :returns: The exit code.
    """
    _set_up_logs(is_verbose="--verbose" in words)
    signal.signal(signal.SIGTERM, _end)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # the terminal was closed
        signal.signal(signal.SIGHUP, _end)
    keep_stdout_for_results()
    if sys.stdin is None:  # it was closed, for example with `<&-`
        sys.stdin = open(os.devnull, encoding="utf-8")
    output = Output(is_json="--json" in words)
    try:
        result = _make_app(next(iter(words), None))(
            words,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
            console=output.help,
            error_console=output.notes,
        )
        return int(result) if isinstance(result, int) else ExitCode.OK
    except CycloptsError as error:
        command = f"mcp-haystack {words[0]}" if words[:1] and words[0] in _COMMANDS else "mcp-haystack"
        # The text after `=` is removed: it was meant as the value of an argument and may be a secret.
        text, hint = re.sub(r"(?s)(Unknown option: [^=\s]+)=.*", r"\1.", str(error)), _in_quotes(words)
        if isinstance(error, UnknownOptionError) and words[0] in ("call", "read", "prompt"):
            hint += "\nArguments are written without dashes, as name=value"
        return _report(output, f"{text}{hint}\nTry: {command} --help", ExitCode.USAGE, error)
    except BrokenPipeError:
        _drop_results()
        return ExitCode.NO_READER
    except (Exception, KeyboardInterrupt) as error:
        code = exit_code_of(error)
        if code is None:
            traceback.print_exc()
            code = ExitCode.DEFECT
        return _report(output, "Interrupted" if code is ExitCode.INTERRUPTED else for_terminal(error), code, error)


def _report(output: Output, text: str, code: ExitCode, error: BaseException) -> ExitCode:
    text = redact_text(text)  # it may quote the command line
    output.note(text if code is ExitCode.INTERRUPTED else f"Error: {text}", style="red")
    if output.is_json:
        try:
            output.json({"error": {"type": type(error).__name__, "message": text, "exitCode": int(code)}})
        except OSError:
            _drop_results()
    return code


def _drop_results() -> None:
    # Otherwise, the interpreter would fail to flush its buffer at exit and print an error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _in_quotes(words: list[str]) -> str:
    # Without quotes, the first word of a command is taken for the target, and its other words fit no parameter.
    name, program = [*words, "", ""][:2]
    if name not in _COMMANDS or name in ("serve", "config") or not (program in LAUNCHERS or shutil.which(program)):
        return ""
    return f"\nIf '{program}' starts the server, put its whole command in quotes: mcp-haystack {name} \"{program} …\""


def _end(number: int, _frame: FrameType | None) -> None:
    if number != signal.SIGTERM and signal.getsignal(signal.SIGTERM) is not _end:
        signal.raise_signal(signal.SIGTERM)  # a server lets running calls finish
        return
    sys.exit(128 + number)  # the `with` blocks that it leaves close the servers


def _set_up_logs(*, is_verbose: bool) -> None:
    handler = logging.StreamHandler()  # to stderr
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    ours = logging.getLogger("haystack_integrations.tools.mcp")
    ours.addHandler(handler)
    ours.propagate = False
    ours.setLevel(logging.DEBUG if is_verbose else logging.WARNING)
    if not is_verbose:
        warnings.simplefilter("ignore")
        for name in _LIBRARIES:
            logging.getLogger(name).setLevel(logging.ERROR)
