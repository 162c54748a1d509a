# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from haystack.utils import Secret
from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.import_paths import import_object
from haystack_integrations.tools.mcp.parameters import CHECKED, explains_options
from haystack_integrations.tools.mcp.protocol.server_info import (
    DEFAULT_MAX_MESSAGE_SIZE,
    BuiltInServerInfo,
    Delay,
    MessageSize,
    Retries,
    Secrets,
)
from haystack_integrations.tools.mcp.redaction import redact_args, redact_text, secrets_in
from haystack_integrations.tools.mcp.secret_template import shown

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.base import MCPClient


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


# Parameters that the client does not have.
_OF_THE_CONNECTION = ("max_in_flight", "failure_pause")

# By name, because the module imports this one, and the types of the protocol, for which a pipeline that is only built
# or loaded must not wait.
_CLIENT = "haystack_integrations.tools.mcp.transports.stdio.client:StdioClient"


def _text_of_path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class StdioServerInfo(BuiltInServerInfo):
    """
    Connection parameters of an MCP server that is started as a child process and uses stdio.

    Use Secrets for environment variables with sensitive data:

    ```python
    server_info = StdioServerInfo(
        command="uv",
        args=["run", "my-mcp-server"],
        env={
            "WORKSPACE_PATH": "/path/to/workspace",
            "API_KEY": Secret.from_env_var("API_KEY"),
        }
    )
    ```

    Of this process's variables, the server inherits a fixed list: what every program needs (`PATH`, `HOME`, `USER`,
    `SHELL`, `TERM`, locale, time zone, temporary folders, `XDG_*`), certificate authorities and proxies
    (`SSL_CERT_FILE`, `REQUESTS_CA_BUNDLE`, `NODE_EXTRA_CA_CERTS`, `HTTPS_PROXY`, …), and the settings of package
    managers (`UV_*`, `PIP_*`, `NPM_CONFIG_*`), which may include credentials for reading from a package index. It
    inherits no others, above all no API keys, unless `inherit_env` names them.

    :param command: Command to run, e.g. "python" or "node".
    :param args: Arguments of the command.
    :param env: Additional environment variables. A variable whose optional Secret has no value is omitted.
    :param max_retries: Maximum number of retries when a lost session is reopened, or when a call provably did not run.
    :param base_delay: Initial delay in seconds between retries; grows exponentially.
    :param max_delay: Maximum delay in seconds between retries.
    :param cwd: Working directory of the command. Default: that of this process.
    :param inherit_env: Names of further variables of this process that the server inherits, e.g.
        `["AWS_PROFILE", "OTEL_*"]`, where `*` at the end stands for any rest; or True for all variables. Those that are
        not set are ignored; those in `env` take precedence. Default: no further variables.
    :param max_message_size: How many bytes one message of the server, e.g. the result of a call, may have. Default:
        16 MiB. A call whose answer is larger fails with an MCPOutcomeUnknownError. On Windows, where the transport is
        that of the MCP SDK, this has no effect.
    :param max_in_flight: How many calls may be in flight at the server, of all tools and toolsets of this process; the
        others wait, which counts as time of the call. A call that has become a task is none of them. Default:
        any number.
    :param failure_pause: For how many seconds the server is left alone after 5 of the last 10 calls failed because of
        it: calls then fail at once, until one that is let through is answered. Each time that one fails, the pause is
        twice as long, up to a minute. Default: 5 seconds. None for never.
    :param negotiation: How the revision of the protocol is agreed on. `"handshake"` is for the revisions up to
        2025-11-25 only, which some servers need for what they ask of their client. `"discover"` asks for newer
        revisions first, and shakes hands if the server has none. `"auto"` shakes hands first, and asks for newer
        revisions only if the server refuses that.
        Default: `"auto"`.
    """

    _transport_name: ClassVar[str] = "stdio"

    command: str | Secret
    args: Sequence[str | Secret] | None = None
    env: Secrets | None = None
    max_retries: Retries = 3
    base_delay: Delay = 1.0
    max_delay: Delay = 30.0
    _: KW_ONLY
    cwd: Annotated[str | Secret | None, BeforeValidator(_text_of_path)] = None
    inherit_env: Sequence[str] | bool | None = None
    max_message_size: MessageSize = DEFAULT_MAX_MESSAGE_SIZE

    _always_stored = "command args env max_retries base_delay max_delay".split()

    def __post_init__(self) -> None:
        """
        Validate the parameters.

        :raises ValueError: If a parameter is invalid. The message names it and its valid values.
        """
        self._check_command()
        if not isinstance(self.inherit_env, bool):
            self._check_inherit_env(self.inherit_env or ())

    def _check_command(self) -> None:
        command = self.command
        if isinstance(command, Secret):
            return
        if not command.strip():
            self._refuse(f"`command` must be a non-empty string, got {command!r}")
        program, *rest = command.split()
        if rest and not (os.path.isfile(command) or shutil.which(command)):
            self._refuse(
                "`command` must be a program alone; its arguments belong in `args`, as in "
                f"StdioServerInfo(command={program!r}, args=[...]). There is no file of the name that was given.",
            )

    def _check_inherit_env(self, names: Sequence[str]) -> None:
        for name in names:
            stem = name.removesuffix("*")
            if not stem or set("*=\0") & set(stem):
                self._refuse(
                    "`inherit_env` must be a list of names of environment variables, each perhaps with a `*` at its "
                    f"end, or True for all, and {name.partition('=')[0]!r} is no such name"
                )

    def create_client(self) -> MCPClient:
        """
        Create a stdio MCP client.

        :returns: Configured StdioClient instance.
        """
        fields = [field.name for field in dataclasses.fields(StdioServerInfo) if field.name not in _OF_THE_CONNECTION]
        client: MCPClient = import_object(_CLIENT)(**{name: getattr(self, name) for name in fields})
        return client

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: The command line, with the values of options that are named as secrets redacted.
        """
        return f"stdio server `{self._command_line()}`"

    def _command_line(self) -> str:
        return " ".join([redact_text(shown(self.command)), *redact_args(map(shown, self.args or []))])

    def _secrets(self) -> set[str]:
        # An error may quote what the server inherited, too, such as the password of a package index.
        return super()._secrets() | secrets_in({"inherited": inherited_environment(self.inherit_env)})

    def _redacted_fields(self) -> dict[str, Any]:
        fields = super()._redacted_fields()
        return {
            **fields,
            "command": redact_text(shown(self.command)),
            "args": None if self.args is None else redact_args(map(shown, self.args)),
        }
