# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An entry of `mcpServers`, as MCP clients write it in their configuration files, as a server info.

.. code-block:: text

    what is read as the server info    command, args, env, cwd; url, httpUrl, serverUrl, headers; type, transport
    what says about its tools          disabled, enabled, timeout, disabledTools, enabledTools, …: `EntrySettings`
    what only other clients can do     autoApprove, alwaysAllow, icon, …: passed over with a warning
    what nobody knows                  an error that names the closest key
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.http.server_info import SSEServerInfo, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.transports.stdio.server_info import StdioServerInfo

logger: logging.PatchedLogger = logging.getLogger(__name__)

_STDIO_KEYS = ("command", "args", "env", "cwd")
# Gemini CLI has `httpUrl` for Streamable HTTP next to `url` for SSE; Windsurf has `serverUrl`.
_URL_KEYS = ("url", "httpUrl", "serverUrl")
_HTTP_KEYS = (*_URL_KEYS, "headers")
# An object that has one of these is an entry.
ENTRY_MARKS = frozenset({"command", *_URL_KEYS})
_KIND_KEYS = ("type", "transport", "transportType")
_KINDS: dict[str, Literal["stdio", "http", "sse"]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "streamable": "http",
    "remote": "http",
    "sse": "sse",
}

# Lists of tools by the names that clients have for them.
_ONLY_TOOLS_KEYS = ("enabledTools", "includeTools", "allowedTools", "enabled_tools", "tools")
_NOT_TOOLS_KEYS = ("disabledTools", "excludeTools", "disabled_tools")

# Ours: what a toolset takes, under the names of its parameters.
_TOOLSET_KEYS = (
    "tool_name_prefix",
    "required",
    "connection_timeout",
    "invocation_timeout",
    "snapshot",
    "on_drift",
    "on_tool_error",
    "max_tool_failures",
    "include_instructions",
)

_SETTINGS_KEYS = ("disabled", "enabled", "timeout", *_ONLY_TOOLS_KEYS, *_NOT_TOOLS_KEYS, *_TOOLSET_KEYS)

# What other clients know and this package has no use for. Each is about approval, display or storage of the client.
_FOREIGN_KEYS = frozenset(
    {"autoApprove", "alwaysAllow", "trust", "description", "name", "displayName", "icon", "iconPath", "note", "notes"}
    | {"_comment", "comment", "gallery", "version", "dev", "envFile", "sandbox", "sandboxEnabled", "auth", "oauth"}
    | {"authProviderType", "oauthScopes", "headersHelper", "registryUrl", "baseUrl", "source", "sourceUrl", "id"}
    | {"isActive", "logoUrl", "provider", "providerUrl", "tags", "reference", "longRunning", "instructions"}
    | {"serverInstructions", "initTimeout", "startupTimeout", "fromGalleryId", "marketplace", "metadata", "$schema"}
)

_CHOICES = "`command` with `args`, `env` and `cwd`, or `url` with `headers` and `type`"

# In larger numbers than this, a `timeout` is in milliseconds, as in the files of Gemini CLI and others; Cline's is in
# seconds. A call of more than an hour is not what anybody means.
_LONGEST_IN_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class EntrySettings:
    """
    What an entry says beyond how to reach the server.

    :param disabled: Whether the server is not to be used.
    :param only_tools: The tools to load; None for all.
    :param not_tools: The tools to leave out.
    :param parameters: Parameters of the toolset by their names.
    """

    disabled: bool
    only_tools: list[str] | None
    not_tools: list[str]
    parameters: dict[str, Any]


def server_info_of(entry: Mapping[str, Any], where: str) -> MCPServerInfo:
    """
    Make the server info of an entry.

    :param entry: The entry.
    :param where: Where it stands, for messages.
    :returns: The server info, with variables as Secrets.
    :raises ValueError: If the entry has an unknown key, lacks one, or has one of the wrong type.
    """
    _check_keys(entry, where)
    kind = _kind(entry, where)
    try:
        if kind == "stdio":
            return _stdio(entry, where)
        return _http(entry, kind, where)
    except ValueError as error:
        if str(error).startswith(where):
            raise
        msg = f"{where}: {error}"
        raise ValueError(msg) from None


def settings_of(entry: Mapping[str, Any], where: str) -> EntrySettings:
    """
    Read what an entry says beyond how to reach the server.

    :param entry: The entry.
    :param where: Where it stands, for messages.
    :returns: The settings.
    :raises ValueError: If one is of the wrong type.
    """
    _check_keys(entry, where)
    flags = {key: _expect(entry, key, bool, "true or false", where) for key in ("disabled", "enabled", "required")}
    parameters = {key: entry[key] for key in _TOOLSET_KEYS if entry.get(key) is not None}
    timeout = entry.get("timeout")
    if timeout is not None:
        if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or timeout <= 0:
            msg = f"{where}: `timeout` must be a number greater than 0, got {timeout!r}"
            raise ValueError(msg)
        seconds = timeout / 1000 if timeout > _LONGEST_IN_SECONDS else float(timeout)
        parameters.setdefault("invocation_timeout", seconds)
    return EntrySettings(
        disabled=flags["disabled"] is True or flags["enabled"] is False,
        only_tools=_tools(entry, _ONLY_TOOLS_KEYS, where),
        not_tools=_tools(entry, _NOT_TOOLS_KEYS, where) or [],
        parameters=parameters,
    )


def foreign_keys(entry: Mapping[str, Any]) -> list[str]:
    """
    Name the keys of an entry that only other clients have a use for.

    :param entry: The entry.
    :returns: The keys.
    """
    return [key for key in entry if key in _FOREIGN_KEYS]


def _check_keys(entry: Mapping[str, Any], where: str) -> None:
    if not isinstance(entry, Mapping):
        msg = f"{where}: an entry is an object with {_CHOICES}; got {type(entry).__name__}"
        raise ValueError(msg)
    known = [*_STDIO_KEYS, *_HTTP_KEYS, *_KIND_KEYS, *_SETTINGS_KEYS]
    for key in entry:
        if key not in known and key not in _FOREIGN_KEYS:
            closest = difflib.get_close_matches(str(key), [*known, *_FOREIGN_KEYS], 1)
            meant = f" Did you mean `{closest[0]}`?" if closest else ""
            msg = f"{where}: unknown key {key!r}.{meant} An entry has {_CHOICES}; and {', '.join(_SETTINGS_KEYS)}."
            raise ValueError(msg)


def _kind(entry: Mapping[str, Any], where: str) -> Literal["stdio", "http", "sse"]:
    named = next((entry[key] for key in _KIND_KEYS if entry.get(key) is not None), None)
    if named is not None and (not isinstance(named, str) or named not in _KINDS):
        msg = f"{where}: the type must be one of {', '.join(_KINDS)}; got {named!r}"
        raise ValueError(msg)
    urls = [key for key in _URL_KEYS if entry.get(key) is not None]
    if (entry.get("command") is None) == (not urls) or len(urls) > 1:
        what = (
            f"it has {' and '.join(f'`{key}`' for key in ['command'] * ('command' in entry) + urls)}"
            if urls
            else "it has neither"
        )
        msg = f"{where}: an entry has either {_CHOICES}; {what}"
        raise ValueError(msg)
    kind = _KINDS[named] if named is not None else None
    if (kind == "stdio") is not (not urls) and kind is not None:
        msg = f"{where}: the type {named!r} does not go with `{urls[0] if urls else 'command'}`"
        raise ValueError(msg)
    if not urls:
        return "stdio"
    misplaced = [key for key in ("args", "env", "cwd") if entry.get(key)]
    if misplaced:
        logger.warning("{where}: {keys} are for servers with a `command`", where=where, keys=", ".join(misplaced))
    if kind is not None:
        return kind
    return "sse" if is_sse_url(str(entry[urls[0]])) else "http"


def is_sse_url(url: str) -> bool:
    """
    Tell whether a URL is that of an SSE endpoint, by its name.

    :param url: The URL.
    :returns: Whether its path ends in `/sse`.
    """
    return url.partition("?")[0].rstrip("/").endswith("/sse")


def _stdio(entry: Mapping[str, Any], where: str) -> StdioServerInfo:
    args = _expect(entry, "args", list, "a list of strings", where)
    cwd = _expect(entry, "cwd", (str, Secret), "a string", where)
    return StdioServerInfo(
        command=_value(_expect(entry, "command", (str, Secret), "a string", where), "command", where),
        args=None if args is None else [_value(arg, f"args[{n}]", where) for n, arg in enumerate(args)],
        env=_values(entry, "env", where),
        cwd=None if cwd is None else _value(cwd, "cwd", where),
    )


def _http(entry: Mapping[str, Any], kind: str, where: str) -> SSEServerInfo | StreamableHttpServerInfo:
    key = next(key for key in _URL_KEYS if entry.get(key) is not None)
    url = _value(_expect(entry, key, (str, Secret), "a string", where), key, where)
    headers = _values(entry, "headers", where)
    auth = "oauth" if entry.get("auth") == "oauth" else None
    if kind == "sse":
        return SSEServerInfo(url=url, headers=headers, auth=auth)
    named = any(entry.get(name) is not None for name in _KIND_KEYS) or key == "httpUrl"
    return StreamableHttpServerInfo(url=url, headers=headers, sse_fallback=not named, auth=auth)


def _values(entry: Mapping[str, Any], key: str, where: str) -> dict[str, str | Secret] | None:
    values = _expect(entry, key, Mapping, "an object of strings", where)
    return None if not values else {str(name): _value(value, f"{key}.{name}", where) for name, value in values.items()}


def _value(value: Any, place: str, where: str) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        msg = f"{where}: `{place}` must be a string, got {type(value).__name__}"
        raise ValueError(msg)
    if not isinstance(value, str):  # e.g. a port; most clients take it
        return str(value)
    try:
        return from_template(value)
    except ValueError as error:
        msg = f"{where}: in `{place}`, {error}"
        raise ValueError(msg) from None


def _tools(entry: Mapping[str, Any], keys: Sequence[str], where: str) -> list[str] | None:
    for key in keys:
        names = entry.get(key)
        if names is None or names == ["*"]:
            continue
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            msg = f"{where}: `{key}` must be a list of names of tools"
            raise ValueError(msg)
        return list(names)
    return None


def _expect(entry: Mapping[str, Any], key: str, kind: Any, what: str, where: str) -> Any:
    value = entry.get(key)
    if value is not None and not isinstance(value, kind):
        msg = f"{where}: `{key}` must be {what}, got {type(value).__name__}"
        raise ValueError(msg)
    return value
