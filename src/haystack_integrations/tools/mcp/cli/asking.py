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

from rich.progress import Progress

from haystack_integrations.tools.mcp.cli.arguments import (
    describe_type,
    problem_with,
    properties_of,
    required_in,
    typed,
)
from haystack_integrations.tools.mcp.cli.output import Output, one_line, visible


def ask_in_terminal(request: Any, output: Output, bar: Progress) -> dict[str, Any] | bool | None:
    """
    Ask the person what a server wants to know. Without a terminal, nobody is asked, and the server is told so.

    :param request: The request of the server: `ElicitRequestFormParams` or `ElicitRequestURLParams` of the MCP SDK.
    :param output: Where it is asked.
    :param bar: What else is shown there.
    :returns: The answers; True or False to accept or decline; None to cancel.
    """
    text = visible(request.message)
    if not sys.stdin.isatty():
        output.note(f"The server asks, and there is no terminal to answer in: {text}", style="yellow")
        return None
    bar.stop()
    output.note(f"\nThe server asks: {text}", style="bold")
    try:
        if request.mode == "form":
            return _form(request.requested_schema, output)
        output.note(f"Open this page if you trust the server: {one_line(request.url)}")
        return _is_yes("Have you opened it? [y/N] ", output)
    except EOFError:  # Ctrl-D
        return None
    finally:
        bar.start()


def _form(schema: Mapping[str, Any], output: Output) -> dict[str, Any] | bool:
    required = required_in(schema)
    values: dict[str, Any] = {}
    for name, each in properties_of(schema).items():
        default = each.get("default") if isinstance(each, Mapping) else None
        question = _question(name, each, schema, default, is_required=name in required)
        while True:
            text = _answer(question, output)
            value = typed(name, [text], schema) if text else default
            problem = problem_with({name: value}, {**schema, "required": []}) if value is not None else None
            if problem is None and (value is not None or name not in required):
                break
            output.note(f"{problem}." if problem else "An answer is needed; Ctrl-D cancels.", style="yellow")
        if value is not None:
            values[name] = value
    return values if values or required else _is_yes("Accept? [y/N] ", output)


def _question(name: str, schema: Any, root: Mapping[str, Any], default: Any, *, is_required: bool) -> str:
    facts = [describe_type(schema, root)]
    if default is not None:
        facts.append(f"default: {one_line(default)}")
    elif not is_required:
        facts.append("optional")
    known = schema if isinstance(schema, Mapping) else {}
    title = one_line(known.get("description") or known.get("title") or "")
    about = f", {title}" if title and title.lower() != name.lower() else ""
    return f"  {one_line(name)}{about} ({', '.join(facts)}): "


def _is_yes(question: str, output: Output) -> bool:
    return _answer(question, output).lower() in ("y", "yes")


def _answer(question: str, output: Output) -> str:
    output.notes.print(question, end="", soft_wrap=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()
