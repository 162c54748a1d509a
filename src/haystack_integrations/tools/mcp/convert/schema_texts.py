# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which parts of a JSON schema are schemas themselves, and which are texts for its readers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

# Keywords whose values are schemas by names.
SCHEMAS_BY_NAME: Final = frozenset(
    "properties patternProperties $defs definitions dependentSchemas dependencies".split()
)
# Keywords whose values are schemas, or lists of schemas.
SUBSCHEMAS: Final = frozenset(
    "items additionalItems additionalProperties unevaluatedItems unevaluatedProperties propertyNames contains not if "
    "then else allOf anyOf oneOf prefixItems contentSchema".split()
)
# Keywords whose values are texts that say something to readers.
TEXTS: Final = frozenset({"title", "description", "$comment"})


def map_texts(schema: Any, change: Callable[[str], str]) -> Any:
    """
    Replace the texts of a JSON schema that are for its readers: titles, descriptions and comments.

    :param schema: The schema. It is not changed.
    :param change: Gives the new text for each.
    :returns: The schema; the same object if nothing is different.
    """
    if isinstance(schema, list):
        items = [map_texts(item, change) for item in schema]
        return schema if all(new is old for new, old in zip(items, schema, strict=True)) else items
    if not isinstance(schema, dict):
        return schema
    changed: dict[str, Any] = {}
    for key, value in schema.items():
        new = value
        if key in TEXTS and isinstance(value, str):
            new = change(value)
        elif key in SUBSCHEMAS:
            new = map_texts(value, change)
        elif key in SCHEMAS_BY_NAME and isinstance(value, dict):
            named = {name: map_texts(sub, change) for name, sub in value.items()}
            if any(named[name] is not sub for name, sub in value.items()):
                new = named
        if new is not value:
            changed[key] = new
    return {**schema, **changed} if changed else schema
