# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The journal of runs, and what it wraps so that a run records it: chat generators, and Haystack's own tools.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, cast

import haystack.dataclasses
from haystack import component, default_from_dict, default_to_dict
from haystack.core.serialization import component_to_dict
from haystack.dataclasses import ChatMessage, StreamingCallbackT, StreamingChunk
from haystack.tools import ComponentTool, Toolset, ToolsType, flatten_tools_or_toolsets
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool
from haystack.utils import Secret, deserialize_chatgenerator_inplace
from pydantic import Field, InstanceOf

from haystack_integrations.tools.mcp.connection.requests import call_recorder
from haystack_integrations.tools.mcp.durable.cassette import write_cassette
from haystack_integrations.tools.mcp.durable.run import (
    TOLD_TO_MODEL,
    DurableRun,
    OnUnknown,
    OpenRun,
    UnknownCall,
    failure,
    in_scope,
    request_of,
    scope,
    unknown_call,
)
from haystack_integrations.tools.mcp.durable.store import Entry, RecordedRun, Store
from haystack_integrations.tools.mcp.errors import MCPRunError
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import Seconds, checked

T = TypeVar("T")

# A shorter lease ends while a busy process is not scheduled; 30 s is how long another worker waits for a dead one.
_DEFAULT_LEASE = 30.0

RunName: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]

# The member that says of which class a stored object is.
_TYPE: Final = "haystack.dataclasses"


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
        found: list[Tool] = []
        for each in tools:
            if isinstance(each, Toolset):
                found += self.tools(list(each))
            elif isinstance(each, MCPTool):
                found.append(each)
            elif isinstance(each, Tool):
                found.append(_journaled(each))
            else:
                msg = f"`tools` must be Tools and Toolsets, got {type(each).__name__}"
                raise ValueError(msg)
        return found

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
        :param result: With "done": the text; a dict or a list becomes JSON, and is returned as it is by Haystack's own
            tools.
        :raises MCPRunError: If the run is running, or has no such call.
        :raises ValueError: If `decision` is none of these, or "done" without a `result`.
        """
        if decision == "repeat":
            done = self._store.forget(name, number)
        elif decision == "done":
            if result is None:
                msg = "`result` must be what the tool gave, as text, if `decision` is 'done'"
                raise ValueError(msg)
            is_text = not isinstance(result, (dict, list))
            text = str(result) if is_text else json.dumps(result, ensure_ascii=False)
            content: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": False}
            if not is_text:
                content["value"] = result  # what a Haystack tool returns, whose State may take parts of it
            done = self._store.settle(name, number, content, state="done")
        elif decision == "model":
            error = failure("MCPOutcomeUnknownError", TOLD_TO_MODEL)
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


@component
@stored_in("haystack_integrations.tools.mcp.durable")
class JournaledChatGenerator:
    """
    A chat generator whose replies are recorded where a durable run is open, and not asked for again.

    Outside of a run it is the generator itself. It keeps nothing of a run, so that one object serves several at once.
    """

    def __init__(self, chat_generator: Any, name: str = "generator") -> None:
        """
        Initialize the JournaledChatGenerator; `RunJournal.generator` does that.

        :param chat_generator: The chat generator.
        :param name: Its name in the journal. Generators that are asked at the same time need different names.
        :raises ValueError: If `chat_generator` has no `run`.
        """
        if not callable(getattr(chat_generator, "run", None)):
            msg = f"`chat_generator` must be a chat generator, got {type(chat_generator).__name__}"
            raise ValueError(msg)
        self.chat_generator = chat_generator
        self.name = name

    def warm_up(self) -> None:
        """
        Warm the chat generator up.
        """
        if hasattr(self.chat_generator, "warm_up"):
            self.chat_generator.warm_up()

    async def warm_up_async(self) -> None:
        """
        Warm the chat generator up for an event loop.
        """
        if hasattr(self.chat_generator, "warm_up_async"):
            await self.chat_generator.warm_up_async()
        else:
            await asyncio.to_thread(self.warm_up)

    def close(self) -> None:
        """
        Release what the chat generator holds, such as its HTTP client.
        """
        if hasattr(self.chat_generator, "close"):
            self.chat_generator.close()

    async def close_async(self) -> None:
        """
        Release what the chat generator holds for an event loop.
        """
        if hasattr(self.chat_generator, "close_async"):
            await self.chat_generator.close_async()
        else:
            self.close()

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """
        Return the recorded reply, or ask the model.

        :param messages: The conversation.
        :param streaming_callback: Gets the reply while it arrives; a recorded one in one piece.
        :param generation_kwargs: Parameters of the model.
        :param tools: The tools that the model may call.
        :param tools_strict: Whether the model is held to their schemas.
        :returns: `replies`.
        """
        options = _given(
            streaming_callback=streaming_callback,
            generation_kwargs=generation_kwargs,
            tools=tools,
            tools_strict=tools_strict,
        )
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return self.chat_generator.run(messages=messages, **options)  # type: ignore[no-any-return]
        with opened.replying(self.name, request_of(messages, flatten_tools_or_toolsets(tools))) as reply:
            if not reply.is_recorded:
                result: dict[str, Any] = self.chat_generator.run(messages=messages, **options)
                reply.record([message.to_dict() for message in result["replies"]])
                return result
        replies = [ChatMessage.from_dict(message) for message in reply.result]
        for chunk in _chunks(replies):
            if streaming_callback is not None:
                streaming_callback(chunk)
        return {"replies": replies}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """
        Return the recorded reply, or ask the model, without blocking the event loop.

        :param messages: The conversation.
        :param streaming_callback: Gets the reply while it arrives; a recorded one in one piece.
        :param generation_kwargs: Parameters of the model.
        :param tools: The tools that the model may call.
        :param tools_strict: Whether the model is held to their schemas.
        :returns: `replies`.
        """
        options = _given(
            streaming_callback=streaming_callback,
            generation_kwargs=generation_kwargs,
            tools=tools,
            tools_strict=tools_strict,
        )
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return await self._ask(messages, options)
        with opened.replying(self.name, request_of(messages, flatten_tools_or_toolsets(tools))) as reply:
            if not reply.is_recorded:
                result = await self._ask(messages, options)
                await asyncio.to_thread(reply.record, [message.to_dict() for message in result["replies"]])
                return result
        replies = [ChatMessage.from_dict(message) for message in reply.result]
        for chunk in _chunks(replies):
            if streaming_callback is not None and inspect.isawaitable(waiting := streaming_callback(chunk)):
                await waiting
        return {"replies": replies}

    async def _ask(self, messages: list[ChatMessage], options: dict[str, Any]) -> dict[str, Any]:
        if hasattr(self.chat_generator, "run_async"):
            return await self.chat_generator.run_async(messages=messages, **options)  # type: ignore[no-any-return]
        return await asyncio.to_thread(self.chat_generator.run, messages=messages, **options)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the generator.

        :returns: A dictionary.
        """
        inner = component_to_dict(self.chat_generator, "chat_generator")
        data: dict[str, Any] = default_to_dict(self, chat_generator=inner, name=self.name)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> JournaledChatGenerator:
        """
        Deserialize a generator.

        :param data: The result of `to_dict`.
        :returns: The generator.
        """
        deserialize_chatgenerator_inplace(data["init_parameters"], key="chat_generator")
        loaded: JournaledChatGenerator = default_from_dict(cls, data)
        return loaded


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _chunks(messages: list[ChatMessage]) -> list[StreamingChunk]:
    return [StreamingChunk(content=message.text) for message in messages if message.text]


def _journaled(tool: Tool) -> Tool:
    kind = type(tool)
    # A subclass of its class, so that Haystack finds in it what it looks for, stored under the name of that class.
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made = copy.copy(tool)
    made.__class__ = type(kind.__name__, (_Journaled, kind), names)
    return made


class _Journaled(Tool):
    """
    What is put before the class of a tool.
    """

    def invoke(self, **kwargs: Any) -> Any:
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return super().invoke(**kwargs)
        entry, is_due = opened.begin(self.name, self._recognized_by(kwargs), may_repeat=partial(_runs_an_agent, self))
        if not is_due:
            return self._recorded(entry)
        try:
            with in_scope(_inside(entry)):
                result = super().invoke(**kwargs)
        except ToolInvocationError as error:
            opened.note(entry, "failed", failure("", str(error)))
            raise
        opened.note(entry, "done", _stored(result))
        return result

    async def invoke_async(self, **kwargs: Any) -> Any:
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return await super().invoke_async(**kwargs)  # type: ignore[misc, unused-ignore]
        entry, is_due = await asyncio.to_thread(
            opened.begin, self.name, self._recognized_by(kwargs), may_repeat=partial(_runs_an_agent, self)
        )
        if not is_due:
            return self._recorded(entry)
        try:
            with in_scope(_inside(entry)):
                result = await super().invoke_async(**kwargs)  # type: ignore[misc, unused-ignore]
        except ToolInvocationError as error:
            await asyncio.to_thread(opened.note, entry, "failed", failure("", str(error)))
            raise
        await asyncio.to_thread(opened.note, entry, "done", _stored(result))
        return result

    def _recognized_by(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from_state = {*(self.inputs_from_state or {}).values()}
        return {name: value for name, value in arguments.items() if name not in from_state and not callable(value)}

    def _recorded(self, entry: Entry) -> Any:
        if entry.state == "failed":
            raise ToolInvocationError(entry.result["message"], tool_name=self.name)
        if "value" in entry.result:
            return _decoded(entry.result["value"])
        # What `RunJournal.decide` was told, which knows no kinds of tools.
        return entry.result["content"][0]["text"]


def _inside(entry: Entry) -> str:
    place = entry.place
    return f"{place.scope}/{place.step}.{place.name}.{place.fingerprint[:12]}.{place.occurrence}"


def _runs_an_agent(tool: Tool) -> bool:
    """
    Return whether all that a tool does is recorded itself, so that it is entered again.
    """
    component = getattr(tool, "_component", None) if isinstance(tool, ComponentTool) else None
    return isinstance(getattr(component, "chat_generator", None), JournaledChatGenerator)


def _stored(result: Any) -> dict[str, Any]:
    try:
        return {"value": json.loads(json.dumps(result, default=_encoded))}
    except (TypeError, ValueError) as error:
        msg = (
            f"A result of type {type(result).__name__} cannot be recorded: journaled tools must return JSON, or "
            "objects of haystack.dataclasses in it. The tool has run."
        )
        raise MCPRunError(msg) from error


def _encoded(value: Any) -> dict[str, Any]:
    name = type(value).__name__
    if getattr(haystack.dataclasses, name, None) is not type(value):
        msg = f"{name} is no JSON"
        raise TypeError(msg)
    return {_TYPE: name, "data": value.to_dict()}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TYPE, "data"}:
        return getattr(haystack.dataclasses, value[_TYPE]).from_dict(value["data"])
    return {name: _decoded(each) for name, each in value.items()}
