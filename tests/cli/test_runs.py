# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`mcp-haystack runs`: shows durable runs, without their contents.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import MCPToolset
from haystack_integrations.tools.mcp.durable import RunJournal
from tests.cli.conftest import Run
from tests.support.foreign_server import ForeignServer, definition

AMOUNT = {"type": "object", "properties": {"amount": {"type": "string"}}}


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """
    The file of a journal with a finished run, and a run that ended during a call.
    """
    file = str(tmp_path / "runs.db")
    made = RunJournal(
        f"sqlite:///{file}", encryption_key=Secret.from_token("h8Q2x1mVfXk0rNqzUu3o6l0pQm8X1c0yq3v5b7n9aZs=")
    )
    with MCPToolset(ForeignServer(definition("pay", AMOUNT)).info) as tools:
        with made.run("invoice-41"):
            tools["pay"].call(amount="an amount")

        def killed(*_args: object, **_keywords: object) -> bool:
            msg = "an amount"
            raise KeyboardInterrupt(msg)

        with monkeypatch.context() as patch:
            patch.setattr(made._store, "finish", killed)
            with pytest.raises(KeyboardInterrupt), made.run("invoice-42"):
                made.value("today", lambda: "an amount")
                tools["pay"].call(amount="an amount")
    made.close()
    yield file


def test_runs_are_listed_and_shown_without_arguments_and_results(run: Run, journal: str, monkeypatch) -> None:
    listed = run("runs", "--journal", journal).screen
    assert re.search(r"invoice-41 +done +2\S+ \S+ +2\S+ \S+ +1\s*\n", listed)
    assert re.search(r"invoice-42 +unfinished .* 1 +KeyboardInterrupt", listed)
    shown = run("runs", "invoice-42", "--journal", f"sqlite:///{journal}").screen
    assert re.search(r"invoice-42: unfinished, begun \S+ \S+, attempt 1", shown)
    assert re.search(r"\d +value +today +done .*0\.0 s +1", shown)
    assert re.search(r"\d +call +pay +may have run ", shown)
    assert "decide with `journal.decide`" in shown
    assert "decide" not in run("runs", "invoice-41", "--journal", journal).screen
    monkeypatch.setenv("HAYSTACK_MCP_JOURNAL", journal)
    found = run("runs", "--json").screen
    runs = [(each["name"], each["state"], each["error"]) for each in json.loads(found)["runs"]]
    assert runs == [("invoice-41", "done", None), ("invoice-42", "unfinished", "KeyboardInterrupt")]
    entries = run("runs", "invoice-42", "--json").screen
    outcomes = [(each["kind"], each["name"], each["outcome"]) for each in json.loads(entries)["entries"]]
    assert outcomes == [("value", "today", "done"), ("call", "pay", "may have run")]
    assert "an amount" not in listed + shown + found + entries


def test_the_error_names_a_file_that_is_not_a_journal(run: Run, tmp_path: Path, journal: str) -> None:
    missing = run("runs", "--journal", str(tmp_path / "no.db"))
    assert missing.code == 2
    assert re.search(r"There is no journal .*no\.db\. Name it with --journal", missing.errors)
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "bad.db").write_bytes(b"no database" * 1_000)
    broken = run("runs", "--journal", str(tmp_path / "bad.db"))
    assert (broken.code, "cannot be used: file is not a database" in broken.errors) == (2, True)
    unknown = run("runs", "invoice-1", "--journal", journal)
    assert (unknown.code, "has no run 'invoice-1'" in unknown.errors) == (2, True)
    for url in ("nonsense://", "oracle+cx_oracle://h"):
        wrong = run("runs", "--journal", url)
        assert (wrong.code, "Traceback" in wrong.errors) == (2, False)


def test_the_error_names_the_missing_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "haystack_integrations.tools.mcp.durable")
    ran = run("runs")
    assert (ran.code, 'pip install "mcp-haystack[durable]"' in ran.errors) == (2, True)
