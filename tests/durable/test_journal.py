# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Durable runs in one process: recorded calls are not repeated, and unknown outcomes are not guessed.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import gc
import os
import pickle
import re
import sqlite3
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, Document, ToolCall
from haystack.tools import ComponentTool, Tool
from haystack.utils import Secret
from mcp import types
from mcp.server.mcpserver import Context, MCPServer

from haystack_integrations.components.tools.mcp import MCPToolCaller
from haystack_integrations.tools.mcp import (
    FromState,
    InProcessServerInfo,
    MCPConnection,
    MCPHandlers,
    MCPSampling,
    MCPSearchableToolset,
    MCPToolset,
    ToolOptions,
)
from haystack_integrations.tools.mcp.budgets import call_budget
from haystack_integrations.tools.mcp.connection.requests import call_recorder
from haystack_integrations.tools.mcp.durable import RunJournal, UnknownCall
from haystack_integrations.tools.mcp.durable import store as store_module
from haystack_integrations.tools.mcp.durable.run import KEY_IN_META, request_of
from haystack_integrations.tools.mcp.durable.store import Store
from haystack_integrations.tools.mcp.errors import (
    MCPCallInDoubtError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPRunChangedError,
    MCPRunElsewhereError,
    MCPRunError,
)
from haystack_integrations.tools.mcp.protocol.changes import next_tick
from tests.durable.conftest import cause_of
from tests.servers.asking_server import build_server
from tests.support.foreign_server import ForeignServer, definition, ringing, text_result
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say
from tests.support.waiting import LIMIT, wait_until, wait_until_async

GO = [ChatMessage.from_user("go")]
AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer"}, "key": {"type": "string"}}}


class Interruption(BaseException):
    """Stands for a kill."""


class Bank(ForeignServer):
    """
    A server that records the `_meta` of calls, and answers with its arguments.
    """

    def __init__(self) -> None:
        super().__init__(definition("pay", AMOUNT), definition("look", AMOUNT, annotations={"readOnlyHint": True}))
        self.metas: list[dict[str, Any]] = []
        self.reply: Callable[[str, dict[str, Any]], types.CallToolResult] | None = None

    async def _call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        await super()._call_tool(context, params)
        self.metas.append(dict(params.meta or {}))
        if self.reply is not None:
            return self.reply(params.name, params.arguments)
        return text_result(f"{params.name} {params.arguments['amount']}")


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def tools(bank: Bank) -> Iterator[MCPToolset]:
    with MCPToolset(bank.info) as toolset:
        yield toolset


def play(journal: RunJournal, tools: Any, *replies: ChatMessage, is_async: bool = False):
    """Continue a run with an Agent; return the texts of its tools' results, and the turns of its model."""
    generator = ScriptedChatGenerator(list(replies))
    agent = Agent(chat_generator=journal.generator(generator), tools=tools)

    async def in_loop() -> dict[str, Any]:
        async with journal.run("run"):
            return await agent.run_async(messages=GO)

    if is_async:
        result = asyncio.run(in_loop())
    else:
        with journal.run("run"):
            result = agent.run(messages=GO)
    told = [each.result for message in result["messages"] for each in message.tool_call_results]
    return told, generator.turns


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failed_run_continues_where_it_stopped(journal, bank, tools, is_async):
    with pytest.raises(Exception, match="the script has only 1 replies"):
        play(journal, tools, calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), is_async=is_async)
    assert journal.unfinished() == ["run"]
    for replies in ([say("done")], []):
        told, asked = play(journal, tools, *replies, is_async=is_async)
        assert (told, len(asked)) == (["pay 1", "pay 2"], len(replies))
        assert journal.unfinished() == []
    assert len(bank.calls) == 2
    assert [entry.place.kind for entry in journal.calls("run")] == ["reply", "call", "call", "reply"]


def test_calls_are_found_by_tool_and_arguments_and_equal_ones_by_their_number(journal, bank, tools):
    tools["pay"].call(amount=1)  # nothing is recorded outside a run
    assert journal.value("now", lambda: 5) == 5
    drawn = []
    for amounts in ((1, 2, 1), (2, 1, 1, 3)):
        with journal.run("run"):
            assert [tools["pay"].call(amount=n).text for n in amounts] == [f"pay {n}" for n in amounts]
            drawn.append([journal.value("now", time.time_ns) for _ in range(2)])
    assert drawn[0] == drawn[1] and len({*drawn[0]}) == 2
    assert [arguments["amount"] for _, arguments in bank.calls] == [1, 1, 2, 1, 3]
    with pytest.raises(TypeError, match="timedelta is not JSON"), journal.run("run"):
        journal.value("today", lambda: timedelta(days=1))


def interrupted(journal: RunJournal, monkeypatch: pytest.MonkeyPatch, tools: Any, tool: str = "pay") -> None:
    """Leave a call without a result, as a kill does."""

    def killed(*_args: Any, **_keywords: Any) -> bool:
        raise Interruption

    with monkeypatch.context() as patch:
        patch.setattr(journal._store, "finish", killed)
        with pytest.raises(Interruption), journal.run("run"):
            tools[tool].call(amount=1)


async def give_up(call: Any, begun: asyncio.Event) -> None:
    """Start a call, and cancel it once it has begun."""
    task = asyncio.create_task(call)
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])


def test_a_call_without_a_result_ends_the_run_until_a_person_decides(journal, bank, tools, monkeypatch):
    message = ChatMessage.from_assistant(tool_calls=[ToolCall("pay", {"amount": 1})])
    interrupted(journal, monkeypatch, tools)
    for sent in (lambda: tools["pay"].call(amount=1), lambda: MCPToolCaller(tools).run(messages=[message])):
        with pytest.raises(MCPCallInDoubtError, match=r"'pay' in run 'run' was sent .*may have run") as raised:
            with journal.run("run"):
                sent()
    [unknown] = journal.in_doubt("run")
    assert (unknown.number, unknown.tool_name, unknown.arguments) == (raised.value.number, "pay", {"amount": 1})
    assert pickle.loads(pickle.dumps(raised.value)).number == unknown.number  # noqa: S301
    with journal.run("run"), pytest.raises(MCPRunError, match="or a process has it now"):
        journal.decide("run", unknown.number, "repeat")
    with pytest.raises(ValueError, match="`decision` must be 'repeat', 'done' or 'model'"):
        journal.decide("run", unknown.number, "perhaps")
    with pytest.raises(ValueError, match="`result` must be the tool's result"):
        journal.decide("run", unknown.number, "done")
    assert "amount" not in repr(unknown)
    journal.decide("run", unknown.number, "done", "paid by hand")
    with journal.run("run"):
        assert tools["pay"].call(amount=1).text == "paid by hand"
    with pytest.raises(MCPRunError, match="has no call"):
        journal.decide("run", unknown.number, "repeat")
    assert len(bank.calls) == 1
    journal.delete("run")
    interrupted(journal, monkeypatch, tools)
    [unknown] = journal.in_doubt("run")
    journal.decide("run", unknown.number, "done", {"paid": 1, "to": None})
    with journal.run("run"):
        assert tools["pay"].call(amount=1).text == '{"paid": 1, "to": null}'
    journal.delete("run")
    interrupted(journal, monkeypatch, tools)
    [unknown] = journal.in_doubt("run")
    journal.decide("run", unknown.number, "model")
    with journal.run("run"), pytest.raises(MCPOutcomeUnknownError, match="Do not repeat it without checking"):
        tools["pay"].call(amount=1)
    assert len(bank.calls) == 3


def test_on_unknown_may_be_a_decision_or_a_function_that_gets_the_call(journal, bank, tools, monkeypatch):
    asked: list[UnknownCall] = []
    for decision, error in (("model", MCPOutcomeUnknownError), ("error", MCPCallInDoubtError), ("repeat", None)):
        interrupted(journal, monkeypatch, tools)
        before = len(bank.calls)
        with journal.run("run", on_unknown=lambda _: "perhaps"), pytest.raises(MCPRunError, match="'perhaps'"):
            tools["pay"].call(amount=1)
        with journal.run("run", on_unknown=lambda unknown, said=decision: asked.append(unknown) or said):
            with pytest.raises(error) if error else nullcontext():
                assert tools["pay"].call(amount=1).text == "pay 1"
        assert len(bank.calls) - before == (0 if error else 1)
        assert (asked[-1].run, asked[-1].tool_name, asked[-1].arguments) == ("run", "pay", {"amount": 1})
        assert asked[-1].started <= time.time()
        if decision == "model":  # the model gets the same answer again
            with journal.run("run"), pytest.raises(MCPOutcomeUnknownError, match="may have run"):
                tools["pay"].call(amount=1)
        journal.delete("run")
    interrupted(journal, monkeypatch, tools)
    with journal.run("run", on_unknown="model"), pytest.raises(MCPOutcomeUnknownError, match="may have run") as raised:
        tools["pay"].call(amount=1)
    assert "journal" not in str(raised.value)  # the model cannot decide, so it is not told about the journal


def test_a_failing_on_unknown_leaves_the_call_in_doubt_and_is_not_shown_to_the_model(journal, bank, tools, monkeypatch):
    def nobody_is_there(_unknown: UnknownCall) -> Any:
        raise EOFError

    interrupted(journal, monkeypatch, tools)
    before = len(bank.calls)
    with journal.run("run", on_unknown=nobody_is_there), pytest.raises(MCPCallInDoubtError, match="EOFError") as raised:
        tools["pay"].call(amount=1)
    assert isinstance(raised.value.__cause__, EOFError)
    assert len(journal.in_doubt("run")) == 1
    assert len(bank.calls) == before


def test_a_call_is_repeated_only_if_the_tool_and_the_user_allow_it(journal, bank, tools, monkeypatch):
    with MCPToolset(bank.info, tool_options=ToolOptions(retry_idempotent=True)) as allowed:
        interrupted(journal, monkeypatch, allowed, "look")
        allowed._changed_at = next_tick()  # right after the connect, changes may have been missed
        with journal.run("run"):
            assert allowed["look"].call(amount=1).text == "look 1"
    [first, second] = bank.metas
    assert first[KEY_IN_META] == second[KEY_IN_META]
    [entry] = [each for each in journal.calls("run") if each.place.kind == "call"]
    assert (entry.attempt, entry.state) == (2, "done")
    journal.delete("run")
    interrupted(journal, monkeypatch, tools, "look")
    with journal.run("run"), pytest.raises(MCPCallInDoubtError):
        tools["look"].call(amount=1)


def test_the_key_of_a_call_is_passed_in_an_argument_that_the_model_does_not_see(journal, bank):
    options = ToolOptions(idempotency_argument="key")
    with MCPToolset(bank.info, tool_names=["pay"], tool_options=options) as tools:
        assert list(tools["pay"].parameters["properties"]) == ["amount"]
        with journal.run("run"):
            tools["pay"].call(amount=1, key="of the model")
            tools["pay"].call(amount=1)
        tools["pay"].call(amount=1)
    keys = [arguments["key"] for _, arguments in bank.calls]
    assert len({*keys, "of the model"}) == 4
    assert keys[:2] == [meta[KEY_IN_META] for meta in bank.metas[:2]]
    with pytest.raises(ValueError, match="`idempotency_argument` of tool 'pay' has the unknown parameter 'id'"):
        MCPToolset(
            bank.info, tool_options=ToolOptions(idempotency_argument="id"), tool_names=["pay"], eager_connect=True
        )


def test_a_failure_that_the_model_has_seen_is_kept_and_before_that_a_call_that_did_not_run_is_repeated(
    journal, bank, tools, monkeypatch
):
    def refused(*_args: Any) -> types.CallToolResult:
        raise MCPInvocationError("Failed to connect. The tool did not run.", "pay")

    with monkeypatch.context() as patch:
        patch.setattr(MCPConnection, "_deliver", refused)
        with pytest.raises(MCPInvocationError, match="did not run"), journal.run("run"):
            tools["pay"].call(amount=1)
        [failed] = journal.calls("run")
    with journal.run("run"):
        assert tools["pay"].call(amount=1).text == "pay 1"
    [made] = journal.calls("run")
    assert (made.number, made.state, made.attempt) == (failed.number, "done", 2)
    journal.delete("run")
    with monkeypatch.context() as patch:
        patch.setattr(MCPConnection, "_deliver", refused)
        told, _ = play(journal, tools, call("pay", amount=1), say("done"))
    assert "did not run" in told[0]
    assert play(journal, tools)[0] == told
    journal.delete("run")
    bank.reply = lambda _name, _arguments: text_result("no money", is_error=True)
    told, _ = play(journal, tools, call("pay", amount=1), say("done"))
    assert "no money" in told[0]
    assert play(journal, tools)[0] == told
    assert len(bank.calls) == 2
    for _ in range(2):
        with journal.run("again"), pytest.raises(MCPInvocationError, match="no money") as raised:
            tools["pay"].call(amount=1)
        assert raised.value.is_tool_error
    assert len(bank.calls) == 3


def change(journal: RunJournal, statement: str) -> None:
    with closing(sqlite3.connect(journal._store._url.database)) as database, database:
        database.execute(statement)


def test_a_run_with_the_name_of_a_deleted_run_begins_anew(journal, bank, tools):
    for _ in range(2):
        with journal.run("run"):
            tools["pay"].call(amount=1)
        assert len(journal.calls("run")) == 1
        change(journal, "DELETE FROM mcp_runs")  # as if the process was killed before it deleted the rest
    assert len(bank.calls) == 2


def test_a_late_result_of_a_deleted_run_is_not_stored_in_a_new_run_with_its_number(journal):
    with journal.run("ann"):
        late = call_recorder.get()
        of_ann, _ = late.begin("balance", {}, may_repeat=lambda: False)
        change(journal, "UPDATE mcp_runs SET lease_until = 0")
        assert journal.delete("ann")
        with journal.run("bob"):
            other = call_recorder.get()
            of_bob, _ = other.begin("balance", {}, may_repeat=lambda: False)
            with pytest.raises(MCPRunError, match="another process"):
                late.record_state(of_ann, "done", "of ann")
            other.record_state(of_bob, "done", "of bob")
    assert (of_ann.number, [each.result for each in journal.calls("bob")]) == (of_bob.number, ["of bob"])


def test_another_program_cannot_continue_a_run(journal, bank, tools):
    def asking(messages: list[ChatMessage], shown: Any) -> None:
        Agent(chat_generator=generator, tools=shown).run(messages=messages)

    def paying_more() -> None:
        generator.run(messages=GO, tools=tools)
        tools["pay"].call(amount=7)

    play(journal, tools, call("pay", amount=1), say("done"))
    generator = journal.generator(ScriptedChatGenerator([]))
    with MCPToolset(bank.info, tool_names=["pay"]) as fewer:
        for another, difference in (
            (lambda: asking([ChatMessage.from_user("something else")], tools), r"message 1 \(user\) is another one"),
            (lambda: asking(GO, fewer), "the tool 'look' is gone"),
            (paying_more, r"no such call of 'pay'\. The nearest .* differs: the argument `amount` is another"),
        ):
            with pytest.raises(Exception) as raised, journal.run("run"):
                another()
            assert re.search(difference, str(cause_of(raised.value, MCPRunChangedError)))
    assert len(bank.calls) == 1


def test_a_server_may_reword_its_tools_before_a_run_is_continued():
    def recorded(**of_n: Any) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {"title": {"type": "string", "title": "T"}, "n": of_n}}
        return request_of(GO, [dataclasses.replace(haystack_tool(abs), parameters=parameters)])

    assert recorded(type="integer") == recorded(type="integer", description="a number", title="N")
    assert recorded(type="integer") != recorded(type="number")


def test_a_run_has_only_one_worker_at_a_time(journal, new_journal):
    other = new_journal(lease=5)
    with journal.run("run"):
        with pytest.raises(MCPRunElsewhereError, match="again after 5 seconds"):
            with other.run("run"):
                pass
        with other.run("another"):
            assert [each.state for each in other.runs()] == ["running", "running"]
        assert not other.delete("run")
    with other.run("run"):
        pass
    assert [(each.name, each.state, each.attempts) for each in other.runs()] == [
        ("run", "done", 2),
        ("another", "done", 1),
    ]


def test_a_done_run_that_is_opened_again_and_killed_is_unfinished(journal):
    with journal.run("run"):
        pass
    journal._store.claim("run", "a process that is killed", 0.0)
    wait_until(lambda: journal.unfinished() == ["run"], "the end of the lease")
    assert journal.prune(timedelta(seconds=-1)) == 0


def test_a_worker_that_was_stalled_while_it_leased_a_run_sends_and_writes_nothing(
    bank, tools, new_journal, monkeypatch
):
    slow, quick = (new_journal(lease=0.3) for _ in range(2))
    execute, claimed = Store._execute, []

    def standing_still(store: Store, *arguments: Any, **values: Any) -> Any:
        executed = execute(store, *arguments, **values)
        if store is slow._store and not claimed:
            claimed.append(executed)
            wait_until(lambda: quick.unfinished() == ["run"], "the end of the lease")
            with quick.run("run"):
                tools["pay"].call(amount=1)
        return executed

    monkeypatch.setattr(Store, "_execute", standing_still)
    monkeypatch.setattr("haystack_integrations.tools.mcp.durable.run.OpenRun.renew_lease", lambda _self: None)
    with slow.run("run"):
        with pytest.raises(MCPRunError, match=r"its lease has ended.*Nothing was sent"):
            tools["pay"].call(amount=2)
    assert len(bank.calls) == 1
    assert [each.state for each in quick.runs()] == ["done"]  # the end of the slow worker changed nothing


def test_a_run_whose_opening_was_cancelled_is_free_again(new_journal, tmp_path):
    journal = new_journal(lease=0.5)
    journal.runs()  # creates the tables

    async def give_up() -> None:
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as writing:
            writing.execute("BEGIN IMMEDIATE")  # makes opening the run wait
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), journal.run("run"):
                    pytest.fail("the run cannot be open")

    asyncio.run(give_up())
    wait_until(
        lambda: [(each.name, each.state) for each in journal.runs()] == [("run", "unfinished")], "the end of the run"
    )


def test_leaving_a_run_in_another_context_is_an_error_and_frees_the_run(journal):
    run = journal.run("run")
    contextvars.copy_context().run(run.__enter__)
    with pytest.raises(MCPRunError, match=r"left in another context.*What ran elsewhere was not recorded"):
        run.__exit__(None, None, None)
    assert journal.unfinished() == ["run"]


def test_a_clock_that_jumps_does_not_end_a_lease_but_a_reboot_does(new_journal, monkeypatch):
    journal = new_journal(lease=1000)
    with journal.run("run"):
        monkeypatch.setattr(time, "time", lambda: 5e9)
        assert [each.state for each in journal.runs()] == ["running"]
        monkeypatch.setattr(store_module, "_boot_id", lambda: "another")
        assert new_journal().unfinished() == ["run"]


def test_a_child_process_does_not_use_the_run_of_its_parent(journal, tools):
    with journal.run("run"):
        pid = os.fork()
        if not pid:
            try:
                tools["pay"].call(amount=1)
            except MCPRunError as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        tools["pay"].call(amount=1)
    assert [each.state for each in journal.runs()] == ["done"]


def test_a_journal_of_another_version_or_with_damage_is_an_error_and_nothing_runs(journal, bank, tools, tmp_path):
    with journal.run("run"):
        tools["pay"].call(amount=1)
    (tmp_path / "no.db").write_bytes(b"no database" * 1_000)
    broken = RunJournal(f"sqlite:///{tmp_path}/no.db")
    for statement, reader, reason in (
        ("UPDATE mcp_entries SET result = '{\"oops'", journal, "cannot be read: it is damaged"),
        ("UPDATE mcp_runs SET format = 99", journal, "written in format 99; this version reads format 5"),
        ("", broken, r"The journal sqlite:.*no\.db cannot be used: file is not a database"),
    ):
        change(journal, statement)
        with pytest.raises(MCPRunError, match=reason), reader.run("run"):
            tools["pay"].call(amount=1)
    broken.close()
    assert len(bank.calls) == 1


def test_a_run_that_cannot_be_read_is_free_for_another_process_at_once(journal, tools):
    with contextlib.suppress(KeyError), journal.run("run"):
        tools["pay"].call(amount=1)
        raise KeyError
    change(journal, "UPDATE mcp_entries SET result = '{\"oops'")
    with pytest.raises(MCPRunError, match="it is damaged"), journal.run("run"):
        pass
    [run] = journal.runs()
    assert (run.state, run.worker, run.error.partition(":")[0]) == ("unfinished", None, "MCPRunError")


def test_retried_calls_and_values_are_found_when_the_run_is_continued(journal, bank, tools, monkeypatch):
    insert, failures = journal._store.insert, [MCPRunError("The journal cannot be used: it is locked"), OSError("gone")]

    def locked_at_first(*args: Any, **keywords: Any) -> Any:
        if len(failures) == 2:
            raise failures.pop(0)
        return insert(*args, **keywords)

    def make() -> int:
        if failures:
            raise failures.pop(0)
        return time.time_ns()

    def tried_again(do: Callable[[], Any]) -> Any:
        try:
            return do()
        except (MCPRunError, OSError):
            return do()

    monkeypatch.setattr(journal._store, "insert", locked_at_first)
    made = []
    for _ in range(2):
        with journal.run("run"):
            tried_again(lambda: tools["pay"].call(amount=1))
            made.append(tried_again(lambda: journal.value("now", make)))
    assert (len(bank.calls), len({*made}), failures) == (1, 1, [])


def pay_until_it_is_done(tools: MCPToolset) -> str:
    """Call a tool as code with a retry decorator does."""
    with contextlib.suppress(MCPInvocationError, MCPRunError):
        return tools["pay"].call(amount=1).text
    return tools["pay"].call(amount=1).text


def test_code_that_tries_again_gets_the_result_of_its_second_try_when_the_run_is_continued(
    journal, bank, tools, monkeypatch
):
    deliver, refusals = MCPConnection._deliver, [MCPInvocationError("Failed to connect. The tool did not run.", "pay")]

    def refused_at_first(connection: MCPConnection, request: Any) -> types.CallToolResult:
        if refusals:
            raise refusals.pop()
        return deliver(connection, request)

    monkeypatch.setattr(MCPConnection, "_deliver", refused_at_first)
    for _ in range(2):
        with journal.run("run"):
            assert pay_until_it_is_done(tools) == "pay 1"
        assert len(bank.calls) == 1
    with journal.run("run"):  # two equal calls, of which one did not run
        assert [tools["pay"].call(amount=1).text for _ in range(2)] == ["pay 1"] * 2
    assert len(bank.calls) == 2


@pytest.mark.parametrize("why", ["killed", "lost", "refused by the database"])
def test_code_that_tries_again_does_not_repeat_a_call_that_may_have_run(new_journal, bank, tools, monkeypatch, why):
    def lost(*_args: Any) -> types.CallToolResult:
        raise MCPOutcomeUnknownError("The connection was lost.", "pay")

    def refused(*_args: Any, **_keywords: Any) -> bool:
        raise MCPRunError("The journal cannot be used: the result is too large")

    journal = new_journal(lease=1)
    if why == "killed":
        interrupted(journal, monkeypatch, tools)
    elif why == "lost":
        monkeypatch.setattr(MCPConnection, "_deliver", lost)
    else:
        monkeypatch.setattr(journal._store, "finish", refused)
    for _ in range(2):
        with pytest.raises(MCPCallInDoubtError), journal.run("run"):
            pay_until_it_is_done(tools)
    assert len(bank.calls) == (0 if why == "lost" else 1)
    assert len(journal.in_doubt("run")) == 1


@pytest.mark.parametrize("has_equal_call", [False, True])
async def test_a_call_that_its_caller_gave_up_is_not_repeated_by_the_next_try(
    journal, tools, monkeypatch, has_equal_call
):
    async def unanswered(_connection: MCPConnection, request: Any) -> types.CallToolResult:
        request.before_send()
        sent.append(request)
        if len(sent) == 1:
            begun.set()
            await asyncio.Future()
        return text_result("paid twice")

    monkeypatch.setattr(MCPConnection, "_deliver_async", unanswered)
    sent: list[Any] = []
    begun = asyncio.Event()
    async with journal.run("run"):
        given_up = asyncio.create_task(tools["pay"].call_async(amount=1))
        await begun.wait()
        if has_equal_call:
            await tools["pay"].call_async(amount=1)
        given_up.cancel()
        await asyncio.wait([given_up])
        with pytest.raises(MCPCallInDoubtError):
            await tools["pay"].call_async(amount=1)
    assert len(sent) == 1 + has_equal_call


async def test_a_second_try_sends_nothing_while_the_first_one_asks_whether_to_repeat(
    new_journal, bank, tools, monkeypatch
):
    asked, goes_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def ask(_: UnknownCall) -> str:
        loop.call_soon_threadsafe(asked.set)
        goes_on.wait(LIMIT)
        return "error"

    journal = new_journal(lease=1)
    interrupted(journal, monkeypatch, tools)
    async with journal.run("run", on_unknown=ask):
        await give_up(tools["pay"].call_async(amount=1), asked)
        with pytest.raises(MCPRunError, match=r"gave up while that was being recorded\. Nothing was sent"):
            await tools["pay"].call_async(amount=1)
        goes_on.set()
    assert len(bank.calls) == 1


async def test_a_second_try_sends_nothing_while_the_failure_of_the_first_one_is_recorded(
    journal, bank, tools, monkeypatch
):
    begun, goes_on, loop, finish = asyncio.Event(), threading.Event(), asyncio.get_running_loop(), Store.finish

    async def refused(*_: Any) -> Any:
        msg = "Failed to connect. The tool did not run."
        raise MCPInvocationError(msg, "pay")

    def finish_late(*args: Any, **options: Any) -> bool:
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait(LIMIT)
        return finish(*args, **options)

    async with journal.run("run"):
        with monkeypatch.context() as patched:
            patched.setattr(MCPConnection, "_deliver_async", refused)
            patched.setattr(Store, "finish", finish_late)
            await give_up(tools["pay"].call_async(amount=1), begun)
        with pytest.raises(MCPRunError, match="gave up while that was being recorded"):
            await tools["pay"].call_async(amount=1)
        goes_on.set()
    assert not bank.calls


@pytest.mark.parametrize(
    ("hangs", "may_have_run"), [("the database", False), ("the connection", False), ("an interceptor", True)]
)
async def test_a_call_that_was_given_up_before_it_was_sent_is_made_when_the_run_continues(
    journal, bank, monkeypatch, hangs, may_have_run
):
    begun, goes_on, insert = asyncio.Event(), threading.Event(), Store.insert

    async def hang(*_: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        await asyncio.Future()

    def insert_late(*args: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait(LIMIT)
        return insert(*args, **options)

    async def pay() -> None:
        async with journal.run("run"):
            await tools["pay"].call_async(amount=1)

    loop = asyncio.get_running_loop()
    with MCPToolset(bank.info, interceptors=[hang] if hangs == "an interceptor" else None) as tools:
        tools.warm_up()
        with monkeypatch.context() as patched:
            if hangs == "the database":
                patched.setattr(Store, "insert", insert_late)
            elif hangs == "the connection":
                patched.setattr(MCPConnection, "_deliver_async", hang)
            await give_up(pay(), begun)
            goes_on.set()
            state = "started" if may_have_run else "failed"
            await wait_until_async(lambda: [each.state for each in journal.calls("run")] == [state], "the record")
        with pytest.raises(MCPCallInDoubtError) if may_have_run else nullcontext():
            await pay()
        assert len(bank.calls) == (not may_have_run)


async def test_a_call_that_was_given_up_before_it_was_sent_is_made_by_the_next_try(journal, bank, tools, monkeypatch):
    begun, late = asyncio.Event(), []

    async def hang(_connection: MCPConnection, request: Any) -> Any:
        late.append(request)
        begun.set()
        await asyncio.Future()

    async with journal.run("run"):
        with monkeypatch.context() as patched:
            patched.setattr(MCPConnection, "_deliver_async", hang)
            await give_up(tools["pay"].call_async(amount=1), begun)
        with pytest.raises(MCPRunError, match="given up"):
            late[0].before_send()
        await tools["pay"].call_async(amount=1)
    assert len(bank.calls) == 1
    assert [each.state for each in journal.calls("run")] == ["done"]


@rows("kind", ArithmeticError, RuntimeError)
def test_a_call_that_a_time_limit_of_the_task_ended_is_in_doubt(journal, kind):
    with ringing(kind) as server, MCPToolset(server) as tools, journal.run(kind.__name__):
        for error in (kind, MCPCallInDoubtError):
            with pytest.raises(error):
                tools["ring"].invoke()


def test_declared_secrets_are_not_written(journal, bank, tmp_path):
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in ("text", "token", "card")}}
    bank.tools = [definition("pay", schema)]
    bank.reply = lambda _name, given: text_result(f"paid with {given['token']} and {given['card']}")
    bound = {"pay": {"bound_arguments": {"token": Secret.from_token("sk-hidden-4711"), "card": FromState("card")}}}
    with MCPToolset(bank.info, tool_overrides=bound) as tools:
        generator = ScriptedChatGenerator([call("pay", text="coffee"), say("done")])
        agent = Agent(chat_generator=journal.generator(generator), tools=tools, state_schema={"card": {"type": str}})
        with journal.run("run"):
            agent.run(messages=GO, card="card-of-ann-4929")
    journal.close()
    written = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    assert [each in written for each in (b"coffee", b"sk-hidden", b"card-of-ann")] == [True, False, False]


def test_one_thread_renews_the_leases_of_all_runs(new_journal, monkeypatch):
    journal = new_journal(lease=0.3)
    renew, renewed = journal._store.renew, Counter()

    def counted(lease: Any, seconds: float) -> bool:
        renewed[lease.run] += 1
        if renewed.total() == 1:
            raise RuntimeError("of one run only")
        return renew(lease, seconds)

    monkeypatch.setattr(journal._store, "renew", counted)
    before = {*threading.enumerate()}
    with journal.run("one"), journal.run("two"):
        wait_until(lambda: len(renewed) == 2 and min(renewed.values()) > 2, "the renewals")
        (thread,) = (each for each in {*threading.enumerate()} - before if each.name == "mcp-haystack-journal")
        assert [each.state for each in journal.runs()] == ["running", "running"]
    thread.join(60)
    assert not thread.is_alive()


def test_results_are_stored_unchanged_and_count_in_a_budget_as_in_the_first_run(journal, bank, tools):
    large = f"{'x' * 60_000} see https://bob:mellon@example.com/ and ghp_{'a1' * 20}"
    bank.reply = lambda _name, _given: text_result(large)
    for _ in range(2):
        with journal.run("run"), call_budget(max_calls=1) as budget:
            assert tools["pay"].call(amount=1).text == large
        assert budget.calls == 1
    assert len(bank.calls) == 1


def test_results_are_encrypted_if_a_key_is_given(new_journal, tools, tmp_path):
    key = "h8Q2x1mVfXk0rNqzUu3o6l0pQm8X1c0yq3v5b7n9aZs="
    journal = new_journal(encryption_key=Secret.from_token(key))
    for _ in range(2):
        with journal.run("run"):
            assert tools["pay"].call(amount=1).text == "pay 1"
    with pytest.raises(RuntimeError), journal.run("failed"):
        raise RuntimeError("pay 1 failed")
    assert [each.error for each in journal.runs()] == [None, "RuntimeError"]
    assert [each.result for each in journal.calls("run", with_values=False)] == [None]
    journal.close()
    assert b"pay 1" not in b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    with pytest.raises(MCPRunError, match="`encryption_key` is not the one"), new_journal().run("run"):
        pass


@rows(
    ("parameters", "message"),
    ({"url": "runs.db"}, "`url` must be a URL of SQLAlchemy"),
    ({"url": "sqlite://runs.db"}, 'such as "sqlite:///runs.db"'),
    ({"url": "postgres://h/db"}, "`url` must be a URL of SQLAlchemy for SQLite or PostgreSQL"),
    ({"url": "mysql+pymysql://h/db"}, "for SQLite or PostgreSQL"),
    ({"url": "postgresql+asyncpg://h/db"}, "without an async driver"),
    ({"lease": 0}, "`lease` must be greater than 0, got 0"),
    ({"on_unknown": "ask"}, "`on_unknown` must be 'error' or 'model'"),
    ({"encryption_key": "abc"}, "`encryption_key` must be an instance of Secret, got str$"),
    ({"encryption_key": Secret.from_token("abc")}, "`encryption_key` must be 32 bytes in URL-safe base64"),
)
def test_invalid_parameters_of_a_journal_are_refused_with_their_name(parameters, message):
    with pytest.raises(ValueError, match=message):
        RunJournal(**{"url": "sqlite://", **parameters})
    with pytest.raises(ValueError, match="`name` must have at least 1 character"):
        RunJournal("sqlite://").run("")
    with pytest.raises(MCPRunError, match=r"unable to open database file\. Its folder must exist"):
        RunJournal("sqlite:////nowhere/runs.db").runs()


def test_old_runs_are_deleted(journal):
    for name in ("killed", "done"):
        with journal.run(name):
            journal.value("x", lambda: 1)
    # as if the process was killed before it deleted the rest
    change(journal, "DELETE FROM mcp_runs WHERE name = 'killed'")
    with pytest.raises(LookupError, match="caf"), journal.run("failed"):
        raise LookupError("no caf\udce9\0")  # databases refuse this text
    assert journal.prune(timedelta(days=1)) == 0
    with pytest.raises(ValueError, match="`older_than` must be a valid timedelta, got"):
        journal.prune(1)
    assert journal.prune(timedelta(seconds=-1)) == 1
    assert journal._store._engine_in_use().connect().exec_driver_sql("SELECT * FROM mcp_entries").all() == []
    expected = ("failed", "unfinished", r"LookupError: no caf\udce9\x00")
    assert [(each.name, each.state, each.error) for each in journal.runs()] == [expected]
    assert journal.delete("failed")
    assert journal.calls("failed") == []
    assert "runs.db" in repr(journal)


def test_pruning_takes_many_short_statements_which_do_not_hold_up_other_processes(journal, monkeypatch):
    changed: list[int] = []
    execute = Store._execute

    def counted(self: Store, *args: Any, **values: Any) -> tuple[Any, int]:
        rows, count = execute(self, *args, **values)
        changed.append(count)
        return rows, count

    for number in range(21):
        with journal.run(f"run {number}"):
            pass
    monkeypatch.setattr(Store, "_execute", counted)
    assert journal.prune(timedelta(seconds=-1)) == 21
    assert max(changed) == 20


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # from Python 3.13
def test_a_journal_that_nobody_uses_any_more_closes_its_database(tmp_path):
    journal = RunJournal(f"sqlite:///{tmp_path}/runs.db")
    journal.runs()
    database = weakref.ref(journal._store._sqlite_connection)
    del journal
    gc.collect()
    assert database() is None


def test_no_password_of_a_url_is_shown():
    url = "postgresql+psycopg://u:pw-1@h/db?password=pw-2&sslpassword=pw-3&sslmode=require"
    assert repr(RunJournal(url)) == "RunJournal('postgresql+psycopg://u:***@h/db?sslmode=require')"


def test_concurrent_questions_are_distinguished_by_branches(journal):
    both = threading.Barrier(2, timeout=60)

    @component
    class Slow:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
            both.wait()
            return {"replies": [say(messages[0].text)]}

    generator = journal.generator(Slow())

    async def ask(text: str, branch: str) -> str:
        with journal.branch(branch):
            try:
                return (await generator.run_async(messages=[ChatMessage.from_user(text)]))["replies"][0].text
            except MCPRunError:
                both.abort()
                raise

    async def ask_both(*branches: str) -> list[str]:
        async with journal.run(branches[0]):
            return await asyncio.gather(*map(ask, "ab", branches))

    for _ in range(2):
        assert asyncio.run(ask_both("one", "other")) == ["a", "b"]
    with pytest.raises(MCPRunError, match="was asked twice at once"):
        asyncio.run(ask_both("same", "same"))


def test_a_call_belongs_to_the_replies_of_its_own_generator_whatever_others_do_meanwhile(journal, bank, tools):
    chats = {name: journal.generator(ScriptedChatGenerator([say("pay")]), name) for name in ("one", "two")}

    def ask_and_pay(name: str) -> None:
        chats[name].run(GO)
        tools["pay"].call(amount=1 if name == "one" else 2)

    for order in (["one", "two"], ["two", "one"]):
        with journal.run("run"):
            for name in order:  # each in a separate context, like threads and tasks
                contextvars.copy_context().run(ask_and_pay, name)
    assert sorted(arguments["amount"] for _, arguments in bank.calls) == [1, 2]


def test_calls_of_tasks_in_which_no_generator_replied_are_found_whatever_is_asked_meanwhile(journal, bank, tools):
    chats = [journal.generator(ScriptedChatGenerator([say("pay")]), name) for name in ("one", "two")]
    # Each in a separate context, as the components of a concurrent pipeline are run.
    asked = [lambda chat=chat: contextvars.copy_context().run(chat.run, GO) for chat in chats]
    paid = [partial(tools["pay"].call, amount=amount) for amount in (1, 2)]
    for steps in ((asked[0], paid[0], asked[1], paid[1]), (*asked, *paid), (asked[1], *paid, asked[0])):
        with journal.run("run"):
            for step in steps:
                step()
    assert [arguments["amount"] for _, arguments in bank.calls] == [1, 2]


def haystack_tool(function: Callable[[int], Any]) -> Tool:
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(name="double", description="Double a number.", parameters=parameters, function=function)


@pytest.mark.parametrize("is_async", [False, True])
def test_haystack_tools_and_agents_as_tools_are_also_recorded(journal, bank, is_async):
    made: list[int] = []

    def double(n: int) -> int:
        made.append(n)
        if n < 0:
            raise ValueError("a negative number")
        return 2 * n

    plain = haystack_tool(double)
    replies = [
        calls(("double", {"n": 4}), ("double", {"n": -1})),
        call("clerk", messages=[GO[0].to_dict()]),
        say("done"),
    ]
    with MCPToolset(bank.info, tool_names=["pay"]) as payments:
        for script, of_clerk in ((replies, [call("pay", amount=3), say("paid")]), ([], [])):
            inner = journal.generator(ScriptedChatGenerator(of_clerk), name="clerk")
            clerk = ComponentTool(
                component=Agent(chat_generator=inner, tools=payments), name="clerk", description="Pays."
            )
            tools = journal.tools([plain, clerk, *payments])
            assert [type(tool).__name__ for tool in tools] == ["Tool", "ComponentTool", "MCPTool"]
            told, asked = play(journal, tools, *script, is_async=is_async)
            assert told[0] == "8"
            assert "a negative number" in told[1]
            assert len(asked) == len(script)
    assert sorted(made) == [-1, 4]
    assert bank.calls == [("pay", {"amount": 3})]


def test_a_toolset_that_is_not_yet_connected_and_a_tool_that_is_recorded_already_stay_as_they_are(journal, bank):
    cold, catalog = MCPToolset(bank.info), MCPSearchableToolset(MCPToolset(bank.info))
    tools = journal.tools([cold, catalog, haystack_tool(abs)])
    assert tools[:2] == [cold, catalog]
    assert journal.tools(tools) == tools
    assert (journal.tools(cold), journal.tools(tools[-1])) == ([cold], tools[-1:])


def test_a_call_of_a_haystack_tool_is_found_whatever_the_values_from_state(journal):
    paid, results = [], []
    tool = haystack_tool(lambda n, card: paid.append((n, card)) or [Document(content=card)])
    tool.inputs_from_state = {"card": "card"}
    [tool] = journal.tools([tool])
    for card, numbers in (("old", [1]), ("new", [1, 2])):
        with journal.run("run"):
            for n in numbers:
                results += tool.invoke(n=n, card=card)
    assert paid == [(1, "old"), (2, "new")]
    assert results == [Document(content=card) for card in ("old", "old", "new")]


@pytest.mark.parametrize("result", ["done by hand", {"total": 7.0}])
def test_a_persons_decision_about_a_haystack_tool_is_its_result(journal, result):
    def stop(n: int) -> None:
        raise Interruption

    [tool] = journal.tools([haystack_tool(stop)])
    with pytest.raises(Interruption), journal.run("run"):
        tool.invoke(n=1)
    [unknown] = journal.in_doubt("run")
    journal.decide("run", unknown.number, "done", result)
    with journal.run("run"):
        assert tool.invoke(n=1) == result  # `outputs_to_state` needs the parts of a dict


def test_an_agent_as_a_tool_is_continued_inside(journal, bank):
    class Stopping(ScriptedChatGenerator):
        def _next(self, messages: list[ChatMessage], tools: Any) -> ChatMessage:
            if len(self.turns) == len(self.replies):
                raise Interruption
            return super()._next(messages, tools)

    def ask(tools: Any, *replies: ChatMessage, stops: bool = False) -> Any:
        clerk = Agent(chat_generator=journal.generator(Stopping(list(replies)), name="clerk"), tools=tools)
        [tool] = journal.tools([ComponentTool(component=clerk, name="clerk", description="Pays.")])
        with journal.run("run"):
            if stops:
                with pytest.raises(Interruption):
                    tool.invoke(messages=[GO[0].to_dict()])
            return tool.invoke(messages=[GO[0].to_dict()])

    with MCPToolset(bank.info, tool_names=["pay"]) as payments:
        with pytest.raises(MCPCallInDoubtError):  # what it did is found only when the run is opened again
            ask(payments, call("pay", amount=3), stops=True)
        for replies in ([say("paid")], []):
            assert ask(payments, *replies)["last_message"].text == "paid"
    assert bank.calls == [("pay", {"amount": 3})]
    assert next(entry.attempt for entry in journal.calls("run") if entry.place.name == "clerk") == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_in_doubt_within_an_agent_as_a_tool_is_not_told_to_the_outer_model(journal, bank, monkeypatch, is_async):
    with MCPToolset(bank.info, tool_names=["pay"]) as payments:
        model = journal.generator(ScriptedChatGenerator([call("pay", amount=3)]), "clerk")
        clerk = Agent(chat_generator=model, tools=payments)
        outer = journal.tools([ComponentTool(component=clerk, name="clerk", description="Pays.")])
        script = [call("clerk", messages=[GO[0].to_dict()]), say("done")]
        with monkeypatch.context() as patched, pytest.raises(Interruption):
            patched.setattr(Store, "finish", Mock(side_effect=Interruption))
            play(journal, outer, *script, is_async=is_async)
        with pytest.raises(Exception, match="may have run") as raised:
            play(journal, outer, *script[1:], is_async=is_async)
        assert cause_of(raised.value, MCPCallInDoubtError).tool_name == "pay"
    assert [each.tool_name for each in journal.in_doubt("run")] == ["clerk", "pay"]


def test_a_call_in_doubt_within_a_tool_that_is_not_recorded_is_not_told_to_the_model(journal, tools, monkeypatch):
    monkeypatch.setattr(MCPConnection, "_deliver", Mock(side_effect=MCPOutcomeUnknownError("It was lost.", "pay")))
    model = ScriptedChatGenerator([call("double", n=1), say("done")])
    agent = Agent(
        chat_generator=journal.generator(model), tools=[haystack_tool(lambda n: tools["pay"].invoke(amount=n))]
    )
    with pytest.raises(Exception, match="may have run") as raised, journal.run("run"):
        agent.run(messages=GO)
    assert cause_of(raised.value, MCPCallInDoubtError).tool_name == "pay"
    assert len(model.turns) == 1


@rows(("result", "first"), (object(), MCPRunError), (1, KeyboardInterrupt))
def test_a_tool_whose_result_was_not_recorded_is_not_called_again_by_the_next_try(journal, monkeypatch, result, first):
    made: list[int] = []
    [tool] = journal.tools([haystack_tool(lambda n: made.append(n) or result)])
    if first is KeyboardInterrupt:
        monkeypatch.setattr(Store, "finish", Mock(side_effect=KeyboardInterrupt))
    with journal.run(first.__name__):
        for error in (first, MCPCallInDoubtError):
            with pytest.raises(error):
                tool.invoke(n=1)
    assert made == [1]


def test_a_model_that_also_answers_the_server_is_not_asked_again(journal):
    script = [call("ask_model", prompt="tea?"), say("lovely"), say("done")]
    for replies in (script, []):
        model = journal.generator(ScriptedChatGenerator(replies))
        handlers = MCPHandlers(sampling=MCPSampling(chat_generator=model))
        with MCPToolset(InProcessServerInfo(build_server()), handlers=handlers) as asking, journal.run("run"):
            result = Agent(chat_generator=model, tools=asking).run(messages=GO)
        assert result["last_message"].text == "done"


def test_a_run_in_which_a_session_was_opened_is_not_that_of_later_questions_of_its_server(journal):
    server, both = MCPServer("critic"), asyncio.Barrier(2)

    @server.tool()
    async def ask(prompt: str, ctx: Context) -> str:
        await both.wait()  # with two calls under way, the server does not say for which one it asks
        message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
        return (await ctx.session.create_message([message], max_tokens=9)).content.text  # type: ignore[union-attr]

    agents = journal.generator(
        ScriptedChatGenerator([calls(("ask", {"prompt": "1"}), ("ask", {"prompt": "2"})), say("done")] * 2)
    )
    model = journal.generator(ScriptedChatGenerator([say("yes")] * 4), "sampling")
    asking = MCPToolset(
        InProcessServerInfo(server, negotiation="handshake"),
        handlers=MCPHandlers(sampling=MCPSampling(chat_generator=model)),
    )
    for name in ("run", "next"):
        with journal.run(name):
            messages = Agent(chat_generator=agents, tools=asking).run(messages=GO)["messages"]
        assert [each.result for message in messages for each in message.tool_call_results] == ["yes"] * 2
    asking.close()


def test_a_recorded_generator_takes_a_text_in_place_of_messages(journal):
    for replies in ([say("hello")], []):
        with journal.run("run"):
            assert journal.generator(ScriptedChatGenerator(replies)).run("go")["replies"][0].text == "hello"


async def test_a_streaming_callback_gets_the_recorded_text(journal):
    chunks: list[str] = []

    async def heard(chunk: Any) -> None:
        chunks.append(chunk.content)

    for replies in ([say("hello")], []):
        generator = journal.generator(ScriptedChatGenerator(replies))
        with journal.run("run"):
            said = await generator.run_async(messages=GO, streaming_callback=heard)
        assert said["replies"][0].text == "hello"
    with journal.run("run"):
        generator.run(messages=GO, streaming_callback=lambda chunk: chunks.append(chunk.content))
    assert chunks == ["hello"] * 2
    with journal.run("run"), pytest.raises(TypeError, match="use `run_async`"):
        generator.run(messages=GO, streaming_callback=lambda _: asyncio.sleep(LIMIT))


def test_a_reply_whose_meta_is_not_json_is_recorded(journal):
    meta = {"citations": [types.TextContent(type="text", text="x")], "id": b"\xff"}
    reply = ChatMessage.from_assistant("hi", meta=meta)
    for replies in ([reply], []):
        with journal.run("run"):
            said = journal.generator(ScriptedChatGenerator(replies)).run(messages=GO)["replies"][0]
    assert (said.text, said.meta["citations"][0]["text"]) == ("hi", "x")


@pytest.mark.parametrize("has_async", [False, True])
async def test_a_recorded_generator_is_warmed_up_and_closed_like_the_one_that_it_wraps(journal, has_async):
    did: list[str] = []

    async def record_state(name: str) -> None:
        did.append(name)

    wrapped = ScriptedChatGenerator([])
    generator = journal.generator(wrapped)
    for name in ("warm_up", "close"):
        setattr(wrapped, name, partial(did.append, name))
        if has_async:
            setattr(wrapped, f"{name}_async", partial(record_state, f"{name}_async"))
    generator.warm_up()
    generator.close()
    await generator.warm_up_async()
    await generator.close_async()
    suffix = "_async" if has_async else ""
    assert did == ["warm_up", "close", f"warm_up{suffix}", f"close{suffix}"]


def test_a_recorded_generator_survives_yaml(journal):
    pipeline = Pipeline()
    pipeline.add_component("llm", journal.generator(ScriptedChatGenerator([say("hello")]), name="writer"))
    text = pipeline.dumps()
    loaded = Pipeline.loads(text)
    assert loaded.dumps() == text
    assert loaded.run({"llm": {"messages": GO}})["llm"]["replies"][0].text == "hello"
    assert loaded.get_component("llm").name == "writer"
    with pytest.raises(ValueError, match="`chat_generator` must be a chat generator, got int"):
        journal.generator(5)
