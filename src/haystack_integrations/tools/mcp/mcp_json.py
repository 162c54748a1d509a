# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Toolsets of the servers in configuration files of other MCP clients: finds the entries and expands `${…}` in them.

.. code-block:: text

    ${NAME}, ${NAME:-default}, ${env:NAME}          kept, and turned into Secrets later
    {env:NAME}                                      the same as ${NAME}, in files of OpenCode
    $NAME, Bearer $NAME                             likewise, as a whole value, if there is such a variable
    ${workspaceFolder}, ${workspaceFolderBasename}  the folder of the file, or the one that contains `.vscode` etc.
    ${CLAUDE_PLUGIN_ROOT}                           the same, in files of plugins of Claude Code
    ${userHome}, ${pathSeparator}, ${/}             the values of this machine
    ${input:ID}                                     a value that VS Code prompts for: from `inputs`, or its default
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig
from haystack_integrations.tools.mcp.convert.tool_names import prefix_of
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import Options
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.secret_template import SecretTemplate, read_env_file
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo
from haystack_integrations.tools.mcp.transports.shorthand import ENTRY_MARKS, foreign_keys, server_info_of, settings_of

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The keys under which clients keep their servers: the first is used by most, the second by VS Code, the third by its
# settings, the fourth by OpenCode and Crush, and the last two by Zed and Amp.
_SECTIONS = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp",), ("context_servers",), ("amp.mcpServers",))

_SECTION_NAMES = ("mcpServers", "servers", "context_servers")

# An entry of OpenCode may consist only of a switch for a server in another of its files.
_OPENCODE_ENTRY_KEYS = ENTRY_MARKS | {"enabled", "disabled", "type"}

# The section with the aliases, for MCPRegistry.
TOOL_CONFIGS = "toolConfigs"

# Groups of options that are merged field by field from the parameters of `load_mcp_toolsets` and an entry.
_OPTION_GROUPS = ("tool_options", "tool_selection", "call_options")

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')

_PLACEHOLDER = re.compile(
    r"\$\{(?:input:(?P<input>[^{}]+)"
    r"|(?P<name>workspaceFolder|workspaceRoot|workspaceFolderBasename|CLAUDE_PLUGIN_ROOT|userHome|cwd|pathSeparator|/))\}"
)
_OPENCODE_VARIABLE = re.compile(r"(?<!\$)\{env:(?P<name>\w+)\}")
_DOLLAR_VARIABLE = re.compile(r"(?P<scheme>(?:(?i:bearer|basic|token) )?)\$(?P<name>[A-Z][A-Z0-9_]*)")

# Folders inside a workspace in which clients keep their files.
_CLIENT_FOLDERS = frozenset(
    {".vscode", ".cursor", ".roo", ".kiro", ".gemini", ".windsurf", ".amazonq", ".continue", ".warp", ".zed"}
    | {".claude-plugin", "settings", "mcpServers"}
)


def load_mcp_toolsets(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    servers: Sequence[str] | None = None,
    prefix_tool_names: bool = True,
    required: bool = True,
    inputs: Mapping[str, str | Secret] | None = None,
    oauth_config: OAuthConfig | None = None,
    **parameters: Any,
) -> list[MCPToolset]:
    """
    Return a toolset for each server in a configuration file of Claude Desktop, Cursor, VS Code or another MCP client.

    Nothing is started or connected yet. Pass the list wherever Haystack accepts tools; `warm_up_toolsets` connects to
    all servers concurrently.

    ```python
    from haystack_integrations.tools.mcp import load_mcp_toolsets, warm_up_toolsets

    toolsets = load_mcp_toolsets("mcp.json", required=False)
    warm_up_toolsets(toolsets)
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=toolsets)
    ```

    Environment variables (`${NAME}`, `${NAME:-default}`, `${env:NAME}` and other clients' notations), including those
    of an `envFile`, become Secrets: they are resolved when connecting to a server, and stored by name.

    :param config: Path of the JSON file, in which `~` is the home directory, or its content. Comments and trailing
        commas are allowed, as in VS Code. The servers are under `mcpServers`, or under `servers` as in VS Code, `mcp`
        as in OpenCode, or `context_servers` as in Zed.
    :param servers: Names of the servers to load. Default: all that are not disabled.
    :param prefix_tool_names: Whether to prefix the names of tools with the name of their server. An entry's
        `tool_name_prefix` takes precedence.
    :param required: Whether a server that cannot be reached is an error; see MCPToolset. An entry's `required` takes
        precedence.
    :param inputs: Values for `${input:ID}` by ID, for files of VS Code.
    :param oauth_config: How to log in at the servers with `"auth": "oauth"`, for example with a `FileTokenStorage` that
        keeps the tokens. Default: `OAuthConfig()`.
    :param parameters: Further parameters of every MCPToolset, such as `connection_timeout`. Parameters in an entry take
        precedence.
    :returns: The toolsets, in the order of the file, without disabled servers.
    :raises FileNotFoundError: If there is no such file.
    :raises ValueError: If the file or an entry cannot be used: invalid JSON, a key that looks like a typo, a wrong
        type, an environment variable that is not set and has no default. The message names the place and the valid
        choices.
    """
    configuration = Configuration(
        config,
        {"required": required, **parameters},
        inputs=inputs,
        prefix_tool_names=prefix_tool_names,
        oauth_config=oauth_config,
    )
    return [*configuration.toolsets(servers).values()]


class Configuration:
    """
    One configuration, and the toolsets of its servers.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any],
        parameters: Mapping[str, Any] | None = None,
        *,
        inputs: Mapping[str, str | Secret] | None = None,
        prefix_tool_names: bool = True,
        oauth_config: OAuthConfig | None = None,
        is_checked: bool = True,
    ) -> None:
        """
        Read a configuration.

        :param config: As in `load_mcp_toolsets`.
        :param parameters: Parameters of every toolset, unless its entry sets them.
        :param inputs: As in `load_mcp_toolsets`.
        :param prefix_tool_names: As in `load_mcp_toolsets`.
        :param oauth_config: As in `load_mcp_toolsets`.
        :param is_checked: If False, variables that are not set are ignored, warnings are collected in `warnings`
            instead of logged, and VS Code's inputs come from environment variables: `api-key` from `API_KEY`.
        :raises FileNotFoundError: If there is no such file.
        :raises ValueError: If it is not JSON, has no section for servers, or does not declare one of the inputs.
        """
        is_text = isinstance(config, str) and config.lstrip().startswith("{")
        if is_text or not isinstance(config, (str, os.PathLike, Mapping)):
            msg = "`config` must be the path of a file, or its content as a dictionary (see json.loads)"
            raise ValueError(msg)
        self._file = None if isinstance(config, Mapping) else Path(os.path.expanduser(config))
        self.where: str = "the configuration" if self._file is None else str(self._file)
        self.content: Any = config if self._file is None else _load_file(self._file, self.where)
        self._is_checked = is_checked
        # Warnings by the place with which their message begins.
        self.warnings: defaultdict[str, list[str]] = defaultdict(list)
        self._is_of_opencode = False
        # The unchecked entries of the servers by name.
        self.entries, declared = self._find_entries()
        self._declared_inputs = self._checked_inputs(declared, inputs or {})
        self._inputs = inputs or {}
        self._prefix_tool_names = prefix_tool_names
        self._oauth_config = oauth_config
        self._parameters = parameters or {}
        # For a symbolic link, this is the folder of the link, as in the client.
        folder = Path.cwd() if self._file is None else Path(os.path.abspath(self._file)).parent
        while folder.name in _CLIENT_FOLDERS and folder != folder.parent:
            folder = folder.parent
        self._folder = folder
        self._path_variables = {
            **dict.fromkeys(("workspaceFolder", "workspaceRoot", "CLAUDE_PLUGIN_ROOT", "cwd"), str(folder)),
            "workspaceFolderBasename": folder.name,
            "userHome": os.path.expanduser("~"),  # stays "~" if there is no home, as in some containers
            **dict.fromkeys(("pathSeparator", "/"), os.sep),
        }

    def _warn(self, place: str, text: str) -> None:
        if self._is_checked:
            logger.warning("{place}: {text}", place=place, text=text)
        else:
            self.warnings[place].append(text)

    def _find_entries(self) -> tuple[dict[str, Any], Any]:
        content, where = self.content, self.where
        if not isinstance(content, Mapping):
            wanted = "an object with `mcpServers` (or `servers`, as in VS Code)"
            msg = f"{where} must be {wanted}, not a {type(content).__name__}"
            raise ValueError(msg)
        if isinstance(projects := content.get("projects"), Mapping):
            content = {**content, **_with_project_servers(content.get("mcpServers") or {}, projects)}
        for section in _SECTIONS:
            holder: Any = content
            found: Any = content
            for key in section:
                holder, found = found, found.get(key) if isinstance(found, Mapping) else None
            if found is None or (section == ("mcp",) and not _are_entries(found, _OPENCODE_ENTRY_KEYS)):
                continue
            if found == []:  # PHP's empty object
                found = {}
            if not isinstance(found, Mapping):
                msg = f"{where}: `{'.'.join(section)}` must be an object with an entry for each server"
                raise ValueError(msg)
            self._is_of_opencode = section[0] == "mcp"
            entries = {str(name): entry for name, entry in found.items()}
            return entries, holder.get("inputs") or content.get("inputs") or []
        # The files of Claude Code's plugins have the servers at the top level.
        if content and _are_entries(content):
            return dict(content), []
        if not {*content}.isdisjoint(_SECTION_NAMES):  # the section is null
            return {}, []
        closest = [close for key in content for close in difflib.get_close_matches(str(key), _SECTION_NAMES, 1)]
        hint = f" Did you mean `{closest[0]}`?" if closest else ""
        wanted = " or ".join(f"`{name}`" for name in _SECTION_NAMES)
        msg = f"{where} has no {wanted}, but {', '.join(map(str, content)) or 'nothing'}.{hint}"
        raise ValueError(msg)

    def _checked_inputs(self, declared: Any, inputs: Mapping[str, str | Secret]) -> dict[str, Mapping[str, Any]]:
        if not isinstance(declared, list) or not all(
            isinstance(declaration, Mapping) and declaration.get("id") for declaration in declared
        ):
            msg = f"{self.where}: `inputs` must be a list of objects with an `id`"
            raise ValueError(msg)
        declarations = {str(declaration["id"]): declaration for declaration in declared}
        for name, value in inputs.items():
            if name not in declarations:
                known = ", ".join(declarations) or "none"
                msg = f"{self.where}: the file does not declare '{name}' under its `inputs`; it declares: {known}"
                raise ValueError(msg)
            if not isinstance(value, (str, Secret)):
                msg = f"`inputs` maps ids to strings or Secrets; that of '{name}' is of type {type(value).__name__}"
                raise ValueError(msg)
        return declarations

    def toolsets(self, servers: Sequence[str] | None = None) -> dict[str, MCPToolset]:
        """
        Return the toolsets.

        :param servers: The names of the servers. Default: all.
        :returns: The toolsets by server name, without disabled servers.
        :raises ValueError: If an entry cannot be used, or there is no such server.
        """
        if isinstance(servers, str):
            msg = f"`servers` must be a list of names, as in servers=[{servers!r}]"
            raise ValueError(msg)
        if unknown := [name for name in servers or [] if name not in self.entries]:
            known = ", ".join(self.entries) or "none"
            closest = difflib.get_close_matches(unknown[0], self.entries, 1)
            hint = f". Did you mean '{closest[0]}'?" if closest else ""
            msg = f"{self.where} has no server {', '.join(map(repr, unknown))}; it has {known}{hint}"
            raise ValueError(msg)
        chosen = [name for name in self.entries if servers is None or name in servers]
        toolsets = {name: self.toolset(name) for name in chosen}
        for name in servers or []:
            if toolsets[name] is None:
                self._warn(f"{self.where}: server '{name}'", "is disabled, and left out although it was asked for")
        return {name: toolset for name, toolset in toolsets.items() if toolset is not None}

    def toolset(self, name: str) -> MCPToolset | None:
        """
        Return the toolset of a server.

        :param name: The name of the server.
        :returns: The toolset; None if the server is disabled.
        :raises ValueError: If the entry cannot be used.
        """
        entry, place = self.entries[name], f"{self.where}: server '{name}'"
        settings = settings_of(entry, place)
        if settings.disabled:
            logger.info("{place} is disabled", place=place)
            return None
        if ignored := foreign_keys(entry):
            self._warn(place, f"ignored {', '.join(ignored)}")
        server_info = server_info_of(self._with_env_file(self._expanded(entry, place), place), place)
        if self._oauth_config is not None and isinstance(server_info, HttpServerInfo) and server_info.auth == "oauth":
            server_info = replace(server_info, auth=None, oauth_config=self._oauth_config)
        entry_options = dict(settings.parameters)
        snapshot = entry_options.get("snapshot")
        check = snapshot if isinstance(snapshot, Mapping) else {"snapshot": snapshot}
        if self._file is not None and isinstance(file := check.get("snapshot"), str):
            entry_options["snapshot"] = {**check, "snapshot": self._file.parent / file}
        prefix = {"tool_name_prefix": prefix_of(name)} if self._prefix_tool_names else {}
        options = _combined(self._parameters, prefix, entry_options)
        if self._is_checked and (missing := missing_variables(server_info)):
            msg = f"{place}: these environment variables are not set: {', '.join(missing)}"
            if options.get("required", True):
                msg += "; set them, write `${NAME:-default}`, or disable the server"
                raise ValueError(msg)
            logger.warning("{reason}", reason=msg)
        if settings.only_tools is not None:
            options["tool_names"] = [tool for tool in settings.only_tools if tool not in settings.not_tools]
        elif settings.not_tools:
            selection = options.get("tool_selection")
            excluded = selection.get("exclude_tools") if isinstance(selection, Mapping) else None
            not_tools = [*excluded, *settings.not_tools] if isinstance(excluded, list | tuple) else settings.not_tools
            options = _combined(options, {"tool_selection": {"exclude_tools": not_tools}})
        try:
            return MCPToolset(server_info, **options)
        except (FileNotFoundError, ValueError) as error:
            msg = f"{place}: {error}"
            raise ValueError(msg) from None

    def _expanded(self, value: Any, place: str) -> Any:
        """
        Expand variables other than environment variables. A text that consists of one input becomes its value.
        """
        if isinstance(value, Mapping):
            return {key: self._expanded(item, place) for key, item in value.items()}
        if isinstance(value, list):
            return [self._expanded(item, place) for item in value]
        if not isinstance(value, str):
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        if whole is not None and whole["input"]:
            return self._input(whole["input"], place)
        if (named := _DOLLAR_VARIABLE.fullmatch(value)) is not None and named["name"] in os.environ:
            # Only if there is such a variable: the value may also be a literal password.
            return f"{named['scheme']}${{{named['name']}}}"
        if self._is_of_opencode:
            value = _OPENCODE_VARIABLE.sub(r"${\g<name>}", value)
        return _PLACEHOLDER.sub(lambda match: self._text(match, place), value)

    def _text(self, match: re.Match[str], place: str) -> str:
        if match["name"]:
            return self._path_variables[match["name"]]
        value = self._input(match["input"], place)
        if isinstance(value, str):
            return value
        names = vars(value).get("_env_vars", ())
        if len(names) != 1 or isinstance(value, SecretTemplate):
            msg = (
                f"{place}: the input '{match['input']}' is part of a longer text, so it must be a string or "
                "a Secret of one environment variable"
            )
            raise ValueError(msg)
        return f"${{{names[0]}}}" if vars(value).get("_strict", True) else f"${{{names[0]}:-}}"

    def _input(self, name: str, place: str) -> str | Secret:
        if name in self._inputs:
            return self._inputs[name]
        declaration = self._declared_inputs.get(name)
        if declaration is None:
            known = ", ".join(self._declared_inputs) or "none"
            msg = (
                f"{place}: `${{input:{name}}}` is not among the `inputs` of the file, which has: {known}; declare it "
                f'there, as in {{"id": "{name}", "type": "promptString"}}, or write `${{NAME}}`'
            )
            raise ValueError(msg)
        default, variable = declaration.get("default"), variable_name(name)
        if not self._is_checked and (variable in os.environ or not isinstance(default, str)):
            return Secret.from_env_var(variable)
        if isinstance(default, str):
            return default
        description = f" ({declaration['description']})" if declaration.get("description") else ""
        msg = (
            f"{place}: `${{input:{name}}}`{description} has no value: pass "
            f"inputs={{'{name}': Secret.from_env_var('NAME_OF_A_VARIABLE')}}"
        )
        raise ValueError(msg)

    def _with_env_file(self, entry: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """
        Add references to the variables of the `envFile` to an entry.
        """
        path = entry.get("envFile")
        if not isinstance(path, str) or not path:
            return entry
        file = self._folder / os.path.expanduser(path)
        if not file.is_file() and self._file is not None:
            file = self._file.resolve().parent / path
        try:
            names, unreadable = read_env_file(file)
        except OSError as error:
            self._warn(place, f"`envFile` cannot be read: {error.strerror or type(error).__name__}")
            return entry
        if unreadable:
            self._warn(place, f"`envFile` has lines that are not like NAME=value: {', '.join(map(str, unreadable))}")
        given = entry.get("env")
        # A name that is not an identifier may be part of a multi-line secret.
        added = {name: f"${{envFile:{file}:{name}}}" for name in names if name.isascii() and name.isidentifier()}
        return {**entry, "env": {**added, **given} if isinstance(given, Mapping) else given or added}


def _combined(*layers: Mapping[str, Any]) -> dict[str, Any]:
    # Later layers take precedence; groups of options are merged field by field.
    combined: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if name in _OPTION_GROUPS and isinstance(value, Options | Mapping):
                given, fields = combined.get(name) or {}, value.changed() if isinstance(value, Options) else value
                # Its type is checked later.
                combined[name] = {**given, **fields} if isinstance(given, Mapping) else given
            else:
                combined[name] = value
    return combined


def _are_entries(found: Any, marks: frozenset[str] = ENTRY_MARKS) -> bool:
    entries = found.values() if isinstance(found, Mapping) else [found]
    return all(isinstance(entry, Mapping) and marks & set(entry) for entry in entries)


def _with_project_servers(servers: Any, projects: Mapping[str, Any]) -> dict[str, Any]:
    """
    Add the servers that Claude Code has configured for the current working directory or its parents.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        project = projects.get(folder.as_posix())
        project_servers = project.get("mcpServers") if isinstance(project, Mapping) else None
        if project_servers and isinstance(project_servers, Mapping) and isinstance(servers, Mapping):
            return {"mcpServers": {**servers, **project_servers}}
    return {}


def _load_file(file: Path, where: str) -> Any:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        msg = f"There is no file {where} (in {Path.cwd()})"
        raise FileNotFoundError(msg) from None
    except UnicodeDecodeError:
        msg = f"{where} is not in UTF-8: save it in this encoding (PowerShell's `>` writes UTF-16)"
        raise ValueError(msg) from None
    except OSError as error:
        msg = f"{where} cannot be read: {error}"
        raise ValueError(msg) from error

    with suppress(json.JSONDecodeError):  # parse first: Claude Code's file has many megabytes, and no comments
        return json.loads(text)
    # Replace comments with white space of the same length, so that errors name the right place.
    text = _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    text = _TRAILING_COMMA.sub(lambda match: match[1] or " ", text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        msg = f"{where} is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        raise ValueError(msg) from None


def variable_name(*texts: str) -> str:
    """
    Turn texts into the name of an environment variable.

    :param texts: Any texts.
    :returns: The texts in capitals, joined by underscores.
    """
    parts = [re.sub(r"\W", "_", text, flags=re.ASCII).upper().strip("_") or "SERVER" for text in texts]
    name = "_".join(parts)
    return f"_{name}" if name[0].isdecimal() else name


def missing_variables(info: MCPServerInfo) -> list[str]:
    """
    Return the environment variables that a server info needs and that are not set.

    :param info: The server info.
    :returns: Their names.
    """
    return list(dict.fromkeys(_missing(info._fields())))


def _missing(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [name for item in value.values() for name in _missing(item)]
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in _missing(item)]
    if isinstance(value, SecretTemplate):
        return value.missing()
    if isinstance(value, Secret):
        try:
            value.resolve_value()
        except ValueError:
            return [str(name) for name in vars(value).get("_env_vars", ())]
    return []
