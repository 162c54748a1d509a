# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Kills the workers of durable runs at random moments, and then counts the payments in the server's books.

`python -m tests.durable.kills --kills 1000 [--database postgresql+psycopg://…] [--transport stdio|http]`
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall

from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo, preload
from haystack_integrations.tools.mcp.durable import RunJournal
from haystack_integrations.tools.mcp.errors import MCPCallInDoubtError, MCPRunElsewhereError, MCPRunError
from tests.support.prepared import ForkServer, prepared_python

LEASE = 0.5
# The exit codes of a worker.
DONE, IN_DOUBT, ELSEWHERE, LOST, FAILED = 0, 10, 11, 12, 13
# The calls in each step of the agent: one, two, and four at once, of which two are equal.
STEPS = [[1], [2, 3], [4, 5, 5, 6]]
LIMIT = 120
# In tests, the servers are forked.
PYTHON = prepared_python() if ForkServer.runs() else sys.executable


@component
class Clerk:
    """
    A chat generator without a model that requests the next calls for the conversation.
    """

    def __init__(self, invoice: str) -> None:
        self._invoice = invoice

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        done = sum(message.is_from("assistant") for message in messages)
        if done == len(STEPS):
            return {"replies": [ChatMessage.from_assistant("done")]}
        calls = [ToolCall("pay", {"invoice": self._invoice, "amount": amount}) for amount in STEPS[done]]
        return {"replies": [ChatMessage.from_assistant(tool_calls=calls)]}


@dataclass
class Setting:
    database: str
    books: str
    url: str | None
    pause: float

    def info(self) -> Any:
        if self.url is not None:
            return StreamableHttpServerInfo(self.url)
        return StdioServerInfo(PYTHON, ["-m", "tests.durable.bank", self.books, str(self.pause)])


def work(setting: Setting, run: str, *, is_async: bool) -> int:
    journal = RunJournal(setting.database, lease=LEASE)
    tools = MCPToolset(setting.info())
    agent = Agent(chat_generator=journal.generator(Clerk(run)), tools=tools)
    question = [ChatMessage.from_user(f"Pay {run}.")]

    async def in_loop() -> None:
        async with journal.run(run):
            await agent.run_async(messages=question)

    try:
        with tools:
            if is_async:
                asyncio.run(in_loop())
            else:
                with journal.run(run):
                    agent.run(messages=question)
    except Exception as error:
        causes = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        for kind, code in ((MCPCallInDoubtError, IN_DOUBT), (MCPRunElsewhereError, ELSEWHERE), (MCPRunError, LOST)):
            if any(isinstance(cause, kind) for cause in causes):
                return code
        print(f"{run}: {error!r}", file=sys.stderr)
        return FAILED
    finally:
        journal.close()
    return DONE


def fork(setting: Setting, run: str, *, is_async: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = FAILED
    try:
        code = work(setting, run, is_async=is_async)
    finally:
        os._exit(code)


@dataclass
class Figures:
    kills: int = 0
    workers: int = 0
    runs: int = 0
    in_doubt: int = 0
    had_run: int = 0
    payments: int = 0
    twice: int = 0
    missing: int = 0


def entries_of(books: str, run: str) -> list[list[str]]:
    text = Path(books).read_text() if Path(books).exists() else ""
    return [line.split() for line in text.splitlines() if line.split()[1] == run]


def settle(journal: RunJournal, setting: Setting, run: str, figures: Figures) -> None:
    """
    Decide as a person would, by looking in the books whether a call ran.
    """
    # A payment that has begun ends if the server lives. Over stdio, the server died with the worker.
    for unknown in journal.in_doubt(run):
        figures.in_doubt += 1
        kept = [line for line in entries_of(setting.books, run) if line[3] == unknown.key]
        try:
            if kept:
                figures.had_run += 1
                amount = unknown.arguments["amount"]
                journal.decide(run, unknown.number, "done", f"paid {amount} for {run}")
            else:
                journal.decide(run, unknown.number, "repeat")
        except MCPRunError:  # another worker has the run meanwhile
            return


def play(setting: Setting, kills: int, *, seed: int = 0) -> Figures:
    """
    Start and kill workers until the given number was killed, and finish every run.
    """
    rng, figures = random.Random(seed), Figures()
    preload()  # a fork waits for it, and a forked worker begins at once
    journal = RunJournal(setting.database, lease=LEASE)
    number = 0
    while figures.kills < kills:
        number += 1
        run = f"invoice-{seed}-{number}"
        finish(journal, setting, run, rng, figures, kills)
        figures.runs += 1
        count(setting, run, figures)
    journal.close()
    return figures


def finish(journal: RunJournal, setting: Setting, run: str, rng: random.Random, figures: Figures, kills: int) -> None:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        workers = [fork(setting, run, is_async=rng.random() < 0.5) for _ in range(2 if rng.random() < 0.3 else 1)]
        figures.workers += len(workers)
        if figures.kills < kills:
            time.sleep(rng.random() * (0.4 if setting.url else 1.5))
            victim = rng.choice(workers)
            os.kill(victim, signal.SIGKILL)
        codes = []
        for worker in workers:
            status = os.waitpid(worker, 0)[1]
            if os.WIFSIGNALED(status):
                figures.kills += 1
            else:
                codes.append(os.WEXITSTATUS(status))
        if FAILED in codes:
            raise RuntimeError(f"a worker of {run} failed")
        if DONE in codes:
            return
        if IN_DOUBT in codes or rng.random() < 0.3:
            time.sleep(setting.pause)  # by then, the books have every payment that has begun
            settle(journal, setting, run, figures)
    raise RuntimeError(f"{run} did not end within {LIMIT} s: {journal.runs()[-1]}")


def count(setting: Setting, run: str, figures: Figures) -> None:
    wanted = Counter(str(amount) for step in STEPS for amount in step)
    begun = [line for line in entries_of(setting.books, run) if line[0] == "begin"]
    figures.payments += len(begun)
    keys = Counter(line[3] for line in begun)
    figures.twice += sum(times - 1 for times in keys.values())
    made = Counter(line[2] for line in begun)
    figures.twice += sum((made - wanted).values())
    figures.missing += sum((wanted - made).values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--database")
    parser.add_argument("--transport", choices=["stdio", "http"], default="http")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = run_in(Path(folder), options.kills, options.transport, options.database, options.seed)
    print(json.dumps(asdict(figures)))
    sys.exit(bool(figures.twice or figures.missing))


def run_in(folder: Path, kills: int, transport: str, database: str | None = None, seed: int = 0) -> Figures:
    books, pause, server = folder / "books.txt", 0.05, None
    url = None
    if transport == "http":
        command = [PYTHON, "-m", "tests.durable.bank", str(books), str(pause), "http"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/mcp"
    try:
        setting = Setting(database or f"sqlite:///{folder}/runs.db", str(books), url, pause)
        return play(setting, kills, seed=seed)
    finally:
        if server is not None:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    main()
