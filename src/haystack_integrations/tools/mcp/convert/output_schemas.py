# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which results can be checked against the output schema of their tool without holding up everybody.

The check runs in the event loop of all sessions, and both the schema and the result come from the server: a regular
expression that backtracks, or references that double at each level, would stop every call of the process for as long as
the server likes. What cannot be bounded is not checked.
"""

from typing import Any, Final
from urllib.parse import unquote

# Subschemas times JSON values: about a second of jsonschema's time.
_MOST_WORK: Final = 100_000

# Regular expressions and comparisons of all items with each other take time that neither the size of the schema nor
# that of the result bounds; where dynamic references lead, only the check itself finds out.
_UNBOUNDED: Final = ("$dynamicRef", "$recursiveRef", "pattern", "uniqueItems")


class OutputSchemas:
    """
    The output schemas of a server's tools. Each is priced when its first result comes.
    """

    def __init__(self) -> None:
        """
        Initialize the OutputSchemas, without any.
        """
        self._schemas: dict[str, Any] = {}
        self._costs: dict[str, int | None] = {}

    def note(self, tool_name: str, schema: Any) -> None:
        """
        Take what a listing says.

        :param tool_name: The tool.
        :param schema: Its output schema, or None.
        """
        self._costs.pop(tool_name, None)
        if schema:
            self._schemas[tool_name] = schema
        else:
            self._schemas.pop(tool_name, None)

    def allow_check(self, tool_name: str, value: Any) -> bool:
        """
        Tell whether a result is to be checked.

        :param tool_name: The tool.
        :param value: The structured content of the result.
        :returns: True if the tool has an output schema and the check is soon done.
        """
        if tool_name not in self._schemas:
            return False
        if tool_name not in self._costs:
            self._costs[tool_name] = schema_cost(self._schemas[tool_name])
        cost = self._costs[tool_name]
        return cost is not None and is_bounded(cost, value)


def schema_cost(schema: Any) -> int | None:
    """
    Count the subschemas that one value may be checked against, references followed.

    :param schema: An output schema.
    :returns: How many, at most; None if there is no bound, or a useless one.
    """
    cost = 0
    pending: list[tuple[Any, frozenset[str]]] = [(schema, frozenset())]
    while pending:
        node, references = pending.pop()
        cost += 1
        if cost > _MOST_WORK:
            return None
        if isinstance(node, dict):
            # Properties of these names have a schema for their value.
            if any(isinstance(node.get(key), str | bool) for key in _UNBOUNDED) or "patternProperties" in node:
                return None
            reference = node.get("$ref")
            if isinstance(reference, str):
                # A schema that contains itself is applied as deeply as the value is nested, perhaps twice a level.
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
    Tell whether a value is small enough for a check.

    :param cost: What `schema_cost` gave for the schema.
    :param value: The value.
    :returns: True if the check is soon done.
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
