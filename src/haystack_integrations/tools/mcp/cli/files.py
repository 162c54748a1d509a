# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers in files: configuration files of MCP clients, and stored pipelines and toolsets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from haystack.utils import Secret

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.logins import settings_folder
from haystack_integrations.tools.mcp.config.loader import EntryLoader, config_entries, named_toolsets, read_config
from haystack_integrations.tools.mcp.config.variables import Variables, missing_variables
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.transports.entries import foreign_keys

YAML_SUFFIXES = (".yaml", ".yml")
CONFIG_SUFFIXES = (".json", ".jsonc", *YAML_SUFFIXES)

# Of the clients that keep a file in the project.
_IN_A_PROJECT = ("mcp.json", ".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json")

# Parts of a stored pipeline that are no name of anything.
_NO_NAMES = frozenset({"components", "init_parameters", "data", "server_info", "server_infos", "tools"})


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


def toolsets_in(file: Path, *, only: str | None = None) -> dict[str, MCPToolset]:
    """
    Make the toolsets of a configuration file.

    :param file: The file.
    :param only: The name of the one to make. Default: all.
    :returns: The toolsets by name, without those that are disabled.
    :raises ValueError: If the file or an entry cannot be used.
    """
    content, path, where = read_config(file)
    found = config_entries(content, where)
    chosen = {name: entry for name, entry in found.servers.items() if only in (None, name)}
    # Nothing but the servers, so that nothing is said of the rest.
    inputs = inputs_from_environment(found.inputs)
    return named_toolsets({"mcpServers": chosen, "inputs": found.inputs}, path, where, inputs=inputs)


@dataclass(frozen=True)
class CheckedEntry:
    """
    What became of an entry of a configuration file.

    :param name: Its name.
    :param place: Where it stands, for messages.
    :param toolset: What was made of it; None if it is disabled or cannot be used.
    :param warnings: What may be wrong with it.
    :param missing: The environment variables that it needs and that are not set.
    :param error: Why it cannot be used, if it cannot.
    """

    name: str
    place: str
    toolset: MCPToolset | None
    warnings: list[str]
    missing: list[str]
    error: str | None = None


def checked_entries(file: Path) -> list[CheckedEntry]:
    """
    Check each entry of a configuration file apart from the others.

    :param file: The file.
    :returns: What became of each.
    :raises CommandError: If the file cannot be read.
    """
    try:
        content, path, where = read_config(file)
        found = config_entries(content, where)
        variables = Variables(path, found.inputs, inputs_from_environment(found.inputs), where)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    loader = EntryLoader(variables, path, where, is_checked=False)
    checked = []
    for name, entry in found.servers.items():
        toolset, reason = None, None
        try:
            toolset = loader.toolset(name, entry)
        except ValueError as error:
            reason = str(error)
        missing = missing_variables(toolset.server_info) if toolset is not None else []
        ignored = foreign_keys(entry) if reason is None else []
        warnings = [f"passed over {', '.join(ignored)}"] if ignored else []
        checked.append(CheckedEntry(name, f"{where}: server '{name}'", toolset, warnings, missing, reason))
    return checked


def inputs_from_environment(asked: Any) -> dict[str, str | Secret]:
    """
    Choose where the inputs of a VS Code file come from, which its user would be asked for.

    :param asked: The `inputs` of the file.
    :returns: Those without a default, each by the environment variable of its name: that of `api-key` is `API_KEY`.
    """
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


def servers_in(file: Path, *, only: str | None = None) -> dict[str, MCPServerInfo]:
    """
    Find the servers in a file.

    :param file: A configuration file, or the YAML of a pipeline.
    :param only: The name of the one to make. Default: all.
    :returns: The server infos by name.
    :raises CommandError: If it cannot be read.
    :raises ValueError: If an entry cannot be used.
    """
    if file.suffix in YAML_SUFFIXES:
        stored = stored_servers(file)
        return {name: info for name, info in stored.items() if only in (None, name)}
    toolsets = toolsets_in(file, only=only)
    if only is not None and not toolsets and only in names_in(file):
        msg = f"The server '{only}' is disabled in {file}. Enable it there to use it."
        raise CommandError(msg)
    return {name: toolset.server_info for name, toolset in toolsets.items()}


def names_in(file: Path) -> list[str]:
    """
    Give the names of the servers in a file, whether or not they can be used.

    :param file: The file.
    :returns: The names; none of a configuration file that cannot be read.
    """
    if file.suffix in YAML_SUFFIXES:
        return list(stored_servers(file))
    try:
        content, _, where = read_config(file)
        return list(config_entries(content, where).servers)
    except (ValueError, OSError):
        return []  # whoever needs the file is told why


def read_yaml(file: Path) -> Any:
    """
    Read a YAML file.

    :param file: The file.
    :returns: Its content.
    :raises CommandError: If it cannot be read. The message says where, and quotes nothing: there may be a secret.
    """
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        msg = f"{file} cannot be read: it is not in UTF-8"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f": line {mark.line + 1}, column {mark.column + 1}, or what is before it" if mark is not None else ""
        msg = f"{file} is not valid YAML{place}"
    raise CommandError(msg)


def stored_servers(file: Path) -> dict[str, MCPServerInfo]:
    """
    Find the server infos in YAML, e.g. of a pipeline.

    :param file: The file.
    :returns: The server infos, by the names of the components they are in.
    :raises CommandError: If it cannot be read.
    """
    content = read_yaml(file)
    servers: dict[str, MCPServerInfo] = {}
    for path, data in _stored(content, ()):
        try:
            info = MCPServerInfo.from_dict(dict(data))
        except Exception as error:  # of a class from anywhere
            msg = f"{file}: {'.'.join(path)}: {error}"
            raise CommandError(msg) from error
        name = ".".join(part for part in path if part not in _NO_NAMES and not part.isdigit()) or "server"
        unique, number = name, 2
        while unique in servers:
            unique, number = f"{name}-{number}", number + 1
        servers[unique] = info
    return servers


def _stored(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _stored(item, (*path, str(number)))
    if not isinstance(value, Mapping):
        return
    if str(value.get("type")).endswith("ServerInfo"):
        yield path, value
        return
    for key, item in value.items():
        yield from _stored(item, (*path, str(key)))
