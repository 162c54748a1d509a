# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Converts the input schemas of MCP tools to parameters for Haystack tools.

MCP servers use every draft of JSON Schema from 04 on, and Haystack accepts only draft 2020-12. OpenAI and Anthropic
refuse a whole request if the parameters of one tool have `anyOf`, `oneOf`, `allOf`, `not` or `enum` at the root.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from copy import deepcopy
from math import ceil, floor
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn
from urllib.parse import unquote

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from haystack_integrations.tools.mcp.convert.arguments import at_pointer
from haystack_integrations.tools.mcp.convert.server_texts import escaped_text

if TYPE_CHECKING:
    import mcp_types as types

Schema = dict[str, Any]
Path = tuple[str, ...]
# The schemas of each property, one per alternative, and the names of the required properties.
_Object = tuple[dict[str, list[Any]], list[str]]

# Keywords whose values are mappings from names to schemas, lists of schemas, and single schemas.
SCHEMAS_BY_NAME: Final = frozenset("properties patternProperties $defs definitions dependentSchemas".split())
SCHEMA_LISTS: Final = frozenset("allOf anyOf oneOf prefixItems".split())
SINGLE_SCHEMAS: Final = frozenset(
    "items additionalProperties unevaluatedItems unevaluatedProperties propertyNames contains not if then else "
    "contentSchema".split()
)
# Keywords whose values are texts for readers.
TEXT_KEYWORDS: Final = frozenset({"title", "description", "$comment"})
# With this key in a parameter's schema, its argument is also sent as an HTTP header, which proxies may log.
HEADER_KEY: Final = "x-mcp-header"

# Haystack's Tool runs `Draft202012Validator.check_schema`, which uses up to eight Python frames per level of JSON. With
# a deeper schema it could raise a RecursionError if the caller's stack is already some hundred frames deep.
_MAX_NESTING: Final = 64
_MAX_QUOTED: Final = 200
# How many unresolvable references a note names.
_MAX_NOTED_REFERENCES: Final = 10

_DEFINITIONS: Final = ("$defs", "definitions", "schemas")
# After conversion, all references point into `$defs`, so these keywords have no further use. The keyword `dependencies`
# of older drafts only adds requirements, and OpenAPI's `discriminator` only repeats what the alternatives say.
_DROPPED_KEYWORDS: Final = frozenset(
    "$schema $id $anchor $dynamicAnchor $dynamicRef $recursiveAnchor $recursiveRef $vocabulary $defs definitions "
    "dependencies discriminator".split()
)
# Keywords that are folded into one object at the root. The result never accepts less.
_FOLDED: Final = frozenset("$ref allOf anyOf oneOf not if then else enum const".split())

_Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
_Number = Annotated[float, Field(allow_inf_nan=False)]
# Python's names of the types, which some servers use.
_PYTHON_TYPES: Final = {
    **{"int": "integer", "float": "number", "str": "string", "bool": "boolean"},
    **{"list": "array", "dict": "object"},
}
# Types of the values of keywords. A wrong annotation is dropped; any other wrong value makes the schema invalid.
_ANNOTATIONS: Final[dict[str, Any]] = {
    **dict.fromkeys("title description $comment format contentEncoding contentMediaType".split(), str),
    **dict.fromkeys("deprecated readOnly writeOnly".split(), bool),
    "examples": list,
}
_VALUES: Final[dict[str, Any]] = {
    "type": _Type | Annotated[list[_Type], Field(min_length=1)],
    "required": list[str],
    "dependentRequired": dict[str, list[str]],
    "enum": list[Any],
    "uniqueItems": bool,
    "$ref pattern": str,
    "minimum maximum exclusiveMinimum exclusiveMaximum": _Number,
    "multipleOf": Annotated[_Number, Field(gt=0)],
    "minLength maxLength minItems maxItems minContains maxContains minProperties maxProperties": Annotated[
        _Number, Field(ge=0, multiple_of=1)
    ],
}
_KEYWORDS: Final[dict[str, TypeAdapter[Any]]] = {
    keyword: TypeAdapter(kind, config=ConfigDict(strict=True))
    for keywords, kind in _VALUES.items()
    for keyword in keywords.split()
}


def permissive_schema() -> Schema:
    """
    Return a schema that accepts any arguments, for a tool whose own schema is not known yet.

    :returns: The schema.
    """
    return {"type": "object", "properties": {}, "additionalProperties": True}


def normalize_parameters(schema: Any, notes: list[str] | None = None) -> Schema:
    """
    Convert the `inputSchema` of an MCP tool, in any draft, to parameters that Haystack and LLM providers accept.

    The result is valid in draft 2020-12 and at most as strict as the schema: several subschemas of the root become one
    object, an unresolvable reference accepts anything, a `pattern` that Python cannot compile is dropped, and a keyword
    whose value is `null` counts as absent. References are never fetched; their targets are collected in `$defs`.

    :param schema: The schema from the server. It is not changed, and the result shares no mutable part with it.
    :param notes: A list to which a clause is appended if definitions are missing in the schema.
    :returns: A 2020-12 schema with a top-level `type: object` and `properties`.
    :raises ValueError: If the schema does not describe an object, is nested too deeply, or is invalid. The message
        contains the location as a JSON pointer.
    """
    if not isinstance(schema, dict):
        _fail((), f"must be a JSON object, not {type(schema).__name__}")
    declared = _types(schema.get("type"))
    if declared is not None and not _is_among("object", declared):
        shown = repr(shortened(declared)) if isinstance(declared, str) else type(declared).__name__
        _fail(("type",), f"must be 'object', because tools take named arguments, not {shown}")
    conversion = _Conversion(schema)
    try:
        result = conversion.result()
    except RecursionError:
        _fail((), "is nested too deeply")
    if notes is not None and conversion.missing:
        shown = ", ".join(repr(shortened(ref)) for ref in [*conversion.missing][:_MAX_NOTED_REFERENCES])
        notes.append(
            f"its schema refers to definitions that it does not have; anything is accepted in their place: {shown}"
        )
    return result


def without_properties(schema: Schema, names: Collection[str]) -> Schema:
    """
    Remove top-level properties from a schema, because something other than the model supplies their values.

    :param schema: The result of `normalize_parameters`. It is not changed.
    :param names: The properties to remove.
    :returns: A copy without these properties and their definitions, and without keywords that relate the presence of
        several properties.
    """
    left_out = ("$defs", "required", "dependentRequired", "dependentSchemas", "minProperties")
    result = {key: value for key, value in schema.items() if key not in left_out}
    result["properties"] = {name: each for name, each in schema["properties"].items() if name not in names}
    if required := [name for name in schema.get("required", ()) if name not in names]:
        result["required"] = required
    return _with_definitions(result, schema.get("$defs", {}))


def with_output_schema(description: str, schema: dict[str, Any] | None) -> str:
    """
    Add an output schema to a description.

    :param description: The description.
    :param schema: The output schema, if the tool has one.
    :returns: The description for the model.
    """
    if not schema:
        return description
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f"{description}\n\nThe result has this JSON schema: {text}".lstrip()


def map_keywords(schema: Any, change: Callable[[str, Any], Any]) -> Any:
    """
    Replace the values of the keywords of a JSON schema and its subschemas.

    :param schema: The schema. It is not changed.
    :param change: Takes a keyword whose value is not a schema, and the value; returns the new value.
    :returns: The changed schema.
    """
    if isinstance(schema, list):
        return [map_keywords(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {}
    for key, value in schema.items():
        if key in SINGLE_SCHEMAS or key in SCHEMA_LISTS:
            changed[key] = map_keywords(value, change)
        elif key in SCHEMAS_BY_NAME and isinstance(value, dict):
            changed[key] = {name: map_keywords(each, change) for name, each in value.items()}
        else:
            changed[key] = change(key, value)
    return changed


def has_key(schema: Any, key: str) -> bool:
    """
    Return whether a JSON value has a key at any depth.

    :param schema: The value.
    :param key: The key.
    :returns: Whether an object in it has the key.
    """
    if isinstance(schema, dict):
        return key in schema or any(has_key(each, key) for each in schema.values())
    return isinstance(schema, list) and any(has_key(each, key) for each in schema)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """
    Replace all strings in a JSON value, including names and enumerations.

    :param value: The value. It is not changed.
    :param change: Takes a string and returns the new one.
    :returns: The changed value. Strings that became equal occur only once in a list of strings. The `pattern` of a
        schema keeps its meaning: its invisible characters are escaped.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        result = {change(name): map_strings(each, change) for name, each in value.items()}
        if isinstance(pattern := value.get("pattern"), str):
            result[change("pattern")] = escaped_text(pattern)
        return result
    if isinstance(value, list):
        changed = [map_strings(each, change) for each in value]
        is_shorter = changed != value and all(isinstance(each, str) for each in changed)
        return [*dict.fromkeys(changed)] if is_shorter else changed
    return value


def shortened(text: str) -> str:
    """
    Shorten a server's text, so that a message can quote it.

    :param text: The text.
    :returns: Its beginning if it is long, else the text.
    """
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


def _fail(path: Path, reason: str) -> NoReturn:
    pointer = "/".join(["#", *(part.replace("~", "~0").replace("/", "~1") for part in path)])
    msg = f"{shortened(pointer)}: {reason}"
    raise ValueError(msg)


def _with_definitions(schema: Schema, definitions: Schema) -> Schema:
    """
    Return a converted schema with the definitions that it refers to, directly or indirectly.
    """
    used: Schema = {}
    waiting: list[Any] = [schema]
    for node in waiting:  # the loop appends to this list
        if isinstance(node, dict):
            name = str(node.get("$ref")).removeprefix("#/$defs/")
            if name in definitions and name not in used:
                used[name] = definitions[name]
                waiting.append(used[name])
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return {**schema, "$defs": used} if used else schema


class _Conversion:
    """
    The conversion of one schema.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        # The names in `$defs` of the server's schemas that references point to, by `id` of the schema.
        self._named: dict[int, str] = {}
        self._waiting: list[tuple[str, Schema]] = []
        self._definitions: Schema = {}
        self._folded: dict[str, _Object | None] = {}
        # The unresolvable references, in their order.
        self.missing: dict[str, None] = {}

    def result(self) -> Schema:
        result: Schema = self._schema(self._root, ())
        for name, definition in self._waiting:  # the loop appends to this list
            self._definitions[name] = self._schema(definition, ("$defs", name))
        if not _FOLDED.isdisjoint(result):
            folded = self._fold(result)
            if folded is None:
                _fail((), "accepts no object, but tools take named arguments")
            properties, required = folded
            result = {key: value for key, value in result.items() if key not in _FOLDED}
            result["properties"] = {name: _any_of(schemas) for name, schemas in properties.items()}
            result |= {"required": required} if required else {}
        result = {**result, "type": "object", "properties": result.get("properties", {})}
        return _with_definitions(result, self._definitions)

    def _schema(self, node: Any, path: Path) -> Any:
        # PHP encodes an empty object as a list. Rust servers write `true` for any value; some chat generators cannot
        # read that.
        if node is True or node == []:
            return {}
        if node is False:
            return node
        if not isinstance(node, dict):
            _fail(path, f"must be a schema, not {type(node).__name__}")
        if len(path) > _MAX_NESTING:
            _fail(path, f"is nested more than {_MAX_NESTING} levels deep")
        result: Schema = {}
        for key, value in _modern(node).items():
            place = (*path, key)
            if key in _DROPPED_KEYWORDS or (value is None and key not in ("default", "const")):
                continue
            if value in ([], {}) and key in ("required", "dependentRequired"):  # PHP and Lua confuse [] and {}
                continue
            if key in SCHEMAS_BY_NAME:
                result[key] = {
                    name: self._schema(each, (*place, name)) for name, each in _mapping(value, place).items()
                }
            elif key in SCHEMA_LISTS:
                if not isinstance(value, list) or not value:
                    _fail(place, "must be a non-empty list of schemas")
                result[key] = [self._schema(each, (*place, str(index))) for index, each in enumerate(value)]
            elif key in SINGLE_SCHEMAS:
                result[key] = self._schema(value, place)
                if key == "additionalProperties" and result[key] == {}:  # equivalent, but OpenAI refuses {}
                    result[key] = True
            elif _is_kept(key, value, place):
                result[key] = deepcopy(value)
            # Inside these keywords, a subschema that accepts more makes the outer schema accept less, perhaps nothing.
            if key in ("not", "if") and result[key] != value:
                del result[key]
        if not all(map(_compiles, result.get("patternProperties", ()))):
            del result["patternProperties"]
            result.pop("additionalProperties", None)
        if "$ref" in result:
            self._point(result)
        # OpenAI refuses a whole request if an array has no `items`, or an enumeration is empty or repeats a value.
        if _is_among("array", result.get("type")):
            result.setdefault("items", {})
        if "required" in result:
            result["required"] = list(dict.fromkeys(result["required"]))
        if "enum" in result:
            result["enum"] = [*{json.dumps(value, sort_keys=True): value for value in result["enum"]}.values()]
            if not result["enum"]:
                del result["enum"]
        if path:
            _use_common_keywords(result)
        return result

    def _point(self, holder: Schema) -> None:
        """
        Rewrite the reference of a schema to point into `$defs`, or remove it if it cannot be resolved.
        """
        ref: str = holder.pop("$ref")
        target = self._find(ref)
        if target is self._root:
            holder["$ref"] = "#"
        elif isinstance(target, dict):
            if id(target) not in self._named:
                name = re.sub(r"[^\w.-]+", "_", unquote(re.split("[/#]", ref)[-1])) or "definition"
                while name in self._named.values():
                    name += "_"
                self._named[id(target)] = name
                self._waiting.append((name, target))
            holder["$ref"] = f"#/$defs/{self._named[id(target)]}"
        elif target is None:
            self.missing[ref] = None

    def _find(self, ref: str) -> Any:
        """
        Return the server's schema that a reference names, wherever it is in the document; None if it is not there.
        """
        if ref == "#" or ref.startswith("#/"):
            found = at_pointer(self._root, ref[1:])
            if isinstance(found, dict | bool):
                return found
        last = ref.rpartition("/")[2]
        waiting: list[Any] = [self._root]
        for node in waiting:  # the loop appends to this list
            if isinstance(node, dict):
                if ref in (node.get("$id"), f"#{node.get('$anchor')}"):
                    return node
                for key in _DEFINITIONS:
                    definitions = node.get(key)
                    if isinstance(definitions, dict):
                        found = definitions.get(last, definitions.get(unquote(last)))
                        if isinstance(found, dict | bool):
                            return found
            waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return None

    def _fold(self, schema: Any) -> _Object | None:
        """
        Find the properties of the objects that a converted schema accepts, and which of them it requires.

        :returns: The schemas of each property, one per alternative, and the required names; None if it accepts no
            objects.
        """
        if not isinstance(schema, dict):
            return ({}, []) if schema is True else None
        if not _is_among("object", schema.get("type", "object")):
            return None
        properties = {name: [each] for name, each in schema.get("properties", {}).items()}
        required: list[str] = list(schema.get("required", ()))
        parts = [self._fold(part) for part in schema.get("allOf", ())]
        if "$ref" in schema:
            parts.append(self._fold_definition(schema["$ref"].rpartition("/")[2]))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                parts.append(_either([self._fold(each) for each in schema[key]]))
        for part in parts:
            if part is None:
                return None
            properties = {**part[0], **properties}
            required += part[1]
        for key in ("then", "else"):
            part = self._fold(schema.get(key, True))
            properties = {**(part[0] if part else {}), **properties}
        return properties, list(dict.fromkeys(required))

    def _fold_definition(self, name: str) -> _Object | None:
        if name not in self._folded:
            self._folded[name] = ({}, [])  # the value used if the definition contains itself
            self._folded[name] = self._fold(self._definitions.get(name, True))
        return self._folded[name]


def _either(alternatives: list[_Object | None]) -> _Object | None:
    accepting = [each for each in alternatives if each is not None]
    if not accepting:
        return None
    properties: dict[str, list[Any]] = {}
    for each, _ in accepting:
        for name, schemas in each.items():
            known = properties.setdefault(name, [])
            known += [schema for schema in schemas if schema not in known]
    (_, first), *others = accepting
    return properties, [name for name in first if all(name in required for _, required in others)]


def _any_of(schemas: list[Any]) -> Any:
    if len(schemas) == 1 or {} in schemas:
        return schemas[0] if len(schemas) == 1 else {}
    # This property's value selects the alternative.
    if all(isinstance(each, dict) and not {"const", "enum"}.isdisjoint(each) for each in schemas):
        values = [value for each in schemas for value in each.get("enum", [each.get("const")])]
        shared = {key: value for key, value in schemas[0].items() if all(each.get(key) == value for each in schemas)}
        return {**shared, "enum": [value for index, value in enumerate(values) if value not in values[:index]]}
    return {"anyOf": schemas}


def _mapping(value: Any, path: Path) -> Schema:
    if value == []:  # as PHP encodes an empty object
        return {}
    return value if isinstance(value, dict) else _fail(path, f"must be an object, not {type(value).__name__}")


def _types(declared: Any) -> Any:
    # Gemini writes types in capitals.
    if isinstance(declared, list) and all(isinstance(each, str) for each in declared):
        return list(dict.fromkeys(map(_types, declared)))
    return _PYTHON_TYPES.get(declared.lower(), declared.lower()) if isinstance(declared, str) else declared


def _is_among(kind: str, declared: Any) -> bool:
    return kind in declared if isinstance(declared, list) else kind == declared


def _modern(node: Schema) -> Schema:
    """
    Translate the keywords of older drafts.
    """
    out = dict(node)
    rest = out.pop("additionalItems", None)
    if isinstance(items := out.get("items"), list) and "prefixItems" not in out:
        del out["items"]
        out |= {"prefixItems": items} if items else {}
        out |= {} if rest is None else {"items": rest}
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(out.get(exclusive), bool) and out.pop(exclusive) and limit in out:
            out[exclusive] = out.pop(limit)
    if "type" in out:
        out["type"] = _types(out["type"])
        if out["type"] == "any":
            del out["type"]
    # In draft 03, and in many schemas since, a property itself declares that it is required.
    if isinstance(out.get("required"), bool):
        del out["required"]
    properties = out.get("properties")
    flagged = [
        name
        for name, each in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(each, dict) and each.get("required") is True
    ]
    required = out.get("required") or []
    if flagged and isinstance(required, list):
        out["required"] = [*required, *flagged]
    return out


def _use_common_keywords(schema: Schema) -> None:
    """
    Replace keywords that Gemini does not support. Haystack's generator for it refuses all tools if one uses any.

    :param schema: A converted schema, which is changed. The result accepts the same values or more.
    """
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if schema.get("propertyNames") in ({}, {"type": "string"}):  # no restriction: all names are strings
        del schema["propertyNames"]
    first, *others = schema.get("prefixItems", [None])
    if first is not None and all(each == first for each in others) and schema.get("maxItems") == len(others) + 1:
        schema["items"] = first
        del schema["prefixItems"]
    types = schema.get("type")
    if isinstance(types, list) and len(types) == 1:
        schema["type"] = types = types[0]
    if types == "integer":
        if "exclusiveMinimum" in schema and "minimum" not in schema:
            schema["minimum"] = floor(schema.pop("exclusiveMinimum")) + 1
        if "exclusiveMaximum" in schema and "maximum" not in schema:
            schema["maximum"] = ceil(schema.pop("exclusiveMaximum")) - 1
    if not isinstance(types, list) or "anyOf" in schema:
        return
    kinds = [kind for kind in types if kind != "null"]
    alternatives = [{"type": kind} for kind in types]
    if len(kinds) == 1:
        only = {key: schema.pop(key) for key in [*schema] if key not in _ANNOTATIONS and key != "default"}
        only["type"] = kinds[0]
        if enum := [value for value in only.pop("enum", ()) if value is not None]:
            only["enum"] = enum
        _use_common_keywords(only)
        alternatives[types.index(kinds[0])] = only
    elif not {"array", "object"}.isdisjoint(kinds):
        return  # keywords for arrays and objects would have to move into their alternatives
    schema.pop("type", None)
    schema["anyOf"] = alternatives


def _is_kept(key: str, value: Any, place: Path) -> bool:
    """
    Check the value of a keyword, and return False if the keyword must be dropped.
    """
    if key in _ANNOTATIONS:
        return isinstance(value, _ANNOTATIONS[key])
    if key in _KEYWORDS:
        try:
            _KEYWORDS[key].validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            shown = shortened(repr(value)) if isinstance(value, str) else type(value).__name__
            _fail(place, f"{first['msg'].replace('Input should', 'must')}, not {shown}")
    return key != "pattern" or _compiles(value)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    # Warning: `[[a]` warns about future syntax. Under -W error, Haystack's own check would raise it.
    except (re.error, OverflowError, RecursionError, Warning):
        return False
    return True


# Tools that need another revision

NEEDS_TASKS: Final = (
    "it can only be called as a task of revision 2025-11-25 (execution.taskSupport), which later revisions have "
    "replaced. This client runs tasks with servers of revision 2026-07-28"
)


def needs_tasks(definition: types.Tool) -> bool:
    """
    Return whether a tool can be called only as a task.

    :param definition: The server's definition of the tool.
    :returns: True if the definition says so.
    """
    return definition.execution is not None and definition.execution.task_support == "required"
