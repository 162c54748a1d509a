# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import yaml
from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError, ExitCode
from haystack_integrations.tools.mcp.cli.files import CheckedEntry, checked_entries, config_files
from haystack_integrations.tools.mcp.cli.options import Json
from haystack_integrations.tools.mcp.cli.output import Output
from haystack_integrations.tools.mcp.cli.plain_secrets import without_plain_secrets
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo


def config(
    file: Annotated[
        Path | None, Parameter(show_default=False, help="The mcp.json. Default: that of this folder.")
    ] = None,
    /,
    *servers: Annotated[str, Parameter(help="The names of the servers to print. Default: all.")],
    json: Json = False,
) -> ExitCode:
    """
    Check an mcp.json, and print the toolsets for it as YAML.

    The YAML goes under `tools` of an Agent or a ToolInvoker in a stored pipeline. Nothing is connected; 'mcp-haystack
    doctor FILE' does that. A secret that stands in the file is not printed: the YAML has an environment variable for
    it, which is named on stderr.

    :param json: Print JSON instead of YAML.
    """
    output = Output(is_json=json)
    path = file or _file_here()
    entries = checked_entries(path)
    if unknown := [name for name in servers if name not in {entry.name for entry in entries}]:
        known = ", ".join(entry.name for entry in entries) or "none"
        msg = f"{path} has no server {', '.join(map(repr, unknown))}; it has {known}"
        raise CommandError(msg)
    chosen = [entry for entry in entries if not servers or entry.name in servers]
    if wrong := [entry for entry in chosen if entry.error is not None]:
        raise CommandError("\n".join(str(entry.error) for entry in wrong))
    toolsets = [_stored(entry, output) for entry in chosen if entry.toolset is not None]
    if json:
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


def _stored(entry: CheckedEntry, output: Output) -> dict[str, Any]:
    toolset = entry.toolset
    if toolset is None:
        return {}
    for warning in entry.warnings:
        output.note(f"Warning: {entry.place}: {warning}", style="yellow")
    if entry.missing:
        missing = ", ".join(entry.missing)
        output.note(f"Warning: {entry.place}: these environment variables are not set: {missing}", style="yellow")
    info, variables = without_plain_secrets(entry.name, toolset.server_info)
    for variable, place in variables.items():
        output.note(
            f"Warning: {entry.place}: `{place}` has a secret in plain text. The YAML takes it from the environment "
            f"variable {variable}: set it, and write `${{{variable}}}` in the file, too.",
            style="yellow",
        )
    stored = toolset.to_dict()
    stored["data"]["server_info"] = info.to_dict()
    short = {"type": stored["type"], "data": _without_defaults(stored["data"], info)}
    # What is left out must mean the same.
    return short if MCPToolset.from_dict(short).to_dict() == stored else stored


def _without_defaults(data: dict[str, Any], info: MCPServerInfo) -> dict[str, Any]:
    default = MCPToolset(info).to_dict()["data"]
    missing = object()
    changed = {key: value for key, value in data.items() if value != default.get(key, missing)}
    defaults = {field.name: field.default for field in dataclasses.fields(info)}  # type: ignore[arg-type]
    stored = {key: value for key, value in data["server_info"].items() if value != defaults.get(key, missing)}
    return {"server_info": stored, **changed}
