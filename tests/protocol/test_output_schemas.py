# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import socket
from typing import Any

import pytest
from jsonschema.validators import validator_for
from referencing import Registry

from haystack_integrations.tools.mcp.protocol.listed_tools import OutputSchema, Verdict
from tests.support.hostile_schemas import HOSTILE, nested
from tests.support.rows import rows

AMPLE = 60.0

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


def verdict(schema: Any, value: Any, seconds: float = AMPLE) -> Verdict:
    return OutputSchema(schema).validate(value, seconds)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
SCHEMAS: list[dict[str, Any]] = [
    {"anyOf": [TEXT, {"type": "object", "required": ["a"]}]},
    {"allOf": [{"type": "object"}, {"required": ["a"]}]},
    {"oneOf": [NUMBER, {"minimum": 1}]},
    {"not": TEXT},
    {"if": TEXT, "then": {"minLength": 2}, "else": {"type": "object"}},
    {"properties": {"a": {"$ref": "#/definitions/shared"}}, "additionalProperties": NUMBER},
    {"properties": {"b": {"$ref": "#"}}, "required": ["a"]},
    {"patternProperties": {"^b": False}, "propertyNames": {"maxLength": 1}},
    {"dependencies": {"a": ["b"], "b": {"minProperties": 2}}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"properties": {"a": NUMBER}, "unevaluatedProperties": False},
    {"items": TEXT, "uniqueItems": True},
    {"prefixItems": [NUMBER], "items": [NUMBER], "additionalItems": TEXT},
    {"contains": NUMBER},
    {"enum": ["a", {"a": 1}]},
]
VALUES: list[Any] = [None, 0, 1, "a", "ab", [], ["a"], [1, "a"], ["a", "a"], [1, 1]]
VALUES += [{}, {"a": 1}, {"a": "x"}, {"b": {}}, {"a": 1, "b": 2}, {"a": 1, "b": {"a": 1}}, {"a": 1, "bb": "x"}]


@rows("draft", DRAFTS)
def test_verdicts_are_those_of_jsonschema(draft):
    for each in SCHEMAS:
        schema = {**each, "$schema": draft, "definitions": {"shared": TEXT}}
        if not validator_for(schema)(validator_for(schema).META_SCHEMA).is_valid(schema):
            continue  # a list of `items` is none in the newest
        plain, checked = validator_for(schema)(schema, registry=Registry()), OutputSchema(schema)
        for value in VALUES:
            found = checked.validate(value, AMPLE)
            assert (found.violation is None) is plain.is_valid(value), (schema, value, found)
            assert found == Verdict(found.violation)


@rows(
    ("schema", "value", "place"),
    [
        ({"properties": {"rows": {"items": NUMBER}}}, {"rows": [1, "a secret"]}, "at $.rows[1]: 'type' is violated"),
        ({"additionalProperties": False}, {"x": "a secret"}, "at $: 'additionalProperties' is violated"),
        ({"properties": {"x": False}}, {"x": 1}, "at $: 'false' is violated"),
    ],
)
def test_a_violation_is_reported_by_its_place_and_nothing_of_the_value(schema, value, place):
    assert verdict(schema, value).violation.endswith(f"output schema ({place})")


@rows("name", HOSTILE)
def test_a_hostile_one_ends_in_time(name):
    schema, value = HOSTILE[name]
    for seconds in (0.01, 0.2):
        assert verdict(schema, value, seconds).violation is None


def test_a_schema_that_was_cut_off_while_it_was_read_is_read_again():
    schema = OutputSchema({"properties": {"x": {"type": "string"}}})
    assert schema.validate({"x": 1}, 0).cut_off
    assert "$.x" in schema.validate({"x": 1}, AMPLE).violation


def test_deep_nesting_and_a_schema_without_end_reject_nothing():
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"properties": {"inner": deep}}
    assert "(RecursionError)" in verdict(deep, nested(400)).unusable
    assert "(RecursionError)" in verdict({"additionalProperties": {"$ref": "#"}}, nested(900)).unusable

    def deeper(frames: int) -> Verdict:  # the stack may be full anywhere
        return deeper(frames - 1) if frames else verdict({"not": {"$ref": "#"}}, {})

    assert all("the schema cannot be used (" in str(deeper(frames).unusable) for frames in range(40))


def test_a_reference_to_another_document_is_never_fetched():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        assert "cannot be used" in verdict({"properties": {"x": {"$ref": url}}}, {"x": 1}).unusable
        with pytest.raises(BlockingIOError):
            listener.accept()
