# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The environment variables that a server process inherits from this one.

Not all: they often hold secrets that are none of the server's business. Always inherited is, where it is set, what a
program needs to find its way (`BASICS`), to reach the network (certificates and proxies), and to be installed by `uvx`,
`npx`, `pipx` and the like from where this machine gets its packages. The latter may contain credentials for reading
from a package index; credentials for publishing packages are left out. `StdioServerInfo.inherit_env` adds others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")

# Everywhere: the variables of MCP SDKs, and where temporary files go.
BASICS = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "TMP", "TEMP"})

NAMES = BASICS | frozenset(
    {
        # Locale and time zone.
        *("LANG", "LANGUAGE", "TZ"),
        # Certificate authorities.
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NIX_SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "DENO_CERT", "DENO_TLS_CA_STORE", "GIT_SSL_CAINFO"),
        *("GIT_SSL_CAPATH", "HTTPLIB2_CA_CERTS", "AWS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
        # Proxies.
        *(*_PROXIES, *map(str.lower, _PROXIES), "NODE_USE_ENV_PROXY"),
        # Package managers without a prefix for all.
        *("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_DEFAULT_PYTHON", "DENO_DIR", "PNPM_HOME", "BUN_INSTALL", "VOLTA_HOME"),
        *("NVM_DIR", "FNM_DIR", "COREPACK_HOME", "COREPACK_NPM_REGISTRY"),
    }
)

PREFIXES = ("LC_", "XDG_", "UV_", "PIP_", "NPM_CONFIG_", "npm_config_")

# With these, packages are published.
_LEFT_OUT = ("UV_PUBLISH_", "UV_GITHUB_TOKEN", "NPM_CONFIG_OTP", "npm_config_otp")

_WINDOWS_NAMES = frozenset(
    {"ALLUSERSPROFILE", "APPDATA", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMSPEC", "HOMEDRIVE", "HOMEPATH"}
    | {"LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA"}
    | {"PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "PUBLIC", "SYSTEMDRIVE", "SYSTEMROOT", "USERNAME"}
    | {"USERPROFILE", "WINDIR"}
)


def is_always_inherited(name: str) -> bool:
    """
    Tell whether every server inherits a variable.

    :param name: Its name, or a pattern of names that ends in `*`.
    :returns: True if it does; for a pattern, if it does whatever the pattern stands for.
    """
    stem = name.removesuffix("*")
    if name.startswith(_LEFT_OUT) or (stem != name and any(left_out.startswith(stem) for left_out in _LEFT_OUT)):
        return False
    return name in NAMES or name.startswith(PREFIXES) or (sys.platform == "win32" and name.upper() in _WINDOWS_NAMES)


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
        if (inherit_env is True or name in names or name.startswith(prefixes) or is_always_inherited(name))
        and not value.startswith("()")
    }
