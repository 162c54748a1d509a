# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The checks that all other tests rely on really fail when they should.
"""

import logging
import os
import subprocess
import sys

import pytest
from haystack import tracing
from haystack.marshal.yaml import YamlMarshaller
from haystack.utils import Secret

from haystack_integrations.tools.mcp import MCPError, MCPInvocationError, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.request_context import MCPRequestContext
from tests.support import secrecy
from tests.support.leaks import assert_nothing_left, footprint
from tests.support.processes import ROOT, is_alive, run_to_end
from tests.support.rows import rows
from tests.support.secrecy import SecretWatch
from tests.support.waiting import LIMIT


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_the_leak_check_finds_a_process_whose_parent_has_ended():
    before = footprint()
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


def show_everywhere(text: str) -> None:
    logging.getLogger("haystack_integrations.logs").debug("sent %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("mcp.client.tracebacks").exception("did not work")
    with pytest.raises(MCPError):
        raise MCPError(text)
    with pytest.raises(RuntimeError):
        raise RuntimeError from MCPInvocationError(text, "add")
    with tracing.tracer.trace("haystack.mcp.anything", tags={"sent": text}) as span:
        span.set_tags({"set": text})
    YamlMarshaller().marshal({"token": text})
    repr(StreamableHttpServerInfo(f"https://mcp.example.com/{text}"))


PLACES = {
    "haystack_integrations.logs",
    "mcp.client.tracebacks",
    "MCPError",
    "MCPInvocationError",
    "haystack.mcp.anything",
    "tag set",
    "YAML",
    "repr of StreamableHttpServerInfo",
}


@pytest.mark.parametrize("kind", ["Secret", "token of a caller", "header of a caller", "issued token"])
def test_a_secret_that_is_shown_anywhere_fails_the_test(secret_watch: SecretWatch, kind: str) -> None:
    def learn() -> None:
        if kind == "Secret":
            Secret.from_token("t0p-5ecret").resolve_value()
        elif kind == "issued token":
            secrecy.issued.append({"t0p-5ecret"})
        else:
            MCPRequestContext(**({"token": "t0p-5ecret"} if "token" in kind else {"headers": {"X-Key": "t0p-5ecret"}}))

    learn()
    show_everywhere("something else")
    assert secret_watch.look() == []
    learn()
    show_everywhere("a t0p-5ecret")
    assert {each.partition(": ")[0] for each in secret_watch.look()} == PLACES


def test_every_row_of_a_table_is_tried_and_a_failing_row_is_named() -> None:
    tried = []

    @rows("number, limit", (1, 5), (7, 5), (3, 5))
    def check(number: int, limit: int) -> None:
        tried.append(number)
        assert number < limit

    with pytest.raises(AssertionError) as failed:
        check()
    assert tried == [1, 7, 3]
    assert failed.value.__notes__ == ["in the row {'number': 7, 'limit': 5}"]


async def test_an_async_table_fails_with_the_errors_of_all_its_rows() -> None:
    @rows("word", "ab", ["c"])
    async def check(word: object) -> None:
        assert word is None

    with pytest.raises(ExceptionGroup, match="2 of 2 rows failed") as failed:
        await check()
    notes = [note for each in failed.value.exceptions for note in each.__notes__]
    assert notes == ["in the row {'word': 'ab'}", "in the row {'word': ['c']}"]


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_a_command_with_a_time_limit_ends_together_with_all_processes_it_started() -> None:
    # The first process leads its own session. The parents of both have ended.
    script = "setsid sleep 1000 & echo $!; (sleep 1000 & echo $!); exit 3"
    command = [sys.executable, str(ROOT / ".ci" / "limited.py")]
    ended = run_to_end([*command, "60", "bash", "-c", script], limit=LIMIT)
    assert ended.returncode == 3
    assert not [pid for pid in ended.stdout.split() if is_alive(int(pid))]
    late = run_to_end([*command, "0.2", "bash", "-c", "trap '' TERM; sleep 1000"], limit=LIMIT)
    assert (late.returncode, "did not end within 0.2 s" in late.stderr) == (124, True)
