# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The canonical form of a tool's definition: what a server says of it, without what differs between revisions and runs.

Two definitions are the same if their canonical forms have the same hash. The form has the fields `name`, `title`,
`description`, `inputSchema`, `outputSchema` and `annotations` as in the protocol, without null values, with sorted
keys, and with the names in `required` and `type` sorted. Icons and `_meta` are not in it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from haystack_integrations.tools.mcp.convert.tool_schemas import SCHEMA_LISTS, SCHEMAS_BY_NAME, SINGLE_SCHEMAS

if TYPE_CHECKING:
    import mcp_types as types

# Keywords whose values are sets of names.
_SETS: Final = ("required", "type")

# What is nested more deeply is in no schema of a tool that can be used (see convert/tool_schemas.py).
_DEEPEST: Final = 100
_TOO_DEEP: Final = "nested too deeply"

FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


def canonical_definition(tool: types.Tool) -> dict[str, Any]:
    """
    Give the canonical form of a tool.

    :param tool: What the server said of it.
    :returns: The form. It shares nothing with the tool.
    """
    annotations = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else None
    definition = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": canonical_schema(tool.input_schema),
        "outputSchema": canonical_schema(tool.output_schema),
        "annotations": annotations,
    }
    # An empty text, and annotations that say nothing, are as none.
    return {key: sorted_value(definition[key]) for key in sorted(FIELDS) if definition[key] not in (None, "", {})}


def canonical_schema(schema: Any, depth: int = 0) -> Any:
    """
    Sort what a JSON schema has in any order.

    :param schema: The schema.
    :param depth: How deep it is nested in others.
    :returns: A copy.
    """
    if depth > _DEEPEST:
        return _TOO_DEEP
    if isinstance(schema, list):
        return [canonical_schema(item, depth + 1) for item in schema]
    if not isinstance(schema, dict):
        return sorted_value(schema)
    result: dict[str, Any] = {}
    for key in sorted(schema):
        value = schema[key]
        if key in SCHEMAS_BY_NAME and isinstance(value, dict):
            result[key] = {name: canonical_schema(value[name], depth + 2) for name in sorted(value)}
        elif key in SINGLE_SCHEMAS or key in SCHEMA_LISTS:
            result[key] = canonical_schema(value, depth + 1)
        elif key in _SETS and isinstance(value, list) and all(isinstance(item, str) for item in value):
            result[key] = sorted(set(value))
        else:
            result[key] = sorted_value(value, depth + 1)
    return result


def sorted_value(value: Any, depth: int = 0) -> Any:
    """
    Sort the keys of a JSON value, and write whole numbers as such: 1.0 is 1.

    :param value: The value.
    :param depth: How deep it is nested in others.
    :returns: A copy.
    """
    if depth > _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, dict):
        return {key: sorted_value(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, list):
        return [sorted_value(item, depth + 1) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def value_hash(value: Any) -> str:
    """
    Hash a canonical JSON value.

    :param value: The value.
    :returns: `sha256:` and 64 hexadecimal digits, of the compact JSON text in UTF-8 with sorted keys.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Half a surrogate pair is no valid text, but nothing that could not be compared.
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def in_order(schema: dict[str, Any], parameters: list[str]) -> dict[str, Any]:
    """
    Put the parameters of a tool into the order of the server, in which models read and write them.

    :param schema: The input schema.
    :param parameters: The names in their order.
    :returns: The schema with its `properties` in this order.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not parameters:
        return schema
    names = [*(name for name in parameters if name in properties), *(n for n in properties if n not in parameters)]
    return {**schema, "properties": {name: properties[name] for name in names}}
