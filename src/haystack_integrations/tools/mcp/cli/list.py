# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.exit_codes import ExitCode, exit_code_of, for_terminal
from haystack_integrations.tools.mcp.cli.files import Entry
from haystack_integrations.tools.mcp.cli.output import Output, one_line, prompts_table, resources_table, tools_table
from haystack_integrations.tools.mcp.cli.targets import (
    OUTPUT,
    TARGET,
    Json,
    Reach,
    Server,
    Verbose,
    connected,
    for_each,
    server_of,
    several_of,
)

_Also = Annotated[bool, Parameter(negative="", show_default=False, group=OUTPUT)]


def list_tools(
    target: Annotated[
        str | None,
        Parameter(help=f"{TARGET} Of a file, all servers are listed. Default: the files in which names are looked up."),
    ] = None,
    /,
    *,
    resources: _Also = False,
    prompts: _Also = False,
    reach: Reach | None = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - read before the command runs
) -> ExitCode:
    """
    List what a server offers: its tools and, if asked, its resources and prompts.

    Of several servers, those that cannot be used are skipped with a note.

    :param resources: List resources and resource templates, too.
    :param prompts: List prompts, too.
    :param json: Print JSON: the objects of the protocol; of several servers, by their names under `servers`.
    """
    reach = reach or Reach()
    output = Output(is_json=json)
    entries = several_of(target, reach)
    if entries is not None:
        return _list_all(entries, reach, output, resources, prompts)
    found = _found(server_of(target or "", reach), reach, output, resources, prompts)
    if json:
        output.json(found)
    else:
        _print(output, found)
    return ExitCode.OK


def _list_all(entries: Sequence[Entry], reach: Reach, output: Output, resources: bool, prompts: bool) -> ExitCode:
    quiet = Output(is_silent=True)

    def look(entry: Entry) -> dict[str, Any] | Exception:
        try:
            return _found(Server(entry.name, reach.apply(entry.usable())), reach, quiet, resources, prompts)
        except Exception as error:
            if exit_code_of(error) is None:
                raise
            return error

    looked = for_each(look, entries, output)
    reports: dict[str, Any] = {}
    for entry, found in zip(entries, looked, strict=True):
        if isinstance(found, Exception):
            text = for_terminal(found)
            output.note(f"Skipped {one_line(entry.name)}: {text}", style="yellow")
            reports[entry.name] = {"error": {"type": type(found).__name__, "message": text}}
            continue
        reports[entry.name] = found
        if not output.is_json:
            output.print(one_line(entry.name), style="bold cyan")
            _print(output, found)
            output.print()
    if output.is_json:
        output.json({"servers": reports})
    failures = [found for found in looked if isinstance(found, Exception)]
    is_failure = bool(failures) and len(failures) == len(looked)
    return exit_code_of(failures[0]) or ExitCode.FAILED if is_failure else ExitCode.OK


def _found(server: Server, reach: Reach, output: Output, resources: bool, prompts: bool) -> dict[str, Any]:
    with connected(server, reach, output) as session:
        found: dict[str, Any] = {"tools": session.tools}
        if resources:
            found["resources"] = session.connection.list_resources()
            found["resourceTemplates"] = session.connection.list_resource_templates()
        if prompts:
            found["prompts"] = session.connection.list_prompts()
    return found


def _print(output: Output, found: dict[str, Any]) -> None:
    output.print(tools_table(found["tools"]) if found["tools"] else "The server has no tools.")
    if "resources" in found:
        output.print()
        everything = [*found["resources"], *found["resourceTemplates"]]
        output.print(resources_table(everything) if everything else "The server has no resources.")
    if "prompts" in found:
        output.print()
        output.print(prompts_table(found["prompts"]) if found["prompts"] else "The server has no prompts.")
