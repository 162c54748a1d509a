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
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp_types import methods
from pydantic import TypeAdapter, ValidationError

from haystack_integrations.tools.mcp.concurrency import MAX_TOOLS, count_values
from haystack_integrations.tools.mcp.convert.odd_messages import find_faults, repair
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters, permissive_schema

if TYPE_CHECKING:
    import mcp_types as types

LIST_METHOD: Final = "tools/list"

# What a page of 2026-07-28 must have besides its tools.
_PAGE: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

_TOOL: Final = TypeAdapter(types.Tool)
# The rest is only in some revisions.
_PLAIN_FIELDS: Final = frozenset("name title description inputSchema outputSchema annotations _meta".split())

# How many values a definition may have: each is validated several times, in up to 8 ms, and a call of another session
# may wait for a dozen definitions.
_MAX_VALUES: Final = 5_000

# The specification wants 128 characters at most. Each is looked at when names are made fit for models.
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
        page = {**page, "tools": tools}
    if not isinstance(page.get("_meta", {}), dict):
        page = {name: value for name, value in page.items() if name != "_meta"}
    if not isinstance(tools, list):
        problem = "is missing" if tools == "missing" else f"must be a list, not {type(tools).__name__}"
        msg = f"its answer to {LIST_METHOD} cannot be read: `tools` {problem}"
        raise ValueError(msg)
    if len(tools) > MAX_TOOLS:
        msg = f"it has more than {MAX_TOOLS:,} tools"
        raise ValueError(msg)
    readable: list[dict[str, Any]] = []
    read = ToolPage({**page, "tools": readable})
    for position, tool in enumerate(tools, 1):
        is_small = count_values(tool) <= _MAX_VALUES
        if is_small and _is_plain(tool):
            readable.append(tool)
            continue
        name = tool.get("name") if isinstance(tool, dict) else None
        label = name if isinstance(name, str) and name else position
        if not is_small:
            read.left_out[label] = f"its definition has more than {_MAX_VALUES:,} values"
            continue
        try:
            mended, dropped = _mend(tool, version)
        except ValueError as error:
            read.left_out[label] = str(error)
        else:
            readable.append(mended)
            if dropped:
                read.dropped[label] = dropped
    return read


def _is_plain(tool: Any) -> bool:
    """
    Tell whether a definition is valid in every revision; most are, and validation against a revision takes 0.1 ms.
    """
    try:
        definition = _TOOL.validate_python(tool, by_name=False)
    except ValidationError:
        return False
    return (
        0 < len(definition.name) <= _LONGEST_NAME
        and _PLAIN_FIELDS.issuperset(tool)
        and _is_plain_schema(definition.input_schema)
        and (definition.output_schema is None or _is_plain_schema(definition.output_schema))
    )


def _is_plain_schema(schema: dict[str, Any]) -> bool:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        schema.get("type") == "object"
        and isinstance(schema.get("$schema", ""), str)
        and isinstance(properties, dict)
        and all(isinstance(value, dict) for value in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
    )


@cache
def _wire_format(version: str) -> tuple[TypeAdapter[Any]]:
    model: Any = methods.SERVER_RESULTS[LIST_METHOD, version]
    return (TypeAdapter(model),)


def _faults(version: str, tool: dict[str, Any]) -> list[Any]:
    return find_faults(_wire_format(version), {**_PAGE, "tools": [tool]}, inside=("tools", 0)) or find_faults(
        (_TOOL,), tool
    )


def _mend(tool: Any, version: str) -> tuple[dict[str, Any], list[str]]:
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
    schema = tool.get("inputSchema")
    if schema is None or schema is True:
        schema = permissive_schema()
    tool = {**tool, "inputSchema": {} if schema == [] else schema}  # as PHP encodes an empty object
    odd = {fault["loc"][0] for fault in _faults(version, tool)}
    if "inputSchema" in odd:
        tool["inputSchema"] = _input_schema(tool["inputSchema"])
    if "outputSchema" in odd and _may_be_object(tool["outputSchema"]):
        tool["outputSchema"] = {**tool["outputSchema"], "type": "object"}  # a structured result, up to 2025-11-25
    mended = repair(tool, partial(_faults, version))
    if mended is None or mended["inputSchema"] != tool["inputSchema"]:
        msg = "its input schema is unusable"
        raise ValueError(msg)
    return mended, _differences(tool, mended)


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = []
    for name, value in before.items():
        now = after.get(name)
        if isinstance(value, dict) and isinstance(now, dict):
            found += [f"{name}.{member}" for member in value if now.get(member) != value[member]]
        elif now != value:
            found.append(name)
    return found


def _input_schema(schema: Any) -> dict[str, Any]:
    try:
        return normalize_parameters(schema)
    except ValueError as error:
        msg = f"its input schema is unusable: {error}"
        raise ValueError(msg) from error


def _may_be_object(schema: Any) -> bool:
    # An empty one promises nothing; with a type it would promise a structured result.
    declared = schema.get("type", "object") if isinstance(schema, dict) and schema else None
    return declared == "object" or (isinstance(declared, list) and "object" in declared)
