# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The process of one subject. It answers each line on stdin, a JSON request, with one line on stdout.

    {"case": "call", "target": {...}, "tool": "echo", "arguments": {...}, "n": 100}   ->   {"seconds": 0.000312}

`seconds` is the time for one unit of the case: a call, a batch of concurrent calls, a warm-up, or a run of the Agent.
`figures` contains other measurements (processes, memory). `{"case": "close"}` closes the connections that earlier requests
left open.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

from cases import NEIGHBOURS
from neighbours import NeighbourSubject, NotSupportedError
from stall import stall_watch

Answer = dict[str, Any]
Request = dict[str, Any]

_WARM_UP_SHARE = 5
"""Before every measurement, a fifth as many calls refill the CPU's caches, which the other subjects used meanwhile."""

_SETTLED, _IDLE = 1.0, 3.0
"""How long to wait before wake-ups of idle sessions are counted, and how long to count them, in seconds."""


class Worker:
    """Measures one subject."""

    def __init__(self, subject_name: str) -> None:
        # Imported here, because --without-fast must take effect before any of these imports.
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._open: dict[str, Any] = {}
        self._runner = asyncio.Runner()
        if subject_name in NEIGHBOURS:
            self._subject = self._ainvoke_subject = NeighbourSubject(subject_name, self._runner)
            return
        from subjects import AinvokeSubject, DirectSubject, FloorSubject, HaystackSubject

        if subject_name == "direct":
            self._subject = self._ainvoke_subject = DirectSubject(self._runner)
        elif subject_name == "floor":
            self._subject = self._ainvoke_subject = FloorSubject()
        else:
            ours = subject_name == "ours"
            self._subject, self._ainvoke_subject = HaystackSubject(ours=ours), AinvokeSubject(ours=ours)

    def answer(self, request: Request) -> Answer:
        """Measure the case of a request."""
        measure: Callable[[Request], Answer] = getattr(self, f"measure_{request['case']}")
        return measure(request)

    def close(self) -> None:
        """Close all connections that are kept between requests."""
        for session, *_ in self._open.values():
            session.close()
        self._open.clear()

    def _session(self, request: Request) -> Any:
        """Return the connection for a request, kept open between rounds."""
        via = request.get("via", "toolset")
        key = json.dumps([via, request["target"]])
        if key not in self._open:
            target, tool_name = request["target"], request.get("tool", "")
            if via == "toolset":
                session = self._subject.open(target)
            elif via == "tool":
                session = self._subject.open_tool(target, tool_name)
            else:
                session = self._ainvoke_subject.open_tool(target, tool_name)
            self._open[key] = (session,)
        return self._open[key][0]

    def measure_close(self, _: Request) -> Answer:
        """Close all connections."""
        self.close()
        return {"seconds": 0.0}

    def measure_call(self, request: Request) -> Answer:
        """Measure the median of `n` calls, one after another."""
        call = self._session(request).call(request["tool"], request["arguments"])
        times = []
        for _ in range(request["n"] // _WARM_UP_SHARE + 1):
            call()
        cpu = process_time()
        for _ in range(request["n"]):
            begin = perf_counter()
            call()
            times.append(perf_counter() - begin)
        return {
            "seconds": statistics.median(times),
            "figures": self._cpu_of(request, process_time() - cpu, request["n"]),
        }

    @staticmethod
    def _cpu_of(request: Request, seconds: float, calls: int) -> dict[str, float]:
        return {"cpu": seconds / calls} if request.get("counts_cpu") else {}

    def measure_overhead(self, request: Request) -> Answer:
        """Measure calls with an addition and calls without it, in turns: the ratio of their medians."""
        key = json.dumps([request["extra"], request["target"]])
        if key not in self._open:
            self._open[key] = self._subject.open_with(request["target"], request["extra"])
        session, context = self._open[key]
        plain = self._session(request).call(request["tool"], request["arguments"])
        call = session.call(request["tool"], request["arguments"])

        def with_extra() -> None:
            with context():
                call()

        times: dict[Any, list[float]] = {plain: [], with_extra: []}
        for number in range(request["n"] // _WARM_UP_SHARE + 1 + request["n"]):
            for one in (plain, with_extra) if number % 2 else (with_extra, plain):
                begin = perf_counter()
                one()
                times[one].append(perf_counter() - begin)
        without, seconds = (statistics.median(each[-request["n"] :]) for each in times.values())
        return {"seconds": seconds, "figures": {"overhead": seconds / without}}

    def measure_call_async(self, request: Request) -> Answer:
        """Measure the same as `measure_call` with async calls in this thread's loop."""
        call = self._session(request).call_async(request["tool"], request["arguments"])

        async def measure() -> tuple[list[float], float]:
            times = []
            for _ in range(request["n"] // _WARM_UP_SHARE + 1):
                await call()
            cpu = process_time()
            for _ in range(request["n"]):
                begin = perf_counter()
                await call()
                times.append(perf_counter() - begin)
            return times, process_time() - cpu

        times, cpu = self._runner.run(measure())
        return {"seconds": statistics.median(times), "figures": self._cpu_of(request, cpu, request["n"])}

    def measure_listing(self, request: Request) -> Answer:
        """Measure the median of `n` listings of all tools, one after another. hayhooks also lists its own tools."""
        list_tools = self._session(request).list_tools()

        async def measure() -> list[float]:
            times = []
            for _ in range(request["n"] + 1):
                begin = perf_counter()
                listed = await list_tools()
                times.append(perf_counter() - begin)
                if len(listed.tools) < request["expected"]:
                    message = f"{len(listed.tools)} tools instead of {request['expected']}"
                    raise ValueError(message)
            return times[1:] or times

        return {"seconds": statistics.median(self._runner.run(measure()))}

    def measure_load(self, request: Request) -> Answer:
        """Measure `n` calls of each of several clients, all at once: how long they take, and how long they must take."""
        with self._many_sessions(request) as sessions:
            self._calls_of_each(request, sessions, 1)
            seconds, failed = self._calls_of_each(request, sessions, request["n"])
        figures = {"throughput": request["best"] * request["n"] / seconds, "failed": failed}
        return {"seconds": seconds / (len(sessions) * request["n"]), "figures": figures}

    def measure_load_memory(self, request: Request) -> Answer:
        """Measure `n` calls of several clients: the server's memory after 1,000 of them, and after all."""
        first, server = 1_000, self._psutil.Process(request["target"]["pid"])
        with self._many_sessions(request) as sessions:
            _, failed_first = self._calls_of_each(request, sessions, first // len(sessions))
            before = server.memory_info().rss
            each = (request["n"] - first) // len(sessions)
            seconds, failed = self._calls_of_each(request, sessions, each)
            after = server.memory_info().rss
        figures = {
            "megabytes-1000": before / 1e6,
            "megabytes": after / 1e6,
            "growth": after / before,
            "failed": failed + failed_first,
        }
        return {"seconds": seconds / (len(sessions) * each), "figures": figures}

    @contextmanager
    def _many_sessions(self, request: Request) -> Iterator[list[Any]]:
        sessions = [self._subject.open(request["target"]) for _ in range(request["clients"])]
        try:
            yield sessions
        finally:
            for session in sessions:
                session.close()

    def _calls_of_each(self, request: Request, sessions: list[Any], n: int) -> tuple[float, int]:
        """Let every session make `n` calls, one after another; return how long all took, and how many failed."""

        async def calls_of(session: Any) -> int:
            call = session.call_async(request["tool"], request["arguments"])
            failed = 0
            for _ in range(n):
                try:
                    failed += (await call()).is_error
                except Exception:
                    traceback.print_exc()
                    failed += 1
            return failed

        async def measure() -> tuple[float, int]:
            begin = perf_counter()
            failed = await asyncio.gather(*(calls_of(session) for session in sessions))
            return perf_counter() - begin, sum(failed)

        return self._runner.run(measure())

    def measure_concurrent(self, request: Request) -> Answer:
        """Measure `concurrency` calls at once, each in a thread: the median of `n` batches."""
        call = self._session(request).call(request["tool"], request["arguments"])
        concurrency = request["concurrency"]
        times = []
        with ThreadPoolExecutor(concurrency) as threads:
            for batch in range(request["n"] + 1):
                begin = perf_counter()
                for future in [threads.submit(call) for _ in range(concurrency)]:
                    future.result()
                if batch:
                    times.append(perf_counter() - begin)
        return {"seconds": statistics.median(times)}

    def measure_concurrent_async(self, request: Request) -> Answer:
        """Measure `concurrency` calls at once in one loop: the median of `n` batches, and the loop's longest stall."""
        call = self._session(request).call_async(request["tool"], request["arguments"])

        async def batch() -> float:
            begin = perf_counter()
            await asyncio.gather(*(call() for _ in range(request["concurrency"])))
            return perf_counter() - begin

        async def measure() -> tuple[list[float], float, float]:
            await batch()
            cpu = process_time()
            times = [await batch() for _ in range(request["n"])]
            cpu = process_time() - cpu
            # The stall is measured in a separate batch, because the watch wakes the loop all the time. Objects are frozen
            # as in `measure_held_up`, because it is chance which subject's batch the next full collection falls into.
            gc.collect()
            gc.freeze()
            async with stall_watch() as gaps:
                await batch()
            gc.unfreeze()
            return times, max(gaps), cpu

        times, stall, cpu = self._runner.run(measure())
        figures = self._cpu_of(request, cpu, request["n"] * request["concurrency"])
        return {"seconds": statistics.median(times), "figures": {"stall": stall, **figures}}

    def measure_held_up(self, request: Request) -> Answer:
        """
        Measure a call with a large result alone, and during another such call, the longest call of another session.

        The objects of the imported packages are frozen, as the guide advises, because a full garbage collection of them
        would add 60 ms and more to that of every subject.
        """
        call = self._session(request).call(request["tool"], request["arguments"])
        # The other session has its own server, which the large result does not delay.
        script = str(Path(__file__).parent / "costless_server.py")
        other_server = {"command": sys.executable, "args": ["-I", "-S", script]}
        other = self._session({**request, "target": other_server}).call("echo", {"text": "hello"})
        longest = 0.0
        is_over = threading.Event()

        def call_other() -> None:
            nonlocal longest
            while not is_over.is_set():
                begin = perf_counter()
                other()
                longest = max(longest, perf_counter() - begin)

        call()
        other()
        gc.collect()
        gc.freeze()
        begin = perf_counter()
        call()
        seconds = perf_counter() - begin
        with ThreadPoolExecutor(1) as threads:
            calling = threads.submit(call_other)
            call()
            is_over.set()
            calling.result()
        gc.unfreeze()
        return {"seconds": seconds, "figures": {"held-up": longest}}

    def measure_warm_up_one(self, request: Request) -> Answer:
        """Warm up one server."""
        begin = perf_counter()
        session = self._subject.open(request["target"])
        seconds = perf_counter() - begin
        session.close()
        return {"seconds": seconds}

    def measure_warm_up_file(self, request: Request) -> Answer:
        """Warm up the servers of a file, the last of which is dead; before that, the first, the slowest, alone."""
        slowest = self.measure_warm_up_one({"target": request["targets"][0]})["seconds"]
        servers = {f"server-{number}": target for number, target in enumerate(request["targets"])}
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "mcp.json"
            config.write_text(json.dumps({"mcpServers": servers}))
            begin = perf_counter()
            sessions = self._subject.open_file(config)
            seconds = perf_counter() - begin
        counts = [len(session.tools()) for session in sessions]
        for session in sessions:
            session.close()
        if counts != [1] * (len(servers) - 1) + [0]:
            message = f"the servers have {counts} tools"
            raise ValueError(message)
        return {"seconds": seconds, "figures": {"against-slowest": seconds / slowest}}

    def measure_warm_up_registry(self, request: Request) -> Answer:
        """Warm up the same servers as an alias of a registry; before that, the first, the slowest, alone."""
        slowest = self.measure_warm_up_one({"target": request["targets"][0]})["seconds"]
        begin = perf_counter()
        session = self._subject.open_registry(request["targets"])
        seconds = perf_counter() - begin
        count = len(session.tools())
        session.close()
        if count != len(request["targets"]) - 1:
            message = f"the alias has {count} tools"
            raise ValueError(message)
        return {"seconds": seconds, "figures": {"against-slowest": seconds / slowest}}

    def measure_tool_search(self, request: Request) -> Answer:
        """Measure searches, in turns with those of Haystack's own toolset, which does not check for changes."""
        from haystack.tools import SearchableToolset

        key = "search" + json.dumps(request["targets"])
        if key not in self._open:
            toolset, tools = self._subject.open_search(request["targets"])
            if len(tools) != request["expected"]:
                message = f"{len(tools)} tools instead of {request['expected']}"
                raise ValueError(message)
            static = SearchableToolset(catalog=tools)
            static.warm_up()
            self._open[key] = (toolset, next(iter(toolset)), next(iter(static)))
        _, ours, theirs = self._open[key]
        times: dict[Any, list[float]] = {id(ours): [], id(theirs): []}
        for number in range(request["n"] + 1):
            for tool in (ours, theirs) if number % 2 else (theirs, ours):
                begin = perf_counter()
                found = tool.invoke(tool_keywords=f"collection {number} entries")
                times[id(tool)].append(perf_counter() - begin)
                if "search_" not in found:
                    raise ValueError(found)
        seconds, static_seconds = (statistics.median(each[1:]) for each in times.values())
        return {"seconds": seconds, "figures": {"against-haystack": seconds / static_seconds}}

    def measure_warm_up_many(self, request: Request) -> Answer:
        """Warm up several servers from a thread without an event loop."""
        begin = perf_counter()
        sessions = self._subject.open_many(request["targets"])
        seconds = perf_counter() - begin
        for session in sessions:
            session.close()
        return {"seconds": seconds}

    def measure_warm_up_many_async(self, request: Request) -> Answer:
        """Warm up several servers from a running event loop, and measure the longest stall of that loop."""

        async def measure() -> tuple[float, float]:
            async with stall_watch() as gaps:
                begin = perf_counter()
                sessions = await self._subject.open_many_async(request["targets"])
                seconds = perf_counter() - begin
            for session in sessions:
                await asyncio.to_thread(session.close)
            return seconds, max(gaps)

        seconds, stall = self._runner.run(measure())
        return {"seconds": seconds, "figures": {"stall": stall}}

    def measure_idle(self, request: Request) -> Answer:
        """Open sessions, and measure the cost of each while unused: threads, memory, wake-ups in a second."""
        first, *rest = request["targets"]
        sessions = [self._subject.open(first)]
        gc.collect()
        threads, memory = self._process.num_threads(), self._process.memory_info().rss
        begin = perf_counter()
        if request.get("at_once"):
            sessions += self._subject.open_many(rest)
        else:
            sessions += [self._subject.open(target) for target in rest]
        seconds = perf_counter() - begin
        gc.collect()
        sleep(_SETTLED)
        memory = self._process.memory_info().rss - memory
        switches = self._process.num_ctx_switches().voluntary
        sleep(_IDLE)
        switches = self._process.num_ctx_switches().voluntary - switches
        figures = {
            "threads": self._process.num_threads() - threads,
            "kilobytes": memory / 1e3 / len(rest),
            "wake-ups": switches / _IDLE / len(rest),
        }
        for session in sessions:
            session.close()
        return {"seconds": seconds, "figures": figures}

    def measure_single_tools(self, request: Request) -> Answer:
        """Warm up many separately created tools of one server: time, processes and their memory."""
        before = {process.pid for process in self._process.children(recursive=True)}
        begin = perf_counter()
        sessions = self._subject.open_single_tools(request["target"], request["tools"])
        seconds = perf_counter() - begin
        started = [process for process in self._process.children(recursive=True) if process.pid not in before]
        memory = sum(process.memory_info().rss for process in started)
        for session in sessions:
            session.close()
        return {"seconds": seconds, "figures": {"processes": len(started), "megabytes": memory / 1e6}}

    def measure_toolset(self, request: Request) -> Answer:
        """Connect and load a server's tools until they are usable."""
        gc.collect()  # The collection of the previous round's tools is not to be measured.
        begin = perf_counter()
        session = self._subject.open(request["target"])
        count = len(session.listing() if hasattr(session, "listing") else session.tools())
        seconds = perf_counter() - begin
        session.close()
        if count != request["expected"]:
            message = f"{count} tools instead of {request['expected']}"
            raise ValueError(message)
        return {"seconds": seconds}

    def measure_cold_snapshot(self, request: Request) -> Answer:
        """Create a toolset with a snapshot until its tools are usable; before that, one that connects."""
        begin = perf_counter()
        connected = self._subject.open(request["target"])
        connecting = perf_counter() - begin
        connected.close()
        with tempfile.TemporaryDirectory() as folder:
            snapshot = Path(folder) / "tools.json"
            self._subject.capture(request["target"], snapshot)
            gc.collect()
            begin = perf_counter()
            session, count_sessions = self._subject.open_pinned(request["target"], snapshot)
            count = len(session.tools())
            seconds = perf_counter() - begin
        sessions = count_sessions()
        session.close()
        if count != request["expected"]:
            message = f"{count} tools instead of {request['expected']}"
            raise ValueError(message)
        return {"seconds": seconds, "figures": {"sessions": sessions, "against-connecting": seconds / connecting}}

    def _agent(self, request: Request, *, hooks: bool = False) -> Any:
        from haystack.components.agents import Agent
        from scripted_generator import ScriptedChatGenerator

        key = f"agent, {hooks}" + json.dumps(request["target"])
        if key not in self._open:
            session = self._subject.open(request["target"])
            generator = ScriptedChatGenerator(request["tool"], request["arguments"], request["calls"])
            agent = Agent(
                chat_generator=generator,
                tools=[tool for tool in session.tools() if tool.name == request["tool"]],
                tool_concurrency_limit=request["calls"],
                raise_on_tool_invocation_failure=True,
                **({"hooks": self._subject.hooks()} if hooks else {}),
            )
            self._open[key] = (session, agent)
        return self._open[key][1]

    def measure_agent(self, request: Request) -> Answer:
        """Measure a run of an Agent in two steps, the first with `calls` calls."""
        from haystack.dataclasses import ChatMessage

        agent, messages = self._agent(request), [ChatMessage.from_user("go")]
        times = []
        for run in range(request["n"] + 1):
            begin = perf_counter()
            result = agent.run(messages=messages)
            if run:
                times.append(perf_counter() - begin)
        _check_agent_result(result, request["calls"])
        return {"seconds": statistics.median(times)}

    def measure_agent_hooks(self, request: Request) -> Answer:
        """Measure runs of an Agent with hooks and of one without, in turns: the ratio of their medians."""
        from haystack.dataclasses import ChatMessage

        messages = [ChatMessage.from_user("go")]
        agents = {True: self._agent(request, hooks=True), False: self._agent(request)}
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(request["n"] + 2):
            for hooked in (True, False) if number % 2 else (False, True):
                begin = perf_counter()
                result = agents[hooked].run(messages=messages)
                times[hooked].append(perf_counter() - begin)
                _check_agent_result(result, request["calls"])
        seconds, without = (statistics.median(each[2:]) for each in times.values())
        return {"seconds": seconds, "figures": {"overhead": seconds / without}}

    def measure_agent_async(self, request: Request) -> Answer:
        """Measure the same as `measure_agent` with `run_async`."""
        from haystack.dataclasses import ChatMessage

        agent, messages = self._agent(request), [ChatMessage.from_user("go")]

        async def measure() -> list[float]:
            times = []
            for run in range(request["n"] + 1):
                begin = perf_counter()
                result = await agent.run_async(messages=messages)
                if run:
                    times.append(perf_counter() - begin)
            _check_agent_result(result, request["calls"])
            return times

        return {"seconds": statistics.median(self._runner.run(measure()))}


def _check_agent_result(result: dict[str, Any], calls: int) -> None:
    done = [message.tool_call_result for message in result["messages"] if message.tool_call_result]
    if len(done) != calls or any(one.error for one in done):
        message = f"the Agent made {len(done)} calls: {done}"
        raise ValueError(message)


def main() -> None:
    """Answer requests until stdin is closed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--subject", choices=["ours", "upstream", "floor", "direct", *NEIGHBOURS], required=True)
    parser.add_argument("--without-fast", action="store_true", help="behave as if the extra `fast` were not installed")
    options = parser.parse_args()
    if options.without_fast:
        for module in ("aiohttp", "uvloop"):
            sys.modules[module] = None  # type: ignore[assignment]
    # Answers go to the original stdout; everything else that is printed goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(options.subject)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except NotSupportedError as error:
            answer = {"not_supported": str(error)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
    worker.close()


if __name__ == "__main__":
    main()
