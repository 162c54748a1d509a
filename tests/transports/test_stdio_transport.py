# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The fates of requests to a server process that breaks, at every point where it can break.
"""

import asyncio
import errno
import gc
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import psutil
import pytest

from haystack_integrations.tools.mcp.protocol.request_errors import Fate, LostError, RefusedError, RequestError
from haystack_integrations.tools.mcp.transports import stdio
from haystack_integrations.tools.mcp.transports.stdio import StdioTransport
from tests.support.background import on_each_loop
from tests.support.exchanges import TestedChannel, channel_over, failure_of
from tests.support.processes import is_alive
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until_async

# Runs the Python code in a message, or answers a request with its parameters.
SERVER = r"""
import json, os, signal, sys, time

def write(message):
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)

later, seen = [], []
for line in sys.stdin:
    m = json.loads(line)
    seen.append(m.get("id", m.get("method")))
    if "result" in m or "error" in m:
        write({"method": "reply", "params": m})
    elif "code" in m.get("params", {}):
        exec(m["params"]["code"])
    elif "id" in m:
        write({"id": m["id"], "result": m["params"]})
"""

# More than the pipe and our buffer can hold.
BIG = "x" * 1_000_000


@asynccontextmanager
async def served(script: str = SERVER, **options: Any) -> AsyncIterator[TestedChannel]:
    transport = StdioTransport(sys.executable, ["-u", "-c", script], {}, None, **options)
    try:
        async with channel_over(transport) as channel:
            yield channel
    finally:
        transport.end_children()


def transport_of(channel: TestedChannel) -> StdioTransport:
    assert isinstance(channel.transport, StdioTransport)
    return channel.transport


def pid_of(channel: TestedChannel) -> int:
    pid: int = transport_of(channel)._process.pid
    return pid


async def do(channel: TestedChannel, code: str) -> dict[str, Any]:
    return await channel.request(channel.exchange(params={"code": code}))


async def failure(channel: TestedChannel, code: str) -> tuple[Fate, RequestError]:
    exchange, error = await channel.fail(params={"code": code})
    return exchange.fate, error


class TestAnswers:
    async def test_numbers_that_json_does_not_have_are_sent_as_null(self):
        async with served() as channel:
            exchange = channel.exchange(params={"a": [float("nan"), float("inf"), 1.5]})
            assert await channel.request(exchange) == {"a": [None, None, 1.5]}

    async def test_an_invalid_or_failing_progress_report_does_not_lose_the_answer(self):
        code = """
of = {"progressToken": m["id"]}
lines = [{"method": "notifications/progress", "params": {**of, "progress": progress}} for progress in (1, "half")]
lines.append({"id": m["id"], "result": {}})
os.write(1, b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\\n" for line in lines))
"""
        reports: list[Any] = []

        def take(*report: Any) -> None:
            reports.append(report)
            raise RuntimeError

        async with served() as channel:
            assert await channel.request(channel.exchange(params={"code": code}, on_progress=take)) == {}
            assert reports == [(1, None, None)]

    async def test_bytes_of_an_incomplete_answer_count_as_a_sign_of_life(self, tmp_path):
        go = tmp_path / "go"
        code = f"""
os.write(1, b'{{"jsonrpc": "2.0", "id": 0, ')
wait_for({str(go)!r})
os.write(1, b'"result": {{}}}}\\n')
"""
        async with served() as channel:
            _, request = channel.start(params={"code": code})
            await wait_until_async(lambda: channel.peer.heard_times, "the first bytes")
            assert not request.done()
            go.touch()
            assert await request == {}


class TestOtherLines:
    async def test_notifications_and_requests_of_the_server_reach_the_peer(self):
        code = """
write({"method": "note", "params": {"a": 1}})
write({"method": "ask", "id": "its-own", "params": {"b": 2}})
write({"method": "unknown", "id": m["id"]})
write({"method": "of another revision", "id": 9})
write({"id": m["id"], "result": {}})
"""
        async with served() as channel:
            assert await do(channel, code) == {}
            await wait_until_async(lambda: len(channel.peer.notes) == 3, lambda: str(channel.peer.notes))
            error = {"code": -32601, "message": "Method not found", "data": {"method": "unknown"}}
            assert channel.peer.notes == [
                ("note", {"a": 1}),
                ("reply", {"jsonrpc": "2.0", "id": "its-own", "result": {"asked": "ask", "b": 2}}),
                ("reply", {"jsonrpc": "2.0", "id": 0, "error": error}),
            ]

    async def test_a_request_that_the_server_cancels_at_once_causes_no_warning(self, recwarn):
        code = """
asked = {"jsonrpc": "2.0", "method": "ask", "id": "q"}
taken_back = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}}
os.write(1, b"".join(json.dumps(message).encode() + b"\\n" for message in (asked, taken_back)))
write({"id": m["id"], "result": {}})
"""
        async with served() as channel:
            assert await do(channel, code) == {}
            await wait_until_async(lambda: not channel.background, "the end of the answer")
            assert not channel.peer.notes
        gc.collect()
        assert not recwarn.list

    @rows("users", ("alice",), ("alice", "bob"))
    async def test_a_request_of_the_server_is_answered_in_the_context_of_a_call_if_there_is_only_one(self, users):
        user = ContextVar("user", default="nobody")

        async def answer(*_: Any) -> dict[str, Any]:
            return {"user": user.get()}

        async with served() as channel:
            channel._make_answer = answer
            code, calls = f'if len(seen) == {len(users)}: write({{"method": "ask", "id": "q"}})', []
            for name in users:
                user.set(name)
                calls.append(channel.start("tools/call", {"name": "x", "code": code})[1])
            await wait_until_async(lambda: channel.peer.notes, "the answer")
            expected = "alice" if len(users) == 1 else "nobody"
            assert channel.peer.notes == [("reply", {"jsonrpc": "2.0", "id": "q", "result": {"user": expected}})]
        assert [type(await failure_of(call)) for call in calls] == [LostError] * len(users)

    async def test_lines_that_are_not_messages_are_skipped_and_logged_once_without_their_text(self, caplog):
        code = r"""
os.write(1, b'Welcome, s3same!\n\n  \r\n\xff\xfe s3same\n{"jsonrpc": "2.0", "s3same": 1}\n[]\n{"id": 0}\n')
os.write(1, b'{"jsonrpc": "2.0", "id": 9}\n')
write({"id": m["id"], "result": {}})
"""
        caplog.set_level("WARNING")
        async with served() as channel:
            assert await do(channel, code) == {}
            assert not channel.has_ended
        assert caplog.text.count("not a message") == 1
        assert f"`{sys.executable} -u -c " in caplog.text
        assert "s3same" not in caplog.text

    async def test_a_line_that_is_too_large_and_not_an_answer_ends_the_session(self):
        async with served(max_message_size=1000) as channel:
            fate, error = await failure(channel, 'os.write(1, b"x" * 5000 + b"\\n"); time.sleep(1000)')
            assert (fate, type(error)) == (Fate.LOST, LostError)
            assert channel.peer.ends == [error.reason]
            assert "it wrote a line that is larger than" in error.reason


class TestFates:
    async def test_a_request_to_a_process_that_died_unnoticed_did_not_run(self):
        async with served() as channel:
            os.kill(pid_of(channel), 9)
            os.waitid(os.P_PID, pid_of(channel), os.WEXITED | os.WNOWAIT)
            exchange, error = await channel.fail()
            assert (exchange.fate, type(error), error.reason) == (Fate.REFUSED, RefusedError, "")

    @on_each_loop
    async def test_a_request_after_the_end_did_not_run(self):
        async with served() as channel:
            os.kill(pid_of(channel), 9)
            await wait_until_async(lambda: channel.has_ended, "the end")
            assert channel.peer.ends == [None]
            exchange, error = await channel.fail()
            assert (exchange.fate, type(error)) == (Fate.REFUSED, RefusedError)
            with pytest.raises(BrokenPipeError):
                await channel.send_notification("note")
            channel.notify("note", {})
            await asyncio.sleep(0)

    @pytest.mark.parametrize(
        "code",
        [
            "os._exit(3)",
            """os.write(1, b'{"jsonrpc": "2.0", "id": 0, "res'); os._exit(3)""",
            "os.kill(os.getpid(), signal.SIGKILL)",
            "os.close(1); time.sleep(1000)",
        ],
        ids=["after the write", "within the answer", "by a signal", "by closing its output"],
    )
    @on_each_loop
    async def test_a_request_whose_server_ends_is_lost_with_all_others_in_flight(self, code):
        async with served() as channel:
            other, waiting = channel.start(params={"code": "later.append(m)"})
            await asyncio.sleep(0)
            fate, error = await failure(channel, code)
            assert (fate, type(error), error.reason) == (Fate.LOST, LostError, "")
            assert isinstance(await failure_of(waiting), LostError)
            assert other.fate is Fate.LOST
            assert channel.peer.ends == [None]

    @on_each_loop
    async def test_a_process_that_closes_its_input_gets_no_more_requests_but_may_answer_earlier_ones(self, tmp_path):
        path = tmp_path / "answer"
        code = f'os.close(0); write({{"method": "closed"}}); wait_for({str(path)!r})'
        code += '; write({"id": 0, "result": {}})'
        async with served() as channel:
            drained: list[str] = []
            channel.drained = drained.append  # type: ignore[method-assign]
            _, pending = channel.start(params={"code": code})
            await wait_until_async(lambda: channel.peer.notes, "the end of its input")
            exchange, error = await channel.fail()
            assert (exchange.fate, type(error)) == (Fate.REFUSED, RefusedError)
            assert drained == ["the server process closed its input"]
            path.touch()
            assert await pending == {}

    @on_each_loop
    async def test_an_answer_right_before_the_end_still_counts(self):
        async with served() as channel:
            code = 'write({"id": m["id"], "result": {"text": "x" * 200_000}}); os._exit(0)'
            assert await do(channel, code) == {"text": "x" * 200_000}

    @pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.close(1); time.sleep(1000)"])
    @on_each_loop
    async def test_a_request_that_waits_for_a_server_that_does_not_read_did_not_run_if_the_server_ends(
        self, tmp_path, end
    ):
        go = tmp_path / "go"
        async with served() as channel:
            last, sleeping = channel.start(params={"code": f"wait_for({str(go)!r}); {end}"})
            half, writing = channel.start(params={"text": BIG})
            unsent, waiting = channel.start(params={"text": "later"})
            await asyncio.sleep(0.1)  # there is no event to wait for, because nothing must happen
            assert [last.fate, half.fate, unsent.fate] == [Fate.SENT, Fate.SENT, Fate.NEW]
            go.touch()
            errors = [await failure_of(task) for task in (sleeping, writing, waiting)]
            assert list(map(type, errors)) == [LostError, LostError, RefusedError]
            assert [last.fate, half.fate, unsent.fate] == [Fate.LOST, Fate.LOST, Fate.REFUSED]

    async def test_a_request_that_waits_when_the_channel_closes_is_not_written_although_the_server_reads_again(
        self, tmp_path
    ):
        go, seen = tmp_path / "go", tmp_path / "seen"
        noted = f"open({str(seen)!r}, 'a').write(str(m['id']))"

        async def read_again(*_: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:  # closing waits for this
                go.touch()
                await wait_until_async(lambda: seen.read_text() == "01", "the large request")
                await asyncio.sleep(0.1)  # there is no event to wait for, because nothing must happen

        async with served(SERVER.replace("    seen.append", f"    {noted}\n    seen.append")) as channel:
            channel._make_answer = read_again
            code = f'write({{"method": "ask", "id": "q"}}); wait_for({str(go)!r})'
            requests = [channel.start(params=params) for params in ({"code": code}, {"text": BIG}, {"text": "later"})]
            await wait_until_async(lambda: channel.background, "the question")
            await asyncio.sleep(0)  # until the process is asked to end
            await channel.close()
            errors = [await failure_of(request) for _, request in requests]
            assert list(map(type, errors)) == [LostError, LostError, RefusedError]
            assert [exchange.fate for exchange, _ in requests] == [Fate.LOST, Fate.LOST, Fate.REFUSED]
        assert seen.read_text() == "01"

    @on_each_loop
    async def test_requests_that_wait_for_the_server_to_read_are_sent_in_order_without_abandoned_ones(self, tmp_path):
        go = tmp_path / "go"
        report = 'write({"id": m["id"], "result": {"seen": seen}})'
        async with served() as channel:
            _, sleeping = channel.start(params={"code": f"wait_for({str(go)!r}); {report}"})
            big = [channel.start(params={"text": BIG}) for _ in range(3)]
            given_up, waiting = channel.start(params={"text": "never mind"})
            _, last = channel.start(params={"code": report})
            await asyncio.sleep(0.1)  # there is no event to wait for, because nothing must happen
            assert given_up.fate is Fate.NEW
            waiting.cancel()
            assert await failure_of(waiting) is None
            assert given_up.fate is Fate.GIVEN_UP
            go.touch()
            assert await sleeping == {"seen": [0]}
            assert [await request for _, request in big] == [{"text": BIG}] * 3
            assert await last == {"seen": [0, 1, 2, 3, 5]}


class TestOpeningAndClosing:
    async def test_a_notification_that_is_not_sent_before_the_end_causes_no_warning(self, recwarn):
        channel = TestedChannel(StdioTransport("python", [], {}, None))
        channel.notify("note", {})
        await channel.close()
        assert not recwarn.list

    @pytest.mark.parametrize(
        ("code", "graces"),
        [
            ("", 0),
            ("signal.signal(signal.SIGTERM, lambda *_: os._exit(0)); time.sleep(1000)", 1),
            ("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)", 2),
        ],
        ids=["with its input", "by SIGTERM", "by SIGKILL"],
    )
    @on_each_loop
    async def test_a_process_is_ended_within_a_bound_and_requests_in_flight_are_lost_at_once(
        self, monkeypatch, code, graces
    ):
        monkeypatch.setattr(stdio, "_GRACE", 0.5)
        async with served() as channel:
            pid = pid_of(channel)
            exchange, request = channel.start(params={"code": f'write({{"method": "ready"}}); {code}'})
            await wait_until_async(lambda: channel.peer.notes, "the request")
            begin = time.monotonic()
            closing = asyncio.create_task(channel.close())
            assert isinstance(await failure_of(request), LostError)
            assert exchange.fate is Fate.LOST
            # A process that ends with its input may be gone as soon as its request is lost.
            assert graces == 0 or not closing.done()
            await closing
            assert time.monotonic() - begin >= graces * 0.5
            assert not is_alive(pid)
            await channel.close()  # closing twice is allowed
            assert channel.has_ended


class TestProcesses:
    @on_each_loop
    async def test_processes_work_without_pidfd(self, monkeypatch):
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        async with served() as channel:
            assert transport_of(channel)._process.poll() is None
            assert await do(channel, 'write({"id": m["id"], "result": {}})') == {}
            fate, _ = await failure(channel, "os._exit(3)")
            assert (fate, await transport_of(channel).exit_code(LIMIT)) == (Fate.LOST, 3)

    async def test_a_pipe_that_cannot_be_read_ends_the_session(self, monkeypatch):
        def fail(*_: object) -> None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

        async with served() as channel:
            monkeypatch.setattr(os, "read", fail)
            with pytest.raises(LostError):
                await asyncio.wait_for(do(channel, 'write({"method": "note"})'), LIMIT)

    @on_each_loop
    async def test_other_code_may_wait_for_a_process(self):
        async with served() as channel:
            os.kill(pid_of(channel), 9)
            os.waitpid(pid_of(channel), 0)
            await wait_until_async(lambda: channel.has_ended, "the end")
            assert transport_of(channel)._process.poll() is not None
            await transport_of(channel)._exited.wait()

    @on_each_loop
    async def test_no_descriptor_leaks_although_another_process_holds_the_pipes(self):
        async with served():
            pass  # uvloop opens a descriptor with the first process
        before = descriptors()
        code = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
write({"id": m["id"], "result": {"pid": child.pid}})
sys.stdin.read()
"""
        async with served() as channel:
            child = psutil.Process((await do(channel, code))["pid"])
            channel.start(params={"text": BIG})
            await asyncio.sleep(0)
        try:
            await wait_until_async(lambda: descriptors() <= before, lambda: str(descriptors() - before))
        finally:
            child.kill()

    @on_each_loop
    async def test_a_process_that_keeps_writing_while_it_is_closed_ends_by_itself(self, tmp_path):
        code = f"""
write({{"id": m["id"], "result": {{}}}})
sys.stdin.read()
for _ in range(50):
    print("x" * 100_000)
open({str(tmp_path / "ended")!r}, "w").close()
"""
        async with served() as channel:
            assert await do(channel, code) == {}
        assert (tmp_path / "ended").exists()
        assert await transport_of(channel).exit_code() == 0

    @on_each_loop
    async def test_a_process_whose_pipes_cannot_be_watched_leaves_nothing_behind(self, monkeypatch):
        def fail(*_: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        before = descriptors()
        transport = StdioTransport("/bin/sh", ["-c", "sleep 1000 & exec cat"], {}, None)
        with monkeypatch.context() as patch:
            patch.setattr(os, "set_blocking", fail)
            with pytest.raises(OSError, match="Too many open files"):
                await transport.open()
        assert descriptors() <= before
        # The check at the end of the run finds a child that has not ended.
        await wait_until_async(lambda: not is_alive(transport._process.pid), "its end")

    @pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
    @on_each_loop
    async def test_orphans_of_a_server_leave_no_zombies_in_a_container_without_an_init_process(self):
        # The process of the tests adopts orphans, as the first process of a container does.
        async with channel_over(StdioTransport("/bin/sh", ["-c", "sleep 1000 & exec cat"], {}, None)) as channel:
            await wait_until_async(psutil.Process(pid_of(channel)).children, "the child")
            [child] = psutil.Process(pid_of(channel)).children()
        await stdio.end_leftovers()
        assert not psutil.pid_exists(child.pid)


def descriptors() -> set[str]:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("needs /proc")
    return {f"{entry.name} {os.readlink(entry)}" for entry in folder.iterdir() if entry.is_symlink()}
