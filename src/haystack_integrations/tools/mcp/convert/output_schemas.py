# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Validates results against the output schemas of their tools, for a limited time.

Both schema and result come from the server, and nothing about them tells how long a validation takes: nested
alternatives alone double it at every level. So jsonschema looks at the clock here for each schema that it comes to.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import inf
from time import perf_counter
from typing import Any, Final

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

_MAX_QUOTED: Final = 200

# When the validation that runs in this thread is cut off.
_deadline: Final[ContextVar[float]] = ContextVar("deadline", default=inf)


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What came of a validation; a result is valid if nothing of this is set.

    :param violation: Where the result violates the schema. It quotes no value.
    :param cut_off: Whether the time did not suffice.
    :param unusable: Why no result can be validated against the schema.
    """

    violation: str | None = None
    cut_off: bool = False
    unusable: str | None = None


_VALID: Final = Verdict()
_TOO_DEEP: Final = Verdict(unusable="the schema, or a result, is nested too deeply")


class _CutOffError(Exception):
    """Raised when the time is up."""


class _InvalidSchemaError(Exception):
    """Raised when a schema violates the metaschema of its draft."""


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
    validator = extend(draft)  # type: ignore[no-untyped-call, unused-ignore]
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
