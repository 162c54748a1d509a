# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tasks and open questions, by which a server keeps a call, are recorded as soon as they are known, and continued later.
"""

import asyncio
import shutil
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

from haystack_integrations.tools.mcp import CallOptions, MCPHandlers, MCPToolset
from haystack_integrations.tools.mcp.durable.store import Store
from haystack_integrations.tools.mcp.errors import MCPCallInDoubtError, MCPCallPendingError, MCPRunError
from haystack_integrations.tools.mcp.handlers import answer_later
from tests.support.killed import run_in_killed_process
from tests.support.scripted_chat import ScriptedChatGenerator, call, say
from tests.support.waiting import LIMIT, wait_until, wait_until_async


@pytest.fixture
def patient(patient_stdio_server: Any) -> Any:
    server = patient_stdio_server()
    return server.info(), server.log


@pytest.fixture
def journal(new_journal):
    return new_journal(lease=1)


def test_a_task_of_a_killed_process_is_continued(patient, journal, tmp_path):
    info, log = patient
    run_in_killed_process(
        tmp_path,
        info,
        f"""
        import threading
        from haystack_integrations.tools.mcp.durable import RunJournal

        journal = RunJournal("sqlite:///{tmp_path}/runs.db", lease=1)
        tools = MCPToolset(info)
        tools.warm_up()

        def tell_once_it_is_recorded():
            while not [entry for entry in journal.calls("run") if entry.state == "pending"]:
                time.sleep(0.02)
            print("{{}}", flush=True)

        threading.Thread(target=tell_once_it_is_recorded, daemon=True).start()
        with journal.run("run"):
            tools["bake"].call(seconds=2)
        """,
    )
    wait_until(lambda: journal.unfinished() == ["run"], "the lease ends")
    assert journal.in_doubt("run") == []
    with MCPToolset(info) as tools, journal.run("run"):
        assert tools["bake"].call(seconds=2).text == "a plain cake"
    [entry] = journal.calls("run")
    assert (entry.state, entry.attempt) == ("done", 2)
    assert log.events("bake") == [("bake", {"seconds": 2})]


def test_a_task_whose_call_timed_out_is_continued(patient, journal):
    info, log = patient
    with MCPToolset(info, call_options=CallOptions(task_timeout=0.5)) as tools, journal.run("run"):
        with pytest.raises(MCPCallInDoubtError, match=r"is a task that goes on at the server\. Continue the run"):
            tools["bake"].call(seconds=2)
    [entry] = journal.calls("run")
    assert (entry.state, entry.result["arguments"]) == ("pending", {})
    with MCPToolset(info) as tools, journal.run("run"):
        assert tools["bake"].call(seconds=2).text == "a plain cake"
    assert len(log.events("bake")) == 1


def test_a_function_is_not_asked_whether_to_repeat_a_task_that_goes_on(patient, journal):
    info, log = patient
    with MCPToolset(info, call_options=CallOptions(task_timeout=0.5)) as tools:
        asked = Mock(side_effect=["repeat", "error"])
        with (
            pytest.raises(MCPCallInDoubtError, match=r"is a task.*`journal\.decide"),
            journal.run("run", on_unknown=asked),
        ):
            tools["bake"].call(seconds=2)
    assert len(log.events("bake")) == 1


async def test_a_task_whose_run_is_cancelled_is_continued(patient, journal):
    info, log = patient

    async def bake() -> str:
        async with journal.run("run"):
            return (await tools["bake"].call_async(seconds=2)).text

    with MCPToolset(info) as tools:
        baking = asyncio.create_task(bake())
        await wait_until_async(lambda: [each for each in journal.calls("run") if each.state == "pending"], "the task")
        baking.cancel()  # as a server does that is asked to stop
        await asyncio.wait([baking])
        assert await bake() == "a plain cake"
    assert len(log.events("bake")) == 1


@pytest.mark.parametrize("is_answered_elsewhere", [False, True])
def test_an_open_question_is_answered_when_the_run_continues_or_elsewhere(patient, journal, is_answered_elsewhere):
    info, log = patient
    bound = {"order": {"bound_arguments": {"drink": Secret.from_token("Earl-Grey-4711")}}}
    for _ in range(2):
        with MCPToolset(info, handlers=MCPHandlers(elicitation=answer_later), tool_overrides=bound) as tools:
            with pytest.raises(MCPCallPendingError) as raised, journal.run("run"):
                tools["order"].call()
            with pytest.raises(MCPRunError, match="would not be recorded"), journal.run("another run"):
                tools["order"].continue_call(raised.value.pending_call, {"size": {"size": "big"}})
        assert raised.value.pending_call.withheld == ("drink",)
        [entry] = journal.calls("run")
        assert (entry.state, entry.result["arguments"]) == ("pending", {})
    if is_answered_elsewhere:
        with MCPToolset(info, tool_overrides=bound) as tools:
            text = tools["order"].continue_call(raised.value.pending_call, {"size": {"size": "big"}}).text
        journal.decide("run", entry.number, "done", text)
    with MCPToolset(info, handlers=MCPHandlers(elicitation=lambda _: {"size": "big"}), tool_overrides=bound) as tools:
        with journal.run("run"):
            assert tools["order"].call().text == "a big Earl-Grey-4711"
    assert len(log.events("order")) == 1
    [entry] = journal.calls("run")
    assert entry.state == "done"


def test_a_call_that_is_made_again_in_the_same_block_takes_up_its_open_question(patient, journal):
    info, log = patient
    with journal.run("run"):
        with MCPToolset(info, handlers=MCPHandlers(elicitation=answer_later)) as tools:
            for _ in range(2):
                with pytest.raises(MCPCallPendingError):
                    tools["order"].call(drink="tea")
        with MCPToolset(info, handlers=MCPHandlers(elicitation=lambda _: {"size": "big"})) as tools:
            assert tools["order"].call(drink="tea").text == "a big tea"
    assert len(log.events("order")) == len(journal.calls("run")) == 1


def test_a_call_whose_answers_a_killed_process_has_sent_may_have_run(patient, journal, monkeypatch):
    info, log = patient
    with MCPToolset(info, handlers=MCPHandlers(elicitation=answer_later)) as tools:
        with pytest.raises(MCPCallPendingError), journal.run("run"):
            tools["order"].call(drink="tea")
    with MCPToolset(info, handlers=MCPHandlers(elicitation=lambda _: {"size": "big"})) as tools:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt), journal.run("run"):
            patched.setattr(Store, "finish", Mock(side_effect=KeyboardInterrupt))  # stands for the kill
            tools["order"].call(drink="tea")
        with pytest.raises(MCPCallInDoubtError), journal.run("run"):
            tools["order"].call(drink="tea")
    assert len(log.events("order")) == len(journal.in_doubt("run")) == 1


def test_a_call_whose_answers_were_not_sent_stays_open(patient, journal, monkeypatch):
    info, log = patient
    with MCPToolset(info, handlers=MCPHandlers(elicitation=answer_later)) as tools:
        with pytest.raises(MCPCallPendingError), journal.run("run"):
            tools["order"].call(drink="tea")
    answered = threading.Event()
    slow = MCPHandlers(elicitation=lambda _: answered.wait(LIMIT))
    with MCPToolset(info, handlers=slow, invocation_timeout=0.5) as tools:
        with pytest.raises(MCPCallPendingError), journal.run("run"):
            tools["order"].call(drink="tea")
    answered.set()
    with MCPToolset(info, handlers=MCPHandlers(elicitation=Mock(side_effect=ValueError("no network")))) as tools:
        with pytest.raises(MCPCallPendingError), journal.run("run"):
            tools["order"].call(drink="tea")
    with MCPToolset(info, handlers=MCPHandlers(elicitation=lambda _: {"size": "big"})) as tools:
        with monkeypatch.context() as patched, pytest.raises(MCPRunError, match=r"^full$"), journal.run("run"):
            patched.setattr(Store, "begin_again", Mock(side_effect=[True, MCPRunError("full")]))
            tools["order"].call(drink="tea")
        with journal.run("run"):
            assert tools["order"].call(drink="tea").text == "a big tea"
    assert len(log.events("order")) == 1


def test_a_task_that_its_server_has_forgotten_may_have_run(patient, journal):
    info, log = patient
    with MCPToolset(info, call_options=CallOptions(task_timeout=0.5)) as tools:
        with pytest.raises(MCPCallInDoubtError, match="is a task"), journal.run("run"):
            tools["bake"].call(seconds=60)
        shutil.rmtree(log.path.parent / "tasks")
        for _ in range(2):
            with pytest.raises(MCPCallInDoubtError, match="the tool may have run"), journal.run("run"):
                tools["bake"].call(seconds=60)
            assert len(journal.in_doubt("run")) == 1


def test_a_call_that_a_model_was_told_is_open_may_begin_again(patient, journal):
    info, log = patient
    script = [call("order", drink="tea"), say("I wait")]
    for elicitation, replies in ((answer_later, script), (lambda _: {"size": "big"}, [])):
        model = journal.generator(ScriptedChatGenerator(replies))
        with MCPToolset(info, handlers=MCPHandlers(elicitation=elicitation)) as tools, journal.run("run"):
            messages = [ChatMessage.from_user("go")]
            assert Agent(chat_generator=model, tools=tools).run(messages=messages)["last_message"].text == "I wait"
        if replies:
            journal.decide("run", journal.calls("run")[1].number, "repeat")
    assert len(log.events("order")) == 1
