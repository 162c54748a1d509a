# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.check_environment import check_environment
from haystack_integrations.tools.mcp.cli.check_server import check_server, load_snapshot
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError, ExitCode
from haystack_integrations.tools.mcp.cli.files import CheckedEntry, checked_entries
from haystack_integrations.tools.mcp.cli.findings import Finding, State, counted, exit_code_for, print_findings
from haystack_integrations.tools.mcp.cli.options import TARGET, Json, Reach, Verbose
from haystack_integrations.tools.mcp.cli.output import Output
from haystack_integrations.tools.mcp.cli.plain_secrets import without_plain_secrets
from haystack_integrations.tools.mcp.cli.side_by_side import side_by_side
from haystack_integrations.tools.mcp.cli.targets import Server, servers_of


def doctor(
    target: Annotated[
        str | None,
        Parameter(help=f"{TARGET} Of a file, all servers are looked at. Default: this machine.", show_default=False),
    ] = None,
    /,
    *,
    check: Annotated[Path | None, Parameter(metavar="FILE", show_default=False)] = None,
    reach: Reach | None = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - read before the command runs
) -> ExitCode:
    """
    Find out what is wrong with a server, a configuration file or this machine, and what to do.

    The exit code is 0 if there is no problem, so that it serves as a health check.

    :param check: A snapshot of 'mcp-haystack inspect --snapshot'. Tools that are different now are a problem.
    :param json: Print JSON: a list of findings.
    """
    reach = reach or Reach()
    output = Output(is_json=json)
    if check is not None and target is None:
        msg = "--check needs a target: the server whose tools are to be as in the snapshot"
        raise CommandError(msg)
    findings = list(check_environment()) if target is None else _of_target(target, check, reach, output)
    code = exit_code_for(findings)
    if json:
        output.json({"ok": code is ExitCode.OK, "findings": [finding.to_dict() for finding in findings]})
        return code
    print_findings(output, findings)
    problems = sum(finding.state is State.PROBLEM for finding in findings)
    warnings = sum(finding.state is State.WARNING for finding in findings)
    output.print(
        f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}", style="red" if problems else "green"
    )
    return code


def _of_target(target: str, check: Path | None, reach: Reach, output: Output) -> list[Finding]:
    snapshot = None if check is None else load_snapshot(check)
    findings: dict[str, list[Finding]] = {}
    servers: list[Server] = []
    if Path(target).is_file() and Path(target).suffix in (".json", ".jsonc"):
        for entry in checked_entries(Path(target)):
            findings[entry.name] = list(_of_entry(entry))
            if entry.toolset is not None and not entry.missing:
                servers.append(Server(entry.name, reach.apply(entry.toolset.server_info)))
    else:
        servers = servers_of(target, reach)
    if snapshot is not None and len(servers) != 1:
        msg = f"--check is for one server, and {target} has {len(servers)}: name one, as in {target}:NAME"
        raise CommandError(msg)
    quiet = Output(is_silent=True)
    with output.busy("Looking at the servers"):
        looked = side_by_side(lambda server: list(check_server(server, reach, quiet, snapshot)), servers)
    for server, found in zip(servers, looked, strict=True):
        findings.setdefault(server.name, []).extend(found)
    return [finding for found in findings.values() for finding in found]


def _of_entry(entry: CheckedEntry) -> Iterator[Finding]:
    for warning in entry.warnings:
        yield Finding(entry.name, State.WARNING, warning)
    if entry.error is not None:
        yield Finding(entry.name, State.PROBLEM, entry.error, code=ExitCode.USAGE)
        return
    if entry.toolset is None:
        yield Finding(entry.name, State.OK, "It is disabled")
        return
    if entry.missing:
        text = f"These environment variables are not set: {', '.join(entry.missing)}"
        advice = "Set them, write `${NAME:-default}` in the file, or disable the server"
        yield Finding(entry.name, State.PROBLEM, text, advice, ExitCode.USAGE)
    info = entry.toolset.server_info
    for place in dict.fromkeys(without_plain_secrets(entry.name, info)[1].values()):
        advice = "Write `${NAME}` there, and set that environment variable"
        yield Finding(entry.name, State.WARNING, f"`{place}` has a secret in plain text", advice)
