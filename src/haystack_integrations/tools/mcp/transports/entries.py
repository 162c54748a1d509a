# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An entry of `mcpServers`, as MCP clients write it in their configuration files, as a server info.

.. code-block:: text

    what is read as the server info    command, args, env, cwd; url, httpUrl, serverUrl, headers; type, transport
    what says about its tools          disabled, enabled, timeout, disabledTools, enabledTools, …: `EntrySettings`
    what only other clients can do     autoApprove, alwaysAllow, icon, …: passed over with a warning
    what is almost one of these        an error that names the closest key, because it may be a typo
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, is_number
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.http.server_info import SSEServerInfo, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.transports.stdio.server_info import StdioServerInfo

logger: logging.PatchedLogger = logging.getLogger(__name__)

# By what most clients say, the names that others have for it: Goose, Warp and opencode.
_COMMAND_KEYS = ("command", "cmd")
_ARGS_KEYS = ("args",)
ENV_KEYS = ("env", "envs", "environment")
_CWD_KEYS = ("cwd", "working_directory", "workingDirectory")
# Gemini CLI has `httpUrl` for Streamable HTTP next to `url` for SSE; Windsurf has `serverUrl`, Cherry Studio `baseUrl`,
# and Goose `uri`.
_URL_KEYS = ("url", "httpUrl", "serverUrl", "baseUrl", "endpoint", "uri")
# Continue has the headers in the second.
_HEADER_KEYS = ("headers", "requestOptions")
_KIND_KEYS = ("type", "transport", "transportType", "transport_type")
# A file of variables, as VS Code has; and, as Goose has, names of variables of the environment.
ENV_FILE, _ENV_NAMES = "envFile", "env_keys"
_STDIO_KEYS = (*_COMMAND_KEYS, *_ARGS_KEYS, *ENV_KEYS, *_CWD_KEYS, ENV_FILE, _ENV_NAMES)
_HTTP_KEYS = (*_URL_KEYS, *_HEADER_KEYS)
# An object that has one of these is an entry.
ENTRY_MARKS = frozenset({*_COMMAND_KEYS, *_URL_KEYS})

# Without capitals, hyphens, underscores and spaces.
_KINDS: dict[str, Literal["stdio", "http", "sse"]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "https": "http",
    "streamablehttp": "http",
    "streamable": "http",
    "httpstream": "http",
    "httpstreaming": "http",
    "httpstreamable": "http",
    "remote": "http",
    "sse": "sse",
    "httpsse": "sse",
}
_KIND_CHOICES = "stdio, http (streamable-http) and sse"
# What is part of its client: in Goose and Cherry Studio.
_BUILT_IN = frozenset({"builtin", "platform", "frontend", "inlinepython", "inmemory"})

# Whether the server is to be used, by what says that it is not.
_DISABLED_BY = {"disabled": True, "enabled": False, "isActive": False}

# Lists of tools by the names that clients have for them. An empty list of Goose's is all.
_AVAILABLE_TOOLS = "available_tools"
_ONLY_TOOLS_KEYS = ("enabledTools", "includeTools", "allowedTools", "enabled_tools", "tools", _AVAILABLE_TOOLS)
_NOT_TOOLS_KEYS = ("disabledTools", "excludeTools", "disabled_tools")

# Ours: what a toolset takes, under the names of its parameters.
_TOOLSET_KEYS = (
    "tool_name_prefix",
    "required",
    "connection_timeout",
    "invocation_timeout",
    "tool_options",
    "tool_selection",
    "tool_overrides",
    "call_options",
    "snapshot",
    "on_drift",
    "on_tool_error",
    "max_tool_failures",
    "include_instructions",
)

_MILLISECONDS_KEYS = ("timeoutMs", "timeout_ms")

_SETTINGS_KEYS = (*_DISABLED_BY, "timeout", *_ONLY_TOOLS_KEYS, *_NOT_TOOLS_KEYS, *_TOOLSET_KEYS)

_KNOWN_KEYS = (*_STDIO_KEYS, *_HTTP_KEYS, *_KIND_KEYS, *_SETTINGS_KEYS, *_MILLISECONDS_KEYS)

# By how many letters a misspelled key is longer or shorter at most. Others are keys of other clients.
_MOST_LETTERS = 2

_CHOICES = "`command` with `args`, `env` and `cwd`, or `url` with `headers` and `type`"

# In larger numbers than this, a `timeout` is in milliseconds, as in the files of Gemini CLI and others; Cline's is in
# seconds. A call of more than an hour is not what anybody means.
_LONGEST_IN_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class EntrySettings:
    """
    What an entry says beyond how to reach the server.

    :param disabled: Whether the server is not to be used, or is part of its client.
    :param only_tools: The tools to load; None for all.
    :param not_tools: The tools to leave out.
    :param parameters: Parameters of the toolset by their names.
    """

    disabled: bool
    only_tools: list[str] | None
    not_tools: list[str]
    parameters: dict[str, Any]


@contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        msg = f"{where}: {error}"
        raise ValueError(msg) from None


def server_info_of(entry: Mapping[str, Any], where: str) -> MCPServerInfo:
    """
    Make the server info of an entry.

    :param entry: The entry.
    :param where: Where it stands, for messages.
    :returns: The server info, with variables as Secrets.
    :raises ValueError: If the entry has an unknown key, lacks one, or has one of the wrong type.
    """
    with _at(where):
        _check_keys(entry)
        kind = _kind(entry)
        misplaced = [key for key in (*_ARGS_KEYS, *ENV_KEYS, *_CWD_KEYS) if entry.get(key)]
        if misplaced and not _given(entry, _COMMAND_KEYS):
            logger.warning("{where}: {keys} are for servers with a `command`", where=where, keys=", ".join(misplaced))
        return _stdio(entry) if kind == "stdio" else _http(entry, kind)


def settings_of(entry: Mapping[str, Any], where: str) -> EntrySettings:
    """
    Read what an entry says beyond how to reach the server.

    :param entry: The entry.
    :param where: Where it stands, for messages.
    :returns: The settings. Of an entry that is disabled, nothing else is looked at.
    :raises ValueError: If one is of the wrong type.
    """
    with _at(where):
        _check_object(entry)
        if any(entry.get(key) is off for key, off in _DISABLED_BY.items()) or _named_kind(entry) in _BUILT_IN:
            return EntrySettings(disabled=True, only_tools=None, not_tools=[], parameters={})
        _check_keys(entry)
        for key in (*_DISABLED_BY, "required"):
            _expect(entry, key, bool, "true or false")
        parameters = {key: entry[key] for key in _TOOLSET_KEYS if entry.get(key) is not None}
        for key in ("timeout", *_MILLISECONDS_KEYS):
            timeout = entry.get(key)
            if timeout is None:
                continue
            if not is_number(timeout) or timeout <= 0:
                _refuse(f"`{key}` must be a number greater than 0, got {timeout!r}")
            is_in_seconds = key == "timeout" and timeout <= _LONGEST_IN_SECONDS
            parameters.setdefault("invocation_timeout", float(timeout) if is_in_seconds else timeout / 1000)
        return EntrySettings(
            disabled=False,
            only_tools=_tools(entry, _ONLY_TOOLS_KEYS),
            not_tools=_tools(entry, _NOT_TOOLS_KEYS) or [],
            parameters=parameters,
        )


def foreign_keys(entry: Mapping[str, Any]) -> list[str]:
    """
    Name the keys of an entry that mean nothing here.

    :param entry: The entry.
    :returns: The keys.
    """
    passed_over = [str(key) for key in entry if key not in _KNOWN_KEYS]
    return [*passed_over, ENV_FILE] if entry.get(ENV_FILE) and not _given(entry, _COMMAND_KEYS) else passed_over


def _refuse(msg: str) -> NoReturn:
    raise ValueError(msg)


def _check_object(entry: Any) -> None:
    if not isinstance(entry, Mapping):
        _refuse(f"an entry is an object with {_CHOICES}; got {type(entry).__name__}")


def _check_keys(entry: Mapping[str, Any]) -> None:
    _check_object(entry)
    for key in entry:
        meant = None if key in _KNOWN_KEYS else _meant_by(_folded(str(key)))
        if meant is not None:
            keys = f"{_CHOICES}; and {', '.join(_SETTINGS_KEYS)}"
            _refuse(f"unknown key {key!r}. Did you mean `{meant}`? An entry has {keys}.")


def _folded(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.casefold())


def _meant_by(key: str) -> str | None:
    """
    Find the key of which another is a misspelling: by letters in the wrong order, or by one or two of them.
    """
    known = {_folded(each): each for each in reversed(_KNOWN_KEYS)}
    close = [each for each in known if sorted(each) == sorted(key)] or difflib.get_close_matches(key, known, 1, 0.8)
    return known[close[0]] if close and abs(len(close[0]) - len(key)) <= _MOST_LETTERS else None


def _given(entry: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    # Some clients write all keys, and leave those empty that they do not use.
    return [key for key in keys if entry.get(key) not in (None, "")]


def _named_kind(entry: Mapping[str, Any]) -> Any:
    named = next((entry[key] for key in _KIND_KEYS if entry.get(key) is not None), None)
    return _folded(named) if isinstance(named, str) else named


def _kind(entry: Mapping[str, Any]) -> Literal["stdio", "http", "sse"]:
    named = _named_kind(entry)
    kind = _KINDS.get(named) if isinstance(named, str) else None
    if named is not None and kind is None:
        given = next(entry[key] for key in _KIND_KEYS if entry.get(key) is not None)
        _refuse(f"the type must be one of {_KIND_CHOICES}; got {given!r}")
    commands, urls = _given(entry, _COMMAND_KEYS), _given(entry, _URL_KEYS)
    if commands and urls and kind is not None:
        return kind
    if bool(commands) == bool(urls) or len(urls) > 1:
        what = f"it has {' and '.join(f'`{key}`' for key in commands + urls)}" if urls else "it has neither"
        _refuse(f"an entry has either {_CHOICES}; {what}")
    if kind is not None and (kind == "stdio") is bool(urls):
        _refuse(f"the type {named!r} does not go with `{[*urls, *commands][0]}`")
    if not urls:
        return "stdio"
    return kind or ("sse" if is_sse_url(str(entry[urls[0]])) else "http")


def is_sse_url(url: str) -> bool:
    """
    Tell whether a URL is that of an SSE endpoint, by its name.

    :param url: The URL.
    :returns: Whether its path ends in `/sse`.
    """
    return url.partition("?")[0].rstrip("/").endswith("/sse")


def _stdio(entry: Mapping[str, Any]) -> StdioServerInfo:
    key = _given(entry, _COMMAND_KEYS)[0]
    command = _expect(entry, key, (str, Secret, list), "a string")
    args = _expect(entry, "args", list, "a list of strings")
    if isinstance(command, list):  # as in opencode, with the arguments
        if not command:
            _refuse(f"`{key}` must not be empty")
        command, args = command[0], [*command[1:], *(args or ())]
    cwd = next(iter(_given(entry, _CWD_KEYS)), "cwd")
    folder = _expect(entry, cwd, (str, Secret), "a string")
    env = _values(entry, next(iter(_given(entry, ENV_KEYS)), "env"))
    for name in _expect(entry, _ENV_NAMES, list, "a list of strings") or ():
        env.setdefault(str(name), Secret.from_env_var(str(name)))
    return StdioServerInfo(
        command=_value(command, key),
        args=None if args is None else [_value(arg, f"args[{n}]") for n, arg in enumerate(args)],
        env=env or None,
        cwd=None if folder in (None, "") else _value(folder, cwd),
    )


def _http(entry: Mapping[str, Any], kind: str) -> SSEServerInfo | StreamableHttpServerInfo:
    key = _given(entry, _URL_KEYS)[0]
    url = _value(_expect(entry, key, (str, Secret), "a string"), key)
    options = _expect(entry, "requestOptions", Mapping, "an object") or {}
    headers = {**_values(options, "headers"), **_values(entry, "headers")} or None
    auth = entry.get("auth")
    auth = auth.lower() if isinstance(auth, str) else ""
    if auth not in ("", "none", "oauth"):
        _refuse(
            '`auth` must be "oauth". Pass a bearer token in `headers`, as {"Authorization": "Bearer ${API_TOKEN}"}, '
            "which is `token=` in Python"
        )
    auth = auth if auth == "oauth" else None
    if kind == "sse":
        return SSEServerInfo(url=url, headers=headers, auth=auth)
    is_named = _named_kind(entry) is not None or key == "httpUrl"
    return StreamableHttpServerInfo(url=url, headers=headers, sse_fallback=not is_named, auth=auth)


def _values(entry: Mapping[str, Any], key: str) -> dict[str, str | Secret]:
    values = _expect(entry, key, Mapping, "an object of strings") or {}
    return {str(name): _value(value, f"{key}.{name}") for name, value in values.items() if value is not None}


def _value(value: Any, place: str) -> str | Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, (str, int, float)):
        _refuse(f"`{place}` must be a string, got {type(value).__name__}")
    if not isinstance(value, str):  # e.g. a port or a switch; most clients take it
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return from_template(value)
    except ValueError as error:
        _refuse(f"in `{place}`, {error}")


def _tools(entry: Mapping[str, Any], keys: Sequence[str]) -> list[str] | None:
    for key in keys:
        names = entry.get(key)
        if names is None or names == ["*"] or (key == _AVAILABLE_TOOLS and not names):
            continue
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            _refuse(f"`{key}` must be a list of names of tools")
        return names
    return None


def _expect(entry: Mapping[str, Any], key: str, kind: Any, what: str) -> Any:
    value = entry.get(key)
    if value is not None and not isinstance(value, kind):
        _refuse(f"`{key}` must be {what}, got {type(value).__name__}")
    return value
