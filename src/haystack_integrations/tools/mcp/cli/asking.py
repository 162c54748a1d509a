# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Questions of servers ("elicitation"), asked in the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from haystack_integrations.tools.mcp.cli.arguments import typed
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.output import Output, one_line, visible
from haystack_integrations.tools.mcp.cli.progress import ProgressBar
from haystack_integrations.tools.mcp.cli.schemas import describe_type, properties_of, required_in

_YES = frozenset({"y", "yes"})


def ask_in_terminal(request: Any, output: Output, bar: ProgressBar) -> dict[str, Any] | bool | None:
    """
    Ask the person what a server wants to know. Without a terminal, nobody is asked, and the server is told so.

    :param request: The request of the server: `ElicitRequestFormParams` or `ElicitRequestURLParams` of the MCP SDK.
    :param output: Where it is asked.
    :param bar: What else is shown there.
    :returns: The answers; True or False to accept or decline; None to cancel.
    """
    said = visible(request.message)
    if not sys.stdin.isatty():
        output.note(f"The server asks, and there is no terminal to answer in: {said}", style="yellow")
        return None
    with bar.hidden():
        output.note(f"\nThe server asks: {said}", style="bold")
        try:
            if request.mode == "form":
                return _form(request.requested_schema, output)
            return _url(request.url, output)
        except EOFError:  # Ctrl-D
            return None


def _url(url: str, output: Output) -> bool:
    output.note(f"Open this page if you trust the server: {one_line(url)}")
    return _answer("Have you opened it? [y/N] ", output).lower() in _YES


def _form(schema: Mapping[str, Any], output: Output) -> dict[str, Any] | bool:
    required = required_in(schema)
    values: dict[str, Any] = {}
    for name, each in properties_of(schema).items():
        while True:
            text = _answer(_question(name, each, schema, is_required=name in required), output)
            default = each.get("default") if isinstance(each, Mapping) else None
            if not text and default is not None:
                values[name] = default
            elif text:
                try:
                    values[name] = typed(text, each, schema, name)
                except CommandError as error:
                    output.note(str(error), style="yellow")
                    continue
            elif name in required:
                output.note("An answer is needed; Ctrl-D cancels.", style="yellow")
                continue
            break
    if not values and not required:
        return _answer("Accept? [y/N] ", output).lower() in _YES
    return values


def _question(name: str, schema: Any, root: Mapping[str, Any], *, is_required: bool) -> str:
    facts = [describe_type(schema, root)]
    said = ""
    if isinstance(schema, Mapping):
        said = one_line(schema.get("description") or schema.get("title") or "")
        if schema.get("default") is not None:
            facts.append(f"default: {one_line(schema['default'])}")
        elif not is_required:
            facts.append("optional")
    about = f", {said}" if said and said.lower() != name.lower() else ""
    return f"  {one_line(name)}{about} ({', '.join(facts)}): "


def _answer(question: str, output: Output) -> str:
    output.notes.print(question, end="", soft_wrap=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()
