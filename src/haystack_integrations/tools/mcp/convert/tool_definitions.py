# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Reads what servers say of their tools, one tool at a time, so that an odd one does not take the others away.

The MCP SDK validates a page of `tools/list` as a whole. A page that it would refuse is mended here: what can be read is
normalized, and a tool that cannot be used is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import mcp_types as types
from mcp_types import methods
from pydantic import TypeAdapter, ValidationError

from haystack_integrations.tools.mcp.concurrency import MAX_TOOLS
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters, permissive_schema

LIST_METHOD: Final = "tools/list"

NEEDS_TASKS: Final = (
    "it can only be called as a task of revision 2025-11-25 (execution.taskSupport), which later revisions have "
    "replaced. This client runs tasks with servers of revision 2026-07-28"
)

# What a page of 2026-07-28 must have besides its tools.
_PAGE: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_TOOL: Final = TypeAdapter(types.Tool)
# The specification wants 128 characters at most.
_LONGEST_NAME: Final = 1_000


@dataclass
class ToolPage:
    """
    A page of `tools/list` that the SDK can read.

    :param result: The result of the request.
    :param left_out: Why the server's other tools cannot be used, by their names, or by their positions on the page if
        they have none; the first is 1.
    :param dropped: Which fields were dropped from the definitions of tools, likewise.
    """

    result: dict[str, Any]
    left_out: dict[str | int, str] = field(default_factory=dict)
    dropped: dict[str | int, list[str]] = field(default_factory=dict)


def needs_tasks(definition: types.Tool) -> bool:
    """
    Whether a tool can be called only as a task of revision 2025-11-25.

    :param definition: The tool's definition.
    :returns: Whether it says so.
    """
    return definition.execution is not None and definition.execution.task_support == "required"


def read_page(page: dict[str, Any], version: str) -> ToolPage:
    """
    Make a page of `tools/list` readable.

    :param page: The result of the request. It is not changed.
    :param version: The negotiated revision of the protocol.
    :returns: The page.
    :raises ValueError: If it has no list of tools, or too many of them.
    """
    tools = page.get("tools", "missing")
    if tools is None:  # as Go encodes an empty list
        tools = []
    if not isinstance(tools, list):
        problem = "is missing" if tools == "missing" else f"must be a list, not {type(tools).__name__}"
        msg = f"its answer to {LIST_METHOD} cannot be read: `tools` {problem}"
        raise ValueError(msg)
    if len(tools) > MAX_TOOLS:
        msg = f"it has more than {MAX_TOOLS:,} tools"
        raise ValueError(msg)
    meta = {} if isinstance(page.get("_meta", {}), dict) else {"_meta": None}
    readable: list[dict[str, Any]] = []
    read = ToolPage({name: value for name, value in page.items() if name not in meta} | {"tools": readable})
    for position, tool in enumerate(tools, 1):
        name = tool.get("name") if isinstance(tool, dict) else None
        label = name if isinstance(name, str) and name else position
        try:
            mended, dropped = _mended(tool, version)
        except ValueError as error:
            read.left_out[label] = str(error)
        else:
            readable.append(mended)
            if dropped:
                read.dropped[label] = dropped
    return read


@cache
def _wire_format(version: str) -> TypeAdapter[Any]:
    model: Any = methods.SERVER_RESULTS[LIST_METHOD, version]
    return TypeAdapter(model)


def _odd_fields(tool: dict[str, Any], version: str) -> set[str]:
    try:
        _wire_format(version).validate_python({**_PAGE, "tools": [tool]}, by_name=False)
    except ValidationError as error:
        return {str(each["loc"][2]) for each in error.errors(include_url=False, include_input=False)}
    try:
        _TOOL.validate_python(tool, by_name=False)
    except ValidationError as error:
        return {str(each["loc"][0]) for each in error.errors(include_url=False, include_input=False)}
    return set()


def _mended(tool: Any, version: str) -> tuple[dict[str, Any], list[str]]:
    """
    Return a definition that can be read, and the names of the fields that were dropped from it.
    """
    if not isinstance(tool, dict):
        msg = f"its definition must be a JSON object, not {type(tool).__name__}"
        raise ValueError(msg)
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        msg = "its name is missing or empty" if not name else f"its name must be a string, not {type(name).__name__}"
        raise ValueError(msg)
    if len(name) > _LONGEST_NAME:
        msg = f"its name has more than {_LONGEST_NAME:,} characters"
        raise ValueError(msg)
    dropped: list[str] = []
    tried: set[str] = set()
    while odd := _odd_fields(tool, version):
        for key in sorted(odd):
            value = tool.get(key)
            tool = {other: each for other, each in tool.items() if other != key}
            if key == "inputSchema" and key not in tried:
                tool[key] = _input_schema(value)
            elif key in ("inputSchema", "name"):
                msg = "its input schema is unusable" if key == "inputSchema" else "its name is invalid"
                raise ValueError(msg)
            elif key == "outputSchema" and key not in tried and isinstance(value, dict) and "type" not in value:
                tool[key] = {**value, "type": "object"}  # up to 2025-11-25 a structured result is an object
            else:
                dropped.append(key)
            tried.add(key)
    return tool, dropped


def _input_schema(schema: Any) -> dict[str, Any]:
    if schema is None or schema is True:
        return permissive_schema()
    try:
        return normalize_parameters({} if schema == [] else schema)  # as PHP encodes an empty object
    except ValueError as error:
        msg = f"its input schema is unusable: {error}"
        raise ValueError(msg) from error
