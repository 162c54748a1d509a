# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The consequences of a server's tool definitions for calls.

They say which tools cannot be used, which arguments are also sent as HTTP headers, and which results violate their
output schemas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import inf
from time import perf_counter
from typing import Any, Final

import mcp_types as types
from haystack import logging
from jsonschema import Draft202012Validator
from jsonschema import ValidationError as SchemaViolation
from jsonschema.validators import extend, validator_for
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from referencing import Registry

from haystack_integrations.tools.mcp.concurrency import import_in_thread, start_in_thread
from haystack_integrations.tools.mcp.convert.odd_messages import LIST_METHOD, repair_result
from haystack_integrations.tools.mcp.convert.tool_schemas import HEADER_KEY, has_key, shortened

logger: logging.PatchedLogger = logging.getLogger(__name__)


# The module of the SDK that reads this header.
_INBOUND: Final = "mcp.shared.inbound"

# All sessions share one event loop. Nearly all validations take some milliseconds there; one that takes longer starts
# again in a thread, and is given up after a second.
_SECONDS_IN_LOOP: Final = 0.01
_SECONDS_IN_THREAD: Final = 1.0

# Messages say so, because a model that thinks that the tool did not run calls it again.
_HAS_RUN: Final = ". The tool has run"


# Output schemas
#
# Both schema and result come from the server, and neither shows how long a validation takes: nested alternatives alone
# double the time at every level. So jsonschema checks the clock here for each subschema.

# The deadline of the validation in this context, in the seconds of `time.perf_counter`.
_deadline: Final[ContextVar[float]] = ContextVar("deadline", default=inf)


@dataclass(frozen=True, slots=True)
class Validation:
    """
    The outcome of a validation; the result is valid if no field is set.

    :param violation: Where the result violates the schema. It quotes no value.
    :param timed_out: Whether the validation ran out of time.
    :param unusable: Why no result can be validated against the schema.
    """

    violation: str | None = None
    timed_out: bool = False
    unusable: str | None = None


class _TimeUpError(Exception):
    """Raised when the time is up."""


class OutputSchema:
    """
    The output schema of a tool. It is not processed before the first result.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        """
        Initialize the OutputSchema.

        :param schema: The schema from the tool's definition, in any draft; it may be invalid.
        """
        self._schema = schema
        self._validator: Any = None

    def validate(self, value: Any, seconds: float) -> Validation:
        """
        Validate a result. Thread-safe.

        :param value: The structured content of the result.
        :param seconds: How long it may take.
        :returns: The outcome.
        """
        _deadline.set(perf_counter() + seconds)
        try:
            if self._validator is None:
                draft = _bounded(validator_for(self._schema, default=Draft202012Validator))
                # The registry is empty, so references out of the schema are never fetched.
                error = next(draft(draft.META_SCHEMA, registry=Registry()).iter_errors(self._schema), None)
                if error is not None:
                    return Validation(unusable=f"the schema is invalid ({_describe(error)})")
                self._validator = draft(self._schema, registry=Registry())
            error = next(self._validator.iter_errors(value), None)
        except _TimeUpError:
            return Validation(timed_out=True)
        except BaseException as failure:  # jsonschema finds some mistakes in a schema only when it reaches them
            # It keeps schemas in a map in Rust, which turns a RecursionError into a PanicException.
            if not isinstance(failure, Exception) and type(failure).__name__ != "PanicException":
                raise
            return Validation(unusable=f"the schema cannot be used ({type(failure).__name__})")
        if error is None:
            return Validation()
        return Validation(
            violation="the server's structured content does not conform to the tool's output schema "
            f"({_describe(error)})"
        )


def _describe(error: SchemaViolation) -> str:
    return f"at {shortened(error.json_path)}: '{error.validator or 'false'}' is violated"


@cache
def _bounded(draft: Any) -> Any:
    """
    Make a validator class of a draft that stops at the deadline.
    """
    validator = extend(draft)  # type: ignore[no-untyped-call, unused-ignore]
    validator.evolve = _evolve
    validator.is_valid = _is_valid
    return validator


# jsonschema calls one of these whenever it validates a value against a schema other than `true` and `false`.


def _evolve(validator: Any, *, schema: Any, _resolver: Any = None) -> Any:
    # The original follows `$schema`, by which a subschema could choose one of jsonschema's classes without a deadline.
    if perf_counter() > _deadline.get():
        raise _TimeUpError
    return type(validator)(schema, registry=validator._registry, _resolver=_resolver or validator._resolver)


def _is_valid(validator: Any, value: Any) -> bool:
    if perf_counter() > _deadline.get():
        raise _TimeUpError
    return next(validator.iter_errors(value), None) is None


class InvalidResultError(RuntimeError):
    """
    Raised for a result that violates the output schema of its tool, or cannot be validated. The tool has run.
    """


class ListedTools:
    """
    The tools of one server's listings: which cannot be used, their HTTP headers, and their output schemas.
    """

    def __init__(self, describe: Callable[[], str]) -> None:
        """
        Initialize the ListedTools, without tools.

        :param describe: Describes the server in messages.
        """
        self._describe = describe
        # Why tools were left out, by their names; by their numbers if they have none.
        self.unusable: dict[str | int, str] = {}
        # For each tool, the headers by the paths of their arguments.
        self._headers: dict[str, dict[tuple[str, ...], str]] = {}
        # The output schemas by the names of the tools; None if results are not validated any more.
        self.schemas: dict[str, OutputSchema | None] = {}
        self._given_up: set[str] = set()
        self._one_in_thread = asyncio.Lock()

    async def read(self, page: dict[str, Any], version: str) -> dict[str, Any]:
        """
        Read a page of `tools/list`, and leave out tools that cannot be used.

        :param page: The page.
        :param version: The revision of the protocol.
        :returns: The page with the usable tools.
        :raises ValueError: If the page cannot be read.
        """
        read = repair_result(LIST_METHOD, version, page)
        listed = read.result["tools"]
        left_out = dict(read.left_out)
        if version in MODERN_PROTOCOL_VERSIONS:
            if mentioning := [tool for tool in listed if has_key(tool.get("inputSchema"), HEADER_KEY)]:
                await import_in_thread(_INBOUND)  # the SDK takes half a second, and few tools need it
            for tool in listed:
                self._headers.pop(tool["name"], None)
            left_out |= {tool["name"]: why for tool in mentioning if (why := self._note_headers(tool)) is not None}
        usable = [tool for tool in listed if tool["name"] not in left_out]
        for tool, reason in left_out.items():
            if self.unusable.get(tool) != reason:
                logger.warning(
                    "Left out tool {tool} of {server}: {reason}",
                    tool=repr(tool) if isinstance(tool, str) else f"number {tool}",
                    server=self._describe(),
                    reason=reason,
                )
        self.unusable.update(left_out)
        for definition in usable:
            self.unusable.pop(definition["name"], None)
        return {**read.result, "tools": usable}

    def _note_headers(self, tool: dict[str, Any]) -> str | None:
        """
        Store which arguments of a tool are also sent as headers (SEP-2243).

        :param tool: The definition, which mentions headers.
        :returns: Why the tool cannot be used; None if it can.
        """
        from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map  # noqa: PLC0415 - see `read`

        schema = tool["inputSchema"]
        reason = find_invalid_x_mcp_header(schema)
        if reason is not None:
            return f"invalid {HEADER_KEY} ({reason})"
        self._headers[tool["name"]] = x_mcp_header_map(schema)
        return None

    def headers(self, tool_name: str, arguments: Mapping[str, Any]) -> dict[str, str] | None:
        """
        Return the HTTP headers of a call.

        :param tool_name: Name of the tool.
        :param arguments: Its arguments.
        :returns: The headers; None if there are none.
        """
        found = self._headers.get(tool_name)
        if not found:
            return None
        from mcp.shared.inbound import mcp_param_headers  # noqa: PLC0415 - see `read`

        return mcp_param_headers(found, arguments)

    def note_schemas(self, tools: Sequence[types.Tool]) -> None:
        """
        Store the output schemas of tools, in place of earlier ones. An empty schema is ignored, as it promises nothing.

        :param tools: The tools. If two have the same name, the first counts.
        """
        for tool in reversed(tools):
            self.schemas[tool.name] = OutputSchema(tool.output_schema) if tool.output_schema else None

    async def validate(self, tool_name: str, result: types.CallToolResult) -> None:
        """
        Validate a result. It passes if validating it takes too long or is impossible.

        :param tool_name: Name of the tool. Results of an unknown tool are not validated.
        :param result: The result, which is not an error of the tool.
        :raises InvalidResultError: If the result violates the schema. The text does not quote the result.
        """
        schema = self.schemas.get(tool_name)
        if schema is None:
            return
        value = result.structured_content
        if value is None and "structured_content" not in result.model_fields_set:
            # The text may be all that the model needs, and a tool whose result is refused may be called once more.
            self._give_up(tool_name, schema, "the server returned no structured content")
            return
        validation = schema.validate(value, _SECONDS_IN_LOOP)
        if validation.timed_out:
            async with self._one_in_thread:
                if self.schemas.get(tool_name) is not schema:
                    return  # given up meanwhile
                try:
                    running = start_in_thread(schema.validate, value, _SECONDS_IN_THREAD)
                except RuntimeError:  # there are too many threads; the tool has run, so its result passes
                    return
                # If the caller gives up, the thread goes on and ends by itself.
                validation = await asyncio.shield(running)
        if validation.violation is not None:
            raise InvalidResultError(validation.violation + _HAS_RUN)
        takes_long = f"that takes longer than {_SECONDS_IN_THREAD:g} s" if validation.timed_out else None
        if (reason := takes_long or validation.unusable) is not None:
            self._give_up(tool_name, schema, reason)

    def _give_up(self, tool_name: str, schema: OutputSchema, reason: str) -> None:
        if self.schemas.get(tool_name) is schema:
            self.schemas[tool_name] = None
        if tool_name not in self._given_up:
            self._given_up.add(tool_name)
            logger.warning(
                "Results of tool {tool!r} of {server} are no longer validated against its output schema: {reason}",
                tool=tool_name,
                server=self._describe(),
                reason=reason,
            )
