# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the other tests rely on does not silently do nothing.
"""

import inspect
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from haystack import tracing
from haystack.marshal.yaml import YamlMarshaller
from haystack.utils import Secret
from mcp import Client

from haystack_integrations.tools.mcp import (
    MCPError,
    MCPInvocationError,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.request_context import MCPRequestContext
from tests.support import secrecy
from tests.support.calls import assert_told_the_truth, outcome
from tests.support.leaks import Footprint, assert_nothing_left
from tests.support.prepared import PreparedProcess
from tests.support.processes import ROOT, CallLog, is_alive, run_to_end
from tests.support.rows import rows
from tests.support.secrecy import SecretWatch
from tests.support.waiting import LIMIT


async def test_the_plain_server_defines_its_tools_and_answers_as_the_server_of_the_sdk_does(
    stdio_server, sdk_stdio_server
):
    plain, counter = stdio_server("--tools", "2"), sdk_stdio_server("--tools", "2")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("add", {"a": 1, "b": 2}),
        ("echo", {"text": "hello"}),
        ("sleep", {"seconds": 0}),
        ("fail", {"message": "no luck"}),
        ("env", {"name": "NO_SUCH_VARIABLE"}),
        ("cwd", {}),
        ("secret_echo", {"text": "hello", "token": "t"}),
        ("secret_echo", {"text": "hello", "token": "t", "refuse": True}),
        ("tool_0001", {"text": "hello"}),
        ("no_such_tool", {}),
    ]

    async def ask(server: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        async with Client(server.parameters(), mode="legacy") as client:
            told = (client.session.protocol_version, client.server_info, client.instructions)
            tools = {tool.name: tool.model_dump() for tool in (await client.list_tools()).tools}
            return told, tools, [(await client.call_tool(*call)).model_dump() for call in calls]

    (told, tools, answers), (expected_told, expected_tools, expected_answers) = await ask(plain), await ask(counter)
    assert told == expected_told
    assert tools == {name: expected_tools[name] for name in tools}
    assert answers == expected_answers
    assert [each for each in plain.log.events() if each[0] != "@start"] == [
        each for each in counter.log.events() if each[0] != "@start"
    ]


@pytest.mark.parametrize(
    ("error", "executions"),
    [
        (None, 0),
        (None, 2),
        ("The tool may have run.", 2),
        ("The tool did not run.", 1),
    ],
)
def test_what_was_told_of_a_call_is_compared_with_what_the_server_executed(tmp_path, error, executions):
    log = CallLog(tmp_path / "calls.txt")
    log.path.write_text('echo {"text": "x"}\n' * executions)
    call: Future[str] = Future()
    if error is None:
        call.set_result("x")
    else:
        call.set_exception(MCPInvocationError(error, "echo"))
    with pytest.raises(AssertionError, match="how often it was executed"):
        assert_told_the_truth({"x": outcome(call, 1)}, log, "echo", "text")


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_the_leak_check_names_a_process_whose_parent_has_ended():
    before = Footprint.take()
    orphan_maker = (
        "import subprocess, sys;"
        "quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL};"
        "print(subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], **quiet).pid)"
    )
    finished = subprocess.run([sys.executable, "-c", orphan_maker], capture_output=True, check=True, timeout=LIMIT)
    orphan = int(finished.stdout)
    with pytest.raises(AssertionError, match=f"process {orphan}"):
        assert_nothing_left(before, limit=0)
    assert_nothing_left(before)
    os.waitpid(orphan, 0)


def test_the_leak_check_names_a_thread_and_a_listening_socket():
    import socket

    before = Footprint.take()
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="forgotten")
    thread.start()
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        with pytest.raises(AssertionError, match=r"thread 'forgotten'.*\n.*port \d+"):
            assert_nothing_left(before, limit=0)
    finally:
        go_on.set()
        thread.join(LIMIT)
        listener.close()
    assert_nothing_left(before)


def _log_debug(secret: str) -> None:
    logging.getLogger("haystack_integrations.anything").debug("sent %s", secret)


def _log_traceback(secret: str) -> None:
    try:
        raise ValueError(secret)
    except ValueError:
        logging.getLogger("mcp.client.anything").exception("did not work")


def _raise(secret: str) -> None:
    with pytest.raises(MCPError):
        raise MCPError(secret)


def _raise_from(secret: str) -> None:
    with pytest.raises(RuntimeError):
        raise RuntimeError from MCPError(secret)


def _trace(secret: str) -> None:
    with tracing.tracer.trace("haystack.mcp.anything", tags={"sent": secret}):
        pass


def _tag(secret: str) -> None:
    with tracing.tracer.trace("haystack.mcp.anything") as span:
        span.set_tags({"sent": secret})


def _save(secret: str) -> None:
    YamlMarshaller().marshal({"token": secret})


def _represent(secret: str) -> None:
    repr(StreamableHttpServerInfo(f"https://mcp.example.com/{secret}"))


@pytest.mark.parametrize("show", [_log_debug, _log_traceback, _raise, _raise_from, _trace, _tag, _save, _represent])
def test_a_secret_that_is_shown_anywhere_fails_the_test(secret_watch: SecretWatch, show: Any) -> None:
    Secret.from_token("t0p-5ecret").resolve_value()
    show("something else")
    assert secret_watch.look() == []
    Secret.from_token("t0p-5ecret").resolve_value()
    show("a t0p-5ecret")
    [found] = secret_watch.look()
    assert "t0p-5ecret" in found


def test_tokens_of_callers_and_of_authorization_servers_are_secrets_too(secret_watch: SecretWatch) -> None:
    with mcp_request_context(token="callers-t0ken", headers={"X-Key": "callers-k3y"}):
        secrecy.issued.append({"issued-t0ken"})
        for secret in ("callers-t0ken", "callers-k3y", "issued-t0ken"):
            _log_debug(secret)
    assert len(secret_watch.look()) == 3
    assert "callers-t0ken" not in repr(MCPRequestContext(token="callers-t0ken"))


def test_every_row_of_a_table_is_tried_and_one_that_fails_is_named() -> None:
    tried = []

    @rows("number, limit", [(1, 5), (7, 5), (3, 5)])
    def check(fixture: str, number: int, limit: int) -> None:
        tried.append((fixture, number))
        assert number < limit

    assert [*inspect.signature(check).parameters] == ["fixture"]
    with pytest.raises(AssertionError) as failed:
        check(fixture="f")
    assert tried == [("f", 1), ("f", 7), ("f", 3)]
    assert failed.value.__notes__ == ["in the row {'number': 7, 'limit': 5}"]


NAME = {"NAME": "value"}


@pytest.mark.parametrize("finalize", [False, True])
def test_a_prepared_process_is_like_an_interpreter(tmp_path: Path, finalize: bool) -> None:
    def run(code: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        start = partial(PreparedProcess, finalize=finalize)
        return run_to_end([sys.executable, "-c", code, "x"], limit=LIMIT, start=start, cwd=tmp_path, **options)

    said = run(
        "import os, sys; print(sys.argv, os.getcwd(), sys.stdin.read(), os.environ['NAME'])", text="in", env=NAME
    )
    assert said.stdout == f"['-c', 'x'] {tmp_path} in value\n"
    ends = {"pass": 0, "raise SystemExit(7)": 7, "1/0": 1, "import os; os.kill(os.getpid(), 15)": -15}
    assert {code: run(code).returncode for code in ends} == ends
    assert run("1/0").stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_a_command_that_is_limited_ends_with_all_that_it_has_started() -> None:
    # The first leads a session of its own; the parents of both have ended.
    script = "setsid sleep 1000 & echo $!; (sleep 1000 & echo $!); exit 3"
    command = [sys.executable, str(ROOT / ".ci" / "limited.py")]
    ended = run_to_end([*command, "60", "bash", "-c", script], limit=LIMIT)
    assert ended.returncode == 3
    assert not [pid for pid in ended.stdout.split() if is_alive(int(pid))]
    late = run_to_end([*command, "0.2", "bash", "-c", "trap '' TERM; sleep 1000"], limit=LIMIT)
    assert (late.returncode, "did not end within 0.2 s" in late.stderr) == (124, True)


def test_a_command_that_takes_too_long_fails_the_test_with_what_it_wrote() -> None:
    with pytest.raises(AssertionError, match=r"did not end within 0\.5 s. It wrote:\nhello"):
        run_to_end(["bash", "-c", "echo hello; sleep 1000 & sleep 1000"], limit=0.5)
