# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Measures the cost of a journal: runs of an Agent that calls four tools of 20 ms at once.

    python benchmarks/durable_runs.py            # in an environment with mcp-haystack[durable] and the SDK's server
    python benchmarks/durable_runs.py --check    # exits with 1 if SQLite without power_loss_safe is above 1.1 x no journal
    python benchmarks/durable_runs.py --database postgresql+psycopg://user@host/database

The subjects take turns. A ratio is the median of the ratios of the rounds, so that it does not matter when the machine
is slow for a while. SQLite's files are in --folder, which should be on the disk to measure.
"""

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from scripted_generator import ScriptedChatGenerator

from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo
from haystack_integrations.tools.mcp.durable import RunJournal

NONE, NORMAL, FULL = "no journal", "SQLite", "SQLite, power_loss_safe"
SECONDS = 0.02


class Subject:
    """
    An Agent with or without a journal.
    """

    def __init__(self, toolset: MCPToolset, journal: RunJournal | None, calls: int) -> None:
        """Create the Agent, which makes `calls` tool calls at once."""
        self.journal = journal
        generator: Any = ScriptedChatGenerator("sleep", {"seconds": SECONDS}, calls=calls)
        self.agent = Agent(chat_generator=generator if journal is None else journal.generator(generator), tools=toolset)
        self.agent.warm_up()

    def seconds(self) -> float:
        """Return how long one run takes."""
        run: AbstractContextManager[Any] = nullcontext()
        begin = time.perf_counter()
        if self.journal is not None:
            run = self.journal.run(uuid.uuid4().hex)
        with run:
            result = self.agent.run(messages=[ChatMessage.from_user("Work.")])
        took = time.perf_counter() - begin
        assert result["messages"][-1].text == "done"
        return took


def measure(journals: dict[str, RunJournal | None], *, rounds: int, runs: int, calls: int) -> dict[str, float]:
    """Run all Agents in turns, print a line for each, and return the ratios to the one without a journal."""
    server = StdioServerInfo(sys.executable, [str(Path(__file__).with_name("server.py"))])
    taken: dict[str, list[float]] = {name: [] for name in journals}
    with MCPToolset(server, tool_names=["sleep"]) as toolset:
        subjects = {name: Subject(toolset, journal, calls) for name, journal in journals.items()}
        for number in range(rounds + 2):
            order = list(subjects)
            for name in order[number % len(order) :] + order[: number % len(order)]:
                found = statistics.median(subjects[name].seconds() for _ in range(runs))
                if number > 1:  # the first runs fill caches
                    taken[name].append(found)
    ratios = {}
    for name, seconds in taken.items():
        ratios[name] = statistics.median(own / plain for own, plain in zip(seconds, taken[NONE], strict=True))
        print(f"{name:24} {statistics.median(seconds) * 1e3:6.1f} ms {ratios[name]:6.3f}", flush=True)
    return ratios


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5, help="runs of each subject in a round")
    parser.add_argument("--calls", type=int, default=4, help="calls at once")
    parser.add_argument("--folder", help="where the files of SQLite are; by default a temporary one")
    parser.add_argument("--database", help="a URL of another database, which is measured, too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if SQLite is above 1.1 x no journal")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        journals: dict[str, RunJournal | None] = {
            NONE: None,
            NORMAL: RunJournal(f"sqlite:///{folder}/normal.db"),
            FULL: RunJournal(f"sqlite:///{folder}/full.db", power_loss_safe=True),
        }
        if options.database:
            other = RunJournal(options.database)
            journals[repr(other).split("(")[1].split(":")[0].strip("'").partition("+")[0]] = other
        ratios = measure(journals, rounds=options.rounds, runs=options.runs, calls=options.calls)
        for journal in journals.values():
            if journal is not None:
                journal.close()
    if options.check and ratios[NORMAL] > 1.1:
        sys.exit(1)


if __name__ == "__main__":
    main()
