# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from haystack_integrations.tools.mcp.cli.output import (
    Output,
    one_line,
    prompts_table,
    resources_table,
    schema_table,
    visible,
)
from haystack_integrations.tools.mcp.cli.targets import (
    OUTPUT,
    ServerOptions,
    Target,
    connected,
    named,
    server_of,
)
from haystack_integrations.tools.mcp.snapshot.snapshot import MCPToolSnapshot

if TYPE_CHECKING:
    import mcp_types as types

# What a tool says of itself, in words. The last value is what the protocol assumes without a hint.
_HINTS = {
    "read_only_hint": ("only reads", "changes things"),
    "destructive_hint": ("may destroy", "only adds"),
    "idempotent_hint": ("may be repeated", "not to be repeated"),
    "open_world_hint": ("reaches the outside", "stays inside"),
}


def inspect(
    target: Target,
    /,
    *,
    tool: Annotated[str | None, Parameter(metavar="NAME", group=OUTPUT)] = None,
    snapshot: Annotated[Path | None, Parameter(metavar="FILE", group=OUTPUT)] = None,
    options: ServerOptions = ServerOptions(),
) -> None:
    """
    Show all about a server.

    That is: protocol, latency, capabilities, tools with their schemas and what they say of themselves, resources,
    prompts and skills.

    :param tool: Show this tool only.
    :param snapshot: Write a snapshot of the tools into this file, for doctor --check and MCPToolset(snapshot=...).
    """
    output = options.output
    server = server_of(target, options)
    with connected(server, options, output) as (connection, tools, seconds):
        chosen = tools if tool is None else [named("tool", tool, tools)]
        if snapshot is not None:
            MCPToolSnapshot.capture(connection).save(snapshot)
            output.note(f"Saved {snapshot}")
        started = time.monotonic()
        connection.list_tools()
        listing = time.monotonic() - started
        status = connection.status()
        report = {
            "target": server.name,
            "reachedBy": server.usable().describe(),
            "server": connection.implementation,
            "protocolVersion": status.protocol_version,
            "latency": {"connectSeconds": round(seconds, 3), "listToolsSeconds": round(listing, 3)},
            "capabilities": status.capabilities or {},
            "extensions": status.extensions or {},
            "instructions": connection.instructions,
            "tools": chosen,
            "resources": connection.list_resources(),
            "resourceTemplates": connection.list_resource_templates(),
            "prompts": connection.list_prompts(),
            "skills": [{"name": skill.name, "uri": skill.uri} for skill in connection.list_skills()],
        }
    if output.is_json:
        output.json(report)
        return
    if tool is None:
        _print_server(output, report)
    for each in chosen:
        _print_tool(output, each)
    if tool is None:
        _print_rest(output, report)


def _print_server(output: Output, report: dict[str, Any]) -> None:
    server, latency = report["server"], report["latency"]
    capabilities = []
    for name, details in report["capabilities"].items():
        if details is not None and name not in ("extensions", "experimental"):
            switched_on = [key for key, value in details.items() if value] if isinstance(details, dict) else []
            capabilities.append(f"{name} ({', '.join(switched_on)})" if switched_on else name)
    facts = {
        "Server": " ".join(filter(None, [server.name, server.version])) if server else "unnamed",
        "Title": server.title if server else None,
        "Reached by": report["reachedBy"],
        "Protocol": report["protocolVersion"],
        "Latency": f"{latency['connectSeconds'] * 1000:.0f} ms to connect, "
        f"{latency['listToolsSeconds'] * 1000:.0f} ms to list the tools",
        "Capabilities": ", ".join(capabilities) or "none",
        "Extensions": ", ".join(key for key, each in report["extensions"].items() if each["server"] is not None),
        "Instructions": report["instructions"],
        "Tools": str(len(report["tools"])),
        "Resources": f"{len(report['resources'])}, and {len(report['resourceTemplates'])} templates",
        "Prompts": str(len(report["prompts"])),
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
    arguments = schema_table(tool.input_schema, "Argument")
    output.print(arguments if arguments is not None else Text("No arguments", style="dim"))
    if tool.output_schema:
        result = schema_table(tool.output_schema, "Result")
        if result is not None:
            output.print(result)


def _print_rest(output: Output, report: dict[str, Any]) -> None:
    resources = [*report["resources"], *report["resourceTemplates"]]
    if resources:
        output.print()
        output.print(resources_table(resources))
    if report["prompts"]:
        output.print()
        output.print(prompts_table(report["prompts"]))
    for skill in report["skills"]:
        output.print(f"Skill {one_line(skill['name'])}  {one_line(skill['uri'])}")
