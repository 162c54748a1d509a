# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Converts the input schemas of MCP tools to parameters for Haystack tools.

MCP servers use every draft of JSON Schema from 04 on; Haystack accepts only draft 2020-12. One pass over a schema
copies, translates and validates it, because validation against the metaschema takes milliseconds per tool.
"""

import re
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, Final, NoReturn

from haystack_integrations.tools.mcp.concurrency import MAX_VALUES, count_values
from haystack_integrations.tools.mcp.convert.root_schemas import FOLDED, fold_root
from haystack_integrations.tools.mcp.convert.schema_references import (
    IDENTIFIERS,
    Path,
    References,
    all_subschemas,
    mend_references,
    pointer,
    reference_to,
    segments,
)

PERMISSIVE_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": True}

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# Haystack's Tool runs `Draft202012Validator.check_schema`, which uses up to eight Python frames per level of JSON. With
# a deeper schema it could raise a RecursionError if the caller's stack is already some hundred frames deep.
_MAX_NESTING: Final = 64
_MAX_QUOTED: Final = 200
# How many references to nowhere a note names.
_MOST_NOTED: Final = 10

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
# Keywords that may have to be translated from an older draft.
_TRANSLATED: Final = frozenset(
    "items additionalItems exclusiveMinimum exclusiveMaximum dependencies id $id $recursiveRef $dynamicRef".split()
)
_LOCAL_NAME: Final = re.compile(r"#[A-Za-z_][-A-Za-z0-9._]*")
_DROP: Final = object()
# What to remove when a subschema of a keyword was widened.
_REMOVED_IF_WIDENED: Final = {
    "not": ("not",),
    "if": ("if", "then", "else", "unevaluatedProperties", "unevaluatedItems"),
    "contains": ("maxContains",),
    "patternProperties": ("additionalProperties", "unevaluatedProperties"),
}


def permissive_schema() -> dict[str, Any]:
    """
    Return a schema that accepts any arguments, for a tool whose own schema is not known yet.

    :returns: A copy of `PERMISSIVE_SCHEMA`.
    """
    return {**PERMISSIVE_SCHEMA, "properties": {}}


def normalize_parameters(schema: Any, notes: list[str] | None = None) -> dict[str, Any]:
    """
    Convert the `inputSchema` of an MCP tool, in any draft, to parameters that Haystack and LLM providers accept.

    The result is valid in draft 2020-12 and has the same meaning, with these exceptions, which only accept more: what
    the schema says of an object in several subschemas is folded into one at the root (see `fold_root`), a reference to
    nowhere accepts anything, a `pattern` that Python cannot compile is dropped (and with it whatever would become
    stricter without it, such as a `not` around it), and a keyword whose value is `null` counts as absent. References
    are never fetched; those by name become JSON pointers.

    :param schema: The schema from the server. It is not changed, and the result shares no mutable part with it.
    :param notes: Gets a clause about each thing that is missing in the schema.
    :returns: A 2020-12 schema with a top-level `type: object` and `properties`.
    :raises ValueError: If the schema is not that of an object, is nested too deeply, or is invalid. The message gives
        the location as a JSON pointer.
    """
    walk, result = _translated(schema)
    if walk.refs or walk.has_identifiers or not FOLDED.isdisjoint(result):
        references = References(result)
        result = fold_root(result, references)
        missing = mend_references(result, references, walk.schema_at)
        if notes is not None and missing:
            shown = ", ".join(_brief(ref) for ref in missing[:_MOST_NOTED])
            notes.append(
                f"its schema refers to definitions that it does not have, in whose place it takes anything: {shown}"
            )
        for each in all_subschemas(result):
            for key in IDENTIFIERS.intersection(each):
                del each[key]
        if count_values(result) > MAX_VALUES:
            msg = f"#: folded into one object, it has more than {MAX_VALUES:,} values"
            raise ValueError(msg)
    result["type"] = "object"
    result.setdefault("properties", {})
    return result


def translate_parameters(schema: Any) -> dict[str, Any]:
    """
    Translate the `inputSchema` of an MCP tool to draft 2020-12 and to what the protocol wants, and leave the rest.

    :param schema: The schema from the server. It is not changed, and the result shares no mutable part with it.
    :returns: A schema with a top-level `type: object` and `properties`.
    :raises ValueError: As `normalize_parameters`.
    """
    _, result = _translated(schema)
    return {**result, "type": "object", "properties": result.get("properties", {})}


def _translated(schema: Any) -> "tuple[_Walk, dict[str, Any]]":
    if not isinstance(schema, dict):
        msg = f"#: must be a JSON object, not {type(schema).__name__}"
        raise ValueError(msg)
    declared = schema.get("type")
    if declared is None:
        schema = {**schema, "type": "object"}
    elif declared != "object" and not (isinstance(declared, list) and "object" in declared):
        msg = f"#/type: must be 'object', because tools take named arguments, not {_brief(declared)}"
        raise ValueError(msg)
    walk = _Walk()
    result: dict[str, Any] = walk.schema(schema)
    if walk.moved:
        walk.redirect_references()
    return walk, result


def without_properties(schema: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """
    Remove top-level properties from a schema, because something other than the model supplies their values.

    The names are also removed from what the same object requires: `required`, `dependentRequired`, `dependentSchemas`,
    and these in the branches of `allOf`, `anyOf`, `oneOf`, `then` and `else`.

    :param schema: The result of `normalize_parameters`. It is not changed.
    :param names: The properties to remove. Unknown names are ignored.
    :returns: A copy without these properties. A removed property to which a `$ref` points is moved to `$defs`.
    """
    hidden = frozenset(names)
    properties = schema.get("properties", {})
    removed = {name: properties[name] for name in properties if name in hidden}
    stripped = _strip(schema, hidden)
    if removed and "minProperties" in stripped:
        stripped["minProperties"] = max(0, stripped["minProperties"] - len(removed))
    walk = _Walk()
    result: dict[str, Any] = walk.schema(stripped)
    targets = {segments(holder["$ref"])[:2] for holder in walk.refs}
    if not any(("properties", name) in targets for name in removed):
        return result

    definitions = dict(stripped.get("$defs", {}))
    moved: dict[Path, Path] = {}
    for name, definition in removed.items():
        free = name
        while free in definitions:
            free += "_"
        definitions[free] = definition
        moved["properties", name] = ("$defs", free)
    walk = _Walk()
    result = walk.schema({**stripped, "$defs": definitions})
    walk.moved = moved
    walk.redirect_references()
    return result


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]}...")
    return type(value).__name__


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    # Warning: `[[a]` warns about future syntax. Under -W error, Haystack's own check would raise it.
    except (re.error, OverflowError, RecursionError, Warning):
        return False
    return True


def _strip(schema: Any, hidden: frozenset[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        kept = value
        if key == "properties":
            kept = {name: sub for name, sub in value.items() if name not in hidden}
        elif key == "required":
            kept = [name for name in value if name not in hidden] or _DROP
        elif key == "dependentRequired":
            left = {name: [n for n in needs if n not in hidden] for name, needs in value.items() if name not in hidden}
            kept = {name: needs for name, needs in left.items() if needs} or _DROP
        elif key == "dependentSchemas":
            kept = {name: _strip(sub, hidden) for name, sub in value.items() if name not in hidden} or _DROP
        elif key in ("allOf", "anyOf", "oneOf"):
            kept = [_strip(sub, hidden) for sub in value]
        elif key in ("then", "else"):
            kept = _strip(value, hidden)
        if kept is not _DROP:
            out[key] = kept
    return out


class _Walk:
    """
    One pass over a schema.

    The schema that `schema()` returns is valid in 2020-12 by construction, but for `IDENTIFIERS` and references.
    """

    __slots__ = ("draft3_flags", "has_identifiers", "moved", "path", "refs", "widened")

    def __init__(self) -> None:
        self.path: list[str] = []
        self.has_identifiers = False
        # The places of `required: true` (draft 03) and of dropped patterns.
        self.draft3_flags: list[Path] = []
        self.widened: list[Path] = []
        # The schema objects with a `$ref`, and the new places of moved schemas by their old ones (in which parents that
        # moved already have their new names).
        self.refs: list[dict[str, Any]] = []
        self.moved: dict[Path, Path] = {}

    def fail(self, reason: str) -> NoReturn:
        old_places = {new: old for old, new in self.moved.items()}
        place = [old_places.get(tuple(self.path[: i + 1]), (part,))[-1] for i, part in enumerate(self.path)]
        where = pointer(place)
        if len(where) > _MAX_QUOTED:
            where = f"{where[:_MAX_QUOTED]}..."
        msg = f"{where}: {reason}"
        raise ValueError(msg)

    def schema_at(self, path: Path, node: Any) -> Any:
        """
        Return the schema for a new place.
        """
        self.path = list(path)
        return self.schema(node)

    def redirect_references(self) -> None:
        for holder in self.refs:
            target: Path = ()
            redirected = False
            for part in segments(holder["$ref"]):
                target = (*target, part)
                if target in self.moved:
                    target = self.moved[target]
                    redirected = True
            if redirected:
                holder["$ref"] = reference_to(target)

    # Schema objects

    def schema(self, node: Any) -> Any:
        if node is True or node is False:
            return node
        if not isinstance(node, dict):
            # PHP encodes an empty object as an empty list.
            return {} if node == [] else self.fail(f"must be a schema, not {_brief(node)}")
        path = self.path
        self.check_nesting()
        first_flag, first_widened = len(self.draft3_flags), len(self.widened)
        if not _TRANSLATED.isdisjoint(node):
            node = self.translate(node)
        out: dict[str, Any] = {}
        for key, value in node.items():
            verify = _VERIFIED.get(key)
            if verify is None:
                out[key] = self.copy_member(key, value)
                if key in IDENTIFIERS:
                    self.has_identifiers = True
            elif value is not None or key == "type":
                path.append(key)
                verified = verify(self, value)
                if verified is not _DROP:
                    out[key] = verified
                path.pop()
        if "$ref" in out:
            self.refs.append(out)
        if len(self.draft3_flags) > first_flag:
            self.require_flagged(out, first_flag)
        if len(self.widened) > first_widened:
            self.widen(out, first_widened)
        return out

    def translate(self, node: dict[str, Any]) -> dict[str, Any]:
        out = dict(node)
        here = tuple(self.path)
        items, rest = out.get("items"), out.pop("additionalItems", None)
        if isinstance(items, list) and "prefixItems" not in out:
            del out["items"]
            if items:
                out["prefixItems"] = items
                self.moved[*here, "items"] = (*here, "prefixItems")
            if rest is not None:
                out["items"] = rest
                self.moved[*here, "additionalItems"] = (*here, "items")
        for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(out.get(exclusive), bool):
                is_exclusive = out.pop(exclusive)
                if is_exclusive and limit in out:
                    out[exclusive] = out.pop(limit)
        dependencies = out.pop("dependencies", None)
        if dependencies is not None and dependencies != []:
            if not isinstance(dependencies, dict):
                self.path.append("dependencies")
                self.fail(f"must be an object, not {_brief(dependencies)}")
            lists = {
                name: [v] if isinstance(v, str) else v for name, v in dependencies.items() if isinstance(v, (str, list))
            }
            for key, found in (
                ("dependentRequired", lists),
                ("dependentSchemas", {name: v for name, v in dependencies.items() if name not in lists}),
            ):
                known = out.get(key)
                if found and (known is None or isinstance(known, dict)):
                    out[key] = {**found, **(known or {})}
            self.moved[*here, "dependencies"] = (*here, "dependentSchemas")
        for key in ("id", "$id"):
            name = out.get(key)
            if isinstance(name, str) and (key == "id" or name.startswith("#")):
                del out[key]
                if _LOCAL_NAME.fullmatch(name):
                    out.setdefault("$anchor", name[1:])
                elif key == "id":
                    out.setdefault("$id", name)
        # There are no embedded resources, so the outermost `$recursiveAnchor` is the root.
        for key in ("$recursiveRef", "$dynamicRef"):
            if isinstance(out.get(key), str) and "$ref" not in out:
                out["$ref"] = out.pop(key)
        return out

    def require_flagged(self, schema: dict[str, Any], first: int) -> None:
        depth = len(self.path)
        flags = self.draft3_flags[first:]
        names = [flag[-2] for flag in flags if len(flag) == depth + 3 and flag[depth] == "properties"]
        if names:
            schema["required"] = list(dict.fromkeys([*schema.get("required", ()), *names]))
        self.draft3_flags[first:] = [flag for flag in flags if len(flag) == depth + 1]

    def widen(self, schema: dict[str, Any], first: int) -> None:
        # Without its pattern a subschema accepts more. Inside these keywords that would make the whole stricter.
        here = tuple(self.path)
        for place in self.widened[first:]:
            keyword = place[len(here)]
            if keyword == "patternProperties" and len(place) > len(here) + 1:
                continue  # the pattern was dropped from a property's schema, not from the names
            for key in _REMOVED_IF_WIDENED.get(keyword, ()):
                schema.pop(key, None)
            if keyword == "oneOf" and "oneOf" in schema:
                branches = schema.pop("oneOf")
                if "anyOf" not in schema:
                    schema["anyOf"] = branches
                    self.moved[*here, "oneOf"] = (*here, "anyOf")

    def check_nesting(self) -> None:
        if len(self.path) > _MAX_NESTING:
            self.fail(f"is nested more than {_MAX_NESTING} levels deep, or contains itself")

    def copy_member(self, key: Any, value: Any) -> Any:
        if not isinstance(key, str):
            self.fail(f"must have strings as keys, not {_brief(key)}")
        if type(value) in _SCALARS:
            return value
        self.path.append(key)
        copied = self.copy(value)
        self.path.pop()
        return copied

    def copy(self, value: Any) -> Any:
        self.check_nesting()
        if isinstance(value, dict):
            return {key: self.copy_member(key, member) for key, member in value.items()}
        if isinstance(value, list):
            return [v if type(v) in _SCALARS else self.copy_member(str(i), v) for i, v in enumerate(value)]
        if isinstance(value, (str, int, float)):
            return value
        self.fail(f"is not a JSON value but {_brief(value)}")

    # Values of keywords: each method returns the new value, or _DROP

    def schemas(self, value: Any) -> list[Any]:
        if not isinstance(value, list) or not value:
            self.fail("must be a non-empty list of schemas")
        return list(self.schema_map({str(i): node for i, node in enumerate(value)}).values())

    def schema_map(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {} if value == [] else self.fail(f"must be an object of schemas, not {_brief(value)}")
        path = self.path
        out: dict[str, Any] = {}
        for name, node in value.items():
            if not isinstance(name, str):
                self.fail(f"must have strings as keys, not {_brief(name)}")
            path.append(name)
            out[name] = self.schema(node)
            path.pop()
        return out

    def pattern_map(self, value: Any) -> Any:
        schemas = self.schema_map(value)
        kept = {pattern: schema for pattern, schema in schemas.items() if _compiles(pattern)}
        if len(kept) == len(schemas):
            return schemas
        self.widened.append(tuple(self.path))
        return kept or _DROP

    def pattern(self, value: Any) -> Any:
        if not isinstance(value, str):
            self.fail(f"must be a string, not {_brief(value)}")
        if _compiles(value):
            return value
        self.widened.append(tuple(self.path))
        return _DROP

    def types(self, value: Any) -> Any:
        if isinstance(value, str):
            if value in _TYPES:
                return value
            return _DROP if value == "any" else self.fail(f"{_brief(value)} is not a JSON type")
        if isinstance(value, list) and value and all(isinstance(name, str) and name in _TYPES for name in value):
            return list(dict.fromkeys(value))
        self.fail("must be a JSON type, or a list of them")

    def strings(self, value: Any) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail("must be a list of strings")
        return list(dict.fromkeys(value))

    def required(self, value: Any) -> Any:
        if not isinstance(value, bool):
            return self.strings(value)
        if value:
            self.draft3_flags.append(tuple(self.path))
        return _DROP

    def string_lists(self, value: Any) -> dict[str, list[str]]:
        if not isinstance(value, dict):
            return {} if value == [] else self.fail(f"must be an object, not {_brief(value)}")
        copied: dict[str, Any] = self.copy(value)
        for name, names in copied.items():
            self.path.append(name)
            copied[name] = self.strings(names)
            self.path.pop()
        return copied

    def values(self, value: Any) -> Any:
        return self.copy(value) if isinstance(value, list) else self.fail(f"must be a list, not {_brief(value)}")

    def examples(self, value: Any) -> Any:
        return self.copy(value) if isinstance(value, list) else _DROP

    def number(self, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and isfinite(value):
            return value
        self.fail(f"must be a finite number, not {_brief(value)}")

    def positive(self, value: Any) -> Any:
        return value if self.number(value) > 0 else self.fail("must be greater than 0")

    def count(self, value: Any) -> int:
        number = self.number(value)
        return int(number) if number >= 0 and number == int(number) else self.fail("must be a whole number, 0 or more")

    def boolean(self, value: Any) -> Any:
        return value if isinstance(value, bool) else self.fail(f"must be a boolean, not {_brief(value)}")

    def note(self, value: Any) -> Any:
        return value if isinstance(value, str) else _DROP

    def mark(self, value: Any) -> Any:
        return value if isinstance(value, bool) else _DROP

    def dialect(self, value: Any) -> Any:
        return _DIALECT if isinstance(value, str) and value.removesuffix("#") == _DIALECT else _DROP

    def reference(self, value: Any) -> Any:
        if not isinstance(value, str):
            self.fail(f"must be a string, not {_brief(value)}")
        return value


_VERIFIED: Final[dict[str, Callable[[_Walk, Any], Any]]] = {
    keyword: verify
    for verify, keywords in (
        (_Walk.schema, "additionalProperties contains contentSchema else if items not propertyNames then"),
        (_Walk.schema, "unevaluatedItems unevaluatedProperties"),
        (_Walk.schemas, "allOf anyOf oneOf prefixItems"),
        (_Walk.schema_map, "$defs definitions dependentSchemas properties"),
        (_Walk.pattern_map, "patternProperties"),
        (_Walk.pattern, "pattern"),
        (_Walk.types, "type"),
        (_Walk.required, "required"),
        (_Walk.string_lists, "dependentRequired"),
        (_Walk.values, "enum"),
        (_Walk.examples, "examples"),
        (_Walk.number, "exclusiveMaximum exclusiveMinimum maximum minimum"),
        (_Walk.positive, "multipleOf"),
        (_Walk.count, "maxContains maxItems maxLength maxProperties minContains minItems minLength minProperties"),
        (_Walk.boolean, "uniqueItems"),
        (_Walk.note, "$comment contentEncoding contentMediaType description format title"),
        (_Walk.mark, "deprecated readOnly writeOnly"),
        (_Walk.dialect, "$schema"),
        (_Walk.reference, "$ref"),
    )
    for keyword in keywords.split()
}
