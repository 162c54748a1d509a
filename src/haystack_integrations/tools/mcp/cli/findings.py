# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.table import Table
from rich.text import Text

from haystack_integrations.tools.mcp.cli.exit_codes import ExitCode
from haystack_integrations.tools.mcp.cli.output import Output, visible


class State(StrEnum):
    """
    How bad a finding is.
    """

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


_MARKS = {State.OK: ("ok", "green"), State.WARNING: ("warning", "yellow"), State.PROBLEM: ("problem", "red")}


@dataclass(frozen=True)
class Finding:
    """
    One thing that was looked at.

    :param subject: What it is about: "environment", or the name of a server.
    :param state: How bad it is.
    :param text: What was found.
    :param advice: What to do about it.
    :param code: With which code the command exits because of it.
    """

    subject: str
    state: State
    text: str
    advice: str | None = None
    code: ExitCode = ExitCode.FAILED

    def to_dict(self) -> dict[str, Any]:
        """
        Describe the finding as JSON.

        :returns: The fields, without the code.
        """
        found = {"subject": self.subject, "state": str(self.state), "text": self.text, "advice": self.advice}
        return {key: value for key, value in found.items() if value is not None}


def print_findings(output: Output, findings: Iterable[Finding]) -> None:
    """
    Show findings, below the headings of what they are about.

    :param output: Where.
    :param findings: The findings.
    """
    subjects: dict[str, Table] = {}
    for finding in findings:
        grid = subjects.setdefault(finding.subject, Table.grid(padding=(0, 1)))
        if not grid.columns:
            grid.add_column(width=9)
            grid.add_column(overflow="fold")
        mark, style = _MARKS[finding.state]
        grid.add_row(Text(f"  {mark}", style=style), Text(visible(finding.text)))
        if finding.advice:
            grid.add_row("", Text(visible(finding.advice), style="italic"))
    for subject, grid in subjects.items():
        output.print(subject, style="bold")
        output.print(grid)
        output.print()


def counted(number: int, noun: str) -> str:
    """
    Write a number with what is counted.

    :param number: The number.
    :param noun: What is counted, in the singular.
    :returns: Such as `1 tool` or `2 tools`.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def exit_code_for(findings: Iterable[Finding]) -> ExitCode:
    """
    Choose the exit code for findings.

    :param findings: The findings.
    :returns: 0 without a problem; the code of the problems if all have the same, else 1.
    """
    codes = {finding.code for finding in findings if finding.state is State.PROBLEM}
    return codes.pop() if len(codes) == 1 else ExitCode.FAILED if codes else ExitCode.OK
