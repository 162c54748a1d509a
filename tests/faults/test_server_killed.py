# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Whatever happens to a server over stdio: nothing hangs, nothing leaks, nothing runs twice, and every error says why.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTimeoutError,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.calls import assert_told_the_truth, outcome
from tests.support.processes import StdioServer, is_alive
from tests.support.waiting import LIMIT, wait_until

# No test waits for this.
LONG = 90.0

# What a server that hangs and ignores SIGTERM is given until it is killed.
STUBBORN = 4.0

QUICKLY = {"base_delay": 0.05, "max_delay": 0.2}


def reach(server: StdioServer, **retries: float) -> StdioServerInfo:
    return StdioServerInfo(server.command, server.args, server.env, cwd=server.cwd, **{**QUICKLY, **retries})


def python(script: str) -> StdioServerInfo:
    return StdioServerInfo(sys.executable, ["-c", script], **QUICKLY)


class Gate:
    """
    A server that can be started while the gate is open, and ends with exit code 9 at its start otherwise.
    """

    def __init__(self, server: StdioServer, folder: Path) -> None:
        self._closed = folder / "closed"
        self._starts = folder / "starts"
        self._starts.touch()
        script = (
            'echo start >> "$1"; if test -e "$2"; then echo down for maintenance >&2; exit 9; fi; shift 2; exec "$@"'
        )
        args = ["-c", script, "sh", str(self._starts), str(self._closed), server.command, *server.args]
        self.server = StdioServer("/bin/sh", args, server.log)

    def close(self) -> None:
        self._closed.touch()

    def open(self) -> None:
        self._closed.unlink()

    @property
    def starts(self) -> int:
        return len(self._starts.read_text().splitlines())


@pytest.fixture
def gate(stdio_server: Callable[..., StdioServer], tmp_path: Path) -> Gate:
    return Gate(stdio_server(), tmp_path)


class TestServerKilled:
    def test_between_calls_the_next_call_starts_it_again(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server)) as connection:
            connection.call_tool("add", {"a": 1, "b": 1})
            server.kill()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
            assert connection.status().sessions == 2
            assert len(server.alive()) == 1
        assert server.calls() == ["add", "add"]

    def test_between_calls_is_noticed_without_a_call(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server)) as connection:
            server.kill()
            wait_until(lambda: connection.status().state == "lost", lambda: str(connection.status()))
            assert "killed by signal 9" in connection.status().last_error
            assert not connection.is_ready

    def test_between_calls_a_tool_and_a_toolset_recover(self, stdio_server):
        server = stdio_server()
        with MCPTool("add", reach(server)) as tool, MCPToolset(reach(server), tool_names=["echo"]) as toolset:
            server.kill()
            assert '"2"' in tool.invoke(a=1, b=1)
            server.kill()
            assert "hello" in toolset[0].invoke(text="hello")
            server.kill()
            wait_until(lambda: toolset.connection.status().state == "lost", "the loss")
            toolset.warm_up()
            assert toolset.connection.status().state == "ready"
        assert server.calls() == ["add", "echo"]

    def test_during_a_call_fails_it_at_once_saying_that_the_tool_may_have_run(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server), invocation_timeout=LONG) as connection:
            call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
            server.wait_for("sleep")
            server.kill()
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run") as failure:
                call.result(timeout=LIMIT)
            assert watch.seconds < AT_ONCE
            assert not isinstance(failure.value, TimeoutError)
            assert "killed by signal 9" in str(failure.value)
            assert "Failed to invoke Tool `sleep`" in str(failure.value)

            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert server.calls() == ["sleep", "add"]

    def test_by_the_call_itself_tells_its_exit_code_and_its_last_words(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server), invocation_timeout=LONG) as connection:
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="may have run") as failure:
                connection.call_tool("die")
            assert watch.seconds < AT_ONCE
            assert "exit code 3" in str(failure.value)
            assert "counter server: starting" in str(failure.value)
        assert server.calls() == ["die"]

    def test_during_a_call_while_its_child_holds_the_pipes_fails_it_at_once(self, stdio_server, tmp_path):
        server = stdio_server()
        note = tmp_path / "child"
        # As the helper processes of servers do that were started through a shell, npx or uvx.
        script = 'sleep 1000 & echo $! > "$1"; shift; exec "$@"'
        info = StdioServerInfo("/bin/sh", ["-c", script, "sh", str(note), server.command, *server.args], **QUICKLY)
        with MCPConnection(info, invocation_timeout=LONG) as connection:
            call = in_thread(connection.call_tool, "sleep", {"seconds": LONG})
            server.wait_for("sleep")
            child = psutil.Process(int(note.read_text()))
            server.kill()
            try:
                with pytest.raises(MCPInvocationError, match="may have run"):
                    call.result(timeout=AT_ONCE)
                assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
            finally:
                child.kill()
            second = psutil.Process(int(note.read_text()))
        if second != child:
            wait_until(lambda: not second.is_running() or second.status() == psutil.STATUS_ZOMBIE, "the child's end")
        assert server.calls() == ["sleep", "add"]

    def test_under_50_calls_no_tool_runs_twice_and_every_error_says_whether_it_may_have_run(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server), invocation_timeout=LONG) as connection:
            numbers = [round(1 + number / 1000, 3) for number in range(50)]
            calls = dict(
                zip(
                    numbers,
                    together(
                        lambda number=number: connection.call_tool("sleep", {"seconds": number}) for number in numbers
                    ),
                    strict=True,
                )
            )
            server.wait_for("sleep", 20)
            server.kill()
            outcomes = {number: outcome(call, LIMIT) for number, call in calls.items()}
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert "may have run" in outcomes.values()
        assert_told_the_truth(outcomes, server.log, "sleep", "seconds")

    def test_again_and_again_under_short_calls_no_tool_runs_twice(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server, max_retries=10), invocation_timeout=LONG) as connection:

            def work(worker: int) -> dict[str, str]:
                return {
                    f"{worker}-{number}": outcome(in_thread(connection.call_tool, "echo", {"text": name}), LIMIT)
                    for number in range(30)
                    for name in [f"{worker}-{number}"]
                }

            workers = together(lambda worker=worker: work(worker) for worker in range(5))
            for kills in range(1, 4):
                server.wait_for("echo", 35 * kills)
                server.kill()
            outcomes = {name: told for worker in workers for name, told in worker.result(timeout=60).items()}
        assert len(outcomes) == 150
        assert list(outcomes.values()).count("ran") >= 100
        assert_told_the_truth(outcomes, server.log, "echo", "text")


class TestServerDown:
    def test_calls_fail_with_an_error_that_says_that_the_tool_did_not_run_until_it_is_back(self, gate):
        with MCPConnection(reach(gate.server, max_retries=1)) as connection:
            gate.close()
            gate.server.kill()
            for _ in range(3):
                with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="did not run") as failure:
                    connection.call_tool("add", {"a": 1, "b": 1})
                assert watch.seconds < AT_ONCE
                assert "exit code 9" in str(failure.value)
                assert "down for maintenance" in str(failure.value)
                assert connection.status().state == "lost"
            gate.open()
            assert text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert gate.server.calls() == ["add"]

    @pytest.mark.parametrize("max_retries", [0, 2])
    def test_it_is_started_again_as_often_as_max_retries_says(self, gate, max_retries):
        with MCPConnection(reach(gate.server, max_retries=max_retries)) as connection:
            gate.close()
            gate.server.kill()
            wait_until(lambda: connection.status().state == "lost", "the loss")
            with pytest.raises(MCPInvocationError, match="did not run"):
                connection.call_tool("add", {"a": 1, "b": 1})
        assert gate.starts == 1 + 1 + max_retries

    def test_a_call_waits_for_it_to_come_back(self, gate):
        with MCPConnection(reach(gate.server, max_retries=1000), connection_timeout=LONG) as connection:
            gate.close()
            gate.server.kill()
            call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
            wait_until(lambda: gate.starts > 3, "attempts to start it")
            assert connection.status().state == "connecting"
            gate.open()
            assert text(call.result(timeout=LIMIT)) == "2"
        assert gate.server.calls() == ["add"]

    def test_a_call_that_may_be_repeated_and_cannot_be_may_have_run(self, gate):
        with MCPConnection(reach(gate.server, max_retries=1), invocation_timeout=LONG) as connection:
            call = in_thread(connection.call_tool, "sleep", {"seconds": LONG}, may_repeat=True)
            gate.server.wait_for("sleep")
            gate.close()
            gate.server.kill()
            error = call.exception(timeout=LIMIT)
        assert isinstance(error, MCPInvocationError)
        assert "may have run" in str(error)
        assert "did not run" not in str(error)
        assert "exit code 9" in str(error)

    def test_waiting_calls_share_the_attempts(self, gate):
        with MCPConnection(reach(gate.server, max_retries=2)) as connection:
            gate.close()
            gate.server.kill()
            wait_until(lambda: connection.status().state == "lost", "the loss")
            calls = together([lambda: connection.call_tool("add", {"a": 1, "b": 1})] * 10)
            assert {outcome(call, LIMIT) for call in calls} == {"did not run"}
            # Not 30: who comes late may begin a round of its own.
            assert gate.starts <= 1 + 3 * 3

    def test_a_call_waits_no_longer_than_the_connection_timeout(self, gate):
        with MCPConnection(reach(gate.server, max_retries=1000), connection_timeout=3) as connection:
            gate.close()
            gate.server.kill()
            with Stopwatch() as watch, pytest.raises(MCPInvocationError, match="did not run") as failure:
                connection.call_tool("add", {"a": 1, "b": 1})
            assert 2 < watch.seconds < 3 + AT_ONCE
            assert "timed out after" in str(failure.value)
            assert "exit code 9" in str(failure.value)
            # Nobody waits any more, so nobody tries any more.
            wait_until(lambda: connection.status().state == "lost", "the end of the attempts")
            wait_until(connection._supervisor._opening._task.done, "the end of what tries")
            starts = gate.starts
        assert gate.starts == starts


class TestNoStart:
    @pytest.mark.parametrize("max_retries", [0, 3])
    def test_a_server_that_exits_at_its_start_is_reported_at_once_with_exit_code_and_last_words(self, max_retries):
        script = "import sys; print('the file config.toml is missing', file=sys.stderr); sys.exit(7)"
        info = StdioServerInfo(sys.executable, ["-c", script], max_retries=max_retries)
        connection = MCPConnection(info, connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError) as failure:
            connection.open()
        assert watch.seconds < AT_ONCE
        assert "exit code 7" in str(failure.value)
        assert "the file config.toml is missing" in str(failure.value)
        assert connection.status().state == "idle"
        connection.close()

    def test_a_server_that_exits_without_a_word_is_reported_with_its_exit_code(self):
        connection = MCPConnection(python("import sys; sys.exit(5)"), connection_timeout=LONG)
        with pytest.raises(MCPConnectionError, match="exit code 5"):
            connection.open()
        connection.close()

    def test_a_server_that_exits_as_if_all_were_well_is_reported(self):
        connection = MCPConnection(python("print('hello')"), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="exit code 0"):
            connection.open()
        assert watch.seconds < AT_ONCE
        connection.close()

    def test_a_server_that_is_killed_at_its_start_is_reported_with_the_signal(self):
        connection = MCPConnection(python("import os; os.kill(os.getpid(), 11)"), connection_timeout=LONG)
        with pytest.raises(MCPConnectionError, match="killed by signal 11"):
            connection.open()
        connection.close()

    def test_a_server_that_closes_its_output_and_stays_is_reported(self):
        script = "import os, time; os.close(1); time.sleep(1000)"
        connection = MCPConnection(python(script), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="closed its output"):
            connection.open()
        assert watch.seconds < AT_ONCE
        connection.close()

    def test_a_command_that_does_not_exist_is_named(self):
        connection = MCPConnection(StdioServerInfo("no-such-command-anywhere"), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="'no-such-command-anywhere' was not found"):
            connection.open()
        assert watch.seconds < AT_ONCE
        connection.close()

    def test_a_file_that_is_no_program_is_named(self, tmp_path):
        (tmp_path / "notes.txt").write_text("hello")
        connection = MCPConnection(StdioServerInfo(str(tmp_path / "notes.txt")), connection_timeout=LONG)
        with pytest.raises(MCPConnectionError, match=r"notes\.txt' may not be executed"):
            connection.open()
        connection.close()

    def test_a_working_directory_that_does_not_exist_is_named(self):
        info = StdioServerInfo(sys.executable, ["-c", "pass"], cwd="/no/such/folder")
        connection = MCPConnection(info, connection_timeout=LONG)
        with pytest.raises(MCPConnectionError, match="working directory '/no/such/folder' does not exist"):
            connection.open()
        connection.close()

    def test_a_call_says_so_too_and_that_the_tool_did_not_run(self):
        connection = MCPConnection(python("import sys; sys.exit(7)"), connection_timeout=LONG)
        with pytest.raises(MCPInvocationError, match="did not run") as failure:
            connection.call_tool("add", {"a": 1, "b": 1})
        assert "exit code 7" in str(failure.value)
        connection.close()

    def test_words_on_stdout_that_are_no_messages_do_no_harm_and_are_not_quoted(self, stdio_server, caplog):
        server = stdio_server()
        info = StdioServerInfo(
            "/bin/sh", ["-c", 'echo "Welcome, s3same!"; exec "$@"', "sh", server.command, *server.args], **QUICKLY
        )
        with MCPConnection(info) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert "no message" in caplog.text
        assert "s3same" not in caplog.text


class TestHungServer:
    def test_connecting_fails_within_the_timeout_and_leaves_no_process(self, stdio_server):
        server = stdio_server("--hang-at-start")
        connection = MCPConnection(reach(server), connection_timeout=3)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError) as failure:
            connection.open()
        assert watch.seconds < 3 + AT_ONCE
        assert isinstance(failure.value, (MCPConnectionError, TimeoutError))
        assert "timed out after 3 seconds" in str(failure.value)
        assert "counter server: starting" in str(failure.value)
        server.wait_until_gone()
        assert connection.status().state == "idle"
        connection.close()

    def test_connecting_leaves_no_process_that_ignores_sigterm(self, stdio_server):
        server = stdio_server("--hang-at-start", "--stubborn")
        connection = MCPConnection(reach(server), connection_timeout=3)
        with pytest.raises(MCPConnectionTimeoutError):
            connection.open()
        server.wait_until_gone()
        connection.close()

    @pytest.mark.parametrize("connect", [MCPToolset, lambda info, **limits: MCPTool("add", info, **limits)])
    @pytest.mark.parametrize("eager_connect", [True, False])
    def test_connecting_in_a_block_does_not_wait_for_its_end(self, stdio_server, connect, eager_connect):
        server = stdio_server("--hang-at-start", "--stubborn")
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError, match="raise `connection_timeout`"):
            with connect(reach(server), connection_timeout=1, eager_connect=eager_connect):
                pass
        assert watch.seconds < 1 + STUBBORN
        server.wait_until_gone()

    def test_connecting_leaves_no_process_if_nobody_closes(self, stdio_server):
        server = stdio_server("--hang-at-start")
        tool = MCPTool("add", reach(server), connection_timeout=2)
        with pytest.raises(MCPConnectionTimeoutError):
            tool.warm_up()
        server.wait_until_gone()

    def test_a_call_times_out_and_the_next_one_works_when_it_has_recovered(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server), invocation_timeout=1) as connection:
            server.freeze()
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError, match="timed out after 1 seconds") as failure:
                connection.call_tool("add", {"a": 1, "b": 1})
            assert 0.9 < watch.seconds < AT_ONCE
            assert isinstance(failure.value, MCPInvocationError)
            assert isinstance(failure.value, TimeoutError)
            server.thaw()
            wait_until(lambda: _succeeds(connection), "a call that works")
            assert connection.status().sessions == 1

    def test_that_does_not_read_leaves_nothing_behind_of_calls_that_timed_out(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server), invocation_timeout=0.5) as connection:
            loop = AsyncExecutor.get_instance().get_loop()
            server.freeze()
            before = len(asyncio.all_tasks(loop))
            calls = together([lambda: connection.call_tool("echo", {"text": "x" * 100_000})] * 20)
            assert all(isinstance(call.exception(timeout=LIMIT), MCPTimeoutError) for call in calls)
            wait_until(lambda: len(asyncio.all_tasks(loop)) <= before, lambda: str(asyncio.all_tasks(loop)))

    def test_closing_does_not_wait_for_it_for_long(self, stdio_server):
        server = stdio_server("--stubborn")
        with MCPConnection(reach(server)) as connection:
            server.freeze()
            with Stopwatch() as watch:
                connection.close()
            assert watch.seconds < AT_ONCE
        server.wait_until_gone()

    def test_a_call_that_times_out_is_cancelled_on_the_server_and_others_go_on(self, stdio_server):
        server = stdio_server()
        with (
            MCPConnection(reach(server), invocation_timeout=LONG) as patient,
            MCPConnection(reach(server), invocation_timeout=1) as impatient,
        ):
            other = in_thread(patient.call_tool, "sleep", {"seconds": 2})
            server.wait_for("sleep")
            with Stopwatch() as watch, pytest.raises(MCPTimeoutError):
                impatient.call_tool("sleep", {"seconds": LONG})
            assert 0.9 < watch.seconds < AT_ONCE
            server.wait_for("sleep-cancelled")
            assert server.log.events("sleep-cancelled") == [("sleep-cancelled", {"seconds": LONG})]
            assert text(other.result(timeout=LIMIT)) == "slept 2.0 s"
            assert patient.status().sessions == 1
        assert len(server.pids()) == 1


def _succeeds(connection: MCPConnection) -> bool:
    try:
        return text(connection.call_tool("add", {"a": 2, "b": 2})) == "4"
    except MCPTimeoutError:
        return False


class TestOfNoUse:
    def test_a_server_without_the_tool_is_left_at_once(self, stdio_server):
        server = stdio_server()
        tool, toolset = MCPTool("no_such", reach(server)), MCPToolset(reach(server), tool_names=["no_such"])
        for cold in (tool, toolset):
            with pytest.raises(MCPToolNotFoundError):
                cold.warm_up()
        server.wait_until_gone()
        with pytest.raises(MCPInvocationError, match="not found"):
            tool.invoke()


class TestListing:
    def test_that_is_slow_is_waited_for(self, stdio_server):
        with MCPToolset(reach(stdio_server("--slow-list", "2")), connection_timeout=LONG) as toolset:
            assert "add" in [tool.name for tool in toolset]

    def test_that_is_too_slow_times_out_and_leaves_no_process(self, stdio_server):
        server = stdio_server("--slow-list", "1000")
        toolset = MCPToolset(reach(server), connection_timeout=5)
        with Stopwatch() as watch, pytest.raises(MCPConnectionTimeoutError):
            toolset.warm_up()
        assert watch.seconds < 5 + AT_ONCE
        server.wait_until_gone()
        toolset.close()

    def test_in_pages_is_complete(self, stdio_server):
        with MCPToolset(reach(stdio_server("--tools", "25", "--page-size", "4"))) as toolset:
            names = [tool.name for tool in toolset]
        assert len(names) == len(set(names))
        assert {f"tool_{number:04}" for number in range(25)} <= set(names)
        assert "add" in names

    def test_that_repeats_a_page_is_an_error_at_once_and_leaves_no_process(self, stdio_server):
        server = stdio_server("--page-size", "5", "--repeat-cursor")
        toolset = MCPToolset(reach(server), connection_timeout=LONG)
        with Stopwatch() as watch, pytest.raises(MCPConnectionError, match="repeats a page"):
            toolset.warm_up()
        assert watch.seconds < AT_ONCE
        server.wait_until_gone()
        toolset.close()

    def test_is_repeated_when_the_server_is_killed_in_its_midst(self, stdio_server):
        server = stdio_server("--slow-list", "1")
        with MCPConnection(reach(server), connection_timeout=LONG) as connection:
            listing = in_thread(connection.list_tools)
            server.wait_for("@tools/list", 2)
            server.kill()
            assert "add" in [tool.name for tool in listing.result(timeout=LIMIT)]
            assert connection.status().sessions == 2


class TestClosing:
    def test_while_a_call_is_in_flight_fails_it_promptly(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server), invocation_timeout=LONG) as connection:
            calls = together([lambda: connection.call_tool("sleep", {"seconds": LONG})] * 5)
            server.wait_for("sleep", 5)
            with Stopwatch() as watch:
                connection.close()
                errors = [call.exception(timeout=LIMIT) for call in calls]
            assert watch.seconds < AT_ONCE
        for error in errors:
            assert isinstance(error, MCPInvocationError)
            assert "closed" in str(error)
            assert "may have run" in str(error)
        server.wait_until_gone()

    def test_ends_what_the_server_left_behind_and_that_ignores_sigterm(self, stdio_server, tmp_path):
        server = stdio_server()
        note = tmp_path / "child"
        script = """sh -c 'trap "" TERM; while :; do sleep 1; done' & echo $! > "$1"; shift; exec "$@" """
        info = StdioServerInfo("/bin/sh", ["-c", script, "sh", str(note), server.command, *server.args], **QUICKLY)
        with MCPConnection(info) as connection:
            connection.call_tool("pid")
            child = int(note.read_text())
            assert is_alive(child)
        wait_until(lambda: not is_alive(child), "the end of the server's child")

    def test_while_connecting_fails_it_promptly_and_leaves_no_process(self, stdio_server):
        server = stdio_server("--hang-at-start")
        connection = MCPConnection(reach(server), connection_timeout=LONG)
        opening = in_thread(connection.open)
        server.wait_for("@start")
        with Stopwatch() as watch:
            connection.close()
            error = opening.exception(timeout=LIMIT)
        assert watch.seconds < AT_ONCE
        assert isinstance(error, MCPConnectionError)
        assert "closed" in str(error)
        server.wait_until_gone()

    def test_while_a_lost_session_is_reopened_ends_the_attempts(self, gate):
        connection = MCPConnection(reach(gate.server, max_retries=1000), connection_timeout=LONG)
        connection.open()
        gate.close()
        gate.server.kill()
        call = in_thread(connection.call_tool, "add", {"a": 1, "b": 1})
        wait_until(lambda: gate.starts > 3, "attempts to start it")
        with Stopwatch() as watch:
            connection.close()
            error = call.exception(timeout=LIMIT)
        assert watch.seconds < AT_ONCE
        assert isinstance(error, MCPInvocationError)
        assert "closed" in str(error)
        assert "did not run" in str(error)

    def test_of_one_user_leaves_the_calls_of_another_alone(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server)) as one, MCPConnection(reach(server)) as other:
            call = in_thread(other.call_tool, "sleep", {"seconds": 1})
            server.wait_for("sleep")
            one.close()
            assert text(call.result(timeout=LIMIT)) == "slept 1.0 s"
        assert len(server.pids()) == 1

    def test_is_followed_by_a_new_session_at_the_next_use(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server)) as connection:
            connection.close()
            connection.close()
            assert connection.status().state == "closed"
            server.wait_until_gone()
            assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert len(server.pids()) == 2
