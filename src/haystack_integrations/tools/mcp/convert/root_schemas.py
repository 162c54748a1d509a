# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Folds what a schema says about an object in several subschemas into one.

OpenAI and Anthropic refuse a whole request if the parameters of one tool have `anyOf`, `oneOf`, `allOf`, `not` or
`enum` at the root; and models look for parameters in `properties`.
"""

from collections.abc import Iterable
from typing import Any, Final

from haystack_integrations.tools.mcp.convert.schema_references import References

# What is folded. The result only accepts more.
FOLDED: Final = frozenset("$ref allOf anyOf oneOf not if then else enum const discriminator".split())

_NOTES: Final = frozenset({"title", "description", "$comment", "default", "examples", "deprecated"})
# What a property has by whose value one alternative is meant.
_OF_TAGS: Final = frozenset({"const", "enum", "type"}) | _NOTES
# Of what the root refers to, these stay where they are.
_OF_ITS_PLACE: Final = frozenset({"$defs", "definitions", "$id", "$anchor", "$dynamicAnchor", "$schema"})

Schema = dict[str, Any]


def fold_root(schema: Schema, references: References) -> Schema:
    """
    Make the schema of an object one that has neither alternatives nor a reference at its root.

    Its properties are those of all subschemas that apply to the object itself. Required is what the schema itself
    requires, and every alternative.

    :param schema: The schema. It is not changed; the result has parts of it.
    :param references: Finds what it refers to.
    :returns: The schema; the same one if it has nothing to fold.
    :raises ValueError: If it accepts no object.
    """
    if FOLDED.isdisjoint(schema):
        return schema
    folded = _Fold(references).fold(schema)
    if folded is None:
        msg = "#: accepts no object, but tools take named arguments"
        raise ValueError(msg)
    return {**folded, **{key: schema[key] for key in _OF_ITS_PLACE if key in schema}}


class _Fold:
    def __init__(self, references: References) -> None:
        self._references = references
        # By the identity of the schema; empty while it is being folded, so that a circle ends.
        self._folded: dict[int, Schema | None] = {}

    def fold(self, schema: Any) -> Schema | None:
        """
        Return the schema of the objects that a schema accepts; None if it accepts none.
        """
        if not isinstance(schema, dict):
            return {} if schema is True else None
        if id(schema) not in self._folded:
            self._folded[id(schema)] = {}
            self._folded[id(schema)] = self._fold(schema)
        return self._folded[id(schema)]

    def _fold(self, schema: Schema) -> Schema | None:
        declared = schema.get("type", "object")
        if "object" not in (declared if isinstance(declared, list) else [declared]):
            return None
        result: Schema = {key: value for key, value in schema.items() if key not in FOLDED and key not in _OF_ITS_PLACE}
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema:
            target = self._references.find(schema["$ref"], schema)
            parts.append(True if target is None else target)
        for part in parts:
            folded = self.fold(part)
            if folded is None:
                return None
            result = _both(result, folded)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                alternatives = [folded for each in schema[key] if (folded := self.fold(each)) is not None]
                if not alternatives:
                    return None
                result = _both(result, _either(alternatives))
        for key in ("then", "else"):
            if folded := self.fold(schema.get(key, True)):
                known = result.get("properties", {})
                result["properties"] = {**folded.get("properties", {}), **known}
        return result


def _both(first: Schema, second: Schema) -> Schema:
    result = {**second, **first}
    if "properties" in second and "properties" in first:
        properties = dict(first["properties"])
        for name, schema in second["properties"].items():
            properties[name] = _in_one(properties[name], schema) if name in properties else schema
        result["properties"] = properties
    if "required" in second and "required" in first:
        result["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    if "patternProperties" in second and "patternProperties" in first:
        result["patternProperties"] = {**second["patternProperties"], **first["patternProperties"]}
    return result


def _in_one(first: Any, second: Any) -> Any:
    if not isinstance(first, dict) or not isinstance(second, dict):
        return second if first is True or second is False else first
    shared = (first.keys() & second.keys()) - _NOTES
    # Keywords that depend on others beside them would change their meaning.
    if all(first[key] == second[key] for key in shared) and "additionalProperties" not in {*first, *second}:
        return {**second, **first}
    return first if first == second else {"allOf": [first, second]}


def _either(alternatives: list[Schema]) -> Schema:
    names = dict.fromkeys(name for each in alternatives for name in each.get("properties", ()))
    properties = {
        name: _one_of([each["properties"][name] for each in alternatives if name in each.get("properties", ())])
        for name in names
    }
    required = [name for name in alternatives[0].get("required", ()) if _all_require(name, alternatives)]
    result: Schema = {"properties": properties} if properties else {}
    if required:
        result["required"] = required
    if all(each.get("additionalProperties") is False and "patternProperties" not in each for each in alternatives):
        result["additionalProperties"] = False
    return result


def _all_require(name: str, alternatives: Iterable[Schema]) -> bool:
    return all(name in each.get("required", ()) for each in alternatives)


def _one_of(schemas: list[Any]) -> Any:
    if any(schema is True for schema in schemas):
        return True
    distinct = {_without_notes(schema): schema for schema in reversed(schemas)}
    if len(distinct) == 1:
        return schemas[0]
    alternatives = list(reversed(distinct.values()))
    first, values = alternatives[0], [value for schema in alternatives for value in _tags(schema)]
    if not all(map(_tags, alternatives)):
        return {"anyOf": alternatives}
    alike = {key: value for key, value in first.items() if all(each.get(key) == value for each in alternatives)}
    return {**alike, "enum": list(dict.fromkeys(values))}


def _without_notes(schema: Any) -> str:
    return repr({key: schema[key] for key in schema if key not in _NOTES} if isinstance(schema, dict) else schema)


def _tags(schema: Any) -> list[str]:
    if not isinstance(schema, dict) or not _OF_TAGS.issuperset(schema):
        return []
    values = schema.get("enum", [schema.get("const")])
    return values if all(isinstance(value, str) for value in values) else []
