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

from haystack_integrations.tools.mcp.concurrency import MAX_TOOLS, count_values
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters, permissive_schema

LIST_METHOD: Final = "tools/list"

# What a page of 2026-07-28 must have besides its tools.
_PAGE: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

_TOOL: Final = TypeAdapter(types.Tool)
# The rest is only in some revisions.
_PLAIN_FIELDS: Final = frozenset("name title description inputSchema outputSchema annotations _meta".split())

# How many values a definition may have, and how many of them may be invalid: each is validated several times, in up to
# 8 ms, and a call of another session may wait for a dozen definitions.
_MAX_VALUES: Final = 5_000
_MAX_FAULTS: Final = 1_000

# The specification wants 128 characters at most. Each is looked at when names are made fit for models.
_LONGEST_NAME: Final = 1_000

_Place = tuple[int | str, ...]


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
def _wire_format(version: str) -> TypeAdapter[Any]:
    model: Any = methods.SERVER_RESULTS[LIST_METHOD, version]
    return TypeAdapter(model)


def _problems(tool: dict[str, Any], version: str) -> list[_Place]:
    try:
        _wire_format(version).validate_python({**_PAGE, "tools": [tool]}, by_name=False)
    except ValidationError as error:
        return [place[2:] for place in _places(error)]
    try:
        _TOOL.validate_python(tool, by_name=False)
    except ValidationError as error:
        return _places(error)
    return []


def _places(error: ValidationError) -> list[_Place]:
    if error.error_count() > _MAX_FAULTS:
        msg = f"more than {_MAX_FAULTS:,} values of its definition are invalid"
        raise ValueError(msg)
    return [each["loc"] for each in error.errors(include_url=False, include_input=False, include_context=False)]


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
    mended = dict(tool)
    schema = mended.get("inputSchema")
    if schema is None or schema is True:
        mended["inputSchema"] = permissive_schema()
    elif schema == []:  # as PHP encodes an empty object
        mended["inputSchema"] = {}
    dropped: list[str] = []
    tried: set[str] = set()
    while problems := _problems(mended, version):
        members: dict[str, dict[int | str, None]] = {}  # in their order, and quickly found
        for place in problems:
            members.setdefault(str(place[0]), {}).update(dict.fromkeys(place[1:2]))
        for at, odd in members.items():
            if at in ("inputSchema", "name") and (at == "name" or at in tried):
                msg = "its name is invalid" if at == "name" else "its input schema is unusable"
                raise ValueError(msg)
            value = mended.pop(at)
            if at == "inputSchema":
                mended[at] = _input_schema(value)
            elif at == "outputSchema" and at not in tried and _may_be_object(value):
                mended[at] = {**value, "type": "object"}  # up to 2025-11-25 a structured result is an object
            elif odd and at not in tried and isinstance(value, dict):
                mended[at] = {name: member for name, member in value.items() if name not in odd}
                dropped += [f"{at}.{name}" for name in odd]
            elif odd and at not in tried and isinstance(value, list):
                mended[at] = [member for index, member in enumerate(value) if index not in odd]
                dropped += [f"{at}[{index}]" for index in odd]
            else:
                dropped.append(at)
            tried.add(at)
    return mended, list(dict.fromkeys(dropped))


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
