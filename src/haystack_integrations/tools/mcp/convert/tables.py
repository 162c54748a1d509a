# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Shows tools as a table, in a terminal and in a notebook.
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
    header = "".join(f"<th>{name}</th>" for name in _HEADER)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _row(tool))}</tr>" for tool in tools)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"


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
