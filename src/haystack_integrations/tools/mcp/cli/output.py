# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the command shows: results on stdout, all else on stderr.

Texts of servers are shown as text: no markup of rich, and no control character that a terminal would obey.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haystack_integrations.tools.mcp.cli.call_arguments import describe_type, properties_of, required_in, signature

if TYPE_CHECKING:
    import mcp_types as types

# Where no terminal says how wide it is: tables are not wrapped, so that programs can read their lines, and help is. The
# variable COLUMNS takes precedence.
_WIDTH_OF_TABLES, _WIDTH_OF_HELP = 1_000_000, 120

# Control characters but tab and line break, and those that reverse the order of what is shown.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: object) -> str:
    """
    Escape what a terminal would obey.

    :param text: A text of a server, or anything else.
    :returns: The text with escapes such as `\\x1b` for control characters.
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], str(text).replace("\r\n", "\n"))


def one_line(text: object) -> str:
    """
    Return a text in one line.

    :param text: The text.
    :returns: The same with single spaces in place of white space.
    """
    return visible(" ".join(str(text).split()))


def as_json(value: Any) -> str:
    """
    Write a value for a script.

    :param value: JSON, and objects of the MCP SDK in it.
    :returns: Indented JSON, with the names of the protocol. Control characters are escaped.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, default=protocol_json)
    # Within strings. What JSON does not escape, a terminal may obey.
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def protocol_json(value: Any) -> Any:
    """
    Convert an object of the MCP SDK.

    :param value: The object.
    :returns: Its JSON as in the protocol, without what is not set.
    """
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class Output:
    """
    Where a command writes.
    """

    def __init__(self, *, is_json: bool = False) -> None:
        """
        Initialize the Output.

        :param is_json: Whether stdout gets JSON only.
        """
        self.is_json = is_json
        self.results: Console = _console(_results_stream or sys.stdout, _WIDTH_OF_TABLES)
        self.help: Console = _console(_results_stream or sys.stdout, _WIDTH_OF_HELP)
        self.notes: Console = _console(sys.stderr, _WIDTH_OF_HELP)

    def json(self, value: Any) -> None:
        """
        Print a result as JSON.

        :param value: The result.
        """
        self._write(as_json(value))

    def text(self, text: str) -> None:
        """
        Print a text of a server. Into a file or a pipe it goes as it is; a terminal gets no control characters.

        :param text: The text.
        """
        self._write(visible(text) if self.results.is_terminal else text)

    def _write(self, text: str) -> None:
        self.results.file.write(text if text.endswith("\n") else f"{text}\n")
        self.results.file.flush()

    def bytes(self, data: bytes) -> None:
        """
        Print bytes as they are.

        :param data: The bytes.
        """
        self.results.file.flush()
        self.results.file.buffer.write(data)  # type: ignore[attr-defined]
        self.results.file.flush()

    def print(self, renderable: Any = "", *, style: str | None = None) -> None:
        """
        Print a part of a result for a person.

        :param renderable: A text, which is taken literally, or something of rich.
        :param style: Its style.
        """
        self.results.print(_literal(renderable, style), soft_wrap=isinstance(renderable, str))

    def note(self, text: str, *, style: str | None = None) -> None:
        """
        Show something that is no result.

        :param text: The text, which is taken literally.
        :param style: Its style.
        """
        self.notes.print(_literal(text, style), soft_wrap=True)

    def ask(self, question: str) -> str:
        """
        Ask the person.

        :param question: The question.
        :returns: What was typed; the empty string for nothing.
        :raises EOFError: After Ctrl-D.
        """
        return self.notes.input(_literal(question, None)).strip()

    def confirm(self, question: str) -> bool:
        """
        Ask the person for a yes or no.

        :param question: The question.
        :returns: Whether it was yes; no is the default.
        :raises EOFError: After Ctrl-D.
        """
        return self.ask(f"{question} [y/N] ").lower() in ("y", "yes")

    def busy(self, what: str) -> AbstractContextManager[Any]:
        """
        Show on a terminal that something takes time.

        :param what: What that is.
        :returns: A context manager.
        """
        return self.notes.status(_literal(what, None)) if self.notes.is_terminal else nullcontext()


def save_bytes(file: Path, data: bytes, output: Output) -> None:
    """
    Write a file, in a folder that may not exist yet, and say so.

    :param file: The file.
    :param data: Its content.
    :param output: Where it is said.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    output.note(f"Saved {file}")


# While a command runs, `sys.stdout` is stderr, so that what a server in this process prints is no result.
_results_stream: Any = None


def keep_stdout_for_results() -> None:
    """
    Keep stdout for results: whatever else this process prints goes to stderr.
    """
    global _results_stream
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # for an emoji of a server in a terminal without Unicode
            reconfigure(errors="backslashreplace")
    _results_stream, sys.stdout = sys.stdout, sys.stderr


def stdout_for_protocol() -> AbstractContextManager[Any]:
    """
    Use stdout for a server over stdio.

    :returns: A context manager.
    """
    return redirect_stdout(_results_stream or sys.stdout)


# The first column wraps only beyond this, and the last one gets this, if it needs it.
_WIDEST_FIRST, _NARROWEST_LAST = 40, 30


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """
    Return a table.

    :param columns: The headings.
    :param rows: The cells: texts of servers.
    :returns: The table.
    """
    lines = [[one_line(cell) for cell in row] for row in rows]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        widest = max((len(line[number]) for line in lines), default=0)
        made.add_column(
            column,
            overflow="fold",
            no_wrap=number == 0 and widest <= _WIDEST_FIRST,
            min_width=min(widest, _NARROWEST_LAST) if number == len(columns) - 1 else None,
            header_style="bold",
        )
    for line in lines:
        made.add_row(*map(Text, line))
    return made


def tools_table(tools: Sequence[types.Tool]) -> Table:
    """
    Show tools, one in a row.

    :param tools: The tools.
    :returns: The table.
    """
    rows = [(tool.name, signature(tool.input_schema), tool.description or tool.title or "") for tool in tools]
    return table(("Tool", "Arguments", "Description"), rows)


def resources_table(resources: Sequence[types.Resource | types.ResourceTemplate]) -> Table:
    """
    Show resources and resource templates, one in a row.

    :param resources: Resources and templates.
    :returns: The table.
    """
    rows = []
    for each in resources:
        uri = str(getattr(each, "uri", None) or getattr(each, "uri_template", ""))
        name = each.title or each.name
        texts = [name] * (name not in uri) + [each.description or ""]
        rows.append((uri, each.mime_type or "", ": ".join(filter(None, texts))))
    return table(("Resource", "Type", "Description"), rows)


def prompts_table(prompts: Sequence[types.Prompt]) -> Table:
    """
    Show prompts, one in a row.

    :param prompts: The prompts.
    :returns: The table.
    """
    rows = [(each.name, prompt_signature(each), each.description or each.title or "") for each in prompts]
    return table(("Prompt", "Arguments", "Description"), rows)


def prompt_signature(prompt: types.Prompt) -> str:
    """
    Write the arguments of a prompt in a line.

    :param prompt: The prompt.
    :returns: Such as `text, style?`.
    """
    return ", ".join(f"{each.name}{'' if each.required else '?'}" for each in prompt.arguments or ())


def schema_table(schema: Mapping[str, Any], heading: str) -> Table | None:
    """
    Show the properties of an object, one in a row.

    :param schema: The schema of the object.
    :param heading: What they are.
    :returns: The table; None if there are no properties.
    """
    required = required_in(schema)
    rows = []
    for name, each in properties_of(schema).items():
        default = each.get("default")
        otherwise = "no" if default is None else f"default: {json.dumps(default, ensure_ascii=False)}"
        need = "yes" if name in required else otherwise
        rows.append((name, describe_type(each, schema), need, each.get("description", "")))
    return table((heading, "Type", "Required", "Description"), rows) if rows else None


def _literal(renderable: Any, style: str | None) -> Any:
    return Text(visible(renderable), style=style or "") if isinstance(renderable, str) else renderable


def _console(stream: Any, width_in_a_pipe: int) -> Console:
    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    if not console.is_terminal and console._environ.get("COLUMNS") is None:
        console.width = width_in_a_pipe
    return console
