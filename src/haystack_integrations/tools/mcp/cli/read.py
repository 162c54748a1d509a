# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`read` and `prompt`: what servers have beside tools.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.call_arguments import check_arguments, text_arguments
from haystack_integrations.tools.mcp.cli.output import CommandError, protocol_json, save_bytes
from haystack_integrations.tools.mcp.cli.targets import OUTPUT, ServerOptions, Target, connected, named, server_of
from haystack_integrations.tools.mcp.convert.results import model_text


def read(
    target: Target,
    uri: Annotated[str, Parameter(help="The URI of the resource, or a template with {variables}.")],
    /,
    *variables: Annotated[str, Parameter(help="name=value for the variables of a template.")],
    save: Annotated[Path | None, Parameter(metavar="FILE", group=OUTPUT)] = None,
    options: ServerOptions = ServerOptions(),
) -> None:
    """
    Read a resource, and print its content.

    A text is printed as it is, and so are bytes into a pipe or a file.

    :param save: Write the content into this file.
    """
    output = options.output
    server = server_of(target, options)
    uri = _filled(uri, text_arguments(variables))
    with connected(server, options, output) as session:
        result = session.connection.read_resource(uri)
    parts: list[Any] = result.contents
    texts = [getattr(part, "text", None) for part in parts]
    contents = [
        base64.b64decode(part.blob) if text is None else text.encode() for part, text in zip(parts, texts, strict=True)
    ]
    if save is not None:
        save_bytes(save, b"".join(contents), output)
    if output.is_json:
        output.json(result)
    if output.is_json or save is not None:
        return
    for part, text, content in zip(parts, texts, contents, strict=True):
        if text is not None:
            output.text(text)
        elif output.results.is_terminal:
            kind = part.mime_type or "unknown type"
            output.note(f"{part.uri}: {len(content):,} bytes ({kind}). Use --save FILE, or a pipe.")
        else:
            output.bytes(content)


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


def prompt(
    target: Target,
    name: Annotated[str, Parameter(help="The name of the prompt.")],
    /,
    *arguments: Annotated[str, Parameter(help="name=value, or name@FILE for the content of a file.")],
    options: ServerOptions = ServerOptions(),
) -> None:
    """
    Get a prompt, and print its messages.

    Each begins with who says it.
    """
    output = options.output
    given = text_arguments(arguments)
    with connected(server_of(target, options), options, output) as session:
        known = named("prompt", name, session.connection.list_prompts()).arguments or []
        schema = {
            "properties": {each.name: {"type": "string"} for each in known},
            "required": [each.name for each in known if each.required],
            "additionalProperties": False,
        }
        check_arguments(given, schema, f"The prompt '{name}' cannot be made so")
        result = session.connection.get_prompt(name, given)
    if output.is_json:
        output.json(result)
        return
    for message in result.messages:
        output.print(f"{message.role}:", style="bold")
        output.text(model_text({"content": [protocol_json(message.content)], "isError": False}))
