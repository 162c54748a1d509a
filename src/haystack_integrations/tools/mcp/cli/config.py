# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, unquote_plus

import yaml
from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.files import Server, config_files, configured_in
from haystack_integrations.tools.mcp.cli.output import CommandError, ExitCode, Output
from haystack_integrations.tools.mcp.cli.targets import OutputOptions
from haystack_integrations.tools.mcp.mcp_json import variable_name
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_text, secrets_in
from haystack_integrations.tools.mcp.secret_template import from_template

_SCHEME = re.compile(r"(?i)((?:bearer|basic|token)\s+)\S+")

_FIELDS = ("command", "args", "env", "cwd", "url", "headers", "token")


def config(
    file: Annotated[Path | None, Parameter(help="The mcp.json. Default: that of this folder.")] = None,
    /,
    *servers: Annotated[str, Parameter(help="The names of the servers to print. Default: all.")],
    options: OutputOptions = OutputOptions(),
) -> ExitCode:
    """
    Check an mcp.json, and print the toolsets for it as YAML.

    The YAML goes under `tools` of an Agent or a ToolInvoker in a stored pipeline. Nothing is connected; 'mcp-haystack
    doctor FILE' does that. A secret that stands in the file is not printed: the YAML has an environment variable for
    it, which is named on stderr.
    """
    output = options.output
    path = file or _file_here()
    entries = configured_in(path)
    if unknown := [name for name in servers if name not in {entry.name for entry in entries}]:
        known = ", ".join(entry.name for entry in entries) or "none"
        msg = f"{path} has no server {', '.join(map(repr, unknown))}; it has {known}"
        raise CommandError(msg)
    chosen = [entry for entry in entries if not servers or entry.name in servers]
    if wrong := [entry for entry in chosen if entry.error is not None]:
        raise CommandError("\n".join(str(entry.error) for entry in wrong))
    toolsets = [_stored(entry, entry.toolset, output) for entry in chosen if entry.toolset is not None]
    if output.is_json:
        output.json({"tools": toolsets})
    else:
        output.text(yaml.safe_dump({"tools": toolsets}, sort_keys=False, allow_unicode=True, width=100))
    return ExitCode.OK


def _file_here() -> Path:
    here = [file for file in config_files() if not file.is_absolute()]
    if not here:
        msg = f"There is no mcp.json in {Path.cwd()}. Name a file: mcp-haystack config FILE"
        raise CommandError(msg)
    return here[0]


def _stored(entry: Server, toolset: MCPToolset, output: Output) -> dict[str, Any]:
    warnings = list(entry.warnings)
    if entry.missing:
        warnings.append(f"these environment variables are not set: {', '.join(entry.missing)}")
    info, variables = _without_plain_secrets(entry.name, toolset.server_info)
    warnings += [
        f"`{place}` has a secret in plain text. The YAML takes it from the environment "
        f"variable {variable}: set it, and write `${{{variable}}}` in the file, too."
        for place, variable in variables.items()
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
    Return the values of a server info in which a secret stands as plain text.

    :param info: The server info.
    :returns: The values by their places: the field, and the key or the number in it.
    """
    found: dict[tuple[str, Any], str] = {}
    for field in _FIELDS:
        value = getattr(info, field, None)
        # Of variables, only those that are named as secrets: the others are better read.
        secrets = secrets_in({"variables" if field == "env" else field: value}) - {""}
        items: Any = [(None, value)]
        if isinstance(value, Mapping | list | tuple):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            if not isinstance(item, str):
                continue
            forms = f"{item} {unquote(item)} {unquote_plus(item)}"  # in a URL, they may be encoded
            if any(secret in forms for secret in secrets) or (field != "env" and redact_text(item) != item):
                found[field, key] = item
    return found


def shown_place(field: str, key: Any) -> str:
    """
    Write a place in a server info.

    :param field: The field.
    :param key: The key or the number in it, if there is one.
    :returns: Such as `env.API_KEY` or `args[1]`.
    """
    return field if key is None else f"{field}[{key}]" if isinstance(key, int) else f"{field}.{key}"


def _without_plain_secrets(name: str, info: MCPServerInfo) -> tuple[MCPServerInfo, dict[str, str]]:
    """
    Replace the values with secrets in plain text by environment variables, which are returned by their places.
    """
    changes: dict[str, Any] = {}
    variables: dict[str, str] = {}
    for (field, key), value in plain_secrets(info).items():
        own = str(key) if field == "env" and str(key).isidentifier() else ""
        parts = [name, field if key is None else f"{field}_{key}" if isinstance(key, int) else str(key)]
        variable = variables[shown_place(field, key)] = own or "_".join(map(variable_name, parts))
        scheme = _SCHEME.fullmatch(value)
        template = from_template(f"{scheme[1] if scheme else ''}${{{variable}}}")
        if key is None:
            changes[field] = template
            continue
        whole = getattr(info, field)
        changes.setdefault(field, dict(whole) if isinstance(whole, Mapping) else list(whole))[key] = template
    return (dataclasses.replace(info, **changes) if variables else info), variables  # type: ignore[type-var]
