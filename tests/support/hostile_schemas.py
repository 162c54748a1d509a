# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Output schemas, each with a result, whose validation takes minutes or forever without a time limit.
"""

from typing import Any

Case = tuple[dict[str, Any], dict[str, Any]]


def chain(levels: int, last: Any = True) -> dict[str, Any]:
    """
    Return a schema whose validation takes twice as long with each level.
    """
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": last}}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"inner": value}
    return value


def _twice(reference: dict[str, str]) -> dict[str, Any]:
    return {"type": "object", "allOf": [{"properties": {"inner": reference}}, {"properties": {"inner": reference}}]}


HOSTILE: dict[str, Case] = {
    "alternatives": (chain(40, last={"required": ["missing"]}), {"x": 1}),
    "recursion": (_twice({"$ref": "#"}), nested(60)),
    "dynamic recursion": ({"$dynamicAnchor": "node", **_twice({"$dynamicRef": "#node"})}, nested(60)),
}
