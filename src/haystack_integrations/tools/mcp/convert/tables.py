# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Shows tools and facts as tables, in a terminal and in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from haystack.tools.tool import Tool

_HEADER: Final = ("tool", "parameters", "description")
_WIDEST: Final = {"parameters": 40, "description": 70}


def text_table(tools: Iterable[Tool]) -> str:
    """
    Make a table for a terminal.

    :param tools: The tools.
    :returns: A line for the header and each tool. Long cells are shortened.
    """
    rows = [_HEADER, *(tuple(map(_shorten, _row(tool), _HEADER)) for tool in tools)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def html_table(tools: Iterable[Tool], caption: str) -> str:
    """
    Make a table for a notebook.

    :param tools: The tools.
    :param caption: Text above the table.
    :returns: HTML, in which everything that the server says is escaped.
    """
    return html_rows(_HEADER, map(_row, tools), caption)


def html_parameters(tool: Tool, caption: str) -> str:
    """
    Make a table of the parameters of a tool for a notebook.

    :param tool: The tool.
    :param caption: Text above the table; the description comes after it.
    :returns: HTML.
    """
    required = tool.parameters.get("required", ())
    rows = []
    for name, schema in tool.parameters.get("properties", {}).items():
        described = schema if isinstance(schema, dict) else {}
        kind = described.get("type", "")
        kind = " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
        rows.append((name, kind, "yes" if name in required else "no", str(described.get("description", ""))))
    return html_rows(("parameter", "type", "required", "description"), rows, f"{caption}: {tool.description}")


def html_rows(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """
    Make a table for a notebook.

    :param header: The headings.
    :param rows: The cells.
    :param caption: Text above the table.
    :returns: HTML, in which everything is escaped.
    """
    headings = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_printable(cell))}</td>' for cell in row)}</tr>" for row in rows)
    text = escape(_printable(caption))
    return f"<table><caption>{text}</caption><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"


def _row(tool: Tool) -> tuple[str, str, str]:
    required = tool.parameters.get("required", ())
    parameters = (name if name in required else f"{name}?" for name in tool.parameters.get("properties", {}))
    line = next((line.strip() for line in tool.description.splitlines() if line.strip()), "")
    return tool.name, _printable(", ".join(parameters)), _printable(line)


def _printable(text: str) -> str:
    # A server's control characters would be obeyed by a terminal.
    return "".join(char if char.isprintable() else " " for char in text)


def _shorten(cell: str, column: str) -> str:
    widest = _WIDEST.get(column, len(cell))
    return cell if len(cell) <= widest else f"{cell[: widest - 1]}…"
