# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Files that the command reads: configuration files of MCP clients, and the record of this user's logins.

`config` checks a configuration file. The record of logins has the URL and the OAuth configuration of each login. Tokens
are in a FileTokenStorage beside it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, unquote_plus

import yaml
from cyclopts import Parameter

from haystack_integrations.tools.mcp.auth.oauth_config import MCPLoginRequest, OAuthConfig, can_open_browser
from haystack_integrations.tools.mcp.auth.token_storage import FileTokenStorage
from haystack_integrations.tools.mcp.cli.output import CommandError, ExitCode, Output, OutputOptions
from haystack_integrations.tools.mcp.mcp_json import Configuration, missing_variables, variable_name
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_text, secrets_in
from haystack_integrations.tools.mcp.secret_template import SecretTemplate, from_template, shown
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo

CONFIG_SUFFIXES = (".json", ".jsonc")

# The configuration files that clients keep in a project.
_PROJECT_FILES = ("mcp.json", ".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json")

_AUTH_SCHEME = re.compile(r"(?i)((?:bearer|basic|token)\s+)\S+")

_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}")

_FIELDS_WITH_SECRETS = ("command", "args", "env", "cwd", "url", "headers", "token")


@dataclasses.dataclass(frozen=True)
class Server:
    """
    A server that a target refers to. One server of a file may be unusable while the others are not.

    :param name: Its name in the file, or the target, without secrets.
    :param info: How to reach it; None if it is disabled or cannot be used.
    :param toolset: Its toolset, if it is from a configuration file.
    :param place: Its place in the file, for messages.
    :param warnings: What may be wrong with it.
    :param error: Why it cannot be used; None if it can.
    """

    name: str
    info: MCPServerInfo | None = None
    toolset: MCPToolset | None = None
    place: str = ""
    warnings: Sequence[str] = ()
    error: str | None = None

    @property
    def is_disabled(self) -> bool:
        """
        Whether it is disabled in its file.
        """
        return self.info is None and self.error is None

    def usable(self) -> MCPServerInfo:
        """
        Return its server info, if it can be used.

        :returns: The server info.
        :raises CommandError: If it is disabled or cannot be used.
        """
        if self.info is None:
            raise CommandError(self.error or f"{self.place} is disabled. Enable it there to use it.")
        return self.info


def _settings_folder() -> Path:
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or _home())
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config")


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # unlike `Path.home`, it does not fail in a container without a home


def config_files() -> list[Path]:
    """
    Return the configuration files in which a server's name is looked up.

    :returns: The files of the working directory, then those of the user's editors and assistants.
    """
    home, settings = _home(), _settings_folder()
    candidates = [
        *(Path(name) for name in _PROJECT_FILES),
        settings / "Claude" / "claude_desktop_config.json",
        home / ".claude.json",
        home / ".cursor" / "mcp.json",
        settings / "Code" / "User" / "mcp.json",
        home / ".codeium" / "windsurf" / "mcp_config.json",
        home / ".gemini" / "settings.json",
    ]
    # `Path.is_file` would fail in a home that this user may not read, as in some containers.
    return [file for file in candidates if os.path.isfile(file)]


def servers_in(file: Path) -> list[Server]:
    """
    Read the servers of a configuration file. An invalid one does not affect the others.

    :param file: The file.
    :returns: The servers; an invalid one has an `error`.
    :raises CommandError: If the file cannot be read.
    """
    try:
        configuration = Configuration(file, is_checked=False)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    servers = []
    for name in configuration.entries:
        place = f"{configuration.where}: server '{name}'"
        try:
            toolset = configuration.toolset(name)
        except ValueError as error:
            servers.append(Server(name, place=place, error=str(error)))
            continue
        info = toolset.server_info if toolset is not None else None
        servers.append(Server(name, info, toolset, place, configuration.warnings[place]))
    return servers


def names_in(file: Path) -> list[str]:
    """
    Return the names of all servers in a file, even unusable ones; empty if the file cannot be read.
    """
    try:
        return [entry.name for entry in servers_in(file)]
    except CommandError:
        return []  # a command that needs this file reports the error


# The command `config`, and secrets in plain text.


def config(
    file: Annotated[Path, Parameter(help="The mcp.json.")],
    /,
    *servers: Annotated[str, Parameter(help="The names of the servers to print. Default: all.")],
    options: OutputOptions = OutputOptions(),
) -> ExitCode:
    """
    Check an mcp.json, and print the toolsets for it as YAML.

    The YAML goes under `tools` of an Agent or a ToolInvoker in a stored pipeline. No server is connected; 'mcp-haystack
    doctor FILE' does that. A secret in the file is not printed: the YAML has an environment variable in its place,
    which is named on stderr.
    """
    output = options.output
    entries = servers_in(file)
    if unknown := [name for name in servers if name not in {entry.name for entry in entries}]:
        known = ", ".join(entry.name for entry in entries) or "none"
        msg = f"{file} has no server {', '.join(map(repr, unknown))}; it has {known}"
        raise CommandError(msg)
    chosen = [entry for entry in entries if not servers or entry.name in servers]
    if wrong := [entry for entry in chosen if entry.error is not None]:
        raise CommandError("\n".join(str(entry.error) for entry in wrong))
    used: dict[str, str] = {}
    toolsets = [_stored_toolset(entry, entry.toolset, output, used) for entry in chosen if entry.toolset is not None]
    if output.is_json:
        output.json({"tools": toolsets})
    else:
        output.text(yaml.safe_dump({"tools": toolsets}, sort_keys=False, allow_unicode=True, width=100))
    return ExitCode.OK


def _stored_toolset(entry: Server, toolset: MCPToolset, output: Output, used: dict[str, str]) -> dict[str, Any]:
    warnings = list(entry.warnings)
    if missing := missing_variables(toolset.server_info):
        warnings.append(f"these environment variables are not set: {', '.join(missing)}")
    info, variables = _without_plain_secrets(entry.name, toolset.server_info, used)
    warnings += [
        f"`{place}` has a secret in plain text. The YAML takes it from the environment "
        f"variable {variable}: set it, and write `{text}` in the file, too."
        for place, (variable, text) in variables.items()
    ]
    for warning in warnings:
        output.note(f"Warning: {entry.place}: {warning}", style="yellow")
    stored = toolset.to_dict()
    stored["data"]["server_info"] = info.to_dict()
    return {"type": stored["type"], "data": _without_defaults(stored["data"], info)}


def _without_defaults(data: dict[str, Any], info: MCPServerInfo) -> dict[str, Any]:
    default = MCPToolset(info).to_dict()["data"]
    missing = object()
    changed = {key: value for key, value in data.items() if value != default.get(key, missing)}
    defaults = {field.name: field.default for field in dataclasses.fields(info)}  # type: ignore[arg-type]
    stored = {key: value for key, value in data["server_info"].items() if value != defaults.get(key, missing)}
    return {"server_info": stored, **changed}


def plain_secrets(info: MCPServerInfo) -> dict[tuple[str, Any], str]:
    """
    Return the values of a server info that contain a secret in plain text.

    :param info: The server info.
    :returns: The values by their places: the field, and the key or index in it.
    """
    found: dict[tuple[str, Any], str] = {}
    for field in _FIELDS_WITH_SECRETS:
        value = _unresolved(getattr(info, field, None))
        # Variables count only if their names or values indicate a secret, because the others are better kept readable.
        declared = secrets_in({"variables" if field == "env" else field: value}) - {""}
        secrets = {secret for secret in declared if "${" not in secret}
        items: Any = [(None, value)]
        if isinstance(value, Mapping | list | tuple):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            if not isinstance(item, str):
                continue
            forms = f"{item} {unquote(item)} {unquote_plus(item)}"  # in a URL, they may be encoded
            fixed = _PLACEHOLDER.sub("", item)
            if any(secret in forms for secret in secrets) or redact_text(fixed) != fixed:
                found[field, key] = item
    return found


def _unresolved(value: Any) -> Any:
    # The text around variables may contain a secret as well.
    if isinstance(value, SecretTemplate):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _unresolved(item) for key, item in value.items()}
    return [_unresolved(item) for item in value] if isinstance(value, list | tuple) else value


def shown_place(field: str, key: Any) -> str:
    """
    Write a place in a server info as text, such as `env.API_KEY` or `args[1]`.
    """
    return field if key is None else f"{field}[{key}]" if isinstance(key, int) else f"{field}.{key}"


def _without_plain_secrets(
    name: str, info: MCPServerInfo, used: dict[str, str]
) -> tuple[MCPServerInfo, dict[str, tuple[str, str]]]:
    """
    Replace values with secrets in plain text by environment variables.

    They are returned by the places of the values, each with the text that is to replace the value in the file. `used`
    has the variables of all servers so far, so that none is used for two values.
    """
    changes: dict[str, Any] = {}
    variables: dict[str, tuple[str, str]] = {}
    for (field, key), value in plain_secrets(info).items():
        env_name = str(key) if field == "env" and str(key).isascii() and str(key).isidentifier() else ""
        parts = [name, field if key is None else f"{field}_{key}" if isinstance(key, int) else str(key)]
        variable = first = env_name or variable_name(*parts)
        number = 2
        while used.get(variable, value) != value:
            variable, number = f"{first}_{number}", number + 1
        used[variable] = value
        scheme = None if env_name else _AUTH_SCHEME.fullmatch(value)
        text = f"{scheme[1] if scheme else ''}${{{variable}}}"
        variables[shown_place(field, key)], template = (variable, text), from_template(text)
        if key is None:
            changes[field] = template
            continue
        original = getattr(info, field)
        changes.setdefault(field, dict(original) if isinstance(original, Mapping) else list(original))[key] = template
    return (dataclasses.replace(info, **changes) if variables else info), variables  # type: ignore[type-var]


# This user's logins.


def token_folder() -> Path:
    """
    Return the folder of the tokens of logins, which may not exist.
    """
    return _settings_folder() / "mcp-haystack" / "tokens"


def with_login(info: MCPServerInfo) -> MCPServerInfo:
    """
    Use this user's login at a server, or OAuth if the configuration file asks for it.

    :param info: The server info.
    :returns: The server info, with an `oauth_config` in these cases.
    """
    if not isinstance(info, HttpServerInfo) or info.token:
        return info
    if any(name.lower() == "authorization" for name in info.headers or {}):
        return info
    if (login := _logins().get(shown(info.url))) is not None:
        return with_oauth(info, login)
    if info.auth == "oauth":
        return with_oauth(info, OAuthConfig(token_storage=FileTokenStorage(str(token_folder()))))
    return info


def with_oauth(info: HttpServerInfo, config: OAuthConfig) -> HttpServerInfo:
    """
    Return a server info that uses OAuth. A login opens the browser, and prints the address of its page.

    :param info: The server info.
    :param config: The OAuth configuration.
    :returns: The server info with the configuration.
    """
    config = dataclasses.replace(config, redirect_handler=_show_page)
    changed: Any = dataclasses.replace(info, auth=None, oauth_config=config)
    return changed  # type: ignore[no-any-return]


async def _show_page(request: MCPLoginRequest) -> None:
    from haystack_integrations.tools.mcp.auth.authorization_code import open_in_browser  # noqa: PLC0415 - the SDK

    # The browser's program may report success although no page opens, as with a forwarded display.
    is_opened = can_open_browser() and await open_in_browser(request.url)
    what = "A page opens in the browser. If it does not, open this one" if is_opened else "Open this page in a browser"
    sys.stderr.write(
        f"{what} on this machine:\n\n{request.url}\n\nWith a browser on another machine, forward "
        f"the port of {request.redirect_uri} to this one before (`ssh -L`).\n"
    )
    sys.stderr.flush()


def remember_login(info: HttpServerInfo, config: OAuthConfig | None) -> None:
    """
    Record a login at a server, or remove its record.

    :param info: The server info.
    :param config: The OAuth configuration of the login; None after a logout.
    """
    known, file = _logins(), _record_of_logins()
    logins = {url: login for url, login in known.items() if url != shown(info.url)}
    if config is not None:
        logins[shown(info.url)] = config
    if logins == known:
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The record is replaced as a whole, so that the other logins are not lost on a full disk.
    written = file.with_name(f".{file.name}.{os.getpid()}")
    written.touch(mode=0o600)  # a URL may have a key in it
    record = {url: login.to_dict() for url, login in logins.items()}
    written.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    written.replace(file)


def _record_of_logins() -> Path:
    return _settings_folder() / "mcp-haystack" / "logins.json"


def _logins() -> dict[str, OAuthConfig]:
    file = _record_of_logins()
    if not os.path.exists(file):  # does not fail in an unreadable home, as in `config_files`
        return {}
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return {url: OAuthConfig.from_dict(login) for url, login in stored.items()}
    except (ValueError, TypeError, AttributeError) as error:  # for example, another version of the package wrote it
        msg = f"{file} cannot be read ({type(error).__name__}). Delete it, and log in again."
        raise CommandError(msg) from None
