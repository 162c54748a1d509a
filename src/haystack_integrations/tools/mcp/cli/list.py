# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.exit_codes import ExitCode, exit_code_of, for_terminal
from haystack_integrations.tools.mcp.cli.files import Server
from haystack_integrations.tools.mcp.cli.output import Output, one_line, prompts_table, resources_table, tools_table
from haystack_integrations.tools.mcp.cli.targets import (
    TARGET,
    ServerOptions,
    connected,
    for_each,
    server_of,
    servers_of,
)


def list_tools(
    target: Annotated[
        str | None,
        Parameter(help=f"{TARGET} Of a file, all servers are listed. Default: the files in which names are looked up."),
    ] = None,
    /,
    *,
    resources: bool = False,
    prompts: bool = False,
    options: ServerOptions = ServerOptions(),
) -> ExitCode:
    """
    List what a server offers: its tools and, if asked, its resources and prompts.

    Of several servers, those that cannot be used are skipped with a note, and in JSON they are by their names under
    `servers`.

    :param resources: List resources and resource templates, too.
    :param prompts: List prompts, too.
    """
    output = options.output

    def offer(server: Server, output: Output | None = None) -> dict[str, Any]:
        with connected(server, options, output) as session:
            found: dict[str, Any] = {"tools": session.tools}
            if resources:
                found["resources"] = session.connection.list_resources()
                found["resourceTemplates"] = session.connection.list_resource_templates()
            if prompts:
                found["prompts"] = session.connection.list_prompts()
        return found

    def offer_or_error(server: Server) -> dict[str, Any] | Exception:
        try:
            return offer(server)
        except Exception as error:
            if exit_code_of(error) is None:
                raise
            return error

    servers = [server for server in servers_of(target, options) if not server.is_disabled]
    if target is not None and len(servers) <= 1:
        found = offer(server_of(target, options), output)
        if output.is_json:
            output.json(found)
        else:
            _print(output, found)
        return ExitCode.OK

    reports: dict[str, Any] = {}
    failures: list[ExitCode | None] = []
    for server, offered in zip(servers, for_each(offer_or_error, servers, output), strict=True):
        if isinstance(offered, Exception):
            text = for_terminal(offered)
            output.note(f"Skipped {one_line(server.name)}: {text}", style="yellow")
            reports[server.name] = {"error": {"type": type(offered).__name__, "message": text}}
            failures.append(exit_code_of(offered))
            continue
        reports[server.name] = offered
        if not output.is_json:
            output.print(one_line(server.name), style="bold cyan")
            _print(output, offered)
            output.print()
    if output.is_json:
        output.json({"servers": reports})
    return failures[0] or ExitCode.FAILED if failures and len(failures) == len(servers) else ExitCode.OK


def _print(output: Output, found: dict[str, Any]) -> None:
    output.print(tools_table(found["tools"]) if found["tools"] else "The server has no tools.")
    if "resources" in found:
        everything = [*found["resources"], *found["resourceTemplates"]]
        output.print()
        output.print(resources_table(everything) if everything else "The server has no resources.")
    if "prompts" in found:
        output.print()
        output.print(prompts_table(found["prompts"]) if found["prompts"] else "The server has no prompts.")
