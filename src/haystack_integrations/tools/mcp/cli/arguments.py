# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Arguments on a command line, typed by a JSON schema.

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

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.schemas import property_of
from haystack_integrations.tools.mcp.convert.schema_types import ALL_TYPES, choices_of, resolved, type_of, types_of

_WORD = re.compile(r"(?P<name>[^=]+?)(?P<kind>:=|=|@)(?P<value>.*)", re.DOTALL)

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})

# So many characters of a word that cannot be read are shown: what was meant as a value may be a secret.
_HINT = 3


def typed_arguments(words: Iterable[str], given: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """
    Make the arguments of a call.

    :param words: Such as `name=value`.
    :param given: JSON with further arguments, `@FILE` or `-` for stdin. The words take precedence.
    :param schema: The schema of the arguments.
    :returns: The arguments.
    :raises CommandError: If a word is not of this form, or a value not of the type in the schema.
    """
    arguments = {} if given is None else _given(given)
    collected: dict[str, list[Any]] = {}
    for word in words:
        name, value = _argument(word, schema)
        collected.setdefault(name, []).append(value)
    for name, values in collected.items():
        if len(values) == 1:
            arguments[name] = values[0]
            continue
        if "array" not in types_of(property_of(schema, name), schema):
            msg = f"The argument '{name}' is given {len(values)} times, but is no list"
            raise CommandError(msg)
        arguments[name] = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return arguments


def text_arguments(words: Iterable[str]) -> dict[str, str]:
    """
    Make arguments that are all texts, such as those of a prompt.

    :param words: Such as `name=value` or `name@FILE`.
    :returns: The arguments.
    :raises CommandError: If a word is not of this form.
    """
    arguments = {}
    for word in words:
        name, kind, value = _split(word)
        arguments[name] = _content(value, word) if kind == "@" else value
    return arguments


def _split(word: str) -> tuple[str, str, str]:
    match = _WORD.fullmatch(word)
    if match is None:
        shown = word if len(word) <= _HINT else f"{word[:_HINT]}…"
        msg = f"An argument is given as name=value, name:=JSON or name@FILE; '{shown}' is none of these"
        raise CommandError(msg)
    return match["name"], match["kind"], match["value"]


def _argument(word: str, schema: Mapping[str, Any]) -> tuple[str, Any]:
    name, kind, text = _split(word)
    if kind == ":=":
        return name, _json(text, f"The argument '{name}'")
    if kind == "@":
        text = _content(text, word)
    return name, typed(text, property_of(schema, name), schema, name)


def _content(file: str, word: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        msg = f"The file of '{word}' cannot be read: {reason}"
        raise CommandError(msg) from None


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} in line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error)
    msg = f"{what} is not valid JSON: {reason}"
    raise CommandError(msg)


def _refuse(constant: str) -> Any:
    # Python would read these, and no server could.
    msg = f"{constant} is no number in JSON"
    raise ValueError(msg)


def _given(text: str) -> dict[str, Any]:
    if text == "-" or text.startswith("@"):
        text = _content(text.removeprefix("@"), f"--input {text}")
    arguments = _json(text, "--input")
    if not isinstance(arguments, dict):
        msg = f"--input must be a JSON object with the arguments, got a {type(arguments).__name__}"
        raise CommandError(msg)
    return arguments


def typed(text: str, schema: Any, root: Mapping[str, Any], name: str) -> Any:
    """
    Give a text the type that a schema wants.

    :param text: The text.
    :param schema: The schema.
    :param root: The document that it is in.
    :param name: What the value is called, for the message.
    :returns: The value. Where a schema allows several types, a text stays one only if it is none of the others.
    :raises CommandError: If it cannot have such a type.
    """
    schema = resolved(schema, root)
    for choice in choices_of(schema):
        if text == (choice if isinstance(choice, str) else json.dumps(choice)):
            return choice
    kinds = types_of(schema, root)
    for kind in ALL_TYPES:
        if kind in kinds and kind != "string":
            found, value = _converted(text, kind, is_only=kinds <= {kind, "null"})
            if found:
                return value
    if "string" in kinds:
        return text
    if "array" in kinds:
        return [typed(text, _items(schema, root), root, name)]
    wanted = " or ".join(kind for kind in ALL_TYPES if kind in kinds) or "no type at all"
    msg = f"The argument '{name}' must be of type {wanted}"
    if "object" in kinds:
        msg += f"; give it as JSON: {name}:='{{…}}'"
    raise CommandError(msg)


def _items(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    options = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    lists = [option for option in (resolved(each, root) for each in options) if "items" in option]
    return lists[0]["items"] if lists else True


def _converted(text: str, kind: str, *, is_only: bool) -> tuple[bool, Any]:
    """
    Read a text as a value of a type; tell whether it is one, and which.
    """
    if kind == "boolean" and is_only:
        return text.lower() in _TRUE | _FALSE, text.lower() in _TRUE
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False, None
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return True, int(value)
    return type_of(value) == kind or (kind == "number" and type_of(value) == "integer"), value
