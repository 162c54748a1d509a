# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Validates results against the output schemas of their tools, for a limited time.

Both schema and result come from the server, and nothing about them tells how long a validation takes: nested
alternatives alone double it at every level. So jsonschema looks at the clock here for each schema that it comes to.
Keywords that it may evaluate for any length of time in between are replaced:

* regular expressions (`pattern`, `patternProperties`, and `additionalProperties` beside it) are not evaluated,
* nor are `unevaluatedProperties` and `unevaluatedItems`, which collect lists of any length,
* `uniqueItems` does not compare every item with every other one.

What is not evaluated accepts everything. A schema that may reject a result for that, e.g. by a `not`, is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import inf
from time import perf_counter
from typing import Any, Final

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

from haystack_integrations.tools.mcp.convert.tool_schemas import subschemas

_MAX_QUOTED: Final = 200

# Keywords that accept less if a schema below them accepts more.
_STRICT: Final = frozenset("contains disallow if not oneOf".split())

_Errors = Iterable[ValidationError]
_Keyword = Callable[[Any, Any, Any, Any], _Errors]

# When the validation that runs in this thread is cut off.
_deadline: Final[ContextVar[float]] = ContextVar("deadline", default=inf)


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What came of a validation; a result is valid if nothing of this is set.

    :param violation: Where the result violates the schema. It quotes no value.
    :param cut_off: Whether the time did not suffice.
    :param undecided: Why no result is validated against the schema, although it is a right one.
    :param unusable: Why no result can be validated against the schema.
    """

    violation: str | None = None
    cut_off: bool = False
    undecided: str | None = None
    unusable: str | None = None


_VALID: Final = Verdict()
_TOO_DEEP: Final = Verdict(unusable="the schema, or a result, is nested too deeply")


class _CutOffError(Exception):
    """Raised when the time is up."""


class _InvalidSchemaError(Exception):
    """Raised when a schema violates the metaschema of its draft."""


class _UndecidedError(Exception):
    """Raised when what is not evaluated may decide whether a result is valid."""


class OutputSchema:
    """
    The output schema of a tool. Nothing is done with it before the first result.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        """
        Initialize the OutputSchema.

        :param schema: The schema from the tool's definition, in any draft; it may be invalid.
        """
        self._schema = schema
        self._validator: Any = None

    def validate(self, value: Any, seconds: float) -> Verdict:
        """
        Validate a result. From any thread.

        :param value: The structured content of the result.
        :param seconds: The time it may take.
        :returns: What came of it.
        """
        _deadline.set(perf_counter() + seconds)
        try:
            if self._validator is None:
                self._validator = _build(self._schema)
            error = next(self._validator.iter_errors(value), None)
        except _CutOffError:
            return Verdict(cut_off=True)
        except _UndecidedError as undecided:
            return Verdict(undecided=str(undecided))
        except _InvalidSchemaError as invalid:
            return Verdict(unusable=f"the schema is invalid ({invalid})")
        except RecursionError:
            return _TOO_DEEP
        except Exception as failure:  # jsonschema finds some mistakes in a schema only when it comes to them
            return Verdict(unusable=f"the schema cannot be used ({type(failure).__name__})")
        except BaseException as failure:
            if type(failure).__name__ != "PanicException":
                raise
            return _TOO_DEEP  # jsonschema keeps schemas in a map in Rust, which makes this of a RecursionError
        if error is None:
            return _VALID
        return Verdict(
            violation="the server's structured content does not conform to the tool's output schema "
            f"({_describe(error)})"
        )


def _build(schema: dict[str, Any]) -> Any:
    draft = validator_for(schema, default=Draft202012Validator)
    bounded = _bounded(draft)
    # An empty registry: what a reference names outside of the schema is never fetched.
    error = next(bounded(draft.META_SCHEMA, registry=Registry()).iter_errors(schema), None)
    if error is not None:
        raise _InvalidSchemaError(_describe(error))
    keywords = {name for _, each in subschemas(schema) for name in each}
    skipped, strict = keywords & _NOT_EVALUATED.keys(), keywords & _STRICT
    if skipped and strict:
        msg = f"it has '{min(strict)}', and '{min(skipped)}', which is not evaluated"
        raise _UndecidedError(msg)
    return bounded(schema, registry=Registry())


def _describe(error: ValidationError) -> str:
    path = error.json_path
    path = path if len(path) <= _MAX_QUOTED else f"{path[:_MAX_QUOTED]}..."
    return f"at {path}: '{error.validator or 'false'}' is violated"


def _check_time() -> None:
    if perf_counter() > _deadline.get():
        raise _CutOffError


@cache
def _bounded(draft: Any) -> Any:
    """
    Make the validator class of a draft one that can be cut off.
    """
    own = {name: keyword for name, keyword in {**_NOT_EVALUATED, **_OWN}.items() if name in draft.VALIDATORS}
    validator = extend(draft, own)  # type: ignore[no-untyped-call, unused-ignore]
    validator.evolve = _evolve
    validator.is_valid = _is_valid
    return validator


# jsonschema calls one of these for each value that it validates against a schema other than `true` and `false`.


def _evolve(validator: Any, *, schema: Any, _resolver: Any = None) -> Any:
    # The original looks at `$schema`, by which a part of a schema would choose a class of jsonschema's own.
    _check_time()
    return type(validator)(schema, registry=validator._registry, _resolver=_resolver or validator._resolver)


def _is_valid(validator: Any, value: Any) -> bool:
    _check_time()
    return next(validator.iter_errors(value), None) is None


# Keywords


def _accept(_validator: Any, _argument: Any, _value: Any, _schema: Any) -> _Errors:
    return ()


def _additional_properties(validator: Any, argument: Any, value: Any, schema: Any) -> _Errors:
    if "patternProperties" in schema:  # it says which these are
        return ()
    return _ADDITIONAL_PROPERTIES(validator, argument, value, schema)


# Of an alternative, jsonschema keeps all errors, each with a text that quotes the value. The first one tells enough;
# thousands of these texts could take gigabytes.


def _any_of(validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if not any(_is_right(validator, each, value) for each in argument):
        yield ValidationError("none of the alternatives")


def _one_of(validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    right = (each for each in argument if _is_right(validator, each, value))
    if next(right, None) is None or next(right, None) is not None:
        yield ValidationError("none of the alternatives, or more than one")


def _is_right(validator: Any, alternative: Any, value: Any) -> bool:
    _check_time()  # `descend` does nothing of the kind if the alternative is `false`
    return next(validator.descend(value, alternative), None) is None


def _unique_items(_validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if argument and isinstance(value, list):
        seen: set[Any] = set()
        for each in value:
            _check_time()  # many numbers may have the same hash
            key = _key(each)
            if key in seen:
                yield ValidationError("an item that occurs twice")
                return
            seen.add(key)


def _key(value: Any) -> Any:
    """
    Make a value that equals, and hashes as, that of every equal JSON value, and of no other.
    """
    if isinstance(value, dict):
        return "object", frozenset((name, _key(each)) for name, each in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_key, value))
    return ("boolean", value) if isinstance(value, bool) else value


# The same in all drafts.
_ADDITIONAL_PROPERTIES: Final[_Keyword] = Draft202012Validator.VALIDATORS["additionalProperties"]

_NOT_EVALUATED: Final[dict[str, _Keyword]] = dict.fromkeys(
    ("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties"), _accept
)
_OWN: Final[dict[str, _Keyword]] = {
    "additionalProperties": _additional_properties,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "uniqueItems": _unique_items,
}
