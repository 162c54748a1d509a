# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls tools while their servers are killed again and again, and compares what callers were told with what ran.

    python benchmarks/soak.py --minutes 20     # over stdio and over Streamable HTTP, from threads and from an event loop

Each call has its own key, which the server writes into a file before it answers. No key may be in the file twice. If the
caller was told that the tool did not run, its key must not be in the file; if the caller got a result, it must be. Needs
an environment with mcp-haystack and psutil. Exits with 1 if a promise was broken.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

THREADS = 4
TASKS = 4
# Seconds between two kills of a server.
PAUSES = (0.3, 4.0)


def serve(books: str, port: int | None) -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("books", log_level="ERROR")
    descriptor = os.open(books, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @server.tool()
    async def pay(key: str) -> str:
        await asyncio.sleep(random.uniform(0, 0.02))
        os.write(descriptor, f"{key}\n".encode())
        await asyncio.sleep(random.uniform(0, 0.02))
        return key

    if port is None:
        server.run()
    else:
        server.run("streamable-http", port=port)


def command(books: Path, port: int | None = None) -> list[str]:
    return [sys.executable, __file__, "--serve", str(books), *([] if port is None else ["--port", str(port)])]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class HttpServer:
    """A server that is started again after each kill."""

    def __init__(self, books: Path) -> None:
        self.port = free_port()
        self._command = command(books, self.port)
        self.start()
        self._wait()

    def _wait(self) -> None:
        # Unlike a reconnect after a kill, the first connect is not retried.
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.1)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> bool:
        self._process.kill()
        self._process.wait()
        self.start()
        return True

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def kill_child(books: Path) -> bool:
    import psutil

    for child in psutil.Process().children():
        try:
            if str(books) in child.cmdline():
                child.kill()
                return True
        except psutil.NoSuchProcess:
            pass
    return False


class Ledger:
    """The outcomes that the callers of one server were told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: dict[str, str] = {}
        self.slowest = 0.0

    def note(self, key: str, began: float, error: BaseException | None) -> None:
        from haystack_integrations.tools.mcp import MCPInvocationError, MCPOutcomeUnknownError

        self.slowest = max(self.slowest, time.monotonic() - began)
        if error is None:
            self.told[key] = "result"
        elif isinstance(error, MCPOutcomeUnknownError):
            self.told[key] = "may have run"
        elif isinstance(error, MCPInvocationError):
            self.told[key] = "did not run"
        else:
            self.told[key] = f"another error: {type(error).__name__}"

    def report(self, books: Path, kills: int) -> bool:
        ran = Counter(books.read_text().split())
        told = Counter(self.told.values())
        wrong = {
            "ran twice": [key for key, count in ran.items() if count > 1],
            "ran, although it was said that they did not": [
                k for k, v in self.told.items() if v == "did not run" and ran[k]
            ],
            "did not run, although there is a result": [
                k for k, v in self.told.items() if v == "result" and not ran[k]
            ],
            "failed otherwise": [key for key, outcome in self.told.items() if outcome.startswith("another")],
        }
        print(f"{self.name}: {len(self.told):,} calls, {kills} kills, {told['result']:,} results, "
              f"{told['did not run']} did not run, {told['may have run']} may have run "
              f"({sum(bool(ran[k]) for k, v in self.told.items() if v == 'may have run')} did); slowest {self.slowest:.1f} s")  # fmt: skip
        for what, keys in wrong.items():
            if keys:
                print(f"  {len(keys)} {what}")
        return not any(wrong.values())


def soak(name: str, info: object, books: Path, kill: object, end: float) -> bool:
    from haystack_integrations.tools.mcp import MCPTool

    ledger, kills = Ledger(name), 0
    tool = MCPTool("pay", info, invocation_timeout=30, connection_timeout=30)

    def in_thread(number: int) -> None:
        count = 0
        while time.monotonic() < end:
            key, began, failure = f"thread{number}-{count}", time.monotonic(), None
            try:
                tool.call(key=key)
            except Exception as error:
                failure = error
            ledger.note(key, began, failure)
            count += 1

    async def in_task(number: int) -> None:
        count = 0
        while time.monotonic() < end:
            key, began, failure = f"task{number}-{count}", time.monotonic(), None
            try:
                await tool.call_async(key=key)
            except Exception as error:
                failure = error
            ledger.note(key, began, failure)
            count += 1

    async def in_loop() -> None:
        await asyncio.gather(*map(in_task, range(TASKS)))

    callers = [threading.Thread(target=in_thread, args=(number,)) for number in range(THREADS)]
    callers.append(threading.Thread(target=lambda: asyncio.run(in_loop())))
    tool.warm_up()
    for caller in callers:
        caller.start()
    while time.monotonic() < end:
        time.sleep(random.uniform(*PAUSES))
        kills += kill()
    for caller in callers:
        caller.join()
    tool.close()
    return ledger.report(books, kills)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.port)
        return

    from haystack_integrations.tools.mcp import StdioServerInfo, StreamableHttpServerInfo

    logging.getLogger("haystack_integrations").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        end = time.monotonic() + options.minutes * 60
        own, shared = Path(folder, "stdio.txt"), Path(folder, "http.txt")
        own.touch()
        shared.touch()
        server = HttpServer(shared)
        results: list[bool] = []
        try:
            stdio = StdioServerInfo(command(own)[0], command(own)[1:], failure_pause=None)
            http = StreamableHttpServerInfo(f"http://127.0.0.1:{server.port}/mcp", failure_pause=None)
            runs = [
                threading.Thread(
                    target=lambda: results.append(soak("stdio", stdio, own, lambda: kill_child(own), end))
                ),
                threading.Thread(
                    target=lambda: results.append(soak("Streamable HTTP", http, shared, server.kill, end))
                ),
            ]
            for run in runs:
                run.start()
            for run in runs:
                run.join()
        finally:
            server.close()
    sys.exit(0 if results == [True, True] else 1)


if __name__ == "__main__":
    main()
