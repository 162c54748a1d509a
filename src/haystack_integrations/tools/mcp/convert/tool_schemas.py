# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Converts the input schemas of MCP tools to parameters for Haystack tools.

MCP servers use every draft of JSON Schema from 04 on, and Haystack accepts only draft 2020-12. OpenAI and Anthropic
refuse a whole request if the parameters of one tool have `anyOf`, `oneOf`, `allOf`, `not` or `enum` at the root.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    import mcp_types as types

Schema = dict[str, Any]
Path = tuple[str, ...]

# Keywords whose values are schemas by names, schemas in lists, and single schemas.
SCHEMAS_BY_NAME: Final = frozenset("properties patternProperties $defs definitions dependentSchemas".split())
SCHEMA_LISTS: Final = frozenset("allOf anyOf oneOf prefixItems".split())
SINGLE_SCHEMAS: Final = frozenset(
    "items additionalProperties unevaluatedItems unevaluatedProperties propertyNames contains not if then else "
    "contentSchema".split()
)
# Keywords whose values are texts for readers.
TEXTS: Final = frozenset({"title", "description", "$comment"})

# Haystack's Tool runs `Draft202012Validator.check_schema`, which uses up to eight Python frames per level of JSON. With
# a deeper schema it could raise a RecursionError if the caller's stack is already some hundred frames deep.
_MAX_NESTING: Final = 64
_MAX_QUOTED: Final = 200
# How many references to nowhere a note names, and how many subschemas the root is folded from.
_MOST_NOTED: Final = 10
_MOST_FOLDED: Final = 1_000

_TYPES: Final = frozenset("array boolean integer null number object string".split())
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})
# References by name become JSON pointers, so that these have no use any more.
_IDENTIFIERS: Final = frozenset(
    "$schema $id $anchor $dynamicAnchor $dynamicRef $recursiveAnchor $recursiveRef $vocabulary".split()
)
_OLD: Final = frozenset(
    "items additionalItems exclusiveMinimum exclusiveMaximum dependencies $recursiveRef $dynamicRef type".split()
)
# What is folded at the root. The result only accepts more.
_FOLDED: Final = frozenset("$ref allOf anyOf oneOf not if then else enum const discriminator".split())


def permissive_schema() -> Schema:
    """
    Return a schema that accepts any arguments, for a tool whose own schema is not known yet.

    :returns: The schema.
    """
    return {"type": "object", "properties": {}, "additionalProperties": True}


def normalize_parameters(schema: Any, notes: list[str] | None = None) -> Schema:
    """
    Convert the `inputSchema` of an MCP tool, in any draft, to parameters that Haystack and LLM providers accept.

    The result is valid in draft 2020-12 and accepts what the schema accepts, or more: several subschemas of the root
    become one object, a reference to nowhere accepts anything, a `pattern` that Python cannot compile is dropped, and a
    keyword whose value is `null` counts as absent. References are never fetched; they become JSON pointers.

    :param schema: The schema from the server. It is not changed, and the result shares no mutable part with it.
    :param notes: Gets a clause about each thing that is missing in the schema.
    :returns: A 2020-12 schema with a top-level `type: object` and `properties`.
    :raises ValueError: If the schema is not that of an object, is nested too deeply, or is invalid. The message gives
        the location as a JSON pointer.
    """
    result, missing = _converted(schema, frozenset())
    if notes is not None and missing:
        shown = ", ".join(repr(_shortened(ref)) for ref in missing[:_MOST_NOTED])
        notes.append(
            f"its schema refers to definitions that it does not have, in whose place it takes anything: {shown}"
        )
    return result


def without_properties(schema: Schema, names: Iterable[str]) -> Schema:
    """
    Remove top-level properties from a schema, because something other than the model supplies their values.

    :param schema: The result of `normalize_parameters`. It is not changed.
    :param names: The properties to remove. Unknown names are ignored.
    :returns: A copy without these properties, and without what the schema says of the presence of several. A removed
        property to which a `$ref` points is moved to `$defs`.
    """
    return _converted(schema, frozenset(names))[0]


def map_texts(schema: Any, change: Callable[[str], str]) -> Any:
    """
    Replace the texts of a JSON schema that are for its readers: titles, descriptions and comments.

    :param schema: The schema. It is not changed.
    :param change: Returns the new text for each.
    :returns: The changed schema.
    """
    if isinstance(schema, list):
        return [map_texts(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for key, value in schema.items():
        if key in TEXTS and isinstance(value, str):
            changed[key] = change(value)
        elif key in SINGLE_SCHEMAS or key in SCHEMA_LISTS:
            changed[key] = map_texts(value, change)
        elif key in SCHEMAS_BY_NAME and isinstance(value, dict):
            changed[key] = {name: map_texts(each, change) for name, each in value.items()}
    return changed


def subschemas(schema: Any, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """
    Find all schemas in a schema, itself included.

    :param schema: The schema.
    :param path: Its place.
    :returns: Those that are objects, with their places, parents first.
    """
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in SCHEMAS_BY_NAME and isinstance(value, dict):
            for name, each in value.items():
                yield from subschemas(each, (*path, key, name))
        elif isinstance(value, list) and (key in SCHEMA_LISTS or key == "items"):
            for index, each in enumerate(value):
                yield from subschemas(each, (*path, key, str(index)))
        elif key in SINGLE_SCHEMAS:
            yield from subschemas(value, (*path, key))


def at_pointer(node: Any, pointer: str) -> Any:
    """
    Follow a JSON pointer in a URI fragment.

    :param node: The document.
    :param pointer: The fragment, without `#`.
    :returns: What stands there; None if nothing does.
    """
    for part in pointer.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(key)] if key.isdecimal() and int(key) < len(node) else None
        elif isinstance(node, dict):
            node = node.get(key, node.get(part))
        else:
            return None
    return node


def _converted(schema: Any, hidden: frozenset[str]) -> tuple[Schema, list[str]]:
    """
    Convert a schema, without some of its properties; return it with its references to nowhere.
    """
    if not isinstance(schema, dict):
        _fail((), f"must be a JSON object, not {type(schema).__name__}")
    declared = schema.get("type")
    if declared is not None and declared != "object" and not (isinstance(declared, list) and "object" in declared):
        shown = repr(_shortened(declared)) if isinstance(declared, str) else type(declared).__name__
        _fail(("type",), f"must be 'object', because tools take named arguments, not {shown}")
    conversion = _Conversion(schema)
    try:
        result: Schema = conversion.schema(schema, ())
    except RecursionError:
        _fail((), "is nested too deeply")
    if not _FOLDED.isdisjoint(result):
        folded = conversion.fold(result)
        if folded is None:
            _fail((), "accepts no object, but tools take named arguments")
        result = {**folded, **{key: result[key] for key in _DEFINITIONS.intersection(result)}}
    result = {**result, "type": "object", "properties": dict(result.get("properties", {}))}
    if not hidden.isdisjoint(result["properties"]):
        result["properties"] = {name: each for name, each in result["properties"].items() if name not in hidden}
        required = [name for name in result.pop("required", ()) if name not in hidden]
        if required:
            result["required"] = required
        for key in ("dependentRequired", "dependentSchemas", "minProperties"):
            result.pop(key, None)
    return result, conversion.point_references(result)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


def _pointer(path: Iterable[str]) -> str:
    return "/".join(["#", *(part.replace("~", "~0").replace("/", "~1") for part in path)])


def _fail(path: Path, reason: str) -> NoReturn:
    msg = f"{_shortened(_pointer(path))}: {reason}"
    raise ValueError(msg)


class _Conversion:
    """
    The conversion of one schema.

    References are looked up in the server's schema, and point to wherever the schema that was made of their target is
    in the result. What is not in the result, or is only among the definitions of a part of it, is moved to `$defs`.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        # What was made of the server's schemas, by their identities.
        self._made: dict[int, Schema] = {}
        # Schemas with a `$ref`, by their identities, and those around them that may have what it names.
        self._holders: dict[int, tuple[Schema, tuple[Schema, ...]]] = {}
        self._folds = 0
        # How many patterns were dropped.
        self._dropped = 0

    def schema(self, node: Any, path: Path, scopes: tuple[Schema, ...] = ()) -> Any:
        if isinstance(node, bool):
            return node
        if node == []:  # as PHP encodes an empty object
            return {}
        if not isinstance(node, dict):
            _fail(path, f"must be a schema, not {type(node).__name__}")
        if len(path) > _MAX_NESTING:
            _fail(path, f"is nested more than {_MAX_NESTING} levels deep, or contains itself")
        if "$id" in node or not _DEFINITIONS.isdisjoint(node):
            scopes = (*scopes, node)
        result: Schema = {}
        dropped = self._dropped
        self._made[id(node)] = result
        for key, value in (node if _OLD.isdisjoint(node) else _modern(node, path)).items():
            place = (*path, key)
            if key in _IDENTIFIERS or (value is None and key not in ("default", "const")):
                continue
            if key in SCHEMAS_BY_NAME:
                if path and key in _DEFINITIONS:
                    continue
                result[key] = {
                    name: self.schema(each, (*place, name), scopes)
                    for name, each in _mapping(value, place).items()
                    if key != "patternProperties" or self._compiles(name)
                }
            elif key in SCHEMA_LISTS:
                if not isinstance(value, list) or not value:
                    _fail(place, "must be a non-empty list of schemas")
                result[key] = [self.schema(each, (*place, str(index)), scopes) for index, each in enumerate(value)]
            elif key in SINGLE_SCHEMAS:
                result[key] = self.schema(value, place, scopes)
            elif _is_kept(value, place) and (key != "pattern" or self._compiles(str(value))):
                result[key] = deepcopy(value)
        _require(result, node)
        if self._dropped > dropped:
            _widen(result, node)
        if "$ref" in result:
            self._holders[id(result)] = result, scopes
        return result

    def _compiles(self, pattern: str) -> bool:
        try:
            re.compile(pattern)
        # Warning: `[[a]` warns about future syntax. Under -W error, Haystack's own check would raise it.
        except (re.error, OverflowError, RecursionError, Warning):
            self._dropped += 1
            return False
        return True

    @cached_property
    def _names(self) -> dict[str, Any]:
        """
        The server's schemas by their URIs, by their anchors, and by the names of definitions.
        """
        found: dict[str, Any] = {}
        waiting: list[Any] = [self._root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                for key, prefix in (("$id", ""), ("id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                    if isinstance(name := node.get(key), str):
                        found.setdefault(prefix + name, node)
                for key in ("$defs", "definitions", "schemas"):
                    if isinstance(definitions := node.get(key), dict):
                        found = {**definitions, **found}
            waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return found

    def _find(self, ref: str, scopes: tuple[Schema, ...]) -> Any:
        base, _, fragment = ref.partition("#")
        if base:
            homes = [self._names.get(base)]
        else:  # a schema that stood alone once has pointers that are relative to it
            around = scopes[::-1]
            homes = [*(each for each in around if "$id" in each), self._root, *around]
        if fragment[:1] in ("", "/"):
            for home in homes:
                if isinstance(found := at_pointer(home, fragment), dict | bool):
                    return found
        if f"#{fragment}" in self._names:
            return self._names[f"#{fragment}"]
        return None if "//" in ref else self._names.get(unquote(ref.rpartition("/")[2]))

    def _target(self, holder: Schema) -> Schema | bool | None:
        """
        Return what was made of what a schema refers to; None if that stands nowhere.
        """
        _, scopes = self._holders[id(holder)]
        found = self._find(holder["$ref"], scopes)
        if not isinstance(found, dict):
            return found if isinstance(found, bool) else None
        if id(found) not in self._made:
            self.schema(found, ("$defs", holder["$ref"]), scopes)
        return self._made[id(found)]

    def point_references(self, result: Schema) -> list[str]:
        """
        Make every reference in the result a JSON pointer from its root; return those to nowhere, which are removed.
        """
        missing: dict[str, None] = {}
        found = list(subschemas(result))
        paths = {id(each): path for path, each in found}
        for _, holder in found:  # which grows with what is moved
            if id(holder) not in self._holders:
                continue
            ref, target = holder["$ref"], self._target(holder)
            del self._holders[id(holder)]
            if target is self._made[id(self._root)]:
                holder["$ref"] = "#"
            elif isinstance(target, dict):
                if id(target) not in paths:
                    definitions = result.setdefault("$defs", {})
                    name = unquote(ref.rpartition("/")[2]).lstrip("#") or "definition"
                    while name in definitions:
                        name += "_"
                    definitions[name] = target
                    moved = list(subschemas(target, ("$defs", name)))
                    paths |= {id(each): path for path, each in moved}
                    found += moved
                holder["$ref"] = quote(_pointer(paths[id(target)]), safe="#/~!$&'()*+,;=:@?")
            else:
                del holder["$ref"]
                if target is None:
                    missing[ref] = None
        return list(missing)

    def fold(self, schema: Any, around: frozenset[int] = frozenset()) -> Schema | None:
        """
        Return one object for a schema with alternatives: with the properties of all, and what all require.

        :param schema: The schema.
        :param around: The identities of those that it is a part of, so that a circle ends.
        :returns: The schema of the objects that it accepts; None if it accepts none.
        """
        if not isinstance(schema, dict):
            return {} if schema is True else None
        self._folds += 1
        if self._folds > _MOST_FOLDED:
            _fail((), f"has more than {_MOST_FOLDED:,} alternatives")
        declared = schema.get("type", "object")
        if "object" not in (declared if isinstance(declared, list) else [declared]):
            return None
        if id(schema) in around:
            return {}
        around |= {id(schema)}
        result = {key: value for key, value in schema.items() if key not in _FOLDED and key not in _DEFINITIONS}
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema:
            target = self._target(schema)
            parts.append(True if target is None else target)
        for part in parts:
            folded = self.fold(part, around)
            if folded is None:
                return None
            result = _both(result, folded)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                alternatives = [one for each in schema[key] if (one := self.fold(each, around)) is not None]
                if not alternatives:
                    return None
                result = _both(result, _either(alternatives))
        for key in ("then", "else"):
            if folded := self.fold(schema.get(key, True), around):
                result["properties"] = {**folded.get("properties", {}), **result.get("properties", {})}
        return result


def _both(first: Schema, second: Schema) -> Schema:
    result = {**second, **first}
    if "properties" in second and "properties" in first:
        properties = dict(first["properties"])
        for name, each in second["properties"].items():
            properties[name] = _all_of(properties[name], each) if name in properties else each
        result["properties"] = properties
    if "required" in second and "required" in first:
        result["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return result


def _all_of(first: Any, second: Any) -> Any:
    if first is True or first == second:
        return second
    if second is True:
        return first
    are_independent = isinstance(first, dict) and isinstance(second, dict) and first.keys().isdisjoint(second)
    # A reference keeps its identity, by which it is pointed to its target later.
    return {**first, **second} if are_independent and "$ref" not in {*first, *second} else {"allOf": [first, second]}


def _either(alternatives: list[Schema]) -> Schema:
    properties: dict[str, list[Any]] = {}
    for each in alternatives:
        for name, schema in each.get("properties", {}).items():
            properties.setdefault(name, []).append(schema)
    result: Schema = {"properties": {name: _any_of(schemas) for name, schemas in properties.items()}}
    required = [name for name in properties if all(name in each.get("required", ()) for each in alternatives)]
    if required:
        result["required"] = required
    if all(each.get("additionalProperties") is False for each in alternatives):
        result["additionalProperties"] = False
    return result


def _any_of(schemas: list[Any]) -> Any:
    distinct: list[Any] = [each for index, each in enumerate(schemas) if each not in schemas[:index]]
    if len(distinct) == 1 or True in distinct:
        return distinct[0] if len(distinct) == 1 else True
    # The property by whose value one alternative is meant.
    if all(isinstance(each, dict) and not {"const", "enum"}.isdisjoint(each) for each in distinct):
        values = [value for each in distinct for value in each.get("enum", [each.get("const")])]
        shared = {key: value for key, value in distinct[0].items() if all(each.get(key) == value for each in distinct)}
        return {**shared, "enum": [value for index, value in enumerate(values) if value not in values[:index]]}
    return {"anyOf": distinct}


def _mapping(value: Any, path: Path) -> Schema:
    if value == []:  # as PHP encodes an empty object
        return {}
    return value if isinstance(value, dict) else _fail(path, f"must be an object, not {type(value).__name__}")


def _modern(node: Schema, path: Path) -> Schema:
    """
    Translate the keywords of older drafts.
    """
    out = dict(node)
    items, rest = out.get("items"), out.pop("additionalItems", None)
    if isinstance(items, list) and "prefixItems" not in out:
        del out["items"]
        out |= {"prefixItems": items} if items else {}
        out |= {} if rest is None else {"items": rest}
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(out.get(exclusive), bool) and out.pop(exclusive) and limit in out:
            out[exclusive] = out.pop(limit)
    dependencies = _mapping(out.pop("dependencies", None) or {}, (*path, "dependencies"))
    for name, each in dependencies.items():
        key = "dependentRequired" if isinstance(each, str | list) else "dependentSchemas"
        out[key] = {name: [each] if isinstance(each, str) else each, **_mapping(out.get(key) or {}, (*path, key))}
    for key in ("$recursiveRef", "$dynamicRef"):
        if isinstance(out.get(key), str):
            out.setdefault("$ref", out[key])
    if out.get("type") == "any":
        del out["type"]
    return out


def _require(result: Schema, node: Schema) -> None:
    """
    Take over what a schema requires, and what its properties say of themselves, as in draft 03.
    """
    flagged = [
        name
        for name, each in _mapping(node.get("properties") or {}, ()).items()
        if isinstance(each, dict) and each.get("required") is True
    ]
    if flagged or "required" in result:
        result["required"] = list(dict.fromkeys([*result.get("required", ()), *flagged]))


def _is_kept(value: Any, place: Path) -> bool:
    """
    Check the value of a keyword; False if the keyword is to be dropped.
    """
    key = place[-1]
    if key in _ANNOTATIONS:
        return isinstance(value, _ANNOTATIONS[key])
    if key == "required" and isinstance(value, bool):  # see `_require`
        return False
    if key in _RULES:
        is_valid, reason = _RULES[key]
        if not is_valid(value):
            _fail(place, f"{reason}, not {_shortened(repr(value)) if isinstance(value, str) else type(value).__name__}")
    return True


def _widen(result: Schema, node: Schema) -> None:
    """
    Drop what could refuse more than before, because a pattern in the schema was dropped.
    """
    for key in ("not", "if", "then", "else", "maxContains"):
        result.pop(key, None)
    if len(result.get("patternProperties", ())) < len(node.get("patternProperties") or ()):
        result.pop("additionalProperties", None)
        result.pop("unevaluatedProperties", None)
    if "oneOf" in result and "anyOf" not in result:
        result["anyOf"] = result.pop("oneOf")
    result.pop("oneOf", None)


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_types(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _are_strings(names) and 0 < len(names) == len(set(names)) and _TYPES.issuperset(names)


def _are_lists_of_strings(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_are_strings, value.values()))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


# Annotations of another type are dropped; other keywords make the schema invalid.
_ANNOTATIONS: Final[dict[str, type]] = {
    **dict.fromkeys("title description $comment format contentEncoding contentMediaType".split(), str),
    **dict.fromkeys("deprecated readOnly writeOnly".split(), bool),
    "examples": list,
}
_RULES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    keyword: (is_valid, reason)
    for keywords, is_valid, reason in (
        ("type", _are_types, "must be a JSON type, or a list of them"),
        ("required", _are_strings, "must be a list of strings"),
        ("dependentRequired", _are_lists_of_strings, "must be an object of lists of strings"),
        ("enum", lambda value: isinstance(value, list), "must be a list"),
        ("uniqueItems", lambda value: isinstance(value, bool), "must be a boolean"),
        ("$ref pattern", lambda value: isinstance(value, str), "must be a string"),
        ("minimum maximum exclusiveMinimum exclusiveMaximum", _is_number, "must be a finite number"),
        ("multipleOf", _is_positive, "must be a number greater than 0"),
        (
            "minLength maxLength minItems maxItems minContains maxContains minProperties maxProperties",
            _is_count,
            "must be a whole number, 0 or more",
        ),
    )
    for keyword in keywords.split()
}


ALL_TYPES: tuple[str, ...] = ("null", "boolean", "integer", "number", "string", "array", "object")

_NAMES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
# References within a schema may lead in circles.
_MOST_REFERENCES = 32


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Follow the references of a schema within its document.

    :param schema: The schema.
    :param root: The document.
    :returns: What it refers to; an empty schema for one that cannot be found.
    """
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = at_pointer(root, reference[1:]) if reference.startswith("#") else None
    return {}


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """
    Return the JSON types that a schema allows.

    :param schema: The schema.
    :param root: The document that it is in.
    :returns: Names of types; all if the schema does not say.
    """
    return _types_of(schema, root, {})


def _types_of(schema: Any, root: Mapping[str, Any], known: dict[int, set[str]]) -> set[str]:
    schema = resolved(schema, root)
    if id(schema) not in known:
        known[id(schema)] = set(ALL_TYPES)  # what it says if it is in itself
        known[id(schema)] = _own_types(schema, root, known)
    return known[id(schema)]


def _own_types(schema: Mapping[str, Any], root: Mapping[str, Any], known: dict[int, set[str]]) -> set[str]:
    named = schema.get("type")
    if isinstance(named, str | list):
        return {named} if isinstance(named, str) else set(map(str, named))
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            options = [_types_of(option, root, known) for option in schema[key]]
            return set(ALL_TYPES).intersection(*options) if key == "allOf" else set().union(*options)
    return {type_of(value) for value in choices_of(schema)} or set(ALL_TYPES)


def choices_of(schema: Mapping[str, Any]) -> list[Any]:
    """
    Return the values that a schema names.

    :param schema: The schema.
    :returns: The values; none if it names none.
    """
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if isinstance(schema.get("enum"), list) else []


def type_of(value: Any) -> str:
    """
    Name the JSON type of a value.

    :param value: JSON.
    :returns: "integer" for whole numbers, "number" for others.
    """
    return _NAMES.get(type(value), "object")


NEEDS_TASKS: Final = (
    "it can only be called as a task of revision 2025-11-25 (execution.taskSupport), which later revisions have "
    "replaced. This client runs tasks with servers of revision 2026-07-28"
)


def needs_tasks(definition: types.Tool) -> bool:
    """
    Return whether a tool can be called only as a task.

    :param definition: What the server says of it.
    :returns: Whether it says so.
    """
    return definition.execution is not None and definition.execution.task_support == "required"
