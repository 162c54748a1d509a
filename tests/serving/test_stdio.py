# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from haystack_integrations.tools.mcp.serving.running import StopRequest
from tests.support.background import in_thread
from tests.support.prepared import PreparedProcess
from tests.support.served import ROOT, SERVED, ServedProcess, envelope
from tests.support.waiting import LIMIT

# Far less than calls would take that are not ended.
GRACE = 6.0

# Longer than a test may take, so a process that ends did not wait for it.
LONG_GRACE = 1000.0


@pytest.fixture
def served() -> Iterator[ServedProcess]:
    with ServedProcess(SERVED, {"grace_period": GRACE, "max_body_size": 10_000}) as process:
        yield process


@pytest.fixture
def patient() -> Iterator[ServedProcess]:
    with ServedProcess(SERVED, {"grace_period": LONG_GRACE}) as process:
        yield process


def test_sigterm_lets_calls_finish_and_refuses_new_ones(served: ServedProcess) -> None:
    served.shake_hands()
    served.call(1, "wait", seconds=3.0)
    served.call(2, "block", seconds=3.0)
    served.wait_for("EVENT wait")
    served.wait_for("EVENT block")
    served.signal()
    served.wait_for("Stopping: SIGTERM")
    served.call(3, "add", a=1, b=2)
    answers = {message["id"]: message for message in (served.receive() for _ in range(3))}
    assert answers[1]["result"]["content"][0]["text"] == "waited"
    assert answers[2]["result"]["content"][0]["text"] == "blocked"
    assert answers[3]["result"]["content"][0]["text"] == "The server is stopping"
    assert served.wait() == 0
    assert "EVENT closed" in served.errors
    assert "EVENT returned" in served.errors


def test_a_server_whose_calls_were_cancelled_stops_at_once(patient: ServedProcess) -> None:
    patient.shake_hands()
    patient.call(1, "wait", seconds=600)
    patient.wait_for("EVENT wait")
    patient.send(method="notifications/cancelled", params={"requestId": 1})
    patient.wait_for("EVENT cancelled")
    patient.signal()
    assert patient.wait() == 0
    assert "EVENT returned" in patient.errors


@pytest.mark.parametrize("stopped_by", ["SIGTERM", "stdin"])
def test_the_process_ends_within_the_grace_period_even_if_calls_do_not(served: ServedProcess, stopped_by: str) -> None:
    served.shake_hands()
    served.call(1, "wait", seconds=600)
    served.call(2, "block_forever")
    served.wait_for("EVENT wait")
    served.wait_for("EVENT block_forever")
    if stopped_by == "stdin":
        served.process.stdin.close()
    else:
        served.signal()
        assert served.answer(1)["result"]["isError"]
    assert served.wait() == 0
    assert "EVENT cancelled" in served.errors
    assert "The grace period is over" in served.errors


def test_a_server_that_fails_while_stdin_ends_does_not_end_the_process_of_its_caller() -> None:
    program = """
import threading
from contextlib import asynccontextmanager

import anyio
from fastmcp import FastMCP
from haystack_integrations.tools.mcp.serving import run_server

watchdogs = []

@asynccontextmanager
async def fail_at_the_end_of_stdin(server):
    while not watchdogs:
        await anyio.sleep(0.01)
        threads = [each for each in threading.enumerate() if each.is_alive()]  # not one that is being started
        watchdogs.extend(each for each in threads if each.name == "mcp-serving-watchdog")
    raise InterruptedError
    yield

try:
    run_server(FastMCP("Failing", lifespan=fail_at_the_end_of_stdin), grace_period=1.0)
except InterruptedError:
    watchdogs[0].join()
    print("went on")
"""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with PreparedProcess(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout.read() == b"went on\n"


def test_calls_are_cancelled_when_the_client_closes_stdin(patient: ServedProcess) -> None:
    patient.shake_hands()
    patient.call(1, "wait", seconds=600)
    patient.wait_for("EVENT wait")
    patient.process.stdin.close()
    assert patient.wait() == 0
    assert "EVENT cancelled" in patient.errors
    assert "EVENT closed" in patient.errors


def test_a_client_that_is_killed_during_a_call_leaves_no_traceback() -> None:
    command = [sys.executable, str(SERVED), "{}"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with PreparedProcess(command, env=environment, **pipes) as process:
        call = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": envelope()}
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n"
        process.stdin.write(message)
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(message)
        process.stdin.close()
        errors = process.stderr.read().decode()
        assert process.wait(LIMIT) == 0
    assert "Traceback" not in errors


def test_a_client_that_keeps_writing_does_not_delay_the_stop(patient: ServedProcess) -> None:
    patient.shake_hands()

    def write_to_the_end() -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                patient.send(id=1, method="ping")

    writing = in_thread(write_to_the_end)
    patient.answer(1)
    patient.signal()
    assert patient.wait() == 0
    writing.result(LIMIT)


def test_a_signal_right_before_the_server_waits_is_handled_soon() -> None:
    # Python runs a signal handler between two steps of the interpreter, so the server never waits without a limit.
    waits: list[float | None] = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            waits.append(timeout)
            return super().select(timeout)

    async def served() -> None:
        with StopRequest(LIMIT, lambda _: asyncio.sleep(0)).on_signals(with_others=False):
            waits.clear()
            await asyncio.sleep(1.2)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector())) as runner:
        runner.run(served())
    assert all(wait is not None and wait < 1 for wait in waits), waits


def test_a_second_sigint_ends_the_process_at_once(patient: ServedProcess) -> None:
    patient.shake_hands()
    patient.call(1, "block_forever")
    patient.wait_for("EVENT block_forever")
    patient.signal(signal.SIGINT)
    patient.wait_for("Stopping: SIGINT")
    patient.signal(signal.SIGINT)
    assert patient.wait() == 128 + signal.SIGINT


def test_bad_input_is_answered_and_the_server_keeps_running(served: ServedProcess) -> None:
    served.shake_hands()
    served.call(3, "add", a="no number", b=2)
    assert served.answer(3)["result"]["isError"]
    # Some clients send half a surrogate pair, which the SDK cannot read as text.
    served.send_line(r'{"jsonrpc": "2.0", "id": "\ud83d", "method": "tools/call", "params": {"name": "\ud83d"}}')
    assert "Unknown tool" in served.answer("\ufffd")["result"]["content"][0]["text"]
    # Some clients on Windows begin with a byte order mark.
    served.send_line('\ufeff{"jsonrpc": "2.0", "id": 11, "method": "ping"}')
    assert served.answer(11)["result"] == {}
    served.call(4, "nothing")
    assert "Unknown tool" in served.answer(4)["result"]["content"][0]["text"]
    for tool in ("fail", "leave"):
        served.call(5, tool)
        failure = served.answer(5)
        assert failure["result"]["isError"]
        assert "hunter2" not in str(failure)
    served.send(id=6, method="no/such/method")
    assert served.answer(6)["error"]["code"] == -32601
    served.send_line("\n\n")
    for no_id in ([], {"a": 1}, None):
        served.send(method="notifications/cancelled", params={"requestId": no_id})
    served.call(7, "add", a=1, b=2)
    assert served.answer(7)["result"]["structuredContent"] == {"result": 3}


def test_a_tool_that_uses_stdin_and_stdout_does_not_disturb_the_protocol(served: ServedProcess) -> None:
    served.send(id=1, method="tools/call", params={"name": "prints", "arguments": {}, "_meta": envelope()})
    assert served.answer(1)["result"]["content"][0]["text"] == ""
    served.wait_for("noise on stdout")
