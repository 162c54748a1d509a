# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Forks, with and without multiprocessing: each process has its own executor and sessions, and does not affect others.
"""

import os

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


def test_a_forked_child_has_its_own_session_and_does_not_affect_its_parents_however_it_ends(script):
    ends = script.run(
        """
        import asyncio
        from haystack_integrations.tools.mcp import concurrency
        from haystack_integrations.tools.mcp import executor as executor_module
        from haystack_integrations.tools.mcp.connection import context_managed
        from haystack_integrations.tools.mcp.connection.connection import pool

        tool, toolset = MCPTool("pid", server_info), MCPToolset(server_info)
        before = pid_of(tool)
        executor = AsyncExecutor.get_instance()

        def look_around():
            assert pid_of(tool) != before
            assert AsyncExecutor.get_instance() is not executor
            try:
                executor.run(asyncio.sleep(0))
            except RuntimeError as error:
                assert "shut down" in str(error)
                sys.exit(0)

        held, let_go = threading.Event(), threading.Event()

        def change_the_toolset():
            with toolset._lock():
                held.set()
                let_go.wait()

        threading.Thread(target=change_the_toolset).start()
        held.wait()
        for end in [
            "look_around()",
            "with toolset: sys.exit(0)",
            "tool.close(); sys.exit(0)",
            "del tool; gc.collect(); sys.exit(0)",
            "tool.invoke(); tool.close(); tool.invoke(); sys.exit(0)",
            "AsyncExecutor.get_instance().shutdown(); sys.exit(0)",
            "tool.invoke(); os._exit(0)",
        ]:
            # As other threads may hold them in this moment.
            locks = executor_module._singleton_lock, concurrency._import_lock, context_managed._lock
            with pool.lock(), locks[0](), locks[1](), locks[2]():
                child = os.fork()
                if not child:
                    signal.alarm(60)
                    exec(end)
            code = wait_for_end_of(child)
            undisturbed = before == pid_of(tool) and tool._connection.status().sessions == 1
            report(end=end, code=code, undisturbed=undisturbed)
        let_go.set()
        tool.close()
        """
    )
    assert len(ends) == 7
    assert not [end for end in ends if end["code"] or not end["undisturbed"]]


def test_a_fork_during_calls_of_other_threads_does_not_deadlock(script):
    *children, parent = script.run(
        """
        tool = MCPTool("echo", server_info, invocation_timeout=30)
        sleep = MCPTool("sleep", server_info, invocation_timeout=30)
        tool.warm_up()
        stop, failures, codes = threading.Event(), [], []

        def call():
            while not stop.is_set():
                try:
                    sleep.invoke(seconds=0.2)
                except Exception as error:
                    failures.append(str(error))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            # In flight, all of them: what is validated during a fork may leave a lock of Pydantic's shut in the child.
            while tool._connection.status().in_flight < len(threads):
                time.sleep(0.005)
            child = os.fork()
            if not child:
                report(answered="hello" in tool.invoke(text="hello"))
                tool.close()
                os._exit(0)
            codes.append(wait_for_end_of(child))
        stop.set()
        for thread in threads:
            thread.join()
        sleep.close()
        report(codes=codes, failures=failures, sessions=tool._connection.status().sessions)
        """
    )
    assert children == [{"answered": True}] * 3
    assert parent == {"codes": [0] * 3, "failures": [], "sessions": 1}


POOL = """
import multiprocessing

def work(tool):
    return tool.invoke(text="hello")

if __name__ == "__main__":
    tool = MCPTool("echo", server_info)
    tool.warm_up()
    with multiprocessing.get_context("{method}").Pool({size}) as pool:
        answers = pool.map(work, [tool] * 4)
        pool.close()
        pool.join()
    report(answers=["hello" in answer for answer in answers], own="hello" in tool.invoke(text="hello"))
    tool.close()
"""


@pytest.mark.parametrize(("method", "size"), [("fork", 2), ("spawn", 1), ("forkserver", 1)])
def test_workers_of_a_process_pool_call_a_tool(script_with, method, size):
    script = script_with(loop="asyncio")
    assert script.run(POOL.format(method=method, size=size)) == [{"answers": [True] * 4, "own": True}]
