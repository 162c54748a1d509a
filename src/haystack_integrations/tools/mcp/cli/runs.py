# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`runs`: the durable runs in a journal.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.output import CommandError, Output, OutputOptions, table

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.durable import RecordedRun, RunJournal
    from haystack_integrations.tools.mcp.durable.store import Entry

# The outcome of a call that was sent and has no result.
_MAY_HAVE_RUN = "may have run"


def runs(
    name: Annotated[str | None, Parameter(help="The name of a run, to show what is recorded of it.")] = None,
    /,
    *,
    journal: Annotated[
        str,
        Parameter(
            env_var="HAYSTACK_MCP_JOURNAL",
            show_default=True,
            help="The journal: a file of SQLite, or a URL of SQLAlchemy. A URL with a password is better in the "
            "environment.",
        ),
    ] = "runs.db",
    options: OutputOptions = OutputOptions(),
) -> None:
    """
    List the durable runs in a journal, or show one.

    Neither arguments nor results are shown, and no key is needed.
    """
    opened = _opened(journal)
    try:
        found = opened.runs()
        if name is None:
            _list(found, options.output)
            return
        run = next((each for each in found if each.name == name), None)
        if run is None:
            msg = f"The journal has no run '{name}'. 'mcp-haystack runs' lists its runs."
            raise CommandError(msg)
        _show(run, opened.calls(name, with_values=False), options.output)
    except ImportError as error:
        msg = f"The journal's database needs a driver that is not installed: {error}"
        raise CommandError(msg) from None
    finally:
        opened.close()


def _opened(journal: str) -> RunJournal:
    try:
        from haystack_integrations.tools.mcp.durable import RunJournal  # noqa: PLC0415 - needs the extra `durable`
    except ImportError as error:
        raise CommandError(str(error)) from error
    from sqlalchemy import make_url  # noqa: PLC0415

    url = journal if "://" in journal else f"sqlite:///{journal}"
    try:
        opened, parsed = RunJournal(url), make_url(url)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():  # SQLite would create it
        msg = f"There is no journal {parsed.database}. Name it with --journal, or in HAYSTACK_MCP_JOURNAL."
        raise CommandError(msg)
    return opened


def _list(found: list[RecordedRun], output: Output) -> None:
    if output.is_json:
        output.json({"runs": [_as_json(run) for run in found]})
        return
    if not found:
        output.note("The journal has no runs.")
        return
    rows = [(run.name, run.state, _time(run.created), _time(run.changed), run.attempts, _error(run)) for run in found]
    output.print(table(("Run", "State", "Begun", "Last change", "Attempts", "Ended by"), rows))


def _show(run: RecordedRun, entries: list[Entry], output: Output) -> None:
    if output.is_json:
        output.json({**_as_json(run), "entries": [_entry_as_json(entry, run) for entry in entries]})
        return
    worker = f", by {run.worker}" if run.worker else ""
    output.print(f"{run.name}: {run.state}, begun {_time(run.created)}, attempt {run.attempts}{worker}")
    if _error(run):
        output.print(f"It was ended by a {_error(run)}.")
    if entries:
        output.print()
        rows = [
            (
                each.number,
                each.place.kind,
                each.place.name,
                _outcome(each, run),
                _time(each.started),
                "" if each.ended is None else f"{max(each.ended - each.started, 0):.1f} s",
                each.attempt,
            )
            for each in entries
        ]
        output.print(table(("Number", "Kind", "Name", "Outcome", "Begun", "Took", "Attempts"), rows))
    if any(_outcome(each, run) == _MAY_HAVE_RUN for each in entries):
        output.print()
        output.print("Check what may have run, and decide with `journal.decide` before the run goes on.")


def _as_json(run: RecordedRun) -> dict[str, Any]:
    return {**asdict(run), "error": _error(run) or None}


def _entry_as_json(entry: Entry, run: RecordedRun) -> dict[str, Any]:
    return {
        "number": entry.number,
        "kind": entry.place.kind,
        "name": entry.place.name,
        "scope": entry.place.scope,
        "step": entry.place.step,
        "outcome": _outcome(entry, run),
        "started": entry.started,
        "ended": entry.ended,
        "attempt": entry.attempt,
    }


def _error(run: RecordedRun) -> str:
    # Only the error's type, because its text may quote arguments.
    return (run.error or "").partition(":")[0]


def _outcome(entry: Entry, run: RecordedRun) -> str:
    started = "running" if run.state == "running" else _MAY_HAVE_RUN
    return {"started": started, "pending": "left open"}.get(entry.state, entry.state)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
