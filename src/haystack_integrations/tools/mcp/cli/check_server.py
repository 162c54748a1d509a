# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What may be wrong with a server: whether it answers, and what it says of itself.
"""

from __future__ import annotations

import datetime as dt
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for

from haystack_integrations.tools.mcp.cli.connecting import Session, connected
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError, ExitCode, exit_code_of
from haystack_integrations.tools.mcp.cli.findings import Finding, State, counted
from haystack_integrations.tools.mcp.cli.options import Reach
from haystack_integrations.tools.mcp.cli.output import Output, one_line
from haystack_integrations.tools.mcp.cli.targets import Server
from haystack_integrations.tools.mcp.cli.wording import for_terminal
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters
from haystack_integrations.tools.mcp.errors import MCPError
from haystack_integrations.tools.mcp.secret_template import resolved
from haystack_integrations.tools.mcp.snapshot.snapshot import MCPToolSnapshot
from haystack_integrations.tools.mcp.transports.http.http_server_info import HttpServerInfo

if TYPE_CHECKING:
    import mcp_types as types

# From here on, a model chooses worse among tools, and their definitions fill its context.
_MANY_TOOLS = 40
_MANY_CHARACTERS = 40_000

# Of the time that it may take to connect.
_SLOW_SHARE = 1 / 3
_FEW_DAYS = 14

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_server(server: Server, reach: Reach, output: Output, snapshot: MCPToolSnapshot | None) -> Iterator[Finding]:
    """
    Look at a server.

    :param server: The server.
    :param reach: The options of the command.
    :param output: Where it is shown that this takes time.
    :param snapshot: What its tools are to be like, if that is to be checked.
    :returns: The findings.
    """
    if isinstance(server.info, HttpServerInfo):
        yield from _check_url(server, server.info)
    try:
        with connected(server, reach, output) as session:
            yield from _check_session(server, session, slow_seconds=reach.timeout * _SLOW_SHARE)
            if snapshot is not None:
                yield from _check_drift(server, session, snapshot)
    except MCPError as error:
        code = exit_code_of(error) or ExitCode.FAILED
        advice = f"Log in: mcp-haystack login {server.name}" if code is ExitCode.UNAUTHORIZED else None
        yield Finding(server.name, State.PROBLEM, for_terminal(error), advice, code)


def _check_session(server: Server, session: Session, *, slow_seconds: float) -> Iterator[Finding]:
    connection = session.connection
    status = connection.status()
    name = " ".join(filter(None, [status.server_name, status.server_version])) or "a server without a name"
    text = f"It is {name}, speaks protocol {status.protocol_version}, and answered after {session.seconds:.1f} s"
    slow = session.seconds > slow_seconds
    advice = "If it installs itself at each start, install it beforehand" if slow else None
    yield Finding(server.name, State.WARNING if slow else State.OK, text, advice)
    yield from _check_offer(server.name, session)
    yield from _check_tools(server.name, session)


def _check_offer(subject: str, session: Session) -> Iterator[Finding]:
    connection = session.connection
    listings: dict[str, tuple[str, Callable[[], list[Any]]]] = {
        "resource": ("resources", connection.list_resources),
        "resource template": ("resources", connection.list_resource_templates),
        "prompt": ("prompts", connection.list_prompts),
    }
    offered = [counted(len(session.tools), "tool")]
    for kind, (capability, listed) in listings.items():
        if (connection.capabilities or {}).get(capability) is None:
            continue
        try:
            if count := len(listed()):
                offered.append(counted(count, kind))
        except MCPError as error:
            yield Finding(subject, State.PROBLEM, f"It cannot list its {kind}s: {for_terminal(error)}")
    yield Finding(subject, State.OK, f"It has {', '.join(offered)}")


def _check_tools(subject: str, session: Session) -> Iterator[Finding]:
    tools = session.tools
    for name, reason in session.connection._unusable_tools().items():
        text = f"The tool '{one_line(name)}' cannot be used: {one_line(reason)}"
        yield Finding(subject, State.PROBLEM, text, "It is left out everywhere; tell the server's author")
    twice = [name for name, count in Counter(tool.name for tool in tools).items() if count > 1]
    if twice:
        yield Finding(subject, State.WARNING, f"Several tools have the same name: {', '.join(map(one_line, twice))}")
    silent = [one_line(tool.name) for tool in tools if not (tool.description or "").strip()]
    if silent:
        text = f"A model cannot know what these tools are for, because they have no description: {', '.join(silent)}"
        yield Finding(subject, State.WARNING, text, "Describe them with `tool_overrides` of MCPToolset")
    for tool in tools:
        yield from _check_input_schema(subject, tool)
        yield from _check_output_schema(subject, tool)
    hidden = MCPToolSnapshot.from_tools(tools).invisible_characters()
    for name, found in hidden.items():
        shown = ", ".join(f"{character} ({count}x)" for character, count in found.items())
        text = f"Texts of the tool '{one_line(name)}' have characters that people do not see: {shown}"
        yield Finding(subject, State.WARNING, text, "They may hide instructions for a model: read the definition")
    size = sum(len(json.dumps(tool.model_dump(mode="json", exclude_none=True))) for tool in tools)
    if len(tools) > _MANY_TOOLS or size > _MANY_CHARACTERS:
        text = f"All definitions together have {size:,} characters, which a model reads each time"
        yield Finding(subject, State.WARNING, text, "Choose some with `tool_names` of MCPToolset")


def _check_input_schema(subject: str, tool: types.Tool) -> Iterator[Finding]:
    notes: list[str] = []
    try:
        normalize_parameters(tool.input_schema, notes)
    except ValueError as error:
        text = (
            f"The tool '{one_line(tool.name)}' cannot be used, because its schema is unusable: {one_line(str(error))}"
        )
        yield Finding(subject, State.PROBLEM, text, "It is left out everywhere; tell the server's author")
    for note in notes:
        text = f"The tool '{one_line(tool.name)}': {one_line(note)}"
        yield Finding(subject, State.WARNING, text, "Tell the server's author")


def _check_output_schema(subject: str, tool: types.Tool) -> Iterator[Finding]:
    schema = tool.output_schema
    if schema is None:
        return
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        text = f"The schema of the results of the tool '{one_line(tool.name)}' is invalid: {one_line(error.message)}"
        yield Finding(subject, State.WARNING, text, "Clients cannot check the results; tell the server's author")


def _check_drift(server: Server, session: Session, snapshot: MCPToolSnapshot) -> Iterator[Finding]:
    report = snapshot.compare(snapshot_of(session, has_instructions=snapshot.instructions is not None))
    for drift in report:
        yield Finding(server.name, State.PROBLEM, str(drift), code=ExitCode.CHANGED)
    if not report:
        yield Finding(server.name, State.OK, "Its tools are as they were in the snapshot")


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


def load_snapshot(file: Path) -> MCPToolSnapshot:
    """
    Read a snapshot.

    :param file: The file.
    :returns: The snapshot.
    :raises CommandError: If it cannot be read.
    """
    try:
        return MCPToolSnapshot.load(file)
    except FileNotFoundError:
        msg = f"There is no snapshot {file}. Write one: mcp-haystack inspect TARGET --snapshot {file}"
        raise CommandError(msg) from None
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _check_url(server: Server, info: HttpServerInfo) -> Iterator[Finding]:
    try:
        parts = urlsplit(resolved(info.url))
        host, port = parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        return  # connecting says what is wrong
    if parts.scheme == "http" and host not in _LOOPBACK:
        text = "Everything goes unencrypted over http://, with tokens and results"
        yield Finding(server.name, State.WARNING, text, "Use https:// if the server has it")
    if parts.scheme == "https" and info.proxy is None and info.verify is True:
        days = _days_of_certificate(host, port)
        if days is not None and days < _FEW_DAYS:
            yield Finding(server.name, State.WARNING, f"Its certificate expires in {days} days")


def _days_of_certificate(host: str, port: int) -> int | None:
    try:
        with socket.create_connection((host, port), timeout=5) as plain:
            with ssl.create_default_context().wrap_socket(plain, server_hostname=host) as encrypted:
                certificate: Any = encrypted.getpeercert() or {}
    except (OSError, ValueError):  # connecting says what is wrong
        return None
    if "notAfter" not in certificate:
        return None
    end = dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), dt.UTC)
    return (end - dt.datetime.now(dt.UTC)).days
