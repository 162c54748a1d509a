# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from haystack_integrations.tools.mcp.cli.output import Output, one_line
from haystack_integrations.tools.mcp.handlers.progress import MCPProgress


class ProgressBar:
    """
    Shows on a terminal how far a tool is; in a pipe, nothing.
    """

    def __init__(self, output: Output) -> None:
        """
        Initialize the ProgressBar.

        :param output: Where it is shown.
        """
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=output.notes,
            transient=True,
            disable=not output.notes.is_terminal,
        )
        self._name = ""
        self._task = self._progress.add_task("", total=None)

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """
        Show that a tool runs.

        :param name: Its name.
        :returns: A context manager.
        """
        self._name = one_line(name)
        self._progress.reset(self._task, description=self._name, total=None)
        with self._progress:
            yield

    def report(self, report: MCPProgress) -> None:
        """
        Show what the tool said.

        :param report: Its progress.
        """
        said = f"{self._name}: {one_line(report.message)}" if report.message else self._name
        self._progress.update(self._task, completed=report.progress, total=report.total, description=said)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """
        Leave the terminal to a question.

        :returns: A context manager.
        """
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()
