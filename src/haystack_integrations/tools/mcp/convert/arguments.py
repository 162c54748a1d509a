# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Makes a model's arguments fit the tool's schema, where it is clear what was meant.

Models write `null` for arguments that they leave out, objects and lists as JSON strings, and numbers and booleans as
strings. Servers that check their arguments refuse these; servers that use pydantic convert some of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from math import isfinite
from typing import Any, Final
from urllib.parse import unquote

from jsonschema import Draft202012Validator
from jsonschema import ValidationError as SchemaViolation

# References within a schema may form a cycle.
_MAX_REFERENCES: Final = 32
_TYPE_NAMES: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_ALL_TYPES: Final = frozenset(_TYPE_NAMES.values())

# Keywords that may allow arguments which `properties` does not have.
_OPEN_KEYWORDS: Final = {"patternProperties", "propertyNames", "unevaluatedProperties", "dependentSchemas"}
# Keywords whose values are lists of schemas for the same value.
_COMPOSED: Final = {"anyOf", "oneOf", "allOf"}

Schema = Mapping[str, Any]


def fit_arguments(arguments: Mapping[str, Any], schema: Schema, root: Schema | None = None) -> dict[str, Any]:
    """
    Make arguments fit a schema.

    Only values that the schema does not allow are changed. An optional argument is left out if it is `null` or a word
    for it, a string is parsed as JSON where strings are not allowed, and 5.0 becomes 5 where only integers are. A
    string stays a string wherever the schema allows strings.

    :param arguments: The arguments. They are not changed.
    :param schema: The result of `normalize_parameters`, or a part of it.
    :param root: The whole schema. Default: `schema`.
    :returns: The arguments for the server.
    """
    root = schema if root is None else root
    properties, required = schema.get("properties", {}), schema.get("required", ())
    fitted = {}
    for name, value in arguments.items():
        property_schema = properties.get(name, True)
        if type(value) is int:
            fitted[name] = value
        elif name in required or not _is_nothing(value, property_schema, root):
            fitted[name] = _fit(value, property_schema, root)
    return fitted


def fit_arguments_of_own(tool_name: str, properties: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """
    Fit and check the arguments of a tool that this package implements itself.

    :param tool_name: Name of the tool.
    :param properties: The schemas of its parameters.
    :param arguments: The arguments.
    :returns: The arguments to pass.
    :raises ValueError: If one is unknown or invalid. Python's own errors would show the model private method names.
    """
    schema = {"properties": properties, "additionalProperties": False}
    fitted = fit_arguments(arguments, schema)
    error = next(Draft202012Validator(schema).iter_errors(fitted), None)
    if error is not None:
        msg = f"{tool_name}: {describe_violation(error)}"
        raise ValueError(msg)
    return fitted


def undeclared(arguments: Iterable[str], names: Collection[str], schema: Schema) -> list[str]:
    """
    Return the names of arguments that a tool does not declare. Many servers drop such arguments silently.

    :param arguments: The names of the arguments.
    :param names: The names that the tool declares.
    :param schema: The result of `normalize_parameters`.
    :returns: The undeclared names; empty if the schema declares no arguments, or allows others.
    """
    takes_others = schema.get("additionalProperties", False) is not False or not _OPEN_KEYWORDS.isdisjoint(schema)
    known = {*names, *schema.get("required", ())}
    return [] if takes_others or not names else [name for name in arguments if name not in known]


def describe_violation(error: SchemaViolation) -> str:
    """
    Describe what is wrong with an argument, without its value.

    :param error: The error from jsonschema.
    :returns: A clause for an error message.
    """
    where = error.json_path.removeprefix("$").removeprefix(".")
    prefix = f"'{where}' " if where else ""
    wanted: Any = error.validator_value
    instance: Any = error.instance
    schema: Any = error.schema
    if error.validator == "required":
        missing = ", ".join(repr(name) for name in wanted if name not in instance)
        return f"{missing} missing in '{where}'" if where else f"{missing} missing"
    if error.validator == "type":
        return f"{prefix}must be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
    if error.validator == "const":
        return f"{prefix}must be {wanted!r}"
    if error.validator == "enum":
        return f"{prefix}must be one of {', '.join(map(repr, wanted))}"
    if error.validator == "additionalProperties":
        known = schema.get("properties", {})
        unknown = ", ".join(repr(name) for name in instance if name not in known)
        return f"{prefix}there is no argument {unknown[:100]} (there is: {', '.join(known) or 'none'})"
    if error.validator in ("anyOf", "oneOf"):
        return _describe_alternatives(error, prefix)
    return f"{prefix}violates '{error.validator}: {wanted}'"


def _describe_alternatives(error: SchemaViolation, prefix: str) -> str:
    alternatives: dict[Any, list[SchemaViolation]] = {}
    for each in error.context or ():
        alternatives.setdefault(each.schema_path[0], []).append(each)
    # The alternative that was meant is the only one of the value's type, and with its `const` (the discriminator).
    meant = [errors for errors in alternatives.values() if not any(map(_is_of_another_kind, errors))]
    if len(meant) == 1:
        return describe_violation(meant[0][0])
    kinds = [each for each in error.context or () if _is_of_another_kind(each) and each.validator_value != "null"]
    kinds = [each for each in kinds if each.validator == "const"] or kinds
    if not meant and len({each.json_path for each in kinds}) == 1:
        # Such as "'x' must be of type integer" and "'x' must be of type string".
        first, *others = dict.fromkeys(map(describe_violation, kinds))
        return " or ".join([first, *(each.rpartition(" must be ")[2] for each in others)])
    return f"{prefix}must be one of the allowed forms"


def _is_of_another_kind(error: SchemaViolation) -> bool:
    return (error.validator, len(error.path)) in (("type", 0), ("const", 1))


def _is_nothing(value: Any, schema: Any, root: Schema) -> bool:
    """
    Return whether a value means that the argument is left out: null, or a word for it, where the schema allows neither.
    """
    if value is not None and not (isinstance(value, str) and value in ("null", "None", "")):
        return False
    types = types_of(schema, root)
    if value is None:  # `nullable` is OpenAPI's keyword
        return "null" not in types and dereferenced(schema, root).get("nullable") is not True
    # Where null is allowed, the text "null" is parsed as null.
    return "string" not in types and not (value == "null" and "null" in types)


def _fit(value: Any, schema: Any, root: Schema) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if type(schema) is dict and schema.get("type") == "string":
            return value
        types = types_of(schema, root)
        value = value if "string" in types else _parse(value, types)
    elif isinstance(value, float) and value.is_integer():
        types = types_of(schema, root)
        return int(value) if "integer" in types and "number" not in types else value
    if isinstance(value, Mapping):
        shapes = _shapes(schema, root, "properties")
        return fit_arguments(value, shapes[0], root) if len(shapes) == 1 else value
    if isinstance(value, list):
        shapes = _shapes(schema, root, "items")
        if len(shapes) != 1:
            return value
        first, rest = shapes[0].get("prefixItems", ()), shapes[0].get("items")
        return [_fit(each, first[index] if index < len(first) else rest, root) for index, each in enumerate(value)]
    return value


def _parse(text: str, types: frozenset[str]) -> Any:
    """
    Parse a text as JSON if the value has one of the types; otherwise return the text.
    """
    try:
        value = json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float):
        if not isfinite(value):
            return text
        if "number" not in types and value.is_integer():
            value = int(value)
    kind = _TYPE_NAMES.get(type(value))
    return value if kind in types or (kind == "integer" and "number" in types) else text


def _shapes(schema: Any, root: Schema, keyword: str) -> list[Schema]:
    """
    Return the alternatives of a schema that use a keyword, or that accept such values with any content.
    """
    found: dict[int, Schema] = {}
    kind = "object" if keyword == "properties" else "array"
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        each = dereferenced(waiting.pop(), root)
        if id(each) in seen:
            continue
        seen.add(id(each))
        if keyword in each:
            found[id(each)] = each
        else:
            options = [dereferenced(option, root) for key in ("anyOf", "oneOf") for option in each.get(key, ())]
            others = [option for option in options if _COMPOSED.isdisjoint(option) and keyword not in option]
            found |= {id(option): option for option in others if kind in types_of(option, root)}
        for key in _COMPOSED:
            waiting += each.get(key, ())
    return list(found.values())


def at_pointer(node: Any, pointer: str) -> Any:
    """
    Follow a JSON pointer in a URI fragment.

    :param node: The document.
    :param pointer: The fragment, without `#`.
    :returns: The value at that place; None if there is none.
    """
    for part in pointer.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(key)] if key.isdecimal() and int(key) < len(node) else None
        elif isinstance(node, dict):
            node = node.get(key, node.get(part))
        else:
            return None
    return node


def dereferenced(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Follow the references of a schema within its document.

    :param schema: The schema.
    :param root: The document.
    :returns: The schema that it refers to; an empty schema if that cannot be found.
    """
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = at_pointer(root, reference[1:]) if reference.startswith("#") else None
    return {}


def types_of(schema: Any, root: Mapping[str, Any], known: dict[int, frozenset[str]] | None = None) -> frozenset[str]:
    """
    Return the JSON types that a schema allows.

    :param schema: The schema.
    :param root: The document that contains it.
    :param known: Types found already, by `id` of their schema.
    :returns: Names of types; all if the schema does not restrict them.
    """
    known = {} if known is None else known
    schema = dereferenced(schema, root)
    if id(schema) not in known:
        known[id(schema)] = _ALL_TYPES  # the value used if the schema contains itself
        known[id(schema)] = _own_types(schema, root, known)
    return known[id(schema)]


def _own_types(schema: Schema, root: Schema, known: dict[int, frozenset[str]]) -> frozenset[str]:
    named = schema.get("type")
    if isinstance(named, str | list):
        return frozenset([named] if isinstance(named, str) else named)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            options = [types_of(option, root, known) for option in schema[key]]
            return _ALL_TYPES.intersection(*options) if key == "allOf" else frozenset().union(*options)
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return frozenset(_TYPE_NAMES[type(value)] for value in values) or _ALL_TYPES
