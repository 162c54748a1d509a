# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.config.variables import Variables, missing_variables
from haystack_integrations.tools.mcp.convert.tool_names import prefix_of
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import combine_options
from haystack_integrations.tools.mcp.secret_template import read_env_file
from haystack_integrations.tools.mcp.transports.shorthand import (
    ENTRY_MARKS,
    foreign_keys,
    server_info_of,
    settings_of,
)

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Under which keys clients keep their servers: most under the first, VS Code under the second, and under the third in
# its settings, Zed under the last.
_SECTIONS = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",))

_NAMES = ("mcpServers", "servers", "context_servers")

# Which of their tools go by one alias: for MCPRegistry.
TOOL_CONFIGS = "toolConfigs"

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def load_mcp_toolsets(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    servers: Sequence[str] | None = None,
    prefix_tool_names: bool = True,
    required: bool = True,
    inputs: Mapping[str, str | Secret] | None = None,
    **parameters: Any,
) -> list[MCPToolset]:
    """
    Make a toolset for each server in a configuration file of Claude Desktop, Cursor, VS Code or another MCP client.

    Nothing is started or connected yet. The list goes wherever Haystack takes tools; `warm_up_toolsets` connects to all
    servers concurrently.

    ```python
    from haystack_integrations.tools.mcp import load_mcp_toolsets, warm_up_toolsets

    toolsets = load_mcp_toolsets("mcp.json", required=False)
    warm_up_toolsets(toolsets)
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=toolsets)
    ```

    Environment variables (`${NAME}`, `${NAME:-default}`, `${env:NAME}` and what other clients have) are kept as
    Secrets: they are resolved when a server is connected to, and stored by their names. So are those of an `envFile`.

    :param config: Path of the JSON file, or its content. Comments and trailing commas are allowed, as in VS Code. The
        servers are under `mcpServers`, or under `servers` as in VS Code, or `context_servers` as in Zed.
    :param servers: Names of the servers to load. Default: all that are not disabled.
    :param prefix_tool_names: Whether the name of each server is the prefix of its tools' names. An entry's
        `tool_name_prefix` takes precedence.
    :param required: Whether a server that cannot be reached is an error; see MCPToolset. An entry's `required` takes
        precedence.
    :param inputs: What to put in place of `${input:ID}`, by the ids, for files of VS Code.
    :param parameters: Further parameters of every MCPToolset, such as `connection_timeout`. Those in an entry take
        precedence.
    :returns: The toolsets, in the order of the file, without disabled servers.
    :raises FileNotFoundError: If there is no such file.
    :raises ValueError: If the file or an entry cannot be used: no JSON, a key that looks like a typo, a wrong
        type, an environment variable that is not set and has no default. The message names the place and the valid
        choices.
    """
    content, file, where = read_config(config)
    toolsets = named_toolsets(
        content,
        file,
        where,
        servers=servers,
        prefix_tool_names=prefix_tool_names,
        required=required,
        inputs=inputs,
        **parameters,
    )
    return [*toolsets.values()]


def read_config(config: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Any, Path | None, str]:
    """
    Read a configuration.

    :param config: Path of the file, or its content.
    :returns: The content, the file if it is one, and how messages call it.
    :raises FileNotFoundError: If there is no such file.
    :raises ValueError: If it is not JSON.
    """
    is_text = isinstance(config, str) and config.lstrip().startswith("{")
    if is_text or not isinstance(config, (str, os.PathLike, Mapping)):
        msg = "`config` must be the path of a file, or its content as a dictionary (see json.loads)"
        raise ValueError(msg)
    file = None if isinstance(config, Mapping) else Path(config)
    where = "the configuration" if file is None else str(file)
    return config if isinstance(config, Mapping) else _read(Path(config), where), file, where


def named_toolsets(
    content: Any,
    file: Path | None,
    where: str,
    *,
    servers: Sequence[str] | None = None,
    prefix_tool_names: bool = True,
    required: bool = True,
    inputs: Mapping[str, str | Secret] | None = None,
    **parameters: Any,
) -> dict[str, MCPToolset]:
    """
    Make the toolsets of a configuration.

    :param content: The content.
    :param file: The file, if it is one.
    :param where: How messages call it.
    :param servers: As of `load_mcp_toolsets`, like the other parameters.
    :param prefix_tool_names: Likewise.
    :param required: Likewise.
    :param inputs: Likewise.
    :param parameters: Likewise.
    :returns: The toolsets by the names of their servers.
    :raises ValueError: If it cannot be used.
    """
    entries, asked, passed_over = config_entries(content, where)
    if passed_over:
        logger.warning("{where}: passed over {keys}", where=where, keys=", ".join(passed_over))
    variables = Variables(file, asked, inputs or {}, where)
    if servers is not None:
        entries = _chosen(entries, servers, where)
    options = {"required": required, **parameters}
    loader = EntryLoader(variables, file, where, prefix_tool_names=prefix_tool_names, parameters=options)
    made = {name: loader.toolset(name, entry) for name, entry in entries.items()}
    return {name: toolset for name, toolset in made.items() if toolset is not None}


class EntryLoader:
    """
    Makes the toolsets of the entries of one configuration.
    """

    def __init__(
        self,
        variables: Variables,
        file: Path | None,
        where: str,
        *,
        prefix_tool_names: bool = True,
        parameters: Mapping[str, Any] | None = None,
        is_checked: bool = True,
    ) -> None:
        """
        Initialize the EntryLoader.

        :param variables: What the entries may name in `${…}`.
        :param file: The file, if it is one. Paths in it are relative to its folder.
        :param where: How messages call the configuration.
        :param prefix_tool_names: As of `load_mcp_toolsets`.
        :param parameters: Parameters of every toolset, unless its entry has them.
        :param is_checked: Whether something is said of variables that are not set, and of keys that mean nothing here.
        """
        self._variables = variables
        self._file = file
        self._where = where
        self._prefix_tool_names = prefix_tool_names
        self._parameters = dict(parameters or {})
        self._is_checked = is_checked
        self._prefixes: set[str] = set()

    def toolset(self, name: str, entry: Any) -> MCPToolset | None:
        """
        Make the toolset of an entry.

        :param name: The name of the server.
        :param entry: The entry.
        :returns: The toolset; None if the server is disabled.
        :raises ValueError: If the entry cannot be used.
        """
        place = f"{self._where}: server '{name}'"
        settings = settings_of(entry, place)
        if settings.disabled:
            logger.info("{place} is disabled", place=place)
            return None
        if self._is_checked and (ignored := foreign_keys(entry)):
            logger.warning("{place}: passed over {keys}", place=place, keys=", ".join(ignored))
        expanded = self._with_env_file(self._variables.expand(entry, place), place)
        server_info = server_info_of(expanded, place)
        own = dict(settings.parameters)
        if self._file is not None and isinstance(snapshot := own.get("snapshot"), str):
            own["snapshot"] = self._file.parent / snapshot
        prefix = {"tool_name_prefix": prefix_of(name, self._prefixes)} if self._prefix_tool_names else {}
        options = combine_options("MCPToolset", self._parameters, prefix, own)
        self._prefixes.add(str(options.get("tool_name_prefix")))
        if self._is_checked and (missing := missing_variables(server_info)):
            msg = f"{place}: these environment variables are not set: {', '.join(missing)}"
            if options.get("required", True):
                msg += "; set them, write `${NAME:-default}`, or disable the server"
                raise ValueError(msg)
            logger.warning("{reason}", reason=msg)
        if settings.only_tools is not None:
            options["tool_names"] = [tool for tool in settings.only_tools if tool not in settings.not_tools]
        elif settings.not_tools:
            options = combine_options("MCPToolset", options, {"exclude_tools": settings.not_tools})
        try:
            return MCPToolset(server_info, **options)
        except (FileNotFoundError, ValueError) as error:
            msg = f"{place}: {error}"
            raise ValueError(msg) from None

    def _with_env_file(self, entry: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """
        Add the variables of the `envFile` to an entry, by their names and the file.
        """
        named = entry.get("envFile")
        if not isinstance(named, str) or not named:
            return entry
        file = self._variables.folder / Path(named).expanduser()
        if not file.is_file() and self._file is not None:
            file = self._file.resolve().parent / named
        try:
            names = read_env_file(file)
        except OSError as error:
            if self._is_checked:
                reason = error.strerror or type(error).__name__
                logger.warning("{place}: `envFile` cannot be read: {reason}", place=place, reason=reason)
            return entry
        given = entry.get("env")
        added = {name: f"${{envFile:{file}:{name}}}" for name in names}
        return {**entry, "env": {**added, **given} if isinstance(given, Mapping) else given or added}


def _read(file: Path, where: str) -> Any:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        msg = f"There is no file {where} (in {Path.cwd()})"
        raise FileNotFoundError(msg) from None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{where} cannot be read: {error}"
        raise ValueError(msg) from error
    # In place of a comment white space of the same length, so that an error names the right place.
    text = _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    text = _TRAILING_COMMA.sub(lambda match: match[1] or " ", text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        msg = f"{where} is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        raise ValueError(msg) from None


class ConfigEntries(NamedTuple):
    """
    What is in a configuration.

    :param servers: The entries of the servers, by name.
    :param inputs: What VS Code asks its user for.
    :param passed_over: The keys that mean nothing here.
    """

    servers: dict[str, Any]
    inputs: Any
    passed_over: list[str]


def config_entries(content: Any, where: str) -> ConfigEntries:
    """
    Find the entries of the servers in a configuration.

    :param content: The content.
    :param where: How messages call it.
    :returns: The entries, which are not checked yet.
    :raises ValueError: If it has no place for servers.
    """
    if not isinstance(content, Mapping):
        msg = (
            f"{where} must be an object with `mcpServers` (or `servers`, as in VS Code), not a {type(content).__name__}"
        )
        raise ValueError(msg)
    for section in _SECTIONS:
        holder: Any = content
        found: Any = content
        for key in section:
            holder, found = found, found.get(key) if isinstance(found, Mapping) else None
        if found is None:
            continue
        place = f"{where}: `{'.'.join(section)}`"
        if not isinstance(found, Mapping):
            msg = f"{place} must be an object with an entry for each server"
            raise ValueError(msg)
        others = [key for key in content if key not in (section[0], "inputs", "$schema", TOOL_CONFIGS)]
        entries = {str(name): entry for name, entry in found.items()}
        return ConfigEntries(entries, holder.get("inputs") or content.get("inputs") or [], [str(key) for key in others])
    # The files of Claude Code's plugins have the servers at the top.
    if content and all(isinstance(entry, Mapping) and ENTRY_MARKS & set(entry) for entry in content.values()):
        return ConfigEntries(dict(content), [], [])
    closest = [close for key in content for close in difflib.get_close_matches(str(key), _NAMES, 1)]
    hint = f" Did you mean `{closest[0]}`?" if closest else ""
    wanted = " or ".join(f"`{name}`" for name in _NAMES)
    msg = f"{where} has no {wanted}, but {', '.join(map(str, content)) or 'nothing'}.{hint}"
    raise ValueError(msg)


def _chosen(entries: dict[str, Any], names: Sequence[str], where: str) -> dict[str, Any]:
    if isinstance(names, str):
        msg = f"`servers` must be a list of names, got {names!r}"
        raise ValueError(msg)
    if unknown := [name for name in names if name not in entries]:
        msg = f"{where} has no server {', '.join(map(repr, unknown))}; it has {', '.join(entries) or 'none'}"
        raise ValueError(msg)
    return {name: entry for name, entry in entries.items() if name in names}
