# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import datetime as dt
import importlib.metadata
import importlib.util
import json as json_module
import os
import platform
import shutil
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from cyclopts import Parameter
from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from rich.table import Table
from rich.text import Text

import haystack_integrations.tools.mcp as package
from haystack_integrations.tools.mcp.cli.config import plain_secrets, shown_place
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError, ExitCode, exit_code_of, for_terminal
from haystack_integrations.tools.mcp.cli.files import Entry, config_files, entries_in, names_in
from haystack_integrations.tools.mcp.cli.output import Output, one_line, visible
from haystack_integrations.tools.mcp.cli.targets import (
    TARGET,
    Json,
    Reach,
    Server,
    Session,
    Verbose,
    connected,
    for_each,
    servers_of,
)
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters
from haystack_integrations.tools.mcp.errors import MCPError
from haystack_integrations.tools.mcp.redaction import redact_url
from haystack_integrations.tools.mcp.secret_template import resolved
from haystack_integrations.tools.mcp.snapshot.snapshot import MCPToolSnapshot
from haystack_integrations.tools.mcp.transports.allow_lists import (
    ALLOWED_COMMANDS_VARIABLE,
    ALLOWED_ENV_VARIABLE,
    ALLOWED_HOSTS_VARIABLE,
)
from haystack_integrations.tools.mcp.transports.http.http_server_info import HttpServerInfo

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "red"}

_TO_AUTHOR = "Tell the server's author"
_LEFT_OUT = "It is left out everywhere; tell the server's author"

# From here on, a model chooses worse among tools, and their definitions fill its context.
_MANY_TOOLS, _MANY_CHARACTERS = 40, 40_000

# Of the time that it may take to connect.
_SLOW_SHARE = 1 / 3

_FEW_DAYS = 14

# What is needed for what: a module, what it is for, and how to get it.
_EXTRAS = {
    "fastmcp": ("serving (mcp-haystack serve)", 'pip install "mcp-haystack[serve]"'),
    "uvloop": ("a faster event loop", 'pip install "mcp-haystack[fast]"'),
    "aiohttp": ("faster calls over HTTP", 'pip install "mcp-haystack[fast]"'),
}

_PROGRAMS = {
    "uvx": ("servers that are published on PyPI", "https://docs.astral.sh/uv"),
    "npx": ("servers that are published on npm", "https://nodejs.org"),
}


class Finding(NamedTuple):
    """
    One thing that was looked at.

    :param state: How bad it is.
    :param text: What was found.
    :param advice: What to do about it.
    :param code: With which code the command exits because of it.
    """

    state: str
    text: str
    advice: str | None = None
    code: ExitCode = ExitCode.FAILED


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
    output = Output(is_json=json)
    if check is not None and target is None:
        msg = "--check needs a target: the server whose tools are to be as in the snapshot"
        raise CommandError(msg)
    findings = {"environment": [*_machine()]} if target is None else _of_target(target, check, reach or Reach(), output)
    everything = [finding for found in findings.values() for finding in found]
    counts = Counter(finding.state for finding in everything)
    codes = {finding.code for finding in everything if finding.state == PROBLEM}
    code = codes.pop() if len(codes) == 1 else ExitCode.FAILED if codes else ExitCode.OK
    if json:
        shown = [
            {
                "subject": subject,
                "state": each.state,
                "text": each.text,
                **({"advice": each.advice} if each.advice else {}),
            }
            for subject, found in findings.items()
            for each in found
        ]
        output.json({"ok": code is ExitCode.OK, "findings": shown})
        return code
    for subject, found in findings.items():
        _print(subject, found, output)
    total = f"{_counted(counts[PROBLEM], 'problem')}, {_counted(counts[WARNING], 'warning')}"
    output.print(total, style="red" if counts[PROBLEM] else "green")
    return code


def _print(subject: str, findings: list[Finding], output: Output) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=9)
    grid.add_column(overflow="fold")
    for finding in findings:
        grid.add_row(Text(f"  {finding.state}", style=_STYLES[finding.state]), Text(visible(finding.text)))
        if finding.advice:
            grid.add_row("", Text(visible(finding.advice), style="italic"))
    output.print(subject, style="bold")
    output.print(grid)
    output.print()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _of_target(target: str, check: Path | None, reach: Reach, output: Output) -> dict[str, list[Finding]]:
    snapshot = None if check is None else _load_snapshot(check)
    findings: dict[str, list[Finding]] = {}
    path = Path(target)
    if path.is_file() and path.suffix in (".json", ".jsonc"):
        entries = entries_in(path)
        findings = {entry.name: list(_entry(entry)) for entry in entries}
        servers = [Server(each.name, reach.apply(each.info)) for each in entries if each.info and not each.missing]
    else:
        servers = servers_of(target, reach)
    if snapshot is not None and len(servers) != 1:
        msg = f"--check is for one server, and {target} has {len(servers)}: name one, as in {target}:NAME"
        raise CommandError(msg)
    quiet = Output(is_silent=True)
    looked = for_each(lambda server: list(_server(server, reach, quiet, snapshot)), servers, output)
    for server, found in zip(servers, looked, strict=True):
        findings.setdefault(server.name, []).extend(found)
    return findings


def _entry(entry: Entry) -> Iterator[Finding]:
    for warning in entry.warnings:
        yield Finding(WARNING, warning)
    if entry.error is not None:
        yield Finding(PROBLEM, entry.error, code=ExitCode.USAGE)
    elif entry.info is None:
        yield Finding(OK, "It is disabled")
    else:
        if entry.missing:
            text = f"These environment variables are not set: {', '.join(entry.missing)}"
            advice = "Set them, write `${NAME:-default}` in the file, or disable the server"
            yield Finding(PROBLEM, text, advice, ExitCode.USAGE)
        for place in starmap(shown_place, plain_secrets(entry.info)):
            advice = "Write `${NAME}` there, and set that environment variable"
            yield Finding(WARNING, f"`{place}` has a secret in plain text", advice)


def _server(server: Server, reach: Reach, output: Output, snapshot: MCPToolSnapshot | None) -> Iterator[Finding]:
    if isinstance(server.info, HttpServerInfo):
        yield from _url(server.info)
    try:
        with connected(server, reach, output) as session:
            status, seconds = session.connection.status(), session.seconds
            name = " ".join(filter(None, [status.server_name, status.server_version])) or "a server without a name"
            text = f"It is {name}, speaks protocol {status.protocol_version}, and answered after {seconds:.1f} s"
            if seconds > reach.timeout * _SLOW_SHARE:
                yield Finding(WARNING, text, "If it installs itself at each start, install it beforehand")
            else:
                yield Finding(OK, text)
            yield from _offer(session)
            yield from _tools(session)
            if snapshot is not None:
                drifts = snapshot.compare(snapshot_of(session, has_instructions=snapshot.instructions is not None))
                yield from (Finding(PROBLEM, str(drift), code=ExitCode.CHANGED) for drift in drifts)
                if not drifts:
                    yield Finding(OK, "Its tools are as they were in the snapshot")
    except MCPError as error:
        code = exit_code_of(error) or ExitCode.FAILED
        advice = f"Log in: mcp-haystack login {server.name}" if code is ExitCode.UNAUTHORIZED else None
        yield Finding(PROBLEM, for_terminal(error), advice, code)


def _url(info: HttpServerInfo) -> Iterator[Finding]:
    try:
        parts = urlsplit(resolved(info.url))
        host, port = parts.hostname or "", parts.port or 443
    except ValueError:
        return  # connecting says what is wrong
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        text = "Everything goes unencrypted over http://, with tokens and results"
        yield Finding(WARNING, text, "Use https:// if the server has it")
    if parts.scheme == "https" and info.proxy is None and info.verify is True:
        days = _days_of_certificate(host, port)
        if days is not None and days < _FEW_DAYS:
            yield Finding(WARNING, f"Its certificate expires in {days} days")


def _days_of_certificate(host: str, port: int) -> int | None:
    try:
        with socket.create_connection((host, port), timeout=5) as plain:
            with ssl.create_default_context().wrap_socket(plain, server_hostname=host) as encrypted:
                certificate: Any = encrypted.getpeercert()
        end = dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), dt.UTC)
    except (OSError, ValueError, KeyError):  # connecting says what is wrong
        return None
    return (end - dt.datetime.now(dt.UTC)).days


def _offer(session: Session) -> Iterator[Finding]:
    connection = session.connection
    offered = [_counted(len(session.tools), "tool")]
    for kind, capability, listed in (
        ("resource", "resources", connection.list_resources),
        ("resource template", "resources", connection.list_resource_templates),
        ("prompt", "prompts", connection.list_prompts),
    ):
        if (connection.capabilities or {}).get(capability) is None:
            continue
        try:
            if count := len(listed()):
                offered.append(_counted(count, kind))
        except MCPError as error:
            yield Finding(PROBLEM, f"It cannot list its {kind}s: {for_terminal(error)}")
    yield Finding(OK, f"It has {', '.join(offered)}")


def _tools(session: Session) -> Iterator[Finding]:
    tools = session.tools
    for name, reason in session.connection._unusable_tools().items():
        yield Finding(PROBLEM, f"The tool '{one_line(name)}' cannot be used: {one_line(reason)}", _LEFT_OUT)
    twice = [one_line(name) for name, count in Counter(tool.name for tool in tools).items() if count > 1]
    if twice:
        yield Finding(WARNING, f"Several tools have the same name: {', '.join(twice)}")
    silent = [one_line(tool.name) for tool in tools if not (tool.description or "").strip()]
    if silent:
        text = f"A model cannot know what these tools are for, because they have no description: {', '.join(silent)}"
        yield Finding(WARNING, text, "Describe them with `tool_overrides` of MCPToolset")
    for tool in tools:
        name, notes = one_line(tool.name), list[str]()
        try:
            normalize_parameters(tool.input_schema, notes)
        except ValueError as error:
            text = f"The tool '{name}' cannot be used, because its schema is unusable: {one_line(str(error))}"
            yield Finding(PROBLEM, text, _LEFT_OUT)
        for note in notes:
            yield Finding(WARNING, f"The tool '{name}': {one_line(note)}", _TO_AUTHOR)
        try:
            schema = tool.output_schema or {}
            validator_for(schema, default=Draft202012Validator).check_schema(schema)
        except SchemaError as error:
            text = f"The schema of the results of the tool '{name}' is invalid: {one_line(error.message)}"
            yield Finding(WARNING, text, "Clients cannot check the results; tell the server's author")
    for name, found in MCPToolSnapshot.from_tools(tools).invisible_characters().items():
        shown = ", ".join(f"{character} ({count}x)" for character, count in found.items())
        text = f"Texts of the tool '{one_line(name)}' have characters that people do not see: {shown}"
        yield Finding(WARNING, text, "They may hide instructions for a model: read the definition")
    size = sum(len(json_module.dumps(tool.model_dump(mode="json", exclude_none=True))) for tool in tools)
    if len(tools) > _MANY_TOOLS or size > _MANY_CHARACTERS:
        text = f"All definitions together have {size:,} characters, which a model reads each time"
        yield Finding(WARNING, text, "Choose some with `tool_names` of MCPToolset")


def snapshot_of(session: Session, *, has_instructions: bool = True) -> MCPToolSnapshot:
    """
    Take a snapshot of a server's tools.

    :param session: The open connection.
    :param has_instructions: Whether the server's instructions are part of it.
    :returns: The snapshot.
    """
    status = session.connection.status()
    return MCPToolSnapshot.from_tools(
        session.tools,
        server_name=status.server_name,
        server_version=status.server_version,
        instructions=(session.connection.instructions or "") if has_instructions else None,
    )


def _load_snapshot(file: Path) -> MCPToolSnapshot:
    try:
        return MCPToolSnapshot.load(file)
    except FileNotFoundError:
        msg = f"There is no snapshot {file}. Write one: mcp-haystack inspect TARGET --snapshot {file}"
        raise CommandError(msg) from None
    except ValueError as error:
        raise CommandError(str(error)) from error


def _machine() -> Iterator[Finding]:
    versions = [f"Python {platform.python_version()}", f"mcp-haystack {package.__version__}"]
    for name in ("haystack-ai", "mcp", "fastmcp"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Finding(OK, ", ".join(versions))
    for module, (purpose, advice) in _EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield Finding(OK, f"{module} is not installed; it is for {purpose}", advice)
    for program, (purpose, where) in _PROGRAMS.items():
        if found := shutil.which(program):
            yield Finding(OK, f"{program} is {found}")
        else:
            yield Finding(WARNING, f"{program} is not on the PATH; it starts {purpose}", f"See {where}")
    for name in (ALLOWED_COMMANDS_VARIABLE, ALLOWED_HOSTS_VARIABLE, ALLOWED_ENV_VARIABLE):
        if name in os.environ:
            yield Finding(OK, f"{name} allows only: {os.environ[name] or 'nothing'}")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        if value := os.environ.get(name) or os.environ.get(name.lower()):
            yield Finding(OK, f"{name} is {redact_url(value)}: servers with a URL are reached through it")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        value = os.environ.get(name)
        if value and not Path(value).exists():
            text = f"{name} names {value}, which does not exist"
            yield Finding(PROBLEM, text, f"Correct {name}, or unset it")
    for file in config_files():
        yield Finding(OK, f"{file} has the servers {', '.join(names_in(file)) or '(none)'}")
