# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.arguments import check_arguments, text_arguments
from haystack_integrations.tools.mcp.cli.targets import REACH, SHOWN, Reach, Shown, Target, connected, named, server_of
from haystack_integrations.tools.mcp.convert.results import model_text


def prompt(
    target: Target,
    name: Annotated[str, Parameter(help="The name of the prompt.")],
    /,
    *arguments: Annotated[str, Parameter(help="name=value, or name@FILE for the content of a file.")],
    reach: Reach = REACH,
    shown: Shown = SHOWN,
) -> None:
    """
    Get a prompt, and print its messages.

    Each begins with who says it.
    """
    output = shown.output
    given = text_arguments(arguments)
    with connected(server_of(target, reach), reach, output) as session:
        known = named("prompt", name, session.connection.list_prompts()).arguments or []
        schema = {
            "properties": {each.name: {"type": "string"} for each in known},
            "required": [each.name for each in known if each.required],
            "additionalProperties": False,
        }
        check_arguments(given, schema, f"The prompt '{name}' cannot be made so")
        result = session.connection.get_prompt(name, given)
    if shown.json:
        output.json(result)
        return
    for message in result.messages:
        block = message.content.model_dump(mode="json", by_alias=True, exclude_none=True)
        output.print(f"{message.role}:", style="bold")
        output.text(model_text({"content": [block], "isError": False}))
