# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Checks the arguments of a call against the schema that the client saw, and converts them to the types of the function.

Nothing that a client sent is quoted in a message: it goes to logs, too.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache
from math import isfinite
from typing import Any, Final

from fastmcp.exceptions import ToolError
from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators
from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticValidationError
from referencing import Registry

WRAP_RESULT: Final = "x-fastmcp-wrap-result"

_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "off", "f", "false", "n", "no"})
_ALTERNATIVES: Final = ("anyOf", "oneOf")
# Where a schema may say more of an object than in `properties`.
_NAMING: Final = frozenset(
    {
        *_ALTERNATIVES,
        *("allOf", "if", "then", "else", "dependentSchemas", "dependencies"),
        *("$ref", "$dynamicRef", "propertyNames", "unevaluatedProperties"),
    }
)
# Python would take "nan", "1_0" and the digits of other scripts, too.
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
# Longer texts are no numbers: reading one must not take long.
_LONGEST_NUMBER: Final = 400
_NUMBERS: Final = frozenset({"integer", "number"})
# More of a name that a client made up is not repeated to it, and no more names and reasons.
_MOST_OF_A_NAME, _MOST_OF_A_PATH, _MOST_REASONS = 50, 200, 10

# What pydantic writes into schemas, and reads.
_FORMATS: Final[dict[str, Any]] = {
    "date": dt.date,
    "date-time": dt.datetime,
    "duration": dt.timedelta,
    "time": dt.time,
    "uuid": uuid.UUID,
}


@cache
def _format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, kind in _FORMATS.items():
        checker.checks(name, PydanticValidationError)(_reader(TypeAdapter(kind)))
    return checker


def _reader(adapter: TypeAdapter[Any]) -> Any:
    def can_be_read(value: Any) -> bool:
        if isinstance(value, str):
            adapter.validate_python(value)
        return True

    return can_be_read


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # One in another dialect (of JavaScript, of pydantic) cannot be checked here; whoever wrote it does.
    with suppress(re.error):
        yield from Draft202012Validator.VALIDATORS["pattern"](validator, pattern, instance, schema)


_extend: Any = validators.extend  # which has no annotations
_Validator = _extend(Draft202012Validator, {"pattern": _pattern})


# Values that are told by their class, and what may be said of them that excludes none.
_PLAIN: Final[dict[Any, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    None: (str, int, float, bool),
}
_PLAIN_KEYWORDS: Final = frozenset({"type", "title", "description", "default", "examples"})
_PLAIN_OBJECT_KEYWORDS: Final = _PLAIN_KEYWORDS | {"properties", "required", "additionalProperties", WRAP_RESULT}


class PlainFields:
    """
    Tells of most objects at once that they conform to a schema: those with nothing but simple values.

    Validation of one takes as long as the rest of a call that does next to nothing.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        """
        Initialize the PlainFields.

        :param schema: JSON schema of an object.
        """
        self._is_plain = schema.get("type") == "object" and _PLAIN_OBJECT_KEYWORDS.issuperset(schema)
        self._required = set(schema.get("required", ()))
        self._classes = {
            name: _PLAIN[each.get("type")]
            for name, each in schema.get("properties", {}).items()
            if isinstance(each, dict) and each.get("type") in [*_PLAIN] and _PLAIN_KEYWORDS.issuperset(each)
        }

    def fit(self, value: dict[str, Any]) -> bool:
        """
        Tell whether an object is known to conform.

        :param value: The object.
        :returns: False if it has to be validated.
        """
        for name, each in value.items():
            kind = type(each)
            if kind not in self._classes.get(name, ()) or (kind is float and not isfinite(each)):
                return False
        return self._is_plain and self._required <= value.keys()


def invalid_arguments(tool_name: str, reasons: Iterable[str]) -> ToolError:
    """
    Make the error for arguments that cannot be used.

    :param tool_name: The name of the tool.
    :param reasons: What is wrong, without values.
    :returns: The error, which the client gets to see.
    """
    found = list(dict.fromkeys(reasons))
    if len(found) > _MOST_REASONS:
        found[_MOST_REASONS:] = [f"and {len(found) - _MOST_REASONS} more"]
    msg = f"Invalid arguments for tool '{tool_name}': {'; '.join(found)}"
    return ToolError(msg, log_level=logging.WARNING)


class ArgumentCheck:
    """
    Checks the arguments of one tool.
    """

    def __init__(self, tool_name: str, parameters: dict[str, Any]) -> None:
        """
        Initialize the ArgumentCheck.

        :param tool_name: The name of the tool, for messages.
        :param parameters: JSON schema of the arguments.
        """
        self._tool_name = tool_name
        self._schema = parameters
        self._plain_fields = PlainFields(parameters)
        self._validator = _Validator(parameters, format_checker=_format_checker(), registry=Registry())

    def check(self, arguments: dict[str, Any], *, strict: bool) -> dict[str, Any]:
        """
        Check arguments.

        :param arguments: The client's arguments.
        :param strict: Whether values of another type are refused, even if they can be read as the right one.
        :returns: The arguments, of the right types.
        :raises ToolError: If they do not conform to the schema.
        """
        if self._plain_fields.fit(arguments):
            return arguments
        self._refuse_unknown(arguments)
        arguments = self._coerce(arguments, self._schema, strict=strict)
        errors = self._errors(arguments)
        if errors:
            raise invalid_arguments(self._tool_name, map(_describe, errors))
        return arguments

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """
        Check arguments for a function that checks them itself, and may read texts in ways that the schema does not say.

        :param arguments: The client's arguments.
        :returns: The arguments. Texts are numbers and booleans where the schema wants those; texts that cannot be read
            as what the schema wants are left as they are, for the function to read or refuse.
        :raises ToolError: If anything else does not conform to the schema, or if there are texts where it wants numbers
            that only Python takes for numbers.
        """
        if self._plain_fields.fit(arguments):
            return arguments
        self._refuse_unknown(arguments)
        arguments = self._coerce(arguments, self._schema, strict=False)
        errors = [
            error for error in self._errors(arguments) if self._has_number_of_python(error) or not _is_of_texts(error)
        ]
        if errors:
            raise invalid_arguments(self._tool_name, map(_describe, errors))
        return arguments

    def _has_number_of_python(self, error: ValidationError) -> bool:
        # Pydantic would read them, too.
        return any(_is_number_of_python(part.instance) and self._is_for_numbers(part.schema) for part in _parts(error))

    def _errors(self, arguments: dict[str, Any]) -> list[ValidationError]:
        found = _find_non_number(arguments)
        if found is not None:
            # It would pass any comparison.
            raise invalid_arguments(self._tool_name, [f"'{shortened(found[1:])}' must be a finite number"])
        try:
            return sorted(self._validator.iter_errors(arguments), key=lambda error: list(map(str, error.absolute_path)))
        except OverflowError:
            raise invalid_arguments(self._tool_name, ["a number is too large"]) from None

    def _is_for_numbers(self, schema: Any) -> bool:
        kinds = self._kinds(schema)
        return bool(kinds & _NUMBERS) and kinds <= _NUMBERS | {"null"}

    def _kinds(self, schema: Any) -> set[str]:
        schema = self._resolved(schema)
        if not isinstance(schema, dict):
            return {"any"}
        for keyword in _ALTERNATIVES:
            if keyword in schema:
                return {kind for each in schema[keyword] for kind in self._kinds(each)}
        return set(_kinds_of(schema)) or {"any"}

    def _refuse_unknown(self, arguments: dict[str, Any]) -> None:
        if _may_have_other_names(self._schema):
            return
        known = dict.fromkeys([*self._schema.get("properties", {}), *self._schema.get("required", [])])
        unknown = [name for name in arguments if name not in known]
        if unknown:
            there_is = ", ".join(known) or "none"
            reasons = (f"there is no argument {name[:_MOST_OF_A_NAME]!r} (there is: {there_is})" for name in unknown)
            raise invalid_arguments(self._tool_name, reasons)

    def _coerce(self, value: Any, schema: Any, *, strict: bool) -> Any:
        """
        Read a value as what the schema wants.

        Texts are read as numbers and booleans, and texts of JSON as objects and lists, unless that is strict. A number
        like 1.0 is an integer, in JSON schema.
        """
        schema = self._resolved(schema)
        if not isinstance(schema, dict):
            return value
        for each in schema.get("allOf", ()):
            value = self._coerce(value, each, strict=strict)
        for keyword in _ALTERNATIVES:
            if keyword in schema:
                value = self._coerce_to_one_of(value, schema[keyword], strict=strict)
        kinds = _kinds_of(schema)
        if isinstance(value, str) and not strict and "string" not in kinds:
            value = _parsed(value, kinds)
        if isinstance(value, dict):
            properties, others = schema.get("properties", {}), schema.get("additionalProperties")
            return {
                name: self._coerce(each, properties.get(name, others), strict=strict) for name, each in value.items()
            }
        if isinstance(value, list):
            first = schema.get("prefixItems") or []
            items = [*first, *[schema.get("items")] * (len(value) - len(first))]
            return [self._coerce(each, item, strict=strict) for each, item in zip(value, items, strict=False)]
        if isinstance(value, float) and value.is_integer() and "integer" in kinds and "number" not in kinds:
            return int(value)
        if strict or (isinstance(value, str) and "string" in kinds):
            return value
        found = (_read(value, kind) for kind in kinds)
        return next((read for read in found if read is not None), value)

    def _coerce_to_one_of(self, value: Any, alternatives: list[Any], *, strict: bool) -> Any:
        for each in alternatives:
            if self._is_valid(value, each):
                return self._coerce(value, each, strict=True)
        for each in alternatives:
            coerced = self._coerce(value, each, strict=strict)
            if self._is_valid(coerced, each):
                return coerced
        return value

    def _is_valid(self, value: Any, schema: Any) -> bool:
        try:
            return next(self._validator.descend(value, schema), None) is None
        except OverflowError:
            return False

    def _resolved(self, schema: Any) -> Any:
        # References of a schema that the server itself made are to its own definitions.
        for _ in range(10):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                return schema
            target: Any = self._schema
            for key in reference[2:].split("/"):
                target = target.get(key) if isinstance(target, dict) else None
            schema = target
        return None


def _parsed(text: str, kinds: Collection[str]) -> Any:
    """Read a text of JSON, which models send for objects and lists, if one of those is wanted."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
        if (isinstance(value, dict) and "object" in kinds) or (isinstance(value, list) and "array" in kinds):
            return value
    return text


def _read(value: Any, kind: str) -> Any:
    """Read a value as one of another type; None if that cannot be done."""
    if kind in ("integer", "number"):
        return _read_number(value, kind)
    if kind == "boolean" and not isinstance(value, bool):
        text = value.strip().lower() if isinstance(value, str) else str(value) if isinstance(value, int) else ""
        return True if text in _TRUE else False if text in _FALSE else None
    return None


def _read_number(value: Any, kind: str) -> int | float | None:
    text = value.strip() if isinstance(value, str) else ""
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    if not isfinite(number):
        return None
    exact = Fraction(text)
    if exact.denominator == 1 and (kind == "integer" or text.lstrip("+-").isdecimal()):
        return int(exact)
    return number if kind == "number" else None


def _is_number_of_python(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _may_have_other_names(schema: dict[str, Any]) -> bool:
    """
    Tell whether a schema may know arguments beside its `properties`, so that only validation finds unknown ones.
    """
    if "patternProperties" in schema:
        return True
    others = schema.get("additionalProperties")
    if others is not None:
        return others is not False
    return "properties" not in schema or not _NAMING.isdisjoint(schema)


def _kinds_of(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type")
    return [kinds] if isinstance(kinds, str) else list(kinds or [])


def _parts(error: ValidationError) -> Iterator[ValidationError]:
    yield error
    for each in error.context or ():
        yield from _parts(each)


def _is_of_texts(error: ValidationError) -> bool:
    """Tell whether nothing is wrong but texts where other types are wanted, at least in one of the alternatives."""
    if error.validator not in _ALTERNATIVES or not error.context:
        return error.validator == "type" and isinstance(error.instance, str)
    alternatives: dict[Any, list[ValidationError]] = {}
    for each in error.context:
        alternatives.setdefault(each.relative_schema_path[0], []).append(each)
    return any(all(map(_is_of_texts, errors)) for errors in alternatives.values())


def _find_non_number(value: Any) -> str | None:
    """Find NaN or an infinity, which some clients send, though they are not JSON. Gives the path to it."""
    if isinstance(value, float):
        return None if isfinite(value) else ""
    if isinstance(value, dict):
        parts: Iterable[tuple[str, Any]] = ((f".{name}", each) for name, each in value.items())
    elif isinstance(value, list):
        parts = ((f"[{number}]", each) for number, each in enumerate(value))
    else:
        return None
    for name, each in parts:
        found = _find_non_number(each)
        if found is not None:
            return name + found
    return None


def shortened(path: str) -> str:
    """
    Cut the path to an argument, of which a client may have made up a part.

    :param path: The path.
    :returns: The path, or its beginning.
    """
    return path if len(path) <= _MOST_OF_A_PATH else f"{path[:_MOST_OF_A_PATH]}..."


def _describe(error: ValidationError) -> str:
    """Say what is wrong with an argument, without its value."""
    where = shortened(error.json_path.removeprefix("$").removeprefix("."))
    prefix = f"'{where}' " if where else ""
    wanted: Any = error.validator_value
    instance: Any = error.instance
    if error.validator == "required":
        missing = ", ".join(repr(name) for name in wanted if name not in instance)
        return f"{missing} missing in '{where}'" if where else f"{missing} missing"
    if error.validator == "type":
        return f"{prefix}must be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
    if error.validator == "enum":
        return f"{prefix}must be one of {', '.join(map(repr, wanted))}"
    if error.validator == "const":
        return f"{prefix}must be {wanted!r}"
    if error.validator == "format":
        return f"{prefix}must be a valid {wanted}"
    if error.validator == "additionalProperties":
        return f"{prefix}has properties that do not exist"
    if error.validator in _ALTERNATIVES:
        # Of an optional argument, what is wrong with the only alternative to null.
        others = [each for each in error.context or () if each.validator != "type" or each.validator_value != "null"]
        if len({each.absolute_schema_path[-2] for each in others}) == 1:
            return _describe(others[0])
        return f"{prefix}must be one of the allowed forms"
    return f"{prefix}violates '{error.validator}: {wanted}'"


def only(parameters: dict[str, Any], names: Sequence[str], tool_name: str) -> dict[str, Any]:
    """
    Keep some arguments.

    :param parameters: JSON schema of the arguments.
    :param names: The names of those that are kept.
    :param tool_name: The name of the tool, for messages.
    :returns: JSON schema of them.
    :raises ValueError: If there is none of that name.
    """
    properties = parameters.get("properties", {})
    unknown = [name for name in names if name not in properties]
    if unknown:
        msg = (
            f"Tool '{tool_name}' has no {', '.join(map(repr, unknown))}, which `inputs` name. "
            f"There is {', '.join(properties) or 'none'}."
        )
        raise ValueError(msg)
    kept = without(parameters, [name for name in properties if name not in names])
    if _may_have_other_names(kept):
        # Or clients could set those that they do not see.
        kept = {**kept, "additionalProperties": False}
        kept.pop("patternProperties", None)
    return kept


def without(parameters: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """
    Remove arguments that clients must not see.

    :param parameters: JSON schema of the arguments.
    :param names: The names of the arguments.
    :returns: JSON schema of the others.
    """
    properties = parameters.get("properties", {})
    if not names or not any(name in properties for name in names):
        return parameters
    left = {**parameters, "properties": {name: each for name, each in properties.items() if name not in names}}
    if "required" in parameters:
        left["required"] = [name for name in parameters["required"] if name not in names]
    return left
