# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

from haystack.tools import Toolset
from haystack.tools.tool import Tool
from haystack.utils import Secret
from pydantic import Field, InstanceOf

from haystack_integrations.tools.mcp.connection.requests import call_recorder
from haystack_integrations.tools.mcp.durable.cassette import write_cassette
from haystack_integrations.tools.mcp.durable.run import (
    DurableRun,
    OnUnknown,
    UnknownCall,
    failure,
    in_scope,
    scope,
    unknown_call,
)
from haystack_integrations.tools.mcp.durable.store import Entry, RecordedRun, Store
from haystack_integrations.tools.mcp.durable.wrappers import JournaledChatGenerator, journaled_tools
from haystack_integrations.tools.mcp.errors import MCPRunError
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import Seconds, checked

T = TypeVar("T")

# A shorter lease ends while a busy process is not scheduled; 30 s is how long another worker waits for a dead one.
_DEFAULT_LEASE = 30.0

RunName: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]


class RunJournal:
    """
    Records runs in a database, so that another process finishes what a killed one began, and no tool runs twice.

    In a block `with journal.run(name)`, the calls of MCP tools are recorded: before one is sent, that it is sent, and
    after it, what it gave. A run with the same name goes on where the other one stopped, in any process: what is
    recorded is returned without asking the model or calling a tool. A call that was sent and has no result may have
    run; `on_unknown` says what is done then.

    ```python
    from haystack_integrations.tools.mcp.durable import RunJournal

    journal = RunJournal("sqlite:///runs.db")
    agent = Agent(chat_generator=journal.generator(OpenAIChatGenerator()), tools=toolset)
    with journal.run("invoice-42"):
        agent.run(messages=[ChatMessage.from_user("Pay invoice 42.")])
    ```
    """

    @checked()
    def __init__(
        self,
        url: str,
        *,
        lease: Seconds = _DEFAULT_LEASE,
        on_unknown: OnUnknown = "error",
        power_loss_safe: bool = False,
        encryption_key: InstanceOf[Secret] | None = None,
    ) -> None:
        """
        Initialize the journal. The database is opened at the first use.

        :param url: Where it is, as a URL of SQLAlchemy: `"sqlite:///runs.db"` for the processes of one machine, or
            PostgreSQL (`"postgresql+psycopg://…"`) for several machines.
        :param lease: For how many seconds a process has a run after it was last heard of. Default: 30.
        :param on_unknown: What is done about a call that was sent and has no result. "error" (default): the run ends
            with an MCPCallInDoubtError. "model": the model is told. Or a function that gets an UnknownCall and returns
            one of these, or "repeat". Calls that the user allowed to be repeated (`retry_idempotent` of ToolOptions)
            are repeated.
        :param power_loss_safe: Whether SQLite waits for the disk at each write. Without it, a power failure (not a
            kill) can lose what was written last, so that a call is made again.
        :param encryption_key: A key of Fernet, with which requests and results are encrypted. Default: they are not.
        :raises ValueError: If a parameter is invalid.
        """
        self._on_unknown: OnUnknown = on_unknown
        self._lease = lease
        key = None if encryption_key is None else encryption_key.resolve_value()
        self._store = Store(url, power_loss_safe=power_loss_safe, key=key)

    @checked()
    def run(self, name: RunName, *, on_unknown: OnUnknown | None = None) -> DurableRun:
        """
        Open a run, for a `with` or `async with` block.

        :param name: Its name, of at most 255 characters. A run of this name that did not end is continued.
        :param on_unknown: As that of the journal, for this run.
        :returns: A context manager. Entering it raises an MCPRunElsewhereError if another process has the run.
        :raises ValueError: If a parameter is invalid.
        """
        return DurableRun(self._store, name, self._lease, on_unknown or self._on_unknown)

    def generator(self, chat_generator: Any, name: str = "generator") -> JournaledChatGenerator:
        """
        Wrap a chat generator, so that its replies are recorded where a run is open.

        :param chat_generator: The chat generator.
        :param name: Its name in the journal. Generators that are asked at the same time need different names.
        :returns: The wrapper, a component like it.
        """
        return JournaledChatGenerator(chat_generator, name)

    def tools(self, tools: Iterable[Tool | Toolset]) -> list[Tool]:
        """
        Make Haystack tools whose calls are recorded where a run is open. MCP tools and toolsets need none of that.

        Their results must be JSON, or objects of haystack.dataclasses in it. A ComponentTool with an Agent whose chat
        generator is recorded is entered again by a continued run; every other tool that was called and gave nothing
        may have run, as `on_unknown` says.

        :param tools: Tools, and toolsets whose tools are taken.
        :returns: Copies of the tools; MCP tools as they are.
        :raises ValueError: If something is no tool.
        """
        return journaled_tools(tools)

    def value(self, name: str, make: Callable[[], T]) -> T:
        """
        Return a value that is the same when a run is continued, such as the time or a random number.

        :param name: Its name.
        :param make: Makes it where it is not recorded. It must be JSON.
        :returns: The value.
        :raises TypeError: If the value is not JSON.
        """
        opened = call_recorder.get()
        if opened is None:
            return make()
        known = opened.recall("value", name)
        if known.is_recorded:
            return cast("T", known.result)
        try:
            made = make()
        except Exception:
            known.give_back()
            raise
        known.record(made)
        return made

    @contextmanager
    def branch(self, name: str) -> Iterator[None]:
        """
        Tell apart what runs at the same time as something else in a run.

        :param name: A name for what runs in this block, the same when the run is continued.
        """
        with in_scope(f"{scope.get().path}/{name}"):
            yield

    def runs(self) -> list[RecordedRun]:
        """
        List the runs.

        :returns: The runs, the oldest first.
        """
        return self._store.runs()

    def unfinished(self) -> list[str]:
        """
        Return the names of the runs that ended by an error, or whose process is gone.

        :returns: The names, the oldest first.
        """
        return self._store.unfinished()

    def calls(self, name: str, *, with_values: bool = True) -> list[Entry]:
        """
        Return what is recorded of a run: calls, replies of the model and values.

        :param name: Name of the run.
        :param with_values: Whether to read requests and results, too, which needs the key if they are encrypted.
        :returns: The entries in their order.
        """
        return self._store.entries(name, with_values=with_values)

    def in_doubt(self, name: str) -> list[UnknownCall]:
        """
        Return the calls of a run that were sent and have no result.

        :param name: Name of the run.
        :returns: The calls.
        """
        return [
            unknown_call(name, entry)
            for entry in self._store.entries(name)
            if entry.place.kind == "call" and entry.state == "started"
        ]

    def decide(self, name: str, number: int, decision: Literal["repeat", "model"] | str, result: Any = None) -> None:
        """
        Decide about a call that has no result, before the run is continued: it was sent, or it waits for an answer.

        :param name: Name of the run.
        :param number: Number of the call, as an MCPCallInDoubtError or `calls` has it.
        :param decision: "repeat": it did not run, and is sent. "done": it ran, and `result` is what it gave, as text.
            "model": the model is told that it may have run.
        :param result: With "done": the text; a dict or a list becomes JSON.
        :raises MCPRunError: If the run is running, or has no such call.
        :raises ValueError: If `decision` is none of these, or "done" without a `result`.
        """
        if decision == "repeat":
            done = self._store.forget(name, number)
        elif decision == "done":
            if result is None:
                msg = "`result` must be what the tool gave, as text, if `decision` is 'done'"
                raise ValueError(msg)
            text = json.dumps(result, ensure_ascii=False) if isinstance(result, (dict, list)) else str(result)
            content = {"content": [{"type": "text", "text": text}], "isError": False}
            done = self._store.settle(name, number, content, state="done")
        elif decision == "model":
            message = "The call was sent and not answered: the tool may have run. Do not repeat it without checking."
            error = failure("MCPOutcomeUnknownError", message)
            done = self._store.settle(name, number, error, state="failed")
        else:
            msg = f"`decision` must be 'repeat', 'done' or 'model', got {decision!r}"
            raise ValueError(msg)
        if not done:
            msg = f"The run '{name}' has no call {number} without a result, or a process has it now"
            raise MCPRunError(msg)

    def export(
        self,
        file: str | Path,
        name: str,
        *,
        tools: MCPTool | MCPToolset | Iterable[MCPTool | MCPToolset] = (),
    ) -> None:
        """
        Write a run into a file, as a cassette that tests play without a server and a model.

        :param file: The file.
        :param name: Name of the run.
        :param tools: MCP tools and toolsets, whose definitions are written, too. Those with a `snapshot` need not be
            here: they are known without the server.
        :raises ValueError: If nothing is recorded of such a run.
        """
        entries = self._store.entries(name)
        if not entries:
            msg = f"RunJournal.export: nothing is recorded of a run '{name}'"
            raise ValueError(msg)
        connections = [each.connection for each in ([tools] if isinstance(tools, MCPTool | MCPToolset) else tools)]
        listings = {connection.server_info.describe(): connection._open() for connection in connections}
        write_cassette(Path(file), entries, listings)

    def delete(self, name: str) -> bool:
        """
        Delete a run. One that a process has is kept.

        :param name: Name of the run.
        :returns: Whether it was deleted.
        """
        return self._store.delete(name)

    @checked()
    def prune(self, older_than: timedelta) -> int:
        """
        Delete the runs that are done, and were since long ago.

        :param older_than: Since how long.
        :returns: How many were deleted.
        :raises ValueError: If `older_than` is no timedelta.
        """
        return self._store.prune(time.time() - older_than.total_seconds())

    def close(self) -> None:
        """
        Close the connections to the database. The next use opens them again.
        """
        self._store.close()

    def __repr__(self) -> str:
        """
        Describe the journal without the password of its database.
        """
        return f"RunJournal({self._store.describe()!r})"
