# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Forks, with and without multiprocessing: each process has an executor and sessions of its own, and harms no other.
"""

import os
import warnings

import pytest

from haystack_integrations.tools.mcp import (
    MCPToolset,
    StdioServerInfo,
)
from tests.support.waiting import LIMIT

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


def test_a_fork_meets_no_call_that_imports_a_module(script_with):
    # The child would wait for the lock of a module that is imported by half.
    [facts] = script_with().run(
        """
        tool = MCPTool("echo", server_info)
        tool.warm_up()
        before = set(sys.modules)
        tool.invoke(text="hello")
        report(imported=sorted(name for name in set(sys.modules) - before if name.startswith("haystack_integrations")))
        tool.close()
        """
    )
    assert facts == {"imported": []}


def test_a_fork_meets_no_call_that_completes_a_model_of_the_sdk(script_with):
    # Pydantic does that under a lock, and the child would never get it.
    [facts] = script_with().run(
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


def test_a_child_of_a_forked_child_has_a_session_of_its_own_too(script):
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


def test_a_fork_while_connecting_harms_neither_process(script_with):
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


def test_a_tool_that_a_forked_child_closes_last_ends_its_server_at_once(script):
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


def test_the_workers_of_a_process_pool_executor_use_a_toolset(script_with):
    [facts] = script_with().run(
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


def test_the_lock_of_a_toolset_is_free_in_a_forked_child() -> None:
    toolset = MCPToolset(StdioServerInfo("mcp-never-started"))
    with toolset._lock(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
        pid = os.fork()
        if pid == 0:
            os._exit(0 if toolset._lock().acquire(timeout=LIMIT) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
