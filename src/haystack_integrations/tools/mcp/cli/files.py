# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers in files: configuration files of MCP clients, and stored pipelines and toolsets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from haystack.utils import Secret

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.logins import settings_folder
from haystack_integrations.tools.mcp.config.loader import EntryLoader, config_entries, read_config
from haystack_integrations.tools.mcp.config.variables import Variables, missing_variables
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.transports.shorthand import foreign_keys

YAML_SUFFIXES = (".yaml", ".yml")
CONFIG_SUFFIXES = (".json", ".jsonc", *YAML_SUFFIXES)

# Of the clients that keep a file in the project.
_IN_A_PROJECT = ("mcp.json", ".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json")

# Parts of a stored pipeline that are no name of anything.
_NO_NAMES = frozenset({"components", "init_parameters", "data", "server_info", "server_infos", "tools"})


@dataclass(frozen=True)
class Server:
    """
    A server that a target means. One of a file may be unusable by itself.

    :param name: Its name in the file, or the target, without secrets.
    :param info: How to reach it; None if it is disabled or cannot be used.
    :param toolset: Its toolset, of a configuration file.
    :param place: Where it stands, for messages.
    :param warnings: What may be wrong with it.
    :param missing: The environment variables that it needs and that are not set.
    :param error: Why it cannot be used, if it cannot.
    """

    name: str
    info: MCPServerInfo | None = None
    toolset: MCPToolset | None = None
    place: str = ""
    warnings: Sequence[str] = ()
    missing: Sequence[str] = ()
    error: str | None = None

    @property
    def is_disabled(self) -> bool:
        """
        Whether its file says that it is not to be used.
        """
        return self.info is None and self.error is None

    def usable(self) -> MCPServerInfo:
        """
        Return how to reach it.

        :returns: The server info.
        :raises CommandError: If it cannot be used.
        """
        if self.info is not None and not self.missing:
            return self.info
        unset = f"these environment variables are not set: {', '.join(self.missing)}" if self.missing else None
        raise CommandError(self.error or unset or f"{self.place} is disabled. Enable it there to use it.")


def config_files() -> list[Path]:
    """
    Find the configuration files in which a name is looked up.

    :returns: Those of the working directory, then those of the user's editors and assistants.
    """
    home, settings = Path.home(), settings_folder()
    candidates = [
        *(Path(name) for name in _IN_A_PROJECT),
        settings / "Claude" / "claude_desktop_config.json",
        home / ".claude.json",
        home / ".cursor" / "mcp.json",
        settings / "Code" / "User" / "mcp.json",
        home / ".codeium" / "windsurf" / "mcp_config.json",
        home / ".gemini" / "settings.json",
    ]
    return [file for file in candidates if file.is_file()]


def servers_in(file: Path) -> list[Server]:
    """
    Read the servers of a file, each apart from the others.

    :param file: A configuration file, or the YAML of a pipeline.
    :returns: What became of each.
    :raises CommandError: If the file cannot be read.
    """
    if file.suffix in YAML_SUFFIXES:
        return [Server(name, info) for name, info in _stored_servers(file).items()]
    return configured_in(file)


def configured_in(file: Path) -> list[Server]:
    """
    Read the entries of a configuration file, each apart from the others.

    :param file: The file: JSON, or the YAML of another program.
    :returns: What became of each.
    :raises CommandError: If the file cannot be read.
    """
    try:
        content, path, where = read_config(file)
        found = config_entries(content, where)
        variables = Variables(path, found.inputs, _inputs_from_environment(found.inputs), where)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    loader = EntryLoader(variables, path, where, is_checked=False)
    entries = []
    for name, entry in found.servers.items():
        place = f"{where}: server '{name}'"
        try:
            toolset = loader.toolset(name, entry)
        except ValueError as error:
            entries.append(Server(name, place=place, error=str(error)))
            continue
        ignored = foreign_keys(entry)
        warnings = [f"passed over {', '.join(ignored)}"] if ignored else []
        info = toolset.server_info if toolset is not None else None
        missing = missing_variables(info) if info is not None else []
        entries.append(Server(name, info, toolset, place, warnings, missing))
    return entries


def names_in(file: Path) -> list[str]:
    """
    Return the names of the servers in a file, whether or not they can be used.

    :param file: The file.
    :returns: The names; none if the file cannot be read.
    """
    try:
        return [entry.name for entry in servers_in(file)]
    except CommandError:
        return []  # whoever needs the file is told why


def _inputs_from_environment(asked: Any) -> dict[str, str | Secret]:
    # What VS Code would ask its user for comes from the environment variable of that name: that of `api-key` is
    # `API_KEY`.
    found: dict[str, str | Secret] = {}
    for one in asked if isinstance(asked, list) else ():
        if isinstance(one, Mapping) and one.get("id"):
            name = variable_name(str(one["id"]))
            if not isinstance(one.get("default"), str) or name in os.environ:
                found[str(one["id"])] = Secret.from_env_var(name)
    return found


def variable_name(text: str) -> str:
    """
    Make a name of an environment variable.

    :param text: Any text.
    :returns: The text in capitals, with underscores.
    """
    return re.sub(r"\W", "_", text).upper().strip("_") or "SERVER"


def read_yaml(file: Path) -> Any:
    """
    Read a YAML file.

    :param file: The file.
    :returns: Its content.
    :raises CommandError: If it cannot be read. The message says where, and quotes nothing: there may be a secret.
    """
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        msg = f"{file} cannot be read: it is not in UTF-8"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f": line {mark.line + 1}, column {mark.column + 1}, or what is before it" if mark is not None else ""
        msg = f"{file} is not valid YAML{place}"
    raise CommandError(msg)


def _stored_servers(file: Path) -> dict[str, MCPServerInfo]:
    servers: dict[str, MCPServerInfo] = {}
    for path, data in _stored(read_yaml(file), ()):
        try:
            info = MCPServerInfo.from_dict(dict(data))
        except Exception as error:  # of a class from anywhere
            msg = f"{file}: {'.'.join(path)}: {error}"
            raise CommandError(msg) from error
        name = ".".join(part for part in path if part not in _NO_NAMES and not part.isdigit()) or "server"
        same = sum(1 for other in servers if re.fullmatch(rf"{re.escape(name)}(-\d+)?", other))
        servers[f"{name}-{same + 1}" if same else name] = info
    return servers


def _stored(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(value, Mapping) and str(value.get("type")).endswith("ServerInfo"):
        yield path, value
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _stored(item, (*path, str(key)))
