# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Output schemas, each with a result, whose validation takes minutes, or for ever, if nobody cuts it off.
"""

from typing import Any

Case = tuple[dict[str, Any], dict[str, Any]]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
CATASTROPHIC = "^(a+)+$"
VICTIM = "a" * 60 + "!"

_NAMES = [f"property {number}" for number in range(90_000)]
_ROWS = [{"number": number} for number in range(20_000)]


def chain(levels: int, last: Any = True) -> dict[str, Any]:
    """
    A schema of a line for each level, at each of which its work doubles.
    """
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": last}}


def inside(levels: int, **more: Any) -> dict[str, Any]:
    """
    A schema inside a schema inside a schema, each with a keyword that looks at all of them below it.
    """
    schema: dict[str, Any] = {"properties": {"x": True}, "prefixItems": [True]}
    for _ in range(levels):
        schema = {"anyOf": [schema], **more}
    return schema


def of_text(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"text": schema}}


def of_rows(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"rows": schema}}


def alternatives(schema: Any, count: int) -> dict[str, Any]:
    """
    A schema that every object conforms to, although it violates the given one many times.
    """
    return {"type": "object", "allOf": [{"anyOf": [schema, True]}] * count}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"inner": value}
    return value


def _twice(reference: dict[str, str]) -> dict[str, Any]:
    return {"type": "object", "allOf": [{"properties": {"inner": reference}}, {"properties": {"inner": reference}}]}


HOSTILE: dict[str, Case] = {
    "alternatives": (chain(40, last={"required": ["missing"]}), {"x": 1}),
    "unevaluated properties": ({"type": "object", **inside(26, unevaluatedProperties=False)}, {"x": 1}),
    "unevaluated items": (of_rows(**inside(26, unevaluatedItems=False)), {"rows": [1]}),
    "required names": (of_rows(items={"anyOf": [{"required": _NAMES}, True]}), {"rows": [{}] * 5_000}),
    "values": (of_rows(items={"anyOf": [{"enum": [*range(90_000)]}, True]}), {"rows": [-1] * 5_000}),
    "errors": (
        {
            "type": "object",
            "anyOf": [*[{"$ref": "#/$defs/many"}] * 10_000, True],
            "$defs": {"many": {"properties": {"x": {"allOf": [False] * 50_000}}}},
        },
        {"x": 1},
    ),
    "unexpected names": (alternatives({"additionalProperties": False}, 2_000), dict.fromkeys(_NAMES, 1)),
    "text in errors": (alternatives({"maxProperties": 0}, 5_000), {"rows": _ROWS}),
    "long text in errors": (
        of_text(allOf=[{"anyOf": [{"maxLength": 1}, True]}] * 5_000),
        {"text": "a\n" * 1_000_000},
    ),
    "recursion": (_twice({"$ref": "#"}), nested(60)),
    "dynamic recursion": ({"$dynamicAnchor": "node", **_twice({"$dynamicRef": "#node"})}, nested(60)),
    "regular expression": (of_text(pattern=CATASTROPHIC), {"text": VICTIM}),
    "regular expression for names": ({"type": "object", "patternProperties": {CATASTROPHIC: {}}}, {VICTIM: 1}),
    "another dialect inside": (of_text(**{"$schema": DIALECT, "pattern": CATASTROPHIC}), {"text": VICTIM}),
    "the metaschema": (
        # It refers dynamically to the schema that refers to it.
        {
            "$schema": DIALECT,
            "$id": "http://127.0.0.1/schema",
            "$dynamicAnchor": "meta",
            "anyOf": [{"$ref": DIALECT}, True],
            "properties": {"properties": {"additionalProperties": {"pattern": CATASTROPHIC}}},
        },
        {"properties": {"x": VICTIM}},
    ),
    "different items": (
        of_rows(uniqueItems=True),
        # Numbers with the same hash.
        {"rows": [number * (2**61 - 1) for number in range(60_000)]},
    ),
    "empty schemas": (of_rows(allOf=[{"items": {}}] * 2_000), {"rows": [1] * 90_000}),
    "a wide schema": ({"type": "object", "properties": {name: {"type": "string"} for name in _NAMES[:20_000]}}, {}),
}
