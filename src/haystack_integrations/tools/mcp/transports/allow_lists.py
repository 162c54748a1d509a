# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the operator of a process allows MCP clients to start and to talk to.

A pipeline definition names commands and URLs. Whoever runs definitions written by others sets these environment
variables, and every client checks them when it connects:

* `HAYSTACK_MCP_ALLOWED_COMMANDS`: comma-separated commands that may be started, as they are written in
  `StdioServerInfo.command`, e.g. `uvx,/opt/mcp/bin/server`. A bare name is looked up on the `PATH` of this process.
* `HAYSTACK_MCP_ALLOWED_HOSTS`: comma-separated hosts that may be connected to, e.g. `mcp.example.com,*.internal,
  localhost:8000`. An entry without a port allows every port.

A variable that is not set allows everything; one that is empty allows nothing.
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

# With these an environment decides which program an allowed command really is, or loads code into it.
_HIJACKING_VARIABLES = ("PATH", "LD_*", "DYLD_*", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "NODE_OPTIONS")


def _entries(variable: str) -> list[str] | None:
    value = os.environ.get(variable)
    return None if value is None else [entry.strip() for entry in value.split(",") if entry.strip()]


def check_command(command: str, env: Mapping[str, object] | None) -> str:
    """
    Check that a command may be started.

    :param command: The command of a stdio server.
    :param env: The environment variables that the server info adds.
    :returns: The command to start: the same, or what the operator's own `PATH` makes of a bare name where commands are
        restricted.
    :raises MCPConnectionError: If the operator does not allow it.
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
                f"Did not start the command '{command}': its `env` sets {name}, which could make it run another "
                f"program than {ALLOWED_COMMANDS_VARIABLE} allows. Remove {name} from `env`."
            )
            raise MCPConnectionError(msg, operation="connect")
    if os.path.dirname(command):  # a relative path is the operator's, not one in the server's working directory
        return os.path.abspath(command)
    return shutil.which(command) or command


def check_host(url: str) -> None:
    """
    Check that the host of a URL may be connected to.

    :param url: The URL of a server.
    :raises MCPConnectionError: If the operator does not allow it.
    """
    allowed = _entries(ALLOWED_HOSTS_VARIABLE)
    if allowed is None:
        return
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    written = f"[{host}]" if ":" in host else host
    names = {host, written, f"{written}:{port}"}
    # A bracket is part of an IPv6 address, not of a pattern.
    patterns = [entry.lower().replace("[", "[[]") for entry in allowed]
    if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names):
        msg = (
            f"Did not connect to {written}:{port}: {ALLOWED_HOSTS_VARIABLE} allows "
            f"{', '.join(allowed) or 'no host'}. Ask the operator of this process to add it."
        )
        raise MCPConnectionError(msg, operation="connect")
