# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What JSON schemas say, as far as a command line needs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.convert.schema_types import ALL_TYPES, choices_of, resolved, types_of

_DEEPEST = 4


def property_of(schema: Mapping[str, Any], name: str) -> Any:
    """
    Give the schema of an argument.

    :param schema: The schema of all.
    :param name: Name of the argument.
    :returns: Its schema; True, which allows everything, if there is none.
    """
    return properties_of(schema).get(name, True)


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Give the schemas of all arguments.

    :param schema: The schema of all.
    :returns: The schemas by name.
    """
    properties = resolved(schema, schema).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def required_in(schema: Mapping[str, Any]) -> list[str]:
    """
    Name the arguments that a call must have.

    :param schema: The schema of all.
    :returns: Their names.
    """
    required = resolved(schema, schema).get("required")
    return [str(name) for name in required] if isinstance(required, list) else []


def describe_type(schema: Any, root: Mapping[str, Any]) -> str:
    """
    Describe in a few words what a schema allows.

    :param schema: The schema.
    :param root: The document that it is in.
    :returns: Such as `integer`, `"a" | "b"`, `list of string` or `object`.
    """
    return " | ".join(_alternatives(schema, root, 0, {}))


def _alternatives(schema: Any, root: Mapping[str, Any], depth: int, known: dict[int, list[str]]) -> list[str]:
    schema = resolved(schema, root)
    if id(schema) not in known:
        known[id(schema)] = ["any"]  # for a schema within itself
        known[id(schema)] = _described(schema, root, depth, known)
    return known[id(schema)]


def _described(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, known: dict[int, list[str]]
) -> list[str]:
    if choices := choices_of(schema):
        return [json.dumps(choice, ensure_ascii=False) for choice in choices]
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and depth < _DEEPEST:
            options = (_alternatives(option, root, depth + 1, known) for option in schema[key])
            return list(dict.fromkeys(alternative for option in options for alternative in option))
    types = types_of(schema, root)
    if types == set(ALL_TYPES):
        return ["any"]
    if types == {"array"} and depth < _DEEPEST:
        items = _alternatives(schema.get("items", True), root, depth + 1, known)
        return [f"list of {' | '.join(items)}"]
    return ["list" if kind == "array" else kind for kind in ALL_TYPES if kind in types] or ["nothing"]


def signature(schema: Mapping[str, Any]) -> str:
    """
    Write the arguments of a tool in a line.

    :param schema: Their schema.
    :returns: Such as `query: string, limit: integer = 10, tags?: list of string`.
    """
    required = required_in(schema)
    parts = []
    for name, each in properties_of(schema).items():
        described = describe_type(each, schema)
        has_default = isinstance(each, Mapping) and each.get("default") is not None
        if has_default:
            parts.append(f"{name}: {described} = {json.dumps(each['default'], ensure_ascii=False)}")
        else:
            parts.append(f"{name}{'' if name in required else '?'}: {described}")
    return ", ".join(parts)


def check_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any], what: str) -> None:
    """
    Check arguments against their schema.

    :param arguments: The arguments.
    :param schema: The schema.
    :param what: What they are for, for the message.
    :raises CommandError: If they do not fit. The message names the argument, and no value.
    """
    validator = validator_for(schema, default=Draft202012Validator)
    try:
        validator.check_schema(dict(schema))
        # With an empty registry, nothing is fetched that the schema refers to.
        error = best_match(validator(dict(schema), registry=Registry()).iter_errors(dict(arguments)))
    except (SchemaError, Unresolvable):
        return  # the server will check
    if error is not None:
        takes = signature(schema)
        msg = f"{what}: {_explain(error)}. It takes {takes or 'no arguments'}"
        raise CommandError(msg)


def _explain(error: ValidationError) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    subject = f"'{place}'" if place else "the arguments"
    limit: Any = error.validator_value
    instance: Any = error.instance
    match error.validator:
        case "required":
            absent = ", ".join(repr(name) for name in limit if name not in instance)
            known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
            unknown = ", ".join(repr(name) for name in instance if name not in known)
            said = f", but {'has' if place else 'have'} {unknown}" if unknown else ""
            return f"{subject} lack{'s' if place else ''} {absent}{said}"
        case "type":
            return f"{subject} must be of type {' or '.join(limit) if isinstance(limit, list) else limit}"
        case "enum":
            return f"{subject} must be one of {', '.join(json.dumps(value) for value in limit)}"
        case "additionalProperties":
            known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
            unknown = ", ".join(repr(name) for name in instance if name not in known)
            return f"{subject} must not have {unknown}"
    shown = json.dumps(limit) if isinstance(limit, (str, int, float, bool)) else "see its schema"
    return f"{subject} must satisfy {error.validator}: {shown}"
