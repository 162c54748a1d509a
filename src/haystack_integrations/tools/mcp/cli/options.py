# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Options that several commands share.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from haystack.utils import Secret

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.logins import with_login
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_text
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.http.server_info import SSEServerInfo, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.transports.stdio.server_info import StdioServerInfo

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

REACHING: Group = Group("How to reach the server", sort_key=1)
OUTPUT: Group = Group("Output", sort_key=2)

TARGET = (
    "The server: a URL, a command in quotes, a script (server.py), an import path (package.module:server), a "
    "configuration file, or a name from one."
)

Target = Annotated[str, Parameter(help=TARGET, show_default=False)]
Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False, group=OUTPUT)]
Verbose = Annotated[
    bool,
    Parameter(
        name="--verbose",
        negative="",
        show_default=False,
        group=OUTPUT,
        help="Write a log to stderr, with what the server writes to its own.",
    ),
]


@Parameter(name="*", group=REACHING)
@dataclass(frozen=True, kw_only=True)
class Reach:
    """
    How to reach the server, beyond what the target says.

    :param config: The mcp.json that has the name. Default: those in this folder and of your editors.
    :param header: An HTTP header, as 'Name: value'. ${NAME} in it is an environment variable. Repeatable.
    :param token_env: The environment variable with the bearer token.
    :param oauth: Log in with OAuth if the server wants that. Not needed after 'mcp-haystack login'.
    :param env: An environment variable of the command, as NAME=value. Repeatable.
    :param cwd: The folder in which the command starts.
    :param timeout: Seconds for connecting, and for each answer.
    """

    config: Annotated[Path | None, Parameter(show_default=False, metavar="FILE")] = None
    header: Annotated[list[str] | None, Parameter(negative="", metavar="TEXT")] = None
    token_env: Annotated[str | None, Parameter(metavar="NAME")] = None
    oauth: Annotated[bool, Parameter(negative="", show_default=False)] = False
    env: Annotated[list[str] | None, Parameter(negative="", metavar="NAME=VALUE")] = None
    cwd: Annotated[Path | None, Parameter(show_default=False, metavar="FOLDER")] = None
    timeout: Annotated[float, Parameter(metavar="SECONDS")] = 30.0

    def __post_init__(self) -> None:
        """
        Refuse what cannot be used.

        :raises CommandError: Naming the option.
        """
        if not 0 < self.timeout < math.inf:
            msg = "--timeout must be a number of seconds greater than 0"
            raise CommandError(msg)

    def apply(self, info: MCPServerInfo) -> MCPServerInfo:
        """
        Change how a server is reached as the options say.

        :param info: The server info that the target gave.
        :returns: The server info.
        :raises CommandError: If an option is not for servers of this kind.
        """
        changes: dict[str, Any] = {}
        if self.header or self.token_env or self.oauth:
            if not isinstance(info, (StreamableHttpServerInfo, SSEServerInfo)):
                msg = f"--header, --token-env and --oauth are for servers with a URL, not for the {info.describe()}"
                raise CommandError(msg)
            if self.header:
                changes["headers"] = {**(info.headers or {}), **dict(map(_header, self.header))}
            if self.token_env:
                changes["token"] = secret_of("--token-env", self.token_env)
        if self.env or self.cwd:
            if not isinstance(info, StdioServerInfo):
                msg = f"--env and --cwd are for servers that are started, not for the {info.describe()}"
                raise CommandError(msg)
            if self.env:
                changes["env"] = {**(info.env or {}), **dict(map(_variable, self.env))}
            if self.cwd:
                changes["cwd"] = str(self.cwd)
        changed = dataclasses.replace(info, **changes) if changes else info  # type: ignore[type-var]
        return with_login(changed, wants_oauth=self.oauth)


def secret_of(option: str, variable: str) -> Secret:
    """
    Make the Secret of an option that names an environment variable.

    :param option: The option.
    :param variable: Its value.
    :returns: The Secret.
    :raises CommandError: If that is no name. Then it may be the secret itself, and is not quoted.
    """
    if not _VARIABLE.fullmatch(variable) or redact_text(variable) != variable:
        msg = f"{option} takes the name of an environment variable that has the value, e.g. {option} API_TOKEN"
        raise CommandError(msg)
    return Secret.from_env_var(variable)


def _header(text: str) -> tuple[str, str | Secret]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        msg = "--header takes 'Name: value', e.g. --header 'X-Tenant: acme'"
        raise CommandError(msg)
    return name.strip(), _template(value.strip(), "--header")


def _variable(text: str) -> tuple[str, str | Secret]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        msg = "--env takes NAME=value, e.g. --env LOG_LEVEL=debug"
        raise CommandError(msg)
    return name, _template(value, "--env")


def _template(value: str, option: str) -> str | Secret:
    try:
        return from_template(value)
    except ValueError as error:
        msg = f"{option}: {error}"
        raise CommandError(msg) from None
