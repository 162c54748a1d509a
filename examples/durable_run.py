# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A run that is killed in the middle of a payment. Another process finishes it, and nothing is paid twice.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from mcp.server import MCPServer
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset
from haystack_integrations.tools.mcp.durable import RunJournal
from haystack_integrations.tools.mcp.errors import MCPCallInDoubtError

FOLDER = Path(os.environ.get("DURABLE_RUN_FOLDER") or tempfile.mkdtemp())
BOOKS = FOLDER / "books.txt"

server = MCPServer("bank", log_level="WARNING")


@server.tool()
def pay(invoice: int, amount: int) -> str:
    """Pay an invoice."""
    is_first = not BOOKS.exists()
    with BOOKS.open("a") as books:
        books.write(f"paid {amount} for invoice {invoice}\n")
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)  # the money is gone, and nobody was told
    return f"paid {amount}"


def caused_by_doubt(error: BaseException | None) -> MCPCallInDoubtError | None:
    while error is not None and not isinstance(error, MCPCallInDoubtError):
        error = error.__cause__
    return error


def work() -> None:
    journal = RunJournal(f"sqlite:///{FOLDER / 'runs.db'}", lease=2)
    script = chat_generator(
        [ToolCall("pay", {"invoice": 42, "amount": 100})], [ToolCall("pay", {"invoice": 43, "amount": 7})]
    )
    with MCPToolset(InProcessServerInfo(server)) as tools:
        agent = Agent(chat_generator=journal.generator(script), tools=tools)
        try:
            with journal.run("invoices"):
                result = agent.run(messages=[ChatMessage.from_user("Pay invoices 42 (100) and 43 (7).")])
            print_conversation(result["messages"])
        except Exception as error:
            doubt = caused_by_doubt(error)
            if doubt is None:
                raise
            print(doubt)
            # A person, or a query of the bank, finds out; here it is in the books.
            journal.decide("invoices", doubt.number, "done", BOOKS.read_text().strip())
    journal.close()


def main() -> None:
    command = [sys.executable, __file__, "work"]
    environment = {**os.environ, "DURABLE_RUN_FOLDER": str(FOLDER)}
    for _ in range(20):
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if "is running elsewhere" in ended.stderr:  # until the lease of the killed process ends
            time.sleep(0.5)
            continue
        print(f"A worker ended with {ended.returncode}:\n{ended.stdout}{ended.stderr if ended.returncode > 0 else ''}")
        if "invoice 43" in (BOOKS.read_text() if BOOKS.exists() else ""):
            break
    print(BOOKS.read_text(), end="")


if __name__ == "__main__":
    work() if "work" in sys.argv else main()
