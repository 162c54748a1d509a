# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Records the calls of Haystack's own tools.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import haystack.dataclasses
from haystack.tools import ComponentTool, Toolset
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.connection.recording import call_recorder
from haystack_integrations.tools.mcp.durable.generator import JournaledChatGenerator
from haystack_integrations.tools.mcp.durable.run import OpenRun, failure, in_scope
from haystack_integrations.tools.mcp.durable.store import Entry
from haystack_integrations.tools.mcp.errors import MCPRunError
from haystack_integrations.tools.mcp.mcp_tool import MCPTool

# The member that says of which class a stored object is.
_TYPE: Final = "haystack.dataclasses"


def journaled_tools(tools: Iterable[Tool | Toolset]) -> list[Tool]:
    """
    Make tools whose calls are recorded where a run is open.

    :param tools: Tools, and toolsets whose tools are taken.
    :returns: Copies of the tools; MCP tools as they are.
    :raises ValueError: If something is no tool.
    """
    found: list[Tool] = []
    for each in tools:
        if isinstance(each, Toolset):
            found += journaled_tools(list(each))
        elif isinstance(each, MCPTool):
            found.append(each)
        elif isinstance(each, Tool):
            found.append(_journaled(each))
        else:
            msg = f"`tools` must be Tools and Toolsets, got {type(each).__name__}"
            raise ValueError(msg)
    return found


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
        if "content" in entry.result:  # what `RunJournal.decide` was told, which knows no kinds of tools
            return entry.result["content"][0]["text"]
        return _decoded(entry.result["value"])


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
