# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from enum import IntEnum

from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPRunError,
    MCPTimeoutError,
    MCPToolNotFoundError,
)

# What messages of the package say, and what that is on the command line.
_WORDS = {
    'pass `auth="oauth"`, or the credentials as `token` or in `headers`': (
        "log in with 'mcp-haystack login', or pass the credentials with --token-env or --header"
    ),
    "pass the credentials as `token` or in `headers`": "pass the credentials with --token-env or --header",
    "Check `token`, or the Authorization in `headers`": "Check --token-env, or the Authorization in --header",
    "e.g. `server.run()`": "e.g. `server.run()`. Or name what it makes, as in server.py:server",
    "`auth=` (a Secret with a bearer token, or a provider of FastMCP)": "--token-env NAME",
    "`insecure=True`": "--insecure",
    "pass transport='http'": "add --http",
    "command=sys.executable": "the full path of its Python",
    "MCPToolSnapshot.capture(toolset).save(path)": "mcp-haystack inspect TARGET --snapshot FILE",
}
_OPTIONS = {"connection_timeout": "timeout", "invocation_timeout": "timeout", "auth": "token-env"}
_OPTIONS |= {"allowed_hosts": "allowed-host", "allowed_origins": "allowed-origin"}
_OPTIONS |= {name: name for name in ("host", "port", "path", "insecure", "stateless", "workers")}


class ExitCode(IntEnum):
    """
    What scripts can tell from the end of the command. docs/command-line.md lists them, too.
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


MEANINGS = {
    ExitCode.OK: "it worked",
    ExitCode.FAILED: "the server answered with an error, or doctor found a problem",
    ExitCode.USAGE: "the command line, a file or an argument is wrong; nothing was called",
    ExitCode.UNREACHABLE: "the server could not be reached, or the connection was lost",
    ExitCode.UNAUTHORIZED: "the server wants a login, or the login failed",
    ExitCode.UNANSWERED: "a tool was called and did not answer: it may have run",
    ExitCode.CHANGED: "the server is not as it was in the snapshot",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}


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
    OSError: ExitCode.USAGE,  # of a file that somebody has named
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
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)


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
    return re.sub(r"`(\w+)`", lambda match: f"--{_OPTIONS[match[1]]}" if match[1] in _OPTIONS else match[0], text)
