# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The journal of runs, and its wrappers that record chat generators and Haystack's own tools.
"""

from __future__ import annotations

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
from haystack.utils import Secret
from pydantic import Field, InstanceOf
from pydantic_core import to_jsonable_python

from haystack_integrations.tools.mcp.any_tools import tool_items
from haystack_integrations.tools.mcp.concurrency import Call, call_async, call_here, call_if_there, run_here
from haystack_integrations.tools.mcp.connection.context_managed import Compound
from haystack_integrations.tools.mcp.connection.requests import call_recorder
from haystack_integrations.tools.mcp.durable.cassette import write_cassette
from haystack_integrations.tools.mcp.durable.run import (
    MAY_HAVE_RUN_TEXT,
    TO_REPEAT,
    DurableRun,
    OnUnknown,
    OpenRun,
    UnknownCall,
    error_record,
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

# A shorter lease could end while a busy process is not scheduled. Other workers wait this long for a dead one.
_DEFAULT_LEASE = 30.0

RunName: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]

# The key under which a stored object has the name of its class.
_TYPE_KEY: Final = "haystack.dataclasses"


class RunJournal:
    """
    Records runs in a database, so that another process can finish the run of a killed one, and no tool runs twice.

    In a block `with journal.run(name)`, each call of an MCP tool is recorded before it is sent, and its result
    afterwards. A run with the same name goes on where the other one stopped, in any process: recorded replies and
    results are returned without asking the model or calling a tool. A call that was sent and has no result may have
    run; `on_unknown` decides what is done then.

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

        :param url: URL of the database for SQLAlchemy: `"sqlite:///runs.db"` for the processes of one machine, or
            PostgreSQL (`"postgresql+psycopg://…"`) for several machines.
        :param lease: How long a run stays reserved for a process that no longer responds, in seconds. Default: 30.
        :param on_unknown: What to do about a call that was sent and has no result. "error" (default): the run ends
            with an MCPCallInDoubtError. "model": the model is told that the tool may have run. Or a function that gets
            an UnknownCall and returns one of these, or "repeat". Calls that the user allowed to be repeated
            (`retry_idempotent` of ToolOptions) are repeated.
        :param power_loss_safe: Whether SQLite waits for the disk at each write. Without it, a power failure (not a
            kill) can lose the latest writes, so that a call is made again.
        :param encryption_key: A Fernet key that encrypts requests and results. Default: they are not encrypted.
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

        :param name: Its name, at most 255 characters. An unfinished run of this name is continued.
        :param on_unknown: Replaces the journal's `on_unknown` for this run.
        :returns: A context manager. Entering it raises an MCPRunElsewhereError if another process has leased the run.
        :raises ValueError: If a parameter is invalid.
        """
        return DurableRun(self._store, name, self._lease, on_unknown or self._on_unknown)

    def generator(self, chat_generator: Any, name: str = "generator") -> JournaledChatGenerator:
        """
        Wrap a chat generator, so that its replies are recorded in an open run.

        :param chat_generator: The chat generator.
        :param name: Its name in the journal. Generators that are asked at the same time need different names.
        :returns: The wrapper, which is also a component.
        """
        return JournaledChatGenerator(chat_generator, name)

    def tools(self, tools: Tool | Iterable[Tool | Toolset]) -> list[Tool | Toolset]:
        """
        Make Haystack tools record their calls in an open run. MCP tools and toolsets do so by themselves.

        Their results must be JSON, which may contain objects of haystack.dataclasses. A continued run enters a
        ComponentTool again if it has an Agent whose chat generator is recorded. Any other tool that was called and
        has no result may have run, so that `on_unknown` decides.

        :param tools: Tools, and toolsets whose tools are taken.
        :returns: Copies of the tools; MCP tools and toolsets are returned unchanged.
        :raises ValueError: If something is not a tool.
        """
        found: list[Tool | Toolset] = []
        items: list[Tool | Toolset] = tool_items(tools)
        for each in items:
            # A toolset knows its tools only when it is connected.
            if isinstance(each, MCPTool | MCPToolset | Compound | _JournaledTool):
                found.append(each)
            elif isinstance(each, Toolset):
                found += self.tools(list(each))
            elif isinstance(each, Tool):
                found.append(_with_journal(each))
            else:
                msg = f"`tools` must be Tools and Toolsets, got {type(each).__name__}"
                raise ValueError(msg)
        return found

    def value(self, name: str, make: Callable[[], T]) -> T:
        """
        Return a value that is the same when a run is continued, such as the time or a random number.

        :param name: Its name.
        :param make: Makes the value if it is not recorded yet. The value must be JSON.
        :returns: The value.
        :raises TypeError: If the value is not JSON.
        """
        opened = call_recorder.get()
        if opened is None:
            return make()
        recall = opened.recall("value", name)
        if recall.is_recorded:
            return cast("T", recall.result)
        try:
            new_value = make()
        except Exception:
            recall.free_place()
            raise
        recall.record(new_value)
        return new_value

    @contextmanager
    def branch(self, name: str) -> Iterator[None]:
        """
        Separate the records of code that runs concurrently within a run.

        :param name: A name for the code in this block. It must be the same when the run is continued.
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
        Return the names of the runs that ended with an error, or whose process died.

        :returns: The names, the oldest first.
        """
        return self._store.unfinished()

    def calls(self, name: str, *, with_values: bool = True) -> list[Entry]:
        """
        Return the records of a run: calls, replies of the model, decisions and values.

        :param name: Name of the run.
        :param with_values: Whether to read requests and results. That needs the key if they are encrypted.
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

    def decide(self, name: str, number: int, decision: Literal["repeat", "done", "model"], result: Any = None) -> None:
        """
        Settle a call without a result, before the run is continued: one that was sent, or that waits for an answer.

        :param name: Name of the run.
        :param number: Number of the call, from an MCPCallInDoubtError or `calls`.
        :param decision: "repeat": the tool did not run; the call will be sent. "done": it ran and returned `result`.
            "model": the model is told that the tool may have run.
        :param result: With "done": the tool's result as text. A dict or a list becomes JSON; Haystack's own tools
            return it unchanged.
        :raises MCPRunError: If a process has the run, or the run has no such call.
        :raises ValueError: If `decision` is not one of these, or is "done" without a `result`.
        """
        if decision == "repeat":
            error = error_record("MCPInvocationError", "The tool did not run.", outcome=TO_REPEAT)
            done = self._store.settle(name, number, error, state="failed")
        elif decision == "done":
            if result is None:
                msg = "`result` must be the tool's result, as text, if `decision` is 'done'"
                raise ValueError(msg)
            is_text = not isinstance(result, (dict, list))
            text = str(result) if is_text else json.dumps(result, ensure_ascii=False)
            content: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": False}
            if not is_text:
                content["value"] = result  # for Haystack's own tools, as an Agent's State may take parts of a result
            done = self._store.settle(name, number, content, state="done")
        elif decision == "model":
            error = error_record("MCPOutcomeUnknownError", MAY_HAVE_RUN_TEXT)
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
        :param tools: MCP tools and toolsets whose definitions are to be included. Those with a `snapshot` can be
            omitted: their definitions are known without the server.
        :raises ValueError: If the journal has no records of the run.
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
        Delete a run, unless a process has leased it.

        :param name: Name of the run.
        :returns: Whether it was deleted.
        """
        return self._store.delete(name)

    @checked()
    def prune(self, older_than: timedelta) -> int:
        """
        Delete old runs that are done.

        :param older_than: How long ago they must have ended.
        :returns: How many were deleted.
        :raises ValueError: If `older_than` is not a timedelta.
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
    A chat generator whose replies are recorded in an open durable run, and then returned without asking the model.

    Outside a run it only passes on requests. It keeps no state of a run, so one object can serve several runs at once.

    ```python
    agent = Agent(chat_generator=JournaledChatGenerator(OpenAIChatGenerator()), tools=toolset)
    ```
    """

    def __init__(self, chat_generator: Any, name: str = "generator") -> None:
        """
        Initialize the JournaledChatGenerator. Usually, `RunJournal.generator` does this.

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
        await call_if_there(self.chat_generator, "warm_up")

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
        await call_if_there(self.chat_generator, "close")

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """
        Return the recorded reply, or ask the model.

        :param messages: The conversation.
        :param streaming_callback: Receives the reply as it arrives; a recorded reply in one piece.
        :param generation_kwargs: Parameters of the model.
        :param tools: The tools that the model may call.
        :param tools_strict: Whether the model must follow the schemas of the tools.
        :returns: `replies`.
        """
        options = _without_none(
            streaming_callback=streaming_callback,
            generation_kwargs=generation_kwargs,
            tools=tools,
            tools_strict=tools_strict,
        )
        return run_here(self._reply(call_here, messages, options))

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        *,
        tools: ToolsType | None = None,
        tools_strict: bool | None = None,
    ) -> dict[str, Any]:
        """
        Return the recorded reply, or ask the model, without blocking the event loop.

        :param messages: The conversation.
        :param streaming_callback: Receives the reply as it arrives; a recorded reply in one piece.
        :param generation_kwargs: Parameters of the model.
        :param tools: The tools that the model may call.
        :param tools_strict: Whether the model must follow the schemas of the tools.
        :returns: `replies`.
        """
        options = _without_none(
            streaming_callback=streaming_callback,
            generation_kwargs=generation_kwargs,
            tools=tools,
            tools_strict=tools_strict,
        )
        return await self._reply(call_async, messages, options)

    async def _reply(self, call: Call, messages: list[ChatMessage] | str, options: dict[str, Any]) -> dict[str, Any]:
        opened = call_recorder.get()
        if not isinstance(opened, OpenRun):
            return await call(self.chat_generator, "run", messages=messages, **options)  # type: ignore[no-any-return]
        with opened.replying(self.name, request_of(messages, flatten_tools_or_toolsets(options.get("tools")))) as reply:
            if not reply.is_recorded:
                result: dict[str, Any] = await call(self.chat_generator, "run", messages=messages, **options)
                await call(reply, "record", _to_reply(result["replies"]))
                return result
        replies = [ChatMessage.from_dict(message) for message in reply.result]
        if callback := options.get("streaming_callback"):
            for chunk in _chunks(replies):
                if inspect.isawaitable(waiting := callback(chunk)):
                    await waiting
        return {"replies": replies}

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
        loaded: JournaledChatGenerator = default_from_dict(cls, data)
        return loaded


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _to_reply(messages: list[ChatMessage]) -> Any:
    # The `meta` of a reply may contain any objects, for example the citations of Cohere's models.
    to_json = partial(to_jsonable_python, bytes_mode="base64", fallback=str)
    return json.loads(json.dumps([message.to_dict() for message in messages], default=to_json))


def _chunks(messages: list[ChatMessage]) -> list[StreamingChunk]:
    return [StreamingChunk(content=message.text) for message in messages if message.text]


def _with_journal(tool: Tool) -> Tool:
    kind = type(tool)
    # A subclass of the tool's class, so that Haystack's `isinstance` checks hold. It is stored under that class's name.
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    copied = copy.copy(tool)
    copied.__class__ = type(kind.__name__, (_JournaledTool, kind), names)
    return copied


class _JournaledTool(Tool):
    """
    Records the calls of a tool. It precedes the class of the tool in the method resolution order.
    """

    def invoke(self, **kwargs: Any) -> Any:
        return run_here(self._invoke(call_here, kwargs))

    async def invoke_async(self, **kwargs: Any) -> Any:
        return await self._invoke(call_async, kwargs)

    async def _invoke(self, call: Call, arguments: dict[str, Any]) -> Any:
        opened, tool = call_recorder.get(), super()
        if not isinstance(opened, OpenRun):
            return await call(tool, "invoke", **arguments)
        entry, is_due = await opened.recorded(call(self, "_begin", opened, arguments))
        if not is_due:
            return self._recorded_result(entry)
        with opened.running(entry):
            opened.note_sent(entry)
            try:
                with _errors_of_run():
                    result = await call(tool, "invoke", **arguments)
                    record = _to_record(result)
            except ToolInvocationError as error:
                await call(opened, "record_state", entry, "failed", error_record("", str(error)))
                raise
            await call(opened, "record_state", entry, "done", record)
        return result

    def _begin(self, opened: OpenRun, arguments: dict[str, Any]) -> tuple[Entry, bool]:
        from_state = {*(self.inputs_from_state or {}).values()}
        known = {name: value for name, value in arguments.items() if name not in from_state and not callable(value)}
        return opened.begin(self.name, known, may_repeat=partial(_runs_an_agent, self), recalls_content=True)

    def _recorded_result(self, entry: Entry) -> Any:
        if entry.state == "failed":
            raise ToolInvocationError(entry.result["message"], tool_name=self.name)
        if "value" in entry.result:
            return _decode(entry.result["value"])
        # `RunJournal.decide` writes only this form, because it does not know the kind of tool.
        return entry.result["content"][0]["text"]


@contextmanager
def _errors_of_run() -> Iterator[None]:
    # An error that ends the run, such as a call in doubt within an agent as a tool, is not a failure for the model.
    try:
        yield
    except ToolInvocationError as error:
        cause = error.__cause__
        while cause is not None and not isinstance(cause, MCPRunError):
            cause = cause.__cause__
        if cause is None:
            raise
        error.__cause__ = error.__context__ = None  # it becomes the context of its own cause
        raise cause from cause.__cause__


def _runs_an_agent(tool: Tool) -> bool:
    """
    Return whether the tool may be entered again, because everything that it does is recorded separately.
    """
    component = getattr(tool, "_component", None) if isinstance(tool, ComponentTool) else None
    return isinstance(getattr(component, "chat_generator", None), JournaledChatGenerator)


def _to_record(result: Any) -> dict[str, Any]:
    try:
        return {"value": json.loads(json.dumps(result, default=_encode))}
    except (TypeError, ValueError) as error:
        msg = (
            f"A result of type {type(result).__name__} cannot be recorded: journaled tools must return JSON, or "
            "objects of haystack.dataclasses in it. The tool has run."
        )
        raise MCPRunError(msg) from error


def _encode(value: Any) -> dict[str, Any]:
    name = type(value).__name__
    if getattr(haystack.dataclasses, name, None) is not type(value):
        msg = f"{name} is not JSON"
        raise TypeError(msg)
    return {_TYPE_KEY: name, "data": value.to_dict()}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TYPE_KEY, "data"}:
        return getattr(haystack.dataclasses, value[_TYPE_KEY]).from_dict(value["data"])
    return {name: _decode(each) for name, each in value.items()}
