# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

import pytest
from haystack.tools import Tool

from haystack_integrations.tools.mcp.convert.arguments import at_pointer
from haystack_integrations.tools.mcp.convert.server_texts import visible_text
from haystack_integrations.tools.mcp.convert.tool_schemas import map_strings, normalize_parameters, without_properties
from tests.support.rows import rows

A, B, C = {"type": "string"}, {"type": "integer"}, {"type": "object", "properties": {"c": {"type": "boolean"}}}
OBJECT, NULL = {"type": "object"}, {"type": "null"}
NULLABLE = {"anyOf": [A, NULL]}
# A pattern that Python cannot compile.
ODD = r"^\p{L}+$"


def normalize_property(schema: Any) -> Any:
    return normalize_parameters({"type": "object", "properties": {"p": schema}})["properties"]["p"]


def assert_accepted_by_haystack(schema: dict[str, Any]) -> None:
    Tool(name="t", description="", parameters=schema, function=lambda **arguments: arguments)


class TestForeignSchemas:
    def test_a_2020_12_schema_is_unchanged(self):
        schema = {
            "type": "object",
            "title": "T",
            "properties": {
                "a": {"type": "string", "pattern": "^a", "minLength": 1, "format": "date", "default": None},
                "b": {"type": "array", "prefixItems": [{"enum": [1]}], "items": False, "uniqueItems": True},
                "c": {"anyOf": [{"$ref": "#/$defs/X"}, {}], "examples": [1, {"x": []}], "deprecated": True},
                "d": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 7, "multipleOf": 0.5},
                "e": {"nullable": True, "x-vendor": {"deep": [1, {"pattern": ODD}]}, "enum": ["a", None, {}]},
                "head": {"$ref": "#/$defs/Node"},
            },
            "patternProperties": {"^x-": {"type": "string"}},
            "required": ["a"],
            "dependentRequired": {"a": ["b"]},
            "dependentSchemas": {"a": {"maxProperties": 3}},
            "unevaluatedProperties": False,
            "$defs": {"X": {"type": "string"}, "Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}},
        }
        before = copy.deepcopy(schema)
        result = normalize_parameters(schema)
        assert result == schema
        result["properties"]["e"]["enum"].append(1)
        assert schema == before
        assert_accepted_by_haystack(before)

    @rows(
        ("old", "new"),
        ({"items": [A, B], "additionalItems": False}, {"prefixItems": [A, B], "items": False}),
        ({"items": A, "additionalItems": False}, {"items": A}),
        ({"minimum": 1, "exclusiveMinimum": True, "maximum": 5}, {"exclusiveMinimum": 1, "maximum": 5}),
        ({"minimum": 1, "exclusiveMinimum": False, "exclusiveMaximum": True}, {"minimum": 1}),
        (
            {"properties": {"c": {"type": "any", "required": True}}, "required": ["d", "d"]},
            {"properties": {"c": {}}, "required": ["d", "c"]},
        ),
        ({"id": "http://x/y", "$id": "#name", "$anchor": "x", "$schema": "urn:mine"}, {"id": "http://x/y"}),
        ([], {}),
        ({"properties": [], "dependentRequired": [], "required": {}}, {"properties": {}}),
        ({"enum": ["a", "b", "a", 1, True, 1]}, {"enum": ["a", "b", 1, True]}),
        ({"enum": []}, {}),
        ({"properties": {"value": True}, "items": True}, {"properties": {"value": {}}, "items": {}}),
        (
            {"type": ["null", "array"], "items": [A]},
            {"anyOf": [NULL, {"type": "array", "prefixItems": [A], "items": {}}]},
        ),
        ({"type": "Int", "items": {"type": ["str", "NULL", "null"]}}, {"type": "integer", "items": NULLABLE}),
        ({"type": "list"}, {"type": "array", "items": {}}),
        ({"type": None, "properties": None, "required": None, "description": None}, {}),
        ({"type": "string", "title": 5, "format": 1, "examples": "x", "readOnly": "yes"}, {"type": "string"}),
        *[({"type": "string", "pattern": pattern}, A) for pattern in (ODD, "(?<y>x)", "(" * 5000)],
        ({"patternProperties": {ODD: {}, "^x": {}}, "additionalProperties": False}, {}),
        ({"type": "string", "not": {"minLength": 2, "pattern": ODD}}, A),
        ({"type": "string", "if": {"pattern": ODD}, "then": {"const": "x"}}, {**A, "then": {"enum": ["x"]}}),
        # Properties with names of keywords.
        ({"properties": {"items": B, "required": {}}}, {"properties": {"items": B, "required": {}}}),
    )
    def test_older_drafts_and_odd_encoders_are_translated(self, old, new):
        assert normalize_property(old) == new
        assert_accepted_by_haystack(normalize_parameters({"properties": {"p": old}}))

    @rows(
        ("given", "common"),
        # Schemas of chrome-devtools-mcp, mcp-server-fetch, sequential-thinking, Notion and Playwright.
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "exclusiveMaximum": 9.5}, {"type": "integer", "maximum": 9}),
        ({"type": ["boolean", "string"], "title": "T"}, {"anyOf": [{"type": "boolean"}, A], "title": "T"}),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"anyOf": [{**A, "enum": ["a"]}, NULL]}),
        ({"type": ["object", "null"], "properties": {"a": A}}, {"anyOf": [{**OBJECT, "properties": {"a": A}}, NULL]}),
        ({"type": ["string"]}, A),
        (
            {"type": ["integer", "null"], "exclusiveMinimum": 0},
            {"anyOf": [{"type": "integer", "minimum": 1}, NULL]},
        ),
        ({"oneOf": [A, {"const": 1}]}, {"anyOf": [A, {"enum": [1]}]}),
        ({**OBJECT, "propertyNames": A, "additionalProperties": A}, {**OBJECT, "additionalProperties": A}),
        ({"anyOf": [A, B], "discriminator": {"propertyName": "kind"}}, {"anyOf": [A, B]}),
        ({"type": "array", "prefixItems": [A, A], "maxItems": 2}, {"type": "array", "items": A, "maxItems": 2}),
        # Other schemas would lose information, so they are unchanged.
        ({"prefixItems": [A], "maxItems": 2}, {"prefixItems": [A], "maxItems": 2}),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "exclusiveMinimum": 0}),
        ({"type": ["array", "string"], "items": A}, {"type": ["array", "string"], "items": A}),
        ({**OBJECT, "propertyNames": {"pattern": "^x"}}, {**OBJECT, "propertyNames": {"pattern": "^x"}}),
    )
    def test_keywords_that_gemini_does_not_have_are_replaced(self, given, common):
        assert normalize_property(given) == common
        assert_accepted_by_haystack(normalize_parameters({"properties": {"p": given}}))


BY_KIND = [
    {"type": "object", "properties": {"kind": {"const": kind}, key: A}, "required": ["kind", key]}
    for kind, key in (("post", "text"), ("photo", "url"))
]
ALTERNATIVES = {"kind": {"enum": ["post", "photo"]}, "text": A, "url": A}


C_AND_D, D = {"c": {}, "d": A}, {"properties": {"d": A}}


class TestOneObject:
    @rows(
        ("schema", "properties", "required"),
        ({"allOf": [{"properties": {"a": A}, "required": ["a"]}, C]}, {"a": A, "c": {}}, ["a"]),
        ({"anyOf": BY_KIND}, ALTERNATIVES, ["kind"]),
        ({"oneOf": [{"$ref": "#/$defs/Post"}, BY_KIND[1]], "$defs": {"Post": BY_KIND[0]}}, ALTERNATIVES, ["kind"]),
        ({"properties": {"a": A}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": A}, []),
        ({"properties": {"a": A}, "not": {"required": ["b"]}, "enum": [{"a": "x"}]}, {"a": A}, []),
        ({"if": {"required": ["a"]}, "then": {**C, "required": ["c"]}, "else": D}, C_AND_D, []),
        ({"anyOf": [{"properties": {"a": A}}, {"properties": {"a": B}}]}, {"a": {"anyOf": [A, B]}}, []),
        ({"anyOf": [{"type": "null"}, {"type": "string"}, C, False]}, {"c": {}}, []),
        ({"allOf": [{"anyOf": [C, {"allOf": [{"properties": {"a": A}}]}]}]}, {"c": {}, "a": A}, []),
        ({"properties": {"a": A}, "allOf": [{"properties": {"a": {"minLength": 1}}}]}, {"a": A}, []),
        ({"$ref": "#/$defs/B", "title": "T", "$defs": {"B": {"$ref": "#/$defs/C"}, "C": C}}, {"c": {}}, []),
        ({"$ref": "https://example.com/schema", "properties": {"a": A}}, {"a": A}, []),
        ({"allOf": [{"$ref": "#"}], "properties": {"a": A}}, {"a": A}, []),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, {}, []),
        *((schema, {}, []) for schema in ({}, {"type": ["null", "object"]}, {"properties": None})),
    )
    def test_subschemas_of_the_root_are_merged_into_one_object(self, schema, properties, required):
        before = copy.deepcopy(schema)
        result = normalize_parameters(schema)
        assert schema == before
        assert {"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "$ref"}.isdisjoint(result)
        assert result["type"] == "object"
        assert result["properties"].keys() == properties.keys()
        for name, wanted in properties.items():
            assert wanted.items() <= result["properties"][name].items()
        assert result.get("required", []) == required
        assert normalize_parameters(result) == result
        assert_accepted_by_haystack(result)


class TestReferences:
    @rows(
        ("ref", "elsewhere"),
        ("#/$defs/X", {"definitions": {"X": A}}),
        ("#/$defs/X", {"dependentSchemas": {"other": {"$defs": {"X": A}}}}),
        ("#/definitions/X", {"$defs": {"Y": {"properties": {"p": {"definitions": {"X": A}}}}}}),
        ("#/components/schemas/X", {"components": {"schemas": {"X": {"type": "string", "required": True}}}}),
        ("#/$defs/a~1b~0c%25", {"$defs": {"a/b~c%": A}}),
        ("#/$defs/X/items/0/items/0", {"$defs": {"X": {"items": [{"items": [A]}]}}}),
        ("#/dependencies/X/properties/%C3%A4", {"dependencies": {"X": {"properties": {"ä": A}}}}),
        ("X", {"$defs": {"X": A}}),
        ("urn:x#/$defs/X", {"$defs": {"A": {"$id": "urn:x", "$defs": {"X": A}}}}),
        ("https://example.com/root#/$defs/X", {"$id": "https://example.com/root", "$defs": {"X": A}}),
        ("#/anyOf/0/properties/q", {"anyOf": [{"properties": {"q": A}, "required": ["q"]}]}),
        ("#/allOf/0/$defs/X", {"allOf": [{"$defs": {"X": A}}]}),
    )
    def test_referenced_definitions_are_found_everywhere_in_the_schema(self, ref, elsewhere):
        result = normalize_parameters({"type": "object", "properties": {"p": {"$ref": ref}}, **elsewhere})
        assert at_pointer(result, result["properties"]["p"]["$ref"][1:]) == A
        assert_accepted_by_haystack(result)

    @rows("ref", "#/$defs/X", "#/properties/X", "http://127.0.0.1:1/x.json", "http://[", "#%zz")
    def test_a_dangling_reference_accepts_anything_and_is_reported(self, ref):
        notes: list[str] = []
        member = {"$ref": ref, "description": "D", "$comment": "c"}
        schema = {"properties": {"p": member, "q": {"type": "array", "items": {"$ref": ref}}}, "$defs": {"Y": A}}
        result = normalize_parameters(schema, notes)
        assert result["properties"] == {"p": {"description": "D", "$comment": "c"}, "q": {"type": "array", "items": {}}}
        said = "its schema refers to definitions that it does not have; anything is accepted in their place"
        assert notes == [f"{said}: {ref!r}"]

    @rows(("ref", "name"), ("T0", {"$id": "T0"}), ("#node", {"$anchor": "node"}))
    def test_a_schema_may_be_named_where_it_is_as_typebox_names_recursive_types(self, ref, name):
        node = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": ref}}}}
        result = normalize_parameters({"properties": {"tree": {**node, **name}}})
        items = result["properties"]["tree"]["properties"]["children"]["items"]
        assert at_pointer(result, items["$ref"][1:])["properties"]["children"]["items"] == items

    def test_a_reference_to_true_accepts_anything(self):
        schema = {"properties": {"p": {"$ref": "#/$defs/Value", "title": "T"}}, "$defs": {"Value": True}}
        notes: list[str] = []
        assert normalize_parameters(schema, notes)["properties"] == {"p": {"title": "T"}}
        assert notes == []


class TestRejections:
    @rows(
        ("schema", "message"),
        ([], "#: must be a JSON object, not"),
        ({"type": ["string"]}, "#/type: must be 'object'"),
        ({"type": {}}, "#/type: must be 'object'"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "#: accepts no object"),
        ({"$ref": "#/$defs/S", "$defs": {"S": {"type": "string"}}}, "#: accepts no object"),
    )
    def test_a_schema_that_is_not_an_object_or_accepts_none_is_rejected(self, schema, message):
        with pytest.raises(ValueError, match=message):
            normalize_parameters(schema)

    @rows(
        ("schema", "message"),
        ({"type": [1]}, "/type: must be 'array', 'boolean', 'integer', 'null', 'number', 'object' or 'string'"),
        ({"properties": {"a/b~": 5}}, "/properties/a~1b~0: must be a schema, not int"),
        ({"required": "a"}, "/required: must be a valid list, not 'a'"),
        ({"anyOf": []}, "/anyOf: must be a non-empty list"),
        ({"allOf": [{}, 3]}, "/allOf/1: must be a schema, not int"),
        ({"items": [{"type": 1}]}, "/prefixItems/0/type: must be 'array', "),
        ({"maximum": float("nan")}, "/maximum: must be a finite number"),
        ({"multipleOf": 0}, "/multipleOf: must be greater than 0"),
        # The reason does not contain the schema.
        ({"properties": {"n" * 5000: {"type": "t" * 5000}}}, "/properties/n"),
    )
    def test_an_invalid_keyword_is_rejected_with_its_place(self, schema, message):
        with pytest.raises(ValueError) as caught:
            normalize_property(schema)
        assert str(caught.value).startswith(f"#/properties/p{message}")
        assert len(str(caught.value)) < 600

    def test_a_schema_that_is_nested_too_deeply_for_haystack_is_rejected(self):
        schema: dict[str, Any] = {}
        for _ in range(300):
            schema = {"anyOf": [schema]}
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            normalize_property(schema)
        deep: list[Any] = []
        for _ in range(2000):
            deep = [deep]
        with pytest.raises(ValueError, match="nested too deeply"):
            normalize_property({"default": deep})


def test_a_pattern_keeps_its_meaning_without_its_invisible_characters():
    value = {"pattern": {"pattern": "^[^\x00-\x1f\u200b]$"}}
    assert map_strings(value, visible_text) == {"pattern": {"pattern": r"^[^\u0000-\u001f\u200b]$"}}


class TestHiddenProperties:
    def test_hidden_properties_are_removed_and_the_original_is_unchanged(self):
        kept = {"a": {"type": "string"}, "b": {"enum": [1]}}
        begin = {"type": "object", "additionalProperties": False}
        schema = {
            **begin,
            "properties": {**kept, "secret": {"type": "string"}},
            "required": ["a", "secret"],
            "dependentRequired": {"a": ["secret"]},
            "minProperties": 2,
        }
        before = copy.deepcopy(schema)
        shown = without_properties(schema, ["secret"])
        assert shown == {**begin, "properties": kept, "required": ["a"]}
        assert schema == before
        assert without_properties(schema, ["secret", "a", "b"]) == {**begin, "properties": {}}

    def test_a_hidden_property_that_others_refer_to_is_kept_as_a_definition(self):
        schema = normalize_parameters(
            {
                "properties": {
                    "a": {"type": "array", "items": {"$ref": "#/$defs/item"}},
                    "b": {"$ref": "#/properties/a"},
                    "c": {"$ref": "#/$defs/a"},
                    "d": {"$ref": "#/$defs/gone"},
                },
                "$defs": {"a": B, "item": A, "gone": C},
            }
        )
        result = without_properties(schema, ["a", "d"])
        assert result["properties"] == {"b": {"$ref": "#/$defs/a"}, "c": {"$ref": "#/$defs/a_"}}
        assert result["$defs"] == {"a": {"type": "array", "items": {"$ref": "#/$defs/item"}}, "a_": B, "item": A}
        assert normalize_parameters(result) == result
        assert_accepted_by_haystack(result)
