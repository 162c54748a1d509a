# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Makes server infos from a URL, a command line, a script, a server object, or an entry of a configuration file.

The keys of an entry of `mcpServers`, as MCP clients write it in their configuration files:

.. code-block:: text

    for the server info              command, args, env, cwd; url, headers, auth; type; and their aliases
    for its tools                    disabled, enabled, timeout, disabledTools, enabledTools, …: `EntrySettings`
    for features of other clients    autoApprove, alwaysAllow, icon, …: skipped with a warning
    similar to one of the above      an error that names the closest key, because it may be a typo
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_args
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.server_infos import (
    InProcessServerInfo,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Keys by their names in other clients: Gemini CLI, Windsurf, Cherry Studio, Warp, OpenCode and others.
_ALIASES = {
    "httpUrl": "url",
    "serverUrl": "url",
    "baseUrl": "url",
    "working_directory": "cwd",
    "environment": "env",
    "transport": "type",
    "transportType": "type",
    "isActive": "enabled",
    "tools": "enabledTools",
    "includeTools": "enabledTools",
    "allowedTools": "enabledTools",
    "excludeTools": "disabledTools",
    "enabled_tools": "enabledTools",
    "disabled_tools": "disabledTools",
}
# An object that has one of these is an entry.
ENTRY_MARKS = frozenset({"command", "url", *(alias for alias, key in _ALIASES.items() if key == "url")})

_TEXT = ((str, Secret), "a string")
_SWITCH = (bool, "true or false")
_TOOL_NAMES = (list, "a list of names of tools")
_KEYS: dict[str, tuple[Any, str]] = {
    "command": _TEXT,
    "args": (list, "a list of strings"),
    "env": (Mapping, "an object of strings"),
    "cwd": _TEXT,
    "envFile": _TEXT,
    "url": _TEXT,
    "headers": (Mapping, "an object of strings"),
    "auth": (object, ""),
    "type": (str, "a string"),
    "disabled": _SWITCH,
    "enabled": _SWITCH,
    "timeout": ((int, float), "a number greater than 0"),
    "enabledTools": _TOOL_NAMES,
    "disabledTools": _TOOL_NAMES,
    "required": _SWITCH,
}
_KEYS_BY_KIND = {"command": ("args", "env", "cwd", "envFile"), "url": ("headers", "auth")}
# Keys of this package: parameters of a toolset.
_TOOLSET_KEYS = (
    "required",
    "tool_name_prefix",
    "connection_timeout",
    "invocation_timeout",
    "tool_options",
    "tool_selection",
    "tool_overrides",
    "call_options",
    "snapshot",
)
# Without a value, these mean that there is no prefix or no limit.
_KEYS_WITHOUT_VALUE = ("tool_name_prefix", "invocation_timeout")
_KNOWN_KEYS = (*_KEYS, *_ALIASES, *_TOOLSET_KEYS[1:])

# A key of Claude Code and Gemini CLI that looks like a misspelled one.
_SIMILAR_FOREIGN_KEYS = frozenset({"oauth"})

# How many letters longer or shorter than the right key a misspelled key can be. Others are keys of other clients.
_MAX_LENGTH_DIFFERENCE = 2

_ENTRY_CHOICES = "`command` with `args`, `env` and `cwd`, or `url` with `headers` and `type`"

# A larger `timeout` is taken for milliseconds, as in the files of Gemini CLI and others; Cline's is in seconds. A call
# of more than an hour is unlikely.
_MAX_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class EntrySettings:
    """
    The settings of an entry that are not about how to reach the server.

    :param disabled: Whether the server is switched off, or is part of the client that wrote the entry.
    :param only_tools: The tools to load; None for all.
    :param not_tools: The tools to leave out.
    :param parameters: Parameters of the toolset by their names.
    """

    disabled: bool
    only_tools: list[str] | None
    not_tools: list[str]
    parameters: dict[str, Any]


@contextmanager
def _locate_errors(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        msg = f"{where}: {error}"
        raise ValueError(msg) from None


def server_info_of(entry: Mapping[str, Any], where: str) -> MCPServerInfo:
    """
    Make the server info of an entry.

    :param entry: The entry.
    :param where: The place of the entry, for messages.
    :returns: The server info, with variables as Secrets.
    :raises ValueError: If a key is misspelled, missing or of the wrong type.
    """
    with _locate_errors(where):
        known = _read(entry)
        kind = _kind(known)
        wanted = "url" if kind == "stdio" else "command"
        misplaced = [key for key in _KEYS_BY_KIND[wanted] if known.get(key)]
        if misplaced and wanted not in known:
            keys = ", ".join(f"`{key}`" for key in misplaced)
            what = "{where}: not used without a `{wanted}`: {keys}"
            logger.warning(what, where=where, wanted=wanted, keys=keys)
        return _stdio(known) if kind == "stdio" else _http(known, kind)


def settings_of(entry: Mapping[str, Any], where: str) -> EntrySettings:
    """
    Read the settings of an entry that are not about how to reach the server.

    :param entry: The entry.
    :param where: The place of the entry, for messages.
    :returns: The settings. If the entry is disabled, the others are not read.
    :raises ValueError: If a setting is of the wrong type.
    """
    with _locate_errors(where):
        _check_object(entry)
        is_off = entry.get("disabled") is True or entry.get("enabled") is False or entry.get("isActive") is False
        # An entry of a Zed extension has only settings; the type `inMemory` means a server inside Cherry Studio.
        is_of_client = "settings" in entry and ENTRY_MARKS.isdisjoint(entry)
        if is_off or is_of_client or entry.get("type") == "inMemory":
            return EntrySettings(disabled=True, only_tools=None, not_tools=[], parameters={})
        known = _read(entry)
        parameters = {key: known[key] for key in _TOOLSET_KEYS if key in known}
        timeout = known.get("timeout")
        if timeout is not None:
            if isinstance(timeout, bool) or not timeout > 0:
                _refuse_entry(f"`timeout` must be a number greater than 0, got {timeout!r}")
            seconds = float(timeout) if timeout <= _MAX_SECONDS else timeout / 1000
            parameters.setdefault("invocation_timeout", seconds)
        only, without = known.get("enabledTools"), known.get("disabledTools") or []
        for name in (*(only or ()), *without):
            if not isinstance(name, str) or not name:
                _refuse_entry(f"the name of a tool must be a string, got {name!r}")
        return EntrySettings(
            disabled=False, only_tools=None if only == ["*"] else only, not_tools=without, parameters=parameters
        )


def foreign_keys(entry: Mapping[str, Any]) -> list[str]:
    """
    Return the keys of an entry that have no meaning in this package.

    :param entry: The entry.
    :returns: The keys.
    """
    return [str(key) for key, value in entry.items() if _is_foreign(key, value)]


def _is_foreign(key: Any, value: Any) -> bool:
    # In the files of FastMCP, `tools` is an object of changes; in those of Copilot, a list of names.
    return key not in _KNOWN_KEYS or (key == "tools" and not isinstance(value, list))


def _refuse_entry(msg: str) -> NoReturn:
    raise ValueError(msg)


def _check_object(entry: Any) -> None:
    if not isinstance(entry, Mapping):
        _refuse_entry(f"an entry is an object with {_ENTRY_CHOICES}; got {type(entry).__name__}")


def _read(entry: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the known keys of an entry by the names that most clients have for them.
    """
    _check_object(entry)
    if (command := entry.get("command")) and isinstance(command, list) and not entry.get("args"):  # OpenCode
        entry = {**entry, "command": command[0], "args": command[1:] or None}
    known: dict[str, Any] = {}
    for key, given in entry.items():
        name, value = _ALIASES.get(key, key), _as_in_json(given)
        if key not in {*_KNOWN_KEYS, *_SIMILAR_FOREIGN_KEYS} and (closest := _closest_key(_folded(str(key)))):
            _refuse_entry(f"unknown key {key!r}. Did you mean `{closest}`? An entry has {', '.join(_KEYS)}.")
        # Some clients write all keys, and leave unused ones empty.
        is_empty = value in (None, "")
        if _is_foreign(key, value) or (is_empty and name not in _KEYS_WITHOUT_VALUE):
            continue
        kind, what = _KEYS.get(name, (object, ""))
        if not isinstance(value, kind):
            if value in ([], {}):  # PHP encodes an empty object as a list, Lua an empty list as an object
                continue
            _refuse_entry(f"`{key}` must be {what}, got {type(value).__name__}")
        known[name] = None if is_empty else value
    if entry.get("httpUrl"):  # Gemini CLI, where `url` may be either kind
        known.setdefault("type", "http")
    return known


def _as_in_json(value: Any) -> Any:
    # Entries written in Python may have types that JSON lacks, such as those for langchain-mcp-adapters.
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple | list):
        return [_as_in_json(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _folded(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.casefold())


def _closest_key(key: str) -> str | None:
    """
    Find the known key of which a key is a misspelling: letters in the wrong order, or one or two wrong letters.
    """
    known = {_folded(each): each for each in reversed(_KNOWN_KEYS)}
    close = [each for each in known if sorted(each) == sorted(key)] or difflib.get_close_matches(key, known, 1, 0.8)
    return known[close[0]] if close and abs(len(close[0]) - len(key)) <= _MAX_LENGTH_DIFFERENCE else None


def _kind(entry: Mapping[str, Any]) -> Literal["stdio", "http", "sse"]:
    has = [key for key in ("command", "url") if key in entry]
    if not has or (len(has) > 1 and "type" not in entry):
        what = "it has `command` and `url`" if has else "it has neither"
        _refuse_entry(f"an entry has either {_ENTRY_CHOICES}; {what}")
    if "type" not in entry:
        return "stdio" if "command" in entry else "sse" if _is_sse_url(str(entry["url"])) else "http"
    named = _folded(entry["type"])
    kind: Literal["stdio", "http", "sse"]
    if named in ("stdio", "local"):
        kind = "stdio"
    elif named.endswith("sse"):
        kind = "sse"
    elif named == "remote" or "http" in named or "streamable" in named:
        kind = "http"
    else:
        _refuse_entry(f"the type must be one of stdio, http (streamable-http) and sse; got {entry['type']!r}")
    if ("command" if kind == "stdio" else "url") not in has:
        _refuse_entry(f"the type {entry['type']!r} does not go with `{has[0]}`")
    return kind


def _is_sse_url(url: str) -> bool:
    return url.partition("?")[0].rstrip("/").endswith("/sse")


def _stdio(entry: Mapping[str, Any]) -> StdioServerInfo:
    args, env = entry.get("args"), _values(entry, "env")
    return StdioServerInfo(
        command=_value(entry["command"], "command"),
        args=None
        if args is None
        else [arg if _is_for_server(arg, env) else _value(arg, f"args[{n}]") for n, arg in enumerate(args)],
        env=env or None,
        cwd=_value(entry["cwd"], "cwd") if "cwd" in entry else None,
    )


def _is_for_server(arg: Any, env: Mapping[str, Any]) -> bool:
    # Claude Desktop expands nothing: programs such as `mcp-remote` expand variables of their own `env` themselves.
    names = re.findall(r"\$\{(\w+)\}", arg) if isinstance(arg, str) else []
    return (
        bool(names) and len(names) == arg.count("${") and all(name in env and name not in os.environ for name in names)
    )


def _http(entry: Mapping[str, Any], kind: str) -> SSEServerInfo | StreamableHttpServerInfo:
    url, headers = _value(entry["url"], "url"), _values(entry, "headers") or None
    auth = entry.get("auth")
    if auth not in (None, "none", "oauth"):
        _refuse_entry(
            '`auth` must be "oauth". Pass a bearer token in `headers`, as {"Authorization": "Bearer ${API_TOKEN}"}, '
            "which is `token=` in Python; pass a registered client as `oauth_config=OAuthConfig(client_id=...)`"
        )
    auth = auth if auth == "oauth" else None
    if kind == "sse":
        return SSEServerInfo(url=url, headers=headers, auth=auth)
    return StreamableHttpServerInfo(url=url, headers=headers, sse_fallback="type" not in entry, auth=auth)


def _values(entry: Mapping[str, Any], key: str) -> dict[str, str | Secret]:
    values = entry.get(key) or {}
    return {str(name): _value(value, f"{key}.{name}") for name, value in values.items() if value is not None}


def _value(value: Any, place: str) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, (str, int, float)):
        _refuse_entry(f"`{place}` must be a string, got {type(value).__name__}")
    if not isinstance(value, str):  # e.g. a port or a switch; most clients take it
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return from_template(value)
    except ValueError as error:
        _refuse_entry(f"in `{place}`, {error}")


_CHOICES = (
    "A server is reached by a URL ('https://host/mcp'), a command line as a list (['uvx', 'mcp-server-time']), the "
    "path of a script ('server.py' or 'server.js'), a server object (MCPServer, Server, FastMCP), a dictionary as in "
    "`mcpServers` ({'command': 'uvx', 'args': ['mcp-server-time']}), or a server info (StdioServerInfo, "
    "StreamableHttpServerInfo, SSEServerInfo, InProcessServerInfo or a custom one). load_mcp_toolsets('mcp.json') "
    "makes toolsets of a configuration file"
)

# The program that runs a script, by the script's suffix.
_INTERPRETERS = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}


def server_info_from(target: Any) -> MCPServerInfo:
    """
    Make a server info from a short form: a URL, a command line, a script, a server object or an entry.

    ```python
    from haystack_integrations.tools.mcp import server_info_from

    server_info_from("https://mcp.example.com/mcp")         # StreamableHttpServerInfo
    server_info_from("https://mcp.example.com/sse")         # SSEServerInfo
    server_info_from(["uvx", "mcp-server-time"])            # StdioServerInfo
    server_info_from({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]})
    ```

    `MCPTool` and `MCPToolset` take the same values as `server_info`. Variables (`${NAME}`, `${NAME:-default}`,
    `${env:NAME}`) in URLs, command lines and dictionaries are kept as Secrets, and resolved when a session is opened.

    :param target: One of

        * a URL, as a string or an `AnyUrl` of pydantic. Streamable HTTP is tried first, and SSE if the server refuses
          it with status 400, 404 or 405; a URL that ends in `/sse` means SSE;
        * a list: a command and its arguments;
        * the path of an existing script: `.py` is run with this Python, `.js`, `.mjs` and `.cjs` with `node`;
        * a server object: `MCPServer` or `Server` of the MCP SDK, or a FastMCP server;
        * a dictionary: one entry of `mcpServers`;
        * a server info, which is returned as it is.
    :returns: The server info.
    :raises ValueError: If `target` is something else. The message names the choices.
    """
    if isinstance(target, MCPServerInfo):
        return target
    if isinstance(target, (str, os.PathLike)) and target:
        return _from_text(os.fspath(target))
    if any(f"{base.__module__}.{base.__name__}" == "pydantic.networks.AnyUrl" for base in type(target).__mro__):
        return _from_text(str(target))  # compared by name, to avoid importing pydantic
    if isinstance(target, (list, tuple)) and target:
        return _from_command_line(list(target))
    if isinstance(target, Mapping):
        return _from_entry(target)
    if _is_server(target):
        return InProcessServerInfo(target)
    _refuse("it is empty" if isinstance(target, (str, list, tuple)) else f"got {type(target).__name__}")


def _refuse(reason: str) -> NoReturn:
    msg = f"`server_info` is of no known kind: {reason}. {_CHOICES}."
    raise ValueError(msg)


def _from_text(text: Any) -> MCPServerInfo:
    text = os.fsdecode(text)
    if "://" in text or text.startswith("${"):
        url = from_template(text)
        return SSEServerInfo(url=url) if _is_sse_url(text) else StreamableHttpServerInfo(url=url, sse_fallback=True)
    path = Path(text)
    interpreter = _INTERPRETERS.get(path.suffix)
    if interpreter is not None and path.is_file():
        return StdioServerInfo(command=interpreter, args=[str(path)])
    shown_text = " ".join(redact_args(text.split()))
    _refuse(f"'{shown_text}' is neither a URL nor the path of a script that exists ({', '.join(_INTERPRETERS)})")


def _from_command_line(words: list[Any]) -> StdioServerInfo:
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in words]
    command, *args = (from_template(word) if isinstance(word, str) else word for word in words)
    return StdioServerInfo(command=command, args=args)


def _from_entry(entry: Mapping[Any, Any]) -> MCPServerInfo:
    where = "`server_info`"
    if entry and all(isinstance(each, Mapping) for each in entry.values()):
        msg = f"{where}: these are several servers; use load_mcp_toolsets({{'mcpServers': {{...}}}})"
        raise ValueError(msg)
    settings = settings_of(entry, where)
    if settings.disabled or settings.only_tools is not None or settings.not_tools or settings.parameters:
        msg = f"{where}: a dictionary says how to reach the server. Its settings of tools are parameters of "
        msg += "MCPToolset; load_mcp_toolsets({'mcpServers': {...}}) reads both"
        raise ValueError(msg)
    return server_info_of(entry, where)


def _is_server(target: Any) -> bool:
    # Compared by name, because importing the SDK takes half a second. A server that wraps the SDK's, as the first
    # FastMCP does, has it as an attribute.
    names = {f"{base.__module__}.{base.__name__}" for base in type(target).__mro__}
    is_known = any(
        name.startswith(("mcp.server.", "fastmcp.")) and name.rpartition(".")[2] in ("FastMCP", "MCPServer", "Server")
        for name in names
    )
    return is_known or hasattr(target, "_mcp_server")
