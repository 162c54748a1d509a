# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Arguments on a command line, typed and checked by a JSON schema.

.. code-block:: text

    name=text        a value of the type in the schema: 5 is a number where a number is wanted, and a text elsewhere
    name=a name=b    a list
    name:=JSON       any value, as JSON
    name@FILE        the content of a file, of the type in the schema; `-` is stdin
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from haystack_integrations.tools.mcp.cli.output import CommandError
from haystack_integrations.tools.mcp.convert.arguments import (
    describe_violation,
    fit_arguments,
    resolved,
    undeclared,
)
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters

_WORD = re.compile(r"(?P<name>[^=]+?)(?P<kind>:=|=|@)(?P<value>.*)", re.DOTALL)

_BOOLEANS = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}

# So many characters of a word that cannot be read are shown: what was meant as a value may be a secret.
_HINT = 3

# How deep and how wide a schema is described.
_DEEPEST, _WIDEST = 3, 8


def typed_arguments(words: Iterable[str], given: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the arguments of a call.

    :param words: Such as `name=value`.
    :param given: JSON with further arguments, `@FILE` or `-` for stdin. The words take precedence.
    :param schema: The schema of the arguments.
    :returns: The arguments, which may still not fit the schema.
    :raises CommandError: If a word is not of this form, or cannot be read.
    """
    arguments = {} if given is None else _given(given)
    texts: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for word in words:
        name, kind, text = _split(word, signature(schema))
        if kind == ":=":
            values[name] = _json(text, f"The argument '{name}'")
        else:
            texts.setdefault(name, []).append(text)
    return {**arguments, **values, **{name: typed(name, each, schema) for name, each in texts.items()}}


def text_arguments(words: Iterable[str]) -> dict[str, str]:
    """
    Return arguments that are all texts, such as those of a prompt.

    :param words: Such as `name=value` or `name@FILE`.
    :returns: The arguments.
    :raises CommandError: If a word is not of this form.
    """
    return {name: text for name, _, text in map(_split, words)}


def _split(word: str, takes: str = "") -> tuple[str, str, str]:
    match = _WORD.fullmatch(word)
    if match is None:
        shown = word if len(word) <= _HINT else f"{word[:_HINT]}…"
        msg = f"An argument is given as name=value, name:=JSON or name@FILE; '{shown}' is none of these"
        msg += f". The tool takes {takes}" if takes else ""
        raise CommandError(msg)
    value = match["value"]
    return match["name"], match["kind"], _content(value, word) if match["kind"] == "@" else value


def _content(file: str, word: str) -> str:
    try:
        # As it is, with its ends of lines.
        return sys.stdin.read() if file == "-" else Path(file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        msg = f"The file of '{word}' cannot be read: it is not in UTF-8"
        raise CommandError(msg) from None


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        msg = f"{what} is not valid JSON: {error}"
        raise CommandError(msg) from None


def _given(text: str) -> dict[str, Any]:
    if text == "-" or text.startswith("@"):
        text = _content(text.removeprefix("@"), f"--input {text}")
    arguments = _json(text, "--input")
    if not isinstance(arguments, dict):
        msg = f"--input must be a JSON object with the arguments, got a {type(arguments).__name__}"
        raise CommandError(msg)
    return arguments


def typed(name: str, texts: list[str], schema: Mapping[str, Any]) -> Any:
    """
    Return the value of an argument with the type that a schema wants.

    :param name: The name of the argument.
    :param texts: Several make a list.
    :param schema: The schema of all arguments.
    :returns: The first of these that fits: the text as JSON, the text itself, yes or no, a list of what there is. If
        none does, the first.
    """
    values = [_value(text) for text in texts]
    lists = [item for value in values for item in (value if isinstance(value, list) else [value])]
    readings: list[Any] = [lists, texts]
    if len(texts) == 1:
        readings = [values[0], texts[0], _BOOLEANS.get(texts[0].lower(), values[0]), lists, texts]
    return next((each for each in readings if _fits(name, each, schema)), readings[0])


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)  # JSON has no NaN, which would be sent as null
    except ValueError:
        return text


def _fits(name: str, value: Any, schema: Mapping[str, Any]) -> bool:
    return not any(list(error.absolute_path)[:1] == [name] for error in _errors({name: value}, schema))


def _errors(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[ValidationError]:
    validator = validator_for(schema, default=Draft202012Validator)
    try:
        validator.check_schema(dict(schema))
        # With an empty registry, nothing is fetched that the schema refers to.
        return list(validator(dict(schema), registry=Registry()).iter_errors(dict(arguments)))
    except (SchemaError, Unresolvable, RecursionError):
        return []  # the server will check


def check_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any], what: str) -> None:
    """
    Check arguments against their schema.

    :param arguments: The arguments.
    :param schema: The schema.
    :param what: What they are for, for the message.
    :raises CommandError: If they do not fit. The message names the argument, and no value.
    """
    reason = problem_with(arguments, schema)
    if reason is not None:
        msg = f"{what}: {reason}. It takes {signature(schema) or 'no arguments'}"
        raise CommandError(msg)


def sent_arguments(arguments: dict[str, Any], schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """
    Return what is sent of arguments that fit their schema.

    :param arguments: The arguments.
    :param schema: The schema.
    :returns: The arguments, in which 5.0 is 5 where the schema wants an integer, and the names that the tool does not
        have.
    """
    try:
        usable = normalize_parameters(schema)
    except ValueError:
        return arguments, []  # the server will check
    return fit_arguments(arguments, usable), undeclared(arguments, usable["properties"], usable)


def problem_with(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """
    Return why arguments do not fit their schema, without their values.
    """
    error = best_match(_errors(arguments, schema))
    return None if error is None else describe_violation(error)


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """
    Return the schemas of all arguments by name.
    """
    properties = resolved(schema, schema).get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {str(name): each if isinstance(each, Mapping) else {} for name, each in known.items()}


def required_in(schema: Mapping[str, Any]) -> list[str]:
    """
    Return the names of the arguments that a call must have.
    """
    required = resolved(schema, schema).get("required")
    return [str(name) for name in required] if isinstance(required, list) else []


def describe_type(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """
    Describe in a few words what a schema allows.

    :param schema: The schema.
    :param root: The document that it is in.
    :param depth: How deep the schema is in another one.
    :returns: Such as `integer`, `"a" | "b"`, `list of string` or `object`.
    """
    schema = resolved(schema, root)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list):
        return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        described = [describe_type(each, root, depth + 1) for each in options[:_WIDEST]] if depth < _DEEPEST else []
        return " | ".join(dict.fromkeys(described)) or "any"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {describe_type(schema.get('items'), root, depth + 1)}" if depth < _DEEPEST else "list"
    kinds = [kind] if isinstance(kind, str) else list(kind)
    return " | ".join("list" if each == "array" else str(each) for each in kinds)


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
        if each.get("default") is not None:
            parts.append(f"{name}: {described} = {json.dumps(each['default'], ensure_ascii=False)}")
        else:
            parts.append(f"{name}{'' if name in required else '?'}: {described}")
    return ", ".join(parts)
