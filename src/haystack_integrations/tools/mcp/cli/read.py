# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.arguments import text_arguments
from haystack_integrations.tools.mcp.cli.connecting import connected
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.options import OUTPUT, Json, Reach, Target, Verbose
from haystack_integrations.tools.mcp.cli.output import Output
from haystack_integrations.tools.mcp.cli.targets import server_of


def read(
    target: Target,
    uri: Annotated[str, Parameter(help="The URI of the resource, or a template with {variables}.")],
    /,
    *variables: Annotated[str, Parameter(help="name=value for the variables of a template.")],
    save: Annotated[Path | None, Parameter(metavar="FILE", group=OUTPUT, show_default=False)] = None,
    reach: Reach | None = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - read before the command runs
) -> None:
    """
    Read a resource, and print its content.

    A text is printed as it is, and so are bytes into a pipe or a file.

    :param save: Write the content into this file.
    :param json: Print the result of the protocol as JSON.
    """
    reach = reach or Reach()
    output = Output(is_json=json)
    server = server_of(target, reach)
    uri = _filled(uri, text_arguments(variables))
    with connected(server, reach, output) as session:
        result = session.connection.read_resource(uri)
    parts = [_content(part) for part in result.contents]
    if save is not None:
        try:
            save.write_bytes(b"".join(part.encode() if isinstance(part, str) else part for part in parts))
        except OSError as error:
            msg = f"{save} cannot be written: {error.strerror}"
            raise CommandError(msg) from None
        output.note(f"Saved {save}")
    if json:
        output.json(result)
    if json or save is not None:
        return
    for part, described in zip(parts, result.contents, strict=True):
        if isinstance(part, str):
            output.text(part)
        elif output.results.is_terminal:
            kind = described.mime_type or "unknown type"
            output.note(f"{described.uri}: {len(part):,} bytes ({kind}). Use --save FILE, or a pipe.")
        else:
            output.bytes(part)


def _content(part: Any) -> str | bytes:
    text = getattr(part, "text", None)
    return text if isinstance(text, str) else base64.b64decode(part.blob)


def _filled(uri: str, variables: dict[str, str]) -> str:
    from mcp import UriTemplate  # noqa: PLC0415 - the other commands start faster without it

    try:
        template = UriTemplate.parse(uri)
        if not template.variables and variables:
            msg = f"'{uri}' has no variables; a template has them in braces, as in 'notes://days/{{day}}'"
            raise CommandError(msg)
        return template.expand(variables)
    except ValueError as error:
        msg = f"'{uri}' cannot be read: {error}"
        raise CommandError(msg) from error
