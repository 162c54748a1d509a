# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A program that uses servers ends without orphans, hangs or output.
"""

import signal

import psutil
import pytest

from tests.support.processes import is_alive
from tests.support.waiting import LIMIT, wait_until

UNCLOSED = """
toolset = MCPToolset(server_info)
toolset.warm_up()
tool = MCPTool("add", server_info, share=False)
tool.invoke(a=1, b=2)
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("del toolset, tool", 0), ("os.kill(os.getpid(), signal.SIGTERM)", -15)],
)
def test_a_program_that_ends_without_close_leaves_no_process_and_no_output(script, end, code):
    script.run(UNCLOSED + end, code=code)
    assert len(script.server.pids()) == 2


def test_the_end_of_a_program_ends_children_of_servers_after_giving_them_time(script, tmp_path):
    # A closed and an open tool; each starts a child that writes something at its end, and one that ignores SIGTERM.
    names = ["closed-polite", "closed-stubborn", "open-polite", "open-stubborn"]
    for name in names:
        (tmp_path / f"{name}.note").write_text("still here")
    script.run(
        f"""
        # Without the pipe of the server's stderr, which ends with the session: writing to it would end the child.
        start = 'sh -c "$1" "$2" 2>/dev/null & echo $! > "$3"; shift 3; exec "$@"'

        def start_tool(name):
            file = {str(tmp_path)!r} + "/" + name
            last_words = "sleep 0.5; echo gone > $0; exit" if "polite" in name else ":"
            child = "trap '" + last_words + "' TERM; while :; do sleep 0.05; done"
            arguments = ["-c", start, "sh", child, file + ".note", file + ".pid"]
            tool = MCPTool("pid", StdioServerInfo("/bin/sh", [*arguments, server_info.command, *server_info.args]))
            tool.invoke()
            return tool

        tools = [start_tool(name) for name in {names!r}]
        tools[0].close()
        tools[1].close()
        """
    )
    for name in names:
        child = int((tmp_path / f"{name}.pid").read_text())
        wait_until(lambda child=child: not is_alive(child), "the end of the server's child")
        assert (tmp_path / f"{name}.note").read_text().strip() == ("gone" if "polite" in name else "still here")


def test_daemon_threads_with_calls_or_connects_and_a_frozen_server_do_not_delay_the_end_of_a_program(script):
    script.run(
        """
        import contextlib, logging
        logging.disable()
        os.close(0)  # nor does that it has no standard input

        def forever(function, **arguments):
            with contextlib.suppress(Exception):
                function(**arguments)

        tool = MCPTool("sleep", server_info, invocation_timeout=1000)
        hung = StdioServerInfo(server_info.command, server_info.args + ["--hang-at-start"])
        other = MCPTool("sleep", hung, connection_timeout=1000)
        for function, arguments in [*[(tool.invoke, {"seconds": 1000})] * 5, (other.warm_up, {})]:
            threading.Thread(target=forever, args=[function], kwargs=arguments, daemon=True).start()
        while tool._connection.status().in_flight < 5 or other._connection.status().state != "connecting":
            time.sleep(0.01)
        frozen = StdioServerInfo(server_info.command, server_info.args + ["--stubborn"])
        os.kill(pid_of(MCPTool("pid", frozen)), signal.SIGSTOP)
        """
    )


def test_atexit_callbacks_and_finalisers_of_the_user_may_close(script_with):
    facts = script_with(loop="asyncio").run(
        """
        def close(name, tool):
            tool.close()
            report(closed=name)

        class Owner:
            def __init__(self):
                self.tool = late
                self.itself = self

            def __del__(self):
                close("collected", self.tool)

        # Callbacks run in the reverse order: one before ours and one after it.
        early, late, final = (MCPTool("pid", server_info, share=False) for _ in range(3))
        atexit.register(close, "early", early)
        pid_of(early), pid_of(late), pid_of(final)
        Owner()
        gc.collect()
        pid_of(late)
        atexit.register(close, "late", late)
        weakref.finalize(server_info, close, "finalised", final)  # at exit, too
        """
    )
    assert sorted(fact["closed"] for fact in facts) == ["collected", "early", "finalised", "late"]


def test_ctrl_c_in_a_call_leaves_no_process_and_shows_only_the_interrupt(script):
    sleeping = """
        tool = MCPTool("sleep", server_info, invocation_timeout=1000)
        tool.warm_up()
        tool.invoke(seconds=1000)
        """
    with script.started(sleeping) as process:
        script.server.wait_for("sleep")
        # Python may lose a signal that arrives just before its main thread begins to wait.
        waiting = psutil.Process(process.pid)
        wait_until(lambda: waiting.status() == psutil.STATUS_SLEEPING, "the end of the last step before the wait")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "Exception ignored" not in errors
    assert "never awaited" not in errors
    script.server.wait_until_gone()


def test_a_program_that_ends_with_open_sessions_and_calling_threads_writes_nothing(script, shared_http_server):
    sse, streamable_http = (shared_http_server(kind, "--protocol", "legacy").url for kind in ("sse", "streamable-http"))
    [facts] = script.run(
        f"""
        from mcp.server import MCPServer

        server = MCPServer("calculator", log_level="ERROR")
        server.add_tool(lambda a, b: a + b, name="add")
        infos = [
            server_info,
            SSEServerInfo({sse!r}),
            StreamableHttpServerInfo({streamable_http!r}),
            InProcessServerInfo(server),
        ]
        tools = [MCPTool("add", info) for info in infos]
        for tool in tools:
            tool.warm_up()

        def go_on():
            threading.main_thread().join()
            report(answers=[tool.call(a=1, b=2).text for tool in tools])

        threading.Thread(target=go_on).start()
        """
    )
    assert facts["answers"] == ["3"] * 4
