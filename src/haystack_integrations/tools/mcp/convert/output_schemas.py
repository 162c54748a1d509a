# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Validates results against the output schemas of their tools, in steps that can be cut off.

Both schema and result come from the server, and nothing about them tells how long a validation takes: nested
alternatives alone double it at every level. So jsonschema looks at the clock here for each schema that it comes to, and
works on copies of schema and result whose text in error messages is short. What has no bound in between is left out:

* regular expressions (`pattern`, `patternProperties`, and `additionalProperties` beside it) are not evaluated,
* nor are `unevaluatedProperties` and `unevaluatedItems`, which collect lists of any length,
* equal values (`enum`, `const`, `uniqueItems`) are found in our own, small steps.

A result that one of these could make valid or invalid, e.g. below a `not`, is not validated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from math import inf
from time import perf_counter, sleep
from typing import Any, Final

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

# Below this length, text in an error message costs nothing.
_LONG: Final = 100

# How long a validation that gives way works, and pauses. A thread that wants the interpreter's lock waits for 5 ms
# otherwise, and takes it several times for each message.
_WORK: Final = 0.002
_PAUSE: Final = 0.001

# How many characters count as one more value.
_CHARACTERS: Final = 1_000

_MAX_QUOTED: Final = 200

# Keywords that accept less if a schema below them accepts more.
_STRICT: Final = frozenset("contains disallow if not oneOf".split())

_Errors = Iterable[ValidationError]
_Keyword = Callable[[Any, Any, Any, Any], _Errors]


@dataclass(frozen=True, slots=True)
class Budget:
    """
    What a validation may take.

    :param seconds: The time.
    :param values: How many JSON values schema and result may consist of, each.
    :param gives_way: Whether it pauses again and again, so that other threads need not wait for the interpreter's lock.
    """

    seconds: float
    values: int
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What came of a validation; a result is valid if nothing of this is set.

    :param violation: Where the result violates the schema. It quotes no value.
    :param cut_off: Whether the budget did not suffice.
    :param undecided: Why this result was not validated.
    :param unusable: Why no result can be validated against the schema.
    """

    violation: str | None = None
    cut_off: bool = False
    undecided: str | None = None
    unusable: str | None = None


_VALID: Final = Verdict()


class _CutOffError(Exception):
    """Raised when the budget is used up."""


class _UndecidedError(Exception):
    """Raised when a keyword that is not evaluated decides whether the result is valid."""


@dataclass(slots=True)
class _Run:
    """
    A validation.

    :param deadline: When it is cut off.
    :param values: How many more JSON values it may copy.
    :param pause_at: When it pauses.
    :param strict: How many of `_STRICT` it is below.
    """

    deadline: float
    values: int
    pause_at: float
    strict: int = 0


class _Current(threading.local):
    """The validation that runs in this thread."""

    run: _Run


_current = _Current()


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

    def validate(self, value: Any, budget: Budget) -> Verdict:
        """
        Validate a result. From any thread.

        :param value: The structured content of the result.
        :param budget: What it may take.
        :returns: What came of it.
        """
        now = perf_counter()
        run = _Run(now + budget.seconds, budget.values, pause_at=now if budget.gives_way else inf)
        _current.run = run
        try:
            if self._validator is None:
                self._validator = _build(self._schema, run)
                run.values = budget.values
            error = next(self._validator.iter_errors(_quiet(value, run)), None)
        except _CutOffError:
            return Verdict(cut_off=True)
        except _UndecidedError as undecided:
            return Verdict(undecided=f"'{undecided}' is not evaluated")
        except _InvalidSchemaError as invalid:
            return Verdict(unusable=f"the schema is invalid ({invalid})")
        except RecursionError:
            return Verdict(unusable="the schema, or a result, is nested too deeply")
        except Exception as failure:  # jsonschema finds some mistakes in a schema only when it comes to them
            return Verdict(unusable=f"the schema cannot be used ({type(failure).__name__})")
        if error is None:
            return _VALID
        return Verdict(
            violation="the server's structured content does not conform to the tool's output schema "
            f"({_describe(error)})"
        )


class _InvalidSchemaError(Exception):
    """Raised when a schema violates the metaschema of its draft."""


def _build(schema: Any, run: _Run) -> Any:
    draft = validator_for(schema, default=Draft202012Validator)
    schema = _quiet(schema, run)
    error = next(_metaschema(draft).iter_errors(schema), None)
    if error is not None:
        raise _InvalidSchemaError(_describe(error))
    # An empty registry: what a reference names outside of the schema is never fetched.
    return _in_steps(draft)(schema, registry=Registry())


@cache
def _metaschema(draft: Any) -> Any:
    return _in_steps(draft)(draft.META_SCHEMA, registry=Registry())


def _describe(error: ValidationError) -> str:
    path = error.json_path
    path = path if len(path) <= _MAX_QUOTED else f"{path[:_MAX_QUOTED]}..."
    return f"at {path}: '{error.validator or 'false'}' is violated"


def _check_time() -> None:
    run, now = _current.run, perf_counter()
    if now > run.deadline:
        raise _CutOffError
    if now > run.pause_at:
        sleep(_PAUSE)
        run.pause_at = perf_counter() + _WORK


# Copies whose text costs nothing: jsonschema quotes the value in the message of every error, also of those that an
# alternative makes good.


class _Object(dict[str, Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return "{...}"


class _Array(list[Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return "[...]"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "'...'"


def _quiet(value: Any, run: _Run) -> Any:
    # Every value of every result comes through here, so there are few calls.
    run.values -= 1
    if run.values < 0:
        raise _CutOffError
    if isinstance(value, str):
        return value if len(value) <= _LONG else _quiet_text(value, run)
    if isinstance(value, dict):
        _check_time()
        return _Object(
            {name if len(name) <= _LONG else _quiet_text(name, run): _quiet(each, run) for name, each in value.items()}
        )
    if isinstance(value, list):
        _check_time()
        return _Array([_quiet(each, run) for each in value])
    return value


def _quiet_text(text: str, run: _Run) -> str:
    run.values -= len(text) // _CHARACTERS
    if run.values < 0:
        raise _CutOffError
    return _Text(text)


# Keywords


@cache
def _in_steps(draft: Any) -> Any:
    """
    Make the validator class of a draft one that can be cut off.
    """
    keywords = {name: _OWN[name] for name in draft.VALIDATORS if name in _OWN}
    for name in _STRICT.intersection(draft.VALIDATORS):
        keywords[name] = _strict(keywords.get(name) or draft.VALIDATORS[name])
    validator = extend(draft, keywords)  # type: ignore[no-untyped-call, unused-ignore]
    # The original looks at `$schema`, by which a part of a schema would choose a class of jsonschema's own.
    validator.evolve = _evolve
    return validator


def _evolve(validator: Any, *, schema: Any, _resolver: Any = None) -> Any:
    # For each schema that a value is validated against, so it is the place to look at the clock.
    _check_time()
    return type(validator)(schema, registry=validator._registry, _resolver=_resolver or validator._resolver)


def _strict(function: _Keyword) -> _Keyword:
    def keyword(validator: Any, argument: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        # The generator may be closed late, when another validation runs.
        run = _current.run
        run.strict += 1
        try:
            yield from function(validator, argument, value, schema)
        finally:
            run.strict -= 1

    return keyword


def _not_evaluated(name: str, kind: type) -> _Keyword:
    def keyword(_validator: Any, _argument: Any, value: Any, _schema: Any) -> _Errors:
        if _current.run.strict and isinstance(value, kind):
            raise _UndecidedError(name)
        return ()

    return keyword


def _additional_properties(validator: Any, argument: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(value, dict) or argument is True:
        return
    if "patternProperties" in schema:  # it says which these are
        return
    known = schema.get("properties", ())
    for name, each in value.items():
        if name not in known:
            if argument is False:
                yield ValidationError("an additional property")
                return
            yield from validator.descend(each, argument, path=name)


# Of an alternative, only the first error is looked for: a schema may have any number of them in one step.


def _any_of(validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if not any(_is_valid(validator, each, value) for each in argument):
        yield ValidationError("none of the alternatives")


def _one_of(validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    valid = (each for each in argument if _is_valid(validator, each, value))
    if next(valid, None) is None or next(valid, None) is not None:
        yield ValidationError("none of the alternatives, or more than one")


def _is_valid(validator: Any, schema: Any, value: Any) -> bool:
    _check_time()
    return next(validator.descend(value, schema), None) is None


def _const(_validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if _key(value) != _key(argument):
        yield ValidationError("another value")


def _enum(_validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str):
        found = value in argument
    else:
        wanted = _key(value)
        found = any(_key(each) == wanted for each in argument)
    if not found:
        yield ValidationError("none of the values")


def _unique_items(_validator: Any, argument: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if argument and isinstance(value, list):
        seen: set[Any] = set()
        for each in value:
            key = _key(each)
            if key in seen:
                yield ValidationError("an item that occurs twice")
                return
            seen.add(key)


def _key(value: Any) -> Any:
    """
    Make a value that equals, and hashes as, that of every equal JSON value, and of no other.
    """
    _check_time()
    if isinstance(value, dict):
        return "object", frozenset((name, _key(each)) for name, each in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_key, value))
    return ("boolean", value) if isinstance(value, bool) else value


_OWN: Final[dict[str, _Keyword]] = {
    "additionalProperties": _additional_properties,
    "anyOf": _any_of,
    "const": _const,
    "enum": _enum,
    "oneOf": _one_of,
    "pattern": _not_evaluated("pattern", str),
    "patternProperties": _not_evaluated("patternProperties", dict),
    "unevaluatedItems": _not_evaluated("unevaluatedItems", list),
    "unevaluatedProperties": _not_evaluated("unevaluatedProperties", dict),
    "uniqueItems": _unique_items,
}
