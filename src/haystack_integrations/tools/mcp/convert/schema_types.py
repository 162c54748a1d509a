# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which JSON types a schema allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack_integrations.tools.mcp.convert.schema_references import schema_at, segments

ALL_TYPES: tuple[str, ...] = ("null", "boolean", "integer", "number", "string", "array", "object")

# References within a schema may lead in circles, and so may what is in it.
_MOST_REFERENCES = 32
_DEEPEST = 4

# A schema that allows everything.
_ANYTHING: Mapping[str, Any] = {}


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Follow the references of a schema within its document.

    :param schema: The schema.
    :param root: The document.
    :returns: What it refers to; an empty schema for one that cannot be found.
    """
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, Mapping):
            return _ANYTHING
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = root if reference == "#" else schema_at(root, segments(reference) or ("",))
    return _ANYTHING


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """
    Tell which JSON types a schema allows.

    :param schema: The schema.
    :param root: The document that it is in.
    :returns: Names of types; all if the schema does not say.
    """
    return _types(schema, root, 0, {})


def _types(schema: Any, root: Mapping[str, Any], depth: int, known: dict[int, set[str]]) -> set[str]:
    schema = resolved(schema, root)
    if id(schema) not in known:
        # Each schema is looked at once: what refers to itself several times would take time without a bound.
        known[id(schema)] = set(ALL_TYPES)
        known[id(schema)] = _types_in(schema, root, depth, known)
    return known[id(schema)]


def _types_in(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, known: dict[int, set[str]]) -> set[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {str(each) for each in named}
    if depth > _DEEPEST:
        return set(ALL_TYPES)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return {kind for option in schema[key] for kind in _types(option, root, depth + 1, known)}
    if isinstance(schema.get("allOf"), list):
        return set(ALL_TYPES).intersection(*(_types(option, root, depth + 1, known) for option in schema["allOf"]))
    return {str(type_of(value)) for value in choices_of(schema)} or set(ALL_TYPES)


def choices_of(schema: Mapping[str, Any]) -> list[Any]:
    """
    Give the values that a schema names.

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
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
