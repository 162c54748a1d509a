# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import copy
import json
import random
import sys
import warnings
from collections import OrderedDict
from typing import Any

import pytest
from haystack.tools import Tool
from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator, SchemaError

import haystack_integrations.tools.mcp.convert.schemas as schemas_module
from haystack_integrations.tools.mcp.convert.schema_references import IDENTIFIERS
from haystack_integrations.tools.mcp.convert.schemas import (
    PERMISSIVE_SCHEMA,
    normalize_parameters,
    permissive_schema,
    without_properties,
)
from tests.support.rows import rows

UNCOMPILABLE = r"^\p{L}+$"
KEYWORD_NAMES = [
    "id",
    "type",
    "properties",
    "required",
    "$ref",
    "items",
    "definitions",
    "$id",
    "pattern",
    "dependencies",
]


def normalize_property(schema: Any) -> Any:
    return normalize_parameters({"type": "object", "properties": {"p": schema}})["properties"]["p"]


def assert_accepted_by_haystack(schema: dict[str, Any]) -> None:
    Tool(name="t", description="", parameters=schema, function=lambda **arguments: arguments)


def nested(levels: int, wrap: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = wrap(schema)
    return schema


class TestForeignSchemas:
    def test_a_2020_12_schema_comes_out_as_it_went_in(self):
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$comment": "c",
            "type": "object",
            "title": "T",
            "description": "D",
            "properties": {
                "a": {"type": ["string", "null"], "pattern": "^a", "minLength": 1, "format": "date", "default": None},
                "b": {"type": "array", "prefixItems": [{"const": 1}], "items": False, "uniqueItems": True},
                "c": {"anyOf": [{"$ref": "#/$defs/X"}, True], "examples": [1, {"x": []}], "deprecated": True},
                "d": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 7, "multipleOf": 0.5},
                "e": {"nullable": True, "x-vendor": {"deep": [1, {"pattern": UNCOMPILABLE}]}, "enum": ["a", None, {}]},
            },
            "patternProperties": {"^x-": {"type": "string"}},
            "required": ["a"],
            "dependentRequired": {"a": ["b"]},
            "dependentSchemas": {"a": {"maxProperties": 3}},
            "unevaluatedProperties": False,
            "$defs": {"X": {"type": "string"}},
        }
        assert normalize_parameters(schema) == schema

    def test_draft_07_tuple_items_become_prefix_items(self):
        tuple_schema = {"type": "array", "items": [{"type": "string"}, {"type": "number"}], "additionalItems": False}
        expected = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": False}
        assert normalize_property(tuple_schema) == expected

    def test_additional_items_without_tuple_items_means_nothing(self):
        assert normalize_property({"items": {"type": "string"}, "additionalItems": False}) == {
            "items": {"type": "string"}
        }

    def test_empty_tuple_items_constrain_nothing(self):
        assert normalize_property({"items": []}) == {}
        assert normalize_property({"items": [], "additionalItems": {"type": "null"}}) == {"items": {"type": "null"}}

    def test_list_items_beside_prefix_items_are_an_error(self):
        with pytest.raises(ValueError, match="#/properties/p/items: must be a schema, not list"):
            normalize_property({"items": [{}], "prefixItems": [{}]})

    def test_draft_04_exclusive_booleans_become_limits(self):
        schema = {"minimum": 1, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": True}
        assert normalize_property(schema) == {"exclusiveMinimum": 1, "exclusiveMaximum": 5}
        assert normalize_property({"minimum": 1, "exclusiveMinimum": False}) == {"minimum": 1}
        assert normalize_property({"exclusiveMaximum": True}) == {}

    def test_dependencies_are_split(self):
        schema = {
            "type": "object",
            "properties": {},
            "dependencies": {"a": ["b"], "c": {"items": [True]}, "d": "e", "f": True},
        }
        assert normalize_parameters(schema) == {
            "type": "object",
            "properties": {},
            "dependentRequired": {"a": ["b"], "d": ["e"]},
            "dependentSchemas": {"c": {"prefixItems": [True]}, "f": True},
        }

    def test_split_dependencies_give_way_to_their_successors(self):
        schema = {
            "type": "object",
            "properties": {},
            "dependencies": {"a": ["b"], "c": ["d"]},
            "dependentRequired": {"a": ["x"]},
            "dependentSchemas": None,
        }
        assert normalize_parameters(schema)["dependentRequired"] == {"a": ["x"], "c": ["d"]}
        with pytest.raises(ValueError, match="#/dependentRequired: must be an object, not int"):
            normalize_parameters({"dependencies": {"a": ["b"]}, "dependentRequired": 3})

    def test_definitions_stay_where_they_are_and_are_normalized_inside(self):
        schema = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"root": {"$ref": "#/definitions/Root"}},
            "definitions": {"Root": {"type": "object", "properties": {"t": {"items": [{"type": "string"}]}}}},
        }
        assert normalize_parameters(schema) == {
            "properties": {"root": {"$ref": "#/definitions/Root"}},
            "definitions": {"Root": {"type": "object", "properties": {"t": {"prefixItems": [{"type": "string"}]}}}},
            "type": "object",
        }

    @rows("chain", [["#/$defs/A"], ["#/$defs/B", "#/$defs/A"]], ids=["one", "two"])
    def test_a_reference_that_is_all_there_is_gives_way_to_its_target(self, chain):
        definitions = {"A": {"type": "object", "properties": {"n": {"items": [{}]}}, "required": ["n"]}}
        if len(chain) == 2:
            definitions["B"] = {"$ref": chain[1], "description": "by way of B"}
        schema = normalize_parameters({"$ref": chain[0], "title": "Mine", "$defs": definitions})
        assert "$ref" not in schema
        assert (schema["type"], schema["title"], schema["required"]) == ("object", "Mine", ["n"])
        assert schema["properties"] == {"n": {"prefixItems": [{}]}}
        assert schema["$defs"]["A"]["properties"] == schema["properties"]
        Tool(name="t", description="", parameters=schema, function=print)

    @rows("schema", [{}, {"type": None}])
    def test_without_a_type_it_is_an_object(self, schema):
        assert normalize_parameters(schema) == {"type": "object", "properties": {}}

    def test_reference_cycles_stay_intact(self):
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
        schema = {"type": "object", "properties": {"head": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
        assert normalize_parameters(schema) == schema

    def test_references_follow_what_moves(self):
        schema = {
            "type": "object",
            "properties": {
                "pair/s": {"items": [{"items": [{"type": "string"}]}], "additionalItems": {"type": "null"}},
                "inner": {"$ref": "#/properties/pair~1s/items/0/items/0"},
                "rest": {"$ref": "#/properties/pair~1s/additionalItems"},
                "other": {"$ref": "#/properties/rest"},
                "dependent": {"$ref": "#/dependencies/rest/properties/%C3%A4"},
            },
            "dependencies": {"rest": {"properties": {"ä": {}}}},
        }
        properties = normalize_parameters(schema)["properties"]
        assert [properties[name]["$ref"] for name in ("inner", "rest", "other", "dependent")] == [
            "#/properties/pair~1s/prefixItems/0/prefixItems/0",
            "#/properties/pair~1s/items",
            "#/properties/rest",
            "#/dependentSchemas/rest/properties/%C3%A4",
        ]

    def test_a_moved_reference_may_name_a_lone_surrogate(self):
        schema = {"properties": {"\ud800": {"items": [{}]}, "b": {"$ref": "#/properties/\ud800/items/0"}}}
        result = normalize_parameters(schema)
        assert result["properties"]["b"]["$ref"] == "#/properties/%ED%A0%80/prefixItems/0"

    def test_zod_to_json_schema_output_is_accepted(self):
        schema = {
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1},
                "edits": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
                        "required": ["old", "new"],
                        "additionalProperties": False,
                    },
                },
                "range": {
                    "type": "array",
                    "minItems": 2,
                    "maxItems": 2,
                    "items": [{"type": "integer", "exclusiveMinimum": 0}, {"$ref": "#/properties/range/items/0"}],
                },
                "dryRun": {"type": "boolean", "default": False},
            },
            "required": ["path", "edits"],
            "additionalProperties": False,
            "$schema": "http://json-schema.org/draft-07/schema#",
        }
        result = normalize_parameters(schema)
        assert "$schema" not in result
        assert result["properties"]["range"]["prefixItems"][1] == {"$ref": "#/properties/range/prefixItems/0"}
        validator = Draft202012Validator(result)
        assert validator.is_valid({"path": "x", "edits": [], "range": [1, 2]})
        assert not validator.is_valid({"path": "x", "edits": [], "range": [1, 0]})

    def test_recursive_references_become_references_to_the_root(self):
        schema = {"$recursiveAnchor": True, "properties": {"child": {"$recursiveRef": "#"}}}
        assert normalize_parameters(schema) == {"type": "object", "properties": {"child": {"$ref": "#"}}}

    @pytest.mark.parametrize("key", ["id", "$id", "$anchor", "$dynamicAnchor", "$vocabulary", "$recursiveAnchor"])
    def test_what_a_schema_is_called_by_is_dropped(self, key):
        for name in ("#name", "http://example.com/x", "#", "not a name"):
            assert normalize_property({key: name, "type": "string"}) == {"type": "string"}
        assert normalize_parameters({"type": "object", key: "x"}) == {"type": "object", "properties": {}}

    @rows("dialect", ["http://json-schema.org/draft-04/schema#", "urn:mine", "", 5, ["x"]])
    def test_foreign_dialects_are_dropped(self, dialect):
        assert "$schema" not in normalize_parameters({"type": "object", "$schema": dialect})

    def test_the_dialect_itself_is_kept(self):
        schema = {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema#"}
        assert normalize_parameters(schema)["$schema"] == "https://json-schema.org/draft/2020-12/schema"

    def test_draft_03_required_flags_move_to_the_parent(self):
        schema = {
            "type": "object",
            "required": ["a"],
            "properties": {
                "a": {"type": "any", "required": True},
                "b": {"required": True, "properties": {"c": {"required": True}, "d": {"required": False}}},
                "properties": {"items": {"required": True}},
            },
        }
        assert normalize_parameters(schema) == {
            "type": "object",
            "required": ["a", "b"],
            "properties": {
                "a": {},
                "b": {"properties": {"c": {}, "d": {}}, "required": ["c"]},
                "properties": {"items": {}},
            },
        }

    def test_draft_03_required_flags_elsewhere_than_on_a_property_mean_nothing(self):
        schema = {"$defs": {"X": {"required": True}}, "anyOf": [{"required": True}], "required": True}
        assert normalize_parameters({"properties": {"p": schema}}) == {
            "type": "object",
            "properties": {"p": {"$defs": {"X": {}}, "anyOf": [{}]}},
            "required": ["p"],
        }

    @rows("name", KEYWORD_NAMES)
    @rows("of_property", [{"type": "string"}, {"type": "object", "properties": {"id": {}}}])
    def test_a_property_named_like_a_keyword_survives_untouched(self, name, of_property):
        schema = {"type": "object", "properties": {name: of_property}, "required": [name]}
        assert normalize_parameters(schema) == schema
        inner = {"type": "object", "properties": {"p": schema}}
        assert normalize_parameters(inner) == inner

    def test_empty_objects_that_php_wrote_as_lists_are_read_as_objects(self):
        schema = {"type": "object", "properties": [], "dependencies": [], "dependentRequired": []}
        assert normalize_parameters(schema) == {"type": "object", "properties": {}, "dependentRequired": {}}
        assert normalize_property([]) == {}

    def test_null_keywords_that_go_wrote_are_absent(self):
        schema = {"type": "object", "properties": None, "required": None, "dependencies": None, "description": None}
        assert normalize_parameters(schema) == {"type": "object", "properties": {}}

    def test_repeated_names_are_listed_once(self):
        assert normalize_property({"type": ["null", "null"], "required": ["a", "a"]}) == {
            "type": ["null"],
            "required": ["a"],
        }

    def test_whole_floats_become_counts(self):
        assert json.dumps(normalize_property({"maxLength": 3.0})) == '{"maxLength": 3}'

    @rows(
        "note",
        [
            {"title": 5},
            {"description": ["x"]},
            {"$comment": {}},
            {"format": 1},
            {"contentEncoding": 1},
            {"examples": "x"},
            {"readOnly": "yes"},
            {"deprecated": 1},
        ],
    )
    def test_malformed_annotations_are_dropped(self, note):
        assert normalize_property({"type": "string", **note}) == {"type": "string"}

    def test_type_and_properties_are_added(self):
        assert normalize_parameters({}) == {"type": "object", "properties": {}}

    @rows("declared", [["object"], ["null", "object"]])
    def test_a_top_level_list_of_types_is_narrowed_to_object(self, declared):
        assert normalize_parameters({"type": declared})["type"] == "object"


A, B, C = {"type": "string"}, {"type": "integer"}, {"type": "object", "properties": {"c": {"type": "boolean"}}}
BY_KIND = [
    {"type": "object", "properties": {"kind": {"const": kind}, key: A}, "required": ["kind", key]}
    for kind, key in (("post", "text"), ("photo", "url"))
]
ALTERNATIVES = {"kind": {"enum": ["post", "photo"]}, "text": A, "url": A}


class TestOneObject:
    @pytest.mark.parametrize(
        ("schema", "expected"),
        [
            (
                {"allOf": [{"properties": {"a": A}, "required": ["a"]}, C]},
                {"properties": {"a": A, "c": {}}, "required": ["a"]},
            ),
            ({"anyOf": BY_KIND}, {"properties": ALTERNATIVES, "required": ["kind"]}),
            ({"type": "object", "oneOf": BY_KIND}, {"properties": ALTERNATIVES, "required": ["kind"]}),
            (
                {
                    "oneOf": [{"$ref": "#/$defs/Post"}, {"$ref": "#/$defs/Photo"}],
                    "discriminator": {"propertyName": "kind"},
                }
                | {"$defs": dict(zip(("Post", "Photo"), BY_KIND, strict=True))},
                {"properties": ALTERNATIVES, "required": ["kind"]},
            ),
            (
                {"properties": {"a": A, "b": B}, "required": [], "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
                {"properties": {"a": A, "b": B}},
            ),
            (
                {"properties": {"a": A}, "required": ["a"], "not": {"required": ["b"]}, "enum": [{"a": "x"}]},
                {"properties": {"a": A}, "required": ["a"]},
            ),
            (
                {
                    "properties": {"a": A},
                    "if": {"required": ["a"]},
                    "then": {"properties": {"a": B, "b": B}, "required": ["b"]},
                }
                | {"else": {"properties": {"d": A}}},
                {"properties": {"a": A, "b": B, "d": A}},
            ),
            ({"anyOf": [{"properties": {"a": A}}, {"properties": {"a": B}}]}, {"properties": {"a": {"anyOf": [A, B]}}}),
            ({"anyOf": [{"type": "null"}, {"type": "string"}, C, False]}, {"properties": {"c": {}}}),
            ({"allOf": [{"anyOf": [C, {"allOf": [{"properties": {"a": A}}]}]}]}, {"properties": {"c": {}, "a": A}}),
            ({"properties": {"a": A}, "allOf": [{"properties": {"a": {"minLength": 1}}}]}, {"properties": {"a": A}}),
            ({"properties": {"a": A}, "allOf": [{"properties": {"a": B}}]}, {"properties": {"a": {"allOf": [A, B]}}}),
            (
                {"$ref": "#/definitions/C", "required": ["c"], "definitions": {"C": C}},
                {"properties": {"c": {}}, "required": ["c"]},
            ),
            (
                {"$ref": "#/$defs/B", "title": "T", "$defs": {"B": {"$ref": "#/$defs/C"}, "C": C}},
                {"properties": {"c": {}}},
            ),
            ({"$ref": "#c", "$defs": {"C": {**C, "$anchor": "c"}}}, {"properties": {"c": {}}}),
            ({"$ref": "https://example.com/schema", "properties": {"a": A}}, {"properties": {"a": A}}),
            ({"$ref": "#"}, {"properties": {}}),
            ({"allOf": [{"$ref": "#"}], "properties": {"a": A}}, {"properties": {"a": A}}),
            ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, {"properties": {}}),
            (
                {"anyOf": [{**C, "additionalProperties": False}] * 2, "unevaluatedProperties": False},
                {"properties": {"c": {}}, "additionalProperties": False},
            ),
        ],
    )
    def test_what_is_said_of_the_root_in_several_subschemas_becomes_one_object(self, schema, expected):
        before = copy.deepcopy(schema)
        result = normalize_parameters(schema)
        assert schema == before
        assert {"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "$ref"}.isdisjoint(result)
        assert result["type"] == "object"
        assert result["properties"].keys() == expected["properties"].keys()
        for name, wanted in expected["properties"].items():
            assert wanted.items() <= result["properties"][name].items()
        assert result.get("required", []) == expected.get("required", [])
        assert ("additionalProperties" in result) is ("additionalProperties" in expected)
        assert normalize_parameters(result) == result
        assert_accepted_by_haystack(result)

    @pytest.mark.parametrize(
        "schema",
        [
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"allOf": [{"type": "array"}, {"type": "object"}]},
            {"oneOf": [False]},
            {"$ref": "#/$defs/S", "$defs": {"S": {"type": "string"}}},
        ],
    )
    def test_a_schema_that_no_object_fits_is_rejected(self, schema):
        with pytest.raises(ValueError, match="#: accepts no object"):
            normalize_parameters(schema)

    def test_alternatives_that_multiply_when_they_are_folded_are_rejected(self):
        definitions = {"L0": {"properties": {"p": {"minLength": 1}}}}
        for level in range(1, 20):
            below = {"$ref": f"#/$defs/L{level - 1}"}
            changed = {"allOf": [below, {"properties": {"p": {"minLength": level}}}]}
            definitions[f"L{level}"] = {"anyOf": [below, changed]}
        with pytest.raises(ValueError, match="folded into one object, it has more than"):
            normalize_parameters({"$ref": "#/$defs/L19", "$defs": definitions})


def targets(schema: dict[str, Any]) -> list[Any]:
    """What the references of properties refer to, found with nothing but JSON pointers."""
    found = []
    for each in schema["properties"].values():
        assert "$id" not in str(schema)
        node: Any = schema
        for part in schemas_module.segments(each["$ref"]):
            node = node[int(part)] if isinstance(node, list) else node[part]
        found.append(node)
    return found


class TestReferences:
    @pytest.mark.parametrize(
        ("ref", "elsewhere"),
        [
            ("#/definitions/X", {"$defs": {"X": A}}),
            ("#/$defs/X", {"definitions": {"X": A}}),
            ("#/$defs/X", {"dependentSchemas": {"other": {"$defs": {"X": A}}}}),
            ("#/definitions/X", {"$defs": {"Y": {"properties": {"p": {"definitions": {"X": A}}}}}}),
            ("#/components/schemas/X", {"components": {"schemas": {"X": {"type": "string", "required": True}}}}),
            ("#/components/schemas/X", {"$defs": {"X": A}}),
            ("#/$defs/X", {"components": {"schemas": {"X": A}}}),
            ("#/$defs/a~1b~0c%25", {"$defs": {"a/b~c%": A}}),
            ("#/$defs/List[a/b]", {"$defs": {"List[a/b]": A}}),
            ("#/definitions/X%3CY%3E", {"$defs": {"X<Y>": A}}),
            ("#/$defs/X%20Y", {"$defs": {"X%20Y": A}}),
            ("#X", {"$defs": {"A": {**A, "$anchor": "X"}}}),
            ("#X", {"definitions": {"A": {**A, "$id": "#X"}}}),
            ("#X", {"$defs": {"A": {**A, "$dynamicAnchor": "X"}}}),
            ("X", {"$defs": {"X": A}}),
            ("X.json", {"$defs": {"A": {**A, "$id": "X.json"}}}),
            ("/schemas/x", {"$id": "https://example.com/root", "$defs": {"A": {**A, "$id": "/schemas/x"}}}),
            ("urn:x#/$defs/X", {"$defs": {"A": {"$id": "urn:x", "$defs": {"X": A}}}}),
            ("https://example.com/root#/$defs/X", {"$id": "https://example.com/root", "$defs": {"X": A}}),
            ("#/anyOf/0/properties/q", {"anyOf": [{"properties": {"q": A}, "required": ["q"]}]}),
            ("#/allOf/0/$defs/X", {"allOf": [{"$defs": {"X": A}}]}),
        ],
    )
    def test_what_stands_elsewhere_is_found(self, ref, elsewhere):
        result = normalize_parameters({"type": "object", "properties": {"p": {"$ref": ref}}, **elsewhere})
        result["properties"] = {"p": result["properties"]["p"]}
        assert targets(result) == [A]
        assert_accepted_by_haystack(result)

    @pytest.mark.parametrize("identifier", [{}, {"$id": "https://example.com/order"}])
    def test_definitions_of_a_schema_that_is_part_of_another_are_its_own(self, identifier):
        order = {"type": "object", "properties": {"item": {"$ref": "#/$defs/Item"}}, "$defs": {"Item": A}, **identifier}
        schema = {"properties": {"a": order}} | ({"$defs": {"Item": B}} if identifier else {})
        result = normalize_parameters(schema)
        result["properties"] = result["properties"]["a"]["properties"]
        assert targets(result) == [A]

    @pytest.mark.parametrize(
        "ref",
        [
            "#/$defs/X",
            "#/properties/X",
            "#x",
            "x.json",
            "x.json#/$defs/Y",
            "http://127.0.0.1:1/x.json",
            "//h/Y",
            "http://[",
            "#%zz",
        ],
    )
    def test_what_stands_nowhere_is_replaced_by_anything_and_noted(self, ref):
        notes: list[str] = []
        member = {"$ref": ref, "description": "D", "$comment": "c"}
        schema = {"properties": {"p": member, "q": {"type": "array", "items": {"$ref": ref}}}, "$defs": {"Y": A}}
        if ref == "x.json#/$defs/Y":
            schema["$defs"] = {}
        result = normalize_parameters(schema, notes)
        assert result["properties"] == {"p": {"description": "D", "$comment": "c"}, "q": {"type": "array", "items": {}}}
        assert notes == [
            f"its schema refers to definitions that it does not have, in whose place it takes anything: {ref!r}"
        ]

    def test_recursion_stays_possible(self):
        node = {"type": "object", "properties": {"next": {"$ref": "#/definitions/Node"}}}
        notes: list[str] = []
        result = normalize_parameters(
            {"properties": {"head": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}, notes
        )
        assert result["$defs"]["Node"]["properties"]["next"] == result["properties"]["head"] == {"$ref": "#/$defs/Node"}
        assert notes == []

    def test_references_only_to_each_other_accept_anything(self):
        circle = {"A": {"$ref": "#/$defs/B", "title": "A"}, "B": {"$ref": "#/$defs/A"}}
        result = normalize_parameters({"properties": {"p": {"$ref": "#/$defs/A"}}, "$defs": circle})
        assert Draft202012Validator(result).is_valid({"p": 1})


class TestPatterns:
    @rows("pattern", [UNCOMPILABLE, "(?<year>x)", "[\\w-.]", "a{99999999999}", "(" * 5000])
    def test_a_pattern_python_cannot_compile_is_dropped(self, pattern):
        assert normalize_property({"type": "string", "pattern": pattern}) == {"type": "string"}

    def test_a_pattern_that_warns_is_dropped_only_when_warnings_are_errors(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert normalize_property({"pattern": "[[a]once"}) == {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert normalize_property({"pattern": "[[a]twice"}) == {"pattern": "[[a]twice"}

    def test_dropping_a_pattern_of_names_opens_the_object(self):
        schema = {
            "patternProperties": {UNCOMPILABLE: {"type": "string"}, "^x": {"pattern": UNCOMPILABLE}},
            "additionalProperties": False,
            "unevaluatedProperties": False,
        }
        assert normalize_property(schema) == {"patternProperties": {"^x": {}}}
        assert normalize_property({"patternProperties": {UNCOMPILABLE: {}}}) == {}

    def test_a_pattern_dropped_inside_a_pattern_of_names_leaves_the_object_closed(self):
        schema = {"patternProperties": {"^x": {"pattern": UNCOMPILABLE}}, "additionalProperties": False}
        assert normalize_property(schema) == {"patternProperties": {"^x": {}}, "additionalProperties": False}

    def test_a_dropped_pattern_takes_the_negation_around_it_along(self):
        assert normalize_property({"type": "string", "not": {"pattern": UNCOMPILABLE}}) == {"type": "string"}
        assert normalize_property({"not": {"not": {"pattern": UNCOMPILABLE}}}) == {}

    def test_a_dropped_pattern_takes_the_condition_around_it_along(self):
        schema = {"if": {"pattern": UNCOMPILABLE}, "then": {"minLength": 3}, "else": {"maxLength": 3}, "type": "string"}
        assert normalize_property(schema) == {"type": "string"}

    def test_a_dropped_pattern_lets_several_alternatives_match(self):
        alternatives = [{"pattern": UNCOMPILABLE}, {"type": "string"}]
        assert normalize_property({"oneOf": alternatives}) == {"anyOf": [{}, {"type": "string"}]}
        assert normalize_property({"oneOf": alternatives, "anyOf": [True]}) == {"anyOf": [True]}
        assert normalize_property({"oneOf": [alternatives[0], alternatives[0]]}) == {"anyOf": [{}, {}]}

    def test_references_follow_alternatives_that_were_widened(self):
        schema = {"properties": {"a": {"oneOf": [{"pattern": UNCOMPILABLE}]}, "b": {"$ref": "#/properties/a/oneOf/0"}}}
        assert normalize_parameters(schema)["properties"]["b"] == {"$ref": "#/properties/a/anyOf/0"}

    def test_a_dropped_pattern_lifts_the_limit_on_contained_items(self):
        schema = {"contains": {"pattern": UNCOMPILABLE}, "maxContains": 2, "minContains": 1}
        assert normalize_property(schema) == {"contains": {}, "minContains": 1}


class TestRejections:
    @rows("schema", [None, True, [], "object", 5])
    def test_what_is_not_an_object_is_rejected(self, schema):
        with pytest.raises(ValueError, match="#: must be a JSON object, not"):
            normalize_parameters(schema)

    @rows("declared", ["string", ["string"], {}, "", "objekt"])
    def test_a_top_level_type_other_than_object_is_rejected(self, declared):
        with pytest.raises(ValueError, match="#/type: must be 'object'"):
            normalize_parameters({"type": declared})

    @rows(
        ("schema", "message"),
        [
            ({"type": "objekt"}, "/type: 'objekt' is not a JSON type"),
            ({"type": []}, "/type: must be a JSON type"),
            ({"type": [1]}, "/type: must be a JSON type"),
            ({"type": None}, "/type: must be a JSON type"),
            ({"properties": 5}, "/properties: must be an object of schemas, not int"),
            ({"properties": {"a/b~": 5}}, "/properties/a~1b~0: must be a schema, not int"),
            ({"properties": {5: {}}}, "/properties: must have strings as keys, not int"),
            ({5: {}}, ": must have strings as keys, not int"),
            ({"required": "a"}, "/required: must be a list of strings"),
            ({"required": [1]}, "/required: must be a list of strings"),
            ({"enum": "a"}, "/enum: must be a list, not 'a'"),
            ({"anyOf": []}, "/anyOf: must be a non-empty list"),
            ({"oneOf": {}}, "/oneOf: must be a non-empty list"),
            ({"allOf": [{}, 3]}, "/allOf/1: must be a schema, not int"),
            ({"items": [{"type": 1}]}, "/items/0/type: must be a JSON type"),
            ({"items": [{}], "additionalItems": 4}, "/additionalItems: must be a schema"),
            ({"dependencies": 5}, "/dependencies: must be an object, not int"),
            ({"dependencies": {"a": 5}}, "/dependencies/a: must be a schema, not int"),
            ({"dependentRequired": {"a": "b"}}, "/dependentRequired/a: must be a list of strings"),
            ({"minimum": "1"}, "/minimum: must be a finite number, not '1'"),
            ({"minimum": True}, "/minimum: must be a finite number, not bool"),
            ({"maximum": float("nan")}, "/maximum: must be a finite number"),
            ({"multipleOf": 0}, "/multipleOf: must be greater than 0"),
            ({"minLength": -1}, "/minLength: must be a whole number"),
            ({"minLength": 1.5}, "/minLength: must be a whole number"),
            ({"uniqueItems": "yes"}, "/uniqueItems: must be a boolean, not 'yes'"),
            ({"pattern": 5}, "/pattern: must be a string, not int"),
            ({"$ref": 5}, "/$ref: must be a string, not int"),
            ({"default": {"x": (1,)}}, "/default/x: is not a JSON value but tuple"),
            ({"x-vendor": {5: 1}}, "/x-vendor: must have strings as keys, not int"),
        ],
    )
    def test_an_invalid_keyword_is_rejected_with_its_place(self, schema, message):
        with pytest.raises(ValueError) as caught:
            normalize_property(schema)
        assert str(caught.value).startswith(f"#/properties/p{message}")

    def test_the_reason_does_not_dump_the_schema(self):
        with pytest.raises(ValueError) as caught:
            normalize_property({"x" * 5000: 1, "properties": {"n" * 5000: {"type": "t" * 5000}}})
        assert len(str(caught.value)) < 600

    @rows("keyword", ["items", "default", "x-vendor"])
    def test_a_schema_that_contains_itself_is_rejected(self, keyword):
        schema: dict[str, Any] = {}
        schema[keyword] = schema
        with pytest.raises(ValueError, match="nested more than 64 levels deep, or contains itself"):
            normalize_property(schema)

    @rows(
        "wrap",
        [
            lambda schema: {"type": "object", "properties": {"a": schema}},
            lambda schema: {"type": "array", "items": schema},
            lambda schema: {"anyOf": [schema]},
            lambda schema: {"dependencies": {"a": schema}},
            lambda schema: {"definitions": {"a": schema}},
            lambda schema: {"not": schema},
        ],
    )
    def test_what_is_nested_too_deeply_for_haystack_is_rejected_and_the_rest_is_accepted(self, wrap):
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            normalize_property(nested(300, wrap))
        levels = 1
        while True:
            try:
                deepest = normalize_parameters({"properties": {"p": nested(levels, wrap)}})
            except ValueError:
                break
            levels += 1
        assert levels > 30

        # Haystack checks schemas from within pipelines and web servers, whose own frames take part of the stack.
        def check_below(frames: int) -> None:
            return check_below(frames - 1) if frames else assert_accepted_by_haystack(deepest)

        check_below(350)

    def test_a_list_nested_too_deeply_is_rejected(self):
        value: list[Any] = []
        for _ in range(300):
            value = [value]
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            normalize_property({"enum": value})


class TestCopies:
    def test_the_input_is_neither_changed_nor_shared(self):
        schema = {
            "type": "object",
            "properties": {
                "a": {"items": [{"enum": [{"x": [1]}]}], "default": {"y": []}, "type": ["string"]},
                "b": {"required": True, "x-vendor": [{}], "not": {"pattern": UNCOMPILABLE}},
            },
            "required": [],
            "dependencies": {"a": ["b"]},
        }
        before = copy.deepcopy(schema)
        result = normalize_parameters(schema)
        assert schema == before

        def containers(node: Any) -> set[int]:
            members = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
            return set() if members is None else {id(node)}.union(*map(containers, members))

        assert not containers(schema) & containers(result)

    def test_subclasses_of_json_types_become_plain(self):
        class Word(str):
            __slots__ = ()

        schema = OrderedDict(properties=OrderedDict(p=OrderedDict(default=Word("x"), enum=[Word("y"), 1.5])))
        result = normalize_parameters(schema)
        assert result["properties"]["p"] == {"default": "x", "enum": ["y", 1.5]}
        assert type(result["properties"]) is dict

    def test_permissive_schemas_are_fresh_and_accepted(self):
        permissive_schema()["properties"]["a"] = {}
        permissive_schema()["b"] = 1
        assert (
            permissive_schema()
            == PERMISSIVE_SCHEMA
            == {
                "type": "object",
                "properties": {},
                "additionalProperties": True,
            }
        )
        assert normalize_parameters(permissive_schema()) == permissive_schema()
        assert_accepted_by_haystack(permissive_schema())


class TestCost:
    def test_many_flags_and_patterns_cost_linear_time(self):
        def function_calls(properties: int) -> int:
            flagged = {f"p{i}": {"required": True, "pattern": UNCOMPILABLE} for i in range(properties)}
            calls = []
            profile = sys.getprofile()
            sys.setprofile(lambda _, event, __: calls.append(event) if event.endswith("call") else None)
            try:
                normalize_parameters({"properties": flagged})
            finally:
                sys.setprofile(profile)
            return len(calls)

        function_calls(1)  # what is loaded at the first use
        assert function_calls(1000) < 15 * function_calls(100)


class TestWithoutProperties:
    SCHEMA = normalize_parameters(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"enum": [1]}, "secret": {"type": "string"}},
            "required": ["a", "secret"],
            "additionalProperties": False,
        }
    )

    def test_hidden_properties_are_gone_and_the_original_is_untouched(self):
        before = copy.deepcopy(self.SCHEMA)
        result = without_properties(self.SCHEMA, ["secret", "unknown"])
        assert result == {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"enum": [1]}},
            "required": ["a"],
            "additionalProperties": False,
        }
        result["properties"]["b"]["enum"].append(2)
        assert before == self.SCHEMA

    def test_an_empty_list_of_required_properties_is_dropped(self):
        result = without_properties(self.SCHEMA, iter(["secret", "a", "b"]))
        assert result == {"type": "object", "properties": {}, "additionalProperties": False}

    def test_hidden_properties_are_not_asked_for_elsewhere_either(self):
        schema = {
            "type": "object",
            "properties": {"a": {}, "b": {}, "secret": {}},
            "dependentRequired": {"a": ["secret"], "b": ["a", "secret"], "secret": ["a"]},
            "dependentSchemas": {"secret": {"required": ["a"]}, "a": {"required": ["secret"]}},
            "anyOf": [{"required": ["secret"]}, {"required": ["b"]}, True],
            "if": {"required": ["a"]},
            "then": {"required": ["secret", "b"]},
            "minProperties": 2,
        }
        assert without_properties(schema, ["secret"]) == {
            "type": "object",
            "properties": {"a": {}, "b": {}},
            "dependentRequired": {"b": ["a"]},
            "dependentSchemas": {"a": {}},
            "anyOf": [{}, {"required": ["b"]}, True],
            "if": {"required": ["a"]},
            "then": {"required": ["b"]},
            "minProperties": 1,
        }

    def test_emptied_dependencies_are_dropped(self):
        schema = {
            "type": "object",
            "properties": {"secret": {}},
            "dependentRequired": {"secret": ["a"]},
            "dependentSchemas": {"secret": {}},
        }
        assert without_properties(schema, ["secret"]) == {"type": "object", "properties": {}}

    def test_a_hidden_property_that_others_refer_to_lives_on_as_a_definition(self):
        schema = {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"type": "string"}},
                "b": {"$ref": "#/properties/a"},
                "c": {"$ref": "#/properties/a/items"},
                "d": {"$ref": "#/properties/b"},
                "e": {"$ref": "#/$defs/a"},
            },
            "$defs": {"a": {"type": "null"}},
        }
        result = without_properties(schema, ["a"])
        assert result == {
            "type": "object",
            "properties": {
                "b": {"$ref": "#/$defs/a_"},
                "c": {"$ref": "#/$defs/a_/items"},
                "d": {"$ref": "#/properties/b"},
                "e": {"$ref": "#/$defs/a"},
            },
            "$defs": {"a": {"type": "null"}, "a_": {"type": "array", "items": {"type": "string"}}},
        }
        assert normalize_parameters(result) == result
        assert_accepted_by_haystack(result)

    def test_a_schema_without_properties_is_copied(self):
        assert without_properties({"type": "object", "minProperties": 1}, ["a"]) == {
            "type": "object",
            "minProperties": 1,
        }


class SchemaMaker:
    """Random schemas of mixed drafts: with `invalid`, also values that no draft allows."""

    NAMES = ("a", "b", "id", "type", "items", "properties", "required", "$ref", "x/y", "~z")
    TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

    def __init__(self, seed: int, invalid: float) -> None:
        self.random = random.Random(seed)
        self.invalid = invalid

    def junk(self, depth: int) -> Any:
        pick = self.random.choice
        scalars = [
            None,
            True,
            False,
            0,
            1,
            -1,
            2.0,
            1.5,
            float("inf"),
            "",
            "object",
            "any",
            "#",
            "#/x",
            "a b",
            "(",
            "#<",
        ]
        containers = [[], {}, [[]], ["a", "a"], ["a", 1], {"a": None}, {"a": ["b"]}, [{}], [None], (), {"(": {}}]
        return pick([*scalars, *containers, self.schema(depth - 1) if depth > 0 else True])

    def value(self, keyword: str, depth: int) -> Any:
        rng = self.random
        if rng.random() < self.invalid:
            return self.junk(depth)
        sub = lambda: self.schema(depth - 1)  # noqa: E731
        subs = lambda: [sub() for _ in range(rng.randint(1, 3))]  # noqa: E731
        mapping = lambda: {rng.choice(self.NAMES): sub() for _ in range(rng.randint(0, 3))}  # noqa: E731
        names = lambda: rng.sample(self.NAMES, rng.randint(1, 3))  # noqa: E731
        pattern = lambda: rng.choice(["^a", ".", UNCOMPILABLE, "(?<n>a)"])  # noqa: E731
        makers: dict[str, Any] = {
            "type": lambda: rng.choice([rng.choice(self.TYPES), rng.sample(self.TYPES, rng.randint(1, 3))]),
            "items": rng.choice([sub, subs]),
            "patternProperties": lambda: {pattern(): sub() for _ in range(rng.randint(0, 3))},
            "pattern": pattern,
            "required": lambda: rng.choice([True, False, names()]),
            "dependencies": lambda: {rng.choice(self.NAMES): rng.choice([sub(), names(), "a"])},
            "dependentRequired": lambda: {rng.choice(self.NAMES): names()},
            "enum": lambda: [1, "a", None, [1], {"a": 2}],
            "$ref": lambda: rng.choice(
                ["#", "#/properties/a", "#/$defs/a/items/0", "other.json", "#/definitions/A<B>"]
            ),
            "$recursiveRef": lambda: "#",
            "$recursiveAnchor": lambda: True,
            "$schema": lambda: rng.choice(["http://json-schema.org/draft-07/schema#", schemas_module._DIALECT]),
            "$vocabulary": lambda: {"http://x/y": True},
            "exclusiveMinimum": lambda: rng.choice([True, False, 1]),
            "exclusiveMaximum": lambda: rng.choice([True, False, 9]),
            "uniqueItems": lambda: rng.choice([True, False]),
            "default": lambda: {"properties": 5, "$ref": 1},
            "examples": lambda: [1],
            "nullable": lambda: True,
            "minimum": lambda: rng.choice([0, 1.5]),
            "multipleOf": lambda: rng.choice([1, 0.5]),
        }
        makers |= dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], subs)
        makers |= dict.fromkeys(["properties", "$defs", "definitions", "dependentSchemas"], mapping)
        makers |= dict.fromkeys(["minLength", "maxItems", "maxContains", "minProperties"], lambda: rng.randint(0, 3))
        makers |= dict.fromkeys(["title", "format", "$comment", "contentMediaType"], lambda: "text")
        makers |= dict.fromkeys(["id", "$id"], lambda: rng.choice(["http://x/y", "#name", "x#y", "#"]))
        makers |= dict.fromkeys(["$anchor", "$dynamicAnchor"], lambda: "name")
        return makers.get(keyword, sub)()

    KEYWORDS = (
        *("type", "properties", "items", "required", "enum", "anyOf") * 4,
        *schemas_module._VERIFIED,
        *IDENTIFIERS,
        *schemas_module._TRANSLATED,
        *("default", "const", "nullable", "x-vendor"),
    )

    def schema(self, depth: int) -> Any:
        if depth <= 0 or self.random.random() < 0.05:
            return self.random.choice([True, {}, {"type": "string"}])
        return {key: self.value(key, depth) for key in self.random.sample(self.KEYWORDS, self.random.randint(0, 6))}

    def root(self) -> dict[str, Any]:
        schema = self.schema(4)
        return {**schema, "type": "object"} if isinstance(schema, dict) else {"properties": {"p": schema}}


class TestDifferential:
    @pytest.mark.parametrize(
        ("invalid", "count"),
        [
            pytest.param(0.0, 1500, id="valid"),
            pytest.param(0.04, 2500, id="mixed"),
            pytest.param(0.3, 1500, id="invalid"),
        ],
    )
    def test_whatever_is_returned_passes_the_metaschema_and_stays_the_same(self, invalid, count):
        returned = 0
        for seed in range(count):
            schema = SchemaMaker(seed, invalid).root()
            try:
                result = normalize_parameters(schema)
            except ValueError as error:
                assert str(error).startswith("#")
                continue
            returned += 1
            try:
                Draft202012Validator.check_schema(result)
            except SchemaError as error:
                pytest.fail(f"seed {seed}: {error.json_path}: {error.message}")
            assert normalize_parameters(result) == result, seed
            if seed % 10 == 0:
                assert_accepted_by_haystack(result)
        assert returned > count / 20

    def test_one_wrong_value_of_each_keyword_never_slips_through(self):
        maker = SchemaMaker(0, 0.0)
        values = [*{repr(value): value for value in (maker.junk(2) for _ in range(150))}.values()]
        for keyword in dict.fromkeys(SchemaMaker.KEYWORDS):
            for value in values:
                for schema in ({"type": "object", keyword: value}, {"properties": {"p": {keyword: value}}}):
                    try:
                        result = normalize_parameters(schema)
                    except ValueError:
                        continue
                    Draft202012Validator.check_schema(result)

    def test_every_keyword_the_metaschema_constrains_is_verified_or_dropped(self):
        registry = Draft202012Validator({})._resolver._registry
        base = "https://json-schema.org/draft/2020-12"
        parts = ["schema", *(f"meta/{part}" for part in ("core", "applicator", "unevaluated", "validation"))]
        parts += [f"meta/{part}" for part in ("meta-data", "format-annotation", "content")]
        constrained = {
            keyword
            for part in parts
            for keyword, rule in registry.contents(f"{base}/{part}")["properties"].items()
            if rule is not True
        }
        known = {*schemas_module._VERIFIED, *IDENTIFIERS, "dependencies"}
        assert constrained == known

    @rows(("validator", "numeric"), [(Draft4Validator, False), (Draft7Validator, True)])
    def test_the_meaning_of_old_drafts_is_kept(self, validator, numeric):
        keywords = [
            "type",
            "items",
            "additionalItems",
            "properties",
            "enum",
            "anyOf",
            "not",
            "dependencies",
            "maxItems",
        ]
        keywords += ["minimum", "required", "oneOf", "additionalProperties", "id", "title", "minLength", "uniqueItems"]
        compared = 0
        for seed in range(500):
            rng = random.Random(seed)

            def make(depth: int, rng: random.Random = rng) -> dict[str, Any]:
                sub = lambda: make(depth - 1)  # noqa: E731
                schema: dict[str, Any] = {}
                for key in rng.sample(keywords, rng.randint(1, 4)) if depth else []:
                    schema[key] = {
                        "type": lambda: rng.choice(SchemaMaker.TYPES),
                        "items": lambda: rng.choice([sub(), [sub()], [sub(), sub()]]),
                        "additionalItems": lambda: rng.choice([False, sub()]),
                        "additionalProperties": lambda: rng.choice([False, sub()]),
                        "properties": lambda: {"a": sub(), "b": sub()},
                        "enum": lambda: [1, "a", ["a"]],
                        "anyOf": lambda: [sub(), sub()],
                        "oneOf": lambda: [sub(), sub()],
                        "not": sub,
                        "dependencies": lambda: {"a": rng.choice([["b"], sub()])},
                        "maxItems": lambda: 1,
                        "minLength": lambda: 1,
                        "minimum": lambda: 1,
                        "required": lambda: [rng.choice("ab")],
                        "id": lambda: f"#n{rng.randint(0, 10**9)}",
                        "title": lambda: "t",
                        "uniqueItems": lambda: True,
                    }[key]()
                if "minimum" in schema and rng.random() < 0.6:
                    schema.update({"exclusiveMinimum": 0} if numeric else {"exclusiveMinimum": rng.random() < 0.7})
                return schema

            old = {"type": "object", "properties": {"p": make(3)}}
            validator.check_schema(old)
            new = normalize_parameters(old)
            instances = [0, 1, 2, "", "a", None, [], [1], ["a", 1], [1, 1], {}, {"a": 1}, {"a": "", "b": [1]}, {"b": 2}]
            for instance in instances:
                arguments = {"p": instance}
                assert validator(old).is_valid(arguments) == Draft202012Validator(new).is_valid(arguments), (seed, old)
                compared += 1
        assert compared == 500 * 14

    def test_dropping_patterns_never_makes_a_schema_stricter(self):
        strings = ["", "a", "ab", "zz"]
        instances = [*strings, 1, [], ["a"], ["a", "b", "z"], {}, {"a": "a"}, {"a": "z", "z": 1}, {"z": "a"}]
        for seed in range(500):
            rng = random.Random(seed)

            def make(depth: int, rng: random.Random = rng) -> dict[str, Any]:
                sub = lambda: make(depth - 1)  # noqa: E731
                makers: dict[str, Any] = {
                    "pattern": lambda: "a+",
                    "patternProperties": lambda: {rng.choice(["a+", "^z"]): sub()},
                    "additionalProperties": lambda: rng.choice([False, sub()]),
                    "properties": lambda: {"a": sub()},
                    "propertyNames": sub,
                    "items": sub,
                    "not": sub,
                    "if": sub,
                    "then": sub,
                    "else": sub,
                    "oneOf": lambda: [sub(), sub()],
                    "anyOf": lambda: [sub(), sub()],
                    "contains": sub,
                    "maxContains": lambda: 1,
                    "minLength": lambda: 2,
                }
                return (
                    {k: makers[k]() for k in rng.sample(list(makers), rng.randint(1, 4))}
                    if depth
                    else {"pattern": "a+"}
                )

            exact = {"type": "object", "properties": {"p": make(3)}}
            foreign = json.loads(json.dumps(exact).replace('"a+"', json.dumps("a+|" + UNCOMPILABLE)))
            widened = normalize_parameters(foreign)
            for instance in instances:
                if Draft202012Validator(exact).is_valid({"p": instance}):
                    assert Draft202012Validator(widened).is_valid({"p": instance}), (seed, exact, instance)
