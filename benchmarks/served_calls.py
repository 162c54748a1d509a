# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Compares calls over HTTP to a server of this package with calls to FastMCP functions that do the same.

    python benchmarks/served_calls.py            # in an environment with mcp-haystack[serve] and psutil; about a minute
    python benchmarks/served_calls.py --check    # exits with 1 if a median or the server's CPU is above 1.2 x FastMCP's,
                                                 # or 1.4 x for pipelines, whose components report progress

Both servers (served.py) are processes with Python's own event loop, as `pip install "mcp-haystack[serve]"` gives them.
FastMCP's client calls them in turns. A ratio is the median of the ratios of the rounds, so that it does not matter when
the machine is slow for a while.
"""

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from fastmcp import Client

OURS, FASTMCP = "ours", "fastmcp"
ADDING, PRAISING = ("add", {"a": 1, "b": 2}), ("praise", {"what": "tea"})
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tool": (*ADDING, {}),
    "tool, with progress": (*ADDING, {"progress_handler": lambda *_: asyncio.sleep(0)}),
    "tool, in a session of 2025-11-25": (*ADDING, {"mode": "legacy"}),
    "pipeline": (*PRAISING, {}),
    "pipeline, with progress": (*PRAISING, {"progress_handler": lambda *_: asyncio.sleep(0)}),
    "pipeline, in a session of 2025-11-25": (*PRAISING, {"mode": "legacy"}),
}
WITHOUT_UVLOOP = "import sys; sys.modules['uvloop'] = None; sys.argv = sys.argv[1:]; import served; served.main()"
STARTS_WITHIN = 120.0


@asynccontextmanager
async def server(subject: str) -> AsyncIterator[tuple[str, psutil.Process]]:
    """Run a server, and yield its URL and process as soon as it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", WITHOUT_UVLOOP, "served.py", subject, "calls", str(port)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent)
    try:
        give_up = time.monotonic() + STARTS_WITHIN
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def cpu(process: psutil.Process) -> float:
    """Return the CPU time that a process has used, in seconds."""
    used = process.cpu_times()
    return used.user + used.system


async def measure(
    servers: dict[str, tuple[str, psutil.Process]], case: str, *, rounds: int, calls: int
) -> dict[str, float]:
    """Call both servers in turns; the first tenth of the rounds fills caches and does not count."""
    tool, arguments, client_options = CASES[case]
    seconds: dict[str, list[float]] = {OURS: [], FASTMCP: []}
    used: dict[str, list[float]] = {OURS: [], FASTMCP: []}
    async with AsyncExitStack() as stack:
        clients = {
            subject: await stack.enter_async_context(Client(url, **client_options))
            for subject, (url, _) in servers.items()
        }
        for number in range(rounds + rounds // 10):
            for subject in (OURS, FASTMCP) if number % 2 else (FASTMCP, OURS):
                times = []
                before = cpu(servers[subject][1])
                for _ in range(calls):
                    begin = time.perf_counter()
                    await clients[subject].call_tool(tool, arguments)
                    times.append(time.perf_counter() - begin)
                if number >= rounds // 10:
                    seconds[subject].append(statistics.median(times))
                    used[subject].append(cpu(servers[subject][1]) - before)
    ratios = [ours / plain for ours, plain in zip(seconds[OURS], seconds[FASTMCP], strict=True)]
    # A process's CPU time is measured in hundredths of a second, so a single round says little.
    counted = rounds * calls
    return {
        "ours_ms": statistics.median(seconds[OURS]) * 1e3,
        "fastmcp_ms": statistics.median(seconds[FASTMCP]) * 1e3,
        "ratio": statistics.median(ratios),
        "ours_cpu_ms": sum(used[OURS]) / counted * 1e3,
        "fastmcp_cpu_ms": sum(used[FASTMCP]) / counted * 1e3,
        "cpu_ratio": sum(used[OURS]) / sum(used[FASTMCP]),
    }


async def run(options: argparse.Namespace) -> bool:
    """Print a line for each case, and return whether all are within their limits."""
    print(
        f"{'a call over HTTP of a':38} {'ours':>8} {'FastMCP':>8} {'ratio':>6}   CPU: {'ours':>8} {'FastMCP':>8} ratio"
    )
    within = True
    async with server(OURS) as ours, server(FASTMCP) as plain:
        for case in CASES:
            found = await measure({OURS: ours, FASTMCP: plain}, case, rounds=options.rounds, calls=options.calls)
            limit = options.limit if case.startswith("tool") else options.pipeline_limit
            within = within and max(found["ratio"], found["cpu_ratio"]) <= limit
            print(
                f"{case:38} {found['ours_ms']:5.2f} ms {found['fastmcp_ms']:5.2f} ms {found['ratio']:6.2f}   "
                f"     {found['ours_cpu_ms']:5.2f} ms {found['fastmcp_cpu_ms']:5.2f} ms {found['cpu_ratio']:5.2f}",
                flush=True,
            )
    return within


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=40, help="calls of each server in a round")
    parser.add_argument("--limit", type=float, default=1.2, help="the largest ratio of a tool, for --check")
    parser.add_argument("--pipeline-limit", type=float, default=1.4, help="the largest ratio of a pipeline")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a ratio is above the limit")
    options = parser.parse_args()
    within = asyncio.run(run(options))
    if options.check and not within:
        sys.exit(1)


if __name__ == "__main__":
    main()
