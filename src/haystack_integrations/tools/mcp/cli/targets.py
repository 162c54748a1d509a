# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a target on the command line means.

.. code-block:: text

    https://host/mcp, ${URL}          a URL
    server.py, server.js              a script
    server.py:name                    an object in a Python file
    package.module:name               an object in a module
    "uvx mcp-server-time"             a command with its arguments
    mcp.json, pipeline.yaml           the server in a configuration file or in a stored pipeline, if it has only one
    mcp.json:name                     the server of that name in it
    name                              the same, in the file of `--config` or in one that an editor has; else a command
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.files import (
    CONFIG_SUFFIXES,
    YAML_SUFFIXES,
    checked_entries,
    config_files,
    names_in,
    servers_in,
)
from haystack_integrations.tools.mcp.cli.options import Reach
from haystack_integrations.tools.mcp.import_paths import is_import_path
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_args, redact_url
from haystack_integrations.tools.mcp.transports.in_process.server_info import InProcessServerInfo
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from

_CHOICES = (
    "A target is a URL (https://host/mcp), a command in quotes ('uvx mcp-server-time'), a script (server.py), an "
    "import path (package.module:server), a configuration file (mcp.json), or the name of a server in one "
    "(mcp.json:name, or name)."
)

_SCRIPTS = (".py", ".js", ".mjs", ".cjs")


# Commands that start a server only with arguments, and an example of these.
LAUNCHERS = {
    **dict.fromkeys(("python", "python3"), "server.py"),
    **dict.fromkeys(("node", "bun", "deno"), "server.js"),
    **dict.fromkeys(("uvx", "pipx"), "mcp-server-time"),
    "npx": "@modelcontextprotocol/server-everything",
    "uv": "run server.py",
    "docker": "run -i --rm mcp/time",
}


@dataclass(frozen=True)
class Server:
    """
    A server that a target means.

    :param name: Its name in the file, or the target, without secrets.
    :param info: How to reach it.
    """

    name: str
    info: MCPServerInfo


def server_of(target: str, reach: Reach) -> Server:
    """
    Find the one server that a target means.

    :param target: The target.
    :param reach: The options that say more.
    :returns: The server.
    :raises CommandError: If it means none, or several.
    """
    servers = servers_of(target, reach)
    if len(servers) != 1:
        names = ", ".join(server.name for server in servers)
        msg = f"{target} has {len(servers)} servers: {names}." if servers else f"{target} has no servers."
        if servers:
            msg += f" Say which one, e.g. {target}:{servers[0].name}"
        elif Path(target).suffix in (".yaml", ".yml"):
            msg += f" To use it as a server itself, write 'mcp-haystack serve {target}', in quotes"
        raise CommandError(msg)
    return servers[0]


@dataclass(frozen=True)
class Entry:
    """
    One of several servers, each of which may be unusable by itself.

    :param name: Its name.
    :param info: How to reach it; None if that cannot be said.
    :param reason: Why not.
    """

    name: str
    info: MCPServerInfo | None
    reason: str = ""


def several_of(target: str | None, reach: Reach) -> list[Entry] | None:
    """
    Find the servers of a configuration file, or of all files in which a name is looked up.

    :param target: The file. None for that of `--config`, for those of the working directory, or else of the editors.
    :param reach: The options that say more.
    :returns: The servers, without those that are disabled; None if the target is no configuration file with several.
    :raises CommandError: If there is no file, or it cannot be read.
    """
    if target is None:
        files = [reach.config] if reach.config is not None else config_files()
        files = [file for file in files if not file.is_absolute()] or files
        if not files:
            msg = f"There is no target, and no configuration file in {os.getcwd()} nor of an editor. {_CHOICES}"
            raise CommandError(msg)
    else:
        files = [Path(target)]
        if not files[0].is_file() or files[0].suffix not in CONFIG_SUFFIXES:
            return None
    entries: dict[str, Entry] = {}
    for file in files:
        for entry in _entries_of(file):
            entries.setdefault(entry.name, _reached(entry, reach))
    return [*entries.values()] if target is None or len(entries) > 1 else None


def _reached(entry: Entry, reach: Reach) -> Entry:
    try:
        return entry if entry.info is None else Entry(entry.name, reach.apply(entry.info))
    except CommandError as error:  # an option that is not for servers of this kind
        return Entry(entry.name, None, str(error))


def _entries_of(file: Path) -> Iterator[Entry]:
    if file.suffix in YAML_SUFFIXES:
        yield from (Entry(name, info) for name, info in servers_in(file).items())
        return
    for entry in checked_entries(file):
        if entry.error is not None:
            yield Entry(entry.name, None, entry.error)
        elif entry.missing:
            yield Entry(entry.name, None, f"these environment variables are not set: {', '.join(entry.missing)}")
        elif entry.toolset is not None:
            yield Entry(entry.name, entry.toolset.server_info)


def servers_of(target: str, reach: Reach, *, uses_logins: bool = True) -> list[Server]:
    """
    Find the servers that a target means: several for a file that has several.

    :param target: The target.
    :param reach: The options that say more.
    :param uses_logins: Whether to use the options and the logins of this user.
    :returns: The servers.
    :raises CommandError: If it cannot be understood.
    """
    try:
        found = _found(target, reach)
        return [Server(server.name, reach.apply(server.info)) for server in found] if uses_logins else found
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _found(target: str, reach: Reach) -> list[Server]:
    if not target.strip():
        msg = f"The target is empty. {_CHOICES}"
        raise CommandError(msg)
    words = _words(target)
    if len(words) > 1 and not Path(target).is_file():
        return [Server(" ".join(redact_args(words)), server_info_from(words))]
    if "://" in target or target.startswith("${"):
        return [Server(redact_url(target), server_info_from(target))]
    file, colon, name = target.rpartition(":")
    if colon and Path(file).is_file():
        if Path(file).suffix in CONFIG_SUFFIXES:
            return [_named(Path(file), name)]
        return [Server(target, InProcessServerInfo(object_in_file(Path(file), name)))]
    path = Path(target)
    if path.is_file() and path.suffix in CONFIG_SUFFIXES:
        return [Server(*each) for each in servers_in(path).items()]
    if path.is_file() and path.suffix in _SCRIPTS:
        return [Server(target, server_info_from(target))]
    if is_import_path(target):
        modules_are_found_here()
        return [Server(target, InProcessServerInfo(target))]
    return [_by_name(target, reach)]


def _words(target: str) -> list[str]:
    try:
        return shlex.split(target)
    except ValueError as error:
        msg = f"The command has a quotation mark too few or too many ({error})"
        raise CommandError(msg) from None


def _by_name(name: str, reach: Reach) -> Server:
    if reach.config is not None:
        return _named(reach.config, name)
    known: list[str] = []
    for file in config_files():
        names = names_in(file)
        if name in names:
            return _named(file, name)
        known += names
    if name in LAUNCHERS:
        msg = f"'{name}' alone starts no server. Put the whole command in quotes, e.g. '{name} {LAUNCHERS[name]}'."
        raise CommandError(msg)
    if shutil.which(name):
        return Server(name, server_info_from([name]))
    if Path(name).suffix in (*CONFIG_SUFFIXES, *_SCRIPTS):
        msg = f"There is no file {name} in {os.getcwd()}."
        raise CommandError(msg)
    msg = (
        f"'{name}' is neither a file, nor a command on the PATH, nor the name of a server in a "
        f"configuration file.{_meant(name, known)} {_CHOICES}"
    )
    raise CommandError(msg)


def _named(file: Path, name: str) -> Server:
    servers = servers_in(file, only=name)
    if name not in servers:
        others = names_in(file)
        msg = f"{file} has no server '{name}'; it has {', '.join(others) or 'none'}.{_meant(name, others)}"
        raise CommandError(msg)
    return Server(name, servers[name])


def _meant(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f" Did you mean '{close[0]}'?" if close else ""


def modules_are_found_here() -> None:
    """
    Let modules of the working directory be imported, as `python -m` does.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def object_in_file(file: Path, name: str) -> Any:
    """
    Run a Python file and give an object of it.

    :param file: The file.
    :param name: The name of the object.
    :returns: The object.
    :raises CommandError: If the file cannot be run, or has no such object.
    """
    found: Any = module_of(file)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        msg = f"{file} has no object '{name}'"
        raise CommandError(msg)
    return found


def module_of(file: Path) -> ModuleType:
    """
    Run a Python file.

    :param file: The file.
    :returns: What it defines.
    :raises CommandError: If it cannot be run.
    """
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_name = file.stem if file.stem.isidentifier() else "mcp_haystack_target"
    specification = importlib.util.spec_from_file_location(module_name, file)
    if specification is None or specification.loader is None:
        msg = f"{file} is no Python file. {_CHOICES}"
        raise CommandError(msg)
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module  # where pickle and dataclasses look
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        msg = f"{file} cannot be run: {type(error).__name__}: {error}"
        raise CommandError(msg) from error
    return module
