# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A run of an Agent in a DBOS workflow. DBOS restarts the workflow after its process was killed, and nothing is paid twice.

DBOS knows which workflows did not end, and calls them again; the journal knows what was done in them. The Agent is not
inside a DBOS step, because DBOS repeats a step that was running.
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
from mcp.types import ToolAnnotations
from scripted_chat import chat_generator

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPToolset, ToolOptions
from haystack_integrations.tools.mcp.durable import RunJournal
from haystack_integrations.tools.mcp.errors import MCPRunElsewhereError

try:
    from dbos import DBOS, SetWorkflowID
except ImportError:
    print("This example needs DBOS: pip install dbos")
    sys.exit(0)

FOLDER = Path(os.environ.get("DURABLE_RUN_FOLDER") or tempfile.mkdtemp())
BOOKS, KILLED = FOLDER / "books.txt", FOLDER / "killed"

server = MCPServer("bank", log_level="WARNING")


@server.tool()
def pay(invoice: int, amount: int) -> str:
    """Pay an invoice."""
    with BOOKS.open("a") as books:
        books.write(f"paid {amount} for invoice {invoice}\n")
    return f"paid {amount}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def archive(invoice: int) -> str:
    """Put an invoice into the archive."""
    if not KILLED.exists():
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)  # the invoice is paid, and not in the archive
    return f"archived {invoice}"


journal = RunJournal(f"sqlite:///{FOLDER / 'runs.db'}", lease=2)
tools = MCPToolset(InProcessServerInfo(server), tool_options=ToolOptions(retry_idempotent=True))


@DBOS.workflow()
def pay_invoice(invoice: int) -> str:
    script = chat_generator(
        [ToolCall("pay", {"invoice": invoice, "amount": 100})], [ToolCall("archive", {"invoice": invoice})]
    )
    agent = Agent(chat_generator=journal.generator(script), tools=tools)
    while True:
        try:
            with journal.run(DBOS.workflow_id):
                result = agent.run(messages=[ChatMessage.from_user(f"Pay invoice {invoice} (100), and archive it.")])
            return result["messages"][-1].text
        except MCPRunElsewhereError:  # until the lease of the killed process ends
            time.sleep(0.5)


def work() -> None:
    DBOS(config={"name": "invoices", "system_database_url": f"sqlite:///{FOLDER / 'dbos.db'}", "log_level": "ERROR"})
    DBOS.launch()  # begins workflows again that did not end
    with SetWorkflowID("invoice-42"):  # one that exists is not begun a second time
        print(DBOS.start_workflow(pay_invoice, 42).get_result())
    DBOS.destroy()
    tools.close()
    journal.close()


def main() -> None:
    command = [sys.executable, __file__, "work"]
    environment = {**os.environ, "DURABLE_RUN_FOLDER": str(FOLDER)}
    for _ in range(2):
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        print(f"A worker ended with {ended.returncode}: {ended.stdout}{ended.stderr if ended.returncode > 0 else ''}")
    print(BOOKS.read_text(), end="")


if __name__ == "__main__":
    work() if "work" in sys.argv else main()
