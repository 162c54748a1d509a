# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What happens to servers when this process forks, collects garbage, shuts its executor down or ends: no orphan, no hang,
no noise.

Where the fate of a whole process is the subject, a script is run in a process of its own.
"""

import asyncio
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
)
from tests.support.background import AT_ONCE, Stopwatch, in_thread, text, together
from tests.support.processes import StdioServer, is_alive
from tests.support.waiting import LIMIT, wait_until

# No test waits for this.
LONG = 90.0

# Where this very package is imported from.
SOURCE = Path(inspect.getfile(MCPTool)).parents[3]

PREAMBLE = """
import atexit, gc, json, os, signal, sys, threading, time, weakref

_arguments = json.loads(sys.argv[1])
if not _arguments["uvloop"]:
    sys.modules["uvloop"] = None

from haystack_integrations.tools.mcp import *

server_info = StdioServerInfo(_arguments["command"], _arguments["args"], base_delay=0.05, max_delay=0.2)


def pid_of(tool):
    return int(json.loads(tool.invoke())["content"][0]["text"])


def report(**facts):
    os.write(1, (json.dumps(facts) + "\\n").encode())


def wait_for_end_of(child):
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
"""


def reach(server: StdioServer) -> StdioServerInfo:
    return StdioServerInfo(server.command, server.args, base_delay=0.05, max_delay=0.2)


class Script:
    """
    Runs scripts that have `server_info` in a process of their own.
    """

    def __init__(self, folder: Path, server: StdioServer, *, uvloop: bool) -> None:
        self._folder = folder
        self._server = server
        self._uvloop = uvloop

    def start(self, script: str) -> "subprocess.Popen[str]":
        file = self._folder / "script.py"
        file.write_text(PREAMBLE + textwrap.dedent(script))
        arguments = {"command": self._server.command, "args": self._server.args, "uvloop": self._uvloop}
        return subprocess.Popen(
            # Python 3.12 warns of every fork of a process with threads.
            [sys.executable, "-W", "error::ResourceWarning", "-W", "ignore::DeprecationWarning", str(file)]
            + [json.dumps(arguments)],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "HAYSTACK_TELEMETRY_ENABLED": "False"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, *, code: int = 0, limit: float = 60) -> list[dict[str, object]]:
        """
        Run the script to its end, which must come in time, with that exit code, and without a word on stderr.

        :returns: What it reported.
        """
        process = self.start(script)
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            output, errors = process.communicate()
            pytest.fail(f"the script did not end within {limit} s. It wrote:\n{output}\n{errors}")
        assert not errors, f"the script wrote to stderr:\n{errors}"
        assert process.returncode == code
        self._server.wait_until_gone()
        return [json.loads(line) for line in output.splitlines()]


# Each script starts two interpreters, so each of the majors that the tests run on has one of the loops.
@pytest.fixture(params=["uvloop" if "async_function" in Tool.__dataclass_fields__ else "asyncio"])
def script(request: pytest.FixtureRequest, tmp_path: Path, stdio_server: Callable[..., StdioServer]) -> Script:
    return Script(tmp_path, stdio_server(), uvloop=request.param == "uvloop")


@pytest.fixture
def script_with(tmp_path: Path, stdio_server: Callable[..., StdioServer]) -> Callable[..., Script]:
    """
    The same with a server of these options, with uvloop.
    """
    return lambda *options: Script(tmp_path, stdio_server(*options), uvloop=True)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


@needs_fork
class TestFork:
    def test_gives_the_child_an_executor_and_a_session_of_its_own(self, script):
        child, parent = script.run(
            """
            tool = MCPTool("pid", server_info)
            before = pid_of(tool)
            executor = AsyncExecutor.get_instance()
            child = os.fork()
            if not child:
                fresh = AsyncExecutor.get_instance() is not executor
                report(server=pid_of(tool), fresh=fresh, sessions=tool._connection.status().sessions)
                tool.close()
                sys.exit(0)
            code = wait_for_end_of(child)
            same = AsyncExecutor.get_instance() is executor
            report(code=code, before=before, after=pid_of(tool), same=same)
            """
        )
        assert child["fresh"]
        assert child["server"] != parent["before"]
        assert parent["code"] == 0
        assert parent["before"] == parent["after"]
        assert parent["same"]

    def test_makes_an_executor_that_the_child_still_holds_say_so(self, script):
        child, _ = script.run(
            """
            import asyncio
            executor = AsyncExecutor.get_instance()
            child = os.fork()
            if not child:
                try:
                    executor.run(asyncio.sleep(0))
                except RuntimeError as error:
                    report(said=str(error))
                sys.exit(0)
            report(code=wait_for_end_of(child), result=executor.run(asyncio.sleep(0, "fine")))
            """
        )
        assert "shut down" in child["said"]

    def test_leaves_the_session_of_the_parent_alone_however_the_child_ends(self, script):
        ends = script.run(
            """
            tool = MCPTool("pid", server_info)
            before = pid_of(tool)
            for end in [
                "sys.exit(0)",
                "gc.collect(); sys.exit(0)",
                "tool.close(); sys.exit(0)",
                "del tool; gc.collect(); sys.exit(0)",
                "tool.invoke(); del tool; gc.collect(); sys.exit(0)",
                "tool.invoke(); sys.exit(0)",
                "tool.invoke(); tool.close(); tool.invoke(); sys.exit(0)",
                "AsyncExecutor.get_instance().shutdown(); sys.exit(0)",
                "os._exit(0)",
                "tool.invoke(); os._exit(0)",
            ]:
                child = os.fork()
                if not child:
                    exec(end)
                code = wait_for_end_of(child)
                undisturbed = before == pid_of(tool) and tool._connection.status().sessions == 1
                report(end=end, code=code, undisturbed=undisturbed)
            tool.close()
            """
        )
        assert len(ends) == 10
        assert not [end for end in ends if end["code"] or not end["undisturbed"]]

    def test_under_calls_of_other_threads_deadlocks_nobody(self, script):
        *children, parent = script.run(
            """
            tool = MCPTool("echo", server_info, invocation_timeout=30)
            tool.warm_up()
            stop = threading.Event()
            failures = []

            def call():
                while not stop.is_set():
                    try:
                        tool.invoke(text="hello")
                    except Exception as error:
                        failures.append(str(error))

            threads = [threading.Thread(target=call) for _ in range(4)]
            for thread in threads:
                thread.start()
            codes = []
            for number in range(5):
                child = os.fork()
                if not child:
                    answer = tool.invoke(text="hello")
                    tool.close()
                    report(answered="hello" in answer)
                    os._exit(0)
                codes.append(wait_for_end_of(child))
            stop.set()
            for thread in threads:
                thread.join()
            report(codes=codes, failures=failures, sessions=tool._connection.status().sessions)
            """
        )
        assert children == [{"answered": True}] * 5
        assert parent == {"codes": [0] * 5, "failures": [], "sessions": 1}

    def test_meets_no_call_that_completes_a_model_of_the_sdk(self, script):
        # Pydantic does that under a lock, and the child would never get it.
        [facts] = script.run(
            """
            from pydantic import BaseModel

            from mcp import types

            tool = MCPTool("echo", server_info)
            tool.warm_up()
            classes = [value for value in vars(types).values() if isinstance(value, type)]
            models = [each for each in classes if issubclass(each, BaseModel)]
            incomplete = [each.__name__ for each in models if not each.__pydantic_complete__]
            report(incomplete=incomplete, count=len(models))
            """
        )
        assert facts["count"] > 100
        assert facts["incomplete"] == []

    def test_of_a_fork_works_too(self, script):
        grandchild, child, parent = script.run(
            """
            tool = MCPTool("pid", server_info)
            before = pid_of(tool)

            def descend(depth):
                child = os.fork()
                if child:
                    return wait_for_end_of(child)
                before = pid_of(tool)
                code = descend(depth - 1) if depth else 0
                report(server=before, same=pid_of(tool) == before, code=code)
                sys.exit(0)

            code = descend(1)
            report(server=before, same=pid_of(tool) == before, code=code)
            """
        )
        processes = [grandchild, child, parent]
        assert len({process["server"] for process in processes}) == 3
        assert all(process["same"] and process["code"] == 0 for process in processes)

    def test_while_connecting_harms_neither(self, script_with):
        child, parent = script_with("--slow-list", "1").run(
            """
            # A child that is forked during an import has half a module for ever, so everything is imported before.
            with MCPTool("pid", server_info):
                pass

            tool = MCPTool("pid", server_info)
            opening = threading.Thread(target=tool.warm_up)
            opening.start()
            while tool._connection.status().state != "connecting":
                time.sleep(0.01)
            child = os.fork()
            if not child:
                report(works=pid_of(tool) > 0)
                sys.exit(0)
            code = wait_for_end_of(child)
            opening.join()
            report(works=pid_of(tool) > 0, code=code)
            """
        )
        assert child == {"works": True}
        assert parent == {"works": True, "code": 0}

    def test_a_tool_that_the_child_closes_last_ends_its_server_at_once(self, script):
        [child, _] = script.run(
            """
            kept = MCPTool("pid", server_info)
            dropped = MCPTool("pid", server_info)
            pid_of(kept), pid_of(dropped)
            child = os.fork()
            if not child:
                del dropped
                gc.collect()
                server = pid_of(kept)
                kept.close()
                try:
                    os.kill(server, 0)
                    report(gone=False)
                except ProcessLookupError:
                    report(gone=True)
                sys.exit(0)
            report(code=wait_for_end_of(child))
            """
        )
        assert child == {"gone": True}


class TestMultiprocessing:
    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_a_pool_of_workers_calls_a_tool(self, script, method):
        if method != "spawn" and not hasattr(os, "fork"):
            pytest.skip("this platform cannot fork")
        [facts] = script.run(
            f"""
            import multiprocessing

            def work(tool):
                return tool.invoke(text="hello")

            if __name__ == "__main__":
                tool = MCPTool("echo", server_info)
                tool.warm_up()
                with multiprocessing.get_context("{method}").Pool(2) as pool:
                    answers = pool.map(work, [tool] * 4)
                    pool.close()
                    pool.join()
                report(answers=["hello" in answer for answer in answers], own="hello" in tool.invoke(text="hello"))
                tool.close()
            """
        )
        assert facts == {"answers": [True] * 4, "own": True}

    def test_a_process_pool_executor_with_a_toolset(self, script):
        [facts] = script.run(
            """
            from concurrent.futures import ProcessPoolExecutor

            def work(toolset):
                toolset.warm_up()
                return next(tool for tool in toolset if tool.name == "echo").invoke(text="hello")

            if __name__ == "__main__":
                toolset = MCPToolset(server_info)
                with ProcessPoolExecutor(2) as pool:
                    answers = list(pool.map(work, [toolset] * 4))
                report(answers=["hello" in answer for answer in answers])
            """
        )
        assert facts == {"answers": [True] * 4}


class TestInterpreterExit:
    @pytest.mark.parametrize(
        ("end", "code"),
        [("", 0), ("sys.exit(3)", 3), ("del toolset, tool", 0), ("os.kill(os.getpid(), signal.SIGTERM)", -15)],
    )
    def test_without_close_leaves_no_process_and_says_nothing(self, script, end, code):
        script.run(
            f"""
            toolset = MCPToolset(server_info)
            toolset.warm_up()
            tool = MCPTool("add", server_info, share=False)
            tool.invoke(a=1, b=2)
            {end}
            """,
            code=code,
        )
        assert len(script._server.pids()) == 2

    @pytest.mark.parametrize(
        ("last_words", "expected"), [("sleep 0.5; echo gone > $0; exit", "gone"), (":", "still here")]
    )
    @pytest.mark.parametrize("end", ["", "tool.close()"])
    def test_ends_what_a_server_left_behind_but_gives_it_time(self, script, tmp_path, last_words, expected, end):
        note, pid = tmp_path / "note", tmp_path / "pid"
        note.write_text("still here")
        child = f"trap '{last_words}' TERM; while :; do sleep 0.05; done"
        script.run(
            f"""
            # Without the pipe of the server's stderr, which ends with the session: writing to it would end the child.
            start = 'sh -c "$1" "$2" 2>/dev/null & echo $! > "$3"; shift 3; exec "$@"'
            arguments = ["-c", start, "sh", {child!r}, {str(note)!r}, {str(pid)!r}]
            tool = MCPTool("pid", StdioServerInfo("/bin/sh", [*arguments, server_info.command, *server_info.args]))
            tool.invoke()
            {end}
            """
        )
        wait_until(lambda: not is_alive(int(pid.read_text())), "the end of the server's child")
        assert note.read_text().strip() == expected

    def test_after_close_says_nothing(self, script):
        script.run(
            """
            with MCPTool("add", server_info) as tool:
                tool.invoke(a=1, b=2)
            """
        )

    def test_of_a_program_that_never_connected_says_nothing(self, script):
        script.run('tool = MCPTool("add", server_info); toolset = MCPToolset(server_info)')
        assert script._server.pids() == []

    def test_of_an_asynchronous_program_says_nothing(self, script):
        script.run(
            """
            import asyncio

            async def main():
                tool = MCPTool("echo", server_info)
                await asyncio.gather(*(tool.ainvoke(text="hello") for _ in range(10)))

            asyncio.run(main())
            """
        )

    def test_after_an_error_shows_that_error_only(self, script):
        process = script.start(
            """
            tool = MCPTool("fail", server_info)
            tool.invoke(message="no luck")
            """
        )
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        script._server.wait_until_gone()
        assert "MCPInvocationError: Failed to invoke Tool `fail`" in errors.splitlines()[-1]
        assert "Exception ignored" not in errors
        assert "never awaited" not in errors

    def test_under_calls_and_connects_in_daemon_threads_is_not_held_up(self, script):
        with Stopwatch() as watch:
            script.run(
                """
                import logging
                logging.disable()

                def forever(function, **arguments):
                    def run():
                        try:
                            function(**arguments)
                        except Exception:
                            pass
                    threading.Thread(target=run, daemon=True).start()

                tool = MCPTool("sleep", server_info, invocation_timeout=1000)
                tool.warm_up()
                for _ in range(5):
                    forever(tool.invoke, seconds=1000)
                while tool._connection.status().in_flight < 5:
                    time.sleep(0.01)
                hung = StdioServerInfo(server_info.command, server_info.args + ["--hang-at-start"])
                other = MCPTool("sleep", hung, connection_timeout=1000)
                forever(other.warm_up)
                while other._connection.status().state != "connecting":
                    time.sleep(0.01)
                """
            )
        assert watch.seconds < 5 + 2 * AT_ONCE

    def test_with_a_server_that_ignores_sigterm_and_hangs_is_not_held_up(self, script_with):
        script = script_with("--stubborn")
        with Stopwatch() as watch:
            script.run(
                """
                tool = MCPTool("pid", server_info)
                os.kill(pid_of(tool), signal.SIGSTOP)
                """
            )
        assert watch.seconds < 5 + 2 * AT_ONCE

    def test_closes_from_atexit_callbacks_of_the_user(self, script):
        # Callbacks run in the reverse order: one before ours and one after it.
        facts = script.run(
            """
            early, late = MCPTool("pid", server_info), MCPTool("pid", server_info, share=False)

            def close(tool):
                tool.close()
                report(closed=True)

            atexit.register(close, early)
            pid_of(early), pid_of(late)
            atexit.register(close, late)
            """
        )
        assert facts == [{"closed": True}] * 2

    def test_closes_from_an_atexit_callback_that_was_there_before_the_package(self, tmp_path, stdio_server):
        server = stdio_server()
        file = tmp_path / "script.py"
        file.write_text(
            textwrap.dedent(
                """
                import atexit, json, sys
                tools = []
                atexit.register(lambda: [tool.close() for tool in tools])
                from haystack_integrations.tools.mcp import MCPTool, StdioServerInfo
                command, *args = sys.argv[1:]
                tools.append(MCPTool("pid", StdioServerInfo(command, args)))
                tools[0].invoke()
                """
            )
        )
        finished = subprocess.run(
            [sys.executable, str(file), server.command, *server.args],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (finished.returncode, finished.stderr) == (0, "")
        server.wait_until_gone()

    def test_calls_from_atexit_callbacks_work_or_fail_and_do_not_hang(self, script):
        [facts] = script.run(
            """
            tool = MCPTool("pid", server_info, connection_timeout=10, invocation_timeout=10)
            pid_of(tool)

            def call():
                try:
                    tool.invoke()
                    report(ended=True)
                except Exception as error:
                    report(ended=True)

            atexit.register(call)
            """
        )
        assert facts == {"ended": True}

    def test_closes_from_finalisers(self, script):
        facts = script.run(
            """
            class Owner:
                def __init__(self):
                    self.tool = MCPTool("pid", server_info)
                    pid_of(self.tool)
                    self.itself = self

                def __del__(self):
                    self.tool.close()
                    report(closed=True)

            Owner()
            gc.collect()

            def close(tool):
                tool.close()
                report(closed=True)

            tool = MCPTool("pid", server_info, share=False)
            pid_of(tool)
            weakref.finalize(server_info, close, tool)  # at exit, too
            """
        )
        assert facts == [{"closed": True}] * 2

    def test_after_the_main_thread_has_ended_threads_that_go_on_still_call(self, script):
        [facts] = script.run(
            """
            tool = MCPTool("echo", server_info)
            tool.warm_up()

            def go_on():
                threading.main_thread().join()
                report(answered="hello" in tool.invoke(text="hello"))
                tool.close()

            threading.Thread(target=go_on).start()
            """
        )
        assert facts == {"answered": True}

    def test_by_ctrl_c_in_a_call_leaves_no_process_and_shows_the_interrupt_only(self, script):
        process = script.start(
            """
            # Started in the background of a shell, as in CI, Python ignores it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            tool = MCPTool("sleep", server_info, invocation_timeout=1000)
            tool.warm_up()
            tool.invoke(seconds=1000)
            """
        )
        script._server.wait_for("sleep")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT
        assert errors.splitlines()[-1] == "KeyboardInterrupt"
        assert "Exception ignored" not in errors
        assert "never awaited" not in errors
        script._server.wait_until_gone()

    @pytest.mark.parametrize("transport", ["sse", "streamable-http"])
    def test_with_an_open_session_over_http_says_nothing(self, script, shared_http_server, transport):
        kind = {"sse": "SSEServerInfo", "streamable-http": "StreamableHttpServerInfo"}[transport]
        url = shared_http_server(transport, "--protocol", "legacy").url
        script.run(f'tool = MCPTool("add", {kind}({url!r})); tool.invoke(a=1, b=2)')

    def test_with_an_open_session_in_process_says_nothing(self, script):
        script.run(
            """
            from mcp.server import MCPServer

            server = MCPServer("calculator")
            server.add_tool(lambda: 42, name="answer")
            tool = MCPTool("answer", InProcessServerInfo(server))
            tool.invoke()
            """
        )


class TestGarbageCollection:
    def test_of_a_tool_ends_its_server(self, stdio_server):
        server = stdio_server()
        tool = MCPTool("add", reach(server))
        tool.invoke(a=1, b=2)
        del tool
        gc.collect()
        server.wait_until_gone()

    def test_of_a_toolset_ends_its_server(self, stdio_server):
        server = stdio_server()
        toolset = MCPToolset(reach(server))
        toolset.warm_up()
        del toolset
        gc.collect()
        server.wait_until_gone()

    def test_of_a_connection_ends_its_server_without_a_cycle_to_collect(self, stdio_server):
        server = stdio_server()
        connection = MCPConnection(reach(server))
        connection.call_tool("add", {"a": 1, "b": 2})
        gc.disable()
        try:
            del connection
            server.wait_until_gone()
        finally:
            gc.enable()

    def test_of_a_toolset_waits_for_its_tools(self, stdio_server):
        server = stdio_server()
        toolset = MCPToolset(reach(server), tool_names=["echo"])
        toolset.warm_up()
        tool = toolset[0]
        del toolset
        gc.collect()
        assert "hello" in tool.invoke(text="hello")
        assert len(server.pids()) == 1
        del tool
        gc.collect()
        server.wait_until_gone()

    def test_in_the_thread_of_the_executor_does_not_stall_it(self, stdio_server):
        server = stdio_server()
        tools = [MCPTool("add", reach(server)), MCPToolset(reach(server))]
        for tool in tools:
            tool.warm_up()
        del tool

        async def collect() -> None:
            tools.clear()
            gc.collect()

        executor = AsyncExecutor.get_instance()
        with Stopwatch() as watch:
            executor.run(collect(), timeout=LIMIT)
        assert watch.seconds < 1
        server.wait_until_gone()
        with MCPConnection(reach(server)) as connection:
            assert text(connection.call_tool("add", {"a": 1, "b": 2})) == "3"

    def test_that_strikes_while_a_lock_is_held_does_not_deadlock(self, stdio_server):
        from haystack_integrations.tools.mcp.connection.pool import pool

        server = stdio_server()
        tools = [MCPTool("add", reach(server))]
        tools[0].warm_up()

        def strike() -> None:
            with pool.lock:
                tools.clear()
                gc.collect()

        in_thread(strike).result(timeout=AT_ONCE)
        server.wait_until_gone()

    def test_while_connecting_ends_what_was_started(self, stdio_server):
        server = stdio_server("--hang-at-start")
        connection = MCPConnection(reach(server), connection_timeout=2)
        opening = in_thread(connection.open)
        server.wait_for("@start")
        del connection
        assert isinstance(opening.exception(timeout=LIMIT), MCPConnectionError)
        del opening
        gc.collect()
        server.wait_until_gone()

    def test_after_close_does_nothing(self, stdio_server):
        server = stdio_server()
        with MCPConnection(reach(server)) as kept:
            tool = MCPTool("add", reach(server))
            tool.warm_up()
            tool.close()
            del tool
            gc.collect()
            assert text(kept.call_tool("add", {"a": 1, "b": 2})) == "3"
            assert kept.status().users == 1


class TestExecutorShutdown:
    def test_ends_the_servers_and_tools_reconnect(self, stdio_server):
        server = stdio_server()
        with MCPTool("add", reach(server)) as tool, MCPToolset(reach(server), tool_names=["echo"]) as toolset:
            AsyncExecutor.get_instance().shutdown()
            server.wait_until_gone()
            assert tool._connection.status().state == "lost"
            assert '"3"' in tool.invoke(a=1, b=2)
            toolset.warm_up()
            assert "hello" in toolset[0].invoke(text="hello")
        assert len(server.pids()) == 2

    def test_makes_a_new_executor_be_given(self):
        old = AsyncExecutor.get_instance()
        old.shutdown()
        old.shutdown()
        new = AsyncExecutor.get_instance()
        assert new is not old
        assert new is AsyncExecutor.get_instance()

    def test_fails_calls_in_flight_promptly(self, stdio_server):
        server = stdio_server()
        with MCPTool("sleep", reach(server), invocation_timeout=LONG) as tool:
            calls = together([lambda: tool.invoke(seconds=LONG)] * 3)
            server.wait_for("sleep", 3)
            with Stopwatch() as watch:
                AsyncExecutor.get_instance().shutdown()
                errors = [call.exception(timeout=LIMIT) for call in calls]
            assert watch.seconds < AT_ONCE
            assert all(isinstance(error, MCPInvocationError) for error in errors), errors
            assert all("shut down" in str(error) or "closed" in str(error) for error in errors), errors
            assert all("may have run" in str(error) for error in errors), errors
        server.wait_until_gone()

    def test_opens_no_session_that_nobody_would_close(self, stdio_server, caplog):
        hung, late = stdio_server("--stubborn"), stdio_server("--stubborn", "--hang-at-start")
        executor = AsyncExecutor.get_instance()
        connection = MCPConnection(reach(late))

        async def open_late() -> None:
            # As a call does that was in the loop already, and whose session was lost.
            while not executor._closing:
                await asyncio.sleep(0.01)
            await connection._acquire().ready_session(LONG)

        with MCPConnection(reach(hung)):
            hung.freeze()
            opening, _ = executor.run_background(lambda _: open_late())
            executor.shutdown()
        assert isinstance(opening.exception(timeout=LIMIT), MCPConnectionError)
        assert late.pids() == []
        assert "did not end" not in caplog.text
        connection.close()

    def test_then_close_is_quick_and_silent(self, stdio_server, caplog):
        server = stdio_server()
        tool = MCPTool("add", reach(server))
        tool.warm_up()
        AsyncExecutor.get_instance().shutdown()
        caplog.clear()
        with Stopwatch() as watch:
            tool.close()
        assert watch.seconds < AT_ONCE
        assert caplog.text == ""
        server.wait_until_gone()

    def test_then_collection_leaves_no_user_behind(self, stdio_server):
        server = stdio_server()
        tool = MCPTool("add", reach(server))
        tool.warm_up()
        AsyncExecutor.get_instance().shutdown()
        server.wait_until_gone()
        del tool
        gc.collect()
        with MCPConnection(reach(server)) as connection:
            assert connection.status().users == 1
        server.wait_until_gone()

    def test_under_a_storm_of_calls_hangs_nobody(self, stdio_server):
        server = stdio_server()
        with MCPTool("echo", reach(server), invocation_timeout=LONG) as tool:
            stop = threading.Event()

            def call() -> int:
                calls = 0
                while not stop.is_set():
                    calls += 1
                    try:
                        tool.invoke(text="hello")
                    except MCPInvocationError:
                        continue
                return calls

            callers = together([call] * 4)
            for _ in range(3):
                wait_until(lambda: tool._connection.status().state == "ready", "a session")
                AsyncExecutor.get_instance().shutdown()
            stop.set()
            assert all(caller.result(timeout=LIMIT) for caller in callers)


class TestClose:
    def test_in_the_thread_of_the_executor_does_not_block_it(self, stdio_server):
        server = stdio_server()
        tool, toolset = MCPTool("add", reach(server)), MCPToolset(reach(server))
        tool.warm_up()
        toolset.warm_up()

        async def close() -> None:
            tool.close()
            toolset.close()

        with Stopwatch() as watch:
            AsyncExecutor.get_instance().run(close(), timeout=LIMIT)
        assert watch.seconds < 1
        server.wait_until_gone()

    def test_by_a_tool_that_runs_in_process_does_not_block(self):
        from mcp.server import MCPServer

        server = MCPServer("suicidal")
        tool = MCPTool("leave", InProcessServerInfo(server), invocation_timeout=LONG)

        def leave() -> str:
            tool.close()
            return "bye"

        server.add_tool(leave)
        call = in_thread(tool.invoke)
        with Stopwatch() as watch:
            call.exception(timeout=LIMIT)  # an answer or an error, but soon
        assert watch.seconds < AT_ONCE
        tool.close()

    def test_asynchronously_in_the_executor_itself_ends_the_server(self, stdio_server):
        server = stdio_server()
        tool = MCPTool("add", reach(server))
        tool.warm_up()
        AsyncExecutor.get_instance().run(tool.close_async(), timeout=LIMIT)
        server.wait_until_gone()

    def test_synchronously_in_a_running_loop_works(self, stdio_server):
        server = stdio_server()

        async def use() -> None:
            tool = MCPTool("add", reach(server))
            await tool.warm_up_async()
            tool.close()

        in_thread(lambda: asyncio.run(use())).result(timeout=LIMIT)
        server.wait_until_gone()

    def test_in_a_finaliser_of_the_user_does_not_block(self, stdio_server):
        server = stdio_server()

        class Owner:
            pass

        owner, tool = Owner(), MCPTool("add", reach(server))
        tool.warm_up()
        weakref.finalize(owner, tool.close)

        async def collect() -> None:
            nonlocal owner
            del owner
            gc.collect()

        AsyncExecutor.get_instance().run(collect(), timeout=AT_ONCE)
        server.wait_until_gone()

    def test_by_many_threads_at_once_closes_once(self, stdio_server):
        server = stdio_server()
        tool = MCPTool("add", reach(server))
        tool.warm_up()
        for future in together([tool.close] * 8):
            future.result(timeout=LIMIT)
        server.wait_until_gone()

    def test_before_anything_was_opened_does_nothing(self, stdio_server):
        server = stdio_server()
        for user in (MCPTool("add", reach(server)), MCPToolset(reach(server)), MCPConnection(reach(server))):
            user.close()
            user.close()
        assert server.pids() == []
