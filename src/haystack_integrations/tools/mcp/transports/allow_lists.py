# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Allow lists of the commands and hosts that MCP clients may use, set by the operator of the process.

A pipeline definition names commands and URLs. An operator who runs definitions written by others can restrict them with
these environment variables, which every client checks when it connects:

* `HAYSTACK_MCP_ALLOWED_COMMANDS`: comma-separated commands that may be started, as they are written in
  `StdioServerInfo.command`, e.g. `uvx,/opt/mcp/bin/server`. A bare name is looked up on the `PATH` of this process.
* `HAYSTACK_MCP_ALLOWED_ENV`: comma-separated names of the environment variables that `StdioServerInfo.env` may set
  where commands are restricted, e.g. `API_KEY,LOG_LEVEL`. If it is not set, none may be set: many variables make a
  program run foreign code (`BASH_ENV`, `PYTHONPATH`, `NODE_OPTIONS`, `PERL5OPT`, …), and no list of them is complete.
  `StdioServerInfo.inherit_env` may name only the same variables, because it could pass this process's secrets to a
  server; a pattern such as `AWS_*` must be listed as it is written there. The fixed list of variables that every server
  inherits needs no entry.
* `HAYSTACK_MCP_ALLOWED_HOSTS`: comma-separated hosts that may be connected to, with `*` as a wildcard, e.g.
  `mcp.example.com,*.internal,localhost:8000`. An entry without a port allows all ports. The host of a `proxy` in a
  server info must also be allowed; the proxies in the environment of this process are the operator's own.

The lists of commands and hosts allow everything if they are not set, and nothing if they are empty.

This module also has the fixed list of environment variables that every server inherits.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn
from urllib.parse import urlsplit

from haystack_integrations.tools.mcp.errors import MCPConnectionError

ALLOWED_COMMANDS_VARIABLE = "HAYSTACK_MCP_ALLOWED_COMMANDS"
ALLOWED_HOSTS_VARIABLE = "HAYSTACK_MCP_ALLOWED_HOSTS"
ALLOWED_ENV_VARIABLE = "HAYSTACK_MCP_ALLOWED_ENV"

_DEFAULT_PORTS = {"https": 443, "socks5": 1080, "socks5h": 1080}

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")

# The variables that every server inherits.
_NAMES = frozenset(
    {
        # The variables that MCP SDKs pass on, and the folders of temporary files.
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "TMP", "TEMP"),
        # Locale and time zone.
        *("LANG", "LANGUAGE", "TZ"),
        # Certificate authorities.
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NIX_SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "DENO_CERT", "DENO_TLS_CA_STORE", "GIT_SSL_CAINFO"),
        *("GIT_SSL_CAPATH", "HTTPLIB2_CA_CERTS", "AWS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
        # Proxies.
        *(*_PROXIES, *map(str.lower, _PROXIES), "NODE_USE_ENV_PROXY"),
        # Package managers whose variables have no common prefix.
        *("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_DEFAULT_PYTHON", "DENO_DIR", "PNPM_HOME", "BUN_INSTALL", "VOLTA_HOME"),
        *("NVM_DIR", "FNM_DIR", "COREPACK_HOME", "COREPACK_NPM_REGISTRY"),
    }
)

_PREFIXES = ("LC_", "XDG_", "UV_", "PIP_", "NPM_CONFIG_", "npm_config_")

# Not inherited despite their prefixes: they are credentials for publishing packages.
_NEVER_INHERITED = ("UV_PUBLISH_", "UV_GITHUB_TOKEN", "NPM_CONFIG_OTP", "npm_config_otp")

_WINDOWS_NAMES = frozenset(
    {"ALLUSERSPROFILE", "APPDATA", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMSPEC", "HOMEDRIVE", "HOMEPATH"}
    | {"LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA"}
    | {"PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "PUBLIC", "SYSTEMDRIVE", "SYSTEMROOT", "USERNAME"}
    | {"USERPROFILE", "WINDIR"}
)


def _entries(variable: str) -> list[str] | None:
    value = os.environ.get(variable)
    return None if value is None else [entry.strip() for entry in value.split(",") if entry.strip()]


def check_command(
    command: str, env: Mapping[str, object] | None, inherit_env: Sequence[str] | bool | None = None
) -> str:
    """
    Check that a command may be started.

    :param command: The command of a stdio server.
    :param env: The environment variables that the server info adds.
    :param inherit_env: Further variables to inherit, as in `StdioServerInfo`.
    :returns: The command to start. If commands are restricted, it is an absolute path: a relative path starts at the
        working directory of this process, and a bare name is looked up on its `PATH`.
    :raises MCPConnectionError: If the command, or a variable in `env` or `inherit_env`, is not allowed.
    """
    allowed = _entries(ALLOWED_COMMANDS_VARIABLE)
    if allowed is None:
        return command
    if command not in allowed:
        _refuse(command, f"{ALLOWED_COMMANDS_VARIABLE} allows {', '.join(allowed) or 'no command'}")
    names = _entries(ALLOWED_ENV_VARIABLE) or []
    further = ["all variables"] if inherit_env is True else inherit_env or ()
    inherited = [name for name in further if not _is_always_inherited(name)]
    for field, asks, may, wanted in (
        ("env", "sets", "may set", [*(env or ())]),
        ("inherit_env", "asks for", "may name", inherited),
    ):
        if refused := sorted(name for name in wanted if name not in names):
            _refuse(
                command,
                f"its `{field}` {asks} {', '.join(refused)}, and where {ALLOWED_COMMANDS_VARIABLE} is set, "
                f"{ALLOWED_ENV_VARIABLE} must name each variable that `{field}` {may} (it allows "
                f"{', '.join(names) or 'none'})",
            )
    # The path is absolute, so that neither the server's working directory nor a relative entry of `PATH` decides.
    path = command if os.path.dirname(command) else shutil.which(command)
    if path is None:
        msg = f"Did not start the command '{command}': it was not found on the PATH of this process. Is it installed?"
        raise MCPConnectionError(msg, operation="connect")
    return os.path.abspath(path)


def _refuse(command: str, reason: str) -> NoReturn:
    msg = f"Did not start the command '{command}': {reason}. Ask the operator of this process to add it."
    raise MCPConnectionError(msg, operation="connect")


def check_host(url: str, role: str = "") -> None:
    """
    Check that the host of a URL may be connected to.

    :param url: The URL of a server, or of a proxy that a server info names.
    :param role: Describes the URL in the message.
    :raises MCPConnectionError: If the host is not allowed.
    """
    allowed = _entries(ALLOWED_HOSTS_VARIABLE)
    if allowed is None:
        return
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)
    written = f"[{host}]" if ":" in host else host
    names = {host, written, f"{written}:{port}"}
    # Brackets in an entry enclose an IPv6 address; fnmatch must not read them as a set of characters.
    patterns = [entry.lower().replace("[", "[[]") for entry in allowed]
    # The zone of an IPv6 address can be any text, `[::1%25.internal]`, so no entry allows it.
    if "%" in host or not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names):
        msg = (
            f"Did not connect to {role}{written}:{port}: {ALLOWED_HOSTS_VARIABLE} allows "
            f"{', '.join(allowed) or 'no host'}. Ask the operator of this process to add it."
        )
        raise MCPConnectionError(msg, operation="connect")


def _is_always_inherited(name: str) -> bool:
    """
    Return whether every server inherits a variable, or all variables that match a pattern with a `*` at its end.
    """
    stem = name.removesuffix("*")
    if name.startswith(_NEVER_INHERITED) or (stem != name and any(each.startswith(stem) for each in _NEVER_INHERITED)):
        return False
    return name in _NAMES or name.startswith(_PREFIXES) or (sys.platform == "win32" and name.upper() in _WINDOWS_NAMES)


def inherited_environment(inherit_env: Sequence[str] | bool | None = None) -> dict[str, str]:
    """
    Collect the variables that a server inherits.

    :param inherit_env: As in `StdioServerInfo`.
    :returns: The variables of this process, without shell functions.
    """
    further = () if isinstance(inherit_env, bool) or inherit_env is None else inherit_env
    names = {name for name in further if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in further if name.endswith("*"))
    return {
        name: value
        for name, value in os.environ.items()
        if (inherit_env is True or name in names or name.startswith(prefixes) or _is_always_inherited(name))
        and not value.startswith("()")
    }
