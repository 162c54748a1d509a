# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Faults around a durable run: a stopped worker, a suspended machine, a full disk.
"""

import asyncio
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from haystack.dataclasses import ChatMessage
from sqlalchemy.event import listen

from haystack_integrations.tools.mcp import MCPToolCall, MCPToolset, preload
from haystack_integrations.tools.mcp.connection.requests import call_recorder
from haystack_integrations.tools.mcp.durable import RunJournal, run, store
from haystack_integrations.tools.mcp.durable.store import Lease, Store
from haystack_integrations.tools.mcp.errors import MCPRunError
from tests.durable import kills
from tests.durable.kills import Figures, Setting, count, fork, settle
from tests.durable.postgres import postgres, programs
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.scripted_chat import ScriptedChatGenerator, say
from tests.support.waiting import LIMIT, wait_until

LARGE = "x" * 20_000


@pytest.fixture
def journal(new_journal):
    return new_journal(lease=kills.LEASE)


@pytest.fixture
def server():
    server = ForeignServer(definition("look", {"type": "object"}))
    server.answer = text_result(LARGE)
    return server


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_that_was_stopped_past_its_lease_sends_nothing_when_it_continues(
    journal, tmp_path, monkeypatch, is_async
):
    preload()  # a fork waits for it, and the worker begins at once
    monkeypatch.setattr(kills, "LEASE", 3)  # long enough for a busy machine
    setting = Setting(f"sqlite:///{tmp_path}/runs.db", str(tmp_path / "books.txt"), None, 0.0)
    (written, wrote), (goes_on, go_on) = os.pipe(), os.pipe()
    insert = Store.insert

    def insert_and_wait(self: Store, lease: Lease, place: Any, *args: Any, **options: Any) -> Any:
        entry = insert(self, lease, place, *args, **options)
        if place.kind == "call":
            os.write(wrote, b".")
            os.read(goes_on, 1)
        return entry

    with monkeypatch.context() as patched:
        patched.setattr(Store, "insert", insert_and_wait)
        stopped = fork(setting, "invoice", is_async=is_async)
    os.close(wrote)  # so that reading ends when the worker ends
    monkeypatch.setattr(kills, "LEASE", LIMIT)
    try:
        assert os.read(written, 1) == b"."  # the call is recorded, but not sent yet
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: journal.unfinished() == ["invoice"], "the end of the lease")
        assert ended(fork(setting, "invoice", is_async=is_async)) == kills.IN_DOUBT
        figures = Figures()
        settle(journal, setting, "invoice", figures)
        assert (figures.in_doubt, figures.had_run) == (1, 0)
        assert ended(fork(setting, "invoice", is_async=is_async)) == kills.DONE
    finally:
        os.write(go_on, b".")
        os.kill(stopped, signal.SIGCONT)
        code = ended(stopped)
    assert code == kills.LOST
    count(setting, "invoice", figures)
    assert (figures.twice, figures.missing) == (0, 0)
    assert [each.state for each in journal.runs()] == ["done"]


def ended(worker: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def test_a_machine_that_was_suspended_past_the_lease_sends_nothing_until_the_run_is_reopened(
    journal, server, monkeypatch
):
    monkeypatch.setattr(run.OpenRun, "renew_lease", lambda _self: None)
    with MCPToolset(server.info) as tools:
        with pytest.raises(MCPRunError, match=r"its lease has ended.*Nothing was sent"), journal.run("run"):
            clock = store.boot_clock
            for module in (run, store):
                monkeypatch.setattr(module, "boot_clock", lambda: clock() + 3600)
            tools["look"].call()
        assert not server.calls
        assert journal.unfinished() == ["run"]
        with journal.run("run"):
            tools["look"].call()
    assert len(server.calls) == 1


def test_a_call_that_waits_past_the_lease_is_not_sent_and_did_not_run(journal, server, monkeypatch):
    def suspended(call: MCPToolCall, call_next: Any) -> Any:
        clock = store.boot_clock
        with monkeypatch.context() as patched:
            for module in (run, store):
                patched.setattr(module, "boot_clock", lambda: clock() + 3600)
            return call_next(call)

    with MCPToolset(server.info, interceptors=[suspended]) as tools:
        with pytest.raises(MCPRunError, match=r"its lease has ended.*Nothing was sent"), journal.run("run"):
            tools["look"].call()
    assert not server.calls
    assert [each.result["outcome"] for each in journal.calls("run")] == ["did_not_run"]


def test_a_process_that_stood_still_while_a_person_decided_sends_nothing(journal, server, monkeypatch):
    monkeypatch.setattr(Store, "begin_renewing", lambda *_, **__: None)

    def suspended(call: MCPToolCall, call_next: Any) -> Any:
        clock = store.boot_clock
        for module in (run, store):
            monkeypatch.setattr(module, "boot_clock", lambda: clock() + 3600)
        journal.decide("run", journal.calls("run")[0].number, "repeat")
        call_recorder.get().renew_lease()
        return call_next(call)

    with MCPToolset(server.info, interceptors=[suspended]) as tools:
        with pytest.raises(MCPRunError, match="cannot go on here"), journal.run("run"):
            tools["look"].call()
    assert not server.calls


def test_a_reply_that_the_database_refuses_is_kept_until_it_accepts_it(journal, monkeypatch):
    insert, refusals = Store.insert, [MCPRunError("The journal cannot be used: the server is restarting")]

    def restarting(self: Store, *args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return insert(self, *args, **options)

    monkeypatch.setattr(Store, "insert", restarting)
    model = ScriptedChatGenerator([say("hello")])
    for _ in range(2):
        with journal.run("run"):
            assert journal.generator(model).run([ChatMessage.from_user("hi")])["replies"][0].text == "hello"
    assert (len(model.turns), refusals) == (1, [])


def test_a_write_whose_answer_is_lost_is_made_again(journal, server, monkeypatch):
    execute, lost = Store._execute, []

    def lose_each_first_answer(self: Store, statement: Any, **values: Any) -> Any:
        done, is_end = execute(self, statement, **values), statement is self._statements.release
        written = "end" if is_end else values.get("kind") or values.get("new_state")
        if written and written not in lost:
            lost.append(written)
            raise MCPRunError("The journal cannot be used: the connection was lost")
        return done

    monkeypatch.setattr(Store, "_execute", lose_each_first_answer)
    model = journal.generator(ScriptedChatGenerator([say("hello")]))
    with MCPToolset(server.info) as tools, journal.run("run"):
        model.run([ChatMessage.from_user("hi")])
        tools["look"].call()
    assert (lost, len(server.calls)) == (["reply", "call", "done", "end"], 1)
    assert [each.state for each in [*journal.calls("run"), *journal.runs()]] == ["done", "done", "done"]


def test_no_call_is_sent_on_a_full_disk_and_a_result_is_kept_until_there_is_space(journal, server, monkeypatch):
    limit_pages(journal, 0)
    noted = threading.Event()
    finish = Store.finish

    def note_attempt(self: Store, *args: Any, **options: Any) -> bool:
        try:
            return finish(self, *args, **options)
        finally:
            noted.set()

    def make_room() -> None:
        assert noted.wait(LIMIT)
        limit_pages(journal, 10_000)

    monkeypatch.setattr(Store, "finish", note_attempt)
    with MCPToolset(server.info) as tools, journal.run("run"):
        with pytest.raises(MCPRunError, match="database or disk is full"):
            tools["look"].call(text=LARGE)
        assert not server.calls
        room = threading.Thread(target=make_room)
        room.start()
        assert tools["look"].call().text == LARGE
        room.join()
    assert len(server.calls) == 1
    assert [each.state for each in journal.calls("run")] == ["done"]


def test_a_run_ends_with_the_reason_if_the_database_always_refuses_a_result(journal, server, monkeypatch, caplog):
    def refuse(*_args: Any, **_options: Any) -> bool:
        raise MCPRunError("The journal cannot be used: string or blob too big")

    monkeypatch.setattr(Store, "finish", refuse)
    with MCPToolset(server.info) as tools:
        with pytest.raises(MCPRunError, match="too big"), journal.run("run"):
            tools["look"].call()  # the lease is renewed meanwhile
    assert [each.state for each in journal.calls("run")] == ["started"]
    assert caplog.text.count("The record of 'look' in run 'run' was not written, and is tried again") == 1


async def test_a_failing_database_does_not_hide_why_a_run_ended(journal, monkeypatch, caplog):
    def fail(*_: Any, **__: Any) -> None:
        msg = "the disk is full"
        raise MCPRunError(msg)

    monkeypatch.setattr(Store, "release", fail)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit, journal.run("cancelled"):
            limit.reschedule(0)
            await asyncio.sleep(LIMIT)
    assert "The end of run 'cancelled' was not recorded: the disk is full" in caplog.text
    with pytest.raises(MCPRunError, match="the disk is full"), journal.run("done"):
        pass


def limit_pages(journal: RunJournal, more: int) -> None:
    """Limit the growth of the database to this number of pages."""
    with journal._store._engine_in_use().connect() as connection:
        pages = connection.execute(sql.text("PRAGMA page_count")).scalar()
        connection.execute(sql.text(f"PRAGMA max_page_count = {pages + more}"))


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
def test_a_run_can_begin_after_a_restart_of_the_database():
    with postgres() as url:
        journal = RunJournal(url)
        with journal.run("before"):
            pass
        admin = sql.create_engine(url)
        with admin.connect() as connection:
            others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ended = connection.execute(sql.text(f"SELECT pg_terminate_backend(pid) {others}")).scalars().all()
        admin.dispose()
        with journal.run("after"):
            pass
        assert (ended, [each.state for each in journal.runs()]) == ([True], ["done", "done"])
        journal.close()


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
def test_a_journal_works_behind_a_pooler_and_with_other_drivers(monkeypatch):
    with postgres() as url, monkeypatch.context() as patched:
        journal = RunJournal(url)
        for number in range(10):
            with journal.run(f"run {number}"):
                journal.value("x", lambda: 1)
        with journal._store._engine_in_use().connect() as connection:  # a pooler may hand statements to other servers
            assert connection.exec_driver_sql("SELECT name FROM pg_prepared_statements").all() == []
        journal.close()
        patched.setattr("psycopg.paramstyle", "format")  # that of pg8000
        # psycopg2 returns memoryviews
        patched.setattr(Store, "_loads", lambda self, data, loads=Store._loads: loads(self, memoryview(data)))
        journal, given = RunJournal(url), set()
        listen(journal._store._engine_in_use(), "before_cursor_execute", lambda *event: given.add(type(event[3])))
        with journal.run("run 1"):
            assert (journal.value("x", lambda: 2), journal.value("y", lambda: 2)) == (1, 2)
        journal.prune(timedelta(days=1))
        assert given == {tuple}  # pg8000 refuses names, also if there are none
        journal.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
def test_workers_that_open_a_new_database_at_the_same_time_do_not_disturb_each_other(tmp_path):
    def work(name: str, gate: Path) -> None:
        try:
            own = RunJournal(f"sqlite:///{gate}.db")
            wait_until(gate.exists, lambda: "gate")
            with own.run(name):
                pass
            os._exit(0)
        finally:
            os._exit(1)

    for number in range(5):
        gate = tmp_path / f"gate{number}"
        workers = [os.fork() or work(name, gate) for name in "abcd"]
        gate.touch()
        assert [ended(worker) for worker in workers] == [0, 0, 0, 0]
