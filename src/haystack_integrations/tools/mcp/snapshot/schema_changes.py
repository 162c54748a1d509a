# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What changed in a JSON schema: whether it takes more than before, or less.

The comparison follows the structure of the two schemas. Where it cannot tell, as with another pattern, the change is
neither: `"changed"`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from haystack_integrations.tools.mcp.convert.tool_schemas import SCHEMAS_BY_NAME, TEXTS

Direction = Literal["text", "wider", "narrower", "changed"]

# The limits of which a greater one takes more, and those of which a smaller one does.
_UPPER: Final = frozenset("maximum exclusiveMaximum maxLength maxItems maxProperties maxContains".split())
_LOWER: Final = frozenset("minimum exclusiveMinimum minLength minItems minProperties minContains".split())
# Schemas for parts of a value: if one takes more, so does the whole.
_PARTS: Final = frozenset(
    "items additionalItems additionalProperties unevaluatedItems unevaluatedProperties propertyNames".split()
)
# Keywords of which each restricts what is taken.
_RESTRICTIONS: Final = (
    _UPPER
    | _LOWER
    | _PARTS
    | frozenset(
        "type enum const pattern format multipleOf uniqueItems allOf anyOf oneOf not contains dependentRequired".split()
    )
)
_OPPOSITE: Final[dict[Direction, Direction]] = {"wider": "narrower", "narrower": "wider"}
_MISSING: Final = object()


@dataclass(frozen=True)
class SchemaChange:
    """
    One difference between two schemas.

    :param path: Where, as a JSON pointer.
    :param direction: Whether a text for readers is another, or the schema takes more, less, or something else.
    :param before: The value that was there; None if there was none.
    :param after: The value that is there now; None if there is none.
    """

    path: str
    direction: Direction
    before: Any
    after: Any


def schema_changes(before: Any, after: Any, path: str = "") -> Iterator[SchemaChange]:
    """
    Find what changed in a schema.

    :param before: The canonical schema before.
    :param after: The canonical schema now.
    :param path: Where it is, as a JSON pointer.
    :returns: The differences.
    """
    if _same(before, after):
        return
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield SchemaChange(path, _direction_of_booleans(before, after), before, after)
        return
    names = _parameter_names(before) ^ _parameter_names(after)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if _same(old, new):
            continue
        place = f"{path}/{_escaped(key)}"
        if key in TEXTS:
            yield _change(place, "text", old, new)
        elif key == "properties" and _are_objects(old, new):
            yield from _properties(old, new, place)
        elif key == "required" and _are_names(old, new):
            yield from _required(old, new, place, names)
        elif key in _PARTS and _MISSING not in (old, new):
            yield from schema_changes(old, new, place)
        elif key == "not" and _MISSING not in (old, new):
            for each in schema_changes(old, new, place):
                yield SchemaChange(each.path, _OPPOSITE.get(each.direction, each.direction), each.before, each.after)
        elif key in ("anyOf", "allOf", "oneOf", "prefixItems") and _are_lists(old, new):
            yield from _branches(key, old, new, place)
        elif key in SCHEMAS_BY_NAME and _are_objects(old, new):
            for name in sorted({*_items(old), *_items(new)}):
                yield from _member(_items(old), _items(new), name, place)
        else:
            yield _change(place, _direction(key, old, new), old, new)


def _same(old: Any, new: Any) -> bool:
    # For Python, True is 1.
    if old is _MISSING or new is _MISSING:
        return old is new
    return old is new or _text(old) == _text(new)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _are_objects(*values: Any) -> bool:
    return all(value is _MISSING or isinstance(value, dict) for value in values)


def _are_lists(*values: Any) -> bool:
    return all(value is _MISSING or isinstance(value, list) for value in values)


def _are_names(*values: Any) -> bool:
    return _are_lists(*values) and all(isinstance(name, str) for value in values for name in _items(value))


def _parameter_names(schema: dict[str, Any]) -> set[str]:
    # A server may have anything there.
    properties = schema.get("properties")
    return set(properties) if isinstance(properties, dict) else set()


def _items(value: Any) -> Any:
    return () if value is _MISSING else value


def _change(place: str, direction: Direction, old: Any, new: Any) -> SchemaChange:
    return SchemaChange(place, direction, None if old is _MISSING else old, None if new is _MISSING else new)


def _direction_of_booleans(before: Any, after: Any) -> Direction:
    if before is False or after is True or after == {}:
        return "wider"
    return "narrower" if after is False or before is True or before == {} else "changed"


def _properties(old: Any, new: Any, place: str) -> Iterator[SchemaChange]:
    # To whoever reads a tool, a parameter more is more, whatever `additionalProperties` says.
    before, after = _items(old) or {}, _items(new) or {}
    for name in sorted({*before, *after}):
        where = f"{place}/{_escaped(name)}"
        if name not in before:
            yield SchemaChange(where, "wider", None, after[name])
        elif name not in after:
            yield SchemaChange(where, "narrower", before[name], None)
        else:
            yield from schema_changes(before[name], after[name], where)


def _required(old: Any, new: Any, place: str, changed_names: set[str]) -> Iterator[SchemaChange]:
    before, after = set(_items(old)), set(_items(new))
    added, removed = after - before, before - after
    # That a parameter is gone is said already.
    if added:
        yield _change(place, "narrower", old, new)
    if removed - changed_names:
        yield _change(place, "wider", old, new)
    elif removed and not added:
        yield _change(place, "narrower", old, new)


def _branches(key: str, old: Any, new: Any, place: str) -> Iterator[SchemaChange]:
    before, after = list(_items(old)), list(_items(new))
    if len(before) == len(after) and key != "oneOf":
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from schema_changes(one, other, f"{place}/{index}")
        return
    direction: Direction = "changed"
    if _MISSING in (old, new):
        direction = "wider" if new is _MISSING else "narrower"
    elif key in ("anyOf", "allOf"):
        texts_before, texts_after = set(map(_text, before)), set(map(_text, after))
        if texts_before < texts_after:
            direction = "wider" if key == "anyOf" else "narrower"
        elif texts_after < texts_before:
            direction = "narrower" if key == "anyOf" else "wider"
    yield _change(place, direction, old, new)


def _member(before: Any, after: Any, name: str, place: str) -> Iterator[SchemaChange]:
    where = f"{place}/{_escaped(name)}"
    if name in before and name in after:
        yield from schema_changes(before[name], after[name], where)
    else:
        yield SchemaChange(where, "changed", dict(before).get(name), dict(after).get(name))


def _direction(key: str, old: Any, new: Any) -> Direction:
    if key not in _RESTRICTIONS:
        return "changed"
    if _MISSING in (old, new):
        return "wider" if new is _MISSING else "narrower"
    if key in ("type", "enum"):
        before, after = _choices(key, old), _choices(key, new)
        if before < after:
            return "wider"
        return "narrower" if after < before else "changed"
    if (key in _UPPER or key in _LOWER) and _are_numbers(old, new):
        return "wider" if (new > old) == (key in _UPPER) else "narrower"
    if key == "uniqueItems":
        return "narrower" if new is True else "wider"
    return "changed"


def _choices(key: str, value: Any) -> set[str]:
    values = value if isinstance(value, list) else [value]
    choices = {_text(each) for each in values}
    if key == "type" and '"number"' in choices:
        choices.add('"integer"')
    return choices


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
