# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which JSON types a schema allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack_integrations.tools.mcp.convert.tool_schemas import at_pointer

ALL_TYPES: tuple[str, ...] = ("null", "boolean", "integer", "number", "string", "array", "object")

_NAMES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
# References within a schema may lead in circles.
_MOST_REFERENCES = 32


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Follow the references of a schema within its document.

    :param schema: The schema.
    :param root: The document.
    :returns: What it refers to; an empty schema for one that cannot be found.
    """
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = at_pointer(root, reference[1:]) if reference.startswith("#") else None
    return {}


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """
    Return the JSON types that a schema allows.

    :param schema: The schema.
    :param root: The document that it is in.
    :returns: Names of types; all if the schema does not say.
    """
    return _types_of(schema, root, {})


def _types_of(schema: Any, root: Mapping[str, Any], known: dict[int, set[str]]) -> set[str]:
    schema = resolved(schema, root)
    if id(schema) not in known:
        known[id(schema)] = set(ALL_TYPES)  # what it says if it is in itself
        known[id(schema)] = _own_types(schema, root, known)
    return known[id(schema)]


def _own_types(schema: Mapping[str, Any], root: Mapping[str, Any], known: dict[int, set[str]]) -> set[str]:
    named = schema.get("type")
    if isinstance(named, str | list):
        return {named} if isinstance(named, str) else set(map(str, named))
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            options = [_types_of(option, root, known) for option in schema[key]]
            return set(ALL_TYPES).intersection(*options) if key == "allOf" else set().union(*options)
    return {type_of(value) for value in choices_of(schema)} or set(ALL_TYPES)


def choices_of(schema: Mapping[str, Any]) -> list[Any]:
    """
    Return the values that a schema names.

    :param schema: The schema.
    :returns: The values; none if it names none.
    """
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if isinstance(schema.get("enum"), list) else []


def type_of(value: Any) -> str:
    """
    Name the JSON type of a value.

    :param value: JSON.
    :returns: "integer" for whole numbers, "number" for others.
    """
    return _NAMES.get(type(value), "object")
