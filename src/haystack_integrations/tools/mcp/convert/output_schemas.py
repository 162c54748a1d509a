# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Decides which results can be validated against the output schema of their tool in a bounded time.

Validation runs in the event loop that all sessions share, and both schema and result come from the server. A regular
expression that backtracks, or references that double at every level, would block all calls of the process. A result is
therefore not validated if the time that it takes has no bound.
"""

from typing import Any, Final
from urllib.parse import unquote

# Limit for subschemas times JSON values. Takes jsonschema about a second.
_MOST_WORK: Final = 100_000

# Regular expressions and the comparison of all items with each other are not bounded by the sizes of schema and result.
# Dynamic references can only be resolved during validation.
_UNBOUNDED: Final = ("$dynamicRef", "$recursiveRef", "pattern", "uniqueItems")


class OutputSchemas:
    """
    The output schemas of a server's tools. The cost of a schema is computed at the tool's first result.
    """

    def __init__(self) -> None:
        """
        Initialize the OutputSchemas with no schema.
        """
        self._schemas: dict[str, Any] = {}
        self._costs: dict[str, int | None] = {}

    def note(self, tool_name: str, schema: Any) -> None:
        """
        Store the output schema from a tool's definition, in place of an earlier one.

        :param tool_name: Name of the tool.
        :param schema: Its output schema, or None.
        """
        self._costs.pop(tool_name, None)
        if schema:
            self._schemas[tool_name] = schema
        else:
            self._schemas.pop(tool_name, None)

    def allow_check(self, tool_name: str, value: Any) -> bool:
        """
        Decide whether to validate a result.

        :param tool_name: Name of the tool.
        :param value: The structured content of the result.
        :returns: True if the tool has an output schema and validation takes a bounded time.
        """
        if tool_name not in self._schemas:
            return False
        if tool_name not in self._costs:
            self._costs[tool_name] = schema_cost(self._schemas[tool_name])
        cost = self._costs[tool_name]
        return cost is not None and is_bounded(cost, value)


def schema_cost(schema: Any) -> int | None:
    """
    Count the subschemas that a single JSON value may be validated against, references included.

    :param schema: An output schema.
    :returns: The largest possible number; None if there is no limit, or one too high to be useful.
    """
    cost = 0
    pending: list[tuple[Any, frozenset[str]]] = [(schema, frozenset())]
    while pending:
        node, references = pending.pop()
        cost += 1
        if cost > _MOST_WORK:
            return None
        if isinstance(node, dict):
            # As keywords they have a string or boolean value; properties of the same names have a schema.
            if any(isinstance(node.get(key), str | bool) for key in _UNBOUNDED) or "patternProperties" in node:
                return None
            reference = node.get("$ref")
            if isinstance(reference, str):
                # A recursive schema is applied at every level of the value, and perhaps twice at each.
                if reference in references:
                    return None
                try:
                    target = _resolve(schema, reference)
                except (LookupError, TypeError, ValueError):
                    return None
                pending.append((target, references | {reference}))
            pending += [(value, references) for value in node.values() if isinstance(value, dict | list)]
        elif isinstance(node, list):
            pending += [(value, references) for value in node if isinstance(value, dict | list)]
    return cost


def is_bounded(cost: int, value: Any) -> bool:
    """
    Decide whether a value is small enough to be validated.

    :param cost: The `schema_cost` of its schema.
    :param value: The value.
    :returns: True if validation takes a bounded time.
    """
    left = _MOST_WORK // cost
    pending = [value]
    while pending:
        left -= 1
        if left < 0:
            return False
        node = pending.pop()
        if isinstance(node, dict | list):
            pending += node.values() if isinstance(node, dict) else node
    return True


def _resolve(schema: Any, reference: str) -> Any:
    head, *parts = reference.split("/")
    if head != "#":
        raise ValueError(reference)
    node = schema
    for part in parts:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        node = node[int(key)] if isinstance(node, list) else node[key]
    return node
