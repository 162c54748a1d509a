# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.arguments import text_arguments
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.output import Output, prompt_signature
from haystack_integrations.tools.mcp.cli.targets import Json, Reach, Target, Verbose, connected, did_you_mean, server_of
from haystack_integrations.tools.mcp.convert.results import model_text


def prompt(
    target: Target,
    name: Annotated[str, Parameter(help="The name of the prompt.")],
    /,
    *arguments: Annotated[str, Parameter(help="name=value, or name@FILE for the content of a file.")],
    reach: Reach | None = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - read before the command runs
) -> None:
    """
    Get a prompt, and print its messages.

    Each begins with who says it.

    :param json: Print the result of the protocol as JSON.
    """
    reach = reach or Reach()
    output = Output(is_json=json)
    given = text_arguments(arguments)
    with connected(server_of(target, reach), reach, output) as session:
        prompts = {each.name: each for each in session.connection.list_prompts()}
        if name not in prompts:
            names = ", ".join(prompts) or "none"
            msg = f"The server has no prompt '{name}'.{did_you_mean(name, prompts)} It has: {names}"
            raise CommandError(msg)
        known = prompts[name].arguments or []
        absent = [each.name for each in known if each.required and each.name not in given]
        unknown = [each for each in given if each not in {argument.name for argument in known}]
        if absent or unknown:
            what = [f"lacks {', '.join(absent)}"] * bool(absent) + [f"has no {', '.join(unknown)}"] * bool(unknown)
            msg = f"The prompt '{name}' {' and '.join(what)}. It takes: {prompt_signature(prompts[name]) or 'nothing'}"
            raise CommandError(msg)
        result = session.connection.get_prompt(name, given)
    if json:
        output.json(result)
        return
    for message in result.messages:
        block = message.content.model_dump(mode="json", by_alias=True, exclude_none=True)
        output.print(f"{message.role}:", style="bold")
        output.text(model_text({"content": [block], "isError": False}))
