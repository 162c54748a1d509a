# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`doctor`: checks servers and configuration files, and advises what to do about problems.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from haystack_integrations.tools.mcp.cli.files import Server, plain_secrets, shown_place
from haystack_integrations.tools.mcp.cli.output import (
    CommandError,
    ExitCode,
    exit_code_of,
    for_terminal,
    one_line,
    visible,
)
from haystack_integrations.tools.mcp.cli.targets import (
    TARGET,
    ServerOptions,
    Session,
    TargetText,
    for_each,
    open_session,
    servers_of,
)
from haystack_integrations.tools.mcp.convert.server_texts import invisible_characters
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.convert.tool_schemas import map_strings, normalize_parameters
from haystack_integrations.tools.mcp.errors import MCPError
from haystack_integrations.tools.mcp.mcp_json import missing_variables
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.options import unusable_by_model
from haystack_integrations.tools.mcp.secret_template import secret_text
from haystack_integrations.tools.mcp.snapshot import MCPToolSnapshot
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo

if TYPE_CHECKING:
    import mcp_types as types

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "red"}

_ADVICE_FOR_AUTHOR = "Tell the server's author"
_LEFT_OUT_ADVICE = "It is left out everywhere; tell the server's author"

# With more than this, a model chooses tools less reliably, and their definitions fill its context.
_MAX_TOOLS, _MAX_CHARACTERS = 40, 40_000


class Finding(NamedTuple):
    """
    The result of one check.

    :param state: `OK`, `WARNING` or `PROBLEM`.
    :param text: What was found.
    :param advice: What to do about it.
    :param code: The exit code of the command if this is a problem.
    """

    state: str
    text: str
    advice: str | None = None
    code: ExitCode = ExitCode.FAILED


def doctor(
    target: Annotated[
        TargetText | None,
        Parameter(help=f"{TARGET} All servers of a file are checked. Default: the files in which names are looked up."),
    ] = None,
    /,
    *,
    check: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    options: ServerOptions = ServerOptions(),
) -> ExitCode:
    """
    Find out what is wrong with a server or a configuration file, and what to do.

    The exit code is 0 if there is no problem, so that it serves as a health check.

    :param check: A snapshot of 'mcp-haystack inspect --snapshot'. Tools that are different now are a problem.
    """
    output = options.output
    snapshot = None if check is None else _load_snapshot(check)
    servers = servers_of(target, options)
    if check is not None and len(servers) != 1:
        msg = f"--check is for one server, and there are {len(servers)}: name one, as in mcp.json:NAME"
        raise CommandError(msg)

    def findings_of(server: Server) -> list[Finding]:
        name = server.name if target is None else target if len(servers) == 1 else f"{target}:{server.name}"
        return list(_check(server, name, options, snapshot))

    looked = for_each(findings_of, servers)
    findings = {server.name: found for server, found in zip(servers, looked, strict=True)}
    everything = [finding for found in findings.values() for finding in found]
    counts = Counter(finding.state for finding in everything)
    codes = {finding.code for finding in everything if finding.state == PROBLEM}
    code = codes.pop() if len(codes) == 1 else ExitCode.FAILED if codes else ExitCode.OK
    if output.is_json:
        report = [
            {"subject": subject, "state": state, "text": text, **({"advice": advice} if advice else {})}
            for subject, found in findings.items()
            for state, text, advice, _ in found
        ]
        output.json({"ok": code is ExitCode.OK, "findings": report})
        return code
    for subject, found in findings.items():
        output.print(subject, style="bold")
        output.print(_table(found))
        output.print()
    total = f"{_count_text(counts[PROBLEM], 'problem')}, {_count_text(counts[WARNING], 'warning')}"
    output.print(total, style="red" if counts[PROBLEM] else "green")
    return code


def _table(findings: list[Finding]) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=9)
    grid.add_column(overflow="fold")
    for finding in findings:
        grid.add_row(Text(f"  {finding.state}", style=_STYLES[finding.state]), Text(visible(finding.text)))
        if finding.advice:
            grid.add_row("", Text(visible(finding.advice), style="italic"))
    return grid


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _check(server: Server, target: str, options: ServerOptions, snapshot: MCPToolSnapshot | None) -> Iterator[Finding]:
    for warning in server.warnings:
        yield Finding(WARNING, warning)
    if server.is_disabled:
        yield Finding(OK, "It is disabled")
        return
    if server.toolset is not None:
        for place in starmap(shown_place, plain_secrets(server.toolset.server_info)):
            text = f"`{place}` has a secret in plain text"
            yield Finding(WARNING, text, "Write `${NAME}` there, and set that environment variable")
    try:
        info = options.apply(server.usable())
        if missing := missing_variables(info):
            text = f"These environment variables are not set: {', '.join(missing)}"
            advice = "Set them, write `${NAME:-default}` in the file, or disable the server"
            yield Finding(PROBLEM, text, advice if server.toolset is not None else "Set them", ExitCode.USAGE)
            return
        if isinstance(info, HttpServerInfo):
            url = urlsplit(secret_text(info.url))
            if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
                text = "Everything goes unencrypted over http://, with tokens and results"
                yield Finding(WARNING, text, "Use https:// if the server has it")
        with open_session(server, options) as session:
            yield from _check_session(session)
            if server.toolset is not None:
                yield from _check_selection(server.toolset, [tool.name for tool in session.tools])
            if snapshot is not None:
                drifts = snapshot.compare(session.connection)
                yield from (Finding(PROBLEM, str(drift), code=ExitCode.CHANGED) for drift in drifts)
                if not drifts:
                    yield Finding(OK, "Its tools are as they were in the snapshot")
    except (MCPError, CommandError) as error:
        text = for_terminal(error)
        login = f"Log in: mcp-haystack login {shlex.quote(target)}" if "mcp-haystack login" in text else None
        yield Finding(PROBLEM, text, login, exit_code_of(error) or ExitCode.FAILED)


def _check_session(session: Session) -> Iterator[Finding]:
    connection, tools, seconds = session
    status = connection.status()
    name = " ".join(filter(None, [status.server_name, status.server_version])) or "a server without a name"
    yield Finding(OK, f"It is {name}, speaks protocol {status.protocol_version}, and answered after {seconds:.1f} s")
    offered = [_count_text(len(tools), "tool")]
    for kind, listed in (
        ("resource", connection.list_resources),
        ("resource template", connection.list_resource_templates),
        ("prompt", connection.list_prompts),
    ):
        if count := len(listed()):
            offered.append(_count_text(count, kind))
    yield Finding(OK, f"It has {', '.join(offered)}")
    for name, reason in connection._unusable_tools().items():
        yield Finding(PROBLEM, f"The tool '{one_line(name)}' cannot be used: {one_line(reason)}", _LEFT_OUT_ADVICE)
    for tool in tools:
        yield from _check_tool(tool)
    unclear = [one_line(tool.name) for tool in tools if not (tool.description or "").strip()]
    if unclear:
        text = f"A model cannot know what these tools are for, because they have no description: {', '.join(unclear)}"
        yield Finding(WARNING, text, "Describe them with `tool_overrides` of MCPToolset")
    size = 0
    for tool in tools:
        definition = tool.model_dump(mode="json", exclude_none=True)
        size += len(json.dumps(definition, ensure_ascii=False))
        if found := _invisible_in(definition):
            characters = ", ".join(f"{character} ({count}x)" for character, count in found.items())
            text = f"Texts of the tool '{one_line(tool.name)}' have characters that people do not see: {characters}"
            yield Finding(WARNING, text, "They may hide instructions for a model: read the definition")
    if len(tools) > _MAX_TOOLS or size > _MAX_CHARACTERS:
        text = f"All definitions together have {size:,} characters, which a model reads each time"
        yield Finding(WARNING, text, "Choose some with `tool_names` of MCPToolset")


def _invisible_in(definition: dict[str, Any]) -> Counter[str]:
    # Each text is searched separately, because JSON would escape control characters.
    found: Counter[str] = Counter()

    def note(text: str) -> str:
        found.update(invisible_characters(text))
        return text

    map_strings(definition, note)
    return found


def _check_selection(toolset: MCPToolset, names: list[str]) -> Iterator[Finding]:
    # A missing tool of `tool_names` is a problem, because the toolset cannot be used without it.
    missing = [(PROBLEM, "tool_names", name) for name in toolset.tool_names or () if name not in names]
    missing += [(WARNING, "exclude_tools", name) for name in toolset.tool_selection.unknown_exclusions(names)]
    missing += [(WARNING, "tool_overrides", name) for name in toolset.tool_overrides if name not in names]
    for state, parameter, name in missing:
        text = f"`{parameter}` has the tool '{one_line(name)}', which is not there"
        yield Finding(state, text, one_line(describe_choices([name], names, "It")))


def _check_tool(tool: types.Tool) -> Iterator[Finding]:
    name, notes = one_line(tool.name), list[str]()
    if (reason := unusable_by_model(tool)) is not None:
        yield Finding(WARNING, f"A model does not get the tool '{name}': {reason}")
    try:
        normalize_parameters(tool.input_schema, notes)
    except ValueError as error:
        text = f"The tool '{name}' cannot be used, because its schema is unusable: {one_line(str(error))}"
        yield Finding(PROBLEM, text, _LEFT_OUT_ADVICE)
    yield from (Finding(WARNING, f"The tool '{name}': {one_line(note)}", _ADVICE_FOR_AUTHOR) for note in notes)


def _load_snapshot(file: Path) -> MCPToolSnapshot:
    try:
        return MCPToolSnapshot.load(file)
    except (FileNotFoundError, ValueError) as error:
        raise CommandError(for_terminal(error)) from error
