# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`list` and `inspect`: the tools, resources and prompts of servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from haystack_integrations.tools.mcp.cli.call import describe_type, properties_of, required_in, signature
from haystack_integrations.tools.mcp.cli.files import Server
from haystack_integrations.tools.mcp.cli.output import (
    OUTPUT,
    ExitCode,
    Output,
    exit_code_of,
    for_terminal,
    one_line,
    table,
    visible,
)
from haystack_integrations.tools.mcp.cli.targets import (
    TARGET,
    ServerOptions,
    Target,
    TargetText,
    for_each,
    open_session,
    server_of,
    servers_of,
)
from haystack_integrations.tools.mcp.snapshot import MCPToolSnapshot

if TYPE_CHECKING:
    import mcp_types as types

# The annotations of a tool in words, if true and if false.
_HINTS = {
    "read_only_hint": ("only reads", "changes things"),
    "destructive_hint": ("may destroy", "only adds"),
    "idempotent_hint": ("may be repeated", "not to be repeated"),
    "open_world_hint": ("reaches the outside", "stays inside"),
}


def list_tools(
    target: Annotated[
        TargetText | None,
        Parameter(help=f"{TARGET} All servers of a file are listed. Default: the files in which names are looked up."),
    ] = None,
    /,
    *,
    resources: bool = False,
    prompts: bool = False,
    options: ServerOptions = ServerOptions(),
) -> ExitCode:
    """
    List what a server offers: its tools and, if asked, its resources and prompts.

    If there are several servers, unusable ones are skipped with a note, and JSON has each server by its name under
    `servers`.

    :param resources: Also list resources and resource templates.
    :param prompts: Also list prompts.
    """
    output = options.output
    servers = [server for server in servers_of(target, options) if not server.is_disabled]
    is_one = target is not None and len(servers) <= 1
    if target is not None and not servers:
        servers = [server_of(target, options)]  # it is disabled, which `open_session` reports

    def offer(server: Server) -> dict[str, Any] | Exception:
        try:
            with open_session(server, options) as session:
                found: dict[str, Any] = {"tools": session.tools}
                if resources:
                    found["resources"] = session.connection.list_resources()
                    found["resourceTemplates"] = session.connection.list_resource_templates()
                if prompts:
                    found["prompts"] = session.connection.list_prompts()
        except Exception as error:
            if is_one or exit_code_of(error) is None:
                raise
            return error
        return found

    reports: dict[str, Any] = {}
    failures: list[ExitCode | None] = []
    for server, offered in zip(servers, for_each(offer, servers), strict=True):
        if isinstance(offered, Exception):
            text = for_terminal(offered)
            output.note(f"Skipped {one_line(server.name)}: {text}", style="yellow")
            reports[server.name] = {"error": {"type": type(offered).__name__, "message": text}}
            failures.append(exit_code_of(offered))
            continue
        reports[server.name] = offered
        if not output.is_json:
            if not is_one:
                output.print(one_line(server.name), style="bold cyan")
            _print_offer(output, offered)
            if not is_one:
                output.print()
    if output.is_json:
        output.json(reports[servers[0].name] if is_one else {"servers": reports})
    return failures[0] or ExitCode.FAILED if failures and len(failures) == len(servers) else ExitCode.OK


def _print_offer(output: Output, found: dict[str, Any]) -> None:
    if "tools" in found:
        tools = [
            (each.name, signature(each.input_schema), each.description or each.title or "") for each in found["tools"]
        ]
        output.print(table(("Tool", "Arguments", "Description"), tools, "The server has no tools."))
    if "resources" in found:
        resources = [_resource_row(each) for each in (*found["resources"], *found["resourceTemplates"])]
        output.print()
        output.print(table(("Resource", "Type", "Description"), resources, "The server has no resources."))
    if "prompts" in found:
        prompts = [
            (
                each.name,
                ", ".join(f"{argument.name}{'' if argument.required else '?'}" for argument in each.arguments or ()),
                each.description or each.title or "",
            )
            for each in found["prompts"]
        ]
        output.print()
        output.print(table(("Prompt", "Arguments", "Description"), prompts, "The server has no prompts."))


def _resource_row(resource: types.Resource | types.ResourceTemplate) -> tuple[str, str, str]:
    uri = str(getattr(resource, "uri", None) or getattr(resource, "uri_template", ""))
    return uri, resource.mime_type or "", resource.description or resource.title or resource.name


def inspect(
    target: Target,
    /,
    *,
    snapshot: Annotated[Path | None, Parameter(metavar="FILE", group=OUTPUT)] = None,
    options: ServerOptions = ServerOptions(),
) -> None:
    """
    Show everything about a server.

    This includes its protocol, capabilities, tools with their schemas and annotations, resources, prompts and skills.

    :param snapshot: Write a snapshot of the tools into this file, for doctor --check and MCPToolset(snapshot=...).
    """
    output = options.output
    server = server_of(target, options)
    with open_session(server, options) as (connection, tools, _):
        if snapshot is not None:
            MCPToolSnapshot.capture(connection).save(snapshot)
            output.note(f"Saved {snapshot}")
        status = connection.status()
        report: dict[str, Any] = {
            "target": server.name,
            "reachedBy": server.usable().describe(),
            "server": connection.implementation,
            "protocolVersion": status.protocol_version,
            "capabilities": status.capabilities or {},
            "extensions": status.extensions or {},
            "instructions": connection.instructions,
            "tools": tools,
            "resources": connection.list_resources(),
            "resourceTemplates": connection.list_resource_templates(),
            "prompts": connection.list_prompts(),
            "skills": [{"name": skill.name, "uri": skill.uri} for skill in connection.list_skills()],
        }
    if output.is_json:
        output.json(report)
        return
    _print_server(output, report)
    for tool in tools:
        _print_tool(output, tool)
    _print_offer(output, {key: report[key] for key in ("resources", "resourceTemplates", "prompts")})
    for skill in report["skills"]:
        output.print(f"Skill {one_line(skill['name'])}  {one_line(skill['uri'])}")


def _print_server(output: Output, report: dict[str, Any]) -> None:
    server, known = report["server"], report["capabilities"]
    capabilities = [name for name in known if known[name] is not None and name not in ("extensions", "experimental")]
    facts = {
        "Server": " ".join(filter(None, [server.name, server.version])) if server else "unnamed",
        "Title": server.title if server else None,
        "Reached by": report["reachedBy"],
        "Protocol": report["protocolVersion"],
        "Capabilities": ", ".join(capabilities) or "none",
        "Extensions": ", ".join(key for key, each in report["extensions"].items() if each["server"] is not None),
        "Instructions": report["instructions"],
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for fact, value in facts.items():
        if value:
            grid.add_row(fact, Text(visible(value)))
    output.print(grid)


def _print_tool(output: Output, tool: types.Tool) -> None:
    output.print()
    heading = Text(one_line(tool.name), style="bold cyan")
    if tool.title and tool.title != tool.name:
        heading.append(f"  {one_line(tool.title)}", style="not bold")
    output.print(heading)
    if tool.description:
        output.print(Text(visible(tool.description)))
    annotations = {name: getattr(tool.annotations, name, None) for name in _HINTS}
    hints = [_HINTS[name][0 if value else 1] for name, value in annotations.items() if value is not None]
    if hints:
        output.print(Text(f"Says of itself: {', '.join(hints)}", style="dim"))
    output.print(_schema_table(tool.input_schema, "Argument", "No arguments"))
    if properties_of(tool.output_schema or {}):
        output.print(_schema_table(tool.output_schema or {}, "Result", ""))


def _schema_table(schema: Mapping[str, Any], heading: str, otherwise: str) -> Table | str:
    required = required_in(schema)
    rows = []
    for name, each in properties_of(schema).items():
        default = each.get("default")
        optional = "no" if default is None else f"default: {json.dumps(default, ensure_ascii=False)}"
        need = "yes" if name in required else optional
        rows.append((name, describe_type(each, schema), need, each.get("description", "")))
    return table((heading, "Type", "Required", "Description"), rows, otherwise)
