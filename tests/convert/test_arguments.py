# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

from haystack_integrations.tools.mcp.convert.arguments import fit_arguments, undeclared
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters
from tests.support.rows import rows

POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x"]}
SCHEMA = normalize_parameters(
    {
        "properties": {
            "text": {"type": "string"},
            "needed": {"type": "string"},
            "whole": {"type": "integer"},
            "number": {"type": ["number", "null"]},
            "flag": {"type": "boolean"},
            "maybe": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
            "open": {"type": "string", "nullable": True},
            "point": {"$ref": "#/$defs/Point"},
            "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
            "either": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            "one": {"oneOf": [{"$ref": "#/$defs/Point"}, {"type": "boolean"}]},
            "loose": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "object"}]},
            "choice": {"enum": [1, 2]},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            "anything": {},
            "tree": {"$ref": "#/$defs/Tree"},
        },
        "required": ["needed"],
        "$defs": {
            "Point": POINT,
            "Tree": {
                "anyOf": [
                    {"type": "null"},
                    {"$ref": "#/$defs/Tree"},
                    {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}, "n": {"type": "integer"}}},
                ]
            },
        },
    }
)


@rows(
    ("given", "sent"),
    ({"text": None, "whole": None, "flag": None, "points": None, "point": None, "one": None, "choice": None}, {}),
    ({"point": {"x": None, "y": None}}, {"point": {"x": None}}),
    ({"whole": "null", "flag": "None", "points": "", "needed": "null", "text": ""}, {"needed": "null", "text": ""}),
    ({"points": '[{"x": "1", "y": null}, {"x": 2.0}]'}, {"points": [{"x": 1}, {"x": 2}]}),
    ({"maybe": " [1, 2]\n"}, {"maybe": [1, 2]}),
    ({"maybe": "null"}, {"maybe": None}),
    ({"maybe": "None"}, {}),
    ({"maybe": ""}, {}),
    ({"point": '{"x": 1}', "one": '{"x": "1"}'}, {"point": {"x": 1}, "one": {"x": 1}}),
    ({"loose": {"x": "1", "y": None}}, {"loose": {"x": "1", "y": None}}),
    ({"whole": 5.0, "choice": "2"}, {"whole": 5, "choice": 2}),
    ({"whole": "5", "number": "-5.5e1", "flag": "true"}, {"whole": 5, "number": -55.0, "flag": True}),
    ({"whole": "5.0", "number": "7", "flag": "FALSE"}, {"whole": 5, "number": 7, "flag": False}),
    ({"tree": {"left": {"n": "1", "left": None}}}, {"tree": {"left": {"n": 1, "left": None}}}),
    ({"pair": ["1", "2"]}, {"pair": ["1", 2]}),
)
def test_arguments_of_a_model_are_converted_to_the_types_of_the_schema(given: dict[str, Any], sent: Any) -> None:
    before = copy.deepcopy(given)
    fitted = fit_arguments(given, SCHEMA)
    assert repr(fitted) == repr(sent)  # 5.0 equals 5
    assert given == before


@rows(
    "given",
    {"needed": None, "number": None, "maybe": None, "open": None, "anything": None, "unknown": None, "tree": None},
    {"text": '{"x": 1}', "either": '{"x": 1}', "anything": "[1]", "unknown": "[1]"},
    {"whole": "5.5", "number": "five", "flag": "yes", "choice": "1e400", "point": "[1]", "points": "[1"},
    {"whole": 5.5, "number": 5.0, "flag": 1, "text": 5},
    {"whole": "9" * 5000, "number": "1e400", "points": "[" * 100_000, "point": "Infinity", "maybe": "NaN"},
)
def test_all_other_arguments_are_sent_unchanged(given: dict[str, Any]) -> None:
    assert repr(fit_arguments(given, SCHEMA)) == repr(given)


@rows(
    ("more", "unknown"),
    ({}, ["b"]),
    ({"additionalProperties": False}, ["b"]),
    ({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, []),
    ({"additionalProperties": {}}, []),
    ({"patternProperties": {"^b": {}}}, []),
    ({"unevaluatedProperties": {}}, []),
    ({"required": ["b"]}, []),
    ({"properties": {}}, []),
)
def test_arguments_that_a_schema_does_not_have_are_found_unless_it_allows_additional_ones(more, unknown):
    usable = normalize_parameters({"properties": {"a": {}}, **more})
    assert undeclared({"a": 1, "b": 2}, usable["properties"], usable) == unknown
