# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Allow lists of the commands and hosts that MCP clients may use, set by the operator of the process.

A pipeline definition names commands and URLs. An operator who runs definitions written by others can restrict them with
these environment variables. Every client checks them when it connects:

* `HAYSTACK_MCP_ALLOWED_COMMANDS`: comma-separated commands that may be started, as they are written in
  `StdioServerInfo.command`, e.g. `uvx,/opt/mcp/bin/server`. A bare name is looked up on the `PATH` of this process.
* `HAYSTACK_MCP_ALLOWED_HOSTS`: comma-separated hosts that may be connected to, with `*` as a wildcard, e.g.
  `mcp.example.com,*.internal,localhost:8000`. An entry without a port allows all ports.

An unset variable allows everything, an empty one nothing.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Mapping
from urllib.parse import urlsplit

from haystack_integrations.tools.mcp.errors import MCPConnectionError

ALLOWED_COMMANDS_VARIABLE = "HAYSTACK_MCP_ALLOWED_COMMANDS"
ALLOWED_HOSTS_VARIABLE = "HAYSTACK_MCP_ALLOWED_HOSTS"

# With these variables an environment can make an allowed command run another program, or load code into it.
_HIJACKING_VARIABLES = ("PATH", "LD_*", "DYLD_*", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "NODE_OPTIONS")


def _entries(variable: str) -> list[str] | None:
    value = os.environ.get(variable)
    return None if value is None else [entry.strip() for entry in value.split(",") if entry.strip()]


def check_command(command: str, env: Mapping[str, object] | None) -> str:
    """
    Check that a command may be started.

    :param command: The command of a stdio server.
    :param env: The environment variables that the server info adds.
    :returns: The command to start. If commands are restricted, relative paths are made absolute, and bare names are
        looked up on the `PATH` of this process.
    :raises MCPConnectionError: If the command, or a variable in `env`, is not allowed.
    """
    allowed = _entries(ALLOWED_COMMANDS_VARIABLE)
    if allowed is None:
        return command
    if command not in allowed:
        msg = (
            f"Did not start the command '{command}': {ALLOWED_COMMANDS_VARIABLE} allows "
            f"{', '.join(allowed) or 'no command'}. Ask the operator of this process to add it."
        )
        raise MCPConnectionError(msg, operation="connect")
    for name in env or ():
        if any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in _HIJACKING_VARIABLES):
            msg = (
                f"Did not start the command '{command}': its `env` sets {name}, which could make it run a program "
                f"that {ALLOWED_COMMANDS_VARIABLE} does not allow. Remove {name} from `env`."
            )
            raise MCPConnectionError(msg, operation="connect")
    if os.path.dirname(command):  # relative to this process, whatever the working directory of the server is
        return os.path.abspath(command)
    return shutil.which(command) or command


def check_host(url: str) -> None:
    """
    Check that the host of a URL may be connected to.

    :param url: The URL of a server.
    :raises MCPConnectionError: If the host is not allowed.
    """
    allowed = _entries(ALLOWED_HOSTS_VARIABLE)
    if allowed is None:
        return
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    written = f"[{host}]" if ":" in host else host
    names = {host, written, f"{written}:{port}"}
    # Brackets in an entry enclose an IPv6 address; fnmatch must not read them as a set of characters.
    patterns = [entry.lower().replace("[", "[[]") for entry in allowed]
    if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names):
        msg = (
            f"Did not connect to {written}:{port}: {ALLOWED_HOSTS_VARIABLE} allows "
            f"{', '.join(allowed) or 'no host'}. Ask the operator of this process to add it."
        )
        raise MCPConnectionError(msg, operation="connect")
