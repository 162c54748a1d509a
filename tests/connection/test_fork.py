# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Forks, with and without multiprocessing: each process has an executor and sessions of its own, and harms no other.
"""

import os

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


def test_a_forked_child_has_an_executor_and_a_session_of_its_own(script):
    child, parent = script.run(
        """
        import asyncio

        tool = MCPTool("pid", server_info)
        before = pid_of(tool)
        executor = AsyncExecutor.get_instance()
        child = os.fork()
        if not child:
            try:
                executor.run(asyncio.sleep(0))
            except RuntimeError as error:
                said = str(error)
            fresh = AsyncExecutor.get_instance() is not executor
            report(server=pid_of(tool), fresh=fresh, said=said)
            tool.close()
            sys.exit(0)
        code = wait_for_end_of(child)
        same = AsyncExecutor.get_instance() is executor
        result = executor.run(asyncio.sleep(0, "fine"))
        report(code=code, before=before, after=pid_of(tool), same=same, result=result)
        """
    )
    assert child["fresh"]
    assert "shut down" in child["said"]  # of the executor from before the fork
    assert child["server"] != parent["before"]
    assert parent["code"] == 0
    assert parent["before"] == parent["after"]
    assert parent["same"]
    assert parent["result"] == "fine"


def test_a_forked_child_leaves_the_session_of_the_parent_alone_however_it_ends(script):
    ends = script.run(
        """
        tool = MCPTool("pid", server_info)
        before = pid_of(tool)
        for end in [
            "sys.exit(0)",
            "tool.close(); sys.exit(0)",
            "del tool; gc.collect(); sys.exit(0)",
            "tool.invoke(); del tool; gc.collect(); sys.exit(0)",
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
    assert len(ends) == 8
    assert not [end for end in ends if end["code"] or not end["undisturbed"]]


def test_a_fork_under_calls_of_other_threads_deadlocks_nobody(script):
    *children, parent = script.run(
        """
        tool = MCPTool("echo", server_info, invocation_timeout=30)
        sleep = MCPTool("sleep", server_info, invocation_timeout=30)
        tool.warm_up()
        stop = threading.Event()
        failures = []

        def call():
            while not stop.is_set():
                try:
                    sleep.invoke(seconds=0.2)
                except Exception as error:
                    failures.append(str(error))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        codes = []
        for number in range(3):
            # In flight, all of them: what is validated during a fork may leave a lock of Pydantic's shut in the child.
            while tool._connection.status().in_flight < len(threads):
                time.sleep(0.005)
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
        sleep.close()
        report(codes=codes, failures=failures, sessions=tool._connection.status().sessions)
        """
    )
    assert children == [{"answered": True}] * 3
    assert parent == {"codes": [0] * 3, "failures": [], "sessions": 1}


def test_a_fork_while_another_thread_changes_a_toolset_leaves_no_lock_shut(script_with):
    child, parent = script_with().run(
        """
        from haystack_integrations.tools.mcp import MCPToolset

        toolset, publish = MCPToolset(server_info), MCPToolset._publish_fetched
        toolset._fetched = []

        def fork(self):
            MCPToolset._publish_fetched = publish
            child = os.fork()
            if not child:
                signal.alarm(30)
                toolset._publish()
                report(has_published=True)
                os._exit(0)
            report(code=wait_for_end_of(child))
            publish(self)

        MCPToolset._publish_fetched = fork
        toolset._publish()
        """
    )
    assert child == {"has_published": True}
    assert parent == {"code": 0}


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


def test_a_pool_of_forked_workers_calls_a_tool(script):
    assert script.run(POOL.format(method="fork", size=2)) == [{"answers": [True] * 4, "own": True}]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_of_spawned_workers_calls_a_tool(script_with, method):
    assert script_with(loop="asyncio").run(POOL.format(method=method, size=1)) == [{"answers": [True] * 4, "own": True}]
